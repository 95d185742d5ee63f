//! What a program does with a device.

use crate::{MS, US};

/// A program: steps of kernels, with a wait for them or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Kernels of a step; 0 for one that never asks for anything.
    pub kernels: u32,
    /// Nanoseconds of each.
    pub kernel: u64,
    /// The part of the device's SMs that each takes, in thousandths.
    pub sm: u32,
    /// Whether a step waits for its kernels.
    pub waits: bool,
    /// Nanoseconds from a step's end to the next: at random between half of it and one and a half.
    pub pause: u64,
    /// Nanoseconds of work and of silence in turns; none for work all the time.
    pub bursts: Option<(u64, u64)>,
    /// When it begins.
    pub begins: u64,
    /// When it is killed, if it is.
    pub dies: Option<u64>,
}

impl Program {
    /// One that always has work: the next step follows the last at once.
    pub const fn hog() -> Self {
        Self {
            kernels: 4,
            kernel: 900 * US,
            sm: 900,
            waits: true,
            pause: 0,
            bursts: None,
            begins: 0,
            dies: None,
        }
    }

    /// One whose kernels take about such a part of the time, in percent, if it is alone: steps of 50 ms.
    pub const fn duty(percent: u64) -> Self {
        let step = 50 * MS;
        let busy = step / 100 * percent;
        Self { kernels: 10, kernel: busy / 10, pause: step - busy, ..Self::hog() }
    }

    /// One that has a context and asks for nothing.
    pub const fn silent() -> Self {
        Self { kernels: 0, ..Self::hog() }
    }

    /// The same, without waiting for its kernels: one each `period` nanoseconds.
    pub const fn run_ahead(period: u64, kernel: u64) -> Self {
        Self { kernels: 1, kernel, waits: false, pause: period, ..Self::hog() }
    }

    /// The same, in bursts.
    #[must_use]
    pub const fn in_bursts(self, on: u64, off: u64) -> Self {
        Self { bursts: Some((on, off)), ..self }
    }

    /// The same, killed at `at`.
    #[must_use]
    pub const fn until(self, at: u64) -> Self {
        Self { dies: Some(at), ..self }
    }

    /// The same, begun at `at`.
    #[must_use]
    pub const fn from(self, at: u64) -> Self {
        Self { begins: at, ..self }
    }

    /// The same, with kernels that take such a part of the SMs, in thousandths.
    #[must_use]
    pub const fn wide(self, sm: u32) -> Self {
        Self { sm, ..self }
    }

    /// When it may work next, from `now` on.
    pub fn awake(&self, now: u64) -> u64 {
        let Some((on, off)) = self.bursts else { return now };
        let (round, phase) = (now / (on + off), now % (on + off));
        if phase < on { now } else { (round + 1) * (on + off) }
    }
}
