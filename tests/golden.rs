//! A run can be recorded, and replayed to the same metrics, byte for byte.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::assert_conserved;
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{daemon, http, tool};

/// A whole GPU, one divided by MIG, one shared by replicas.
const NODE: &str = r#"
[[gpu]]
model = "H100"

[[gpu]]
model = "H100"
mig = [{ profile = "3g.40gb" }, { profile = "1g.10gb" }, { profile = "2g.20gb", ci = false }]

[[gpu]]
model = "H100"

[[fault]]
kind = "xid"
gpu = 2
code = 31
at_s = 4.0

[[fault]]
kind = "garbage"
gpu = 0
at_s = 5.0
for_s = 1.0
"#;

fn file(directory: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).join(name)
}

fn replay(sim: &Sim, recording: &Path) -> std::process::Output {
    daemon::run(sim, [OsString::from("replay"), recording.into()])
}

/// Records a node with pods of every kind of grant.
fn record(recording: &Path, metrics: &Path, duration: &str) -> Sim {
    let sim = Sim::new(NODE);
    let mut cgroups = Cgroups::new();
    let containers = cgroups
        .as_mut()
        .map(|cgroups| [cgroups.systemd(), cgroups.cgroupfs(), cgroups.systemd(), cgroups.cgroupfs()]);
    let [whole, divided, shared] = [&sim.gpus[0].uuid, &sim.gpus[1].instances[0], &sim.gpus[2].uuid];
    let mut more = String::from("[price]\nH100 = 2.95\n");
    let procs: Vec<Option<&Path>> = match &containers {
        Some([a, b, c, d]) => {
            let replicas = [format!("{shared}::0"), format!("{shared}::1")];
            let pods = cgroup::pods(&[
                ("trainer", a, whole),
                ("on \"MIG\"\\", b, divided),
                ("first", c, &replicas[0]),
                ("second", d, &replicas[1]),
            ]);
            more += &sim.pods(&format!("[[device]]\nid = {shared:?}\nreplicas = 4\n{pods}"));
            [a, b, c, d].map(|container| Some(container.procs.as_path())).into()
        }
        None => vec![None; 4],
    };
    let words = "hog --duty 0.5 --kernel-us 1000";
    let _programs = [whole, divided, shared, shared]
        .iter()
        .zip(procs)
        .map(|(device, procs)| Program::start(&sim, device, procs, words))
        .collect::<Vec<_>>();
    let config = sim.configure(http::free_address(), &more);
    let arguments: [OsString; 8] = [
        "record".into(),
        "--config".into(),
        config.into(),
        "--duration".into(),
        duration.into(),
        "--metrics".into(),
        metrics.into(),
        recording.into(),
    ];
    let output = daemon::run(&sim, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sim
}

#[test]
fn a_recording_of_a_shared_node_replays_to_the_metrics_that_were_agreed_on() {
    let recording = file("fixtures/recordings", "shared-node.jsonl");
    if std::env::var_os("WARPMETER_RECORD").is_some() {
        std::fs::remove_file(&recording).unwrap_or_default();
        let metrics = tempfile::NamedTempFile::new().unwrap();
        record(&recording, metrics.path(), "8s");
    }
    let sim = Sim::new(NODE);
    let output = replay(&sim, &recording);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let golden = file("golden", "shared-node.prom");
    if std::env::var_os("WARPMETER_BLESS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let agreed = std::fs::read_to_string(&golden).unwrap();
    let other = text.lines().zip(agreed.lines()).find(|(now, agreed)| now != agreed);
    assert!(text == agreed, "first difference: {other:?}; WARPMETER_BLESS=1 rewrites {}", golden.display());

    let metrics = Exposition::parse(&text).unwrap();
    assert_conserved(&metrics);
    for pod in ["trainer", "on \"MIG\"\\", "first", "second"] {
        assert!(metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", pod)]) > 0.0, "{pod}");
    }
    assert_eq!(metrics.get("warpmeter_gpu_xid_errors_total", &[("xid", "31")]), Some(1.0));
}

#[test]
fn a_run_and_the_replay_of_its_recording_end_in_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, metrics) = (directory.path().join("run.jsonl"), directory.path().join("run.prom"));
    let sim = record(&recording, &metrics, "8s");
    let output = replay(&sim, &recording);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ran = std::fs::read_to_string(&metrics).unwrap();
    let replayed = String::from_utf8(output.stdout).unwrap();
    let other = ran.lines().zip(replayed.lines()).find(|(ran, replayed)| ran != replayed);
    assert!(ran == replayed, "first difference: {other:?}");
    assert!(Exposition::parse(&ran).unwrap().get("warpmeter_windows_total", &[]).unwrap() > 10.0);
    if Cgroups::new().is_none() {
        tool::skip("pods in recordings: no cgroup can be made here");
    }
}

#[test]
fn a_recording_is_never_overwritten() {
    let sim = Sim::new(NODE);
    let path = sim.path("kept.jsonl");
    std::fs::write(&path, "evidence").unwrap();
    let output = daemon::run(&sim, [OsString::from("record"), path.clone().into()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "evidence");
}

#[test]
fn a_recording_that_was_cut_replays_up_to_the_cut() {
    let sim = Sim::new(NODE);
    let text = std::fs::read_to_string(file("fixtures/recordings", "shared-node.jsonl")).unwrap();
    let half = text[..text.len() / 2].rfind('\n').unwrap() + 1;
    let (whole, cut) = (sim.path("whole.jsonl"), sim.path("cut.jsonl"));
    std::fs::write(&whole, &text[..half]).unwrap();
    std::fs::write(&cut, &text[..half + 20]).unwrap();
    let (whole, cut) = (replay(&sim, &whole), replay(&sim, &cut));
    assert!(cut.status.success());
    assert_eq!(whole.stdout, cut.stdout);
    assert!(!cut.stdout.is_empty());
    assert!(String::from_utf8_lossy(&cut.stderr).contains("middle of a line"));
}

#[test]
fn a_line_that_does_not_parse_is_named_with_its_file_number_and_reason() {
    let sim = Sim::new(NODE);
    let text = std::fs::read_to_string(file("fixtures/recordings", "shared-node.jsonl")).unwrap();
    let head = text.lines().next().unwrap();
    let path = sim.path("broken.jsonl");
    for (body, line, reason) in [
        (format!("{head}\n{{\"at\":1}}\n"), "line 2", "missing field"),
        (format!("{head}\nnonsense\n"), "line 2", "expected"),
        ("{\"warpmeter_recording\":2}\n".to_owned(), "line 1", "settings"),
        (
            head.replacen("\"warpmeter_recording\":2", "\"warpmeter_recording\":99", 1) + "\n",
            "line 1",
            "format 99",
        ),
        (String::new(), "line 1", "empty"),
    ] {
        std::fs::write(&path, &body).unwrap();
        let output = replay(&sim, &path);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{body}: {error}");
        assert!(output.stdout.is_empty());
        assert!(
            error.contains(path.to_str().unwrap()) && error.contains(line) && error.contains(reason),
            "{error}"
        );
    }
}
