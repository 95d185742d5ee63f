//! From what the kernel has counted since ever to what happened between two snapshots.
//!
//! Sums are cumulative, so nothing is lost when a snapshot comes late. What a sum had reached is remembered as the
//! most that it ever was: one that falls a little, because a wait that was cut by a snapshot turns out to have been
//! another, gives nothing until it has come back to where it was.

use std::collections::{BTreeMap, HashMap, HashSet};

use warpmeter_core::fact::DeviceRef;
use warpmeter_core::identity::{ProcessId, Scope};
use warpmeter_core::probe::{Asked, Calls, Doings, Gap, GapKind, Probes, Threads, User, Waits};
use warpmeter_core::time::{Interval, MonoNs};
use warpmeter_ebpf_common::calls::Call;
use warpmeter_ebpf_common::{
    GapKey, GapSum, Process, Task, UNKNOWN_SLOT, Use, UseKey, WakeKey, WakeSum, copies, doing, gap, process,
    task,
};

use crate::sys::zero;

/// The most processes whose calls are reported in one snapshot, and of those that use a driver without any.
pub(crate) const PROCESSES: usize = 4096;

/// Of so many pairs of processes that wait for one another the last sums are remembered: twice as many as the kernel
/// keeps.
const PAIRS: usize = 16_384;

const _: () = assert!(doing::COUNT == warpmeter_core::probe::Doing::COUNT);

/// What the kernel's maps held at one time.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// When: nanoseconds of CLOCK_MONOTONIC.
    pub at: u64,
    pub uses: Vec<(UseKey, Use)>,
    pub gaps: Vec<(GapKey, GapSum)>,
    pub tasks: Vec<(u32, Task)>,
    pub processes: Vec<(u32, Process)>,
    /// Whether wake-ups are followed.
    pub wakes: bool,
    pub waits: Vec<(WakeKey, WakeSum)>,
}

/// Who processes are and what their devices are.
pub(crate) trait Names {
    /// The process that has this id, and whose it is.
    fn process(&mut self, tgid: u32, record: &Process) -> Option<(ProcessId, Scope)>;
    /// The device that a process calls by this ordinal.
    fn device(&mut self, tgid: u32, slot: Option<u32>) -> Option<DeviceRef>;
    /// Whether what it calls can be believed: not if its probes were shed.
    fn is_watched(&self, tgid: u32) -> bool;
    /// Whether it is not watched because that would cost it too much.
    fn is_shed(&self, tgid: u32) -> bool;
    /// Processes that use a driver and are not watched, although they do not refuse it.
    fn unwatched(&mut self) -> Vec<u32>;
    /// Processes that use a driver, whether they are watched or not.
    fn users(&self) -> Vec<u32>;
}

/// The most that a sum ever was.
#[derive(Debug, Clone, Copy, Default)]
struct Mark(u64);

impl Mark {
    /// How much further it has come.
    fn advance(&mut self, to: u64) -> u64 {
        let more = to.saturating_sub(self.0);
        self.0 = self.0.max(to);
        more
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct UseMarks {
    launches: Mark,
    graph_launches: Mark,
    to_device: Mark,
    to_host: Mark,
    other: Mark,
    copy_wait: Mark,
    copies_most: Mark,
    copies_least: Mark,
    sync_wait: Mark,
}

#[derive(Debug, Clone, Copy, Default)]
struct WaitMarks {
    count: Mark,
    doings: [Mark; doing::COUNT],
}

#[derive(Debug, Clone, Copy, Default)]
struct GapMarks {
    count: Mark,
    total: Mark,
    ended: Mark,
    lasted: Mark,
    doings: [Mark; doing::COUNT],
}

/// What the threads of a process had done.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadMarks {
    callers: [Mark; doing::COUNT],
    others: [Mark; doing::COUNT],
    /// What threads did before they first called the driver, which was reported as that of others.
    before: Doings,
}

/// The state between two snapshots.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    last: Option<u64>,
    elapsed: u64,
    uses: HashMap<(u32, u32), UseMarks>,
    gaps: HashMap<(u32, u8, u8, u8), GapMarks>,
    threads: HashMap<u32, ThreadMarks>,
    waits: HashMap<(u32, u32), WaitMarks>,
    /// Threads that had not called the driver: their processes and what they had done.
    quiet: HashMap<u32, (u32, Doings)>,
}

