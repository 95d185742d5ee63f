//! The state file: fixed-size records in shared memory, all valid when zeroed.
//!
//! Records refer to one another by table index, never by address. Times are `CLOCK_MONOTONIC` nanoseconds.
//! Integrals of a share over time are in thousandths of a nanosecond ("milli"), so they stay exact integers.

use std::fmt;

use crate::text::Text;

/// Identifies the file.
pub const MAGIC: u64 = 0x5350_5547_4d49_5357;
/// Changes with every change to these records.
pub const VERSION: u32 = 4;
/// Devices a node can have.
pub const MAX_DEVICES: usize = 16;
/// Engines: one per undivided device or GPU instance.
pub const MAX_ENGINES: usize = 128;
/// Clients: (process, engine) pairs.
pub const MAX_CLIENTS: usize = 512;
/// Clients of one engine.
pub const MAX_ENGINE_CLIENTS: usize = 128;
/// Streams of all clients.
pub const MAX_STREAMS: usize = 1024;
/// Streams of one client.
pub const MAX_CLIENT_STREAMS: usize = 32;
/// Events of all clients.
pub const MAX_EVENTS: usize = 4096;
/// Operations that one stream can hold; a launch into a full one waits.
pub const QUEUE_DEPTH: usize = 1024;
/// Snapshots kept per engine.
pub const SNAPSHOTS: usize = 128;
/// Per-process samples kept per device.
pub const PROCESS_SAMPLES: usize = 2048;
/// Samples that a performance monitor keeps at most.
pub const MONITOR_SAMPLES: usize = 1024;
/// Processes whose activity can be recorded.
pub const MAX_TRACES: usize = 32;
/// Records of a process's activity that wait to be taken.
pub const TRACE_RECORDS: usize = 16384;
/// Oracle records waiting to be written.
pub const LOG_RECORDS: usize = 8192;
/// Faults.
pub const MAX_FAULTS: usize = 128;
/// "No index".
pub const NONE: u32 = u32::MAX;

/// A kernel's demand, in thousandths.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Share of the engine's SMs.
    pub sm: u32,
    /// Warps resident ÷ maximum, on the SMs that it takes.
    pub occupancy: u32,
    /// Share of the peak memory bandwidth.
    pub dram: u32,
    /// Share of time that the tensor pipes of the engine are active.
    pub tensor: u32,
}

/// What an operation is.
pub mod kind {
    /// Runs on the compute engine.
    pub const KERNEL: u32 = 1;
    /// Runs on the host-to-device copy engine.
    pub const H2D: u32 = 2;
    /// Runs on the device-to-host copy engine.
    pub const D2H: u32 = 3;
    /// Stamps an event.
    pub const EVENT: u32 = 4;
    /// Waits for another stream to reach a sequence number.
    pub const WAIT: u32 = 5;
    /// Waits for a host function; done when `remaining` is 0.
    pub const HOST: u32 = 6;
}

/// What runs on the compute engine.
pub mod work {
    /// A program's kernel.
    pub const KERNEL: u32 = 0;
    /// A copy within the device.
    pub const COPY: u32 = 1;
    /// Memory is set.
    pub const SET: u32 = 2;
}

/// An operation in a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Op {
    /// One of [`kind`].
    pub kind: u32,
    /// 1 once it has run for any time.
    pub started: u32,
    /// Time that it takes, uncontended.
    pub duration: u64,
    /// Time still to run.
    pub remaining: u64,
    /// Bytes moved by a copy.
    pub bytes: u64,
    /// Order of arrival at the engine.
    pub order: u64,
    /// Demand of a kernel.
    pub load: Load,
    /// `EVENT`: event index; `WAIT`: stream index.
    pub target: u32,
    /// Generation of the target.
    pub generation: u32,
    /// `WAIT`: sequence number to reach. `HOST`: token of the function.
    pub seq: u64,
    /// When it first ran.
    pub begun: u64,
    /// `KERNEL`: the function's handle.
    pub function: u64,
    /// `KERNEL`: one of [`work`].
    pub work: u32,
    /// `KERNEL`: blocks.
    pub grid: u32,
    /// `KERNEL`: threads of a block.
    pub block: u32,
    /// `KERNEL`: dynamic shared memory of a block.
    pub shared: u32,
    /// The trace that it is recorded in, plus one; 0 for none.
    pub trace: u32,
}

/// A stream: a ring of operations. Operation number `n` (from 1) is complete when `head >= n`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// 1 when in use.
    pub used: u32,
    /// Changes with every reuse of the slot.
    pub generation: u32,
    /// Owner.
    pub client: u32,
    /// 1 for the legacy stream of a context.
    pub legacy: u32,
    /// 1 when not ordered with the legacy stream.
    pub non_blocking: u32,
    /// Groups the streams of one context.
    pub context: u32,
    /// Operations completed.
    pub head: u64,
    /// Operations enqueued.
    pub tail: u64,
    /// Engine time still to run: a lower bound on the time until it is drained.
    pub backlog: u64,
    /// The legacy stream's `tail` that this stream already waits for.
    pub waits_legacy: u64,
    /// The operations.
    pub ring: [Op; QUEUE_DEPTH],
}

