//! What a monitor counted, on this machine's clock.
//!
//! Samples bear the device's own time. It is put on `CLOCK_MONOTONIC` by the one thing that is known: no sample ends
//! after it was decoded. The smallest distance that was seen is taken for the clocks', and may grow by a tenth of a
//! thousandth, since clocks drift. So samples lie late by less than one of them is long.
//!
//! Time that was not sampled is a gap, and a stretch with any part of a gap in it has no average.

use std::collections::VecDeque;

use warpmeter_core::fact::{Discard, Level, Pipes, Volume};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::time::{Interval, MonoNs, SECOND};

use super::{DeviceNs, Now};
use crate::gpm::{Levels, Links};
use crate::sieve::Sieve;

/// Distances between the clocks that differ by more are not drift: the device's clock was set.
const JUMP: u64 = 2 * SECOND;
/// Nobody takes averages any more when so many wait.
const MOST: usize = 1 << 15;

/// The values of one sample, each absent if it could not be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) sm_active: Option<Ppb>,
    pub(super) sm_occupied: Option<Ppb>,
    pub(super) tensor: Option<Ppb>,
    pub(super) dram: Option<Ppb>,
    /// Bytes read and written over PCIe.
    pub(super) pcie: Option<(u64, u64)>,
}

/// One sample on the device's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) start: DeviceNs,
    pub(super) end: DeviceNs,
    pub(super) counted: Counted,
}

/// A stretch, and what was counted in it; nothing in a gap.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: MonoNs,
    end: MonoNs,
    counted: Option<Counted>,
}

/// Samples that no average has been taken of yet.
#[derive(Debug)]
pub(crate) struct Samples {
    pieces: VecDeque<Piece>,
    /// An instant on both clocks.
    anchor: Option<(DeviceNs, MonoNs)>,
    /// Where the last sample ended.
    last: Option<DeviceNs>,
    /// Bytes read and written over PCIe so far, as far as known.
    pcie: Option<(u64, u64)>,
}

impl Default for Samples {
    fn default() -> Self {
        let mut samples = Self { pieces: VecDeque::new(), anchor: None, last: None, pcie: None };
        samples.gap();
        samples
    }
}

impl Samples {
    /// From the last sample on nothing is known, until the next.
    pub(super) fn gap(&mut self) {
        self.last = None;
        let start = match self.pieces.back() {
            Some(Piece { counted: None, end: MonoNs(u64::MAX), .. }) => return,
            Some(piece) => piece.end,
            None => MonoNs(0),
        };
        self.pieces.push_back(Piece { start, end: MonoNs(u64::MAX), counted: None });
    }

    /// Takes in what was decoded by `now`, in its order.
    pub(super) fn take_in(&mut self, raw: &[Raw], now: Now, sieve: &mut Sieve) {
        let Some(newest) = raw.last() else { return };
        self.align(newest.end, now);
        for sample in raw {
            if self
                .last
                .is_some_and(|last| sample.start > last.saturating_add((sample.end - sample.start) / 8))
            {
                // Some are missing in between, and nobody said so.
                sieve.discard(Discard::Overflow);
                self.gap();
            }
            self.push(sample);
        }
        if self.pieces.len() > MOST {
            self.pieces.clear();
            self.gap();
        }
    }

    fn push(&mut self, sample: &Raw) {
        let (start, end) = (self.mono(sample.start), self.mono(sample.end));
        if let Some(gap) = self.pieces.back_mut().filter(|piece| piece.end == MonoNs(u64::MAX)) {
            // A gap stays one, however short the clocks make it.
            gap.end = start.max(gap.start.plus(1));
        }
        self.pieces.push_back(Piece { start, end, counted: Some(sample.counted) });
        self.last = Some(sample.end);
        if let Some((read, written)) = sample.counted.pcie {
            let (total_read, total_written) = self.pcie.get_or_insert_default();
            *total_read = total_read.saturating_add(read);
            *total_written = total_written.saturating_add(written);
        }
    }

    /// Learns where the clocks stand from a sample that had ended by `now`.
    fn align(&mut self, end: DeviceNs, now: Now) {
        let Some((device, mono)) = self.anchor else {
            self.anchor = Some((end, now));
            return;
        };
        let expected = self.mono(end);
        let elapsed = end.saturating_sub(device);
        if expected > now || now.since(expected) > JUMP {
            if expected.since(now).max(now.since(expected)) > JUMP {
                self.gap();
            }
            self.anchor = Some((end, now));
        } else {
            let drift = now.since(expected).min(elapsed / 10_000);
            self.anchor = Some((end, mono.plus(elapsed).plus(drift)));
        }
    }

