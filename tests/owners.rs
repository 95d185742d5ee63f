//! Whose a GPU is: each rule from the kubelet's answer to the account, and the owners' sum closes in all of them.

mod lives;
mod shared;

use warpmeter_simkubelet::{PodResources, container, devices, pod};
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::ledger::assert_closed;
use warpmeter_tests::paper::{Device, Paper, uuid};

const FIRST: Device = (0, None);
const SECOND: Device = (1, None);

fn gpu_id(number: usize) -> String {
    format!("GPU-{}", uuid(number))
}

/// A container's identifier.
fn id(number: usize) -> String {
    format!("{number:064x}")
}

/// A pod's UID.
fn uid(name: &str) -> String {
    let number: usize = name.bytes().map(usize::from).sum();
    format!("0b7fdcf5-7e3c-4a3c-9d39-{number:012}")
}

fn cgroup(name: &str, container: &str) -> String {
    format!("0::/kubepods/burstable/pod{}/{container}", uid(name))
}

/// A pod whose container `main` holds these.
fn holder(name: &str, ids: &[&str]) -> PodResources {
    pod("ns", name, vec![container("main", vec![devices("nvidia.com/gpu", ids)])])
}

fn settled(node: &mut Paper) -> Exposition {
    let metrics = node.metrics();
    assert_closed(&metrics);
    metrics
}

fn held(metrics: &Exposition, labels: Labels<'_>) -> f64 {
    metrics.sum("warpmeter_pod_gpu_seconds_total", labels)
}

fn used(metrics: &Exposition, labels: Labels<'_>) -> f64 {
    metrics.sum("warpmeter_pod_gpu_used_seconds_total", labels)
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6, "{found} and not {expected}");
}

/// A node whose pod `p` holds the first GPU.
fn one_pod() -> Paper {
    let mut node = Paper::new();
    node.kubelet.list(vec![holder("p", &[&gpu_id(0)])]);
    node.kubelet.log("ns", "p", &uid("p"), &[("main", &id(1))]).unwrap();
    node.ask();
    node
}

#[test]
fn a_static_pod_is_known_by_the_hash_of_its_configuration() {
    let hash = "f1d2d2f924e986ac86fdf7b36c94bcdf";
    for cgroup in [
        format!("0::/kubepods/burstable/pod{hash}/{}", id(1)),
        format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{hash}.slice/crio-{}.scope",
            id(1)
        ),
    ] {
        let mut node = Paper::new();
        node.kubelet.list(vec![holder("server-node-1", &[&gpu_id(0)])]);
        node.kubelet.log("ns", "server-node-1", hash, &[("main", &id(1))]).unwrap();
        node.ask();
        node.process(7, &cgroup, &[0]);
        node.pass(2, &[(FIRST, 50, &[(7, 50, 1)])]);
        let metrics = settled(&mut node);
        let labels = [("pod", "server-node-1"), ("pod_uid", hash), ("container", "main")];
        near(held(&metrics, &labels), 2.0);
        near(used(&metrics, &labels), 1.0);
        near(used(&metrics, &[]), 1.0);
    }
}

#[test]
fn init_sidecar_and_ephemeral_containers_use_their_pods_gpu_under_their_own_names() {
    let mut node = Paper::new();
    // The kubelet lists a pod's containers and sidecars; of init and ephemeral ones only the links of logs tell.
    node.kubelet.list(vec![pod(
        "ns",
        "p",
        vec![container("main", vec![devices("nvidia.com/gpu", &[gpu_id(0)])]), container("sidecar", vec![])],
    )]);
    let names = ["main", "sidecar", "init", "debugger"];
    let ids: Vec<String> = (0..4).map(id).collect();
    let links: Vec<(&str, &str)> = names.iter().zip(&ids).map(|(name, id)| (*name, &**id)).collect();
    node.kubelet.log("ns", "p", &uid("p"), &links).unwrap();
    node.ask();
    for (number, id) in (1..).zip(&ids) {
        node.process(number, &cgroup("p", id), &[0]);
    }
    node.pass(2, &[(FIRST, 80, &[(1, 40, 1), (2, 20, 1), (3, 10, 1), (4, 10, 1)])]);
    let metrics = settled(&mut node);
    for (name, share) in names.into_iter().zip([0.8, 0.4, 0.2, 0.2]) {
        near(used(&metrics, &[("pod", "p"), ("container", name)]), share);
    }
    near(held(&metrics, &[("container", "main")]), 2.0);
    near(held(&metrics, &[]), 2.0);
}

