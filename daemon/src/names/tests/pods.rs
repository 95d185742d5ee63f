//! What is read of pods.

use serde_json::{Value, json};
use warpmeter_core::fact::{PodInfo, PodNames};
use warpmeter_core::identity::ContainerId;

use super::{page, pod};
use crate::names::list::{PODS, Roll};
use crate::names::{LabelKeys, parse};

fn read(pods: impl IntoIterator<Item = Value>) -> Vec<PodNames> {
    parse(&page(pods, "")[..], &LabelKeys::default()).unwrap()
}

/// The attributes of a pod with these labels and annotations.
fn info(labels: Value, annotations: Value) -> PodInfo {
    let mut pod = pod("p");
    pod["metadata"]["labels"] = labels;
    pod["metadata"]["annotations"] = annotations;
    read([pod]).remove(0).info
}

#[test]
fn containers_of_every_kind_come_with_their_ids() {
    let id = "a".repeat(64);
    let mut pod = pod("p");
    pod["spec"] = json!({
        "initContainers": [{ "name": "setup" }, { "name": "sidecar", "restartPolicy": "Always" }],
        "containers": [{ "name": "main", "image": "x" }, { "name": "other" }],
        "ephemeralContainers": [{ "name": "debugger" }],
        "volumes": [{ "name": "v" }],
    });
    pod["status"] = json!({
        "phase": "Running",
        "initContainerStatuses": [
            { "name": "setup", "containerID": format!("containerd://{id}") },
            { "name": "sidecar", "containerID": "cri-o://b" },
        ],
        "containerStatuses": [
            { "name": "main", "containerID": "docker://c", "ready": true },
            { "name": "other", "containerID": "" },
        ],
        "ephemeralContainerStatuses": [{ "name": "debugger", "containerID": "d" }],
    });
    let named = read([pod]).remove(0);
    let of: Vec<(&str, Option<&str>)> = named
        .containers
        .iter()
        .map(|container| (&*container.name, container.id.as_ref().map(ContainerId::as_str)))
        .collect();
    assert_eq!(
        of,
        [
            ("setup", Some(id.as_str())),
            ("sidecar", Some("b")),
            ("main", Some("c")),
            ("other", None),
            ("debugger", Some("d"))
        ]
    );
    assert!(!named.ended);
}

#[test]
fn a_pod_has_ended_when_its_phase_says_so() {
    for (phase, ended) in
        [("Pending", false), ("Running", false), ("Succeeded", true), ("Failed", true), ("Unknown", false)]
    {
        let mut pod = pod("p");
        pod["status"] = json!({ "phase": phase });
        assert_eq!(read([pod]).remove(0).ended, ended, "{phase}");
    }
}

#[test]
fn a_static_pod_is_known_by_the_hash_that_its_cgroup_carries() {
    let hash = "5b1f1b0e5b1f1b0e5b1f1b0e5b1f1b0e";
    let mut mirror = pod("static-gpu-1");
    mirror["metadata"]["annotations"] = json!({
        "kubernetes.io/config.hash": hash,
        "kubernetes.io/config.mirror": hash,
        "kubernetes.io/config.source": "file",
    });
    mirror["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Node", "name": "gpu-1", "controller": true }]);
    let named = read([mirror]).remove(0);
    assert_eq!((named.uid.as_str(), &*named.info.workload_kind), (hash, "Pod"));
}

