//! What sources observed, and nothing they concluded.
//!
//! The order of the variants and fields is part of the meaning: facts of one instant are applied in their
//! derived order, so that their order of arrival never matters.

mod source;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::identity::{ContainerId, DeviceId, GpuId, HostPid, MigId, PodUid, ProcessId, Scope};
use crate::injected::Injected;
use crate::inventory::{Inventory, Placement};
use crate::pressure::Pressure;
use crate::price::Prices;
use crate::probe::Probes;
use crate::ratio::Ppb;
use crate::time::{Interval, MonoNs};

pub use source::{Discard, Health, HealthState, Own, Source};

/// A fact, who observed it, and when the observation was complete.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sample {
    /// When the source had finished observing.
    pub at: MonoNs,
    /// Who observed it.
    pub source: Source,
    /// What was observed.
    pub fact: Fact,
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// All GPUs; at the start and on change.
    Inventory(Inventory),
    /// All pods and what they were granted; at the start and on change.
    Pods(Pods),
    /// Names, containers and attributes of all pods of the node; at the start and on change.
    Names(Vec<PodNames>),
    /// The prices that hold from now on; on change. Boxed, as it is rare and large.
    Prices(Box<Prices>),
    /// A process exists, or what is known of it changed.
    Process(Process),
    /// A process has ended.
    Gone(ProcessId),
    /// One GPU's counters, gauges and processes. Boxed: by far the largest variant.
    Reading(Box<Reading>),
    /// What the driver says of each process's use of one GPU.
    ProcessUse(ProcessUse),
    /// What another exporter says of one device, over a stretch whose windows may be closed already.
    Averages(Averages),
    /// What the probes saw between two snapshots. Boxed: it is large.
    Probes(Box<Probes>),
    /// What a pod's cgroups say of how long its threads were held up.
    Pressure(Pressure),
    /// What an injected library has summed in a process. Boxed: it is rare and large.
    Injected(Box<Injected>),
    /// The driver reported a fault of a GPU.
    Xid {
        /// The GPU.
        gpu: GpuId,
        /// NVIDIA's number of the fault.
        xid: u64,
    },
    /// A source's state changed.
    Health(Health),
    /// A source finished a round.
    Poll {
        /// Nanoseconds that the round took.
        took: u64,
        /// Whether it was answered: then what the source has told holds as of now, also if there was nothing new to
        /// tell. Recordings of earlier releases do not say.
        #[serde(default)]
        answered: bool,
    },
    /// Values that cannot be right were left out.
    Discarded {
        /// Why.
        reason: Discard,
        /// How many.
        count: u64,
    },
    /// Facts were lost on their way.
    Lost {
        /// How many.
        count: u64,
    },
    /// What one of Warpmeter's own processes has used since its start.
    Own(Own),
    /// Everything observed up to now has been sent, as far as the daemon can know: windows may close.
    Tick {
        /// Wall clock at this instant, in nanoseconds since 1970.
        wall: u64,
    },
}

/// One GPU over one interval: atomic, so that the instances of a GPU share their windows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reading {
    /// The GPU.
    pub gpu: GpuId,
    /// The interval that its averages cover; consecutive readings of a GPU touch.
    pub during: Interval,
    /// What concerns the board as a whole.
    pub board: Board,
    /// The GPU itself (`mig` none), or each of its MIG instances.
    pub parts: Vec<Part>,
}

/// The counters of one device. By default, one of a whole GPU that says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// The MIG instance, or none for a whole GPU.
    pub mig: Option<MigId>,
    /// Engine active: a kernel of whatever kind was executing.
    pub engine: Option<Level>,
    /// A second, independent reading of engine activity, never used as an amount: it guards against a dead counter.
    pub corroboration: Option<Ppb>,
    /// SM active: share of SM cycles with at least one warp resident.
    pub sm_active: Option<Level>,
    /// SM occupied: warps resident ÷ the maximum, per elapsed cycle.
    pub sm_occupied: Option<Level>,
    /// Tensor pipes active.
    pub tensor: Option<Level>,
    /// DRAM bandwidth used ÷ its peak.
    pub dram: Option<Level>,
    /// The SMs' other pipes active.
    #[serde(default, skip_serializing_if = "Pipes::is_empty")]
    pub pipes: Pipes,
    /// Memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// Processes with a context now; none if the driver did not say.
    pub processes: Option<Vec<Holder>>,
}

/// How active the SMs' pipes beside the tensor pipes were, each as a share of what it could have been.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Pipes {
    /// Integer operations.
    pub integer: Option<Level>,
    /// 64-bit floating point.
    pub fp64: Option<Level>,
    /// 32-bit floating point.
    pub fp32: Option<Level>,
    /// 16-bit floating point.
    pub fp16: Option<Level>,
}

impl Pipes {
    /// Whether none was counted.
    pub fn is_empty(&self) -> bool {
        self.all().into_iter().all(Option::is_none)
    }

    /// Each of them.
    pub const fn all(&self) -> [&Option<Level>; 4] {
        [&self.integer, &self.fp64, &self.fp32, &self.fp16]
    }
}

