//! Averages over an interval, from the forms in which counters give them.

use crate::fact::{Level, Volume};
use crate::ratio::Ppb;
use crate::time::{Interval, MonoNs};

/// The average of `level` over `during`, which starts no earlier than the reading that it came with.
///
/// None if the counter says nothing of that time. Samples each hold from the end of the one before (the first
/// from `start` of the reading); time that no sample covers counts as the average of that which is covered.
pub fn average(level: &Level, start: MonoNs, during: Interval) -> Option<Ppb> {
    match level {
        Level::Ratio(ratio) => Some(*ratio),
        Level::Cycles { active, elapsed } => Ppb::of_whole(u128::from(*active), u128::from(*elapsed)),
        Level::Samples(samples) => {
            let mut from = start;
            let mut covered: u128 = 0;
            let mut sum: u128 = 0;
            for (until, ratio) in samples {
                if let Some(part) = Interval::new(from, *until).and_then(|held| held.overlap(during)) {
                    covered += u128::from(part.nanos());
                    sum += u128::from(part.nanos()) * u128::from(ratio.parts());
                }
                from = from.max(*until);
            }
            Ppb::of_whole(sum, covered * u128::from(Ppb::ONE.parts()))
        }
    }
}

/// A cumulative counter that may start again from 0 at any time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cumulative {
    last: Option<u64>,
}

impl Cumulative {
    /// What was added since the last value. None at the first value and after a step back, when nobody knows.
    pub fn advance(&mut self, value: u64) -> Option<u64> {
        let last = self.last.replace(value);
        last.and_then(|last| value.checked_sub(last))
    }

    /// Bytes of `volume` over `nanos`.
    pub fn bytes(&mut self, volume: Volume, nanos: u64) -> Option<u64> {
        match volume {
            Volume::Total(value) => self.advance(value),
            Volume::PerSecond(rate) => {
                let bytes = u128::from(rate) * u128::from(nanos) / u128::from(crate::time::SECOND);
                u64::try_from(bytes).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn during(start: u64, end: u64) -> Interval {
        Interval::new(MonoNs(start), MonoNs(end)).unwrap()
    }

    fn percent(value: u32) -> Ppb {
        Ppb::percent(value).unwrap()
    }

    #[test]
    fn samples_are_weighted_by_the_time_that_they_hold() {
        let level = Level::Samples(vec![(MonoNs(20), percent(50)), (MonoNs(100), percent(100))]);
        assert_eq!(average(&level, MonoNs(0), during(0, 100)), Some(percent(90)));
        assert_eq!(average(&level, MonoNs(0), during(10, 30)), Some(percent(75)), "clipped");
        assert_eq!(
            average(&level, MonoNs(0), during(90, 200)),
            Some(percent(100)),
            "the rest is like the covered part"
        );
        assert_eq!(average(&level, MonoNs(0), during(100, 200)), None, "nothing is covered");
        assert_eq!(average(&Level::Samples(Vec::new()), MonoNs(0), during(0, 1)), None);
    }

    #[test]
    fn cycles_give_their_quotient_and_none_of_none_is_unknown() {
        let cycles = |active, elapsed| average(&Level::Cycles { active, elapsed }, MonoNs(0), during(0, 1));
        assert_eq!(cycles(1, 4), Some(percent(25)));
        assert_eq!(cycles(5, 4), Some(Ppb::ONE));
        assert_eq!(cycles(0, 0), None);
        assert_eq!(cycles(u64::MAX - 1, u64::MAX).map(Ppb::parts), Some(999_999_999));
    }

    #[test]
    fn a_counter_that_steps_back_adds_nothing() {
        let mut counter = Cumulative::default();
        let added: Vec<_> = [57, 21, 30].map(|value| counter.advance(value)).into();
        assert_eq!(added, [None, None, Some(9)]);
    }

    #[test]
    fn ten_years_of_memory_bandwidth_do_not_overflow() {
        let mut counter = Cumulative::default();
        let mut total: u128 = 0;
        for _ in 0..3660 {
            total += u128::from(
                counter.bytes(Volume::PerSecond(4_800_000_000_000), 86_400 * 1_000_000_000).unwrap(),
            );
        }
        assert_eq!(total, 3660 * 86_400 * 4_800_000_000_000);
    }
}
