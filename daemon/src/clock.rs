//! The clocks of this node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use warpmeter_core::time::{MonoNs, SECOND};

/// `CLOCK_MONOTONIC` now.
pub fn now() -> MonoNs {
    MonoNs(read(ClockId::Monotonic))
}

/// The CPU time of this thread since its start, in nanoseconds.
pub fn spent() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Wall clock now, in nanoseconds since 1970; 0 before that.
pub fn wall() -> u64 {
    read(ClockId::Realtime)
}

/// Sleeps for `wait`, or until `stop` is set: it is looked at twenty times a second.
pub fn pause(wait: Duration, stop: &AtomicBool) {
    let until = Instant::now() + wait;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50).min(wait));
    }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