    /// The device's time on this machine's clock.
    fn mono(&self, at: DeviceNs) -> MonoNs {
        match self.anchor {
            Some((device, mono)) if at >= device => mono.plus(at - device),
            Some((device, mono)) => mono.minus(device - at),
            None => MonoNs(0),
        }
    }

    /// Averages over a stretch, as time in which something was active of all time. Forgets what is before its end.
    ///
    /// A quantity is absent if a sample in the stretch lacks it; all are if any of it is in a gap, or less than three
    /// quarters of it are sampled yet.
    pub(crate) fn over(&mut self, during: Interval) -> Levels {
        let overlap = |piece: &Piece| Interval::new(piece.start, piece.end)?.overlap(during);
        let mut covered: u64 = 0;
        let mut sums = [Some(0_u64); 4];
        let mut whole = true;
        for piece in &self.pieces {
            let Some(part) = overlap(piece) else { continue };
            let Some(counted) = piece.counted else {
                whole = false;
                continue;
            };
            covered += part.nanos();
            let values = [counted.sm_active, counted.sm_occupied, counted.tensor, counted.dram];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.zip(value).map(|(sum, value)| sum + value.of(part.nanos()));
            }
        }
        while self.pieces.front().is_some_and(|piece| piece.end <= during.end()) {
            self.pieces.pop_front();
        }
        if !whole || covered / 3 < during.nanos() / 4 {
            return Levels::default();
        }
        let level = |sum: Option<u64>| sum.map(|active| Level::Cycles { active, elapsed: covered });
        let [sm_active, sm_occupied, tensor, dram] = sums.map(level);
        // The pass has no room for the other pipes.
        Levels { engine: None, sm_active, sm_occupied, tensor, dram, pipes: Pipes::default() }
    }

    /// What went over PCIe since the first sample.
    pub(crate) fn links(&self) -> Links {
        Links {
            pcie_receive: self.pcie.map(|(read, _)| Volume::Total(read)),
            pcie_transmit: self.pcie.map(|(_, written)| Volume::Total(written)),
            ..Links::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// The device's clock is ahead by this.
    const AHEAD: u64 = 5_000_000 * MS;

    fn counted(percent: u32) -> Counted {
        Counted { sm_active: Ppb::percent(percent), pcie: Some((100, 10)), ..Counted::default() }
    }

    /// Samples of 20 ms from one time to another, in milliseconds.
    fn raw(from: u64, to: u64, percent: u32) -> Vec<Raw> {
        let sample =
            |n: u64| Raw { start: AHEAD + n * MS, end: AHEAD + (n + 20) * MS, counted: counted(percent) };
        (from..to).step_by(20).map(sample).collect()
    }

    fn take_in(samples: &mut Samples, raw: &[Raw], now: u64) -> usize {
        let mut sieve = Sieve::default();
        samples.take_in(raw, MonoNs(now * MS), &mut sieve);
        sieve.drain().len()
    }

    fn active(samples: &mut Samples, from: u64, to: u64) -> Option<f64> {
        let during = Interval::new(MonoNs(from * MS), MonoNs(to * MS)).unwrap();
        match samples.over(during).sm_active {
            Some(Level::Cycles { active, elapsed }) => {
                #[expect(clippy::cast_precision_loss, reason = "compared roughly")]
                let share = active as f64 / elapsed as f64;
                Some((share * 1000.0).round() / 10.0)
            }
            None => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stretch_has_the_average_of_its_samples_wherever_it_is_cut() {
        let mut samples = Samples::default();
        assert_eq!(take_in(&mut samples, &raw(1000, 2000, 100), 2000), 0);
        assert_eq!(take_in(&mut samples, &raw(2000, 3000, 50), 3000), 0);
        assert_eq!(active(&mut samples, 1000, 1510), Some(100.0));
        assert_eq!(active(&mut samples, 1510, 2510), Some(74.5));
        assert_eq!(active(&mut samples, 2510, 3000), Some(50.0));
    }

    #[test]
    fn samples_that_were_decoded_late_are_put_where_earlier_ones_said() {
        let mut samples = Samples::default();
        take_in(&mut samples, &raw(1000, 2000, 100), 2000);
        // The next round comes 15 ms after its newest sample ended.
        take_in(&mut samples, &raw(2000, 3000, 0), 3015);
        assert_eq!(active(&mut samples, 1000, 2000), Some(100.0));
        assert_eq!(active(&mut samples, 2000, 2990), Some(0.0));
    }

    #[test]
    fn the_first_distance_is_mended_by_the_first_that_is_shorter() {
        let mut samples = Samples::default();
        take_in(&mut samples, &raw(1000, 2000, 100), 2019);
        take_in(&mut samples, &raw(2000, 3000, 0), 3000);
        assert_eq!(samples.mono(AHEAD + 3000 * MS), MonoNs(3000 * MS));
        // Of the overlap, nobody is counted twice.
        assert!(active(&mut samples, 1100, 2000).unwrap() > 97.0);
    }

    #[test]
    fn before_the_first_sample_and_after_the_last_nothing_is_known() {
        let mut samples = Samples::default();
        take_in(&mut samples, &raw(1000, 2000, 100), 2000);
        assert_eq!(active(&mut samples, 900, 1900), None, "its first tenth was not sampled");
        assert_eq!(active(&mut samples, 1900, 2020), Some(100.0), "the newest sample is not there yet");
        assert_eq!(active(&mut samples, 2020, 3000), None);
    }

    #[test]
    fn a_stretch_with_a_gap_in_it_is_unknown_and_its_neighbours_are_not() {
        let mut samples = Samples::default();
        take_in(&mut samples, &raw(1000, 2000, 100), 2000);
        samples.gap();
        take_in(&mut samples, &raw(2040, 4000, 50), 4000);
        assert_eq!(active(&mut samples, 1000, 1900), Some(100.0));
        assert_eq!(active(&mut samples, 1900, 2900), None);
        assert_eq!(active(&mut samples, 2900, 3900), Some(50.0));
    }

    #[test]
    fn samples_that_do_not_touch_have_a_gap_between_them_that_is_counted() {
        let mut samples = Samples::default();
        take_in(&mut samples, &raw(1000, 2000, 100), 2000);
        assert_eq!(take_in(&mut samples, &raw(2060, 3000, 100), 3000), 1);
        assert_eq!(active(&mut samples, 1500, 2500), None);
    }

    #[test]
    fn a_gap_that_lasts_is_one_for_every_stretch() {
        let mut samples = Samples::default();
        take_in(&mut samples, &raw(1000, 2000, 100), 2000);
        samples.gap();
        for from in [2000, 3000, 4000] {
            assert_eq!(active(&mut samples, from, from + 1000), None);
            samples.gap();
        }
        take_in(&mut samples, &raw(5500, 7000, 20), 7000);
        assert_eq!(active(&mut samples, 5000, 6000), None);
        assert_eq!(active(&mut samples, 6000, 7000), Some(20.0));
    }

    #[test]
    fn a_device_clock_that_is_set_makes_a_gap_and_nothing_worse() {
        for jump in [60_000 * MS, 0] {
            let mut samples = Samples::default();
            take_in(&mut samples, &raw(100_000, 101_000, 100), 101_000);
            let shift = |sample: Raw| Raw {
                start: sample.start.wrapping_add(jump).wrapping_sub(30_000 * MS),
                end: sample.end.wrapping_add(jump).wrapping_sub(30_000 * MS),
                ..sample
            };
            let after: Vec<Raw> = raw(101_000, 103_000, 50).into_iter().map(shift).collect();
            take_in(&mut samples, &after, 103_000);
            assert_eq!(active(&mut samples, 100_500, 101_500), None, "{jump}");
            assert_eq!(active(&mut samples, 101_500, 102_500), Some(50.0), "{jump}");
        }
    }

    #[test]
    fn a_value_that_one_sample_lacks_is_unknown_for_its_stretch_only() {
        let mut samples = Samples::default();
        let mut raw = raw(1000, 3000, 40);
        raw[10].counted.sm_active = None;
        take_in(&mut samples, &raw, 3000);
        assert_eq!(active(&mut samples, 1000, 2000), None);
        assert_eq!(active(&mut samples, 2000, 3000), Some(40.0));
    }

    #[test]
    fn traffic_adds_up_over_gaps_and_is_unknown_before_the_first_sample() {
        let mut samples = Samples::default();
        assert_eq!(samples.links().pcie_receive, None);
        take_in(&mut samples, &raw(1000, 2000, 0), 2000);
        samples.gap();
        take_in(&mut samples, &raw(2500, 3500, 0), 3500);
        let links = samples.links();
        assert_eq!(links.pcie_receive, Some(Volume::Total(10_000)));
        assert_eq!(links.pcie_transmit, Some(Volume::Total(1_000)));
    }

    #[test]
    fn whoever_never_takes_averages_does_not_fill_the_memory() {
        let mut samples = Samples::default();
        for round in 0..1000 {
            take_in(&mut samples, &raw(round * 1000, (round + 1) * 1000, 0), (round + 1) * 1000);
        }
        assert!(samples.pieces.len() <= MOST);
    }
}
