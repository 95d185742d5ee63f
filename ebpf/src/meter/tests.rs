use warpmeter_core::identity::{GpuId, HostPid};

use super::*;
use crate::sys::zero;

struct One {
    watched: bool,
    refuses: bool,
}

impl Names for One {
    fn process(&mut self, tgid: u32, _record: &Process) -> Option<(ProcessId, Scope)> {
        Some((ProcessId { pid: HostPid(tgid), start: MonoNs(5) }, Scope::Host))
    }

    fn device(&mut self, _tgid: u32, slot: Option<u32>) -> Option<DeviceRef> {
        slot.map(|slot| DeviceRef::Gpu(GpuId::new(format!("GPU-{slot}"))))
    }

    fn is_watched(&self, _tgid: u32) -> bool {
        self.watched
    }

    fn is_shed(&self, _tgid: u32) -> bool {
        !self.watched
    }

    fn unwatched(&mut self) -> Vec<u32> {
        if self.watched || self.refuses { Vec::new() } else { vec![7] }
    }

    fn users(&self) -> Vec<u32> {
        vec![7]
    }
}

fn known() -> One {
    One { watched: true, refuses: false }
}

fn counted(launches: u64, sync_wait: u64) -> Use {
    Use { enqueued: launches, launches, sync_wait, last_call: 9, contexts: 1, ..zero() }
}

fn record(flags: u32, callers: Doings, others: Doings) -> Process {
    Process { flags, contexts: 1, cgroup: 1, seen: 1, callers, others, ..zero() }
}

fn thread(flags: u32, since: u64, sums: Doings) -> Task {
    Task { tgid: 7, flags, since, doing: doing::CPU, sums, ..zero() }
}

fn doings(of: &[(u32, u64)]) -> Doings {
    let mut doings = Doings::default();
    for (doing, nanos) in of {
        doings[*doing as usize] += nanos;
    }
    doings
}

fn reading(at: u64) -> Reading {
    Reading {
        at,
        processes: vec![(7, record(0, Doings::default(), Doings::default()))],
        ..Reading::default()
    }
}

#[test]
fn what_is_reported_sums_to_what_the_kernel_counted_since_the_first_reading() {
    let mut meter = Meter::default();
    let launches = [100, 100, 250, 251, 1000];
    let mut sum = 0;
    for (at, launches) in launches.iter().enumerate() {
        let uses = vec![(UseKey { tgid: 7, slot: 0 }, counted(*launches, 0))];
        let probes = meter.advance(&Reading { uses, ..reading(10 * (at as u64 + 1)) }, &mut known());
        assert_eq!(probes.is_none(), at == 0, "the first reading is where counting begins");
        if let Some(probes) = probes {
            assert_eq!((probes.during.start().0, probes.during.nanos()), (10 * at as u64, 10));
            assert_eq!(probes.calls[0].enqueued, *launches, "since it is watched");
            sum += probes.calls[0].asked.launches;
        }
    }
    assert_eq!(sum, 900);
}

#[test]
fn a_wait_that_goes_on_counts_with_its_part_so_far_and_never_twice() {
    let mut meter = Meter::default();
    let mut waits = Vec::new();
    // It waits from 12 on; at 30 the kernel has counted the 15 ns that it took.
    for (at, done, waiting) in [(10, 0, None), (20, 0, Some(12)), (30, 15, None), (40, 15, None)] {
        let mut task = thread(task::CALLER, at, Doings::default());
        if let Some(began) = waiting {
            (task.call, task.call_began) = (Call::StreamSync as u32, began);
        }
        let uses = vec![(UseKey { tgid: 7, slot: 0 }, counted(1, done))];
        let probes = meter.advance(&Reading { uses, tasks: vec![(8, task)], ..reading(at) }, &mut known());
        waits.extend(probes.map(|probes| probes.calls[0].asked.sync_wait));
    }
    assert_eq!(waits, [8, 7, 0]);
}