/// An event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// 1 when in use.
    pub used: u32,
    /// Changes with every record.
    pub record: u32,
    /// Owning process.
    pub pid: u32,
    /// Stream last recorded in; [`NONE`] before.
    pub stream: u32,
    /// That stream's generation.
    pub generation: u32,
    /// Sequence number of the record.
    pub seq: u64,
    /// When it completed.
    pub at: u64,
}

/// Integrals of an engine since its creation. Never decrease.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time with a kernel running.
    pub active: u64,
    /// Milli: SM share × time.
    pub sm: u64,
    /// Milli: warps resident ÷ maximum × time.
    pub occupied: u64,
    /// Milli: tensor share × time.
    pub tensor: u64,
    /// Milli: share of memory bandwidth × time.
    pub dram: u64,
    /// Milli: share of the power range × time.
    pub power: u64,
    /// Bytes host to device.
    pub rx: u64,
    /// Bytes device to host.
    pub tx: u64,
    /// Changes of the process whose turn it is.
    pub switches: u64,
}

/// Totals at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When.
    pub at: u64,
    /// What.
    pub totals: Totals,
}

/// The part of a device that executes independently: the whole, or a GPU instance.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// Device index.
    pub device: u32,
    /// GPU instance id; [`NONE`] on an undivided device.
    pub gi: u32,
    /// 1 when the GPU instance holds a compute instance.
    pub ci: u32,
    /// Compute slices (7 when undivided).
    pub slices: u32,
    /// SMs.
    pub sms: u32,
    /// `NVML_GPU_INSTANCE_PROFILE_*`.
    pub profile_id: u32,
    /// Memory slices (8 when undivided).
    pub memory_slices: u32,
    /// Index among the MIG devices of its device.
    pub mig_index: u32,
    /// `MIG-…`.
    pub uuid: Text<64>,
    /// Such as `1g.10gb`.
    pub profile: Text<16>,
    /// Memory capacity.
    pub memory: u64,
    /// Memory in use.
    pub memory_used: u64,
    /// The model is advanced to here.
    pub now: u64,
    /// Operations in queues.
    pub pending: u64,
    /// Arrivals so far.
    pub arrivals: u64,
    /// Client whose turn it is; [`NONE`] before the first.
    pub turn: u32,
    /// Client that was active last.
    pub last_active: u32,
    /// End of the turn.
    pub turn_end: u64,
    /// Integrals.
    pub totals: Totals,
    /// Next boundaries: utilisation, per-process, GPM.
    pub next: [u64; 3],
    /// Integrals at the last GPM refresh.
    pub gpm: Snapshot,
    /// Snapshots taken.
    pub snapshots: u64,
    /// The latest ones, at boundaries of the utilisation period.
    pub ring: [Snapshot; SNAPSHOTS],
    /// Number of clients.
    pub clients: u32,
    /// The clients, in order of arrival.
    pub client: [u32; MAX_ENGINE_CLIENTS],
}

/// A process on an engine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// 1 when in use.
    pub used: u32,
    /// Process.
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub start: u64,
    /// Engine.
    pub engine: u32,
    /// 1 for the MPS server of its device.
    pub server: u32,
    /// Contexts that it holds.
    pub contexts: u32,
    /// Memory that it uses.
    pub memory: u64,
    /// Operations in its queues.
    pub pending: u64,
    /// Integrals.
    pub totals: Totals,
    /// Integrals at the last per-process boundary.
    pub sampled: Totals,
    /// Activity not yet in the log: start, end, busy time.
    pub open: [u64; 3],
    /// Number of streams.
    pub streams: u32,
    /// The streams.
    pub stream: [u32; MAX_CLIENT_STREAMS],
}

/// What one process used in one period.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessSample {
    /// End of the period, `CLOCK_MONOTONIC`.
    pub at: u64,
    /// End of the period, `CLOCK_REALTIME` microseconds.
    pub real_us: u64,
    /// Process.
    pub pid: u32,
    /// Percent of the period with a kernel of this process running.
    pub sm: u32,
    /// Percent of the peak memory bandwidth.
    pub memory: u32,
    /// Period in milliseconds.
    pub period_ms: u32,
}

/// What a performance monitor counted in one of its periods.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorSample {
    /// Start of the period.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// What was added to the engine's integrals.
    pub used: Totals,
}

/// A device's performance monitor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Monitor {
    /// Process that owns it; 0 for nobody.
    pub owner: u32,
    /// 1 while it samples.
    pub running: u32,
    /// The owner's start time, in clock ticks since boot.
    pub owner_start: u64,
    /// Nanoseconds between samples.
    pub period: u64,
    /// Next sample.
    pub next: u64,
    /// Samples that its buffer has room for.
    pub room: u64,
    /// Samples put into the buffer since the start.
    pub taken: u64,
    /// Samples taken out of it.
    pub given: u64,
    /// 1 when a sample found no room.
    pub overflow: u64,
    /// Integrals at the last sample.
    pub last: Snapshot,
    /// The buffer.
    pub ring: [MonitorSample; MONITOR_SAMPLES],
}

