//! Answers that nobody would send.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use warpmeter_core::device_id;
use warpmeter_core::fact::Discard;

use warpmeter_simkubelet::{
    AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices, ContainerResources,
    DynamicResource, ListPodResourcesResponse, PodResources,
};

use super::super::answer;
use super::super::client::{Answer, AskError, Offered};
use super::super::dra;
use super::super::id::{self, Id};
use super::*;

fn any_id() -> impl Strategy<Value = Vec<u8>> {
    let tail = "(::|-|-_-|/gi|/vgpu|/)?[0-9a-f/:_-]{0,6}";
    prop_oneof![
        4 => ("(GPU-|MIG-|MIG-GPU-|nvidia|gpu-|)", tail).prop_map(|(head, tail)| format!("{head}{UUID}{tail}").into_bytes()),
        3 => ("(nvidia|gpu-|gpu-vfio-)[0-9]{1,2}", tail).prop_map(|(head, tail)| format!("{head}{tail}").into_bytes()),
        1 => vec(any::<u8>(), 0..60),
        1 => ".{0,40}".prop_map(String::into_bytes),
    ]
}

fn any_devices() -> impl Strategy<Value = ContainerDevices> {
    let resource =
        "(nvidia\\.com/(gpu|gpu\\.shared|mig-1g\\.5gb)|aliyun\\.com/gpu-mem|amd\\.com/gpu|.{0,12})";
    (resource, vec(any_id(), 0..5)).prop_map(|(resource_name, device_ids)| ContainerDevices {
        resource_name,
        device_ids,
        topology: None,
    })
}

fn any_claim() -> impl Strategy<Value = ClaimResource> {
    let driver = "(gpu\\.nvidia\\.com|compute-domain\\.nvidia\\.com|)";
    let device = "(gpu-[0-9]{1,2}(-mig-1g6gb-14-0)?|gpu-vfio-0|.{0,20})";
    let cdi = "(k8s\\.gpu\\.nvidia\\.com/(claim|device)=|.{0,10})([0-9a-f-]{36}-)?(gpu-[0-9]{1,2}|.{0,10})";
    (driver, device, vec(cdi, 0..3)).prop_map(|(driver_name, device_name, cdi)| ClaimResource {
        cdi_devices: cdi.into_iter().map(|name| CdiDevice { name: name.into_bytes() }).collect(),
        driver_name,
        device_name,
        ..ClaimResource::default()
    })
}

fn any_pod() -> impl Strategy<Value = PodResources> {
    let container = ("[ab]?", vec(any_devices(), 0..3), vec(any_claim(), 0..3)).prop_map(
        |(name, devices, claim_resources)| ContainerResources {
            name,
            devices,
            dynamic_resources: vec![DynamicResource { claim_resources, ..DynamicResource::default() }],
            ..ContainerResources::default()
        },
    );
    ("([pq]|.{0,3}|x{254})", "([nm]|)", vec(container, 0..3))
        .prop_map(|(name, namespace, containers)| PodResources { name, namespace, containers })
}

fn any_offer() -> impl Strategy<Value = Option<Vec<ContainerDevices>>> {
    proptest::option::of(vec(any_devices(), 0..4))
}

fn options() -> KubeletOptions {
    KubeletOptions { resources: vec!["aliyun.com/gpu-mem".into()], ..KubeletOptions::default() }
}

fn answer(pods: &[PodResources], offered: Option<&Vec<ContainerDevices>>) -> Answer {
    let offered = match offered {
        Some(devices) => {
            let response =
                AllocatableResourcesResponse { devices: devices.clone(), cpu_ids: vec![7], memory: vec![] };
            Offered::Devices(response.encode_to_vec().into())
        }
        None => Offered::Failed(AskError::TooLarge),
    };
    let list = ListPodResourcesResponse { pod_resources: pods.to_vec() };
    Answer { pods: list.encode_to_vec().into(), offered }
}

