//! Who observes, and what a source says of itself.

use serde::{Deserialize, Serialize};

/// A stream of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The NVIDIA driver, through the `nvidia` process.
    Nvidia,
    /// `/proc` and cgroups of the host.
    Host,
    /// Pods and their devices: a static file, or the kubelet.
    Pods,
    /// Names and labels of pods: the API server.
    Names,
    /// What GPUs cost: the configuration, a price file, the node's labels.
    Prices,
    /// Probes on the CUDA driver library and the scheduler, through the `bpf` process.
    Probes,
    /// A neighbouring exporter of DCGM's profiling fields.
    Dcgm,
    /// Libraries that were injected into processes.
    Inject,
    /// The daemon itself.
    Daemon,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 9] = [
        Self::Nvidia,
        Self::Host,
        Self::Pods,
        Self::Names,
        Self::Prices,
        Self::Probes,
        Self::Dcgm,
        Self::Inject,
        Self::Daemon,
    ];

    /// The source's name as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Host => "host",
            Self::Pods => "pods",
            Self::Names => "names",
            Self::Probes => "probes",
            Self::Dcgm => "dcgm",
            Self::Prices => "prices",
            Self::Inject => "inject",
            Self::Daemon => "daemon",
        }
    }
}

/// The state of a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Health {
    /// How well it works.
    pub state: HealthState,
    /// Why, and what to do; empty while it works.
    pub reason: String,
}

/// How well a source works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// All that it can give, it gives.
    Up,
    /// It gives facts, but fewer than it could.
    Degraded,
    /// It gives nothing.
    Down,
    /// It is not wanted here.
    Off,
}

impl HealthState {
    /// The state as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Degraded => "degraded",
            Self::Down => "down",
            Self::Off => "off",
        }
    }
}

/// Why a value was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discard {
    /// The driver's mark for "no value".
    Sentinel,
    /// Outside the range that the quantity can have.
    Range,
    /// Not a number.
    NotANumber,
    /// A time in the future, or before the driver was loaded.
    Clock,
    /// Text or bytes that do not parse.
    Garbage,
    /// A device id of no known form.
    DeviceId,
    /// An observation that came after its window had closed.
    Late,
    /// Of a stretch for which the device's own buffer was full, or samples are missing.
    Overflow,
    /// Another counter shows that it cannot be.
    Conflict,
}

impl Discard {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::Sentinel,
        Self::Range,
        Self::NotANumber,
        Self::Clock,
        Self::Garbage,
        Self::DeviceId,
        Self::Late,
        Self::Overflow,
        Self::Conflict,
    ];

    /// The reason as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Sentinel => "sentinel",
            Self::Range => "range",
            Self::NotANumber => "not_a_number",
            Self::Clock => "clock",
            Self::Garbage => "garbage",
            Self::DeviceId => "device_id",
            Self::Late => "late",
            Self::Overflow => "overflow",
            Self::Conflict => "conflict",
        }
    }
}

/// What one of Warpmeter's own processes uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Own {
    /// CPU time since the process started, in nanoseconds.
    pub cpu: u64,
    /// Resident memory, in bytes.
    pub resident: u64,
}
