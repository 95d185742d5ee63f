//! Letting go of the driver, and taking it back.
//!
//! A driver can be unloaded only while nobody has it open. `release` ends the `nvidia` process and keeps it away
//! until `resume`, or until a time that was set with it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whether the driver may be used, and whether it is.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    released: Option<Released>,
    in_use: [bool; 2],
}

/// What is let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The driver, which the `nvidia` process has open.
    Driver,
    /// The libraries, which the `bpf` process probes.
    Libraries,
}

impl State {
    fn open(&mut self) -> bool {
        let over = |released: Released| released.until.is_some_and(|until| until <= Instant::now());
        if self.released.is_some_and(over) {
            self.released = None;
        }
        self.released.is_none()
    }
}

#[derive(Debug, Clone, Copy)]
struct Released {
    until: Option<Instant>,
}

impl Gate {
    /// Asks for the driver to be let go of, for good or for a while, and waits at most `patience` until it is.
    /// False if it is still in use then: a process in a driver call that does not return cannot be ended.
    pub fn release(&self, duration: Option<Duration>, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        // A time beyond what the clock can tell is for good.
        let until = duration.and_then(|duration| Instant::now().checked_add(duration));
        state.released = Some(Released { until });
        self.changed.notify_all();
        while state.in_use != [false; 2] {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            else {
                return false;
            };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Lets the driver be used again.
    pub fn resume(&self) {
        self.lock().released = None;
        self.changed.notify_all();
    }

    /// Whether the driver may be used now. A release that was for a while ends here.
    pub fn open(&self) -> bool {
        self.lock().open()
    }

    /// Takes a part into use, if it may be used: in one step, so that no release falls between.
    pub(crate) fn enter(&self, part: Part) -> bool {
        let mut state = self.lock();
        let open = state.open();
        state.in_use[part as usize] |= open;
        open
    }

    /// Nobody has the part open any more.
    pub(crate) fn leave(&self, part: Part) {
        self.lock().in_use[part as usize] = false;
        self.changed.notify_all();
    }

    /// No invariant spans two fields, so a panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_waits_until_the_driver_is_let_go_of() {
        let gate = Gate::default();
        assert!(gate.open());
        assert!(gate.enter(Part::Driver));
        assert!(!gate.release(None, Duration::from_millis(20)), "somebody still has it");
        assert!(!gate.open());
        gate.leave(Part::Driver);
        assert!(!gate.enter(Part::Driver), "nobody takes it into use before it is resumed");
        gate.resume();
        assert!(gate.enter(Part::Driver));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gate.release(None, Duration::from_secs(30)));
            gate.leave(Part::Driver);
            assert!(waits.join().unwrap());
        });
        gate.resume();
        assert!(gate.open());
    }

    #[test]
    fn a_release_waits_for_every_part() {
        let gate = Gate::default();
        assert!(gate.enter(Part::Driver) && gate.enter(Part::Libraries));
        gate.leave(Part::Driver);
        assert!(!gate.release(None, Duration::ZERO));
        gate.leave(Part::Libraries);
        assert!(gate.release(None, Duration::ZERO));
    }

    #[test]
    fn a_release_for_longer_than_time_is_for_good() {
        let gate = Gate::default();
        assert!(gate.release(Some(Duration::MAX), Duration::ZERO));
        assert!(!gate.open());
    }

    #[test]
    fn a_release_for_a_while_ends_by_itself() {
        let gate = Gate::default();
        assert!(gate.release(Some(Duration::ZERO), Duration::ZERO));
        assert!(gate.open());
    }
}
