//! From a stall to the process whose doing it was: whom the process that drives the device waited for, and whom that
//! one waited for.
//!
//! When a thread is woken, its wait becomes what its waker did meanwhile, whose own waits became what their wakers did.
//! So what is at the end of a chain is in every wait along it, and the chain is found again by following the class of
//! the stall. Only sums by pairs of processes are known, not single waits: a step says what was most often so.

use std::collections::{BTreeMap, BTreeSet};

use super::{Caller, Explanation, Recent};
use crate::identity::ProcessId;
use crate::probe::{Doing, Waits};
use crate::stall::{self, Rule};
use crate::state::State;

/// A process passes on what others wait for if its own waits are at least one part in so many of those for it. Less is
/// beside the point: a loader that reads for six seconds and waits a tenth of one for a neighbour's lock did the reading.
const PART: u64 = 2;

/// From a stall to the process whose doing it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The stall.
    pub state: State,
    /// What was done in it; none if the calls of the driver are all that there is to it.
    pub doing: Option<Doing>,
    /// The process that drives the device: of those that called the driver the one whose threads did most of that between
    /// their calls.
    pub driver: ProcessId,
    /// From one process to the next, beginning with `driver`. A step within a process comes before the one that leads on.
    pub links: Vec<Link>,
    /// Why it ends where it does.
    pub end: End,
}

impl Chain {
    /// The process at its end.
    pub fn last(&self) -> ProcessId {
        self.links.last().map_or(self.driver, |link| link.waits.waker)
    }
}

/// A step of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The waits of one process for another, or of its threads for one another.
    pub waits: Waits,
    /// Nanoseconds of them in the class of the stall.
    pub concerned: u64,
    /// How many further processes the sleeper waited for in that class; of a step within a process none.
    pub beside: usize,
    /// Nanoseconds of those waits in that class.
    pub concerned_beside: u64,
}

/// Why a chain ends with its last process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// It did it itself: it did not wait for others, or not for long.
    Itself,
    /// It waited for this one, which waited for it: it did itself what it did not wait for.
    InTurn(ProcessId),
    /// It is not known to be the pod's. For whom it waited is not looked at.
    Stranger,
    /// Nothing was done but to call the driver.
    Calls,
    /// Its threads still waited for others when the seconds ended, so that nobody was seen to end that.
    Waiting,
    /// Its calls were not seen at the time, and no wait of it was.
    Unseen,
    /// Wake-ups are not followed: it may have waited for anybody.
    Unfollowed,
}

impl End {
    /// A name for JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Itself => "itself",
            Self::InTurn(_) => "in_turn",
            Self::Stranger => "stranger",
            Self::Calls => "calls",
            Self::Waiting => "waiting",
            Self::Unseen => "unseen",
            Self::Unfollowed => "unfollowed",
        }
    }
}

/// Of a stall that is a smaller part of the time than one in so many, nothing is told.
const LEAST: u64 = 50;

impl Explanation {
    /// The chain behind the leading stall of a device; none if there is no stall that matters (a fiftieth of the time, which
    /// is what boundaries of windows explain), or nobody is known who called.
    pub fn chain(&self, recent: &Recent<'_>) -> Option<Chain> {
        let (state, stalled) = recent.leading_stall()?;
        let whole = recent.states().iter().fold(0_u64, |sum, (_, amount)| sum.saturating_add(*amount));
        if stalled < whole / LEAST {
            return None;
        }
        let doing = stall::doing(state);
        let (driver, expected) = driver(recent, doing)?;
        let Some(doing) = doing else {
            return Some(Chain { state, doing, driver, links: Vec::new(), end: End::Calls });
        };
        let own = |process: ProcessId| self.who.get(&process).is_some_and(|(_, who)| who.own);
        let (links, mut end) = follow(&self.all_waits(), driver, expected, doing, own);
        if links.is_empty() {
            end = alone(recent, state, expected);
        }
        Some(Chain { state, doing: Some(doing), driver, links, end })
    }
}

/// The process that drives a device, and how many nanoseconds its threads did `doing` between its calls.
fn driver(recent: &Recent<'_>, doing: Option<Doing>) -> Option<(ProcessId, u64)> {
    let mut sums: BTreeMap<ProcessId, Caller> = BTreeMap::new();
    for caller in recent.windows.iter().flat_map(|why| &why.callers) {
        sums.entry(caller.process).or_insert_with(|| Caller::new(caller.process)).add(caller);
    }
    let of = |caller: &Caller| doing.map_or(0, |doing| caller.between[doing as usize]);
    let found = sums.into_values().max_by_key(|caller| (of(caller), caller.total()))?;
    Some((found.process, of(&found)))
}

/// What can be said of a driver of which no waits are known, and which did `own` itself.
fn alone(recent: &Recent<'_>, state: State, own: u64) -> End {
    let rules = recent.found_by(state);
    let whole: u64 = rules.iter().map(|(_, amount)| amount).sum();
    let cut = rules.iter().filter(|(rule, _)| matches!(rule, Rule::Alike | Rule::Feeders));
    let cut: u64 = cut.map(|(_, amount)| amount).sum();
    if !recent.windows.iter().any(|why| why.followed) {
        End::Unfollowed
    } else if cut > whole / 2 {
        End::Waiting
    } else if own == 0 {
        End::Unseen
    } else {
        End::Itself
    }
}

/// Goes from `driver` to the waker that accounts for most of its waits in the class of `doing`, and on from there.
/// `expected` is for how long there should be such waits, 0 if that is not known.
fn follow(
    waits: &[Waits],
    driver: ProcessId,
    mut expected: u64,
    doing: Doing,
    own: impl Fn(ProcessId) -> bool,
) -> (Vec<Link>, End) {
    let of = |waits: &Waits| waits.doings[doing as usize];
    let mut links = Vec::new();
    let mut visited = BTreeSet::from([driver]);
    let mut at = driver;
    loop {
        let concerned = waits.iter().filter(|waits| waits.sleeper == at && of(waits) > 0);
        let (within, others): (Vec<&Waits>, Vec<&Waits>) = concerned.partition(|waits| waits.waker == at);
        if let Some(within) = within.first().filter(|within| of(within) >= expected / PART) {
            // Of many threads that wait at the same time each counts, so that this may be more than was lost.
            expected = if expected == 0 { of(within) } else { expected.min(of(within)) };
            links.push(Link {
                waits: Waits::clone(within),
                concerned: of(within),
                beside: 0,
                concerned_beside: 0,
            });
        }
        let whole = others.iter().fold(0_u64, |sum, waits| sum.saturating_add(of(waits)));
        let most = others.iter().max_by_key(|waits| of(waits)).filter(|_| whole >= expected / PART);
        let Some(most) = most else { return (links, End::Itself) };
        if !visited.insert(most.waker) {
            return (links, End::InTurn(most.waker));
        }
        links.push(Link {
            waits: Waits::clone(most),
            concerned: of(most),
            beside: others.len() - 1,
            concerned_beside: whole.saturating_sub(of(most)),
        });
        (at, expected) = (most.waker, of(most));
        if !own(at) {
            return (links, End::Stranger);
        }
    }
}

#[cfg(test)]
mod tests;
