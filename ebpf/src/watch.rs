//! The loop of the process that probes.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use warpmeter_core::fact::{Fact, Health, Sample, Source};
use warpmeter_core::identity::{GpuId, MigId, PodUid, Scope};
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_ebpf_common::process;

use crate::discover::Processes;
use crate::governor::Governor;
use crate::kernel;
use crate::lately::Lately;
use crate::libraries::{Libraries, Wish};
use crate::meter::{Meter, Reading};
use crate::people::{Host, People};
use crate::programs::{LoadError, Programs};
use crate::shares::Shares;
use crate::tables::Tables;
use crate::words::whose;

mod health;

/// How often the memory maps of all processes are read.
const SCAN: u64 = 30 * SECOND;
/// How old a process is, at most, at each of its first looks: libraries are mapped a while after a start.
const LOOKS: [u64; 6] = [0, SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, 16 * SECOND];
/// For how long calls of a process are let alone, at least and at most: as long as it takes until the time in which they
/// were probed was no more than their share.
const SHED: [u64; 2] = [60 * SECOND, 600 * SECOND];
/// How long a process has had a GPU open before it is said that it maps no driver.
const HIDDEN: u64 = 5 * SECOND;

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
        shares: Shares::default(),
        lately: Lately::default(),
        scopes: HashSet::new(),
        seen: HashMap::new(),
        sheds: HashMap::new(),
        fresh: Vec::new(),
        ignored: HashSet::new(),
        hidden: Vec::new(),
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
        let health = watch.health(now);
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

/// What is left of a process that cost too much.
#[derive(Debug, Clone, Copy)]
struct Shed {
    wish: Wish,
    until: u64,
}

