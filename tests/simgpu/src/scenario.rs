//! Scenario files: which devices a simulated node has, and what goes wrong with them.

use std::path::Path;

use serde::Deserialize;

use crate::Error;
use crate::preset::Model;

/// A simulated node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Seed of everything that is drawn by chance, and of the default identities.
    pub seed: u64,
    /// Driver version that NVML reports.
    pub driver_version: String,
    /// CUDA version, as the driver packs it (12040 = 12.4).
    pub cuda_version: u32,
    /// The devices, in NVML order.
    pub gpu: Vec<Gpu>,
    /// Faults known from the start; more can be injected later.
    pub fault: Vec<Fault>,
    /// How the oracle writes.
    pub oracle: Oracle,
}

/// How the oracle writes its log.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Oracle {
    /// Gaps up to this long inside one process's activity do not end a record (its `busy_ns` still excludes them).
    pub merge_gap_us: u64,
}

/// One or more devices of the same kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Model preset.
    pub model: Model,
    /// How many such devices; identities must be left to their defaults when above 1.
    #[serde(default = "one")]
    pub count: u32,
    /// `GPU-…`; derived from the seed and the index when absent.
    pub uuid: Option<String>,
    /// Minor number of `/dev/nvidiaN`; the index when absent.
    pub minor: Option<u32>,
    /// PCI bus id, `00000000:18:00.0`.
    pub pci: Option<String>,
    /// Memory capacity, in place of the preset's.
    pub memory_mib: Option<u64>,
    /// SM count, in place of the preset's.
    pub sms: Option<u32>,
    /// Idle power, in place of the preset's.
    pub idle_w: Option<u32>,
    /// Power limit, in place of the preset's.
    pub max_w: Option<u32>,
    /// Memory that a context takes by existing.
    #[serde(default = "context_mib")]
    pub context_mib: u64,
    /// All processes share one context, as under MPS.
    #[serde(default)]
    pub mps: bool,
    /// Time slice of a process on a shared device.
    #[serde(default = "quantum_us")]
    pub quantum_us: u64,
    /// MIG instances. Any entry puts the device in MIG mode.
    #[serde(default)]
    pub mig: Vec<Mig>,
    /// MIG mode without instances.
    #[serde(default)]
    pub mig_mode: bool,
    /// How ugly the counters are.
    #[serde(default)]
    pub counters: Counters,
}

/// One GPU instance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// Such as `1g.10gb`.
    pub profile: String,
    /// GPU instance id; the driver's usual choice when absent.
    pub gi: Option<u32>,
    /// Whether it holds a compute instance: without one it is no MIG device.
    #[serde(default = "yes")]
    pub ci: bool,
    /// `MIG-…`; derived when absent.
    pub uuid: Option<String>,
}

/// The ugliness of counters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Counters {
    /// Sample period of device utilisation.
    pub util_period_ms: u64,
    /// Sample period of per-process utilisation.
    pub process_period_ms: u64,
    /// Per-process samples are visible this long after their period ended.
    pub process_lag_ms: u64,
    /// Per-process utilisation is a multiple of this many percent.
    pub process_step: u32,
    /// Chance, in thousandths, that a process misses from a sample.
    pub process_drop_permille: u32,
    /// Only each process's newest sample is returned, not all since `lastSeenTimeStamp`.
    pub process_latest_only: bool,
    /// GPM counters move once in this time.
    pub gpm_refresh_ms: u64,
    /// Under MPS the server has per-process samples, of all that runs; its clients never have.
    pub mps_server_samples: bool,
}

