//! Why a device stood still: the time that an owner held and did not use, by cause.
//!
//! The probes give gaps between an owner's calls, with what its threads did in them. What is certain is taken first: a
//! drained device stands still for as long as nothing is enqueued; in a synchronising call work is outstanding. Gaps
//! between two enqueues hide a backlog that the device still worked off; it is taken to be the same for every gap, and
//! the least that fits the time that the device stood still (water-filling). What no gap explains is unknown.
//!
//! Samples of threads show no calls, so any of what a thread did may have been while the device worked. Only what
//! exceeds the time that the device worked, and the standard error of so many samples, is claimed.

mod queue;

use std::collections::BTreeMap;

use crate::habit::Habit;
use crate::probe::{Doing, Doings, Gap, GapKind};
use crate::split::Split;
use crate::state::State;

/// Gaps shorter than this between small kernels are the cost of launching, whatever the thread did in them.
pub const LAUNCH_GAP: u64 = 50_000;

/// Snapshots and windows end at about the same time, not at the same: up to this part of a stretch may be another's.
const BOUNDARIES: u64 = 50;

/// Of gaps together, up to this part may be missing for that reason.
const MISSING: u64 = 10;

/// What the probes saw of one owner on one device over one stretch, in nanoseconds of the node's time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// Gaps of all its processes. Parts of gaps that began earlier have a count of 0.
    pub gaps: Vec<Gap>,
    /// How long the process that waited longest in synchronising calls did so. Of several processes one may wait while
    /// another's work runs, so that the sum of their waits says nothing.
    pub waited: u64,
    /// Time that copies took or are taken to have taken.
    pub copies: u64,
    /// Of the time in copies that were waited for, what the copies themselves took in any case; the rest may have been
    /// waiting for kernels before them.
    pub copying: u64,
    /// Whether only one process of the owner used the device: then what is drained stands still for certain.
    pub alone: bool,
    /// What the owner's threads did that call no CUDA driver: who feeds those that do.
    pub feeders: Doings,
    /// What waits of its processes' threads for others were found to be, as far as they ended.
    pub passed: Doings,
    /// What the owner's process did as far as samples of its threads show it, where nothing shows its gaps.
    pub sampled: Doings,
    /// How many samples those were.
    pub samples: u64,
    /// Whether wake-ups were followed: then waits for locks have been passed on already, each to what its waker did.
    pub followed: bool,
    /// What the owner's threads that call the driver did outside of it. Where calls are let alone, in it too.
    pub callers: Doings,
    /// Whether calls of any of its processes were let alone because they were too many.
    pub shed: bool,
    /// What its lost time is taken to be made of, if they were and that is known.
    pub habit: Option<Habit>,
}

/// How long a device ran and stood still over one stretch, in nanoseconds of the node's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Still {
    /// Length of the stretch.
    pub whole: u64,
    /// Time that the owner's work ran.
    pub used: u64,
    /// Time that other owners' work ran.
    pub others: u64,
}

/// The causes of the time of a stretch that the owner did not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Causes {
    /// Amounts by state, in their order; they sum to `whole − used`.
    pub amounts: BTreeMap<State, u64>,
    /// The same by the rule that found them.
    pub rules: BTreeMap<(State, Rule), u64>,
    /// Whether the device ran for longer than its gaps leave time, by more than their boundaries explain: a signal is
    /// wrong. The gaps are scaled down in any case.
    pub contradicted: bool,
}

/// What an amount was found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Gaps in which the device had nothing of the owner's to do.
    Drained,
    /// Synchronising calls in which the device did not run for the owner.
    Waiting,
    /// Gaps between enqueues, less the backlog that they may have hidden.
    Open,
    /// Waits for other threads that went on when the second ended: what those were that ended in it.
    Alike,
    /// Waits for other threads whose end was not seen, and that none is like: what the owner's other threads did.
    Feeders,
    /// Samples of threads.
    Samples,
    /// What was found when its calls were seen last, since they are too many to be seen all the time.
    Habit,
    /// Nothing: what no gap explains.
    Rest,
}

impl Rule {
    /// A name for people and for JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Waiting => "waiting",
            Self::Open => "open",
            Self::Alike => "alike",
            Self::Feeders => "feeders",
            Self::Samples => "samples",
            Self::Habit => "habit",
            Self::Rest => "rest",
        }
    }
}

/// Waits for other threads that nothing has explained yet.
#[derive(Debug, Default)]
struct Others {
    lock: u64,
    poll: u64,
    /// See [`Host::followed`]: then there are none for locks.
    followed: bool,
}

