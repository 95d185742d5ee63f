//! Utilisation by process: which stretch of time each of the driver's percentages stands for.
//!
//! The driver returns, for each process that did something, averages of its SM utilisation with a time each, and
//! promises no period. A sample stands for the time since the same process's sample before it, or since the
//! question before; at most [`longest`], because the driver's own period is at most a second and it may average
//! over all of ours; and, without a predecessor of its own, at least [`SHORTEST`], the driver's shortest period.

use std::collections::BTreeMap;

use warpmeter_core::fact::{Discard, ProcessSample};
use warpmeter_core::identity::HostPid;
use warpmeter_core::time::{Interval, MonoNs, SECOND};

use crate::clock::Wall;
use crate::nvml::sys::ProcessUtilization;
use crate::sieve::Sieve;

/// The driver's shortest sampling period.
const SHORTEST: u64 = SECOND / 6;

/// By then the driver has shown what it sampled: its longest period.
const LAG: u64 = SECOND;

/// Processes are forgotten when they have had no sample for this long.
const FORGET: u64 = 60 * SECOND;

/// What has been seen of one GPU's processes.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    /// Each process's newest sample.
    newest: BTreeMap<u32, MonoNs>,
    /// The newest sample of all, or the start: what the driver is asked for begins here.
    seen: MonoNs,
    /// What was promised to be complete so far.
    until: MonoNs,
}

impl Cursor {
    /// Starts at `now`: what was sampled before concerns nobody.
    pub(crate) const fn new(now: MonoNs) -> Self {
        Self { newest: BTreeMap::new(), seen: now, until: now }
    }

    /// What to ask the driver for: samples after this, in µs since 1970.
    pub(crate) fn since(&self, wall: Wall) -> u64 {
        wall.micros(self.seen)
    }

    /// The new samples among those that the driver returned, and the time up to which they are complete.
    pub(crate) fn take(
        &mut self,
        returned: &[ProcessUtilization],
        wall: Wall,
        now: MonoNs,
        period: u64,
        sieve: &mut Sieve,
    ) -> (MonoNs, Vec<ProcessSample>) {
        let asked_from = self.seen;
        let mut timed: Vec<(MonoNs, &ProcessUtilization)> = Vec::with_capacity(returned.len());
        for sample in returned {
            // Some drivers pad the list with empty entries.
            if sample.pid == 0 || sample.pid == u32::MAX {
                sieve.discard(Discard::Garbage);
                continue;
            }
            match wall.mono(sample.at) {
                Some(at) => timed.push((at, sample)),
                None => sieve.discard(Discard::Clock),
            }
        }
        timed.sort_by_key(|(at, sample)| (*at, sample.pid));

        let mut samples = Vec::with_capacity(timed.len());
        for (at, sample) in timed {
            let before = self.newest.get(&sample.pid).copied();
            // Microseconds converted with a clock that is being adjusted differ a little each time.
            if before.is_some_and(|before| at <= before.plus(SECOND / 1000)) || at <= asked_from.minus(LAG) {
                continue;
            }
            self.newest.insert(sample.pid, at);
            self.seen = self.seen.max(at);
            let Some(sm) = sieve.percent(u64::from(sample.sm)) else { continue };
            let start = start_of(at, before, asked_from, period);
            if let Some(during) = Interval::new(start, at) {
                samples.push(ProcessSample { pid: HostPid(sample.pid), during, sm });
            }
        }
        // A question never reaches further back than a driver's period before this one: else a process that wakes
        // up after an idle hour would be averaged over that hour.
        self.seen = self.seen.max(now.minus(LAG));
        self.until = self.until.max(self.seen);
        self.newest.retain(|_, at| now.since(*at) < FORGET);
        (self.until, samples)
    }
}

/// The longest stretch that a sample can stand for, when the driver is asked every `period`.
fn longest(period: u64) -> u64 {
    period.max(SECOND).saturating_add(SHORTEST)
}