/// How a source gave an average ratio.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The average over the reading's interval.
    Ratio(Ppb),
    /// Cycles counted in the reading's interval, or nanoseconds of it: whatever the two have in common.
    Cycles {
        /// Those that were active.
        active: u64,
        /// All of them.
        elapsed: u64,
    },
    /// Averages over consecutive stretches, each ending at its time and starting where the one before ended.
    Samples(Vec<(MonoNs, Ppb)>),
}

/// A process that has the device open for work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// Its pid.
    pub pid: HostPid,
    /// Device memory that it uses, in bytes.
    pub memory: Option<u64>,
}

/// A volume as its counter gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Volume {
    /// Average bytes per second over the reading's interval.
    PerSecond(u64),
    /// Bytes since the counter's start, whenever that was.
    Total(u64),
}

/// Gauges and counters of the board as a whole. Absent means that the device does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Board {
    /// Power now, in milliwatts.
    pub power_mw: Option<u64>,
    /// Energy since the driver was loaded, in millijoules.
    pub energy_mj: Option<u64>,
    /// Power limit in force, in milliwatts.
    pub power_limit_mw: Option<u64>,
    /// GPU core temperature, in °C.
    pub temperature_c: Option<i64>,
    /// Memory temperature, in °C.
    pub memory_temperature_c: Option<i64>,
    /// SM clock, in MHz.
    pub sm_clock_mhz: Option<u64>,
    /// Memory clock, in MHz.
    pub memory_clock_mhz: Option<u64>,
    /// Reasons for which clocks are held down now.
    pub throttle: Option<Vec<Throttle>>,
    /// Memory in use on the whole board, in bytes.
    pub memory_used: Option<u64>,
    /// Memory of the whole board, in bytes.
    pub memory_total: Option<u64>,
    /// Bytes received over PCIe (host to device).
    pub pcie_receive: Option<Volume>,
    /// Bytes transmitted over PCIe (device to host).
    pub pcie_transmit: Option<Volume>,
    /// Bytes received over NVLink.
    pub nvlink_receive: Option<Volume>,
    /// Bytes transmitted over NVLink.
    pub nvlink_transmit: Option<Volume>,
    /// PCIe replays since the driver was loaded.
    pub pcie_replays: Option<u64>,
    /// Corrected ECC errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected ECC errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Rows remapped for corrected errors.
    pub remapped_correctable: Option<u64>,
    /// Rows remapped for uncorrected errors.
    pub remapped_uncorrectable: Option<u64>,
    /// Whether a remapping waits for a reset.
    pub remap_pending: Option<bool>,
    /// Whether a remapping has failed.
    pub remap_failed: Option<bool>,
}

/// Why clocks are held down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// Software power cap.
    SwPowerCap,
    /// Hardware slowdown (power brake or temperature).
    HwSlowdown,
    /// Held to the clocks of a synchronised group.
    SyncBoost,
    /// Software thermal slowdown.
    SwThermal,
    /// Hardware thermal slowdown.
    HwThermal,
    /// Hardware power brake.
    HwPowerBrake,
    /// Display clock setting.
    Display,
    /// Clocks set by an application or an administrator.
    ApplicationClocks,
}

impl Throttle {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::SwPowerCap,
        Self::HwSlowdown,
        Self::SyncBoost,
        Self::SwThermal,
        Self::HwThermal,
        Self::HwPowerBrake,
        Self::Display,
        Self::ApplicationClocks,
    ];

    /// The reason as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::SwPowerCap => "sw_power_cap",
            Self::HwSlowdown => "hw_slowdown",
            Self::SyncBoost => "sync_boost",
            Self::SwThermal => "sw_thermal",
            Self::HwThermal => "hw_thermal",
            Self::HwPowerBrake => "hw_power_brake",
            Self::Display => "display",
            Self::ApplicationClocks => "application_clocks",
        }
    }
}

/// What the driver says of each process's use of a GPU's SMs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessUse {
    /// The GPU. In MIG mode the driver gives none of this.
    pub gpu: GpuId,
    /// The driver's samples up to here are in this fact or an earlier one.
    pub until: MonoNs,
    /// The samples; empty if the driver found none, which is no evidence and not a zero.
    pub samples: Vec<ProcessSample>,
}

/// One process's average over one of the driver's own periods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The process.
    pub pid: HostPid,
    /// The driver's sampling period.
    pub during: Interval,
    /// Share of the period in which its kernels ran: whole percents in practice.
    pub sm: Ppb,
}

/// Averages of one device over a stretch that another exporter chose. They are known when it is over, and belong to its
/// time and no other's, however late they come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Averages {
    /// The device.
    pub device: DeviceId,
    /// The stretch.
    pub during: Interval,
    /// What they are.
    #[serde(flatten)]
    pub means: Means,
}

/// What another exporter averages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Means {
    /// SM active, as in [`Part::sm_active`].
    pub sm_active: Option<Ppb>,
    /// SM occupied, as in [`Part::sm_occupied`].
    pub sm_occupied: Option<Ppb>,
    /// Tensor pipes active.
    pub tensor: Option<Ppb>,
    /// DRAM active.
    pub dram: Option<Ppb>,
    /// Bytes a second received over PCIe (host to device); none of a MIG instance.
    pub pcie_receive: Option<u64>,
    /// Bytes a second transmitted over PCIe (device to host); none of a MIG instance.
    pub pcie_transmit: Option<u64>,
}