/// Finds the causes of the time that the owner did not use.
pub fn causes(still: Still, host: &Host) -> Causes {
    let mut rest = still.whole.saturating_sub(still.used);
    let mut causes = Causes { amounts: BTreeMap::new(), rules: BTreeMap::new(), contradicted: false };
    let mut others = Others { followed: host.followed, ..Others::default() };
    let of = |kind: GapKind| host.gaps.iter().filter(move |gap| gap.kind == kind && gap.total > 0);

    // Several processes of one owner may drain at different times: none of them shows the device to stand still.
    let drained: Vec<&Gap> = of(GapKind::Drained).filter(|_| host.alone).collect();
    let total = sum(drained.iter().map(|gap| gap.total));
    causes.contradicted = total > rest.saturating_add(still.whole / BOUNDARIES);
    if let Some(split) = Split::by_weight(total.min(rest), weights(&drained, |gap| gap.total)) {
        for (gap, amount) in split.into_parts() {
            causes.explain(Rule::Drained, gap, amount, &mut others);
            rest -= amount;
        }
    }

    let waited = host.waited.min(still.whole);
    let mut idle = waited.saturating_sub(still.used).min(rest);
    rest -= idle;
    // The kernels may have run before a copy was waited for, and not in it: it stands still for as long as it copies.
    let copying = if host.alone { host.copying.min(waited) } else { 0 };
    let more = copying.saturating_sub(idle).min(rest);
    rest -= more;
    causes.add(Rule::Waiting, State::StalledTransfer, more);
    for (state, most) in [(State::StalledContended, still.others), (State::StalledTransfer, host.copies)] {
        let amount = idle.min(most);
        causes.add(Rule::Waiting, state, amount);
        idle -= amount;
    }
    causes.add(Rule::Waiting, State::StalledSync, idle);

    let open: Vec<&Gap> =
        host.gaps.iter().filter(|gap| gap.total > 0 && is_open(gap.kind, host.alone)).collect();
    let backlog = backlog(&open, rest);
    let left = |gap: &Gap| gap.total.saturating_sub(gap.count.saturating_mul(backlog));
    let total = sum(open.iter().map(|gap| left(gap))).min(rest);
    if let Some(split) = Split::by_weight(total, weights(&open, left)) {
        for (gap, amount) in split.into_parts() {
            causes.explain(Rule::Open, gap, amount, &mut others);
            rest -= amount;
        }
    }

    // Several processes of one owner may each wait for another: none of them shows what holds the device up.
    if host.gaps.is_empty() && host.alone {
        let ran = still.used.saturating_add(still.others);
        for (doing, time) in Doing::ALL.into_iter().zip(host.sampled) {
            let error = standard_error(time, still.whole, host.samples);
            let certain = time.saturating_sub(ran).saturating_sub(error).min(rest);
            causes.explain_doing(Rule::Samples, doing, certain, &mut others);
            rest -= certain;
        }
    }

    causes.pass_on(others, host);
    if !host.gaps.is_empty() {
        rest -= causes.complete(rest, still.whole);
    }
    if let Some(habit) = &host.habit {
        for (state, amount) in habit.divide(rest, still.used).map(Split::into_parts).unwrap_or_default() {
            causes.add(Rule::Habit, state, amount);
            rest -= amount;
        }
    }
    causes.add(Rule::Rest, State::UnknownNoEvidence, rest);
    causes
}

/// Whether the device may have had a backlog in gaps of this kind.
fn is_open(kind: GapKind, alone: bool) -> bool {
    kind == GapKind::Enqueue || (kind == GapKind::Drained && !alone)
}

