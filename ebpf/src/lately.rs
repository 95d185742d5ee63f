//! Counts that never fall, as far as they have grown lately.

use std::collections::HashMap;

use warpmeter_core::time::SECOND;

/// For how long something that was left out is worth being told.
const LATELY: u64 = 60 * SECOND;

/// What counts had reached, and when they last grew.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    counts: HashMap<&'static str, (u64, u64)>,
}

impl Lately {
    /// Takes note of counts at a time in nanoseconds; the names of those that grew within the last minute.
    pub(crate) fn note(&mut self, now: u64, counts: &[(&'static str, u64)]) -> Vec<&'static str> {
        let mut grown = Vec::new();
        for (name, count) in counts {
            let (most, at) = self.counts.entry(name).or_insert((0, 0));
            if count > most {
                (*most, *at) = (*count, now);
            }
            if *most > 0 && now.saturating_sub(*at) < LATELY {
                grown.push(*name);
            }
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_once_is_told_for_a_minute_and_again_when_it_happens_again() {
        let mut lately = Lately::default();
        let mut told = |second: u64, count| lately.note(second * SECOND, &[("gaps", count)]).len();
        assert_eq!(told(1, 0), 0);
        assert_eq!(told(10, 3), 1);
        assert_eq!(told(69, 3), 1);
        assert_eq!(told(70, 3), 0, "it did not grow since");
        assert_eq!(told(500, 4), 1);
        assert_eq!(told(560, 4), 0);
    }
}
