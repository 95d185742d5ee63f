//! The kernel's clocks, and the start time of a process on the one that the daemon uses.

use rustix::time::{ClockId, clock_gettime};
use warpmeter_core::time::{MonoNs, SECOND};

/// Nanoseconds of a tick of `/proc`: 1/100 s on every architecture that has NVIDIA drivers, whatever the kernel's
/// own rate.
const TICK: u64 = SECOND / 100;

/// An instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// `CLOCK_MONOTONIC`.
    pub now: MonoNs,
    /// How much `CLOCK_BOOTTIME` is ahead, because the machine was suspended; whole ticks, in nanoseconds, so that
    /// every reader converts a start time to the same nanosecond.
    pub asleep: u64,
}

impl Clock {
    pub(super) fn read() -> Self {
        let (boot, now) = (nanos(ClockId::Boottime), nanos(ClockId::Monotonic));
        let asleep = (boot.saturating_sub(now) + TICK / 2) / TICK * TICK;
        Self { now: MonoNs(now), asleep }
    }

    /// The instant `ticks` after boot.
    pub(super) fn started(self, ticks: u64) -> MonoNs {
        MonoNs(ticks.saturating_mul(TICK).saturating_sub(self.asleep))
    }
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    // Neither clock is ever before boot.
    seconds.unwrap_or(0).saturating_mul(SECOND).saturating_add(nanos.unwrap_or(0))
}