#[test]
fn two_containers_of_a_pod_on_one_device_share_it_and_each_uses_its_own() {
    let mut node = Paper::new();
    let both = ["a", "b"].map(|name| container(name, vec![devices("nvidia.com/gpu", &[gpu_id(0)])]));
    node.kubelet.list(vec![pod("ns", "p", both.to_vec())]);
    node.kubelet.log("ns", "p", &uid("p"), &[("a", &id(1)), ("b", &id(2))]).unwrap();
    node.ask();
    node.process(1, &cgroup("p", &id(1)), &[0]);
    node.process(2, &cgroup("p", &id(2)), &[0]);
    node.pass(2, &[(FIRST, 90, &[(1, 60, 100), (2, 30, 200)])]);
    let metrics = settled(&mut node);
    for (name, share) in [("a", 1.2), ("b", 0.6)] {
        near(used(&metrics, &[("container", name)]), share);
        near(held(&metrics, &[("container", name)]), 1.0);
    }
    let assumed = [("ledger", "allocation"), ("evidence", "assumed")];
    near(metrics.sum("warpmeter_evidence_seconds_total", &assumed), 2.0);
}

#[test]
fn t12_memory_is_each_containers_own_and_adds_up_to_the_pods() {
    let mut node = Paper::new();
    let both = [0, 1].map(|n| container(&format!("c{n}"), vec![devices("nvidia.com/gpu", &[gpu_id(n)])]));
    node.kubelet.list(vec![pod("ns", "p", both.to_vec())]);
    node.kubelet.log("ns", "p", &uid("p"), &[("c0", &id(1)), ("c1", &id(2))]).unwrap();
    node.ask();
    node.process(1, &cgroup("p", &id(1)), &[0]);
    node.process(2, &cgroup("p", &id(2)), &[1]);
    node.pass(2, &[(FIRST, 10, &[(1, 10, 100)]), (SECOND, 10, &[(2, 10, 200)])]);
    let metrics = settled(&mut node);
    let memory = |labels| metrics.sum("warpmeter_pod_memory_used_bytes", labels) / f64::from(1 << 20);
    near(memory(&[("container", "c0")]), 100.0);
    near(memory(&[("container", "c1")]), 200.0);
    near(memory(&[("pod", "p")]), 300.0);
}

#[test]
fn one_container_holds_and_uses_several_devices() {
    let mut node = Paper::new();
    let mig = format!("MIG-{}", uuid(200));
    node.kubelet.list(vec![holder("p", &[&gpu_id(0), &gpu_id(1), &mig])]);
    node.kubelet.log("ns", "p", &uid("p"), &[("main", &id(1))]).unwrap();
    node.ask();
    node.process(1, &cgroup("p", &id(1)), &[0, 1, 2]);
    let mine = &[(1, 50, 1)];
    node.pass(7, &[(FIRST, 50, mine), (SECOND, 20, &[(1, 20, 1)]), ((2, Some(0)), 100, mine)]);
    let metrics = settled(&mut node);
    near(held(&metrics, &[("pod", "p")]), 7.0 + 7.0 + 3.0);
    near(used(&metrics, &[("pod", "p")]), 3.5 + 1.4 + 3.0);
}

#[test]
fn a_device_that_was_granted_and_never_opened_is_idle_and_has_no_process() {
    let mut node = one_pod();
    node.process(1, &cgroup("p", &id(1)), &[]);
    node.pass(3, &[]);
    let metrics = settled(&mut node);
    near(held(&metrics, &[("state", "idle"), ("cause", "no_process")]), 3.0);
    near(held(&metrics, &[]), 3.0);
}

#[test]
fn a_device_that_is_used_without_a_grant_is_reported_and_stays_its_holders() {
    let mut node = one_pod();
    node.kubelet.log("ns", "thief", &uid("thief"), &[("main", &id(2))]).unwrap();
    node.kubelet.list(vec![holder("p", &[&gpu_id(0)]), holder("thief", &[])]);
    node.ask();
    node.process(2, &cgroup("thief", &id(2)), &[0, 1]);
    node.process(3, "0::/system.slice/miner.service", &[1]);
    node.pass(2, &[(FIRST, 80, &[(2, 80, 1)]), (SECOND, 60, &[(2, 40, 1), (3, 20, 1)])]);
    let metrics = settled(&mut node);
    near(held(&metrics, &[("pod", "p")]), 2.0);
    near(held(&metrics, &[("pod", "p"), ("state", "active")]), 0.0);
    near(held(&metrics, &[("pod", "thief")]), 0.0);
    near(used(&metrics, &[("pod", "thief")]), 1.6 + 0.8);
    near(metrics.sum("warpmeter_pod_gpu_borrowed_seconds_total", &[("pod", "thief")]), 2.4);
    let unit = [("owner_kind", "systemd_unit"), ("owner", "miner.service")];
    near(metrics.sum("warpmeter_owner_gpu_used_seconds_total", &unit), 0.4);
    near(
        metrics.sum("warpmeter_gpu_seconds_total", &[("gpu_uuid", &gpu_id(1)), ("state", "unallocated")]),
        2.0,
    );
}
