//! What readers see: an immutable copy of the ledgers and gauges, in a fixed order.
//!
//! Amounts of time are nanoseconds of physical GPU time. An absent amount is unknown and has no series.

use std::sync::Arc;

use crate::explain::Explanation;
use crate::fact::{Board, Discard, HealthState, Own, Source};
use crate::identity::{DeviceId, GpuId, Owner, PodUid};
use crate::injected::InjectedTotals;
use crate::inventory::{Driver, Gpu, Instance};
use crate::lengths::GapLengths;
use crate::peak::Peak;
use crate::pressure::{Corroboration, PressureTotals};
use crate::price::{Money, Price, Quote};
use crate::probe::{Asked, ThreadTotals};
use crate::ratio::Ppb;
use crate::roofline::Bound;
use crate::state::{Class, DeviceState, State};
use crate::time::MonoNs;

/// Everything that can be read, as of the last closed window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// The node's name.
    pub node: String,
    /// When the fold's last tick was.
    pub at: MonoNs,
    /// Wall clock at that tick, in nanoseconds since 1970.
    pub wall: u64,
    /// Length of a window in nanoseconds.
    pub window: u64,
    /// Windows closed since the start, over all GPUs.
    pub windows: u64,
    /// The currency of all money.
    pub currency: String,
    /// What the node has cost beside its GPUs, once a part of a node's price was left for that.
    pub host_cost: Option<Money>,
    /// The price of a kilowatt-hour now.
    pub energy: Option<Quote>,
    /// Why GPUs without a price have none, and what to set; empty if that is not known.
    pub price_missing: String,
    /// The driver, while it answers.
    pub driver: Option<Driver>,
    /// Every GPU, in order of UUID.
    pub gpus: Vec<GpuView>,
    /// Every owner's account with every device, in order of owner and device.
    pub accounts: Vec<AccountView>,
    /// Every pod that has an account, in order of UID.
    pub pods: Vec<PodView>,
    /// Every namespace, in order of name.
    pub namespaces: Vec<NamespaceView>,
    /// Every source, in the order of [`Source::ALL`].
    pub sources: Vec<SourceView>,
    /// Largest difference between a ledger's sum and the time that passed, in nanoseconds: 0.
    pub conservation_error: u64,
}

/// One physical GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuView {
    /// What it is.
    pub gpu: Arc<Gpu>,
    /// Whether it is read now.
    pub up: bool,
    /// Time of its windows so far. The device states of all its devices and of `residue` sum to it.
    pub elapsed: u64,
    /// Its devices: itself, or its MIG instances (those that are gone too).
    pub devices: Vec<DeviceView>,
    /// In MIG mode, time of slices that belong to no instance.
    pub residue: Option<Residue>,
    /// How it is shared: `none`, `mig`, or `replicas`.
    pub sharing: &'static str,
    /// The last gauges; empty while the GPU is down.
    pub board: Board,
    /// Counters of the board since the start.
    pub totals: BoardTotals,
    /// Price of the whole GPU per hour now, and who says so.
    pub quote: Option<Quote>,
    /// Peak bandwidth of its memory in bytes per second.
    pub dram_peak: Option<Peak>,
    /// Peak rate of its tensor pipes in dense 16-bit operations per second.
    pub tensor_peak: Option<Peak>,
    /// XIDs since the start, in order of number.
    pub xids: Vec<(u64, u64)>,
    /// When its last reading ended; none before the first.
    pub last_reading: Option<MonoNs>,
    /// Up to when a neighbouring exporter's averages are counted, if it is the authority; none before the first.
    pub averaged_until: Option<MonoNs>,
}

/// Time of a GPU's slices that belong to no MIG instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Residue {
    /// That of slices which an instance could still take.
    pub unallocated: u64,
    /// That of slices which no profile can use.
    pub unallocatable: u64,
    /// What the former cost.
    pub unallocated_cost: Option<Money>,
    /// What the latter cost.
    pub unallocatable_cost: Option<Money>,
}

