//! Every form in which an allocator names a device, from the kubelet's answer to the account of the pod that holds it.

mod forms;

use serde_json::{Value, json};
use warpmeter::names::{self, LabelKeys};
use warpmeter_core::fact::{Fact, Source};
use warpmeter_simkubelet::{
    CdiDevice, ClaimResource, ContainerResources, DynamicResource, container, devices, pod,
};
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::assert_closed;
use warpmeter_tests::paper::{Device, Paper, uuid};

const UID: &str = "0b7fdcf5-7e3c-4a3c-9d39-0a4e52f8d001";
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const FIRST: Device = (0, None);
const SECOND: Device = (1, None);
const LARGE: Device = (2, Some(0));
const MIDDLE: Device = (2, Some(1));
const SMALL: Device = (2, Some(2));

/// What pod `p` holds at present: GPUs and their parts, by device.
fn held(node: &Paper, metrics: &Exposition, device: Device) -> f64 {
    let [gpu, mig] = node.labels(device);
    let labels = [("pod", "p"), (gpu.0, &*gpu.1), (mig.0, &*mig.1)];
    metrics.sum("warpmeter_pod_gpu_seconds_total", &labels)
        / metrics.sum("warpmeter_gpu_seconds_total", &labels[1..])
}

fn unparsed(metrics: &Exposition) -> f64 {
    let labels = [("source", "pods"), ("reason", "device_id")];
    metrics.sum("warpmeter_source_values_discarded_total", &labels)
}

/// The metrics after pod `p`, whose container is `main`, has worked for two seconds on `at`.
fn worked(node: &mut Paper, main: ContainerResources, at: Device) -> Exposition {
    node.kubelet.list(vec![pod("research", "p", vec![main])]);
    node.kubelet.log("research", "p", UID, &[("main", ID)]).unwrap();
    node.ask();
    node.process(7, &format!("0::/kubepods/burstable/pod{UID}/{ID}"), &[at.0]);
    node.pass(2, &[(at, 50, &[(7, 50, 100)])]);
    let metrics = node.metrics();
    assert_closed(&metrics);
    metrics
}

/// Asserts that these ids of a resource give `p` this share of this device, and nothing of any other.
#[track_caller]
fn places(resource: &str, ids: &[&str], at: Device, share: f64) {
    let mut node = Paper::new();
    node.options.resources = vec!["aliyun.com/gpu-mem".into(), "gpu.example.com/".into()];
    places_on(&mut node, container("main", vec![devices(resource, ids)]), at, share);
}

#[track_caller]
fn places_on(node: &mut Paper, main: ContainerResources, at: Device, share: f64) {
    let metrics = worked(node, main, at);
    for device in [FIRST, SECOND, LARGE, MIDDLE, SMALL] {
        let expected = if device == at { share } else { 0.0 };
        let found = held(node, &metrics, device);
        assert!((found - expected).abs() < 1e-6, "{device:?}: {found} and not {expected}");
    }
    let [gpu, mig] = node.labels(at);
    let on = [("gpu_uuid", &*gpu.1), ("mig", &*mig.1)];
    let whole = metrics.sum("warpmeter_gpu_seconds_total", &on);
    let used = metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", "p"), on[0], on[1]]);
    assert!((used - whole / 2.0).abs() < 1e-6, "{used} of {whole} used");
    assert!(unparsed(&metrics).abs() < 0.5);
}

