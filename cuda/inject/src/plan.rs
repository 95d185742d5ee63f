//! In which seconds records are wanted.
//!
//! One second of every N, at a place that is drawn anew each time: work that repeats itself must not keep step with it.

/// A second, in nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// The variable that says how many.
pub(crate) const VARIABLE: &str = "WARPMETER_INJECT_SAMPLE";
/// One second in ten, unless that says otherwise: a tenth of the cost, and within a minute or two of the same sums.
const USUAL: u64 = 10;
/// The longest cycle: an hour.
const LONGEST: u64 = 3600;

/// When records are wanted, in nanoseconds since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    seconds: u64,
    random: u64,
    cycle: u64,
    place: u64,
}

impl Plan {
    /// As the variable's value says: `1/N`; what is not that stands for one in ten.
    pub(crate) fn new(value: Option<&str>, seed: u64) -> Self {
        let number = value.and_then(|value| value.strip_prefix("1/")?.parse().ok());
        let seconds = number.filter(|number| (1..=LONGEST).contains(number)).unwrap_or(USUAL);
        let mut plan = Self { seconds, random: seed, cycle: 0, place: 0 };
        plan.draw();
        plan
    }

    /// Whether records are wanted at this time, and until when that is so.
    pub(crate) fn at(&mut self, elapsed: u64) -> (bool, u64) {
        let length = self.seconds * SECOND;
        let cycle = elapsed / length;
        if cycle != self.cycle {
            self.cycle = cycle;
            self.draw();
        }
        let begin = cycle * length + self.place * SECOND;
        let end = begin + SECOND;
        if self.seconds == 1 {
            (true, end)
        } else if elapsed < begin {
            (false, begin)
        } else if elapsed < end {
            (true, end)
        } else {
            (false, (cycle + 1) * length)
        }
    }

    /// The place in this cycle (SplitMix64, in which seeds that are alike have nothing in common).
    fn draw(&mut self) {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.place = (z ^ (z >> 31)) % self.seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_every_n_seconds_one_is_sampled() {
        for seconds in [1, 2, 10, 3600] {
            let mut plan = Plan::new(Some(&format!("1/{seconds}")), 42);
            let cycles = 20;
            let (mut now, mut sampled) = (0, 0);
            while now < cycles * seconds * SECOND {
                let (wanted, until) = plan.at(now);
                assert!(until > now, "{seconds}: it goes on");
                sampled += if wanted { until - now } else { 0 };
                now = until;
            }
            assert_eq!(sampled, cycles * SECOND, "1 in {seconds}");
        }
    }

    #[test]
    fn which_second_it_is_changes() {
        let mut plan = Plan::new(Some("1/10"), 7);
        let places: std::collections::BTreeSet<u64> = (0..50)
            .map(|cycle| {
                plan.at(cycle * 10 * SECOND);
                plan.place
            })
            .collect();
        assert!(places.len() > 5, "{places:?}");
    }

    #[test]
    fn programs_that_start_together_are_not_sampled_together() {
        let first = (0..1000).filter(|seed| Plan::new(Some("1/2"), seed << 32).place == 0).count();
        assert!((400..600).contains(&first), "{first} of 1000");
    }

    #[test]
    fn what_is_not_one_in_some_number_stands_for_the_usual() {
        for value in [None, Some(""), Some("1/0"), Some("2/3"), Some("1/3601"), Some("always"), Some("1/-1")]
        {
            assert_eq!(Plan::new(value, 1).seconds, USUAL, "{value:?}");
        }
    }
}
