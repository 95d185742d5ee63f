//! Whose turn it is: tests that measure time have the machine to themselves, the others share it.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// The machine, or a part of it, until dropped.
#[derive(Debug)]
pub enum Turn {
    /// Beside others.
    Shared(RwLockReadGuard<'static, ()>),
    /// No other test runs.
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Turn {
    /// Waits until no test needs the machine for itself.
    pub fn shared() -> Self {
        Self::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no other test runs.
    pub fn alone() -> Self {
        Self::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner))
    }
}