#[test]
fn an_annotation_does_not_take_another_pods_place() {
    let mut claims = pod("thief");
    claims["metadata"]["annotations"] = json!({ "kubernetes.io/config.hash": "uid-victim" });
    let alone = read([claims.clone()]).remove(0);
    assert_eq!(alone.uid.as_str(), "uid-thief", "not a mirror");
    claims["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "uid-victim".into();
    for pods in [[pod("victim"), claims.clone()], [claims, pod("victim")]] {
        let names = read(pods);
        assert_eq!((names.len(), &*names[0].name), (1, "victim"));
    }
}

#[test]
fn attributes_come_from_the_first_key_that_has_a_value() {
    let of = info(
        json!({ "app": "second", "app.kubernetes.io/name": "first", "env": "prod", "owner": "o", "team": "" }),
        json!({ "team": " ", "environment": "staging", "model": "größe 模型", "warpmeter/idle-ok": "Yes" }),
    );
    let text = |text: &str| text.into();
    assert_eq!(
        of,
        PodInfo {
            workload_kind: text("Pod"),
            workload: text("p"),
            team: text("o"),
            app: text("first"),
            model: text("größe 模型"),
            environment: text("staging"),
            idle_ok: true,
        }
    );
}

#[test]
fn collisions_are_resolved_the_same_way_every_time() {
    let label = info(json!({ "team": "label" }), json!({ "team": "annotation" }));
    assert_eq!(&*label.team, "label");
    let mut keys = LabelKeys::default();
    for (order, expected) in [(["a.b/c", "a_b/c"], "1"), (["a_b/c", "a.b/c"], "2")] {
        keys.team = order.map(str::to_owned).into();
        let mut pod = pod("p");
        pod["metadata"]["labels"] = json!({ "a.b/c": "1", "a_b/c": "2" });
        let named = parse(&page([pod], "")[..], &keys).unwrap().remove(0);
        assert_eq!(&*named.info.team, expected);
    }
}

#[test]
fn only_words_of_assent_make_idleness_intended() {
    for (value, expected) in [
        ("true", true),
        ("TRUE", true),
        ("1", true),
        ("yes", true),
        (" Yes ", true),
        ("false", false),
        ("0", false),
        ("no", false),
        ("", false),
        ("truey", false),
    ] {
        assert_eq!(info(json!({ "warpmeter/idle-ok": value }), json!(null)).idle_ok, expected, "{value:?}");
    }
}

#[test]
fn values_are_bounded_and_fit_to_be_shown() {
    let of =
        info(json!({ "team": "x".repeat(4096) }), json!({ "app": "a\"b\\c\nd", "model": "模".repeat(1365) }));
    assert_eq!((of.team.len(), &*of.app, of.model.len()), (128, "a\"b\\c�d", 126));
}

#[test]
fn a_pod_without_a_usable_identity_is_counted_and_left_out() {
    let with = |key: &str, value: Value| {
        let mut pod = pod("p");
        pod["metadata"][key] = value;
        pod
    };
    let pods = [
        with("uid", "".into()),
        with("uid", "u".repeat(129).into()),
        with("uid", "a b".into()),
        with("name", Value::Null),
        with("name", "n".repeat(254).into()),
        with("namespace", "ns\n".into()),
        json!({}),
        json!(null),
        json!("pod"),
        json!([1]),
        pod("good"),
    ];
    let keys = LabelKeys::default();
    let mut roll = Roll::new(&keys, None);
    roll.page(&page(pods, "")[..]).unwrap();
    assert_eq!((roll.unread, roll.into_names().len()), (10, 1));
}

#[test]
fn pods_beyond_the_bound_are_counted_and_those_that_have_ended_go_first() {
    let ended = |name: &str| {
        let mut pod = pod(name);
        pod["status"] = json!({ "phase": "Failed" });
        pod
    };
    let many = (0..PODS - 1).map(|index| pod(&format!("live-{index}")));
    let pods: Vec<Value> = many.chain([ended("old"), pod("new"), pod("newer"), ended("older")]).collect();
    let keys = LabelKeys::default();
    let mut roll = Roll::new(&keys, None);
    roll.page(&page(pods, "")[..]).unwrap();
    assert_eq!(roll.beyond, 3);
    let names = roll.into_names();
    assert_eq!(names.len(), PODS);
    assert!(names.iter().any(|pod| &*pod.name == "new") && !names.iter().any(|pod| pod.ended));
}

#[test]
fn null_is_taken_for_nothing() {
    let mut pod = pod("p");
    for key in ["labels", "annotations", "ownerReferences", "creationTimestamp"] {
        pod["metadata"][key] = Value::Null;
    }
    pod["spec"] = json!({ "containers": null, "initContainers": [{ "name": null }] });
    pod["status"] = Value::Null;
    assert!(read([pod]).remove(0).containers.is_empty());
    let list = json!({ "kind": "PodList", "metadata": null, "items": null }).to_string();
    assert!(parse(list.as_bytes(), &LabelKeys::default()).unwrap().is_empty());
}

#[test]
fn only_words_of_refusal_keep_probes_away() {
    let refuses = |labels: Value, annotations: Value| {
        let mut pod = pod("p");
        pod["metadata"]["labels"] = labels;
        pod["metadata"]["annotations"] = annotations;
        let keys = LabelKeys::default();
        let mut roll = Roll::new(&keys, None);
        roll.page(&page([pod], "")[..]).unwrap();
        roll.refusals().len() == 1
    };
    for no in ["off", "OFF", "false", "0", "no"] {
        assert!(refuses(json!({ "warpmeter/probes": no }), json!({})), "{no}");
        assert!(refuses(json!({}), json!({ "warpmeter/probes": no })), "{no}");
    }
    for other in ["on", "true", "", "offline"] {
        assert!(!refuses(json!({ "warpmeter/probes": other }), json!({})), "{other}");
    }
    assert!(!refuses(json!({}), json!({})));
}
