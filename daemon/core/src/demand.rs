//! Whose a device's time was where the driver does not say: by how long each process had work outstanding.
//!
//! The probes see when a process enqueues work and when it knows that none is left. Between the two its work may have
//! run, or another's did while it waited. Those who have work outstanding at the same time share the device: by turns
//! of equal length, or at once. Nothing says when they coincide, so each is taken to be as likely outstanding at one
//! moment as at another: the part of a process is then wᵢ · E[1 ÷ (1 + others outstanding)].

use std::collections::BTreeMap;

use crate::identity::Owner;
use crate::ratio::Ppb;
use crate::split::Split;

/// 1 in the fractions of this module.
const ONE: u64 = 1 << 30;
/// Points at which the integral below is taken.
const POINTS: u64 = 64;
/// Snapshots and windows end at about the same time, not at the same: up to this part of a stretch may be another's.
const BOUNDARIES: u64 = 50;

/// What the probes saw of one process on a device over a stretch, in nanoseconds of the node's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Whose it is; none if nobody knows.
    pub owner: Option<Owner>,
    /// Time in which work was outstanding for certain: up to the returns of synchronising calls.
    pub outstanding: u64,
    /// Gaps between enqueues, by length: how many, and how long in all. Each begins with a backlog that nobody knows.
    pub open: Vec<(u64, u64)>,
    /// Kernels and graphs that it launched.
    pub launches: u64,
    /// The part of the device's threads that it may use, where that is limited.
    pub threads: Option<Ppb>,
}

/// What the probes saw of all processes on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands {
    /// Time that the probes saw, in nanoseconds.
    pub covered: u64,
    /// The processes that they saw, in order of pid.
    pub seen: Vec<Demand>,
    /// Whether there are processes with a context of which they saw nothing.
    pub unseen: bool,
}

impl Demands {
    /// Divides `engine` nanoseconds of a device in a stretch of `whole` nanoseconds. None gets what may be that of
    /// processes which nobody saw, and what nobody had any work outstanding for.
    ///
    /// Nothing if none of those seen can have used the device.
    pub fn divide(&self, engine: u64, whole: u64) -> Option<Split<Option<Owner>>> {
        let busy = fraction(engine, whole);
        let most = self.outstanding(u64::MAX);
        let backlog = self.backlog(busy);
        let mut shares = self.outstanding(backlog);
        if shares.iter().all(|share| *share == 0) {
            return None;
        }
        let mut owners: Vec<Option<Owner>> = self.seen.iter().map(|demand| demand.owner.clone()).collect();
        let mut threads: Vec<u64> = self.seen.iter().map(threads).collect();
        let mut explained = engine;
        if self.unseen {
            // It cannot have run for longer than the device did.
            owners.push(None);
            shares.push(busy);
            threads.push(u64::from(Ppb::ONE.parts()));
        } else {
            let ran = product(union(&most).saturating_add(ONE / BOUNDARIES).min(ONE), whole);
            explained = engine.min(ran);
        }
        let parts = owners.into_iter().zip(parts(&shares, &threads));
        let mut all = Split::by_weight(explained, parts.collect())?.into_parts();
        all.push((None, engine - explained));
        Split::by_weight(engine, all)
    }

    /// For how long each owner had work outstanding, of `whole` nanoseconds in which the device ran for `engine`: the sum
    /// over its processes, at most all.
    pub fn by_owner(&self, engine: u64, whole: u64) -> BTreeMap<Owner, u64> {
        let shares = self.outstanding(self.backlog(fraction(engine, whole)));
        let mut sums: BTreeMap<Owner, u64> = BTreeMap::new();
        for (demand, share) in self.seen.iter().zip(shares) {
            if let Some(owner) = &demand.owner {
                let sum = sums.entry(owner.clone()).or_default();
                *sum = sum.saturating_add(product(share, whole)).min(whole);
            }
        }
        sums
    }

