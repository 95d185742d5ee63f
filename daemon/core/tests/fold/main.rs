//! Properties and cases of the whole fold, through its public face: facts in, views out.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot build its input has failed")]

mod averages;
mod cases;
mod claims;
mod explained;
mod injected;
mod node;
mod prices;
mod properties;
mod rooflines;
mod sharing;
mod stalls;
mod unseen;
