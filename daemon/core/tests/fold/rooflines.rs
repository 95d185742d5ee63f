//! What bounded a pod's work, on its way to the ledgers.

use warpmeter_core::fact::{DeviceRef, GrantPart, Level, Part, Pipes, Source};
use warpmeter_core::identity::MigId;
use warpmeter_core::inventory::{Gpu, MemoryBus};
use warpmeter_core::peak::{Origin, Stated};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::roofline::{Blind, Bound};
use warpmeter_core::settings::Settings;
use warpmeter_core::time::SECOND;

use crate::cases::{G, Node};
use crate::node::{gpu, mig, part, pod, pods, process, process_use, settings, whole};

const BEGIN: u64 = 10 * SECOND;

fn percent(percent: u32) -> Option<Level> {
    Ppb::percent(percent).map(Level::Ratio)
}

/// A device that was active for so much of the time, with these loads in percent of the time; the other pipes alike.
fn loaded(mig: Option<MigId>, pids: &[u32], engine: u32, [dram, tensor, other]: [u32; 3]) -> Part {
    let other = || percent(other);
    let pipes = Pipes { integer: other(), fp64: other(), fp32: other(), fp16: other() };
    Part { dram: percent(dram), tensor: percent(tensor), pipes, ..part(mig, Some(engine), pids) }
}

/// Milliseconds that a pod's work ran, by what bounded it.
fn bounds(node: &Node, pod: &str) -> [u64; Bound::COUNT] {
    node.account(pod).bounds.map(|nanos| (nanos + 500_000) / 1_000_000)
}

fn one(name: &str, device: DeviceRef) -> warpmeter_core::fact::Fact {
    pods(&[pod(name, &[(device, GrantPart::Whole)])], &[])
}

fn whole_gpu(settings: Settings) -> Node {
    let mut node = Node::new(settings, &[gpu(G)]);
    node.put(2, Source::Pods, one("p", whole(G)));
    node.put(3, Source::Host, process(7, 2, "p"));
    node
}

#[test]
fn the_work_of_a_pod_that_is_alone_is_bounded_by_what_its_devices_counters_say() {
    let mut node = whole_gpu(settings());
    let seconds = [[72, 8, 8], [16, 64, 8], [16, 8, 8], [0, 0, 1]];
    for (second, loads) in (1..).zip(seconds) {
        node.parts(second, vec![loaded(None, &[7], 80, loads)]);
    }
    node.second(5, Some(0), &[7]).tick(7);
    assert_eq!(bounds(&node, "p"), [800, 800, 800, 800, 0]);
    let explained = &node.view.pods[0].explanation.recent()[0];
    let found: Vec<_> = explained.windows.iter().map(|why| why.roofline.map(|found| found.bound())).collect();
    let all = [Bound::Bandwidth, Bound::Compute, Bound::Latency, Bound::LowIntensity].map(Some);
    assert_eq!(found, [all.as_slice(), &[None]].concat(), "a second without work has no bound");
    let loads = explained.loads().unwrap();
    assert_eq!(loads.while_active(loads.dram), Ppb::of_whole(104, 320));
}

#[test]
fn what_is_not_counted_leaves_the_bound_unknown_and_not_the_time() {
    let mut node = whole_gpu(settings());
    let missing_pipe = Part {
        pipes: Pipes { fp64: None, ..loaded(None, &[7], 80, [0; 3]).pipes },
        ..loaded(None, &[7], 80, [16, 8, 8])
    };
    node.parts(1, vec![missing_pipe]);
    node.second(2, Some(50), &[7]);
    node.parts(3, vec![loaded(None, &[7], 5, [5, 0, 0])]).tick(6);
    assert_eq!(bounds(&node, "p"), [0, 0, 0, 0, 1350]);
    assert_eq!(node.account("p").used, node.account("p").bounds.iter().sum::<u64>());
    let explained = &node.view.pods[0].explanation.recent()[0];
    let why: Vec<_> = explained.bounds();
    let [uncounted, brief] = [1_300_000_000, 50_000_000];
    assert_eq!(why, [(Err(Blind::Uncounted), uncounted), (Err(Blind::Brief), brief)]);
    assert_eq!(explained.loads(), None);
}

