//! Warpmeter: a per-node daemon that says where paid GPU time goes, per pod.
//!
//! This crate wires the others together: it reads the configuration ([`config`]), runs the sources ([`host`],
//! [`pods`], [`prices`], [`nvidia`], [`dcgm`], [`bpf`], [`inject`]), folds their facts ([`pipeline`]) and serves the result.
//! `docs/life-of-a-sample.md`
//! follows one counter from the driver to the scrape.
#![forbid(unsafe_code)]

pub mod bpf;
pub mod check;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod dcgm;
pub mod endpoint;
pub mod host;
pub mod inject;
pub mod kubelet;
pub mod names;
pub mod nvidia;
mod occupancy;
pub mod pipeline;
pub mod pods;
pub mod prices;
mod process;
pub mod recording;
pub mod refusals;
pub mod run;
mod sampling;
mod told;