/// Asserts that a container's devices are counted as of no known form, and that the use of a GPU is reported.
#[track_caller]
fn counts(main: ContainerResources, times: f64) {
    let metrics = worked(&mut Paper::new(), main, FIRST);
    assert!((unparsed(&metrics) - times).abs() < 0.5, "{} counted", unparsed(&metrics));
    assert!(metrics.sum("warpmeter_pod_gpu_seconds_total", &[("pod", "p")]).abs() < 1e-9);
    assert!((metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", "p")]) - 1.0).abs() < 1e-6);
}

fn plugin(resource: &str, id: &[u8]) -> ContainerResources {
    container("main", vec![devices(resource, &[id])])
}

fn claims(driver: &str, names: &[&str]) -> ContainerResources {
    let claim = |device: &&str| ClaimResource {
        cdi_devices: vec![CdiDevice { name: format!("k8s.{driver}/claim={UID}-{device}").into_bytes() }],
        driver_name: driver.into(),
        pool_name: "node-1".into(),
        device_name: (*device).into(),
        share_id: None,
    };
    let resource = DynamicResource {
        claim_name: "c".into(),
        claim_namespace: "research".into(),
        claim_resources: names.iter().map(claim).collect(),
    };
    ContainerResources { dynamic_resources: vec![resource], ..container("main", vec![]) }
}

fn gpu_id(number: usize) -> String {
    format!("GPU-{}", uuid(number))
}

fn mig_id(place: usize) -> String {
    format!("MIG-{}", uuid(200 + place))
}

#[test]
fn d01_a_gpu_by_uuid_is_its_pods() {
    places("nvidia.com/gpu", &[&gpu_id(0)], FIRST, 1.0);
}

#[test]
fn d02_a_replica_of_a_gpu_is_its_part_of_as_many_as_are_offered() {
    for resource in ["nvidia.com/gpu", "nvidia.com/gpu.shared"] {
        let mut node = Paper::new();
        let offered: Vec<String> = (0..4).map(|n| format!("{}::{n}", gpu_id(1))).collect();
        node.kubelet.offer(vec![devices(resource, &offered)]);
        places_on(&mut node, plugin(resource, offered[1].as_bytes()), SECOND, 0.25);
    }
}

#[test]
fn d03_a_mig_instance_by_uuid_is_its_pods() {
    for resource in ["nvidia.com/gpu", "nvidia.com/mig-2g.20gb"] {
        places(resource, &[&mig_id(1)], MIDDLE, 1.0);
    }
}

#[test]
fn d04_a_mig_instance_as_old_drivers_name_it_is_found_by_its_numbers() {
    places("nvidia.com/mig-1g.10gb", &[&format!("MIG-{}/12/0", gpu_id(2))], SMALL, 1.0);
}

#[test]
fn d05_a_replica_of_a_mig_instance_is_a_part_of_that() {
    places("nvidia.com/mig-3g.40gb.shared", &[&format!("{}::7", mig_id(0))], LARGE, 0.125);
    places("nvidia.com/gpu", &[&format!("MIG-{}/3/0::1", gpu_id(2))], LARGE, 0.5);
}

#[test]
fn d06_a_gpu_by_minor_number_is_not_the_one_at_that_index() {
    places("nvidia.com/gpu", &["nvidia0"], SECOND, 1.0);
    places("nvidia.com/gpu", &["nvidia1"], FIRST, 1.0);
}

#[test]
fn d07_a_replica_of_a_gpu_by_minor_number() {
    places("nvidia.com/gpu", &["nvidia0/vgpu1"], SECOND, 0.5);
}

#[test]
fn d08_a_mig_instance_by_minor_number_and_gpu_instance() {
    places("nvidia.com/gpu", &["nvidia2/gi7"], MIDDLE, 1.0);
}

#[test]
fn d09_a_replica_of_a_mig_instance_by_minor_number() {
    places("nvidia.com/gpu", &["nvidia2/gi3/vgpu1"], LARGE, 0.5);
}

#[test]
fn d10_the_gpu_of_a_jetson_is_counted_and_its_use_still_shown() {
    counts(plugin("nvidia.com/gpu", b"tegra"), 1.0);
}

#[test]
fn d11_a_bare_uuid_with_and_without_a_replica() {
    places("nvidia.com/gpu", &[&uuid(0)], FIRST, 1.0);
    places("nvidia.com/gpu", &[&format!("{}::1", uuid(0))], FIRST, 0.5);
    places("nvidia.com/gpu", &[&format!("{}::", uuid(0))], FIRST, 1.0);
}

#[test]
fn d12_a_claimed_gpu_by_minor_number_is_not_the_one_at_that_index() {
    places_on(&mut Paper::new(), claims("gpu.nvidia.com", &["gpu-0"]), SECOND, 1.0);
}

#[test]
fn d13_a_claimed_mig_instance_is_found_by_its_placement() {
    for name in ["gpu-2-mig-2g20gb-14-4", "gpu-2-mig-2g20gb-me-14-4", "gpu-2-mig-14-4-2"] {
        places_on(&mut Paper::new(), claims("gpu.nvidia.com", &[name]), MIDDLE, 1.0);
    }
}

#[test]
fn d14_a_gpu_that_is_passed_through_is_counted() {
    counts(claims("gpu.nvidia.com", &["gpu-vfio-0"]), 1.0);
}

#[test]
fn d15_claims_of_other_drivers_are_neither_granted_nor_counted() {
    counts(claims("compute-domain.nvidia.com", &["channel-0"]), 0.0);
    counts(claims("gpu.amd.com", &["gpu-0"]), 0.0);
}

#[test]
fn d16_every_resource_of_nvidias_domain_is_a_gpu_and_others_by_configuration() {
    let ours =
        ["nvidia.com/a100", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared", "gpu.example.com/x"];
    for resource in ours {
        places(resource, &[&gpu_id(0)], FIRST, 1.0);
    }
    for resource in ["amd.com/gpu", "gpu.example.org/x", "nvidia.com", ""] {
        counts(plugin(resource, gpu_id(0).as_bytes()), 0.0);
    }
}

#[test]
fn d17_a_slot_of_hami_is_a_part_and_a_plain_uuid_is_whole() {
    places("nvidia.com/gpu", &[&format!("{}-3", gpu_id(0))], FIRST, 0.25);
    places("nvidia.com/gpu", &[&gpu_id(0)], FIRST, 1.0);
}

#[test]
fn d18_units_of_memory_are_parts_of_the_only_gpu_that_has_any() {
    let mut node = Paper::new();
    node.options.resources = vec!["aliyun.com/gpu-mem".into()];
    let offered: Vec<String> = (0..8).map(|n| format!("{}-_-{n}", uuid(0))).collect();
    node.kubelet.offer(vec![devices("aliyun.com/gpu-mem", &offered)]);
    let main = container("main", vec![devices("aliyun.com/gpu-mem", &offered[..3])]);
    places_on(&mut node, main, FIRST, 0.375);
}

/// Asserts that `p`, whose `main` the kubelet gave `ids`, holds this share of this device once the API server has
/// told its annotations, in every order of hearing.
#[track_caller]
fn corrects(resource: &str, offered: &[String], ids: &[String], annotations: &Value, at: Device, share: f64) {
    let list = json!({ "items": [{
        "metadata": { "uid": UID, "namespace": "research", "name": "p", "annotations": annotations },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "main" }] },
    }] });
    let names = names::parse(list.to_string().as_bytes(), &LabelKeys::default()).unwrap();
    let mut node = Paper::new();
    node.options.resources = vec!["aliyun.com/gpu-mem".into()];
    node.kubelet.offer(vec![devices(resource, offered)]);
    node.put(Source::Names, Fact::Names(names));
    places_on(&mut node, container("main", vec![devices(resource, ids)]), at, share);
}