#[test]
fn a_sum_that_falls_gives_nothing_until_it_is_back() {
    let mut meter = Meter::default();
    let mut sums = Vec::new();
    // A wait counted as disk turns out to have been half without a CPU.
    for (at, disk, waited) in [(10, 0, 0), (20, 8, 0), (30, 4, 4), (40, 9, 4)] {
        let sum = doings(&[(doing::DISK_READ, disk), (doing::CPU_WAIT, waited)]);
        let tasks = vec![(8, thread(task::CALLER, at, sum))];
        let probes = meter.advance(&Reading { tasks, ..reading(at) }, &mut known());
        let part = |of: &Doings| (of[doing::DISK_READ as usize], of[doing::CPU_WAIT as usize]);
        sums.extend(probes.map(|probes| probes.threads.first().map_or((0, 0), |one| part(&one.callers))));
    }
    assert_eq!(sums, [(8, 0), (0, 4), (1, 0)]);
}

#[test]
fn a_thread_that_calls_for_the_first_time_takes_no_past_along() {
    let mut meter = Meter::default();
    let mut sums = Vec::new();
    for (at, flags) in [(10, 0), (20, 0), (30, task::CALLER), (40, task::CALLER)] {
        let sum = doings(&[(doing::LOCK, at)]);
        let tasks = vec![(8, thread(flags, at, sum))];
        let probes = meter.advance(&Reading { tasks, ..reading(at) }, &mut known());
        let lock = doing::LOCK as usize;
        sums.extend(probes.map(|probes| (probes.threads[0].callers[lock], probes.threads[0].others[lock])));
    }
    assert_eq!(sums, [(0, 10), (10, 0), (10, 0)]);
}

#[test]
fn the_last_time_of_threads_that_end_counts() {
    let mut meter = Meter::default();
    let cpu = |nanos| doings(&[(doing::CPU, nanos)]);
    let alive = |at, sum| Reading { tasks: vec![(8, thread(0, at, cpu(sum)))], ..reading(at) };
    assert_eq!(meter.advance(&alive(10, 3), &mut known()), None);
    assert_eq!(meter.advance(&alive(20, 9), &mut known()).unwrap().threads[0].others, cpu(6));
    let ended = |at| Reading { processes: vec![(7, record(0, cpu(0), cpu(11)))], ..reading(at) };
    // Until its last switch the kernel keeps its record.
    let ending = Reading { tasks: vec![(8, thread(task::ENDED, 30, cpu(11)))], ..ended(30) };
    assert_eq!(meter.advance(&ending, &mut known()).unwrap().threads[0].others, cpu(2));
    assert!(meter.advance(&ended(40), &mut known()).unwrap().threads.is_empty());
}

#[test]
fn gaps_keep_their_kinds_and_lengths_and_their_doings_sum_to_their_total() {
    let mut meter = Meter::default();
    let key = |kind, log2| GapKey { tgid: 7, slot: 0, kind, log2, reserved: 0 };
    let gap = |count, total, cpu| GapSum {
        count,
        total,
        ended: count,
        lasted: total,
        doings: doings(&[(doing::CPU, cpu)]),
    };
    let uses = || vec![(UseKey { tgid: 7, slot: 0 }, counted(1, 0))];
    let kinds = [gap::DRAINED, gap::ENQUEUE].map(|kind| u8::try_from(kind).unwrap());
    let first = vec![(key(kinds[0], 20), gap(1, 5, 5))];
    meter.advance(&Reading { uses: uses(), gaps: first, ..reading(10) }, &mut known());
    // Records that were read while they were written: one is behind itself, one ahead.
    let second = vec![(key(kinds[1], 9), gap(2, 7, 4)), (key(kinds[0], 20), gap(3, 12, 15))];
    let probes = meter.advance(&Reading { uses: uses(), gaps: second, ..reading(20) }, &mut known()).unwrap();
    let gaps = &probes.calls[0].gaps;
    let shape: Vec<_> = gaps.iter().map(|gap| (gap.kind, gap.log2, gap.count, gap.total)).collect();
    assert_eq!(shape, [(GapKind::Drained, 20, 2, 7), (GapKind::Enqueue, 9, 2, 7)]);
    for gap in gaps {
        assert_eq!(gap.doings.iter().sum::<u64>(), gap.total);
    }
}

