//! Division: the parts add up or the value does not exist.

/// A total and its division. Fields are private and only the dividing functions below make one, so the
/// amounts always add up to the total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split<K> {
    total: u64,
    parts: Vec<(K, u64)>,
}

impl<K> Split<K> {
    /// All of `total` to one.
    pub fn all_to(total: u64, key: K) -> Self {
        Self { total, parts: vec![(key, total)] }
    }

    /// Divides `total` in proportion to integer weights by largest remainder: each gets the floor of its
    /// proportion, what is left over goes one by one to the largest remainders, ties by position.
    /// Nothing if all weights are zero: then nobody can say whose the total is.
    pub fn by_weight(total: u64, weights: Vec<(K, u64)>) -> Option<Self> {
        let sum: u128 = weights.iter().map(|(_, weight)| u128::from(*weight)).sum();
        if sum == 0 {
            return None;
        }
        let mut left = total;
        let mut remainders = Vec::with_capacity(weights.len());
        let mut parts = Vec::with_capacity(weights.len());
        for (position, (key, weight)) in weights.into_iter().enumerate() {
            let product = u128::from(total) * u128::from(weight);
            // weight ≤ sum, so the quotient is at most `total`.
            let floor = u64::try_from(product / sum).unwrap_or(total);
            left -= floor;
            remainders.push((product % sum, position));
            parts.push((key, floor));
        }
        remainders.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        // Fewer units are left than there are parts with a remainder: each gets at most one.
        for (_, position) in remainders {
            if left == 0 {
                break;
            }
            parts[position].1 += 1;
            left -= 1;
        }
        Some(Self { total, parts })
    }

    /// What was divided.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The parts, in the order of the weights.
    pub fn parts(&self) -> &[(K, u64)] {
        &self.parts
    }

    /// The parts, in the order of the weights.
    pub fn into_parts(self) -> Vec<(K, u64)> {
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn parts_always_add_up(total in any::<u64>(), weights in proptest::collection::vec(any::<u64>(), 0..20)) {
            let keyed = weights.iter().copied().enumerate().collect();
            match Split::by_weight(total, keyed) {
                None => prop_assert!(weights.iter().all(|weight| *weight == 0)),
                Some(split) => {
                    let sum: u128 = split.parts().iter().map(|(_, amount)| u128::from(*amount)).sum();
                    prop_assert_eq!(sum, u128::from(total));
                    for ((_, amount), weight) in split.parts().iter().zip(&weights) {
                        prop_assert!(*weight > 0 || *amount == 0, "a zero weight gets nothing");
                    }
                }
            }
        }

        #[test]
        fn each_part_is_within_one_unit_of_its_proportion(
            total in 0..u64::from(u32::MAX),
            weights in proptest::collection::vec(1..u64::from(u32::MAX), 1..20),
        ) {
            let sum: u128 = weights.iter().copied().map(u128::from).sum();
            let split = Split::by_weight(total, weights.iter().copied().enumerate().collect()).unwrap();
            for ((_, amount), weight) in split.parts().iter().zip(&weights) {
                let floor = u128::from(total) * u128::from(*weight) / sum;
                prop_assert!(u128::from(*amount) == floor || u128::from(*amount) == floor + 1);
            }
        }
    }
}