/// A process of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Which.
    pub id: ProcessId,
    /// Its cgroup, as far as that names an owner.
    pub scope: Scope,
    /// Which GPU device files it has open; none if that could not be read.
    pub opened: Option<Opened>,
    /// Its part in MPS, as far as it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mps: Option<Mps>,
    /// What its first thread is called, for people: its program's name or one that it chose. Printable ASCII, at most 15
    /// bytes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}

/// A process's part in MPS, which runs the work of several processes in one context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mps {
    /// The server: work that the driver counts as its own is its clients'.
    Server,
    /// A client that may use such a part of the device's threads.
    Client(Ppb),
}

/// GPU device files that a process has open.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Opened {
    /// Whether a control file (`nvidiactl`) is among them.
    pub control: bool,
    /// Minor numbers of the GPUs whose files are, in order.
    pub minors: Vec<u32>,
    /// Whether the file of unified memory (`nvidia-uvm`) is. CUDA opens it before anything can run; what only reads
    /// counters by NVML does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uvm: bool,
}

/// All pods of the node that are known by name, and what they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pods {
    /// The pods, in order of UID.
    pub pods: Vec<Pod>,
    /// Devices that are shared by time-slicing or MPS, and in how many replicas.
    pub replicas: Vec<Replicas>,
}

/// A device that is granted in parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Replicas {
    /// The device.
    pub device: DeviceRef,
    /// In how many replicas it is offered; at least 1.
    pub count: u32,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pod {
    /// Its UID.
    pub uid: PodUid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// What its containers were granted.
    pub grants: Vec<Grant>,
    /// Containers whose device plugin chooses their GPUs by itself, whatever the kubelet was told: slots of HAMi and
    /// units of GPU memory. In order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<Arc<str>>,
    /// Attributes to report with it.
    #[serde(default)]
    pub info: PodInfo,
}

/// What a pod is called, from a source that knows its UID for certain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodNames {
    /// Its UID.
    pub uid: PodUid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Whether all of its containers have ended for good.
    pub ended: bool,
    /// Attributes to report with it.
    pub info: PodInfo,
    /// What a scheduler noted that its containers get of GPUs, which counts for those of [`Pod::deferred`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allotments: Vec<Allotment>,
}

/// What a scheduler that knows of parts of GPUs gave a container: its device plugin does as it says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Allotment {
    /// The container's name.
    pub container: Arc<str>,
    /// The device.
    pub device: DeviceRef,
    /// How much of it.
    pub share: Share,
}

/// A part of a device as a scheduler states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// Of its computing time.
    Compute(Ppb),
    /// Bytes of its memory.
    Memory(u64),
    /// Units of its memory.
    Units {
        /// These.
        units: u64,
        /// Of so many; if not stated, of as many as are offered of the device.
        of: Option<u64>,
    },
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// Its identifier, once known.
    pub id: Option<ContainerId>,
}

/// A device, or a part of one, granted to a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Grant {
    /// The container's name.
    pub container: Arc<str>,
    /// The device.
    pub device: DeviceRef,
    /// How much of it.
    pub part: GrantPart,
}

/// How much of a device a grant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantPart {
    /// All of it; several such grants share it equally.
    Whole,
    /// One replica, by its number.
    Replica(u32),
    /// A stated fraction.
    Fraction(Ppb),
}

/// A device as an allocator names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceRef {
    /// A whole GPU by UUID.
    Gpu(GpuId),
    /// A MIG instance by UUID.
    Mig(MigId),
    /// A whole GPU by the minor number of its device file.
    Minor(u32),
    /// A MIG instance by the minor number of its GPU and its GPU instance id.
    MinorInstance {
        /// Minor number of the GPU.
        minor: u32,
        /// GPU instance id.
        gpu_instance: u32,
    },
    /// A MIG instance by the minor number of its GPU and the placement of its GPU instance.
    MinorPlacement {
        /// Minor number of the GPU.
        minor: u32,
        /// Where on it.
        placement: Placement,
    },
    /// A MIG instance by the UUID of its GPU and its instance ids.
    GpuInstance {
        /// The GPU.
        gpu: GpuId,
        /// GPU instance id.
        gpu_instance: u32,
        /// Compute instance id.
        compute_instance: u32,
    },
}

/// Attributes of a pod that go on its `_info` series. Empty means not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodInfo {
    /// Kind of the controlling workload, such as `Job`.
    pub workload_kind: Arc<str>,
    /// Name of the controlling workload.
    pub workload: Arc<str>,
    /// Team that pays.
    pub team: Arc<str>,
    /// Application.
    pub app: Arc<str>,
    /// Model trained or served.
    pub model: Arc<str>,
    /// Environment, such as `production`.
    pub environment: Arc<str>,
    /// Whether idleness of this pod is intended.
    pub idle_ok: bool,
}
