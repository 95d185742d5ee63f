//! What must not leave the adapter: a driver's marks for "no value", and values that cannot be.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use warpmeter_core::fact::{Discard, Fact};
use warpmeter_core::ratio::Ppb;

/// Marks in 32 bits: blank, not found, not supported, not permitted; and all ones.
const WORD_MARKS: RangeInclusive<u32> = 0x7fff_fff0..=0x7fff_fff3;
/// The same in 64 bits.
const LONG_MARKS: RangeInclusive<u64> = 0x7fff_ffff_ffff_fff0..=0x7fff_ffff_ffff_fff3;
/// The same as floats: 2^47 and the three after it.
const FLOAT_MARKS: RangeInclusive<f64> = 140_737_488_355_328.0..=140_737_488_355_331.0;

/// Averages may exceed 100 % by as much as the counters' own rounding, and no more.
const ROUNDING: f64 = 100.5;

/// Lets values through that can be, and counts the others by reason.
#[derive(Debug, Default)]
pub(crate) struct Sieve {
    discarded: BTreeMap<Discard, u64>,
}

impl Sieve {
    /// Counts one value as left out.
    pub(crate) fn discard(&mut self, reason: Discard) {
        *self.discarded.entry(reason).or_default() += 1;
    }

    /// A quantity of 32 bits.
    pub(crate) fn word(&mut self, value: u32, range: RangeInclusive<u64>) -> Option<u64> {
        if value == u32::MAX || WORD_MARKS.contains(&value) {
            self.discard(Discard::Sentinel);
            return None;
        }
        self.within(u64::from(value), &range)
    }

    /// A quantity of 64 bits.
    pub(crate) fn long(&mut self, value: u64, range: RangeInclusive<u64>) -> Option<u64> {
        if value == u64::MAX || LONG_MARKS.contains(&value) {
            self.discard(Discard::Sentinel);
            return None;
        }
        self.within(value, &range)
    }

    /// A temperature, in °C. Negative ones come in two's complement.
    pub(crate) fn celsius(&mut self, value: u32) -> Option<i64> {
        // All ones would be -1 °C, which the driver means as "no value" far more often.
        if value == u32::MAX || WORD_MARKS.contains(&value) {
            self.discard(Discard::Sentinel);
            return None;
        }
        let celsius = i64::from(value.cast_signed());
        if (-60..=200).contains(&celsius) {
            return Some(celsius);
        }
        self.discard(Discard::Range);
        None
    }

    /// A whole percentage.
    pub(crate) fn percent(&mut self, value: u64) -> Option<Ppb> {
        let marked = u32::try_from(value).is_ok_and(|word| word == u32::MAX || WORD_MARKS.contains(&word));
        if marked {
            self.discard(Discard::Sentinel);
            return None;
        }
        let value = self.long(value, 0..=100)?;
        u32::try_from(value).ok().and_then(Ppb::percent)
    }

    /// A percentage as a float.
    pub(crate) fn ratio(&mut self, percent: f64) -> Option<Ppb> {
        let percent = self.float(percent, ROUNDING)?;
        // Billionths, to the nearest.
        whole(percent.min(100.0) * 1e7).and_then(|parts| u32::try_from(parts).ok()).and_then(Ppb::new)
    }

    /// A quantity as a float, from 0 to `most`, in units of `unit`; rounded after that to the nearest whole.
    pub(crate) fn amount(&mut self, value: f64, unit: f64, most: f64) -> Option<u64> {
        self.float(value, most).and_then(|value| whole(value * unit))
    }

    fn float(&mut self, value: f64, most: f64) -> Option<f64> {
        let reason = if value.is_nan() {
            Discard::NotANumber
        } else if FLOAT_MARKS.contains(&value) {
            Discard::Sentinel
        } else if !(0.0..=most).contains(&value) {
            Discard::Range
        } else {
            return Some(value);
        };
        self.discard(reason);
        None
    }

    fn within(&mut self, value: u64, range: &RangeInclusive<u64>) -> Option<u64> {
        if range.contains(&value) {
            return Some(value);
        }
        self.discard(Discard::Range);
        None
    }

    /// What was left out since the last call.
    pub(crate) fn drain(&mut self) -> Vec<Fact> {
        let discarded = std::mem::take(&mut self.discarded);
        discarded.into_iter().map(|(reason, count)| Fact::Discarded { reason, count }).collect()
    }
}

/// A float as an integer, to the nearest; nothing outside `0..2^63`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked just before, and floats have no `try_from`"
)]
fn whole(value: f64) -> Option<u64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (0.0..LIMIT).contains(&value).then(|| value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(sieve: &mut Sieve) -> Vec<(Discard, u64)> {
        let facts = sieve.drain().into_iter();
        facts
            .map(|fact| match fact {
                Fact::Discarded { reason, count } => (reason, count),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn marks_for_no_value_never_pass() {
        let mut sieve = Sieve::default();
        for mark in [u32::MAX, 0x7fff_fff0, 0x7fff_fff1, 0x7fff_fff2, 0x7fff_fff3] {
            assert_eq!(sieve.word(mark, 0..=u64::MAX), None);
            assert_eq!(sieve.celsius(mark), None);
            assert_eq!(sieve.percent(u64::from(mark)), None);
        }
        for mark in
            [u64::MAX, 9_223_372_036_854_775_792, 9_223_372_036_854_775_794, 9_223_372_036_854_775_795]
        {
            assert_eq!(sieve.long(mark, 0..=u64::MAX), None);
        }
        assert_eq!(sieve.ratio(140_737_488_355_328.0), None);
        assert_eq!(sieve.amount(140_737_488_355_330.0, 1.0, f64::MAX), None);
        assert_eq!(reasons(&mut sieve), [(Discard::Sentinel, 21)]);
    }

    #[test]
    fn what_cannot_be_is_counted_and_left_out() {
        let mut sieve = Sieve::default();
        assert_eq!(sieve.percent(200_000), None);
        assert_eq!(sieve.percent(101), None);
        assert_eq!(sieve.word(70_000_000, 0..=10_000_000), None);
        assert_eq!(sieve.celsius(4_000), None);
        assert_eq!(sieve.ratio(-0.1), None);
        assert_eq!(sieve.ratio(101.0), None);
        assert_eq!(sieve.ratio(f64::INFINITY), None);
        assert_eq!(sieve.ratio(f64::NAN), None);
        assert_eq!(reasons(&mut sieve), [(Discard::Range, 7), (Discard::NotANumber, 1)]);
        assert_eq!(reasons(&mut sieve), [], "each is reported once");
    }

    #[test]
    fn what_can_be_passes_unchanged() {
        let mut sieve = Sieve::default();
        assert_eq!(sieve.percent(0), Some(Ppb::ZERO));
        assert_eq!(sieve.percent(100), Some(Ppb::ONE));
        assert_eq!(sieve.celsius((-5_i32).cast_unsigned()), Some(-5));
        assert_eq!(sieve.ratio(0.9), Ppb::new(9_000_000));
        assert_eq!(sieve.ratio(100.3), Some(Ppb::ONE), "rounding of the counters");
        assert_eq!(sieve.ratio(0.000_000_06), Ppb::new(1), "to the nearest billionth");
        assert_eq!(sieve.amount(1.5, 1.0, 2.0), Some(2));
        assert_eq!(
            sieve.long(u64::from(u32::MAX), 0..=u64::MAX),
            Some(u64::from(u32::MAX)),
            "not a mark in 64 bits"
        );
        assert_eq!(reasons(&mut sieve), []);
    }
}
