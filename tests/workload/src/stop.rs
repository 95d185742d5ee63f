//! Ending: on SIGTERM or SIGINT, or when the time is up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// When a program ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End(Option<Instant>);

impl End {
    /// After `seconds`, or never if that is 0; and on a signal.
    pub(crate) fn after(seconds: f64) -> Self {
        let handler: extern "C" fn(libc::c_int) = stop;
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: the handler only stores to an atomic.
            unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        }
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Self(if time.is_zero() { None } else { Instant::now().checked_add(time) })
    }

    /// Whether it is over.
    pub(crate) fn reached(self) -> bool {
        STOPPED.load(Ordering::Relaxed) || self.0.is_some_and(|end| Instant::now() >= end)
    }

    /// Sleeps for `time`, or until the end.
    pub(crate) fn sleep(self, time: Duration) {
        let until = Instant::now() + time;
        while !self.reached() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
