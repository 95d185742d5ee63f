//! The loop of the process that probes.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use warpmeter_core::fact::{Fact, Health, HealthState, Sample, Source};
use warpmeter_core::identity::{GpuId, MigId, PodUid, Scope};
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_ebpf_common::{process, task};

use crate::discover::Processes;
use crate::governor::Governor;
use crate::kernel;
use crate::libraries::{Libraries, Wish};
use crate::meter::{Meter, Reading};
use crate::people::{Host, People};
use crate::programs::{Attach, Flavour, LoadError, Programs};
use crate::tables::Tables;

/// How often the memory maps of all processes are read.
const SCAN: u64 = 30 * SECOND;
/// How old a process is, at most, at each of its first looks: libraries are mapped a while after a start.
const LOOKS: [u64; 6] = [0, SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, 16 * SECOND];
/// For how long frequent calls of a process are let alone at first; doubled each time, up to an hour.
const SHED: u64 = 60 * SECOND;
/// The most problems that are named.
const NAMED: usize = 3;

/// What is watched, and how often told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The root of the host's process file system.
    pub proc: PathBuf,
    /// Nanoseconds between snapshots, which are taken on multiples of it.
    pub period: u64,
}

/// What the daemon knows and the kernel does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// These processes use a GPU: look at them now.
    Look(Vec<u32>),
    /// These processes, and no others, have this GPU open.
    Holders(GpuId, Vec<u32>),
    /// The MIG instances of the node.
    Instances(Vec<MigId>),
    /// These pods, and no others, want no probes.
    Refusals(Vec<PodUid>),
}

