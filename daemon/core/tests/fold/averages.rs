//! Averages that come after their windows.

use proptest::prelude::*;
use warpmeter_core::fact::{Averages, Discard, Fact, GrantPart, Part, Source};
use warpmeter_core::identity::{GpuId, MigId};
use warpmeter_core::settings::Settings;
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_core::view::View;

use crate::cases::{BEGIN, G, Node};
use crate::node::{averages, gpu, mig, neighbours, part, pod, pods, process, process_use, settings, whole};

/// What a device's own counters say where a neighbour gives the rest.
fn engine_only(mig: Option<MigId>, engine: Option<u32>, pids: &[u32]) -> Part {
    let part = part(mig, engine, pids);
    Part { corroboration: None, sm_active: None, sm_occupied: None, tensor: None, dram: None, ..part }
}

/// A GPU of pod `p` with a process, that was active for these percents of its first seconds.
fn busy(percents: &[u32]) -> Node {
    let mut node = Node::new(settings(), &[neighbours(gpu(G))]);
    node.put(2, Source::Pods, pods(&[pod("p", &[(whole(G), GrantPart::Whole)])], &[]));
    node.put(3, Source::Host, process(7, 2, "p"));
    for (end, percent) in (1..).zip(percents) {
        node.parts(end, vec![engine_only(None, Some(*percent), &[7])]);
    }
    node
}

fn over(start_ms: u64, end_ms: u64, percent: u32) -> Averages {
    averages(G, None, BEGIN + start_ms * 1_000_000, BEGIN + end_ms * 1_000_000, percent)
}

fn put(node: &mut Node, second: u64, averages: Averages) {
    node.put(second * SECOND, Source::Dcgm, Fact::Averages(averages)).tick(second + 1);
}

/// To the nearest millisecond.
fn ms(nanos: u64) -> u64 {
    (nanos + 500_000) / 1_000_000
}

/// SM activity of the devices, in milliseconds.
fn sm(view: &View) -> Option<u64> {
    let devices = view.gpus.iter().flat_map(|gpu| &gpu.devices);
    devices.filter_map(|device| device.activity.sm_active).reduce(|a, b| a + b).map(ms)
}

fn pods_sm(node: &Node, pod: &str) -> Option<u64> {
    node.account(pod).activity.sm_active.map(ms)
}

fn discarded(view: &View, reason: Discard) -> u64 {
    let source = view.sources.iter().find(|source| source.source == Source::Dcgm).unwrap();
    source.discarded[reason as usize]
}

#[test]
fn averages_are_counted_in_the_time_that_they_cover_however_late_they_come() {
    let mut node = busy(&[50; 60]);
    node.tick(65);
    assert_eq!((sm(&node.view), node.view.gpus[0].averaged_until), (None, None), "unknown is not zero");
    put(&mut node, 66, over(1500, 31_500, 40));
    assert_eq!((sm(&node.view), pods_sm(&node, "p")), (Some(12_000), Some(12_000)));
    assert_eq!(node.account("p").activity.sm_occupied, Some(6 * SECOND));
    assert_eq!(node.view.gpus[0].averaged_until, Some(MonoNs(BEGIN + 31_500_000_000)));
    put(&mut node, 68, over(31_500, 41_500, 10));
    assert_eq!(sm(&node.view), Some(13_000));
}

#[test]
fn averages_wait_for_their_windows_and_not_the_other_way_round() {
    let mut node = busy(&[50; 4]);
    node.put(4 * SECOND + 1, Source::Dcgm, Fact::Averages(over(0, 8000, 40))).tick(6);
    assert_eq!((sm(&node.view), node.view.gpus[0].elapsed), (None, 4 * SECOND));
    for end in 5..=8 {
        node.parts(end, vec![engine_only(None, Some(50), &[7])]);
    }
    node.tick(10);
    assert_eq!(sm(&node.view), Some(3200));
}

#[test]
fn no_time_is_counted_twice_and_none_that_was_not_watched() {
    let mut node = busy(&[50; 20]);
    node.tick(25);
    put(&mut node, 26, over(0, 10_000, 40));
    put(&mut node, 28, over(0, 10_000, 40));
    assert_eq!((sm(&node.view), discarded(&node.view, Discard::Late)), (Some(4000), 1));
    put(&mut node, 30, over(5000, 15_000, 40));
    assert_eq!(sm(&node.view), Some(6000), "from where the last one ended");
    let mut young = busy(&[50; 4]);
    young.tick(8);
    let before = averages(G, None, 1, BEGIN + 4 * SECOND, 50);
    put(&mut young, 9, before);
    assert_eq!(sm(&young.view), Some(2000), "of four watched seconds");
}

#[test]
fn each_owner_gets_its_part_by_its_use_in_that_time() {
    let mut node = Node::new(settings(), &[neighbours(gpu(G))]);
    let half = |name: &str, replica| pod(name, &[(whole(G), GrantPart::Replica(replica))]);
    node.put(2, Source::Pods, pods(&[half("p", 0), half("q", 1)], &[(whole(G), 2)]));
    node.put(3, Source::Host, process(7, 2, "p")).put(4, Source::Host, process(8, 2, "q"));
    for end in 1..=10 {
        node.parts(end, vec![engine_only(None, Some(80), &[7, 8])]);
        // In the first half `p` uses three times as much as `q`; then `q` works alone.
        let used: &[(u32, u32)] = if end <= 5 { &[(7, 60), (8, 20)] } else { &[(7, 0), (8, 80)] };
        let (start, end) = (BEGIN + (end - 1) * SECOND, BEGIN + end * SECOND);
        node.put(end - BEGIN, Source::Nvidia, process_use(G, start, end, used));
    }
    node.tick(15);
    put(&mut node, 16, over(0, 5000, 40));
    assert_eq!((pods_sm(&node, "p"), pods_sm(&node, "q")), (Some(1500), Some(500)));
    put(&mut node, 18, over(5000, 10_000, 40));
    assert_eq!((pods_sm(&node, "p"), pods_sm(&node, "q")), (Some(1500), Some(2500)));
}