/// Every device and part that the ids of an answer stand for.
fn parsed(pods: &[PodResources]) -> Vec<(warpmeter_core::fact::DeviceRef, GrantPart)> {
    let containers = || pods.iter().flat_map(|pod| &pod.containers);
    let plugins =
        containers().flat_map(|container| &container.devices).flat_map(|devices| &devices.device_ids);
    let plugins = plugins.filter_map(|id| match id::read(id) {
        Id::Device(device, part) => Some((device, part)),
        Id::Unit(device, number) | Id::Slot(device, number) => Some((device, GrantPart::Replica(number))),
        Id::Unknown => None,
    });
    let claims = containers().flat_map(|container| &container.dynamic_resources);
    let mut all: Vec<_> = plugins.collect();
    for claim in claims.flat_map(|resource| &resource.claim_resources) {
        dra::read(&claim.encode_to_vec(), |device| all.push(device)).unwrap();
    }
    all
}

proptest! {
    #[test]
    fn whatever_the_answer_it_grants_only_what_parses_and_its_order_means_nothing(
        pods in vec(any_pod(), 0..5),
        offered in any_offer(),
    ) {
        let options = options();
        let reading = answer::read(answer(&pods, offered.as_ref()), &options, None).unwrap();
        let known = parsed(&pods);
        for grant in reading.mapping.grants() {
            prop_assert!(known.contains(&(grant.device.clone(), grant.part)), "{grant:?}");
        }
        for (device, count) in &reading.mapping.replicas {
            prop_assert!(*count >= 1, "{device:?}");
        }
        let mut turned = pods.clone();
        turned.reverse();
        for pod in &mut turned {
            pod.containers.reverse();
        }
        let offered = offered.map(|offered| offered.into_iter().rev().collect::<Vec<_>>());
        let again = answer::read(answer(&turned, offered.as_ref()), &options, None).unwrap();
        prop_assert_eq!(again.mapping, reading.mapping);
        prop_assert_eq!(again.discarded, reading.discarded);
        prop_assert_eq!(again.loose_units, reading.loose_units);
    }

    #[test]
    fn an_id_is_granted_or_counted_and_never_both(id in any_id()) {
        let held = ContainerDevices {
            resource_name: "nvidia.com/gpu".into(),
            device_ids: vec![id.clone()],
            topology: None,
        };
        let main = ContainerResources { name: "main".into(), devices: vec![held], ..ContainerResources::default() };
        let pod = PodResources { name: "p".into(), namespace: "n".into(), containers: vec![main] };
        let reading = answer::read(answer(&[pod], Some(&vec![])), &options(), None).unwrap();
        let granted = reading.mapping.grants().count();
        let counted = reading.discarded.iter().filter(|(reason, _)| *reason == Discard::DeviceId).count();
        prop_assert_eq!(granted + counted + usize::from(reading.loose_units), 1);
        let parsed = std::str::from_utf8(&id).ok().and_then(device_id::parse);
        prop_assert_eq!(parsed.is_none(), counted == 1);
        if !reading.loose_units {
            let first = reading.mapping.grants().next().map(|grant| (grant.device.clone(), grant.part));
            prop_assert_eq!(first, parsed);
        }
    }

    #[test]
    fn bytes_that_are_not_quite_an_answer_are_refused_or_read(
        pods in vec(any_pod(), 0..4),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = ListPodResourcesResponse { pod_resources: pods }.encode_to_vec();
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        if cut.index(4) == 0 {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        // Read as another reader does, where that reads it at all: it wants more of what is not looked at here.
        if let (Some(granted), Ok(read)) =
            (answer::grants(&bytes, &options()), ListPodResourcesResponse::decode(&*bytes))
        {
            let known = parsed(&read.pod_resources);
            for grant in granted {
                prop_assert!(known.contains(&(grant.device.clone(), grant.part)), "{grant:?}");
            }
        }
    }
}
