//! Whatever the server writes, nothing panics and every bound holds.

use proptest::prelude::*;
use serde_json::{Value, json};
use warpmeter_core::fact::PodInfo;

use crate::names::{LabelKeys, parse};

#[test]
fn values_nested_without_end_do_not_exhaust_the_stack() {
    let deep = format!("{{\"items\":[{}", "[".repeat(1 << 20));
    assert!(parse(deep.as_bytes(), &LabelKeys::default()).is_err());
    let deep = format!("{{\"x\":{}{},\"items\":[]}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    parse(deep.as_bytes(), &LabelKeys::default()).ok();
}

/// Any JSON value, with the words that pods are made of.
fn value() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "kind",
        "PodList",
        "metadata",
        "items",
        "uid",
        "name",
        "namespace",
        "labels",
        "annotations",
        "continue",
        "ownerReferences",
        "controller",
        "Job",
        "ReplicaSet",
        "pod-template-hash",
        "creationTimestamp",
        "status",
        "containerStatuses",
        "containerID",
        "containerd://",
        "spec",
        "containers",
        "phase",
        "team",
        "x-29933500",
        "2026-11-30T03:40:36Z",
        "kubernetes.io/config.hash",
        "kubernetes.io/config.mirror",
    ]);
    let text = prop_oneof![3 => words.prop_map(str::to_owned), 1 => any::<String>()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Replaces what is at one place of a value.
fn put(at: &mut Value, path: &[usize], new: Value) {
    let Some((&step, rest)) = path.split_first() else {
        *at = new;
        return;
    };
    let children: Vec<&mut Value> = match at {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    let count = children.len();
    match children.into_iter().nth(step.checked_rem(count).unwrap_or(0)) {
        Some(child) => put(child, rest, new),
        None => *at = new,
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        parse(&bytes[..], &LabelKeys::default()).ok();
    }

    #[test]
    fn no_json_makes_it_panic(value in value()) {
        parse(value.to_string().as_bytes(), &LabelKeys::default()).ok();
    }

    #[test]
    fn no_change_to_a_pod_makes_it_panic_or_break_a_bound(
        new in value(),
        path in prop::collection::vec(0..16_usize, 0..7),
    ) {
        let mut list = json!({ "kind": "PodList", "metadata": { "continue": "" }, "items": [{
            "metadata": {
                "uid": "u", "namespace": "n", "name": "p", "creationTimestamp": "2026-11-30T03:40:36Z",
                "labels": { "team": "t", "pod-template-hash": "5f7" }, "annotations": { "model": "m" },
                "ownerReferences": [{ "kind": "Job", "name": "x-29933500", "controller": true }],
            },
            "spec": { "containers": [{ "name": "main" }] },
            "status": { "phase": "Running", "containerStatuses": [{ "name": "main", "containerID": "docker://c" }] },
        }] });
        put(&mut list, &path, new);
        for pod in parse(list.to_string().as_bytes(), &LabelKeys::default()).unwrap_or_default() {
            let PodInfo { workload_kind, workload, team, app, model, environment, .. } = &pod.info;
            prop_assert!([workload_kind, workload].iter().all(|text| text.len() <= 253));
            for text in [team, app, model, environment] {
                prop_assert!(text.len() <= 128 && !text.chars().any(char::is_control));
            }
        }
    }
}