#[test]
fn another_authority_is_never_blended_with_it() {
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.second(1, Some(80), &[7]).tick(3);
    let before = sm(&node.view);
    put(&mut node, 4, over(0, 1000, 90));
    assert_eq!((sm(&node.view), discarded(&node.view, Discard::DeviceId)), (before, 1));
}

#[test]
fn what_the_drivers_counter_contradicts_is_left_out_and_counted_as_a_conflict() {
    for (engine, sm_active, conflict) in
        [(50, 0, true), (0, 50, true), (50, 1, false), (50, 60, false), (5, 0, false), (0, 0, false)]
    {
        let mut node = busy(&[engine; 10]);
        node.tick(15);
        put(&mut node, 16, over(0, 10_000, sm_active));
        let expected = if conflict { (None, 1) } else { (Some(u64::from(sm_active) * 100), 0) };
        let found = (sm(&node.view), discarded(&node.view, Discard::Conflict));
        assert_eq!(found, expected, "engine {engine} %, SMs {sm_active} %");
    }
}

#[test]
fn an_instance_of_which_nothing_else_is_known_is_its_only_holders() {
    let mut node = Node::new(settings(), &[neighbours(mig(G, &[3, 2], 2))]);
    let instance = |index: u32| MigId::new(format!("MIG-{G}-{index}"));
    let device = warpmeter_core::fact::DeviceRef::Mig(instance(0));
    node.put(2, Source::Pods, pods(&[pod("p", &[(device, GrantPart::Whole)])], &[]));
    for end in 1..=7 {
        let parts = [0, 1].map(|index| engine_only(Some(instance(index)), None, &[]));
        node.parts(end, parts.into());
    }
    node.tick(12);
    let of = |index| averages(G, Some(instance(index).as_str()), BEGIN, BEGIN + 7 * SECOND, 50);
    put(&mut node, 13, of(0));
    put(&mut node, 15, of(1));
    // Half of three sevenths of seven seconds, and half of two.
    assert_eq!((pods_sm(&node, "p"), sm(&node.view)), (Some(1500), Some(2500)));
}

#[test]
fn an_owner_whose_account_is_dropped_gets_none_again() {
    let mut node = Node::new(Settings { retain: SECOND, ..settings() }, &[neighbours(gpu(G))]);
    node.put(2, Source::Pods, pods(&[pod("p", &[(whole(G), GrantPart::Whole)])], &[]));
    for end in 1..=10 {
        node.parts(end, vec![engine_only(None, Some(50), &[])]);
    }
    node.put(10 * SECOND, Source::Pods, pods(&[], &[]));
    for end in 11..=30 {
        node.parts(end, vec![engine_only(None, Some(50), &[])]).tick(end);
    }
    assert!(node.view.accounts.is_empty());
    put(&mut node, 31, over(0, 10_000, 40));
    assert_eq!((node.view.accounts.len(), sm(&node.view)), (0, Some(4000)));
}

#[test]
fn traffic_is_the_rate_times_its_time() {
    let mut node = Node::new(settings(), &[neighbours(gpu(G))]);
    for end in 1..=10 {
        let part = engine_only(None, Some(50), &[]);
        let during = (BEGIN + (end - 1) * SECOND, BEGIN + end * SECOND);
        let during = warpmeter_core::time::Interval::try_from((MonoNs(during.0), MonoNs(during.1))).unwrap();
        let board = warpmeter_core::fact::Board::default();
        let reading = warpmeter_core::fact::Reading { gpu: GpuId::new(G), during, board, parts: vec![part] };
        node.put(end * SECOND, Source::Nvidia, Fact::Reading(Box::new(reading)));
    }
    node.tick(15);
    let mut traffic = over(0, 8000, 40);
    (traffic.means.pcie_receive, traffic.means.pcie_transmit) = (Some(1000), Some(7));
    put(&mut node, 16, traffic);
    let totals = &node.view.gpus[0].totals;
    assert_eq!((totals.pcie_receive, totals.pcie_transmit), (Some(8000), Some(56)));
}

proptest! {
    #[test]
    fn whatever_comes_sms_are_never_active_for_longer_than_the_device_was_watched(
        engines in prop::collection::vec(0..=100_u32, 40),
        stretches in prop::collection::vec((0..45_000_u64, 1..40_000_u64, 0..=100_u32, 0..60_u64), 0..30),
    ) {
        let mut node = busy(&engines);
        let mut stretches = stretches;
        stretches.sort_by_key(|(.., at)| *at);
        for (start, length, percent, at) in stretches {
            node.put(at * SECOND, Source::Dcgm, Fact::Averages(over(start, start + length, percent)));
            node.tick(at);
        }
        node.tick(70);
        let device = &node.view.gpus[0].devices[0];
        let elapsed = node.view.gpus[0].elapsed;
        prop_assert!(device.activity.sm_active.unwrap_or(0) <= elapsed);
        let own = node.account("p").activity.sm_active;
        prop_assert!(own.unwrap_or(0) <= device.activity.sm_active.unwrap_or(0));
    }
}
