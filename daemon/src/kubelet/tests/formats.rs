//! Every device id that is known to occur, each named after its row of the list of formats.

use warpmeter_core::fact::DeviceRef;
use warpmeter_core::identity::{GpuId, MigId};
use warpmeter_core::inventory::Placement;
use warpmeter_simkubelet::{CdiDevice, ClaimResource, DynamicResource};

use super::*;

/// What one container is granted for `id` of `resource`, and how many ids were not understood.
fn granted(resource: &str, id: &[u8]) -> (Vec<(DeviceRef, GrantPart)>, u64) {
    let mut kubelet = Kubelet::new().unwrap();
    kubelet.list(vec![pod("research", "p", vec![container("main", vec![devices(resource, &[id])])])]);
    kubelet.log("research", "p", UID, &[("main", ID)]).unwrap();
    let (pods, facts, _) = ask(&mut kubelet);
    (parts(&pods.pods), unparsed(&facts))
}

fn claimed(claim: ClaimResource) -> (Vec<(DeviceRef, GrantPart)>, u64) {
    let mut kubelet = Kubelet::new().unwrap();
    let mut main = container("main", vec![]);
    let claim_resources = vec![claim];
    main.dynamic_resources =
        vec![DynamicResource { claim_name: "c".into(), claim_namespace: "research".into(), claim_resources }];
    kubelet.list(vec![pod("research", "p", vec![main])]);
    kubelet.log("research", "p", UID, &[]).unwrap();
    let (pods, facts, _) = ask(&mut kubelet);
    (parts(&pods.pods), unparsed(&facts))
}

fn claim(driver: &str, device: &str) -> ClaimResource {
    ClaimResource {
        cdi_devices: vec![CdiDevice { name: format!("k8s.{driver}/claim={UID}-{device}").into_bytes() }],
        driver_name: driver.into(),
        pool_name: "node-1".into(),
        device_name: device.into(),
        share_id: None,
    }
}

fn parts(pods: &[Pod]) -> Vec<(DeviceRef, GrantPart)> {
    let grants = pods.iter().flat_map(|pod| &pod.grants);
    grants.map(|grant| (grant.device.clone(), grant.part)).collect()
}

fn gpu() -> DeviceRef {
    DeviceRef::Gpu(GpuId::new(format!("GPU-{UUID}")))
}

fn mig() -> DeviceRef {
    DeviceRef::Mig(MigId::new(format!("MIG-{UUID}")))
}

fn old_mig() -> DeviceRef {
    DeviceRef::GpuInstance { gpu: GpuId::new(format!("GPU-{UUID}")), gpu_instance: 12, compute_instance: 0 }
}

fn instance(gpu_instance: u32) -> DeviceRef {
    DeviceRef::MinorInstance { minor: 0, gpu_instance }
}

#[track_caller]
fn grants(resource: &str, id: &str, device: DeviceRef, part: GrantPart) {
    assert_eq!(granted(resource, id.as_bytes()), (vec![(device, part)], 0), "{id}");
}

#[track_caller]
fn is_counted(resource: &str, id: &[u8]) {
    assert_eq!(granted(resource, id), (vec![], 1), "{:?}", String::from_utf8_lossy(id));
}

#[test]
fn d1_a_gpu_by_uuid() {
    grants("nvidia.com/gpu", &format!("GPU-{UUID}"), gpu(), GrantPart::Whole);
}

#[test]
fn d2_a_replica_of_a_gpu() {
    for resource in ["nvidia.com/gpu", "nvidia.com/gpu.shared"] {
        grants(resource, &format!("GPU-{UUID}::3"), gpu(), GrantPart::Replica(3));
    }
}

#[test]
fn d3_a_mig_instance_by_uuid() {
    for resource in ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"] {
        grants(resource, &format!("MIG-{UUID}"), mig(), GrantPart::Whole);
    }
}

#[test]
fn d4_a_mig_instance_as_drivers_before_r470_name_it() {
    grants("nvidia.com/mig-3g.20gb", &format!("MIG-GPU-{UUID}/12/0"), old_mig(), GrantPart::Whole);
}

#[test]
fn d5_a_replica_of_a_mig_instance() {
    for resource in ["nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.shared"] {
        grants(resource, &format!("MIG-{UUID}::7"), mig(), GrantPart::Replica(7));
    }
    grants("nvidia.com/gpu", &format!("MIG-GPU-{UUID}/12/0::1"), old_mig(), GrantPart::Replica(1));
}

#[test]
fn d6_a_gpu_by_minor_number_on_gke() {
    grants("nvidia.com/gpu", "nvidia0", DeviceRef::Minor(0), GrantPart::Whole);
}

#[test]
fn d7_a_replica_of_a_gpu_on_gke() {
    grants("nvidia.com/gpu", "nvidia0/vgpu0", DeviceRef::Minor(0), GrantPart::Replica(0));
}

#[test]
fn d8_a_mig_instance_on_gke() {
    grants("nvidia.com/gpu", "nvidia0/gi7", instance(7), GrantPart::Whole);
}

