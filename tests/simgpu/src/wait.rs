//! Waiting for the device: spinning, as drivers do by default, or sleeping.

use std::time::Duration;

use crate::Node;
use crate::clock;
use crate::layout::Shared;

/// Longest sleep or spin without asking again.
const LONGEST: u64 = 2_000_000;
/// Pause between two questions when nothing is known about the time left.
const PAUSE: u64 = 3_000;

/// Waits until `due` returns `None`. It is asked under the lock, and otherwise returns a lower bound on the time
/// left; the lock is free between two questions.
pub fn wait_until(node: &Node, sleep: bool, mut due: impl FnMut(&mut Shared, u64) -> Option<u64>) {
    loop {
        let asked;
        let left = {
            let mut guard = node.lock();
            asked = guard.now;
            due(&mut guard, asked)
        };
        let Some(left) = left else { return };
        let left = left.clamp(PAUSE, LONGEST);
        if sleep {
            std::thread::sleep(Duration::from_nanos(left.max(20_000)));
        } else {
            while clock::mono() < asked + left {
                std::hint::spin_loop();
            }
        }
    }
}
