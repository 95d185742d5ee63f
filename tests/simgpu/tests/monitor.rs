//! The performance monitor: its owner, and its samples against the engine's integrals.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use tempfile::TempDir;
use warpmeter_simgpu::kernel::Kernel;
use warpmeter_simgpu::layout::{Load, MONITOR_SAMPLES};
use warpmeter_simgpu::{Model, Node, Process, Scenario};

const MS: u64 = 1_000_000;

fn node() -> (TempDir, Node) {
    let dir = TempDir::new().unwrap();
    warpmeter_simgpu::create(dir.path(), &Scenario::of(Model::A100, 1)).unwrap();
    let node = Node::open(dir.path()).unwrap();
    (dir, node)
}

#[test]
fn samples_touch_and_add_up_to_what_the_engine_did() {
    let (_dir, node) = node();
    let mut guard = node.lock();
    let start = guard.epoch;
    let client = guard.attach(0, Process { pid: 100, start: 1 }, start).unwrap();
    let stream = guard.open_stream(client, 1, false, true).unwrap();
    guard.start_monitor(0, 7 * MS, 1000, start);
    for n in 0..40 {
        let load = Load { sm: 100 + n, occupancy: 500, dram: 300, tensor: n };
        guard.enqueue(stream, Kernel { nanos: 3 * MS, load }.op(), start + u64::from(n) * 5 * MS).unwrap();
    }
    let (samples, lost) = guard.take_samples(0, 20, start + 210 * MS);
    let (rest, also_lost) = guard.take_samples(0, 1000, start + 210 * MS);
    assert_eq!((samples.len(), rest.len(), lost, also_lost), (20, 10, false, false));
    let all: Vec<_> = samples.iter().chain(&rest).collect();
    assert_eq!((all[0].start, all[29].end), (start, start + 210 * MS));
    assert!(all.windows(2).all(|two| two[0].end == two[1].start && two[0].end - two[0].start == 7 * MS));
    let totals = guard.engine[0].totals;
    assert_eq!(all.iter().map(|sample| sample.used.sm).sum::<u64>(), totals.sm);
    assert_eq!(all.iter().map(|sample| sample.used.dram).sum::<u64>(), totals.dram);
    assert!(totals.tensor > 0);
}

#[test]
fn a_full_buffer_keeps_the_oldest_and_says_so_once() {
    let (_dir, node) = node();
    let mut guard = node.lock();
    let start = guard.epoch;
    guard.start_monitor(0, MS, 10, start);
    let (samples, lost) = guard.take_samples(0, 1000, start + 100 * MS);
    assert_eq!((samples.len(), lost, samples[9].end), (10, true, start + 10 * MS));
    let (samples, lost) = guard.take_samples(0, 1000, start + 105 * MS);
    assert_eq!((samples.len(), lost, samples[0].start), (5, false, start + 100 * MS));
    guard.start_monitor(0, MS, u64::MAX, start + 200 * MS);
    let (samples, lost) = guard.take_samples(0, usize::MAX, start + 5000 * MS);
    assert_eq!((samples.len(), lost), (MONITOR_SAMPLES, true));
}

#[test]
fn a_monitor_has_one_living_owner() {
    let (_dir, node) = node();
    let mut guard = node.lock();
    let me = Process::current();
    let dead = Process { pid: u32::MAX - 1, start: 1 };
    assert!(guard.own_monitor(0, dead), "nobody had it");
    assert!(guard.own_monitor(0, me), "the dead own nothing");
    let other = Process { pid: 1, start: 1 };
    assert!(!guard.own_monitor(0, other));
    guard.free_monitor(0, other);
    assert!(guard.owns_monitor(0, me), "only its owner gives it back");
    guard.free_monitor(0, me);
    assert!(guard.own_monitor(0, other));
}
