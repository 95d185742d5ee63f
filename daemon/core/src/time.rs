//! One timeline: nanoseconds of `CLOCK_MONOTONIC`, in half-open intervals that are never empty.

use serde::{Deserialize, Serialize};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// A point on the node's `CLOCK_MONOTONIC`, in nanoseconds. Adapters convert other clocks at the edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// `self + nanos`, at most the end of the timeline (584 years).
    #[must_use]
    pub const fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// `self - nanos`, at least the start of the timeline.
    #[must_use]
    pub const fn minus(self, nanos: u64) -> Self {
        Self(self.0.saturating_sub(nanos))
    }

    /// Nanoseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A half-open stretch of time `[start, end)` with `start < end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(MonoNs, MonoNs)", into = "(MonoNs, MonoNs)")]
pub struct Interval {
    start: MonoNs,
    end: MonoNs,
}

/// A pair of times that is not an interval, because it is empty or runs backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an interval must end after it starts, got {start} to {end} ns")]
pub struct EmptyInterval {
    start: u64,
    end: u64,
}

impl TryFrom<(MonoNs, MonoNs)> for Interval {
    type Error = EmptyInterval;

    fn try_from((start, end): (MonoNs, MonoNs)) -> Result<Self, EmptyInterval> {
        Self::new(start, end).ok_or(EmptyInterval { start: start.0, end: end.0 })
    }
}

impl From<Interval> for (MonoNs, MonoNs) {
    fn from(interval: Interval) -> Self {
        (interval.start, interval.end)
    }
}

impl Interval {
    /// `[start, end)`, or nothing if that would be empty.
    pub fn new(start: MonoNs, end: MonoNs) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }

    /// The first instant inside.
    pub const fn start(self) -> MonoNs {
        self.start
    }

    /// The first instant after.
    pub const fn end(self) -> MonoNs {
        self.end
    }

    /// Its length in nanoseconds, at least 1.
    pub const fn nanos(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// What `self` and `other` have in common.
    pub fn overlap(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Whether `at` lies inside.
    pub fn contains(self, at: MonoNs) -> bool {
        self.start <= at && at < self.end
    }
}
