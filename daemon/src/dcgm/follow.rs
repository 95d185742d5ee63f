//! From values on a page to averages with an interval.
//!
//! The page has no times. What is known is when it was looked at, and whether it then showed what it had shown before.
//! A value that is new was collected between two looks; it is the exporter's average since it collected before, and
//! that was when the value before was new. So each exchange of values ends one interval and begins the next. An end is
//! set in the middle between the two looks, and is off by half of their distance at most; intervals touch, so that
//! errors do not add up.
//!
//! A value counts once two looks in a row have shown it: the first may have met a page that was half collected, and a
//! page that differs at every look has values that cover less than the time between two looks.

use warpmeter_core::time::{Interval, MonoNs};

use super::figures::Figures;

/// What is set, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// How often the exporter collects.
    pub interval: u64,
    /// How often its page is looked at.
    pub period: u64,
}

/// How a device's values behave over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// As they should.
    Well,
    /// They stay the same for longer than the exporter's interval: who would believe them?
    Stale,
    /// They are all 0 for long, and nothing else on the page moves that would show that they are collected.
    Silent,
    /// They differ at every look.
    Hasty,
}

/// One device's values.
#[derive(Debug)]
pub(super) struct Follow {
    shown: Figures,
    /// How many looks in a row have shown them.
    looks: u32,
    /// Since when they are shown, which is the end of the time that they cover; or when they were seen first.
    since: MonoNs,
    /// Whether that was an exchange.
    exchanged: bool,
    /// Where the time that they cover begins, if it is known.
    start: Option<MonoNs>,
    /// How many values in a row were shown once only.
    hasty: u32,
    /// What moves whenever the exporter collects, and when it moved last.
    beat: Beat,
    moved: Option<MonoNs>,
}

/// Energy and power, as the page shows them.
pub(super) type Beat = [Option<u64>; 2];

impl Follow {
    /// A device that is looked at for the first time, or for the first time after a gap. When its values were
    /// collected is not known.
    pub(super) const fn new(shown: Figures, beat: Beat, now: MonoNs) -> Self {
        let (exchanged, start, moved) = (false, None, None);
        Self { shown, looks: 1, since: now, exchanged, start, hasty: 0, beat, moved }
    }

    /// Looks again; the look before was at `before`. Gives figures and their interval, once both are known.
    pub(super) fn look(
        &mut self,
        shown: Figures,
        beat: Beat,
        before: MonoNs,
        now: MonoNs,
        pace: Pace,
    ) -> Option<(Interval, Figures)> {
        if beat != self.beat {
            (self.beat, self.moved) = (beat, Some(now));
        }
        if shown != self.shown {
            // What one look only has shown was a part of this, or cannot be placed: the time before it is this one's.
            if self.looks > 1 {
                self.start = self.exchanged.then_some(self.since);
                self.hasty = 0;
            } else {
                self.hasty = self.hasty.saturating_add(1);
            }
            let between = before.plus(now.since(before) / 2);
            (self.shown, self.since, self.exchanged, self.looks) = (shown, between, true, 1);
            return None;
        }
        self.looks = self.looks.saturating_add(1);
        if self.looks == 2 && self.exchanged {
            let longest = self.since.minus(pace.interval + 2 * pace.period);
            return Some((Interval::new(self.start?.max(longest), self.since)?, self.shown));
        }
        self.rest(now, pace)
    }

    /// A device at rest shows the same at each interval. Two of these without an exchange are one of rest, as long as
    /// the page is alive.
    fn rest(&mut self, now: MonoNs, pace: Pace) -> Option<(Interval, Figures)> {
        let sure = 2 * pace.interval + pace.period;
        if !self.shown.is_idle() || now.since(self.since) < sure || !self.alive(now, pace) {
            return None;
        }
        let start = self.since;
        (self.since, self.exchanged) = (start.plus(pace.interval), true);
        Some((Interval::new(start, self.since)?, self.shown))
    }

    /// Whether something on the page has moved within the last interval.
    fn alive(&self, now: MonoNs, pace: Pace) -> bool {
        self.moved.is_some_and(|moved| now.since(moved) <= pace.interval + 2 * pace.period)
    }

    /// How the values behave as of `now`.
    pub(super) fn manner(&self, now: MonoNs, pace: Pace) -> Manner {
        let overdue = now.since(self.since) > pace.interval + 2 * pace.period;
        match self.shown.is_idle() {
            _ if self.hasty >= 3 => Manner::Hasty,
            false if overdue => Manner::Stale,
            true if overdue && !self.alive(now, pace) => Manner::Silent,
            _ => Manner::Well,
        }
    }
}
