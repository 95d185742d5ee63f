//! The `nvidia` process and its supervisor.
//!
//! Calls into the driver can hang for good or take the process along. So they are made by a process of its own,
//! which says before each group of calls which device they touch. If it falls silent or dies, it is abandoned and
//! started anew without the device that it was at, which is tried again after a while.

mod child;
mod devices;
mod gate;
mod supervisor;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use warpmeter_core::fact::Sample;
use warpmeter_cuda::{Architecture, PmSampling};

pub use child::run as run_child;
pub use gate::Gate;
pub(crate) use gate::Part;
pub use supervisor::{Supervisor, Timing};

/// What the process is told, as one argument of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Where the driver's library is looked for; empty: the built-in list.
    pub libraries: Vec<PathBuf>,
    /// Nanoseconds between readings.
    pub period: u64,
    /// PCI bus ids of GPUs that must not be touched.
    pub skip: Vec<String>,
    /// PCI bus ids of all GPUs by index, as last seen.
    pub known: Vec<String>,
    /// What is wanted of the performance monitors, if anything is.
    pub cupti: Option<Sampling>,
    /// Whether DCGM's exporter gives the SM figures of devices for which nothing else does.
    pub dcgm: bool,
}

/// What is wanted of the performance monitors: [`PmSampling`] in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    libraries: Vec<PathBuf>,
    architectures: Vec<String>,
    devices: Vec<String>,
}

impl From<PmSampling> for Sampling {
    fn from(wanted: PmSampling) -> Self {
        let architectures = wanted.architectures.iter().map(|it| it.name().to_owned()).collect();
        Self { libraries: wanted.libraries, architectures, devices: wanted.devices }
    }
}

impl From<Sampling> for PmSampling {
    fn from(sampling: Sampling) -> Self {
        let architectures = sampling.architectures.iter().filter_map(|name| Architecture::named(name));
        let architectures = architectures.collect();
        Self { libraries: sampling.libraries, architectures, devices: sampling.devices }
    }
}

/// A line from the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// Calls on this device begin: its PCI bus id, or `driver`.
    Touch(String),
    /// They have returned.
    Released,
    /// A fact.
    Sample(Sample),
}
