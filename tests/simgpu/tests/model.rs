//! Properties of the model, on a clock that the tests move.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeMap;
use std::time::Instant;

use tempfile::TempDir;
use warpmeter_simgpu::kernel::Kernel;
use warpmeter_simgpu::layout::{Load, Op, QUEUE_DEPTH, Shared, kind};
use warpmeter_simgpu::{Guard, Model, Node, Process, Refused, Scenario, StreamRef};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn node(scenario: &Scenario) -> (TempDir, Node) {
    let dir = TempDir::new().unwrap();
    warpmeter_simgpu::create(dir.path(), scenario).unwrap();
    let node = Node::open(dir.path()).unwrap();
    (dir, node)
}

fn h100() -> (TempDir, Node) {
    node(&Scenario::of(Model::H100, 1))
}

fn process(pid: u32) -> Process {
    Process { pid, start: 1 }
}

fn kernel(nanos: u64, sm: u32) -> Op {
    Kernel { nanos, load: Load { sm, occupancy: 500, dram: 100, tensor: 0 } }.op()
}

/// A process on an engine with one stream, at the node's creation.
fn client(guard: &mut Guard<'_>, engine: usize, pid: u32) -> (usize, StreamRef) {
    let now = guard.epoch;
    let client = guard.attach(engine, process(pid), now).unwrap();
    (client, guard.open_stream(client, 1, false, true).unwrap())
}

/// Busy nanoseconds by pid, from the log as written.
fn logged(dir: &TempDir) -> BTreeMap<u32, u64> {
    let text = std::fs::read_to_string(dir.path().join("oracle.jsonl")).unwrap();
    let mut busy = BTreeMap::new();
    for line in text.lines() {
        let number = |key: &str| {
            let (_, rest) = line.split_once(&format!("\"{key}\":")).unwrap();
            rest.split([',', '}']).next().unwrap().parse::<u64>().unwrap()
        };
        let pid = u32::try_from(number("pid")).unwrap();
        *busy.entry(pid).or_default() += number("busy_ns");
    }
    busy
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn time_sliced_processes_add_up_to_the_device_and_to_the_log() {
    for seed in 1..20 {
        let (dir, node) = h100();
        let mut guard = node.lock();
        let mut rng = seed;
        let streams: Vec<_> = (100..105).map(|pid| client(&mut guard, 0, pid)).collect();
        let start = guard.epoch;
        let mut now = start;
        for _ in 0..2000 {
            now += random(&mut rng, 800 * US);
            let at = usize::try_from(random(&mut rng, 5)).unwrap();
            let sm = u32::try_from(random(&mut rng, 1001)).unwrap();
            let op = kernel(1 + random(&mut rng, 2 * MS), sm);
            assert!(matches!(guard.enqueue(streams[at].1, op, now), Ok(_) | Err(Refused::QueueFull)));
        }
        now += S;
        guard.advance(0, now);
        let device = guard.engine[0].totals;
        let sum: u64 = streams.iter().map(|s| guard.client[s.0].totals.active).sum();
        assert_eq!(sum, device.active);
        assert!(device.active <= now - start);
        assert!(device.sm <= device.active * 1000);
        assert!(device.occupied <= device.sm);
        let active: Vec<_> = streams.iter().map(|s| guard.client[s.0].totals.active).collect();
        for (client, _) in &streams {
            guard.detach(*client, now);
        }
        drop(guard);
        node.flush().unwrap();
        let log = logged(&dir);
        for (pid, active) in (100..105).zip(active) {
            assert_eq!(log.get(&pid).copied().unwrap_or_default(), active, "pid {pid}, seed {seed}");
        }
    }
}

#[test]
fn equal_demand_gets_equal_shares() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    let streams: Vec<_> = (1..4).map(|pid| client(&mut guard, 0, pid)).collect();
    for (_, stream) in &streams {
        for _ in 0..900 {
            guard.enqueue(*stream, kernel(700 * US, 900), start).unwrap();
        }
    }
    guard.advance(0, start + S);
    for (client, _) in streams {
        let share = guard.client[client].totals.active;
        assert!(share.abs_diff(S / 3) <= 2 * MS, "{share}");
    }
    assert_eq!(guard.engine[0].totals.active, S);
}

