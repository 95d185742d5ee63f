//! How long gaps were, for a histogram that only grows.

use crate::probe::{Gap, GapKind};

/// Upper bounds of lengths in nanoseconds: powers of four from 1.024 µs to 17.2 s. The kernel counts by powers of two,
/// and a length that is exactly a bound is above it there: it differs from one below by a nanosecond.
pub const BOUNDS: [u64; 13] = {
    let mut bounds = [0; 13];
    let mut place = 0;
    while place < bounds.len() {
        bounds[place] = 1 << (LEAST + 2 * place);
        place += 1;
    }
    bounds
};

/// The logarithm of the least bound.
const LEAST: usize = 10;

/// Gaps of one kind that have ended, by length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lengths {
    /// How many were below each of [`BOUNDS`] and not below the one before it; the last, below none.
    pub counts: [u64; BOUNDS.len() + 1],
    /// Nanoseconds of all.
    pub nanos: u64,
}

/// Gaps of every kind that have ended, in the order of [`GapKind::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GapLengths(pub [Lengths; GapKind::COUNT]);

impl GapLengths {
    /// Adds gaps that ended.
    pub fn add(&mut self, gap: &Gap) {
        let lengths = &mut self.0[gap.kind as usize];
        let above = (usize::from(gap.log2) + 2).saturating_sub(LEAST) / 2;
        let count = &mut lengths.counts[above.min(BOUNDS.len())];
        *count = count.saturating_add(gap.ended);
        lengths.nanos = lengths.nanos.saturating_add(gap.lasted);
    }
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS, GapLengths};
    use crate::probe::{Doing, Gap, GapKind};

    #[test]
    fn a_gap_is_counted_once_between_the_bounds_that_its_length_is_between() {
        for log2 in 0..=u8::MAX {
            let mut lengths = GapLengths::default();
            let doings = [0; Doing::COUNT];
            lengths.add(&Gap { kind: GapKind::Sync, log2, count: 7, total: 9, ended: 1, lasted: 5, doings });
            let counts = lengths.0[GapKind::Sync as usize].counts;
            let place = counts.iter().position(|count| *count == 1).unwrap();
            assert_eq!(counts.iter().sum::<u64>(), 1);
            let least = 1_u128.checked_shl(log2.into()).unwrap_or(u128::MAX);
            assert!(BOUNDS.get(place).is_none_or(|bound| least < u128::from(*bound)), "{log2}: {place}");
            assert!(place == 0 || least >= u128::from(BOUNDS[place - 1]), "{log2}: {place}");
            assert_eq!(lengths.0[GapKind::Sync as usize].nanos, 5);
            assert_eq!(lengths.0[GapKind::Drained as usize].counts, [0; BOUNDS.len() + 1]);
        }
    }
}
