//! What a device's values mean: units, marks for "no value", and scale.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use warpmeter_core::fact::{Discard, Means};
use warpmeter_core::ratio::Ppb;

use super::page::{Field, Shown};

/// DCGM's marks for "no value" (blank, not found, not supported, not permitted): in 32 bits, in 64 bits as they are
/// when written as floats, and as floats.
const MARKS: [RangeInclusive<f64>; 3] = [
    2_147_483_632.0..=2_147_483_635.0,
    9_223_372_036_854_774_784.0..=9_223_372_036_854_775_808.0,
    140_737_488_355_328.0..=140_737_488_355_331.0,
];

/// Ratios may exceed 1 by as much as rounding and the counters' own skew, and no more.
pub(super) const ONE: f64 = 1.005;

/// Bytes a second of 16 lanes of a PCIe that is two generations off.
const FASTEST: f64 = 1e12;

/// What a page says of one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// Only held against the others: an amount of engine activity comes from the driver.
    pub engine: Option<Ppb>,
    pub means: Means,
}

/// What was left out of a device's values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub discarded: BTreeMap<Discard, u64>,
    /// Series of one field differ.
    pub several: bool,
}

impl Left {
    fn out(&mut self, reason: Discard) {
        *self.discarded.entry(reason).or_default() += 1;
    }
}

impl Figures {
    /// Those of the values that can be.
    pub(super) fn of(shown: &[Shown; Field::COUNT]) -> (Self, Left) {
        let mut left = Left::default();
        let figures = Self {
            engine: ratio(shown[Field::Engine as usize], &mut left),
            means: Means {
                sm_active: ratio(shown[Field::SmActive as usize], &mut left),
                sm_occupied: ratio(shown[Field::SmOccupied as usize], &mut left),
                tensor: ratio(shown[Field::Tensor as usize], &mut left),
                dram: ratio(shown[Field::Dram as usize], &mut left),
                pcie_receive: rate(shown[Field::PcieReceive as usize], &mut left),
                pcie_transmit: rate(shown[Field::PcieTransmit as usize], &mut left),
            },
        };
        (figures, left)
    }

    /// Whether there is none but the engine's.
    pub(super) fn is_empty(&self) -> bool {
        self.means == Means::default()
    }

    /// Whether there are ratios, and all are 0: a device at rest shows the same again and again.
    pub(super) fn is_idle(&self) -> bool {
        let Means { sm_active, sm_occupied, tensor, dram, .. } = self.means;
        let ratios = [self.engine, sm_active, sm_occupied, tensor, dram];
        sm_active.is_some() && ratios.into_iter().flatten().all(|ratio| ratio == Ppb::ZERO)
    }

    /// Whether they contradict one another: SM activity next to nothing beside an engine that works, for which a
    /// kernel on one of fewer than a thousand SMs would do, or less of it than there is occupancy.
    pub(super) fn conflict(&self) -> bool {
        let Some(active) = self.means.sm_active.map(Ppb::parts) else { return false };
        let stuck =
            self.engine.map(Ppb::parts).is_some_and(|engine| engine >= 100_000_000 && active < engine / 1000);
        let occupied = self.means.sm_occupied;
        let above = occupied.is_some_and(|occupied| occupied.parts() > active.saturating_add(10_000_000));
        stuck || above
    }

    /// Without what SMs and memory did.
    pub(super) fn traffic(self) -> Self {
        let Means { pcie_receive, pcie_transmit, .. } = self.means;
        Self { engine: None, means: Means { pcie_receive, pcie_transmit, ..Means::default() } }
    }
}

/// A value that is a number at all.
fn number(shown: Shown, left: &mut Left) -> Option<f64> {
    match shown {
        Shown::Nothing => None,
        Shown::Several => {
            left.several = true;
            left.out(Discard::Conflict);
            None
        }
        Shown::Value(value) if value.is_nan() => {
            left.out(Discard::NotANumber);
            None
        }
        Shown::Value(value) if MARKS.iter().any(|marks| marks.contains(&value)) => {
            left.out(Discard::Sentinel);
            None
        }
        Shown::Value(value) => Some(value),
    }
}