/// A fault: what, where, from when to when. Times are seconds from the node's creation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Device index; every device when absent.
    pub gpu: Option<u32>,
    /// Start; for an injected fault, seconds from now.
    #[serde(default)]
    pub at_s: f64,
    /// End, on the same scale; never when absent.
    pub until_s: Option<f64>,
    /// Duration, in place of `until_s`.
    pub for_s: Option<f64>,
    /// `xid`, `cuda_error`, `cupti_error`, `cupti_version`: the code. `cupti_overflow`: what decodings give from then on.
    pub code: Option<u32>,
    /// `xid`: how many in a row (1 when absent).
    pub count: Option<u32>,
    /// `gpm_metric_error`: the metric's id.
    pub metric: Option<u32>,
    /// `not_supported`, `missing_symbol`: the function's name.
    pub function: Option<String>,
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Every call on the device returns `GPU_IS_LOST`.
    Lost,
    /// Calls on the device block until the fault ends.
    Hang,
    /// The calling process aborts.
    Crash,
    /// An XID event.
    Xid,
    /// One GPM metric fails.
    GpmMetricError,
    /// Out-of-range values, blanks and NaN.
    Garbage,
    /// One function is not supported.
    NotSupported,
    /// GPM reads 0 whatever the device does.
    StuckZero,
    /// One function behaves as if the library lacked it.
    MissingSymbol,
    /// The driver is reloaded: earlier initialisations and handles end.
    Reload,
    /// No driver: `nvmlInit` fails with `DRIVER_NOT_LOADED`.
    Late,
    /// Calls that concern the performance monitor give a CUPTI code.
    CuptiError,
    /// The performance monitor's buffer overflows before each decoding.
    CuptiOverflow,
    /// Calls that concern the performance monitor block until the fault ends.
    CuptiHang,
    /// A process that calls for the performance monitor aborts.
    CuptiCrash,
    /// `cuInit` gives a CUDA code.
    CudaError,
    /// The CUPTI library calls itself by another version.
    CuptiVersion,
}

impl FaultKind {
    /// The number that stands for it in shared memory.
    pub const fn code(self) -> u32 {
        match self {
            Self::Lost => 1,
            Self::Hang => 2,
            Self::Crash => 3,
            Self::Xid => 4,
            Self::GpmMetricError => 5,
            Self::Garbage => 6,
            Self::NotSupported => 7,
            Self::StuckZero => 8,
            Self::MissingSymbol => 9,
            Self::Reload => 10,
            Self::Late => 11,
            Self::CuptiError => 12,
            Self::CuptiOverflow => 13,
            Self::CuptiHang => 14,
            Self::CuptiCrash => 15,
            Self::CuptiVersion => 16,
            Self::CudaError => 17,
        }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            seed: 1,
            driver_version: "570.124.06".to_owned(),
            cuda_version: 12_080,
            gpu: Vec::new(),
            fault: Vec::new(),
            oracle: Oracle::default(),
        }
    }
}

impl Default for Oracle {
    fn default() -> Self {
        Self { merge_gap_us: 20 }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            util_period_ms: 167,
            process_period_ms: 1000,
            process_lag_ms: 0,
            process_step: 1,
            process_drop_permille: 0,
            process_latest_only: false,
            gpm_refresh_ms: 100,
            mps_server_samples: true,
        }
    }
}

const fn one() -> u32 {
    1
}
const fn yes() -> bool {
    true
}
const fn context_mib() -> u64 {
    480
}
const fn quantum_us() -> u64 {
    2000
}

impl Scenario {
    /// Reads a scenario from TOML.
    pub fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|e| Error::Scenario(Box::new(e)))
    }

    /// Reads a scenario file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::file("read scenario", path, e))?;
        Self::parse(&text)
    }

    /// A node of `count` undivided devices.
    pub fn of(model: Model, count: u32) -> Self {
        Self { gpu: vec![Gpu::new(model, count)], ..Self::default() }
    }
}

impl Gpu {
    /// Devices with every default.
    pub fn new(model: Model, count: u32) -> Self {
        Self {
            model,
            count,
            uuid: None,
            minor: None,
            pci: None,
            memory_mib: None,
            sms: None,
            idle_w: None,
            max_w: None,
            context_mib: context_mib(),
            mps: false,
            quantum_us: quantum_us(),
            mig: Vec::new(),
            mig_mode: false,
            counters: Counters::default(),
        }
    }
}

impl Fault {
    /// Reads a fault from `key=value` words, as the command line takes them.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut text = String::new();
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or_else(|| Error::Invalid(format!("`{word}` is not key=value")))?;
            let bare = value.parse::<f64>().is_ok();
            let quote = if bare { "" } else { "\"" };
            for part in [key, " = ", quote, value, quote, "\n"] {
                text.push_str(part);
            }
        }
        toml::from_str(&text).map_err(|e| Error::Scenario(Box::new(e)))
    }
}
