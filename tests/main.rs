//! Integration tests: the real daemon, as a process, over a simulated driver and the real kernel.
#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that meets what it did not expect has failed, and shows its figures on request"
)]

mod accuracy;
mod answers;
mod arrivals;
mod attribution;
mod autoscaling;
mod changes;
mod chaos;
mod compat;
mod config;
mod containers;
mod explain;
mod exposition;
mod faults;
mod golden;
mod governor;
mod http;
mod identities;
mod injected;
mod kubelets;
mod missing;
mod monitors;
mod mps;
mod named;
mod neighbours;
mod owners;
mod patience;
mod pressure;
mod prices;
mod probes;
mod processes;
mod release;
mod rooflines;
mod rows;
mod sampled;
mod scraped;
mod secured;
