//! Where a pod's figures come from, for people: its last windows, each with the rule behind it, and who it waited for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Add;
use std::sync::Arc;

use crate::identity::{DeviceId, Owner, PodUid, ProcessId};
use crate::probe::{Doings, Waits};
use crate::roofline::{Blind, Bound, Loads, Roofline};
use crate::stall::{Causes, Rule, Still};
use crate::state::State;
use crate::time::{Interval, MonoNs, SECOND};
use crate::view::Evidence;

/// How far back explanations go.
pub const REACH: u64 = 30 * SECOND;

/// The most waits between two processes that are kept of a second: those that took longest.
const WAITS: usize = 16;

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
}

/// What is kept of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Its last windows, in order.
    pub windows: VecDeque<Arc<Why>>,
    /// Its waits for threads that woke it, by snapshot.
    pub waits: VecDeque<(MonoNs, Arc<[Waits]>)>,
}

impl Explanation {
    /// Notes a window, and forgets those out of reach.
    pub fn note(&mut self, why: Why) {
        let end = why.during.end();
        self.windows.push_back(Arc::new(why));
        while self.windows.front().is_some_and(|oldest| end.since(oldest.during.end()) >= REACH) {
            self.windows.pop_front();
        }
    }

    /// Notes the waits of a snapshot that ended at `end`.
    pub fn note_waits(&mut self, end: MonoNs, mut waits: Vec<Waits>) {
        waits.sort_by_key(|waits| Reverse(waits.total()));
        waits.truncate(WAITS);
        self.waits.push_back((end, waits.into()));
        while self.waits.front().is_some_and(|(oldest, _)| end.since(*oldest) >= REACH) {
            self.waits.pop_front();
        }
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
            for (sum, amount) in doings.iter_mut().zip(waits.doings) {
                *sum = sum.saturating_add(amount);
            }
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