#[test]
fn d9_a_replica_of_a_mig_instance_on_gke() {
    grants("nvidia.com/gpu", "nvidia0/gi3/vgpu0", instance(3), GrantPart::Replica(0));
}

#[test]
fn d10_the_gpu_of_a_jetson_has_no_name_and_is_counted() {
    is_counted("nvidia.com/gpu", b"tegra");
}

#[test]
fn d11_a_bare_uuid() {
    grants("nvidia.com/gpu", UUID, gpu(), GrantPart::Whole);
    grants("nvidia.com/gpu", &format!("{UUID}::2"), gpu(), GrantPart::Replica(2));
    grants("nvidia.com/gpu", &format!("{UUID}::"), gpu(), GrantPart::Whole);
}

#[test]
fn d12_a_claimed_gpu_by_minor_number() {
    assert_eq!(claimed(claim("gpu.nvidia.com", "gpu-1")), (vec![(DeviceRef::Minor(1), GrantPart::Whole)], 0));
}

#[test]
fn d13_a_claimed_mig_instance_by_where_it_is() {
    let device = DeviceRef::MinorPlacement { minor: 1, placement: Placement { profile: 14, start: 0 } };
    assert_eq!(
        claimed(claim("gpu.nvidia.com", "gpu-1-mig-1g6gb-14-0")),
        (vec![(device, GrantPart::Whole)], 0)
    );
}

#[test]
fn d14_a_gpu_that_is_passed_through_is_counted() {
    assert_eq!(claimed(claim("gpu.nvidia.com", "gpu-vfio-0")), (vec![], 1));
}

#[test]
fn d15_other_drivers_claims_are_not_gpus() {
    assert_eq!(claimed(claim("compute-domain.nvidia.com", "channel-0")), (vec![], 0));
    assert_eq!(claimed(claim("gpu.amd.com", "gpu-1")), (vec![], 0));
}

#[test]
fn d16_renamed_resources_are_gpus_in_nvidias_domain() {
    for resource in
        ["nvidia.com/a100", "nvidia.com/a10", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared"]
    {
        grants(resource, &format!("GPU-{UUID}"), gpu(), GrantPart::Whole);
    }
    for other in ["amd.com/gpu", "example.com/nvidia.com", "intel.com/sriov", "cpu", ""] {
        assert_eq!(granted(other, format!("GPU-{UUID}").as_bytes()), (vec![], 0), "{other}");
        assert_eq!(granted(other, b"nonsense"), (vec![], 0), "{other}: not ours to count");
    }
}

#[test]
fn d17_a_slot_of_hami() {
    grants("nvidia.com/gpu", &format!("GPU-{UUID}-9"), gpu(), GrantPart::Replica(9));
}

/// A pod with three units of memory, on a node that offers four units of each of `gpus`.
fn units(gpus: &[&str]) -> (Pods, KubeletSource) {
    let mut kubelet = Kubelet::new().unwrap();
    let offered = gpus.iter().flat_map(|gpu| (0..4).map(move |unit| format!("{gpu}-_-{unit}")));
    kubelet.offer(vec![devices("aliyun.com/gpu-mem", &offered.collect::<Vec<_>>())]);
    let held: Vec<String> = (0..3).map(|unit| format!("{}-_-{unit}", gpus[0])).collect();
    kubelet.list(vec![pod(
        "research",
        "p",
        vec![container("main", vec![devices("aliyun.com/gpu-mem", &held)])],
    )]);
    kubelet.log("research", "p", UID, &[]).unwrap();
    let (pods, _, source) = ask_with(&mut kubelet, |options| options.resources = vec!["aliyun.com/".into()]);
    (pods, source)
}

#[test]
fn d18_units_of_memory_of_aliyun_are_granted_only_where_they_can_be_of_one_gpu() {
    let other = format!("GPU-{}", UUID.replace('5', "6"));
    let (pods, source) = units(&[&format!("GPU-{UUID}")]);
    assert_eq!(parts(&pods.pods), (0..3).map(|unit| (gpu(), GrantPart::Replica(unit))).collect::<Vec<_>>());
    assert_eq!((pods.replicas.len(), pods.replicas[0].count), (1, 4));
    assert_eq!(state(&source), HealthState::Up);

    let (pods, source) = units(&[&format!("GPU-{UUID}"), &other]);
    assert_eq!(parts(&pods.pods), vec![]);
    assert_eq!(state(&source), HealthState::Degraded);
    assert!(source.health().reason.contains("units of GPU memory"), "{:?}", source.health());
}

#[test]
fn d19_a_gpu_that_a_virtual_machine_has_is_counted() {
    is_counted("nvidia.com/GA100_A100_PCIE_40GB", b"0000:17:00.0");
}

#[test]
fn t8_what_is_no_id_is_counted_and_granted_to_nobody() {
    for id in [&b"::3"[..], b"GPU-x::abc", b"", &[b'x'; 4096], b"GPU-\xff\xfe\x80", b"\0", b"MIG-", b"nvidia"]
    {
        is_counted("nvidia.com/gpu", id);
    }
}