    /// How long each had work outstanding if every gap between enqueues began with such a backlog, as fractions of the
    /// time that the probes saw.
    fn outstanding(&self, backlog: u64) -> Vec<u64> {
        let of = |demand: &Demand| {
            let hidden = |(count, total): &(u64, u64)| count.saturating_mul(backlog).min(*total);
            let open = demand.open.iter().map(hidden).fold(0, u64::saturating_add);
            fraction(demand.outstanding.saturating_add(open), self.covered)
        };
        self.seen.iter().map(of).collect()
    }

    /// The least backlog with which somebody had work outstanding for as long as the device was busy; the largest that
    /// makes a difference if none suffices. The same for every gap, as in [`crate::stall`].
    ///
    /// At least the time that the device ran for a launch on average: where others' waits account for all of its time,
    /// nothing else says how long those kernels ran that nobody waited for.
    fn backlog(&self, busy: u64) -> u64 {
        let launches = self.seen.iter().map(|demand| demand.launches).fold(0, u64::saturating_add);
        let average = product(busy, self.covered).checked_div(launches).unwrap_or(0);
        self.least_backlog(busy).max(average)
    }

    fn least_backlog(&self, busy: u64) -> u64 {
        let gaps = self.seen.iter().flat_map(|demand| &demand.open);
        let most = gaps.filter(|(count, _)| *count > 0).map(|(count, total)| total.div_ceil(*count)).max();
        let (mut low, mut high) = (0, most.unwrap_or(0));
        while low < high {
            let middle = low + (high - low) / 2;
            if union(&self.outstanding(middle)) >= busy {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

fn threads(demand: &Demand) -> u64 {
    u64::from(demand.threads.unwrap_or(Ppb::ONE).parts()).max(1)
}

/// The parts of those who have work outstanding for such `shares` of the time, as weights.
///
/// Time that one has alone is its own; what coincides is divided by turns, and in proportion to `threads` where these
/// are limited.
fn parts(shares: &[u64], threads: &[u64]) -> Vec<u64> {
    let mut expected = vec![0_u64; shares.len()];
    for point in 0..POINTS {
        // E[1 ÷ (1 + N)] = ∫ Π (1 − wⱼ + wⱼx) dx over the others, by the midpoint rule.
        let absent = ONE - (2 * point + 1) * ONE / (2 * POINTS);
        let factor = |share: u64| ONE - product(share, absent);
        let all = shares.iter().fold(ONE, |all, share| product(all, factor(*share)));
        for (sum, share) in expected.iter_mut().zip(shares) {
            let others = quotient(all, factor(*share));
            *sum += product(*share, others) / POINTS;
        }
    }
    let alone: Vec<u64> = (0..shares.len())
        .map(|own| {
            let others = shares.iter().enumerate().filter(|(other, _)| *other != own);
            others.fold(shares[own], |rest, (_, share)| product(rest, ONE - share))
        })
        .collect();
    let together: Vec<u64> =
        expected.iter().zip(&alone).map(|(all, alone)| all.saturating_sub(*alone)).collect();
    let weighted = together.iter().zip(threads).map(|(part, threads)| part * threads).enumerate().collect();
    let together = Split::by_weight(together.iter().sum(), weighted).map(Split::into_parts);
    alone
        .iter()
        .enumerate()
        .map(|(own, alone)| alone + together.as_ref().map_or(0, |parts| parts[own].1))
        .collect()
}

/// How likely somebody has work outstanding.
fn union(shares: &[u64]) -> u64 {
    ONE - shares.iter().fold(ONE, |none, share| product(none, ONE - share))
}

/// `part ÷ whole`, at most 1; 0 of nothing.
fn fraction(part: u64, whole: u64) -> u64 {
    let quotient = (u128::from(part) * u128::from(ONE)).checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(quotient).unwrap_or(ONE).min(ONE)
}

/// `a` of `b`, where one of them is a fraction.
fn product(a: u64, b: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(ONE)).unwrap_or(u64::MAX)
}

/// `a ÷ b` of two fractions, at most 1.
fn quotient(a: u64, b: u64) -> u64 {
    fraction(a, b)
}

#[cfg(test)]
mod tests;
