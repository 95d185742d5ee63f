//! For how long any of some intervals lasted, when they come in no strict order.
//!
//! Intervals that touch are kept as one, and the youngest of them are kept apart, so that one which comes later than
//! others that began after it adds only what is new. There is room for so many; when it is full, the older half is
//! settled. Of an interval that reaches back beyond what is settled, only the rest can be told from what was counted
//! already: the part before is counted as late, and not as time.

/// Intervals that are kept: 128 KiB.
const ROOM: usize = 8192;

/// A union of intervals of nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Union {
    /// Disjoint, in order, with time between each and the next.
    kept: Vec<(u64, u64)>,
    /// All before this is settled.
    settled: u64,
    /// The length of the union.
    pub(crate) total: u64,
    /// What came too late.
    pub(crate) late: u64,
}

impl Union {
    /// Adds an interval; one that ends before it starts, or then, adds nothing.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        let from = start.max(self.settled);
        if from > start {
            self.late += from.min(end) - start;
        }
        if from >= end {
            return;
        }
        if self.kept.last().is_none_or(|last| last.1 < from) {
            self.total += end - from;
            self.kept.push((from, end));
        } else {
            self.merge(from, end);
        }
        if self.kept.len() > ROOM {
            self.settle();
        }
    }

    /// Adds an interval that may touch others.
    fn merge(&mut self, start: u64, end: u64) {
        let first = self.kept.partition_point(|kept| kept.1 < start);
        let after = self.kept.partition_point(|kept| kept.0 <= end);
        let Some(touched) = self.kept.get(first..after) else { return };
        let counted: u64 = touched.iter().map(|kept| kept.1 - kept.0).sum();
        let whole = (
            touched.first().map_or(start, |kept| kept.0.min(start)),
            touched.last().map_or(end, |kept| kept.1.max(end)),
        );
        self.total += whole.1 - whole.0 - counted;
        self.kept.splice(first..after, [whole]);
    }

    /// Settles the older half.
    fn settle(&mut self) {
        let half = self.kept.len() / 2;
        self.settled = self.kept.get(half - 1).map_or(self.settled, |kept| kept.1);
        self.kept.drain(..half);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(intervals: &[(u64, u64)]) -> Union {
        let mut union = Union::default();
        for &(start, end) in intervals {
            union.add(start, end);
        }
        union
    }

    #[test]
    fn overlapping_time_counts_once() {
        assert_eq!(of(&[(0, 10), (5, 15), (20, 30), (14, 21), (2, 3)]).total, 30);
        assert_eq!(of(&[(0, 10), (10, 20)]).kept, [(0, 20)], "what touches is one");
        assert_eq!(of(&[(5, 5), (6, 4)]).total, 0);
    }

    #[test]
    fn time_that_comes_too_late_is_said_and_not_counted_twice() {
        let mut union = Union::default();
        for at in 0..=ROOM as u64 {
            union.add(at * 10, at * 10 + 5);
        }
        let settled = union.settled;
        assert!(settled > 0 && union.kept.len() <= ROOM);
        let before = union.total;
        union.add(0, settled + 2);
        assert_eq!(union.late, settled);
        assert_eq!(union.total, before + 2, "what is new is counted");
    }

    proptest! {
        #[test]
        fn it_is_the_number_of_instants_in_any_interval(
            intervals in prop::collection::vec((0_u64..200, 0_u64..40), 0..60),
        ) {
            let intervals: Vec<_> = intervals.iter().map(|&(start, length)| (start, start + length)).collect();
            let count = (0..300).filter(|&at| intervals.iter().any(|&(start, end)| start <= at && at < end)).count();
            let union = of(&intervals);
            prop_assert_eq!(union.total, count as u64);
            prop_assert_eq!(union.kept.iter().map(|kept| kept.1 - kept.0).sum::<u64>(), union.total);
        }
    }
}
