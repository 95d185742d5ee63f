//! Money: exact integers, divided only for display.

use serde::{Deserialize, Serialize};

/// A price of device time in millionths of a currency unit per hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(pub u64);

/// An amount of money in millionths of a currency unit × nanoseconds per hour: the product of a price and a
/// time, which needs no rounding. Divide by `3600 × 10^15` for currency units. At 1,000 units per hour this
/// holds 10^9 GPUs for 10^7 years.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(pub u128);

impl Money {
    /// How many of these make one currency unit.
    pub const UNIT: u128 = 3_600 * 1_000_000_000 * 1_000_000;

    /// What `nanos` of a device cost at `price`.
    pub fn of(price: Price, nanos: u64) -> Self {
        Self(u128::from(price.0) * u128::from(nanos))
    }

    /// Adds `other`.
    pub fn add(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// Flat prices per model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// The currency of all of them, as its ISO 4217 code.
    pub currency: String,
    /// Prices of whole GPUs by a word of the product name, such as `H100`.
    pub models: Vec<(String, Price)>,
    /// The price of GPUs that no word matches.
    pub other: Option<Price>,
}

impl Prices {
    /// The price of a whole GPU: that of the longest key of which each word is a word of the product name;
    /// ties in order of name. Upper and lower case are the same.
    pub fn of(&self, model: &str) -> Option<Price> {
        let words: Vec<String> = split(model).collect();
        self.models
            .iter()
            .filter(|(key, _)| split(key).next().is_some() && split(key).all(|word| words.contains(&word)))
            .max_by(|a, b| a.0.len().cmp(&b.0.len()).then_with(|| b.0.cmp(&a.0)))
            .map(|(_, price)| *price)
            .or(self.other)
    }
}

fn split(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(models: &[(&str, u64)], other: Option<u64>) -> Prices {
        Prices {
            currency: "USD".into(),
            models: models.iter().map(|(name, price)| ((*name).to_owned(), Price(*price))).collect(),
            other: other.map(Price),
        }
    }

    #[test]
    fn the_longest_matching_key_gives_the_price() {
        let book = prices(&[("A100", 1), ("A100-SXM4-80GB", 2), ("A10", 3), ("L4", 4)], None);
        assert_eq!(book.of("NVIDIA A100-SXM4-80GB"), Some(Price(2)));
        assert_eq!(book.of("NVIDIA A100-PCIE-40GB"), Some(Price(1)));
        assert_eq!(book.of("NVIDIA A10"), Some(Price(3)));
        assert_eq!(book.of("NVIDIA L40S"), None, "L4 is not a word of L40S");
    }

    #[test]
    fn a_model_without_a_price_has_the_price_of_others_or_none() {
        assert_eq!(prices(&[("H100", 1)], Some(9)).of("Tesla T4"), Some(Price(9)));
        assert_eq!(prices(&[("H100", 1)], None).of("Tesla T4"), None);
        assert_eq!(prices(&[("", 1)], None).of("Tesla T4"), None, "an empty key matches nothing");
    }

    #[test]
    fn ten_years_of_a_thousand_gpus_fit() {
        let mut sum = Money::default();
        for _ in 0..1000 {
            sum.add(Money::of(Price(1_000_000_000_000), 10 * 366 * 86_400 * 1_000_000_000));
        }
        assert!(sum.0 < u128::MAX / 1000);
    }
}
