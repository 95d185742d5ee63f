//! Ratios as integers.

use serde::{Deserialize, Serialize};

/// A ratio from 0 to 1 in parts per billion, so that 0.9 % occupancy is not rounded to nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ppb(u32);

impl Ppb {
    /// 0.
    pub const ZERO: Self = Self(0);
    /// 1.
    pub const ONE: Self = Self(1_000_000_000);

    /// `parts` billionths, or nothing above one.
    pub const fn new(parts: u32) -> Option<Self> {
        if parts <= Self::ONE.0 { Some(Self(parts)) } else { None }
    }

    /// A whole percentage, or nothing above 100.
    pub const fn percent(percent: u32) -> Option<Self> {
        if percent <= 100 { Some(Self(percent * 10_000_000)) } else { None }
    }

    /// `part` of `whole`, rounded down; nothing if `whole` is 0; at most 1.
    pub fn of_whole(part: u128, whole: u128) -> Option<Self> {
        if whole == 0 {
            return None;
        }
        if part >= whole {
            return Some(Self::ONE);
        }
        // part < whole, so the quotient is below one billion; widths that would overflow are scaled first.
        let shift = 128_u32.saturating_sub(part.leading_zeros()).saturating_sub(96);
        let parts = (part >> shift) * u128::from(Self::ONE.0) / (whole >> shift).max(1);
        u32::try_from(parts).ok().map(|parts| Self(parts.min(Self::ONE.0)))
    }

    /// Billionths.
    pub const fn parts(self) -> u32 {
        self.0
    }

    /// This share of `amount`, rounded to the nearest unit; never more than `amount`.
    pub fn of(self, amount: u64) -> u64 {
        let product = u128::from(amount) * u128::from(self.0) + u128::from(Self::ONE.0 / 2);
        u64::try_from(product / u128::from(Self::ONE.0)).unwrap_or(amount).min(amount)
    }
}
