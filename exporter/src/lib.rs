//! Warpmeter's metric catalogue, its Prometheus exposition and its HTTP endpoints.
//!
//! [`catalogue`] is the one table of metrics: what each is called and how it is read from a
//! [`View`](warpmeter_core::view::View). [`encode`] turns a view into text, [`page`] keeps what one window is
//! served as, [`http`] serves it. [`compat`] says some of it under DCGM's
//! names, for tools that know only those. Scrapes read finished pages and never wait for the pipeline.
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod compat;
pub mod docs;
pub mod encode;
pub mod explain;
pub mod heartbeat;
pub mod http;
mod injected;
pub mod page;
pub mod readiness;
mod routes;
mod rows;
mod stall;
pub mod status;
#[cfg(test)]
mod tests;
mod units;

/// The version that `warpmeter_build_info` and `/status` show.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