/// A device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Model.
    pub model: u32,
    /// Minor number.
    pub minor: u32,
    /// SMs.
    pub sms: u32,
    /// Idle power.
    pub idle_w: u32,
    /// Power limit.
    pub max_w: u32,
    /// 1 when all processes share one context.
    pub mps: u32,
    /// 1 when the MPS server has per-process samples.
    pub mps_samples: u32,
    /// 1 in MIG mode.
    pub mig: u32,
    /// Per-process utilisation is a multiple of this.
    pub process_step: u32,
    /// Chance, in thousandths, that a process misses from a sample.
    pub process_drop: u32,
    /// 1 when only the newest sample of a process is returned.
    pub process_latest: u32,
    /// PCI domain, bus, device.
    pub pci: [u32; 3],
    /// First engine.
    pub engine: u32,
    /// Number of engines.
    pub engines: u32,
    /// `GPU-…`.
    pub uuid: Text<64>,
    /// PCI bus id.
    pub pci_bus: Text<32>,
    /// Memory capacity.
    pub memory: u64,
    /// Memory that a context takes.
    pub context: u64,
    /// Time slice.
    pub quantum: u64,
    /// Sample periods: utilisation, per-process, GPM.
    pub period: [u64; 3],
    /// Delay of per-process samples.
    pub process_lag: u64,
    /// Per-process samples taken.
    pub samples: u64,
    /// The latest ones.
    pub sample: [ProcessSample; PROCESS_SAMPLES],
    /// Its performance monitor.
    pub monitor: Monitor,
}

/// A fault.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRecord {
    /// [`crate::scenario::FaultKind::code`].
    pub kind: u32,
    /// Device index; [`NONE`] for all.
    pub gpu: u32,
    /// Start.
    pub from: u64,
    /// End.
    pub until: u64,
    /// XID code, metric id or hash of a function's name.
    pub arg: u64,
    /// XIDs in a row.
    pub count: u64,
}

/// A busy interval on its way to the oracle's log.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LogRecord {
    /// Engine.
    pub engine: u32,
    /// Process.
    pub pid: u32,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Time within it that a kernel ran.
    pub busy: u64,
}

/// An operation that is done.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    /// The operation, with the time at which it first ran.
    pub op: Op,
    /// Its engine.
    pub engine: u32,
    /// When it was done.
    pub end: u64,
}

/// What a process has done, for itself: operations enqueued while their kind was wanted, in order of completion.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// Process; 0 for nobody.
    pub pid: u32,
    /// Wanted kinds: bit 0 kernels, bit 1 copies, bit 2 memory that is set.
    pub wanted: u32,
    /// The process's start time, in clock ticks since boot.
    pub start: u64,
    /// Records taken.
    pub head: u64,
    /// Records put in.
    pub tail: u64,
    /// Records that found no room.
    pub lost: u64,
    /// The records.
    pub ring: [Activity; TRACE_RECORDS],
}

/// The whole state file.
#[repr(C)]
pub struct Shared {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// CUDA version.
    pub cuda_version: u32,
    /// Guards everything below.
    pub mutex: libc::pthread_mutex_t,
    /// When the node was created.
    pub epoch: u64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at creation.
    pub real_offset: u64,
    /// Seed.
    pub seed: u64,
    /// Gap that does not end an oracle record.
    pub merge_gap: u64,
    /// Driver version.
    pub driver_version: Text<32>,
    /// Last housekeeping.
    pub swept: u64,
    /// Last look for dead processes.
    pub buried: u64,
    /// Times that a dead process's lock was taken over.
    pub recoveries: u64,
    /// Oracle records lost because nobody could write them.
    pub log_lost: u64,
    /// Number of devices.
    pub devices: u32,
    /// Number of engines.
    pub engines: u32,
    /// Number of faults.
    pub faults: u32,
    /// Oracle records waiting.
    pub logged: u32,
    /// Highest client slot ever used, plus one.
    pub client_slots: u32,
    /// Highest trace ever used, plus one.
    pub traces: u32,
    /// Devices.
    pub device: [Device; MAX_DEVICES],
    /// Engines.
    pub engine: [Engine; MAX_ENGINES],
    /// Clients.
    pub client: [Client; MAX_CLIENTS],
    /// Events.
    pub event: [Event; MAX_EVENTS],
    /// Faults.
    pub fault: [FaultRecord; MAX_FAULTS],
    /// Oracle records waiting to be written.
    pub log: [LogRecord; LOG_RECORDS],
    /// Activity of processes that want it.
    pub trace: [Trace; MAX_TRACES],
    /// Streams.
    pub stream: [Stream; MAX_STREAMS],
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("devices", &self.devices)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// A record's index as stored.
#[expect(clippy::cast_possible_truncation, reason = "every table has fewer than 2^32 entries")]
pub const fn index(at: usize) -> u32 {
    at as u32
}
