//! Whether the pipeline moves: it beats once a round, readers ask how long ago that was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A sign of life that one thread gives and others read. Clones share it.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    started: Instant,
    /// Nanoseconds from `started` to the last beat.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// Starts with a beat now.
    pub fn start() -> Self {
        Self { started: Instant::now(), last: Arc::default() }
    }

    /// One whose last beat was `age` ago.
    #[cfg(test)]
    pub(crate) fn aged(age: Duration) -> Self {
        Self { started: Instant::now().checked_sub(age).unwrap(), last: Arc::default() }
    }

    /// Beats.
    pub fn beat(&self) {
        // The only datum is the number itself, so it orders nothing else.
        self.last.store(nanos(self.started.elapsed()), Ordering::Relaxed);
    }

    /// Time since the last beat.
    pub fn age(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_nanos(self.last.load(Ordering::Relaxed)))
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Nanoseconds of `time`: 64 bits hold 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