impl Meter {
    /// What happened since the last reading; nothing for the first one.
    pub(crate) fn advance(&mut self, reading: &Reading, names: &mut impl Names) -> Option<Probes> {
        let during = self.last.and_then(|last| Interval::new(MonoNs(last), MonoNs(reading.at)));
        self.elapsed = during.map_or(0, Interval::nanos);
        self.last = Some(reading.at);
        let calls = self.calls(reading, names);
        let users = users(reading, &calls, names);
        let threads = self.threads(reading, names);
        let waits = self.waits(reading, names);
        let (sampled, followed) = (Vec::new(), reading.wakes);
        Some(Probes { during: during?, calls, threads, sampled, followed, waits, users })
    }

    /// Nanoseconds between the last two readings; 0 before the second.
    pub(crate) fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget(&mut self, tgid: u32) {
        self.uses.retain(|(process, _), _| *process != tgid);
        self.gaps.retain(|(process, ..), _| *process != tgid);
        self.threads.remove(&tgid);
        self.waits.retain(|(sleeper, waker), _| *sleeper != tgid && *waker != tgid);
        self.quiet.retain(|_, (process, _)| *process != tgid);
    }

    fn calls(&mut self, reading: &Reading, names: &mut impl Names) -> Vec<Calls> {
        let waits = open_waits(reading);
        let records: HashMap<u32, &Process> =
            reading.processes.iter().map(|(tgid, record)| (*tgid, record)).collect();
        let mut found: BTreeMap<(ProcessId, Option<DeviceRef>), Calls> = BTreeMap::new();
        let mut places: HashMap<(u32, u32), (ProcessId, Option<DeviceRef>)> = HashMap::new();
        for (key, counted) in &reading.uses {
            let marks = self.uses.entry((key.tgid, key.slot)).or_default();
            let open = waits.get(&(key.tgid, key.slot)).copied().unwrap_or_default();
            let asked = Asked {
                launches: marks.launches.advance(counted.launches),
                graph_launches: marks.graph_launches.advance(counted.graph_launches),
                bytes_to_device: marks.to_device.advance(counted.bytes_to_device),
                bytes_to_host: marks.to_host.advance(counted.bytes_to_host),
                bytes_other: marks.other.advance(counted.bytes_other),
                copy_wait: marks.copy_wait.advance(counted.copy_wait.saturating_add(open.copying)),
                copies_most: marks.copies_most.advance(counted.copies_most.saturating_add(open.most)),
                copies_least: marks.copies_least.advance(counted.copies_least.saturating_add(open.least)),
                sync_wait: marks.sync_wait.advance(counted.sync_wait.saturating_add(open.syncing)),
            };
            let Some(record) = records.get(&key.tgid) else { continue };
            if !names.is_watched(key.tgid) || found.len() >= PROCESSES {
                continue;
            }
            let Some((process, _)) = names.process(key.tgid, record) else { continue };
            let device = names.device(key.tgid, (key.slot != UNKNOWN_SLOT).then_some(key.slot));
            let place = (process, device.clone());
            places.insert((key.tgid, key.slot), place.clone());
            let calls = found.entry(place).or_insert_with(|| Calls {
                process,
                device,
                from_start: record.flags & (process::FROM_START | process::LATE) == process::FROM_START,
                shed: false,
                enqueued: 0,
                last_call: None,
                asked: Asked::default(),
                gaps: Vec::new(),
            });
            let last_call = (counted.last_call > 0).then_some(MonoNs(counted.last_call));
            calls.last_call = calls.last_call.max(last_call);
            calls.enqueued = calls.enqueued.saturating_add(counted.enqueued);
            calls.asked.add(&asked);
        }
        self.gaps(reading, &places, &mut found);
        unwatched(&records, names, &mut found);
        found.into_values().collect()
    }

