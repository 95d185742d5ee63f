//! Money: exact integers, divided only for display; and where a price comes from.
//!
//! A [`Book`] holds what is known of prices: from the configuration, a price file, and the built-in [`table`].
//! [`Book::resolve`] finds those of one node, [`Prices`], which are a fact like any other: they can change while
//! the daemon runs, and a recording holds them.

mod book;
mod date;
mod decimal;
mod node;
mod prices;
mod quote;
pub mod table;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use book::{Book, BuiltIn, Row, RowKind};
pub use date::Date;
pub use decimal::{micros, rounded_micros};
pub use node::NodeFacts;
pub use prices::{NodePrice, Prices, Rate};
pub use quote::{Capacity, Origin, Quote};

/// Hours of a year of 365.25 days.
const HOURS_A_YEAR: u128 = 8_766;

/// A price of device time in millionths of a currency unit per hour; of energy, per kilowatt-hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(pub u64);

impl Price {
    /// The highest price that is taken for one: a million units per hour.
    pub const HIGHEST: Self = Self(1_000_000 * 1_000_000);

    /// What an owned GPU costs per hour, if its purchase less its residual value is spread over its years: amounts and
    /// years in millionths, a year being 365.25 days. Rounded down to the millionth; nothing over no time.
    pub fn amortised(purchase: u64, residual: u64, years: u64) -> Option<Self> {
        let spread = u128::from(purchase.saturating_sub(residual)) * 1_000_000;
        let per_hour = spread.checked_div(u128::from(years) * HOURS_A_YEAR)?;
        u64::try_from(per_hour).ok().map(Self)
    }

    /// `part` of `whole` parts of this price, rounded down; all of it if `whole` is 0.
    #[must_use]
    pub fn share(self, part: u64, whole: u64) -> Self {
        let share = (u128::from(self.0) * u128::from(part)).checked_div(u128::from(whole));
        share.map_or(self, |share| Self(u64::try_from(share).unwrap_or(u64::MAX)))
    }
}

/// In units, with as many decimals as it takes.
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{fraction:06}").trim_end_matches('0'))
    }
}

/// An amount of money in millionths of a currency unit × nanoseconds per hour: the product of a price and a
/// time, which needs no rounding. Divide by `3600 × 10^15` for currency units. At 1,000 units per hour this
/// holds 10^9 GPUs for 10^7 years.
///
/// A kilowatt-hour is 3600 × 10^9 microjoules, so the product of a price per kilowatt-hour and microjoules has
/// the same unit, and needs no rounding either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(pub u128);

impl Money {
    /// How many of these make one currency unit.
    pub const UNIT: u128 = 3_600 * 1_000_000_000 * 1_000_000;

    /// What `nanos` of a device cost at `price`.
    pub fn of(price: Price, nanos: u64) -> Self {
        Self(u128::from(price.0) * u128::from(nanos))
    }

    /// What `microjoules` cost at `price` per kilowatt-hour.
    pub fn of_energy(price: Price, microjoules: u64) -> Self {
        Self(u128::from(price.0) * u128::from(microjoules))
    }

    /// Adds `other`.
    pub fn add(&mut self, other: Self) {
        self.0 += other.0;
    }
}

#[cfg(test)]
mod tests;
