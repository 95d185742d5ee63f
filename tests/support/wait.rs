//! Waiting for what must come.

use std::time::{Duration, Instant};

/// After this long nothing that was to come will come.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Looks ten times a second or more until `look` sees something, and gives that.
///
/// # Panics
///
/// When it has seen nothing for [`PATIENCE`].
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
