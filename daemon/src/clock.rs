//! The clocks of this node.

use rustix::time::{ClockId, clock_gettime};
use warpmeter_core::time::{MonoNs, SECOND};

/// `CLOCK_MONOTONIC` now.
pub fn now() -> MonoNs {
    MonoNs(read(ClockId::Monotonic))
}

/// Wall clock now, in nanoseconds since 1970; 0 before that.
pub fn wall() -> u64 {
    read(ClockId::Realtime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
