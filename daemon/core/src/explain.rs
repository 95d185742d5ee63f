//! Where a pod's figures come from, for people: its last windows, each with the rule behind it, and who it waited for.

mod chain;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Add;
use std::sync::Arc;

use crate::identity::{DeviceId, Owner, PodUid, ProcessId};
use crate::probe::{self, Doing, Doings, Waits};
use crate::roofline::{Blind, Bound, Loads, Roofline};
use crate::stall::{Causes, Rule, Still};
use crate::state::{Class, State};
use crate::time::{Interval, MonoNs, SECOND};
use crate::view::Evidence;

pub use chain::{Chain, End, Link};

/// How far back explanations go.
pub const REACH: u64 = 30 * SECOND;

/// The most pairs of processes of which one waited for the other that are kept of a second: those that can have held
/// work up for longest.
const WAITS: usize = 64;

/// The most processes that called for an owner that are kept of a window: those that left most time between their calls.
const CALLERS: usize = 4;

/// Why the time that an owner did not use a device is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ground {
    /// All of it was used, or nothing was allocated.
    Used,
    /// Two signals contradict each other.
    Conflict,
    /// The device's counters were lost.
    SourceLost,
    /// How far the owner's processes have come with the device.
    Progress,
    /// For long nothing was asked of the device.
    Quiet,
    /// What its threads did between their calls; see [`Why::rules`].
    Causes,
    /// Nothing was seen of its calls.
    Unseen,
}

impl Ground {
    /// A name for people and for JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Conflict => "conflict",
            Self::SourceLost => "source_lost",
            Self::Progress => "progress",
            Self::Quiet => "quiet",
            Self::Causes => "causes",
            Self::Unseen => "unseen",
        }
    }
}

/// One window of one owner on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The owner, with the container.
    pub owner: Owner,
    /// The device.
    pub device: DeviceId,
    /// The window, or the piece of it in which nothing was granted or revoked.
    pub during: Interval,
    /// The owner's states; they sum to what was allocated.
    pub states: Vec<(State, u64)>,
    /// Nanoseconds of the device that it used; none without counters.
    pub used: Option<u64>,
    /// How that is known.
    pub use_evidence: Evidence,
    /// How the allocation is known.
    pub allocation_evidence: Evidence,
    /// Why the rest is what it is.
    pub ground: Ground,
    /// Which rules found which causes, in nanoseconds of the node's time; where `ground` is [`Ground::Causes`].
    pub rules: Option<Causes>,
    /// How long the device ran, in the node's time.
    pub still: Option<Still>,
    /// What bounded its work, where it did any.
    pub roofline: Option<Roofline>,
    /// Its processes that called the driver for it, as far as calls or samples show them; the most first.
    pub callers: Vec<Caller>,
    /// Whether wake-ups were followed, so that who waited for whom is known.
    pub followed: bool,
}

/// A process that called the driver for an owner on a device in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Which.
    pub process: ProcessId,
    /// What its threads did between their calls. All 0 while its calls are not seen.
    pub between: Doings,
    /// Nanoseconds from enqueues to the ends of the synchronising calls that followed them.
    pub within: u64,
}

impl Caller {
    /// One of which no call was seen.
    pub const fn new(process: ProcessId) -> Self {
        Self { process, between: [0; Doing::COUNT], within: 0 }
    }

    /// Adds what it did at another time.
    pub fn add(&mut self, other: &Self) {
        probe::add(&mut self.between, &other.between);
        self.within = self.within.saturating_add(other.within);
    }

    /// Nanoseconds of it all.
    pub fn total(&self) -> u64 {
        self.between.iter().fold(self.within, |sum, amount| sum.saturating_add(*amount))
    }

    /// Those of `callers` that are worth keeping, the most first.
    pub(crate) fn most(callers: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut callers: Vec<Self> = callers.collect();
        callers.sort_by_key(|caller| Reverse(caller.total()));
        callers.truncate(CALLERS);
        callers
    }
}

/// A process that an explanation names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// What it is called, if that is known.
    pub name: Option<Arc<str>>,
    /// Whether it is known to be the pod's.
    pub own: bool,
}

/// What is kept of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Its last windows, in order.
    pub windows: VecDeque<Arc<Why>>,
    /// Its waits for threads that woke it, by snapshot.
    pub waits: VecDeque<(MonoNs, Arc<[Waits]>)>,
    /// Who the processes are that these name, and until when they took part.
    pub who: BTreeMap<ProcessId, (MonoNs, Who)>,
}

impl Explanation {
    /// Notes a window. `who` says who a process is.
    pub fn note(&mut self, why: Why, who: impl Fn(ProcessId) -> Who) {
        for caller in &why.callers {
            self.name(caller.process, why.during.end(), &who);
        }
        self.windows.push_back(Arc::new(why));
    }

    /// Notes the waits of a snapshot that ended at `end`. `who` says who a process is.
    pub fn note_waits(&mut self, end: MonoNs, mut waits: Vec<Waits>, who: impl Fn(ProcessId) -> Who) {
        waits.sort_by_key(|waits| Reverse(held_up(waits)));
        waits.truncate(WAITS);
        for process in waits.iter().flat_map(|waits| [waits.sleeper, waits.waker]) {
            self.name(process, end, &who);
        }
        self.waits.push_back((end, waits.into()));
    }

