//! What an owner's lost time is made of, for the time in which its calls are let alone because they are too many.
//!
//! Such a process is probed for a few seconds of each minute. What was found then stands for the rest as long as its
//! threads wait for nothing else than they did then, and no more of it than goes with how long the device ran: both are
//! seen all the time. One that has nothing to do, and waits for that in a lock, else would seem to launch.

use std::collections::BTreeMap;

use crate::probe::{self, Doing, Doings};
use crate::split::Split;
use crate::stall::{Causes, Host};
use crate::state::State;
use crate::time::{MonoNs, SECOND};

/// For how long it stands: a little longer than calls are let alone at most.
const STANDS: u64 = 660 * SECOND;

/// By how much of a stretch the waits of an owner's threads may differ: a fifth.
const DIFFERS: u64 = 5;

/// What threads do outside of the driver and never in it. Time in the driver is not told from the rest where calls are
/// let alone.
const TELLING: [Doing; 6] =
    [Doing::DiskRead, Doing::DiskWrite, Doing::Network, Doing::Request, Doing::Memory, Doing::Timer];

/// What an owner's time on a device was lost to while its calls were seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Habit {
    /// By state; each stretch counts half as much as the one after it.
    amounts: BTreeMap<State, u64>,
    /// Nanoseconds of these stretches, and what the threads that call did in them.
    whole: u64,
    callers: Doings,
    until: MonoNs,
}

impl Habit {
    /// From one stretch of `whole` nanoseconds that ended at `until`.
    pub fn of(causes: &Causes, host: &Host, whole: u64, until: MonoNs) -> Self {
        Self { amounts: causes.amounts.clone(), whole, callers: host.callers, until }
    }

    /// Takes in a newer stretch.
    pub fn renew(&mut self, newer: &Self) {
        for amount in self.amounts.values_mut().chain(&mut self.callers).chain([&mut self.whole]) {
            *amount /= 2;
        }
        for (state, amount) in &newer.amounts {
            let sum = self.amounts.entry(*state).or_default();
            *sum = sum.saturating_add(*amount);
        }
        probe::add(&mut self.callers, &newer.callers);
        self.whole = self.whole.saturating_add(newer.whole);
        self.until = newer.until;
    }

    /// Itself, if a stretch's lost time is taken to be made of the same: nothing if this is too old, or if the threads that
    /// call wait otherwise than they did.
    pub fn stands(&self, callers: &Doings, whole: u64, at: MonoNs) -> Option<&Self> {
        // A share differs by |a ÷ A − b ÷ B|; all of them by no more than a fifth.
        let differs: u128 = TELLING
            .into_iter()
            .map(|doing| doing as usize)
            .map(|at| {
                let now = u128::from(callers[at]) * u128::from(self.whole);
                now.abs_diff(u128::from(self.callers[at]) * u128::from(whole))
            })
            .fold(0, u128::saturating_add);
        let alike = differs.saturating_mul(DIFFERS.into()) <= u128::from(self.whole) * u128::from(whole);
        (alike && at.since(self.until) < STANDS).then_some(self)
    }

    /// Divides lost time, as much of `lost` nanoseconds as goes with the device's running for `used`, and a quarter more:
    /// two seconds are never quite alike.
    pub fn divide(&self, lost: u64, used: u64) -> Option<Split<State>> {
        let sum: u128 = self.amounts.values().map(|amount| u128::from(*amount)).sum();
        let ran = u128::from(self.whole).saturating_sub(sum);
        let most = (sum * u128::from(used)).saturating_mul(5).checked_div(ran * 4).unwrap_or(0);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        Split::by_weight(
            lost.min(most),
            self.amounts.iter().map(|(state, weight)| (*state, *weight)).collect(),
        )
    }
}
