//! The two clocks of the simulator. Everything else is told what time it is.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MILLI: u64 = 1_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn mono() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// `CLOCK_REALTIME` in nanoseconds.
pub fn real() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

fn nanos(t: Timespec) -> u64 {
    t.tv_sec.unsigned_abs() * SECOND + t.tv_nsec.unsigned_abs()
}