fn start_of(at: MonoNs, before: Option<MonoNs>, asked_from: MonoNs, period: u64) -> MonoNs {
    let earliest = at.minus(longest(period));
    match before {
        Some(before) if before >= earliest => before,
        // Its last sample is long past: it did nothing until some time after the question before.
        Some(before) => asked_from.min(at.minus(SHORTEST)).max(earliest).max(before),
        None => asked_from.min(at.minus(SHORTEST)).max(earliest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pid, start and end in ms, percent.
    type Taken = (u32, u64, u64, u32);

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> MonoNs {
        MonoNs(ms * MS)
    }

    fn sample(pid: u32, ms: u64, sm: u32) -> ProcessUtilization {
        ProcessUtilization { pid, at: ms * 1000, sm }
    }

    fn take(cursor: &mut Cursor, now: u64, returned: &[ProcessUtilization]) -> (u64, Vec<Taken>, usize) {
        let mut sieve = Sieve::default();
        let wall = Wall::at(at(now), now * MS);
        let (until, samples) = cursor.take(returned, wall, at(now), SECOND, &mut sieve);
        let samples = samples
            .iter()
            .map(|s| (s.pid.0, s.during.start().0 / MS, s.during.end().0 / MS, s.sm.parts() / 10_000_000));
        (until.0 / MS, samples.collect(), sieve.drain().len())
    }

    #[test]
    fn samples_of_a_process_touch() {
        let mut cursor = Cursor::new(at(10_000));
        let (until, samples, _) = take(&mut cursor, 11_000, &[sample(1, 10_800, 40), sample(2, 10_600, 10)]);
        assert_eq!(samples, [(2, 10_000, 10_600, 10), (1, 10_000, 10_800, 40)]);
        assert_eq!(until, 10_800);
        let (_, samples, _) = take(&mut cursor, 12_000, &[sample(1, 11_700, 50), sample(2, 11_500, 20)]);
        assert_eq!(samples, [(2, 10_600, 11_500, 20), (1, 10_800, 11_700, 50)]);
    }

    #[test]
    fn several_samples_of_one_poll_follow_each_other() {
        let mut cursor = Cursor::new(at(10_000));
        let (_, samples, _) = take(&mut cursor, 11_000, &[sample(1, 10_400, 2), sample(1, 10_200, 1)]);
        assert_eq!(samples, [(1, 10_000, 10_200, 1), (1, 10_200, 10_400, 2)]);
    }

    #[test]
    fn a_sample_seen_before_is_not_taken_again() {
        let mut cursor = Cursor::new(at(10_000));
        take(&mut cursor, 11_000, &[sample(1, 10_800, 40)]);
        assert_eq!(take(&mut cursor, 11_500, &[sample(1, 10_800, 40)]).1, []);
    }

    #[test]
    fn without_a_predecessor_a_sample_has_the_drivers_shortest_period() {
        let mut cursor = Cursor::new(at(10_000));
        take(&mut cursor, 11_000, &[sample(1, 10_950, 40)]);
        let (_, samples, _) = take(&mut cursor, 12_000, &[sample(2, 11_000, 40)]);
        assert_eq!(samples, [(2, 10_833, 11_000, 40)]);
    }

    #[test]
    fn a_process_that_wakes_up_is_not_charged_for_its_sleep() {
        let mut cursor = Cursor::new(at(10_000));
        take(&mut cursor, 11_000, &[sample(1, 10_800, 40)]);
        for second in 12..40 {
            take(&mut cursor, second * 1000, &[]);
        }
        let (_, samples, _) = take(&mut cursor, 40_000, &[sample(1, 39_600, 90)]);
        assert_eq!(samples, [(1, 38_433, 39_600, 90)]);
    }

    #[test]
    fn no_samples_are_no_evidence_but_time_goes_on() {
        let mut cursor = Cursor::new(at(10_000));
        assert_eq!(take(&mut cursor, 10_500, &[]), (10_000, vec![], 0));
        assert_eq!(take(&mut cursor, 12_500, &[]), (11_500, vec![], 0));
    }

    #[test]
    fn impossible_values_and_times_are_counted() {
        let mut cursor = Cursor::new(at(10_000));
        let returned = [
            sample(1, 10_500, 101),
            sample(2, 99_000, 5),
            sample(0, 0, 0),
            sample(3, 10_500, u32::MAX),
            sample(4, 10_600, 7),
        ];
        let (_, samples, reasons) = take(&mut cursor, 11_000, &returned);
        assert_eq!(samples, [(4, 10_000, 10_600, 7)]);
        assert_eq!(reasons, 4, "range, clock, garbage, sentinel");
    }
}
