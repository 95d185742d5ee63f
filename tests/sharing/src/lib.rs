//! Shared devices: each owner's part against the simulator's own log, on a clock that the test moves.
//!
//! A [`case::Case`] says which programs run on which device and who holds what. [`run::run`] lets them use the
//! simulator's device model, and takes down what a driver, the probes and the host would have reported of it
//! ([`run::Run::facts`]) and what the model logged ([`run::Run::busy`]). [`truth::truth`] sums the log, without any
//! code of the product; [`outcome::outcome`] folds the facts and compares.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test instrument: what cannot be built or found has failed"
)]

pub mod case;
pub mod matrix;
pub mod outcome;
pub mod probes;
pub mod program;
pub mod run;
pub mod table;
pub mod truth;

/// Nanoseconds in a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
