//! What the integration tests are made of: a simulated node, the daemon on it, programs that occupy its GPUs, and
//! readers of what comes out.
//!
//! Everything that is started ends when its value is dropped. Nothing waits for a fixed time: [`wait::until`] looks
//! until it sees, or gives up long after any machine would have shown it.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that meets what it did not expect has failed"
)]

pub mod cgroup;
pub mod daemon;
pub mod exposition;
pub mod gpus;
pub mod http;
pub mod kubelet;
pub mod ledger;
pub mod overlap;
pub mod paper;
pub mod program;
pub mod prometheus;
pub mod random;
pub mod recording;
pub mod sim;
pub mod tls;
pub mod tool;
pub mod turn;
pub mod wait;