/// The least backlog per gap with which the gaps fit into `room`; the largest that makes a difference if none does.
fn backlog(gaps: &[&Gap], room: u64) -> u64 {
    let fits = |backlog: u64| {
        let left = |gap: &&Gap| gap.total.saturating_sub(gap.count.saturating_mul(backlog));
        sum(gaps.iter().map(left)) <= room
    };
    let most = gaps.iter().filter(|gap| gap.count > 0).map(|gap| gap.total.div_ceil(gap.count)).max();
    let (mut low, mut high) = (0, most.unwrap_or(0));
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

impl Causes {
    fn add(&mut self, rule: Rule, state: State, amount: u64) {
        if amount > 0 {
            *self.amounts.entry(state).or_default() += amount;
            *self.rules.entry((state, rule)).or_default() += amount;
        }
    }

    /// Adds `amount` of a gap by what its thread did. Waits for locks and for any of several files go to `waits`.
    fn explain(&mut self, rule: Rule, gap: &Gap, amount: u64, others: &mut Others) {
        if gap.count > 0 && gap.total / gap.count < LAUNCH_GAP {
            self.add(rule, State::StalledLaunch, amount);
            return;
        }
        let weights = Doing::ALL.into_iter().zip(gap.doings).collect();
        let split =
            Split::by_weight(amount, weights).unwrap_or_else(|| Split::all_to(amount, Doing::Unknown));
        for (doing, amount) in split.into_parts() {
            self.explain_doing(rule, doing, amount, others);
        }
    }

    fn explain_doing(&mut self, rule: Rule, doing: Doing, amount: u64, others: &mut Others) {
        match doing {
            Doing::Lock if !others.followed => others.lock += amount,
            Doing::Poll => others.poll += amount,
            _ => self.add(rule, state(doing), amount),
        }
    }

    /// Divides `rest` like what gaps explain, if it is so little that it may be in the next snapshot or the one before: gaps
    /// and counters are not read at the same moment. Gives how much was divided.
    fn complete(&mut self, rest: u64, whole: u64) -> u64 {
        let gaps =
            |rule| matches!(rule, Rule::Drained | Rule::Waiting | Rule::Open | Rule::Alike | Rule::Feeders);
        let found: Vec<((State, Rule), u64)> = self
            .rules
            .iter()
            .filter(|((state, rule), _)| gaps(*rule) && *state != State::UnknownNoEvidence)
            .map(|(found, amount)| (*found, *amount))
            .collect();
        let few =
            rest <= whole / BOUNDARIES && rest <= sum(found.iter().map(|(_, amount)| *amount)) / MISSING;
        let Some(split) = Split::by_weight(rest, found).filter(|_| few) else { return 0 };
        for ((state, rule), part) in split.into_parts() {
            self.add(rule, state, part);
        }
        rest
    }

    /// A thread that waits for another of its owner's is held up by what holds up that one. Where wake-ups are followed,
    /// such waits are like those that ended, as far as these go; else they go to what the feeders did, as far as they
    /// were busy.
    fn pass_on(&mut self, mut others: Others, host: &Host) {
        if others.followed {
            let ended = ended_waits(host);
            let alike = others.poll.min(sum(ended.iter().map(|(_, time)| *time)));
            for (doing, part) in Split::by_weight(alike, ended).map(Split::into_parts).unwrap_or_default() {
                self.add(Rule::Alike, state(doing), part);
            }
            others.poll -= alike;
        }
        let busy: Vec<(Doing, u64)> =
            Doing::ALL.into_iter().zip(host.feeders).filter(|(doing, _)| doing.is_busy()).collect();
        let mut left = sum(busy.iter().map(|(_, time)| *time));
        for (doing, amount) in [(Doing::Lock, others.lock), (Doing::Poll, others.poll)] {
            let explained = amount.min(left);
            let split = Split::by_weight(explained, busy.clone());
            for (feeder, part) in split.map(Split::into_parts).unwrap_or_default() {
                self.add(Rule::Feeders, state(feeder), part);
            }
            self.add(Rule::Feeders, state(doing), amount - explained);
            left -= explained;
        }
    }
}

/// What waits for other threads were found to be, of those in the gaps: as much of each as both have.
fn ended_waits(host: &Host) -> Vec<(Doing, u64)> {
    let known = Doing::ALL
        .into_iter()
        .zip(host.passed)
        .filter(|(doing, _)| !matches!(doing, Doing::Poll | Doing::Unknown));
    let in_gaps = |doing: Doing| sum(host.gaps.iter().map(|gap| gap.doings[doing as usize]));
    known.map(|(doing, passed)| (doing, passed.min(in_gaps(doing)))).collect()
}

/// The standard error of an amount that is `time` of `whole` by so many samples.
fn standard_error(time: u64, whole: u64, samples: u64) -> u64 {
    let product = u128::from(time) * u128::from(whole.saturating_sub(time));
    product
        .checked_div(u128::from(samples))
        .map_or(whole, |square| u64::try_from(square.isqrt()).unwrap_or(whole))
}

/// The state of device time in which the thread that feeds it did this.
const fn state(doing: Doing) -> State {
    match doing {
        Doing::Cpu => State::StalledCpu,
        Doing::CpuWait => State::StalledCpuWait,
        Doing::DiskRead => State::StalledDiskRead,
        Doing::DiskWrite => State::StalledDiskWrite,
        Doing::Network => State::StalledNetwork,
        Doing::Memory => State::StalledMemory,
        Doing::Lock => State::StalledLock,
        Doing::Request | Doing::Timer => State::IdleNoWork,
        Doing::Poll | Doing::Unknown => State::UnknownNoEvidence,
    }
}

/// What the thread that feeds a device does in this state; none where its calls alone make the state.
pub fn doing(of: State) -> Option<Doing> {
    Doing::ALL.into_iter().find(|doing| state(*doing) == of)
}

fn weights<'g>(gaps: &[&'g Gap], of: impl Fn(&Gap) -> u64) -> Vec<(&'g Gap, u64)> {
    gaps.iter().map(|gap| (*gap, of(gap))).collect()
}

fn sum(amounts: impl Iterator<Item = u64>) -> u64 {
    amounts.fold(0, u64::saturating_add)
}
