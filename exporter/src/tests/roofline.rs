//! The roofline class in words and in JSON.

use std::sync::Arc;

use warpmeter_core::explain::{Explanation, Ground, Who, Why};
use warpmeter_core::identity::{DeviceId, GpuId, MigId};
use warpmeter_core::peak;
use warpmeter_core::roofline::{Loads, Roofline};
use warpmeter_core::state::State;
use warpmeter_core::time::{Interval, MonoNs, SECOND};
use warpmeter_core::view::{Evidence, PodView};

use super::sample;

/// A pod that was alone on its device, or not, for a second, with these loads in percent of it.
fn explained(mig: Option<&str>, alone: bool, [dram, tensor, vector]: [Option<u64>; 3]) -> PodView {
    let part = |percent: u64| percent * SECOND / 100;
    let loads = Loads {
        whole: SECOND,
        engine: part(80),
        dram: dram.map(part),
        tensor: tensor.map(part),
        vector: vector.map(part),
        sm_active: Some(part(76)),
        sm_occupied: Some(part(20)),
    };
    let mut explanation = Explanation::default();
    let why = Why {
        owner: sample::pod_owner("uid-1", "main"),
        device: DeviceId { gpu: GpuId::new("GPU-a"), mig: mig.map(MigId::new) },
        during: Interval::new(MonoNs(0), MonoNs(SECOND)).unwrap(),
        states: vec![(State::Active, part(80)), (State::UnknownNoEvidence, part(20))],
        used: Some(part(80)),
        use_evidence: Evidence::Measured,
        allocation_evidence: Evidence::Measured,
        ground: Ground::Unseen,
        rules: None,
        still: None,
        roofline: Some(Roofline::of(loads, alone)),
        callers: Vec::new(),
        followed: false,
    };
    explanation.note(why, |_| Who::default());
    PodView { explanation: Arc::new(explanation), ..sample::pod("uid-1") }
}

fn said(pod: &PodView) -> String {
    let mut view = sample::view();
    for gpu in &mut view.gpus {
        gpu.dram_peak = peak::dram(&[], &gpu.gpu.model, None);
    }
    crate::explain::words(&view, pod).join("\n")
}

#[test]
fn a_class_is_told_with_its_counters_in_bytes_where_the_peak_is_known() {
    let said = said(&explained(None, true, [Some(60), Some(8), Some(16)]));
    assert!(said.contains("of the time that it ran: bandwidth_bound 100 %"), "{said}");
    let bytes = "DRAM 75 % (2512 of 3350 GB/s, NVIDIA H100 Tensor Core GPU), tensor pipes 10 %, busiest other pipe 20 %";
    assert!(said.contains(bytes) && said.contains("SMs with a warp 95 %, warps resident 25 %"), "{said}");
    assert!(said.contains("memory is the nearer roof"), "{said}");
}

#[test]
fn what_is_not_counted_is_called_so_and_an_instance_has_no_bytes() {
    let said_of = said(&explained(None, true, [Some(10), Some(8), None]));
    assert!(said_of.contains("unknown 100 %") && said_of.contains("counters are missing"), "{said_of}");
    assert!(!said_of.contains("while the device was active"), "{said_of}");
    let said_of = said(&explained(Some("MIG-1"), true, [Some(70), Some(8), None]));
    assert!(said_of.contains("DRAM 88 %, tensor pipes 10 %, busiest other pipe not counted"), "{said_of}");
}

#[test]
fn on_a_shared_device_neither_class_nor_counters_are_a_pods() {
    let pod = explained(None, false, [Some(70), Some(8), Some(16)]);
    let said = said(&pod);
    assert!(said.contains("unknown 100 %") && said.contains("others used the device"), "{said}");
    assert!(!said.contains("DRAM"), "{said}");
    let json = crate::explain::json(&sample::view(), &pod).unwrap();
    assert!(json.contains(r#""roofline": "unknown""#) && json.contains(r#""while_active": null"#), "{json}");
}
