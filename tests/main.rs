//! Integration tests: the real daemon, as a process, over a simulated driver and the real kernel.
#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that meets what it did not expect has failed, and shows its figures on request"
)]

mod accuracy;
mod attribution;
mod config;
mod exposition;
mod faults;
mod golden;
mod http;
mod missing;
mod processes;
mod release;
mod scraped;
