//! Answers that hold more than any node has.

use prost::Message;
use warpmeter_core::fact::Discard;
use warpmeter_simkubelet::{AllocatableResourcesResponse, Bytes, ListPodResourcesResponse, PodResources};

use super::super::answer::{self, Offer, Reading};
use super::super::bounds::{GRANTS, ODD, PARTS, PODS};
use super::super::client::{Answer, AskError, Offered};
use super::*;

/// A field with a length, as it is on the wire.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(content);
    bytes
}

fn read_bytes(pods: impl Into<Bytes>, offered: Offered) -> Reading {
    answer::read(Answer { pods: pods.into(), offered }, &KubeletOptions::default(), None).unwrap()
}

fn read(pods: Vec<PodResources>) -> Reading {
    read_bytes(ListPodResourcesResponse { pod_resources: pods }.encode_to_vec(), Offered::Unserved)
}

fn gpu(number: usize) -> String {
    format!("GPU-00000000-0000-0000-0000-{number:012}")
}

#[test]
fn a_million_pods_without_a_name_are_one_thing_that_is_not_understood() {
    let reading = read_bytes(field(1, b"").repeat(1 << 20), Offered::Unserved);
    assert_eq!((reading.mapping.pods.len(), reading.discarded.len()), (0, 1));
    let named = [field(1, b"p"), field(2, b"ns"), field(3, b"").repeat(1 << 20)].concat();
    let reading = read_bytes(field(1, &named), Offered::Unserved);
    assert_eq!(reading.mapping.pods.len(), 1);
    assert_eq!(reading.mapping.pods.values().next().unwrap()[0].containers.len(), 1);
}

#[test]
fn of_more_pods_than_a_node_has_the_first_by_name_are_kept_and_the_others_counted() {
    let name = |number: usize| format!("p{number:05}");
    let mut pods: Vec<_> = (0..PODS + 500).map(|number| holder(&name(number), &[&gpu(0)])).collect();
    // Those that hold nothing take no place of those that do.
    pods.extend((0..PODS + 7).map(|number| holder(&format!("a{number:05}"), &[])));
    let first = read(pods.clone());
    assert_eq!((first.holders_left_out, first.others_left_out), (500, 7));
    assert_eq!(first.mapping.pods.len(), 2 * PODS);
    assert_eq!(first.mapping.grants().count(), PODS);
    let last = first.mapping.pods.keys().next_back().unwrap();
    assert_eq!(*last.name, name(PODS - 1));
    pods.rotate_left(777);
    pods.reverse();
    assert_eq!(read(pods).mapping, first.mapping);
}

#[test]
fn a_pod_with_more_devices_than_any_has_is_left_out_and_no_other() {
    let many: Vec<String> = (0..=GRANTS).map(|number| format!("{}::{number}", gpu(0))).collect();
    let ids: Vec<&str> = many.iter().map(String::as_str).collect();
    let reading = read(vec![holder("a", &ids), holder("b", &[&gpu(0)]), holder("c", &ids[..GRANTS / 2])]);
    let kept: Vec<&str> = reading.mapping.pods.keys().map(|pod| &*pod.name).collect();
    assert_eq!((kept, reading.holders_left_out), (vec!["b", "c"], 1));
}

#[test]
fn things_that_are_not_understood_are_remembered_up_to_a_bound_and_more_of_them_told() {
    let ids: Vec<String> = (0..3 * ODD).map(|number| format!("odd-{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let reading = read(vec![holder("p", &ids)]);
    assert_eq!((reading.discarded.len(), reading.more_discarded), (ODD, true));
    assert!(reading.discarded.iter().all(|(reason, _)| *reason == Discard::DeviceId));
    let reading = read(vec![holder("p", &ids[..ODD])]);
    assert_eq!((reading.discarded.len(), reading.more_discarded), (ODD, false));
}

#[test]
fn an_offer_of_more_parts_than_are_counted_is_none() {
    let offer = |count: usize| {
        let ids: Vec<String> = (0..count).map(|number| format!("{}::{number}", gpu(0))).collect();
        let devices = vec![devices("nvidia.com/gpu", &ids)];
        let response = AllocatableResourcesResponse { devices, ..AllocatableResourcesResponse::default() };
        read_bytes(Bytes::new(), Offered::Devices(response.encode_to_vec().into()))
    };
    let whole = offer(PARTS);
    assert!(matches!(whole.offer, Offer::Known));
    assert_eq!(whole.mapping.replicas.values().collect::<Vec<_>>(), [&u32::try_from(PARTS).unwrap()]);
    let beyond = offer(PARTS + 1);
    assert!(matches!(beyond.offer, Offer::Failed(AskError::TooMany)));
    assert!(beyond.mapping.replicas.is_empty(), "a part of it would be a wrong count");
}

#[test]
fn an_offer_that_is_no_message_takes_nothing_from_the_pods() {
    let list = ListPodResourcesResponse { pod_resources: vec![holder("p", &[&gpu(0)])] };
    let reading = read_bytes(list.encode_to_vec(), Offered::Devices(Bytes::from_static(&[0x0a, 9])));
    assert!(matches!(reading.offer, Offer::Failed(AskError::Malformed(_))));
    assert_eq!(reading.mapping.grants().count(), 1);
}

#[test]
fn pods_that_are_left_out_degrade_the_source_and_it_says_what_is_lost() {
    let mut kubelet = Kubelet::new().unwrap();
    kubelet.list((0..=PODS).map(|number| holder(&format!("p{number:05}"), &[&gpu(0)])).collect());
    let (pods, _, source) = ask(&mut kubelet);
    assert_eq!((pods.pods.len(), state(&source)), (PODS, HealthState::Degraded));
    let reason = source.health().reason;
    assert!(reason.contains("1 pods that hold GPUs are left out"), "{reason}");
}

#[test]
fn a_list_that_is_no_message_is_no_answer_and_the_mapping_stays() {
    let (kubelet, mut source) = start(Duration::from_millis(1));
    kubelet.list(vec![holder("p", &[&gpu(0)])]);
    assert!(last_pods(&look(&mut source)).is_some());
    kubelet.behave(Manner::Lists(Bytes::from_static(&[0x0a, 9])));
    let facts = look_until(&mut source, |source, _| state(source) != HealthState::Up);
    assert_eq!(last_pods(&facts), None);
    assert!(source.health().reason.contains("cannot be read"), "{:?}", source.health());
}
