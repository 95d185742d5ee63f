//! Captures of real forms, and text that is none.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use warpmeter_core::identity::{ContainerId, PodUid};

use super::*;

/// The scope that a capture's `# expect:` line names.
fn expected(words: &str) -> Scope {
    let words: Vec<_> = words.split(' ').collect();
    match words[..] {
        ["pod", uid, container] => Scope::Pod {
            uid: PodUid::new(uid),
            container: (container != "-").then(|| ContainerId::new(container)),
        },
        ["container", id] => Scope::Container(ContainerId::new(id)),
        ["slurm", job] => Scope::SlurmJob(job.into()),
        ["unit", name] => Scope::Unit(name.into()),
        ["host"] => Scope::Host,
        _ => panic!("an expectation of no known form: {words:?}"),
    }
}

#[test]
fn every_capture_gives_the_owner_that_it_says() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/cgroup");
    let mut count = 0;
    for capture in fs::read_dir(captures).unwrap() {
        let path = capture.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let (comments, lines): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('#'));
        let words = comments.iter().find_map(|line| line.strip_prefix("# expect: ")).unwrap();
        let parsed = Membership::parse(&lines.join("\n"));
        assert_eq!(parsed, Membership { scope: Some(expected(words)), garbage: 0 }, "{}", path.display());
        count += 1;
    }
    assert!(count >= 50, "only {count} captures");
}

#[test]
fn a_line_that_does_not_parse_is_counted_and_costs_no_other() {
    let parsed = Membership::parse(
        "nonsense\n0:/\nx::/a\n:memory:/b\n4:memory:relative\n0::/system.slice/a.service\n",
    );
    assert_eq!(parsed, Membership { scope: Some(Scope::Unit("a.service".into())), garbage: 5 });
}

#[test]
fn a_text_without_any_line_says_nothing() {
    assert_eq!(Membership::parse(""), Membership { scope: None, garbage: 0 });
    assert_eq!(scope("\n\n"), Scope::Host);
}

#[test]
fn a_path_with_colons_stays_whole() {
    assert_eq!(scope("0::/system.slice/a:b:c.service"), Scope::Unit("a:b:c.service".into()));
}

#[test]
fn of_hierarchies_that_say_equally_much_the_unified_one_is_believed() {
    let text = "3:memory:/system.slice/m.service\n1:name=systemd:/system.slice/s.service\n0::/system.slice/u.service";
    assert_eq!(scope(text), Scope::Unit("u.service".into()));
}

#[test]
fn a_name_that_is_only_a_suffix_is_no_unit() {
    assert_eq!(scope("0::/.service/.scope"), Scope::Host);
}

#[test]
fn a_pod_beside_the_expected_directories_is_none() {
    let uid = "0b2a7c1e-54f0-4a8e-9d3b-8f6f2f1f0a11";
    assert_eq!(scope(&format!("0::/home/pod{uid}/x")), Scope::Host);
    assert_eq!(scope(&format!("0::/system.slice/xkubepods-pod{uid}.slice")), Scope::Host);
    assert_eq!(scope("0::/kubepods/burstable/pod"), Scope::Host);
}

/// Names that paths are made of, and pieces of them.
fn name() -> impl Strategy<Value = String> {
    const PLAIN: [&str; 7] =
        ["kubepods", "..", "burstable", "slurm", "uid_1000", "system.slice", "slurmstepd.scope"];
    let uid = || "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    prop_oneof![
        2 => prop::sample::select(&PLAIN[..]).prop_map(str::to_owned),
        1 => uid().prop_map(|uid| format!("pod{uid}")),
        1 => uid().prop_map(|uid| format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"))),
        1 => (uid(), "[0-9a-f]{64}").prop_map(|(uid, id)| format!("kubepods-pod{uid}.slice:cri-containerd:{id}")),
        1 => "kubepods-(besteffort-)?pod[a-z_.]{0,8}(.slice)?",
        1 => "(cri-containerd|crio|docker|libpod|crio-conmon)-[0-9a-f]{0,70}(.scope)?",
        1 => "[0-9a-f]{64}",
        1 => "job_[0-9a-z]{0,4}",
        1 => "[a-z@\\\\-]{0,6}(.service|.scope|.slice)",
        1 => "\\PC{0,8}",
    ]
}

/// A text of a cgroup file, more or less.
fn file() -> impl Strategy<Value = String> {
    let controllers = prop_oneof![Just(""), Just("memory"), Just("name=systemd"), Just("cpu,cpuacct")];
    let path = prop::collection::vec(name(), 0..8).prop_map(|names| format!("/{}", names.join("/")));
    let line = (0_u8..13, controllers, path)
        .prop_map(|(id, controllers, path)| format!("{id}:{controllers}:{path}"));
    prop::collection::vec(prop_oneof![4 => line, 1 => ".{0,20}"], 0..6).prop_map(|lines| lines.join("\n"))
}

/// Whether what `scope` names is in `text`.
fn is_from(scope: &Scope, text: &str) -> bool {
    match scope {
        Scope::Pod { uid, container } => {
            let dashed = text.replace('_', "-");
            !uid.as_str().is_empty()
                && dashed.contains(uid.as_str())
                && container.as_ref().is_none_or(|id| text.contains(id.as_str()))
        }
        Scope::Container(id) => text.contains(id.as_str()),
        Scope::SlurmJob(name) | Scope::Unit(name) => text.contains(&**name),
        Scope::Host => true,
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_scope_that_is_in_them(bytes: Vec<u8>) {
        let text = String::from_utf8_lossy(&bytes);
        prop_assert!(is_from(&scope(&text), &text));
    }

    #[test]
    fn any_arrangement_of_known_names_gives_a_scope_that_is_in_it(text in file()) {
        prop_assert!(is_from(&scope(&text), &text));
    }

    #[test]
    fn what_lies_below_a_pods_cgroup_does_not_change_the_pod(names in prop::collection::vec(name(), 0..6)) {
        let pod = "0::/kubepods/burstable/pod0b2a7c1e-54f0-4a8e-9d3b-8f6f2f1f0a11";
        let container = "/c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
        let below = names.join("/").replace('\n', "");
        prop_assert_eq!(scope(&format!("{pod}{container}/{below}")), scope(&format!("{pod}{container}")));
    }
}
