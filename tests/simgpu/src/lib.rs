//! A simulated GPU node: the device model behind the simulated NVML and CUDA driver libraries.
//!
//! A node is a directory: a state file that every process maps, device files, and the oracle's log. [`create`]
//! makes one from a [`Scenario`]; the libraries find it through `SIMGPU_STATE`. See `README.md` beside this crate.
//!
//! One call's way: a library's entry takes the lock ([`Node::lock`]), the model advances to the time read then
//! ([`layout::Shared::advance`]), and the call reads or changes what it finds.
#![allow(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "table indexes come from the tables themselves; a test instrument may stop on a broken one"
)]

pub mod clock;
mod create;
mod error;
mod fault;
mod install;
pub mod kernel;
pub mod layout;
mod model;
mod monitor;
mod node;
mod oracle;
pub mod preset;
mod process;
pub mod queue;
mod sample;
pub mod scenario;
pub mod text;
pub mod trace;
mod turn;
pub mod wait;

use std::path::Path;

pub use create::create;
pub use error::{Error, Refused};
pub use fault::hash;
pub use install::install_libraries;
pub use node::{Guard, Node, ORACLE_FILE, STATE_VARIABLE};
pub use preset::Model;
pub use process::Process;
pub use queue::StreamRef;
pub use sample::percent;
pub use scenario::{Fault, FaultKind, Scenario};

/// Advances the node in `dir` to now and completes its oracle log.
pub fn flush(dir: &Path) -> Result<(), Error> {
    Node::open(dir)?.flush()
}

/// Adds a fault to the node in `dir`; its times count from now.
pub fn inject(dir: &Path, fault: &Fault) -> Result<(), Error> {
    let node = Node::open(dir)?;
    let mut guard = node.lock();
    let now = guard.now;
    guard.add_fault(fault, now)
}

/// Removes every fault of the node in `dir`.
pub fn clear_faults(dir: &Path) -> Result<(), Error> {
    Node::open(dir)?.lock().faults = 0;
    Ok(())
}