#[test]
fn a_turn_passes_at_once_when_its_owner_has_nothing_to_run() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    let a = client(&mut guard, 0, 1);
    let b = client(&mut guard, 0, 2);
    guard.enqueue(a.1, kernel(100 * US, 1000), start).unwrap();
    guard.enqueue(b.1, kernel(100 * US, 1000), start).unwrap();
    guard.advance(0, start + 200 * US);
    assert_eq!(guard.stream[b.1.at as usize].head, 1);
}

#[test]
fn a_stream_runs_in_order_and_one_process_overlaps_what_fits() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    let (client, first) = client(&mut guard, 0, 1);
    let second = guard.open_stream(client, 1, false, true).unwrap();
    let third = guard.open_stream(client, 1, false, true).unwrap();
    let a = guard.enqueue(first, kernel(MS, 400), start).unwrap();
    let b = guard.enqueue(first, kernel(MS, 400), start).unwrap();
    let c = guard.enqueue(second, kernel(MS, 400), start).unwrap();
    let d = guard.enqueue(third, kernel(MS, 400), start).unwrap();
    guard.advance(0, start + MS);
    let head = |guard: &Shared, s: StreamRef| guard.stream[s.at as usize].head;
    assert_eq!((head(&guard, first), head(&guard, second)), (a, c));
    assert_eq!(head(&guard, third), 0, "three kernels of 40 % do not fit");
    assert_eq!(guard.engine[0].totals.active, MS);
    assert_eq!(guard.engine[0].totals.sm, 800 * MS);
    guard.advance(0, start + 2 * MS);
    assert_eq!((head(&guard, first), head(&guard, third)), (b, d));
    assert_eq!(guard.client[client].totals.active, 2 * MS);
}

#[test]
fn a_full_queue_refuses_until_something_completes() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    let (_, stream) = client(&mut guard, 0, 1);
    for _ in 0..QUEUE_DEPTH {
        guard.enqueue(stream, kernel(MS, 1000), start).unwrap();
    }
    assert_eq!(guard.enqueue(stream, kernel(MS, 1000), start), Err(Refused::QueueFull));
    assert!(guard.enqueue(stream, kernel(MS, 1000), start + MS).is_ok());
}

#[test]
fn mps_runs_processes_at_the_same_time() {
    let mut scenario = Scenario::of(Model::H100, 1);
    scenario.gpu[0].mps = true;
    let (_dir, node) = node(&scenario);
    let mut guard = node.lock();
    let start = guard.epoch;
    let a = client(&mut guard, 0, 1);
    let b = client(&mut guard, 0, 2);
    guard.enqueue(a.1, kernel(MS, 500), start).unwrap();
    guard.enqueue(b.1, kernel(MS, 500), start).unwrap();
    guard.advance(0, start + 5 * MS);
    assert_eq!(guard.engine[0].totals.active, MS);
    assert_eq!(guard.client[a.0].totals.active, MS);
    assert_eq!(guard.client[b.0].totals.active, MS);
}

#[test]
fn mig_instances_do_not_disturb_one_another() {
    let text = "[[gpu]]\nmodel = \"A100\"\nmig = [{profile = \"3g.40gb\"}, {profile = \"1g.10gb\"}]";
    let (_dir, node) = node(&Scenario::parse(text).unwrap());
    let mut guard = node.lock();
    let start = guard.epoch;
    let a = client(&mut guard, 0, 1);
    let b = client(&mut guard, 1, 2);
    guard.enqueue(a.1, kernel(MS, 1000), start).unwrap();
    guard.enqueue(b.1, kernel(MS, 1000), start).unwrap();
    guard.advance_all(start + 5 * MS);
    assert_eq!((guard.engine[0].totals.active, guard.engine[1].totals.active), (MS, MS));
    let used = guard.take_memory(b.0, 11 << 30);
    assert_eq!(used, Err(Refused::Memory));
}

#[test]
fn copies_overlap_kernels_and_move_every_byte() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    let (client, compute) = client(&mut guard, 0, 1);
    let copies = guard.open_stream(client, 1, false, true).unwrap();
    guard.enqueue(compute, kernel(10 * MS, 1000), start).unwrap();
    let bytes = 123_456_789;
    guard.enqueue(copies, Op::copy(kind::H2D, bytes, 25_000_000_000), start).unwrap();
    for step in 1..20 {
        guard.advance(0, start + step * 777 * US);
    }
    assert_eq!(guard.engine[0].totals.rx, bytes);
    assert_eq!(guard.engine[0].totals.active, 10 * MS);
}

