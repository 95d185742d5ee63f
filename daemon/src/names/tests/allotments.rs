//! What schedulers note on pods of the GPUs that they give.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use warpmeter_core::fact::{Allotment, DeviceRef, Share};
use warpmeter_core::identity::GpuId;
use warpmeter_core::ratio::Ppb;

use crate::names::allotment;
use crate::names::{LabelKeys, parse};

const UUID: &str = "5a5a7118-e550-79a1-597e-7631e126c57a";
const HAMI: &str = "hami.io/vgpu-devices-allocated";
const GPUSHARE: &str = "scheduler.framework.gpushare.allocation";

/// What a pod with these annotations, and these containers, was given.
fn read(annotations: &[(&str, &str)], init: &[&str], containers: &[&str]) -> Option<Vec<Allotment>> {
    let annotations =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<_>>();
    allotment::read(&annotations, &names(init), &names(containers))
}

fn gpu() -> DeviceRef {
    DeviceRef::Gpu(GpuId::new(format!("GPU-{UUID}")))
}

fn given(container: &str, device: DeviceRef, share: Share) -> Allotment {
    Allotment { container: container.into(), device, share }
}

fn percent(percent: u32) -> Share {
    Share::Compute(Ppb::percent(percent).unwrap())
}

#[test]
fn hami_gives_each_container_its_devices_by_compute_or_else_by_memory() {
    let device = |memory: u32, cores: u32| format!("GPU-{UUID},NVIDIA,{memory},{cores}:");
    let memory = Share::Memory(4000 << 20);
    for key in [HAMI, "4pd.io/vgpu-devices-allocated"] {
        let one = read(&[(key, &format!("{};", device(4000, 0)))], &[], &["main"]);
        assert_eq!(one, Some(vec![given("main", gpu(), memory)]));
    }
    let text = format!("{};;{}{};", device(4000, 25), device(4000, 0), device(1, 100));
    let three = read(&[(HAMI, &text)], &[], &["a", "b", "c"]).unwrap();
    let expected =
        [given("a", gpu(), percent(25)), given("c", gpu(), percent(100)), given("c", gpu(), memory)];
    assert_eq!(three, expected);
    // Numbered with the init containers by some versions.
    assert_eq!(read(&[(HAMI, &text)], &["a"], &["b", "c"]), Some(expected.to_vec()));
    for nothing in ["", ";", ";;", ":;:;"] {
        assert_eq!(read(&[(HAMI, nothing)], &[], &["a"]), Some(vec![]), "{nothing:?}");
    }
}

#[test]
fn what_hami_leaves_open_is_taken_from_nobody() {
    let whole = format!("GPU-{UUID},NVIDIA,4000,25:;");
    assert_eq!(read(&[(HAMI, &whole)], &[], &["a", "b"]), None, "whose it is");
    for odd in [
        "GPU-x,NVIDIA,4000,25:;".to_owned(),
        format!("GPU-{UUID}[0-1],NVIDIA,4000,25:;"),
        format!("GPU-{UUID}-3,NVIDIA,4000,25:;"),
        format!("GPU-{UUID},NVIDIA,4000:;"),
        format!("GPU-{UUID},NVIDIA,0,0:;"),
        format!("GPU-{UUID},NVIDIA,4000,101:;"),
        format!("GPU-{UUID},NVIDIA,-1,0:;"),
        format!("GPU-{UUID},NVIDIA,{},0:;", u64::MAX),
        format!("{};", whole.trim_end_matches(';').repeat(300)),
        format!("{whole}{}", " ".repeat(1 << 16)),
    ] {
        assert_eq!(read(&[(HAMI, &odd)], &[], &["a"]), None, "{odd:.80}");
    }
}

#[test]
fn gpushare_gives_units_of_gpus_by_minor_number() {
    let units = |units, of| Share::Units { units, of };
    let two = read(&[(GPUSHARE, r#"{"0":{"1":1},"1":{"1":7,"0":0}}"#)], &["init"], &["a", "b"]);
    let minor = DeviceRef::Minor(1);
    assert_eq!(
        two,
        Some(vec![given("a", minor.clone(), units(1, None)), given("b", minor.clone(), units(7, None))])
    );
    let older = [("ALIYUN_COM_GPU_MEM_IDX", "1"), ("ALIYUN_COM_GPU_MEM_POD", "8")];
    assert_eq!(read(&older, &[], &["a"]), Some(vec![given("a", minor.clone(), units(8, None))]));
    let of = [older[0], older[1], ("ALIYUN_COM_GPU_MEM_DEV", "22")];
    assert_eq!(read(&of, &[], &["a"]), Some(vec![given("a", minor, units(8, Some(22)))]));
    assert_eq!(read(&of, &[], &["a", "b"]), None, "how they divide it");
    assert_eq!(read(&[("ALIYUN_COM_GPU_MEM_IDX", "-1"), older[1]], &[], &["a"]), Some(vec![]), "not placed");
    assert_eq!(read(&[older[1]], &[], &["a"]), Some(vec![]));
    for odd in ["{", "[]", r#"{"2":{"1":1}}"#, r#"{"0":{"x":1}}"#, r#"{"0":{"1":-1}}"#, r#"{"a":{}}"#] {
        assert_eq!(read(&[(GPUSHARE, odd)], &[], &["a"]), None, "{odd}");
    }
    for (index, units, of) in [("x", "1", "2"), ("1", "0", "2"), ("1", "3", "2"), ("1", "1", "")] {
        let odd = [
            ("ALIYUN_COM_GPU_MEM_IDX", index),
            ("ALIYUN_COM_GPU_MEM_POD", units),
            ("ALIYUN_COM_GPU_MEM_DEV", of),
        ];
        assert_eq!(read(&odd, &[], &["a"]).is_none(), !of.is_empty(), "{odd:?}");
    }
}

proptest! {
    #[test]
    fn whatever_the_annotations_say_it_is_of_a_container_of_the_pod_and_within_bounds(
        hami in proptest::option::of("((GPU-[0-9a-f-]{36}|.{0,3}),(NVIDIA)?,[0-9]{0,25},[0-9]{0,4}[:;]{0,2}){0,4}"),
        allocation in proptest::option::of(r#"\{("[0-3]{0,2}":\{"[0-9]{0,11}":[0-9]{1,22}\},?){0,4}\}|.{0,20}"#),
        index in proptest::option::of("[0-9-]{0,12}"),
        units in proptest::option::of("[0-9]{0,22}"),
        containers in 0..4_usize,
    ) {
        let all: Vec<_> = (0..containers).map(|number| json!({ "name": format!("c{number}") })).collect();
        let keys = [HAMI, GPUSHARE, "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD"];
        let values = [hami, allocation, index, units];
        let annotations: BTreeMap<&str, String> =
            keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?))).collect();
        let list = json!({ "items": [{
            "metadata": { "uid": "u", "namespace": "n", "name": "p", "annotations": annotations },
            "spec": { "containers": all },
        }] });
        let pods = parse(list.to_string().as_bytes(), &LabelKeys::default()).unwrap();
        prop_assert_eq!(pods.len(), 1);
        for pod in pods {
            prop_assert!(pod.allotments.is_sorted() && pod.allotments.len() <= 256);
            for allotment in &pod.allotments {
                prop_assert!(pod.containers.iter().any(|container| container.name == allotment.container));
            }
        }
    }
}
