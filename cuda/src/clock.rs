//! The two clocks: ours, and the one that the driver stamps its samples with.

use rustix::time::{ClockId, Timespec, clock_gettime};
use warpmeter_core::time::{MonoNs, SECOND};

/// A stamp this far ahead of the present is still taken for the present: conversion and reading take time.
const AHEAD: u64 = SECOND / 20;

/// The present on `CLOCK_MONOTONIC`.
pub(crate) fn now() -> MonoNs {
    MonoNs(nanos(clock_gettime(ClockId::Monotonic)))
}

/// CPU time of this process, in nanoseconds.
pub(crate) fn own_cpu() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Nanoseconds of a clock that does not run below 0.
fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(SECOND).saturating_add(nanos)
}

/// Where `CLOCK_REALTIME` stood against `CLOCK_MONOTONIC` at one instant. Read anew at every poll, so that a wall
/// clock that is set or slewed spoils one poll's conversions at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wall {
    mono: MonoNs,
    /// Nanoseconds since 1970 at `mono`.
    real: u64,
}

impl Wall {
    /// Reads both clocks.
    pub(crate) fn read() -> Self {
        let before = now();
        let real = nanos(clock_gettime(ClockId::Realtime));
        let after = now();
        // The middle, since the wall clock was read between the two.
        Self { mono: before.plus(after.since(before) / 2), real }
    }

    #[cfg(test)]
    pub(crate) const fn at(mono: MonoNs, real: u64) -> Self {
        Self { mono, real }
    }

    /// The driver's stamp for an instant: microseconds since 1970.
    pub(crate) fn micros(self, at: MonoNs) -> u64 {
        let real = if at >= self.mono {
            self.real.saturating_add(at.since(self.mono))
        } else {
            self.real.saturating_sub(self.mono.since(at))
        };
        real / 1000
    }

    /// When the driver's stamp was; nothing if that is in the future or before the machine started.
    pub(crate) fn mono(self, micros: u64) -> Option<MonoNs> {
        let real = micros.checked_mul(1000)?;
        if real > self.real {
            let ahead = real - self.real;
            return (ahead <= AHEAD).then_some(self.mono);
        }
        self.mono.0.checked_sub(self.real - real).filter(|mono| *mono > 0).map(MonoNs)
    }
}

/// Boundaries at the multiples of a period, without catching up. Other sources have the same, so that all look at nearly
/// the same moments: what the host did is compared with what a device did in between.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    period: u64,
}

impl Pace {
    /// Boundaries every `period` nanoseconds; at least [`Self::SHORTEST`] apart.
    pub(crate) fn new(period: u64) -> Self {
        Self { period: period.max(Self::SHORTEST) }
    }

    /// GPM samples must be more than 100 ms apart; a little more leaves room for the scheduler.
    pub(crate) const SHORTEST: u64 = 110_000_000;

    /// Nanoseconds between boundaries.
    pub(crate) const fn period(self) -> u64 {
        self.period
    }

    /// How long to sleep at `now` after a round that began at `began`: to the next boundary that is far enough
    /// from that beginning. Boundaries that have passed are left out.
    pub(crate) fn sleep(self, began: MonoNs, now: MonoNs) -> u64 {
        let earliest = now.max(began.plus(Self::SHORTEST));
        MonoNs(earliest.0.div_ceil(self.period).saturating_mul(self.period)).since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn stamps_convert_there_and_back() {
        let wall = Wall::at(MonoNs(50 * SECOND), 1_700_000_000 * SECOND);
        assert_eq!(wall.micros(MonoNs(49 * SECOND)), 1_699_999_999_000_000);
        assert_eq!(wall.mono(1_699_999_999_000_000), Some(MonoNs(49 * SECOND)));
    }

    #[test]
    fn stamps_of_the_future_and_of_before_the_start_are_refused() {
        let wall = Wall::at(MonoNs(50 * SECOND), 1_700_000_000 * SECOND);
        assert_eq!(wall.mono(0), None);
        assert_eq!(wall.mono(u64::MAX), None);
        assert_eq!(wall.mono(1_699_999_950_000_000), None, "at the very start");
        assert_eq!(wall.mono(1_700_000_001_000_000), None);
        assert_eq!(
            wall.mono(1_700_000_000_020_000),
            Some(MonoNs(50 * SECOND)),
            "20 ms ahead are the present"
        );
    }

    #[test]
    fn rounds_stay_on_their_boundaries() {
        let pace = Pace::new(SECOND);
        let at = |ms: u64| MonoNs(5 * SECOND + ms * MS);
        assert_eq!(pace.sleep(at(0), at(30)), 970 * MS);
        assert_eq!(pace.sleep(at(400), at(450)), 550 * MS, "whenever the first began");
        assert_eq!(pace.sleep(at(1001), at(1031)), 969 * MS, "a late start does not move what follows");
    }

    #[test]
    fn after_a_stall_no_round_is_made_up_for() {
        let pace = Pace::new(SECOND);
        assert_eq!(pace.sleep(MonoNs(SECOND), MonoNs(7_300 * MS)), 700 * MS);
        // A round that began just before a boundary does not begin again at it.
        assert_eq!(pace.sleep(MonoNs(6_950 * MS), MonoNs(6_960 * MS)), 1_040 * MS);
    }

    #[test]
    fn the_period_is_never_shorter_than_the_counters_allow() {
        assert_eq!(Pace::new(1).period(), Pace::SHORTEST);
    }
}