#[test]
fn the_legacy_stream_orders_with_blocking_streams() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    let now = guard.epoch;
    let c = guard.attach(0, process(1), now).unwrap();
    let legacy = guard.open_stream(c, 1, true, false).unwrap();
    let blocking = guard.open_stream(c, 1, false, false).unwrap();
    guard.enqueue(blocking, kernel(MS, 100), start).unwrap();
    guard.enqueue(legacy, kernel(MS, 100), start).unwrap();
    guard.enqueue(blocking, kernel(MS, 100), start).unwrap();
    guard.advance(0, start + 3 * MS - 1);
    assert_eq!(guard.engine[0].totals.active, 3 * MS - 1, "one after the other");
    guard.advance(0, start + 3 * MS);
    assert_eq!(guard.engine[0].pending, 0);
}

#[test]
fn events_wait_across_streams_and_carry_times() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    let (c, a) = client(&mut guard, 0, 1);
    let b = guard.open_stream(c, 1, false, true).unwrap();
    let event = guard.new_event(1).unwrap();
    assert!(guard.wait_op(event).is_none(), "never recorded");
    guard.enqueue(a, kernel(3 * MS, 100), start).unwrap();
    guard.record_event(event, a, start).unwrap();
    let wait = guard.wait_op(event).unwrap();
    guard.enqueue(b, wait, start).unwrap();
    let seq = guard.enqueue(b, kernel(MS, 100), start).unwrap();
    assert!(guard.due(b, seq, start + 4 * MS - 1).is_some());
    assert!(guard.due(b, seq, start + 4 * MS).is_none());
    assert_eq!(guard.event[event as usize].at, start + 3 * MS);
}

#[test]
fn samples_are_exact_at_their_boundaries() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    let (_, stream) = client(&mut guard, 0, 77);
    for step in 0..300 {
        guard.enqueue(stream, kernel(4 * MS, 500), start + step * 10 * MS).unwrap();
    }
    guard.advance(0, start + 3 * S);
    let samples: Vec<_> = guard.device[0].visible(start + 3 * S).collect();
    assert_eq!(samples.len(), 3);
    assert!(samples.iter().all(|s| s.pid == 77 && s.sm == 40 && s.period_ms == 1000));
    let (a, b) = (guard.engine[0].snapshot(1).unwrap(), guard.engine[0].snapshot(0).unwrap());
    assert_eq!(b.at - a.at, 167 * MS);
    assert_eq!(guard.engine[0].gpm.at, start + 3 * S);
    assert_eq!(guard.engine[0].gpm.totals.active, 1200 * MS);
}

#[test]
fn a_long_idle_time_is_cheap_and_loses_no_sample_time() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let end = guard.epoch + 30 * 86_400 * S;
    let clock = Instant::now();
    guard.advance(0, end);
    assert!(clock.elapsed().as_millis() < 200);
    assert!(end - guard.engine[0].gpm.at <= 100 * MS);
    assert!(end - guard.engine[0].snapshot(0).unwrap().at <= 167 * MS);
}

#[test]
fn energy_lies_between_idle_and_the_limit() {
    let (_dir, node) = h100();
    let mut guard = node.lock();
    let start = guard.epoch;
    guard.advance(0, start + S);
    assert_eq!(guard.energy_mj(0), 72_000);
    let (_, stream) = client(&mut guard, 0, 1);
    guard.enqueue(stream, kernel(S, 1000), start + S).unwrap();
    guard.advance(0, start + 2 * S);
    let used = guard.energy_mj(0) - 72_000;
    assert!((300_000..700_000).contains(&used), "{used}");
    assert!(guard.power_mw(0) > 300_000);
}

#[test]
fn a_kernel_survives_its_handle_and_its_name() {
    let kernel = Kernel::named("us=2000.5,sm=80,occ=50,dram=30,tensor=20,note=ignored");
    assert_eq!(kernel.nanos, 2_000_500);
    assert_eq!(kernel.load, Load { sm: 800, occupancy: 500, dram: 300, tensor: 200 });
    assert_eq!(Kernel::of_handle(kernel.handle()), Some(kernel));
    assert_eq!(Kernel::named("_Z6matmulPf"), Kernel::default());
    assert_eq!(Kernel::of_handle(0), None);
}