#[test]
fn counters_of_a_device_that_two_pods_used_are_neithers() {
    let mut node = Node::new(settings(), &[gpu(G)]);
    let held = |name: &str, replica| pod(name, &[(whole(G), GrantPart::Replica(replica))]);
    node.put(2, Source::Pods, pods(&[held("p", 0), held("q", 1)], &[(whole(G), 2)]));
    node.put(3, Source::Host, process(7, 2, "p")).put(3, Source::Host, process(8, 2, "q"));
    for (second, used) in [(1, vec![(7, 60), (8, 30)]), (2, vec![(7, 90), (8, 0)])] {
        let (start, end) = (BEGIN + (second - 1) * SECOND, BEGIN + second * SECOND);
        node.parts(second, vec![loaded(None, &[7, 8], 90, [81, 5, 5])]);
        node.put(second * SECOND + 1, Source::Nvidia, process_use(G, start, end, &used));
    }
    node.tick(8);
    assert_eq!(bounds(&node, "p"), [900, 0, 0, 0, 600], "the second second was its own");
    assert_eq!(bounds(&node, "q"), [0, 0, 0, 0, 300]);
}

#[test]
fn an_instances_counters_are_its_holders() {
    let mut node = Node::new(settings(), &[mig(G, &[3, 4], 0)]);
    let [a, b] = [0, 1].map(|index| MigId::new(format!("MIG-{G}-{index}")));
    let held = |name: &str, id: &MigId| pod(name, &[(DeviceRef::Mig(id.clone()), GrantPart::Whole)]);
    node.put(2, Source::Pods, pods(&[held("p", &a), held("q", &b)], &[]));
    let parts = vec![loaded(Some(a), &[], 100, [90, 0, 0]), loaded(Some(b), &[], 100, [10, 80, 0])];
    node.parts(1, parts).tick(3);
    assert_eq!(bounds(&node, "p"), [429, 0, 0, 0, 0], "three of seven slices");
    assert_eq!(bounds(&node, "q"), [0, 571, 0, 0, 0]);
}

#[test]
fn a_counter_that_is_contradicted_says_nothing_of_bounds() {
    let mut node = whole_gpu(settings());
    for second in 1..=3 {
        let stuck = loaded(None, &[7], 0, [80, 0, 0]);
        node.parts(second, vec![Part { corroboration: Ppb::percent(90), ..stuck }]);
    }
    node.tick(5);
    assert_eq!(bounds(&node, "p"), [0; Bound::COUNT]);
}

#[test]
fn peaks_are_those_of_the_model_unless_the_configuration_says_otherwise() {
    let bus = Some(MemoryBus { clock_mhz: 5000, bits: 256 });
    let unheard_of = Gpu { model: "NVIDIA Z9000".into(), memory_bus: bus, ..gpu("GPU-z") };
    let peaks = vec![("Z9000".to_owned(), Stated { dram: None, tensor: Some(7) })];
    let mut node = Node::new(Settings { peaks, ..settings() }, &[gpu(G), unheard_of]);
    node.tick(1);
    let [known, other] = [0, 1].map(|place| &node.view.gpus[place]);
    assert_eq!(known.dram_peak.map(|peak| peak.rate), Some(3_350_000_000_000), "{}", known.gpu.model);
    assert_eq!(other.dram_peak.map(|peak| (peak.rate, peak.origin)), Some((320_000_000_000, Origin::Driver)));
    assert_eq!(other.tensor_peak.map(|peak| (peak.rate, peak.origin)), Some((7, Origin::Configuration)));
}