fn ratio(shown: Shown, left: &mut Left) -> Option<Ppb> {
    let value = number(shown, left)?;
    if (0.0..=ONE).contains(&value) {
        return whole(value.min(1.0) * 1e9).and_then(|parts| u32::try_from(parts).ok()).and_then(Ppb::new);
    }
    left.out(Discard::Range);
    None
}

fn rate(shown: Shown, left: &mut Left) -> Option<u64> {
    let value = number(shown, left)?;
    if (0.0..=FASTEST).contains(&value) {
        return whole(value);
    }
    left.out(Discard::Range);
    None
}

/// The nearest whole number of one that is neither negative nor large.
fn whole(value: f64) -> Option<u64> {
    let rounded = value.round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range, and whole")]
    (0.0..=1e15).contains(&rounded).then_some(rounded as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(field: Field, value: f64) -> (Figures, Left) {
        let mut shown = [Shown::Nothing; Field::COUNT];
        shown[field as usize] = Shown::Value(value);
        Figures::of(&shown)
    }

    #[test]
    fn a_ratio_is_from_0_to_1_and_everything_else_is_left_out_by_its_reason() {
        for (value, parts) in [(0.0, 0), (-0.0, 0), (0.25, 250_000_000), (1e-6, 1000), (1.0, 1_000_000_000)] {
            assert_eq!(
                with(Field::SmActive, value).0.means.sm_active.map(Ppb::parts),
                Some(parts),
                "{value}"
            );
        }
        assert_eq!(with(Field::Dram, 1.004).0.means.dram, Some(Ppb::ONE), "rounding");
        for (value, reason) in [
            (f64::NAN, Discard::NotANumber),
            (f64::INFINITY, Discard::Range),
            (-0.01, Discard::Range),
            (37.2, Discard::Range),
            (1e5, Discard::Range),
            (2_147_483_632.0, Discard::Sentinel),
            (2_147_483_635.0, Discard::Sentinel),
            ("9223372036854775792".parse().unwrap(), Discard::Sentinel),
            ("9.223372036854775794e+18".parse().unwrap(), Discard::Sentinel),
            (140_737_488_355_328.0, Discard::Sentinel),
        ] {
            for field in [Field::SmActive, Field::Tensor] {
                let (figures, left) = with(field, value);
                assert_eq!((figures, left.discarded), (Figures::default(), [(reason, 1)].into()), "{value}");
            }
        }
    }

    #[test]
    fn bytes_a_second_may_be_more_than_32_bits_but_not_a_mark() {
        assert_eq!(with(Field::PcieReceive, 2.5e10).0.means.pcie_receive, Some(25_000_000_000));
        assert_eq!(with(Field::PcieTransmit, 2_147_483_633.0).1.discarded, [(Discard::Sentinel, 1)].into());
        assert_eq!(with(Field::PcieTransmit, 1e13).1.discarded, [(Discard::Range, 1)].into());
    }

    #[test]
    fn a_stuck_zero_and_an_occupancy_above_activity_are_conflicts() {
        let ratio = |percent| Ppb::percent(percent);
        let figures = |engine, active, occupied| Figures {
            engine: ratio(engine),
            means: Means { sm_active: ratio(active), sm_occupied: ratio(occupied), ..Means::default() },
        };
        assert!(figures(50, 0, 0).conflict());
        assert!(!figures(5, 0, 0).conflict(), "little work may be lost in rounding");
        assert!(!figures(50, 1, 0).conflict(), "one SM of a hundred");
        assert!(figures(50, 10, 20).conflict());
        assert!(!figures(0, 0, 0).conflict());
        assert!(!Figures { means: Means::default(), ..figures(50, 0, 0) }.conflict(), "nothing is said");
    }
}