    fn gaps(
        &mut self,
        reading: &Reading,
        places: &HashMap<(u32, u32), (ProcessId, Option<DeviceRef>)>,
        found: &mut BTreeMap<(ProcessId, Option<DeviceRef>), Calls>,
    ) {
        for (key, sum) in &reading.gaps {
            let marks = self.gaps.entry((key.tgid, key.slot, key.kind, key.log2)).or_default();
            let count = marks.count.advance(sum.count);
            let total = marks.total.advance(sum.total);
            let ended = marks.ended.advance(sum.ended);
            let lasted = marks.lasted.advance(sum.lasted);
            let mut doings = advance(&mut marks.doings, &sum.doings);
            if count == 0 && total == 0 && ended == 0 && lasted == 0 {
                continue;
            }
            balance(&mut doings, total);
            let slot = if key.slot == u8::MAX { UNKNOWN_SLOT } else { u32::from(key.slot) };
            let place = places.get(&(key.tgid, slot)).and_then(|place| found.get_mut(place));
            if let (Some(calls), Some(kind)) = (place, kind(key.kind)) {
                add(&mut calls.gaps, Gap { kind, log2: key.log2, count, total, ended, lasted, doings });
            }
        }
        for calls in found.values_mut() {
            calls.gaps.sort_unstable();
        }
    }

    fn waits(&mut self, reading: &Reading, names: &mut impl Names) -> Vec<Waits> {
        let records: HashMap<u32, &Process> =
            reading.processes.iter().map(|(tgid, record)| (*tgid, record)).collect();
        let mut found = Vec::new();
        for (key, sum) in &reading.waits {
            let marks = self.waits.entry((key.sleeper, key.waker)).or_default();
            let count = marks.count.advance(sum.count);
            let doings = advance(&mut marks.doings, &sum.doings);
            if count == 0 {
                continue;
            }
            let mut name = |tgid: u32| names.process(tgid, records.get(&tgid)?);
            if let (Some((sleeper, _)), Some((waker, _))) = (name(key.sleeper), name(key.waker)) {
                found.push(Waits { sleeper, waker, count, doings });
            }
        }
        found.sort_unstable();
        if self.waits.len() > PAIRS {
            // The kernel keeps the pairs that woke each other last, and forgets the others: so do we.
            let kept: HashSet<(u32, u32)> =
                reading.waits.iter().map(|(key, _)| (key.sleeper, key.waker)).collect();
            self.waits.retain(|pair, _| kept.contains(pair));
        }
        found
    }

    fn threads(&mut self, reading: &Reading, names: &mut impl Names) -> Vec<Threads> {
        let mut sums: HashMap<u32, (Doings, Doings)> = HashMap::new();
        for (tgid, record) in &reading.processes {
            sums.insert(*tgid, (record.callers, record.others));
        }
        let mut quiet = HashMap::new();
        for (tid, record) in reading.tasks.iter().filter(|(_, record)| !record.has_ended()) {
            let (callers, others) = sums.entry(record.tgid).or_default();
            let (done, _) = record.at(reading.at, reading.wakes);
            if record.flags & task::CALLER == 0 {
                plus(others, &done);
                quiet.insert(*tid, (record.tgid, done));
                continue;
            }
            plus(callers, &done);
            if let Some((tgid, before)) = self.quiet.get(tid)
                && *tgid == record.tgid
            {
                plus(&mut self.threads.entry(record.tgid).or_default().before, before);
            }
        }
        self.quiet = quiet;
        let mut found: BTreeMap<Scope, (Doings, Doings)> = BTreeMap::new();
        for (tgid, record) in &reading.processes {
            let Some((mut callers, mut others)) = sums.remove(tgid) else { continue };
            let marks = self.threads.entry(*tgid).or_default();
            minus(&mut callers, &marks.before);
            plus(&mut others, &marks.before);
            let callers = advance(&mut marks.callers, &callers);
            let others = advance(&mut marks.others, &others);
            if callers.iter().chain(&others).all(|nanos| *nanos == 0) {
                continue;
            }
            let Some((_, scope)) = names.process(*tgid, record) else { continue };
            let place = found.entry(scope).or_default();
            plus(&mut place.0, &callers);
            plus(&mut place.1, &others);
        }
        found.into_iter().map(|(scope, (callers, others))| Threads { scope, callers, others }).collect()
    }
}

/// Processes that call unseen: that there are such is known, and nothing else.
fn unwatched(
    records: &HashMap<u32, &Process>,
    names: &mut impl Names,
    found: &mut BTreeMap<(ProcessId, Option<DeviceRef>), Calls>,
) {
    let unseen: Process = zero();
    for tgid in names.unwatched() {
        let record = records.get(&tgid).copied().unwrap_or(&unseen);
        let Some((process, _)) = names.process(tgid, record) else { continue };
        if found.len() >= PROCESSES {
            return;
        }
        let device = names.device(tgid, None);
        found.entry((process, device.clone())).or_insert(Calls {
            process,
            device,
            from_start: false,
            shed: names.is_shed(tgid),
            enqueued: 1,
            last_call: None,
            asked: Asked::default(),
            gaps: Vec::new(),
        });
    }
}

