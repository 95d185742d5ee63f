//! How long a kernel usually takes, to tell those that were interrupted.
//!
//! Processes that share a device without MPS take turns of some milliseconds. A kernel that is running when its
//! process's turn ends goes on in the next, and its record spans the others' turns. So one that took much longer than
//! such kernels usually do is taken to have been interrupted, and to have run for as long as they do. That is an
//! inference: it misses kernels which are as long as turns, and takes those for interrupted whose work varies so much.

/// Kernels that are told apart, by what of their launches is known.
const ROOM: usize = 1024;
/// Launches of a kernel before anything is concluded.
const LEARNT: u32 = 8;
/// How much longer than twice the usual a kernel must have taken: a tenth of a millisecond, well below a turn.
const BEYOND: u64 = 100_000;

/// What is known of one kernel.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    key: u64,
    launches: u32,
    usual: u64,
}

/// Kernels by the remainders of their keys: one that comes upon another's place takes it over.
#[derive(Debug)]
pub(crate) struct Typical {
    known: Vec<Known>,
}

impl Default for Typical {
    fn default() -> Self {
        Self { known: vec![Known::default(); ROOM] }
    }
}

impl Typical {
    /// How long a kernel of this key ran, which took `nanos`; less than these if it was interrupted.
    pub(crate) fn ran(&mut self, key: u64, nanos: u64) -> u64 {
        let place = usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54).unwrap_or(0);
        let Some(known) = self.known.get_mut(place) else { return nanos };
        if known.key != key || known.launches == 0 {
            *known = Known { key, launches: 0, usual: nanos };
        }
        let interrupted =
            known.launches >= LEARNT && nanos > known.usual.saturating_mul(2).saturating_add(BEYOND);
        known.launches = known.launches.saturating_add(1);
        // Near the median: each launch moves it by a step, which shrinks at first.
        let far = known.launches < 64 && nanos < known.usual / 2;
        let part = if far { 2 } else { u64::from(1 + known.launches.min(63)) };
        let step = known.usual / part + 1;
        known.usual = if nanos > known.usual {
            known.usual.saturating_add(step.min(nanos - known.usual))
        } else {
            known.usual - step.min(known.usual - nanos)
        };
        if interrupted { known.usual.min(nanos) } else { nanos }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `taken` comes to if they are all of one kernel.
    fn ran(taken: impl IntoIterator<Item = u64>) -> u64 {
        let mut typical = Typical::default();
        taken.into_iter().map(|nanos| typical.ran(7, nanos)).sum()
    }

    #[test]
    fn kernels_that_span_others_turns_count_as_long_as_they_usually_take() {
        // 500 µs, every fourth of them across another's turn of 2 ms.
        let taken = (0..4000).map(|n| if n % 4 == 3 { 2_500_000 } else { 500_000 });
        let (found, true_sum) = (ran(taken), 4000 * 500_000);
        assert!(found.abs_diff(true_sum) * 100 < true_sum, "{found} for {true_sum}");
    }

    #[test]
    fn kernels_whose_time_varies_within_bounds_count_as_they_are() {
        let taken: Vec<u64> = (0..4000).map(|n| 400_000 + n * 97 % 400_000).collect();
        assert_eq!(ran(taken.iter().copied()), taken.iter().sum());
    }

    #[test]
    fn nothing_is_concluded_from_a_few_launches() {
        assert_eq!(ran([100, 5_000_000, 100]), 5_000_200);
    }

    #[test]
    fn a_first_launch_that_is_slow_is_soon_forgotten() {
        let taken = [200_000_000].into_iter().chain((0..200).map(|_| 50_000)).chain([2_050_000]);
        let found = ran(taken);
        assert!(found.abs_diff(200_000_000 + 201 * 50_000) < 50_000, "{found}");
    }
}