#[test]
fn nothing_is_said_of_processes_that_are_not_watched_but_that_they_are_there() {
    let mut meter = Meter::default();
    for at in [10, 20] {
        let uses = vec![(UseKey { tgid: 7, slot: 0 }, counted(at, 0))];
        let probes =
            meter.advance(&Reading { uses, ..reading(at) }, &mut One { watched: false, refuses: false });
        let Some(probes) = probes else { continue };
        let calls = &probes.calls[0];
        assert_eq!((probes.calls.len(), calls.from_start, calls.last_call), (1, false, None));
        assert_eq!((calls.asked, calls.gaps.len(), calls.enqueued), (Asked::default(), 0, 1));
        assert!(calls.shed);
        assert!(probes.users.is_empty());
    }
}

#[test]
fn who_uses_a_driver_without_a_call_that_is_seen_is_told_and_whether_it_would_have_been() {
    let user =
        |watched| User { process: ProcessId { pid: HostPid(7), start: MonoNs(5) }, device: None, watched };
    let uses = || vec![(UseKey { tgid: 7, slot: 0 }, counted(3, 0))];
    let refuses = One { watched: false, refuses: true };
    for (mut names, uses, users) in [
        (refuses, uses(), vec![user(false)]),
        (known(), Vec::new(), vec![user(true)]),
        (known(), uses(), Vec::new()),
    ] {
        let mut meter = Meter::default();
        meter.advance(&reading(10), &mut names);
        let probes = meter.advance(&Reading { uses, ..reading(20) }, &mut names).unwrap();
        assert_eq!(probes.calls.is_empty(), !users.is_empty());
        assert_eq!(probes.users, users);
    }
}

#[test]
fn only_a_process_seen_from_its_first_call_is_known_from_its_start() {
    for (flags, from_start) in
        [(process::FROM_START, true), (process::FROM_START | process::LATE, false), (process::CALLER, false)]
    {
        let mut meter = Meter::default();
        let at = |at| Reading {
            uses: vec![(UseKey { tgid: 7, slot: UNKNOWN_SLOT }, counted(at, 0))],
            processes: vec![(7, record(flags, Doings::default(), Doings::default()))],
            ..reading(at)
        };
        meter.advance(&at(1), &mut known());
        let probes = meter.advance(&at(2), &mut known()).unwrap();
        assert_eq!((probes.calls[0].from_start, &probes.calls[0].device), (from_start, &None));
    }
}

#[test]
fn pairs_of_processes_that_the_kernel_has_forgotten_are_forgotten() {
    let mut meter = Meter::default();
    let pair = |sleeper, count| {
        let sum = WakeSum { count, doings: doings(&[(doing::CPU, 10 * count)]) };
        (WakeKey { sleeper, waker: 7 }, sum)
    };
    let mut reported = 0;
    for round in 0..40_u32 {
        let mut reading = reading(1000 + u64::from(round));
        // One that stays, and a thousand others each time.
        reading.waits.push(pair(7, u64::from(round) + 1));
        reading.waits.extend((0..1000).map(|at| pair(100 + 1000 * round + at, 1)));
        let probes = meter.advance(&reading, &mut known());
        let stays = |waits: &&Waits| waits.sleeper.pid == HostPid(7);
        reported +=
            probes.iter().flat_map(|probes| &probes.waits).filter(stays).map(Waits::total).sum::<u64>();
    }
    assert!(meter.waits.len() <= PAIRS, "{}", meter.waits.len());
    assert_eq!(reported, 390, "who stays counts once, from the second reading on");
}