/// Processes that use a driver and have no calls: those that have made none yet, and those that refuse to be watched.
fn users(reading: &Reading, calls: &[Calls], names: &mut impl Names) -> Vec<User> {
    let records: HashMap<u32, &Process> =
        reading.processes.iter().map(|(tgid, record)| (*tgid, record)).collect();
    let told: HashSet<u32> = calls.iter().map(|calls| calls.process.pid.0).collect();
    let unseen: Process = zero();
    let mut found = Vec::new();
    for tgid in names.users().into_iter().filter(|tgid| !told.contains(tgid)).take(PROCESSES) {
        let record = records.get(&tgid).copied().unwrap_or(&unseen);
        if let Some((process, _)) = names.process(tgid, record) {
            found.push(User { process, device: names.device(tgid, None), watched: names.is_watched(tgid) });
        }
    }
    found.sort_unstable();
    found
}

/// Calls of a process on a device that go on, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// How long threads have been in copies.
    copying: u64,
    /// The most of it that the copies themselves can have taken.
    most: u64,
    /// What they took in any case.
    least: u64,
    /// How long threads have been in synchronising calls.
    syncing: u64,
}

/// By process and slot.
fn open_waits(reading: &Reading) -> HashMap<(u32, u32), Open> {
    let mut waits: HashMap<(u32, u32), Open> = HashMap::new();
    for (_, record) in &reading.tasks {
        let lasts = || reading.at.saturating_sub(record.call_began);
        let open = waits.entry((record.tgid, record.slot)).or_default();
        if [Call::BlockingCopy, Call::Copy].map(|call| call as u32).contains(&record.call) {
            open.copying = open.copying.saturating_add(lasts());
            open.most = open.most.saturating_add(copies::most(lasts(), record.argument));
            open.least = open.least.saturating_add(copies::least(lasts(), record.argument));
        } else if [Call::StreamSync, Call::ContextSync, Call::EventSync]
            .map(|call| call as u32)
            .contains(&record.call)
        {
            open.syncing = open.syncing.saturating_add(lasts());
        }
    }
    waits
}

fn kind(kind: u8) -> Option<GapKind> {
    match u64::from(kind) {
        gap::DRAINED => Some(GapKind::Drained),
        gap::ENQUEUE => Some(GapKind::Enqueue),
        gap::SYNC => Some(GapKind::Sync),
        _ => None,
    }
}

/// Makes `doings` sum to `total`: a record that was read while it was written may be ahead of itself by a gap.
fn balance(doings: &mut Doings, total: u64) {
    let sum: u64 = doings.iter().fold(0, |sum, nanos| sum.saturating_add(*nanos));
    let mut over = sum.saturating_sub(total);
    if let Some(unknown) = doings.last_mut() {
        *unknown = unknown.saturating_add(total.saturating_sub(sum));
    }
    for nanos in doings.iter_mut().rev() {
        let less = over.min(*nanos);
        *nanos -= less;
        over -= less;
    }
}

/// Adds a gap to those of one device: several contexts of a process can be on it.
fn add(gaps: &mut Vec<Gap>, more: Gap) {
    if let Some(gap) = gaps.iter_mut().find(|gap| (gap.kind, gap.log2) == (more.kind, more.log2)) {
        gap.count = gap.count.saturating_add(more.count);
        gap.total = gap.total.saturating_add(more.total);
        gap.ended = gap.ended.saturating_add(more.ended);
        gap.lasted = gap.lasted.saturating_add(more.lasted);
        plus(&mut gap.doings, &more.doings);
    } else {
        gaps.push(more);
    }
}

fn advance(marks: &mut [Mark; doing::COUNT], to: &Doings) -> Doings {
    let mut more = Doings::default();
    for ((more, mark), to) in more.iter_mut().zip(marks).zip(to) {
        *more = mark.advance(*to);
    }
    more
}

fn plus(sum: &mut Doings, more: &Doings) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

fn minus(sum: &mut Doings, less: &Doings) {
    for (sum, less) in sum.iter_mut().zip(less) {
        *sum = sum.saturating_sub(*less);
    }
}

#[cfg(test)]
mod tests;
