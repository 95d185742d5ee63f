//! The `bpf` process and its supervisor.
//!
//! Probes see what processes ask of GPUs and what the host did meanwhile. They take capabilities that nothing else
//! here needs, and read files and memory maps of containers. So a process of its own does that, and keeps nothing
//! else; when it ends, however it ends, the kernel detaches all that it had attached. Where probes do not work, it
//! samples threads instead (`sampling`).

mod child;
pub(crate) mod confine;
mod host;
mod supervisor;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use warpmeter_core::fact::Sample;
use warpmeter_core::identity::{GpuId, MigId, PodUid};

pub(crate) use confine::lacking;

pub use child::run as run_child;
pub use supervisor::Supervisor;

/// Whether probes are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enabled {
    /// Where they work.
    #[default]
    Auto,
    /// Yes: where they do not work, that is a fault.
    Yes,
    /// No: threads are sampled instead, as where probes do not work.
    Proc,
    /// No, nor anything in their place.
    No,
}

/// What the process is told at its start, as one argument of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Whether it is a fault if they do not work.
    pub enabled: Enabled,
    /// The root of the host's process file system.
    pub proc: PathBuf,
    /// The directory of the host's device files.
    pub dev: PathBuf,
    /// Nanoseconds between snapshots.
    pub period: u64,
}

/// What it is told later, as lines of JSON on its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// Look at these processes now.
    Look(Vec<u32>),
    /// The driver says that these processes have this GPU open, and no others.
    Holders {
        /// The GPU.
        gpu: GpuId,
        /// The processes.
        pids: Vec<u32>,
    },
    /// The MIG instances of the node.
    Instances(Vec<MigId>),
    /// These pods want no probes, and no others.
    Refusals(Vec<PodUid>),
}

/// A line from the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// A fact.
    Sample(Sample),
    /// It has said why it cannot work here, and ends.
    Useless,
}