/// Watches until `report` breaks or nobody gives orders any more. Fails only at the start.
pub fn run(
    options: &Options,
    host: impl Host,
    orders: &Receiver<Order>,
    report: &mut dyn FnMut(Sample) -> ControlFlow<()>,
) -> Result<(), LoadError> {
    let no_returns = kernel::returns_are_unsafe();
    let mut programs = Programs::load(no_returns.is_none())?;
    if let Err(why) = &programs.calls {
        return Err(LoadError::Calls(why.clone()));
    }
    let tables = Tables::take(&mut programs)?;
    let mut watch = Watch {
        processes: Processes::new(&options.proc),
        programs,
        tables,
        people: People::new(host),
        libraries: Libraries::default(),
        governor: Governor::default(),
        meter: Meter::default(),
        no_returns,
        scopes: HashSet::new(),
        seen: HashMap::new(),
        sheds: HashMap::new(),
        scanned: None,
        looked: 0,
        failed: None,
        proc: options.proc.clone(),
    };
    let period = options.period.max(SECOND / 100);
    let mut told: Option<Health> = None;
    let mut next = 0;
    loop {
        let now = now();
        if now < next {
            match orders.recv_timeout(Duration::from_nanos(next - now)) {
                Ok(order) => watch.obey(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            continue;
        }
        // On the grid, so that snapshots of all sources nearly coincide; what was missed is not made up for.
        next = (now / period + 1) * period;
        let mut facts = Vec::new();
        watch.round(&mut facts);
        let health = watch.health();
        if told.as_ref() != Some(&health) {
            told = Some(health.clone());
            facts.push(Fact::Health(health));
        }
        facts.push(Fact::Poll { took: self::now().saturating_sub(now), answered: true });
        let at = MonoNs(self::now());
        for fact in facts {
            if report(Sample { at, source: Source::Probes, fact }).is_break() {
                return Ok(());
            }
        }
    }
}

struct Watch<H> {
    processes: Processes,
    programs: Programs,
    tables: Tables,
    people: People<H>,
    libraries: Libraries,
    governor: Governor,
    meter: Meter,
    no_returns: Option<String>,
    /// Workloads of which a process uses a driver: all their processes are followed.
    scopes: HashSet<Scope>,
    /// Processes that have been looked at: when first, and how often.
    seen: HashMap<u32, (u64, usize)>,
    /// Processes whose frequent calls were let alone: until when, and for how long the last time.
    sheds: HashMap<u32, (u64, u64)>,
    scanned: Option<u64>,
    looked: u64,
    /// What went wrong in the last round.
    failed: Option<String>,
    proc: PathBuf,
}

impl<H: Host> Watch<H> {
    fn obey(&mut self, order: Order) {
        self.people.now = now();
        match order {
            Order::Look(pids) => self.look_at(&pids),
            Order::Holders(gpu, pids) => {
                self.look_at(&pids);
                self.people.hold(gpu, pids);
            }
            Order::Instances(instances) => self.people.set_instances(&instances),
            Order::Refusals(pods) => {
                if self.people.refuse(pods) {
                    self.settle();
                }
            }
        }
    }

    fn round(&mut self, facts: &mut Vec<Fact>) {
        self.people.now = now();
        self.failed = None;
        self.find();
        match self.snapshot() {
            Ok(reading) => {
                let probes = self.meter.advance(&reading, &mut self.people);
                facts.extend(probes.map(|probes| Fact::Probes(Box::new(probes))));
                self.judge(&reading);
                self.bury(&reading);
            }
            Err(error) => self.failed = Some(format!("read the kernel's maps: {error}")),
        }
    }

    /// Looks for processes that use a driver: all of them now and then, new ones while they are young.
    fn find(&mut self) {
        let now = self.people.now;
        let all = match self.processes.all() {
            Ok(all) => all,
            Err(error) => {
                self.failed = Some(format!("list {}: {error}", self.proc.display()));
                return;
            }
        };
        let scan = self.scanned.is_none_or(|scanned| now.saturating_sub(scanned) >= SCAN);
        if scan {
            self.scanned = Some(now);
            let alive: HashSet<u32> = all.iter().copied().collect();
            self.seen.retain(|pid, _| alive.contains(pid));
        }
        let mut due = Vec::new();
        for pid in all {
            let (first, looks) = self.seen.entry(pid).or_insert((now, 0));
            let young = LOOKS.get(*looks).is_some_and(|age| now.saturating_sub(*first) >= *age);
            if scan || young {
                *looks = if scan && self.looked == 0 { LOOKS.len() } else { *looks + 1 };
                due.push(pid);
            }
        }
        self.looked += 1;
        self.look_at(&due);
    }

    fn look_at(&mut self, pids: &[u32]) {
        let mut late = Vec::new();
        let mut using = Vec::new();
        for pid in pids {
            let found = self.libraries.look(&self.processes, *pid);
            if found.late {
                late.push(*pid);
            }
            if found.uses {
                using.push(*pid);
            }
        }
        for pid in &late {
            self.note(|tables| tables.mark(*pid, process::LATE));
        }
        for pid in &using {
            let scope = self.people.scope(*pid).filter(|scope| self.people.is_workload(scope));
            if scope.is_some_and(|scope| self.scopes.insert(scope)) {
                // Its other processes are looked at anew.
                self.scanned = None;
            }
        }
        let mut threads = Vec::new();
        for pid in pids {
            let own = using.contains(pid);
            let concerns = own
                || !self.scopes.is_empty()
                    && self.people.scope(*pid).is_some_and(|scope| self.scopes.contains(&scope));
            if concerns {
                threads.extend(self.processes.threads(*pid));
            }
        }
        if !threads.is_empty() {
            self.note(|tables| tables.track(&threads));
        }
        self.settle();
    }

    fn note(&mut self, act: impl FnOnce(&mut Tables) -> Result<(), String>) {
        if let Err(error) = act(&mut self.tables) {
            self.failed = Some(format!("write the kernel's maps: {error}"));
        }
    }

    fn settle(&mut self) {
        let mut wishes = HashMap::new();
        for pid in self.libraries.users().collect::<Vec<_>>() {
            let wish = if self.people.refuses(pid) {
                self.note(|tables| tables.mark(pid, process::IGNORED));
                Wish::Nothing
            } else if self.people.shed.contains(&pid) {
                Wish::Few
            } else {
                Wish::All
            };
            wishes.insert(pid, wish);
        }
        let returns = self.no_returns.is_none();
        let wish = |pid: u32| wishes.get(&pid).copied().unwrap_or(Wish::Nothing);
        let by_process = self.programs.by_process;
        self.libraries.settle(&mut self.programs, &self.processes, returns, by_process, wish);
    }

    fn snapshot(&mut self) -> std::io::Result<Reading> {
        let at = now();
        self.tables.cut(at)?;
        if self.programs.flush.is_ok() {
            let ended = self.tables.ended()?;
            for key in self.tables.used()? {
                // Nobody's gap goes on when its process has ended.
                let until = ended.get(&key.tgid).map_or(at, |ended| at.min(*ended));
                if let Err(error) = self.programs.flush(key.tgid, key.slot, until) {
                    self.failed = Some(format!("close open gaps: {error}"));
                }
            }
        }
        let reading = self.tables.read(at, self.programs.wakes.is_ok())?;
        for (key, uuid) in self.tables.uuids()? {
            self.people.learn(key.tgid, key.ordinal, uuid);
        }
        Ok(reading)
    }

    /// Lets frequent calls of processes alone for which they are too dear, and takes them up again after a while.
    fn judge(&mut self, reading: &Reading) {
        let now = reading.at;
        let mut changed = false;
        let mut enqueued: HashMap<u32, u64> = HashMap::new();
        for (key, counted) in &reading.uses {
            let sum = enqueued.entry(key.tgid).or_default();
            *sum = sum.saturating_add(counted.enqueued);
        }
        let before = now.saturating_sub(SECOND);
        let mut threads: HashMap<u32, u64> = HashMap::new();
        for (_, record) in &reading.tasks {
            if record.flags & task::CALLER != 0 && record.mark > before {
                *threads.entry(record.tgid).or_default() += 1;
            }
        }
        for (tgid, enqueued) in enqueued {
            let threads = threads.get(&tgid).copied().unwrap_or(1);
            let dear = self.libraries.is_dear(tgid);
            let elapsed = self.meter.elapsed();
            if !self.people.shed.contains(&tgid)
                && self.governor.sheds(tgid, enqueued, threads, elapsed, dear)
            {
                let wait = self.sheds.get(&tgid).map_or(SHED, |(_, wait)| (wait * 2).min(3600 * SECOND));
                self.sheds.insert(tgid, (now.saturating_add(wait), wait));
                self.people.shed.insert(tgid);
                changed = true;
            }
        }
        let over: Vec<u32> = self
            .people
            .shed
            .iter()
            .filter(|tgid| self.sheds.get(tgid).is_none_or(|(until, _)| *until <= now))
            .copied()
            .collect();
        for tgid in over {
            // What it did meanwhile is not known, so it is one that was there before the probes.
            self.people.shed.remove(&tgid);
            self.governor.forget(tgid);
            self.note(|tables| tables.heed(tgid));
            changed = true;
        }
        if changed {
            self.settle();
        }
    }

    /// Forgets processes that have ended.
    fn bury(&mut self, reading: &Reading) {
        let ended: HashSet<u32> = reading
            .processes
            .iter()
            .filter(|(_, record)| record.ended != 0 && record.ended < reading.at)
            .map(|(tgid, _)| *tgid)
            .collect();
        if !ended.is_empty() {
            if let Err(error) = self.tables.remove(&ended) {
                self.failed = Some(format!("clear the kernel's maps: {error}"));
            }
            for tgid in &ended {
                self.meter.forget(*tgid);
                self.people.forget(*tgid);
                self.governor.forget(*tgid);
                self.sheds.remove(tgid);
                self.seen.remove(tgid);
            }
        }
        if self.scanned == Some(self.people.now) {
            let seen = &self.seen;
            self.people.keep(|pid| seen.contains_key(&pid));
        }
        self.libraries.bury(&self.processes);
        let people = &mut self.people;
        let live: HashSet<Scope> = self.libraries.users().filter_map(|pid| people.scope(pid)).collect();
        self.scopes.retain(|scope| live.contains(scope));
        self.settle();
    }

    fn health(&self) -> Health {
        let mut reasons = Vec::new();
        let mut blind = false;
        match &self.programs.calls {
            Ok(Attach::Multi | Attach::Single) => {}
            Err(why) => {
                blind = true;
                reasons.push(format!("CUDA calls are not probed: {why}"));
            }
        }
        match &self.programs.switches {
            Ok(Flavour::Fast | Flavour::Stack) => {}
            Err(why) => {
                reasons.push(format!("switches are not followed, so causes of gaps are unknown: {why}"));
            }
        }
        if let (Ok(_), Err(why)) = (&self.programs.switches, &self.programs.wakes) {
            reasons.push(format!(
                "wake-ups are not followed, so waits for other threads are divided by what all of them did: {why}"
            ));
        }
        if let Err(why) = &self.programs.flush {
            reasons.push(format!("gaps that go on are reported when they end: {why}"));
        }
        reasons.extend(self.no_returns.clone());
        let problems = self.libraries.problems();
        let more = problems.len().saturating_sub(NAMED);
        reasons.extend(problems.into_iter().take(NAMED));
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        if !self.people.shed.is_empty() {
            reasons.push(format!(
                "{} processes launch so often that probes would take more than 1 % of their threads' time; their \
                 calls are not probed for a while",
                self.people.shed.len()
            ));
        }
        let drops = self.tables.drops();
        if !drops.is_empty() {
            let names: Vec<&str> = drops.iter().map(|(name, _)| *name).collect();
            reasons.push(format!("full or contended, so that something was left out: {}", names.join(", ")));
        }
        reasons.extend(self.failed.clone());
        let state = match (blind, reasons.is_empty()) {
            (true, _) => HealthState::Down,
            (false, true) => HealthState::Up,
            (false, false) => HealthState::Degraded,
        };
        Health { state, reason: reasons.join("; ") }
    }
}

/// CLOCK_MONOTONIC.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    // It is never before boot.
    seconds.unwrap_or(0).saturating_mul(SECOND).saturating_add(nanos.unwrap_or(0))
}