#[test]
fn d17_what_hami_notes_is_what_the_pod_has_whatever_slot_the_kubelet_was_told() {
    let slots: Vec<String> =
        [0, 1].iter().flat_map(|gpu| (0..10).map(|n| format!("{}-{n}", gpu_id(*gpu)))).collect();
    let noted = |memory: u64, cores: u64| json!({ "hami.io/vgpu-devices-allocated": format!("{},NVIDIA,{memory},{cores}:;", gpu_id(1)) });
    corrects("nvidia.com/gpu", &slots, &slots[3..4], &noted(1, 30), SECOND, 0.3);
    corrects("nvidia.com/gpu", &slots, &slots[3..4], &noted(20 << 10, 0), SECOND, 0.25);
    corrects("nvidia.com/gpu", &slots, &slots[13..14], &json!({}), SECOND, 0.1);
    // Another plugin's parts are those that the kubelet names, whatever a pod's author writes.
    let parts: Vec<String> = (0..4).map(|n| format!("{}::{n}", gpu_id(0))).collect();
    corrects("nvidia.com/gpu.shared", &parts, &parts[..1], &noted(1, 30), FIRST, 0.25);
    let whole = [gpu_id(0)];
    corrects("nvidia.com/gpu", &whole, &whole, &noted(1, 30), FIRST, 1.0);
}

#[test]
fn d18_units_of_memory_on_several_gpus_are_of_the_one_that_gpushare_notes() {
    let offered: Vec<String> =
        [0, 1].iter().flat_map(|gpu| (0..8).map(|n| format!("{}-_-{n}", uuid(*gpu)))).collect();
    // The second has the minor number 0.
    let noted = json!({ "scheduler.framework.gpushare.allocation": "{\"0\":{\"0\":3}}" });
    corrects("aliyun.com/gpu-mem", &offered, &offered[..3], &noted, SECOND, 0.375);
    let older = json!({ "ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "3", "ALIYUN_COM_GPU_MEM_DEV": "12" });
    corrects("aliyun.com/gpu-mem", &offered, &offered[..3], &older, SECOND, 0.25);
}

#[test]
fn d19_a_gpu_of_a_virtual_machine_is_counted() {
    counts(plugin("nvidia.com/GA100_A100_PCIE_40GB", b"0000:17:00.0"), 1.0);
}

#[test]
fn t08_nonsense_of_every_kind_is_counted_once_each_and_granted_to_nobody() {
    let long = [b'x'; 4096];
    let tail = format!("{}\u{0}", gpu_id(0));
    let nonsense: [&[u8]; 12] = [
        b"",
        b"::",
        b"::3",
        b"GPU-x::abc",
        &long,
        b"GPU-\xff\xfe",
        b"MIG-",
        b"nvidia",
        b"nvidia-1",
        b"nvidia0/gi",
        b"nvidia4294967296",
        tail.as_bytes(),
    ];
    counts(container("main", vec![devices("nvidia.com/gpu", &nonsense)]), 12.0);
}

#[test]
fn an_id_of_a_device_that_is_not_here_is_counted_too() {
    for id in [gpu_id(9), mig_id(9), "nvidia9".into(), "nvidia2/gi9".into(), format!("MIG-{}/3/9", gpu_id(2))]
    {
        counts(plugin("nvidia.com/gpu", id.as_bytes()), 1.0);
    }
}
