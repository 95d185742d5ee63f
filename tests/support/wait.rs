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

/// How often something is tried that other programs of the machine may spoil by what they do to time.
const ATTEMPTS: usize = 3;

/// Tries until something holds once: what is wrong is so each time.
///
/// # Panics
///
/// When it never did.
pub fn attempts(mut holds: impl FnMut() -> Result<(), String>) {
    let mut wrong = Vec::new();
    while wrong.len() < ATTEMPTS
        && let Err(how) = holds()
    {
        wrong.push(how);
    }
    assert!(wrong.len() < ATTEMPTS, "{wrong:#?}");
}