struct Watch<H> {
    processes: Processes,
    programs: Programs,
    tables: Tables,
    people: People<H>,
    libraries: Libraries,
    governor: Governor,
    meter: Meter,
    shares: Shares,
    lately: Lately,
    no_returns: Option<String>,
    /// Workloads of which a process uses a driver: all their processes are followed.
    scopes: HashSet<Scope>,
    /// Processes that have been looked at: when first, and how often.
    seen: HashMap<u32, (u64, usize)>,
    /// Processes that cost too much to be probed wholly: what is left, and until when.
    sheds: HashMap<u32, Shed>,
    /// Threads that are followed since the last round, with their processes: one may have ended just before.
    fresh: Vec<(u32, u32)>,
    /// Processes that the programs are told to let alone.
    ignored: HashSet<u32>,
    /// Processes that use a GPU and map no driver, in words.
    hidden: Vec<String>,
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
        self.confirm();
        self.find();
        match self.snapshot() {
            Ok(reading) => {
                let probes = self.meter.advance(&reading, &mut self.people);
                facts.extend(probes.map(|probes| Fact::Probes(Box::new(probes))));
                self.share(&reading);
                self.judge(&reading);
                self.bury(&reading);
                self.miss();
            }
            Err(error) => self.failed = Some(format!("read the kernel's maps: {error}")),
        }
    }

    /// Takes back what was said of threads that had ended before it was said: nobody else would.
    fn confirm(&mut self) {
        for (pid, thread) in std::mem::take(&mut self.fresh) {
            if !self.processes.runs(pid, thread)
                && let Err(error) = self.tables.untrack(thread)
            {
                self.failed = Some(format!("read the kernel's maps: {error}"));
            }
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
        let postponed = self.libraries.renew();
        let mut due = Vec::new();
        for pid in all {
            let (first, looks) = self.seen.entry(pid).or_insert((now, 0));
            let young = LOOKS.get(*looks).is_some_and(|age| now.saturating_sub(*first) >= *age);
            if postponed.contains(&pid) {
                due.push(pid);
            } else if scan || young {
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
            let workload = self.people.workload(*pid);
            let found = self.libraries.look(&self.processes, *pid, workload.as_ref());
            if found.late {
                late.push(*pid);
            }
            if found.uses {
                using.push(*pid);
            }
        }
        for pid in &late {
            self.note(|programs| programs.mark(*pid, process::LATE, 0));
        }
        for pid in &using {
            let scope = self.people.scope(*pid).filter(|scope| self.people.is_workload(scope));
            if scope.is_some_and(|scope| self.scopes.insert(scope)) {
                // Its other processes are looked at anew.
                self.scanned = None;
            }
        }
        for pid in pids {
            let own = using.contains(pid);
            let concerns = own
                || !self.scopes.is_empty()
                    && self.people.scope(*pid).is_some_and(|scope| self.scopes.contains(&scope));
            if concerns
                && !self.people.refuses(*pid)
                && !self.shares.is_crowded(self.people.workload(*pid).as_ref())
            {
                let threads = self.processes.threads(*pid).into_iter();
                let fresh = threads.filter(|thread| self.tables.track(*thread)).map(|thread| (*pid, thread));
                self.fresh.extend(fresh);
            }
        }
        self.settle();
    }

    fn note(&mut self, act: impl FnOnce(&mut Programs) -> Result<(), String>) {
        if let Err(error) = act(&mut self.programs) {
            self.failed = Some(format!("write the kernel's maps: {error}"));
        }
    }

    fn settle(&mut self) {
        let mut wishes = HashMap::new();
        for pid in self.libraries.users().collect::<HashSet<u32>>() {
            let workload = self.people.workload(pid);
            let wish = if self.people.refuses(pid) {
                Wish::Refused
            } else if self.shares.excludes(workload.as_ref()) {
                Wish::Nothing
            } else {
                self.sheds
                    .get(&pid)
                    .filter(|shed| shed.until > self.people.now)
                    .map_or(Wish::All, |shed| shed.wish)
            };
            let ignored = wish == Wish::Refused || self.shares.excludes(workload.as_ref());
            if ignored && self.ignored.insert(pid) {
                self.note(|programs| programs.mark(pid, process::IGNORED, 0));
            }
            wishes.insert(pid, (wish, workload));
        }
        self.ignored.retain(|pid| wishes.contains_key(pid));
        self.people.users = wishes.keys().copied().collect();
        let now = self.people.now;
        let shed = self.sheds.iter().filter(|(_, shed)| shed.until > now && shed.wish > Wish::NoQuestions);
        self.people.shed = shed.map(|(pid, _)| *pid).collect();
        let returns = self.no_returns.is_none();
        let wish = |pid: u32| wishes.get(&pid).cloned().unwrap_or((Wish::Refused, None));
        let settled = self.libraries.settle(&mut self.programs, &self.processes, returns, wish);
        let before = std::mem::replace(&mut self.people.unseen, settled.unseen);
        let unseen = &self.people.unseen;
        let lost: HashSet<u32> = unseen.difference(&before).copied().collect();
        let back = before.difference(unseen).filter(|pid| wishes.contains_key(pid));
        let back: HashSet<u32> = back.copied().chain(settled.renewed).collect();
        for pid in &back {
            // What it did meanwhile is not known, so it is one that was there before the probes.
            self.ignored.remove(pid);
            self.governor.forget(*pid);
            let clear = process::IGNORED | process::FROM_START;
            self.note(|programs| programs.mark(*pid, process::LATE, clear));
        }
        self.forget(&(&lost | &back));
    }

    /// Has gaps of these processes end unseen: nobody knows when they did.
    fn forget(&mut self, pids: &HashSet<u32>) {
        if pids.is_empty() {
            return;
        }
        match self.tables.used() {
            Ok(used) => {
                for key in used.into_iter().filter(|key| pids.contains(&key.tgid)) {
                    self.note(|programs| programs.forget(key.tgid, key.slot));
                }
            }
            Err(error) => self.failed = Some(format!("read the kernel's maps: {error}")),
        }
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

    /// Keeps one workload's threads from taking all the room.
    fn share(&mut self, reading: &Reading) {
        let people = &mut self.people;
        let surplus = self.shares.judge(&reading.tasks, |tgid| people.workload(tgid));
        for (tgid, record) in &reading.processes {
            let is = record.flags & process::CROWDED != 0;
            let wanted = self.shares.is_crowded(self.people.workload(*tgid).as_ref());
            if is != wanted {
                let (set, clear) = if wanted { (process::CROWDED, 0) } else { (0, process::CROWDED) };
                self.note(|programs| programs.mark(*tgid, set, clear));
            }
        }
        if !surplus.is_empty()
            && let Err(error) = self.tables.let_go(&surplus)
        {
            self.failed = Some(format!("clear the kernel's maps: {error}"));
        }
    }

    /// Lets calls of processes alone whose probes are too dear, and takes them up again after a while.
    fn judge(&mut self, reading: &Reading) {
        let now = reading.at;
        let elapsed = self.meter.elapsed();
        let mut changed = false;
        for (tgid, (calls, threads)) in self.governor.count(&reading.tasks, &reading.processes) {
            let dear = self.libraries.is_dear(tgid);
            let (wish, excess) = self.governor.judge(tgid, calls, threads, elapsed, dear);
            let shed = self.sheds.get(&tgid);
            let is = shed.filter(|shed| shed.until > now).map_or(Wish::All, |shed| shed.wish);
            if wish > is {
                let wait = excess.clamp(SHED[0], SHED[1]);
                self.sheds.insert(tgid, Shed { wish, until: now.saturating_add(wait) });
                changed = true;
            }
        }
        let before = now.saturating_sub(elapsed);
        changed |= self.sheds.values().any(|shed| (before..=now).contains(&shed.until));
        if changed {
            self.settle();
        }
    }

    /// Says of which processes that use a GPU no driver is seen: one whose file has another name by now.
    fn miss(&mut self) {
        let mut hidden = Vec::new();
        for pid in self.people.holders() {
            let old = self
                .seen
                .get(&pid)
                .is_some_and(|(first, looks)| *looks > 1 && self.people.now.saturating_sub(*first) > HIDDEN);
            if old && !self.libraries.knows(pid) && !self.people.refuses(pid) && self.processes.lives(pid) {
                hidden.push(whose(pid, self.people.workload(pid).as_ref()));
            }
        }
        self.hidden = hidden;
    }

    /// Forgets processes that have ended.
    fn bury(&mut self, reading: &Reading) {
        let scanned = self.scanned == Some(self.people.now);
        let ended: HashSet<u32> = reading
            .processes
            .iter()
            // The last thread of one may not have been followed.
            .filter(|(tgid, record)| {
                record.ended != 0 && record.ended < reading.at || scanned && !self.processes.lives(*tgid)
            })
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
        if scanned {
            let seen = &self.seen;
            self.people.keep(|pid| seen.contains_key(&pid));
        }
        self.libraries.bury(&self.processes);
        let people = &mut self.people;
        let live: HashSet<Scope> = self.libraries.users().filter_map(|pid| people.scope(pid)).collect();
        self.scopes.retain(|scope| live.contains(scope));
        let workloads: HashSet<Scope> =
            self.libraries.users().filter_map(|pid| people.workload(pid)).collect();
        self.shares.keep(|of| workloads.contains(of));
        self.settle();
    }
}

/// CLOCK_MONOTONIC.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    // It is never before boot.
    seconds.unwrap_or(0).saturating_mul(SECOND).saturating_add(nanos.unwrap_or(0))
}
