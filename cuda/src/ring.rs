//! Engine activity from the driver's ring of utilisation samples, on devices without GPM.
//!
//! Each sample is the average over the driver's own period, between a sixth of a second and a second, and the
//! newest lags the present by up to one. A reading therefore ends at the newest sample's time and not at the
//! poll's: windows follow the counter's own boundaries, and no reading claims time that no sample covers. If
//! nothing new has come for two polling periods, a reading without a value covers the time until now.

use warpmeter_core::fact::{Discard, Level};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::time::{Interval, MonoNs, SECOND};

use crate::clock::Wall;
use crate::nvml::sys::RingSample;
use crate::sieve::Sieve;

/// No sample covers more than this, plus the jitter of its stamp.
const LONGEST: u64 = SECOND + SECOND / 4;

/// Samples closer than this are one sample, converted twice with a clock that was being adjusted.
const SAME: u64 = SECOND / 1000;

/// One reading's interval and what the ring said of it; no value where it said nothing.
pub(crate) type Piece = (Interval, Option<Level>);

/// The readings that follow `end`, in order and touching: none if nothing is known yet.
pub(crate) fn readings(
    end: MonoNs,
    samples: &[RingSample],
    wall: Wall,
    now: MonoNs,
    period: u64,
    sieve: &mut Sieve,
) -> Vec<Piece> {
    let mut fresh: Vec<(MonoNs, Option<Ppb>)> = Vec::with_capacity(samples.len());
    for sample in samples {
        let Some(at) = wall.mono(sample.at) else {
            sieve.discard(Discard::Clock);
            continue;
        };
        if at <= end.plus(SAME) {
            continue;
        }
        if sample.percent.is_none() {
            sieve.discard(Discard::Garbage);
        }
        let ratio = sample.percent.and_then(|percent| sieve.percent(percent));
        fresh.push((at, ratio));
    }
    fresh.sort_unstable();
    fresh.dedup_by_key(|(at, _)| *at);

    let mut pieces = Vec::new();
    let mut end = end;
    let mut stretch: Vec<(MonoNs, Ppb)> = Vec::new();
    let mut start = end;
    for (at, ratio) in fresh {
        // The driver may have overwritten samples: time that this one cannot cover stays unknown.
        let uncovered = at.since(end) > LONGEST;
        if uncovered || ratio.is_none() {
            pieces.extend(close(start, end, &mut stretch));
            start = end;
        }
        if let Some(ratio) = ratio {
            if uncovered {
                let from = at.minus(SECOND);
                pieces.extend(Interval::new(end, from).map(|during| (during, None)));
                start = from;
            }
            stretch.push((at, ratio));
        } else {
            pieces.extend(Interval::new(end, at).map(|during| (during, None)));
            start = at;
        }
        end = at;
    }
    pieces.extend(close(start, end, &mut stretch));
    if pieces.is_empty() && now.since(end) >= period.saturating_mul(2) {
        pieces.extend(Interval::new(end, now).map(|during| (during, None)));
    }
    pieces
}

fn close(start: MonoNs, end: MonoNs, stretch: &mut Vec<(MonoNs, Ppb)>) -> Option<Piece> {
    let samples = std::mem::take(stretch);
    if samples.is_empty() {
        return None;
    }
    Some((Interval::new(start, end)?, Some(Level::Samples(samples))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A ring sample `ms` after the start, where the wall clock shows the same.
    fn sample(ms: u64, percent: u64) -> RingSample {
        RingSample { at: ms * 1000, percent: Some(percent) }
    }

    fn at(ms: u64) -> MonoNs {
        MonoNs(ms * MS)
    }

    fn during(from: u64, to: u64) -> Interval {
        Interval::new(at(from), at(to)).unwrap()
    }

    fn level(samples: &[(u64, u32)]) -> Level {
        Level::Samples(samples.iter().map(|(ms, p)| (at(*ms), Ppb::percent(*p).unwrap())).collect())
    }

    fn run(end: u64, samples: &[RingSample], now: u64) -> (Vec<Piece>, usize) {
        let mut sieve = Sieve::default();
        let wall = Wall::at(at(now), now * MS);
        let pieces = readings(at(end), samples, wall, at(now), SECOND, &mut sieve);
        for pair in pieces.windows(2) {
            assert_eq!(pair[0].0.end(), pair[1].0.start(), "readings touch");
        }
        if let Some((first, _)) = pieces.first() {
            assert_eq!(first.start(), at(end));
        }
        (pieces, sieve.drain().len())
    }

    #[test]
    fn a_reading_ends_at_the_newest_sample() {
        let samples = [sample(10_500, 50), sample(10_166, 30), sample(10_000, 99)];
        let (pieces, discarded) = run(10_000, &samples, 10_900);
        assert_eq!(pieces, [(during(10_000, 10_500), Some(level(&[(10_166, 30), (10_500, 50)])))]);
        assert_eq!(discarded, 0, "a sample seen before is no fault");
    }

    #[test]
    fn a_silent_ring_is_unknown_after_two_periods_and_not_before() {
        assert_eq!(run(10_000, &[], 11_900).0, []);
        assert_eq!(run(10_000, &[], 12_000).0, [(during(10_000, 12_000), None)]);
    }

    #[test]
    fn time_that_no_sample_can_cover_is_unknown() {
        let (pieces, _) = run(10_000, &[sample(15_000, 40), sample(15_500, 60)], 15_600);
        assert_eq!(
            pieces,
            [
                (during(10_000, 14_000), None),
                (during(14_000, 15_500), Some(level(&[(15_000, 40), (15_500, 60)])))
            ]
        );
    }

    #[test]
    fn an_impossible_sample_leaves_only_its_own_stretch_unknown() {
        let (pieces, discarded) =
            run(10_000, &[sample(10_200, 1), sample(10_400, 200_000), sample(10_600, 3)], 10_700);
        assert_eq!(
            pieces,
            [
                (during(10_000, 10_200), Some(level(&[(10_200, 1)]))),
                (during(10_200, 10_400), None),
                (during(10_400, 10_600), Some(level(&[(10_600, 3)]))),
            ]
        );
        assert_eq!(discarded, 1);
    }

    #[test]
    fn stamps_from_the_future_are_left_out() {
        let (pieces, discarded) = run(10_000, &[sample(10_200, 1), sample(99_000, 5)], 10_700);
        assert_eq!((pieces.len(), discarded), (1, 1));
    }
}