/// Counters of a board since the start; absent until the device has given one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoardTotals {
    /// Microjoules.
    pub energy_uj: Option<u64>,
    /// Those of them that it would have taken without any work, once it was seen without.
    pub idle_energy_uj: Option<u64>,
    /// What they cost, as far as a price was known.
    pub energy_cost: Option<Money>,
    /// Bytes received over PCIe.
    pub pcie_receive: Option<u128>,
    /// Bytes transmitted over PCIe.
    pub pcie_transmit: Option<u128>,
    /// Bytes received over NVLink.
    pub nvlink_receive: Option<u128>,
    /// Bytes transmitted over NVLink.
    pub nvlink_transmit: Option<u128>,
    /// Nanoseconds in which clocks were held down, by reason in the order of [`crate::fact::Throttle::ALL`].
    pub throttle: Option<[u64; 8]>,
}

/// The ledgers of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceView {
    /// Which.
    pub id: DeviceId,
    /// The MIG instance, if it is one and exists now.
    pub instance: Option<Instance>,
    /// Whether it exists now.
    pub present: bool,
    /// The allocation ledger: nanoseconds per state, in the order of [`DeviceState::ALL`].
    pub states: [u64; DeviceState::COUNT],
    /// The same in money.
    pub costs: Option<[Money; DeviceState::COUNT]>,
    /// The use ledger.
    pub usage: Usage,
    /// Nanoseconds with valid counters.
    pub profiled: u64,
    /// Activity × time.
    pub activity: Activity,
    /// Memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// Evidence of the allocation ledger's amounts: nanoseconds per [`Evidence::ALL`].
    pub allocation_evidence: [u64; Evidence::COUNT],
    /// Evidence of the use ledger's amounts.
    pub use_evidence: [u64; Evidence::COUNT],
}

/// The use ledger of a device. Its amounts sum to the device's elapsed time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Used by known owners.
    pub used: u64,
    /// Used by nobody knows whom.
    pub unattributed: u64,
    /// Not used.
    pub inactive: u64,
    /// Not known whether used.
    pub unknown: u64,
}

/// Activity × time, in nanoseconds: each absent until its counter has given a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Engine active.
    pub engine: Option<u64>,
    /// SM active.
    pub sm_active: Option<u64>,
    /// SM occupied.
    pub sm_occupied: Option<u64>,
    /// Tensor pipes active.
    pub tensor: Option<u64>,
    /// DRAM bandwidth ÷ peak.
    pub dram: Option<u64>,
}

/// How an amount is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// A counter gave it.
    Measured,
    /// A measured total, divided by measured weights.
    Apportioned,
    /// A measured total, divided by what processes were seen to ask for.
    Inferred,
    /// Taken to be so.
    Assumed,
}

impl Evidence {
    /// Every kind.
    pub const ALL: [Self; Self::COUNT] = [Self::Measured, Self::Apportioned, Self::Inferred, Self::Assumed];
    /// How many kinds there are.
    pub const COUNT: usize = 4;

    /// The kind as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Apportioned => "apportioned",
            Self::Inferred => "inferred",
            Self::Assumed => "assumed",
        }
    }
}

