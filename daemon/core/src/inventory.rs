//! What GPUs there are, and how they are divided.

use serde::{Deserialize, Serialize};

use crate::identity::{GpuId, MigId};

/// All GPUs that the driver shows. Replaces the previous inventory as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Inventory {
    /// The driver, if it answered.
    pub driver: Option<Driver>,
    /// Every GPU, in order of UUID.
    pub gpus: Vec<Gpu>,
}

/// Versions as the driver reports them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Driver {
    /// The kernel driver, such as `570.133.20`.
    pub version: String,
    /// The NVML library.
    pub nvml: Option<String>,
    /// The newest CUDA version that the driver supports, such as `12.8`.
    pub cuda: Option<String>,
}

/// One physical GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gpu {
    /// Its UUID.
    pub id: GpuId,
    /// Its NVML index now: for display only.
    pub index: Option<u32>,
    /// The `N` of `/dev/nvidiaN`, which can differ from the index.
    pub minor: Option<u32>,
    /// Its PCI bus id, such as `00000000:17:00.0`.
    pub pci_bus_id: String,
    /// The product name, such as `NVIDIA H100 80GB HBM3`.
    pub model: String,
    /// Memory of the whole GPU in bytes.
    pub memory_bytes: Option<u64>,
    /// How fast its memory is, if the driver says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bus: Option<MemoryBus>,
    /// The best link that it can have with its host, if the driver says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Why it cannot be read, if it cannot.
    pub down: Option<String>,
    /// How it is divided, in MIG mode.
    pub mig: Option<Mig>,
    /// Which counter gives which quantity.
    pub authority: Authority,
}

/// What the driver says of the link between a GPU and its host: the best that both can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// Generation of PCI Express.
    pub generation: u32,
    /// How many lanes.
    pub lanes: u32,
}

impl Link {
    /// PCI Express 4.0 × 16: what is assumed where the driver says nothing.
    pub const ASSUMED: Self = Self { generation: 4, lanes: 16 };

    /// How long a copy of pinned memory takes, in nanoseconds, on a link that nobody else uses.
    ///
    /// A lane of the third generation carries 985 MB/s, and each generation twice what the one before does (the
    /// specification); of that eight tenths are copied, which is 12.5, 25 and 50 GB/s for 16 lanes (what NVIDIA's
    /// `bandwidthTest` shows).
    pub fn nanos(self, bytes: u64) -> u64 {
        const THIRD: u128 = 781_250;
        // Generations that are not made yet are like the last one.
        let generation = self.generation.clamp(1, 7);
        let bytes_per_ms = (THIRD << (generation - 1) >> 2) * u128::from(self.lanes.clamp(1, 32));
        u64::try_from(u128::from(bytes) * 1_000_000 / bytes_per_ms).unwrap_or(u64::MAX)
    }
}

/// What the driver says of the bus between a GPU and its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemoryBus {
    /// Its highest clock, in MHz.
    pub clock_mhz: u32,
    /// Its width, in bits.
    pub bits: u32,
}

impl MemoryBus {
    /// No memory is as fast: ten times today's fastest.
    const LIMIT: u64 = 100_000_000_000_000;

    /// Bytes per second at two transfers a cycle, as all memory of GPUs has them by the driver's clock; none if that
    /// cannot be.
    pub fn bandwidth(self) -> Option<u64> {
        // 2 × MHz × bits ÷ 8 are bytes in a microsecond.
        let rate = u64::from(self.clock_mhz).checked_mul(self.bits.into())?.checked_mul(250_000)?;
        (1..=Self::LIMIT).contains(&rate).then_some(rate)
    }
}

/// The division of a GPU in MIG mode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mig {
    /// Compute slices of the whole GPU (7 on A100 and H100, 4 on A30).
    pub slices: u32,
    /// The instances that exist, in order of GPU instance and compute instance.
    pub instances: Vec<Instance>,
    /// The most compute slices that further instances could still take: what is left beyond that fits no profile.
    pub creatable_slices: u32,
}

/// One MIG instance: a compute instance, or a GPU instance that has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Instance {
    /// Its name.
    pub id: MigId,
    /// The GPU instance id.
    pub gpu_instance: u32,
    /// The compute instance id; none for a GPU instance that no process can use yet.
    pub compute_instance: Option<u32>,
    /// The profile, such as `1g.10gb`.
    pub profile: String,
    /// Its compute slices.
    pub slices: u32,
    /// Its memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Where its GPU instance is, if the driver says.
    #[serde(default)]
    pub placement: Option<Placement>,
}

/// Where on a GPU a GPU instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// The driver's id of its profile.
    pub profile: u32,
    /// The first memory slice that it takes.
    pub start: u32,
}

/// Which counter is the authority for which quantity on a GPU; chosen when the source starts, never blended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Authority {
    /// Engine active.
    pub engine: Option<Counter>,
    /// SM active; occupancy, tensor and DRAM come from the same counters.
    pub sm: Option<Counter>,
    /// The division of a shared device over its processes.
    pub processes: Option<Counter>,
}

/// A source of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// NVML's GPU performance monitoring (Hopper and later): averages between two samples.
    Gpm,
    /// GPM's cumulative cycle counters.
    GpmCycles,
    /// NVML's ring of utilisation samples.
    UtilizationSamples,
    /// NVML's per-process utilisation.
    ProcessUtilization,
    /// CUPTI's sampling of the performance monitor.
    PmSampling,
    /// DCGM's profiling fields, as a neighbouring exporter shows them.
    Dcgm,
}

impl Counter {
    /// The counter's name as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Gpm => "gpm",
            Self::GpmCycles => "gpm_cycles",
            Self::UtilizationSamples => "utilization_samples",
            Self::ProcessUtilization => "process_utilization",
            Self::PmSampling => "pm_sampling",
            Self::Dcgm => "dcgm",
        }
    }
}