    /// Processes change their names, and whose they are may be known before or after what they are called.
    fn name(&mut self, process: ProcessId, until: MonoNs, who: impl Fn(ProcessId) -> Who) {
        let (last, known) = self.who.entry(process).or_default();
        let Who { name, own } = who(process);
        *last = until.max(*last);
        known.name = name.or_else(|| known.name.take());
        known.own |= own;
    }

    /// Forgets what is out of reach `now`. Without that nothing is forgotten.
    pub fn forget(&mut self, now: MonoNs) {
        let within_reach = |end: MonoNs| now.since(end) < REACH;
        self.windows.retain(|why| within_reach(why.during.end()));
        self.waits.retain(|(end, _)| within_reach(*end));
        self.who.retain(|_, (until, _)| within_reach(*until));
    }

    /// The windows by owner and device, in the order in which these first come.
    pub fn recent(&self) -> Vec<Recent<'_>> {
        let mut all: Vec<Recent<'_>> = Vec::new();
        for why in &self.windows {
            match all.iter_mut().find(|recent| *recent.owner == why.owner && *recent.device == why.device) {
                Some(recent) => recent.windows.push(why),
                None => all.push(Recent { owner: &why.owner, device: &why.device, windows: vec![why] }),
            }
        }
        all
    }

    /// All waits within reach, summed by processes, the longest first.
    pub fn all_waits(&self) -> Vec<Waits> {
        let mut sums: BTreeMap<(ProcessId, ProcessId), (u64, Doings)> = BTreeMap::new();
        for waits in self.waits.iter().flat_map(|(_, waits)| waits.iter()) {
            let (count, doings) = sums.entry((waits.sleeper, waits.waker)).or_default();
            *count = count.saturating_add(waits.count);
            probe::add(doings, &waits.doings);
        }
        let mut all: Vec<Waits> = sums
            .into_iter()
            .map(|((sleeper, waker), (count, doings))| Waits { sleeper, waker, count, doings })
            .collect();
        all.sort_by_key(|waits| Reverse(waits.total()));
        all
    }
}

/// An owner's last windows on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent<'a> {
    /// The owner.
    pub owner: &'a Owner,
    /// The device.
    pub device: &'a DeviceId,
    /// The windows, in order; at least one.
    pub windows: Vec<&'a Why>,
}

impl Recent<'_> {
    /// Nanoseconds by state over all windows, largest first.
    pub fn states(&self) -> Vec<(State, u64)> {
        largest_first(self.windows.iter().flat_map(|why| why.states.iter().copied()))
    }

    /// The largest of its states in which work was wanted and the device stood still, with nanoseconds.
    pub fn leading_stall(&self) -> Option<(State, u64)> {
        self.states().into_iter().find(|(state, _)| state.class() == Class::Stalled)
    }

    /// By which rules a state was found, in nanoseconds of the node's time, largest first.
    pub fn found_by(&self, state: State) -> Vec<(Rule, u64)> {
        let rules = self.windows.iter().filter_map(|why| why.rules.as_ref()).flat_map(|causes| &causes.rules);
        largest_first(rules.filter(|((of, _), _)| *of == state).map(|((_, rule), amount)| (*rule, *amount)))
    }

    /// Why a state has what it has, in the last window in which it has something.
    pub fn ground(&self, state: State) -> Option<Ground> {
        let has = |why: &&&Why| why.states.iter().any(|(of, _)| *of == state);
        self.windows.iter().rev().find(has).map(|why| why.ground)
    }

    /// Used nanoseconds by what bounded the work, largest first, and why it is unknown where it is.
    pub fn bounds(&self) -> Vec<(Result<Bound, Blind>, u64)> {
        let of = |why: &&Why| Some((why.roofline?.found, why.used?));
        largest_first(self.windows.iter().filter_map(of))
    }

    /// What the device's counters say of the windows of which a bound is known; none if it is of none.
    pub fn loads(&self) -> Option<Loads> {
        let known = self.windows.iter().filter_map(|why| why.roofline).filter(|found| found.found.is_ok());
        known.map(|roofline| roofline.loads).reduce(Add::add)
    }

    /// Nanoseconds of the windows.
    pub fn span(&self) -> u64 {
        self.windows.iter().map(|why| why.during.nanos()).sum()
    }
}

/// Nanoseconds of waits in which wakers did what can hold up work.
fn held_up(waits: &Waits) -> u64 {
    let stalls = Doing::ALL.into_iter().zip(waits.doings);
    let stalls = stalls.filter(|(doing, _)| doing.is_busy() || *doing == Doing::Lock);
    stalls.fold(0, |sum, (_, amount)| sum.saturating_add(amount))
}

fn largest_first<K: Ord + Copy>(amounts: impl Iterator<Item = (K, u64)>) -> Vec<(K, u64)> {
    let mut sums: BTreeMap<K, u64> = BTreeMap::new();
    for (key, amount) in amounts {
        *sums.entry(key).or_default() += amount;
    }
    let mut sums: Vec<(K, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, amount)| Reverse(*amount));
    sums
}

/// Explanations by pod.
pub(crate) type Explanations = BTreeMap<PodUid, Explanation>;