/// One owner's account with one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountView {
    /// The owner.
    pub owner: Owner,
    /// The pod's namespace and name, if the owner is a pod whose name is known.
    pub pod: Option<(Arc<str>, Arc<str>)>,
    /// The device.
    pub device: DeviceId,
    /// Whether the owner has ended: its counters stay for a while, its gauges are gone.
    pub ended: bool,
    /// Allocated nanoseconds per state, in the order of [`State::ALL`].
    pub states: [u64; State::COUNT],
    /// The same in money, per class in the order of [`Class::ALL`].
    pub costs: Option<[Money; Class::COUNT]>,
    /// Nanoseconds that the owner's work ran on the device.
    pub used: u64,
    /// Those of them beyond its allocation.
    pub borrowed: u64,
    /// Allocated nanoseconds with valid counters.
    pub profiled: u64,
    /// Activity × time of its own.
    pub activity: Activity,
    /// Nanoseconds of SM activity while tensor pipes and DRAM did next to nothing.
    pub low_intensity: Option<u64>,
    /// Used nanoseconds by what bounded the work, in the order of [`Bound::ALL`]; they sum to `used`.
    pub bounds: [u64; Bound::COUNT],
    /// Microjoules: by its part of the device's use, and what the board draws without work by what it holds.
    pub energy_uj: Option<u64>,
    /// The latter alone, once the board was seen without work.
    pub idle_energy_uj: Option<u64>,
    /// What they cost, as far as a price was known.
    pub energy_cost: Option<Money>,
    /// What it asked of the device, once the probes have seen it ask for something.
    pub calls: Option<Asked>,
    /// Its gaps on the device that have ended, from then on.
    pub gaps: Option<Arc<GapLengths>>,
    /// What libraries that were injected into its processes have summed, if any were: no part of the ledgers.
    pub injected: Option<InjectedTotals>,
    /// Memory in use, in bytes.
    pub memory_used: Option<u64>,
    /// How much of the device it holds now; absent if it holds none.
    pub allocated: Option<Ppb>,
    /// Evidence of the allocated amounts: nanoseconds per [`Evidence::ALL`].
    pub allocation_evidence: [u64; Evidence::COUNT],
    /// Evidence of the used amounts.
    pub use_evidence: [u64; Evidence::COUNT],
}

/// A pod as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Its UID.
    pub uid: PodUid,
    /// Its namespace and name, if they are known.
    pub name: Option<(Arc<str>, Arc<str>)>,
    /// Whether it has ended.
    pub ended: bool,
    /// When its first process started, wall clock in nanoseconds since 1970.
    pub started: Option<u64>,
    /// SM activity (engine activity on devices without SM counters) ÷ allocation over the last 60 s; absent
    /// while more than a tenth of that is unknown.
    pub utilization: Option<Ppb>,
    /// Attributes from its source.
    pub info: crate::fact::PodInfo,
    /// What its threads did, once the probes have seen any.
    pub threads: Option<ThreadTotals>,
    /// Where its figures come from, of the last while.
    pub explanation: Arc<Explanation>,
    /// How long its cgroups say that it was held up, once they were read.
    pub pressure: Option<PressureTotals>,
    /// What they say of the leading cause of its stalls in the last minute.
    pub corroboration: Option<Corroboration>,
}

/// The totals of a namespace; those of pods that are gone are in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceView {
    /// Its name; empty for pods whose name is not known.
    pub name: Arc<str>,
    /// Allocated nanoseconds per class, in the order of [`Class::ALL`].
    pub states: [u64; Class::COUNT],
    /// The same in money, as far as prices are known.
    pub costs: Option<[Money; Class::COUNT]>,
    /// What its pods' energy cost, as far as a price was known.
    pub energy_cost: Option<Money>,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceView {
    /// Which.
    pub source: Source,
    /// Its state, once it has told one.
    pub state: Option<HealthState>,
    /// Why; empty while it works.
    pub reason: String,
    /// Since when it has been in this state.
    pub since: MonoNs,
    /// When its last fact was observed.
    pub last_fact: Option<MonoNs>,
    /// When it was last answered: what it has told holds as of then.
    pub last_answer: Option<MonoNs>,
    /// Facts received.
    pub facts: u64,
    /// Facts lost.
    pub lost: u64,
    /// Rounds that it finished.
    pub polls: u64,
    /// Nanoseconds that they took.
    pub poll_nanos: u64,
    /// Values left out, in the order of [`Discard::ALL`].
    pub discarded: [u64; Discard::ALL.len()],
    /// What its process uses, if it has one of its own.
    pub own: Option<Own>,
}

impl GpuView {
    /// Price of the whole GPU per hour now.
    pub fn price(&self) -> Option<Price> {
        self.quote.as_ref().map(|quote| quote.price)
    }
}

impl View {
    /// The view of one GPU.
    pub fn gpu(&self, id: &GpuId) -> Option<&GpuView> {
        self.gpus.iter().find(|view| view.gpu.id == *id)
    }
}
