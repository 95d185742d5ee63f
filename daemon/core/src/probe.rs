//! What the probes saw between two snapshots: what processes asked of GPUs, and what the host did meanwhile.

use serde::{Deserialize, Serialize};

use crate::fact::DeviceRef;
use crate::identity::{ProcessId, Scope};
use crate::time::{Interval, MonoNs};

/// What a thread was doing outside the CUDA driver. Every nanosecond of a thread is in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// On a CPU, but for moments between two waits for the same input or output, which are part of these.
    Cpu,
    /// Runnable without a CPU: run queue, CFS throttling.
    CpuWait,
    /// Waiting for block reads, page faults that read included.
    DiskRead,
    /// Waiting for block writes and their completion.
    DiskWrite,
    /// Waiting to receive from the network: outbound connections, network file systems.
    Network,
    /// Waiting for requests: inbound connections, and accepting them.
    Request,
    /// Reclaim, swap, fault service.
    Memory,
    /// Locks, pipes, local sockets, other processes.
    Lock,
    /// Waiting for any of several files, it is not known for which; or for a thread, it is not known yet for what.
    Poll,
    /// Asleep until a time that it chose.
    Timer,
    /// Anything else, or not known.
    Unknown,
}

impl Doing {
    /// Everything that a thread can be doing, in the order of [`Doings`].
    pub const ALL: [Self; Self::COUNT] = [
        Self::Cpu,
        Self::CpuWait,
        Self::DiskRead,
        Self::DiskWrite,
        Self::Network,
        Self::Request,
        Self::Memory,
        Self::Lock,
        Self::Poll,
        Self::Timer,
        Self::Unknown,
    ];
    /// How many there are.
    pub const COUNT: usize = 11;

    /// Whether a thread that does this is on its way to what others wait for.
    pub const fn is_busy(self) -> bool {
        match self {
            Self::Cpu | Self::CpuWait | Self::DiskRead | Self::DiskWrite | Self::Network | Self::Memory => {
                true
            }
            Self::Request | Self::Lock | Self::Poll | Self::Timer | Self::Unknown => false,
        }
    }

    /// It as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CpuWait => "cpu_wait",
            Self::DiskRead => "disk_read",
            Self::DiskWrite => "disk_write",
            Self::Network => "network",
            Self::Request => "request",
            Self::Memory => "memory",
            Self::Lock => "lock",
            Self::Poll => "poll",
            Self::Timer => "timer",
            Self::Unknown => "unknown",
        }
    }
}

/// Nanoseconds of threads by what they were doing, in the order of [`Doing::ALL`].
pub type Doings = [u64; Doing::COUNT];

/// Adds what was done at another time; sums end at their largest value.
pub(crate) fn add(sums: &mut Doings, more: &Doings) {
    for (sum, amount) in sums.iter_mut().zip(more) {
        *sum = sum.saturating_add(*amount);
    }
}

/// All that the probes saw between two snapshots. One fact, so that all of a snapshot arrives or none does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Probes {
    /// From one snapshot to the next; consecutive ones touch unless some were lost.
    pub during: Interval,
    /// What each process asked of each of its devices, in order of process and device.
    pub calls: Vec<Calls>,
    /// What the threads of each scope were doing, in order of scope.
    pub threads: Vec<Threads>,
    /// What processes that use a GPU were doing, where samples stand in for probes of their calls; in order of
    /// process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampled: Vec<Sampled>,
    /// Whether wake-ups are followed: then a wait for another thread counts as what that one did, and [`Doing::Lock`]
    /// is what no thread explains. A wait that goes on at a snapshot is [`Doing::Poll`] up to there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub followed: bool,
    /// The waits that ended with a wake-up by another thread of those that are watched, in order of processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Waits>,
    /// Processes that use a CUDA driver and have no [`Calls`], in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
}

impl Probes {
    /// A snapshot in which nothing was seen.
    pub const fn of_nothing(during: Interval) -> Self {
        Self {
            during,
            calls: Vec::new(),
            threads: Vec::new(),
            sampled: Vec::new(),
            followed: false,
            waits: Vec::new(),
            users: Vec::new(),
        }
    }
}

/// A process that uses a CUDA driver and of which no call was seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct User {
    /// The process.
    pub process: ProcessId,
    /// The device; none if nothing says which.
    pub device: Option<DeviceRef>,
    /// Whether its calls would have been seen: then it has made none since it is watched. If not, its pod wants no
    /// probes, and it may have asked for anything.
    pub watched: bool,
}

/// Waits of the threads of one process for those of another, or for one another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Waits {
    /// The process of the threads that waited.
    pub sleeper: ProcessId,
    /// The process of the threads that ended the waits.
    pub waker: ProcessId,
    /// How many waits.
    pub count: u64,
    /// What the wakers did meanwhile: nanoseconds of the sleepers' waits.
    pub doings: Doings,
}

impl Waits {
    /// Nanoseconds of them all.
    pub fn total(&self) -> u64 {
        self.doings.iter().fold(0, |sum, amount| sum.saturating_add(*amount))
    }
}

/// What a process that uses a GPU was doing, by samples of all its threads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sampled {
    /// The process.
    pub process: ProcessId,
    /// How many samples there were.
    pub samples: u64,
    /// Nanoseconds of the interval by [`crate::sample::together`]; they sum to its length.
    pub doings: Doings,
}

/// What one process asked of one device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Calls {
    /// The process.
    pub process: ProcessId,
    /// The device; none if nothing says which.
    pub device: Option<DeviceRef>,
    /// Whether the probes were there before its first call: then what was not seen has not happened.
    pub from_start: bool,
    /// Whether its calls are let alone because probing so many would cost it too much: then nothing else is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shed: bool,
    /// Enqueues since it is watched: launches, graph launches, copies, memsets, host functions.
    pub enqueued: u64,
    /// When its last call ended, of any kind; none before the first.
    pub last_call: Option<MonoNs>,
    /// What it asked in this interval.
    #[serde(flatten)]
    pub asked: Asked,
    /// The gaps, in order.
    pub gaps: Vec<Gap>,
}

impl Calls {
    /// Whether nothing is known of the process but that it may ask for work: no call of it is watched.
    pub fn is_unseen(&self) -> bool {
        let nothing = !self.from_start && self.last_call.is_none() && self.gaps.is_empty();
        self.shed || nothing && self.asked == Asked::default() && self.enqueued > 0
    }
}

/// What kind of gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapKind {
    /// From the return of a synchronising call that left nothing outstanding to the next enqueue: the device had
    /// nothing of this process's to do.
    Drained,
    /// From one enqueue to the next, with an unknown backlog in between.
    Enqueue,
    /// From an enqueue to the return of the synchronising call that followed it: work was outstanding.
    Sync,
}

impl GapKind {
    /// Every kind, in order.
    pub const ALL: [Self; Self::COUNT] = [Self::Drained, Self::Enqueue, Self::Sync];
    /// How many there are.
    pub const COUNT: usize = 3;

    /// The kind as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Enqueue => "enqueue",
            Self::Sync => "sync",
        }
    }
}

/// Gaps of one kind and about one length, summed. A gap that goes on at the snapshot counts with its part so far;
/// its `count` is in the interval in which it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gap {
    /// Their kind.
    pub kind: GapKind,
    /// ⌊log₂⌋ of their length in nanoseconds so far.
    pub log2: u8,
    /// How many began in this interval.
    pub count: u64,
    /// Nanoseconds of them in this interval.
    pub total: u64,
    /// How many of this length ended in this interval: each once, by its whole length.
    #[serde(default)]
    pub ended: u64,
    /// Nanoseconds of those, from their beginnings.
    #[serde(default)]
    pub lasted: u64,
    /// What the threads that ended them (for one that goes on: that made the last call) did meanwhile. Sums to
    /// `total`.
    pub doings: Doings,
}

/// What the threads of one scope were doing, in thread time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Threads {
    /// Whose.
    pub scope: Scope,
    /// Threads that have called the CUDA driver; by samples, all of a process that uses a GPU.
    pub callers: Doings,
    /// The others: loaders, pin threads, feeders.
    pub others: Doings,
}

/// What was asked of a device over a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asked {
    /// Launches of kernels; those that a capture recorded are none.
    pub launches: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Bytes copied to the device, as the caller stated them.
    pub bytes_to_device: u64,
    /// Bytes copied from the device.
    pub bytes_to_host: u64,
    /// Bytes copied within or between devices, or in a direction that the caller did not state.
    pub bytes_other: u64,
    /// Nanoseconds that threads spent in copies that held them up.
    pub copy_wait: u64,
    /// The most of them that the copies themselves can have taken, each by its own bytes at 2 GB/s. What is longer was a
    /// wait for what was enqueued before.
    pub copies_most: u64,
    /// What they took in any case, each by its own bytes at 8 GB/s: pageable memory is copied twice.
    pub copies_least: u64,
    /// Nanoseconds that threads spent in synchronising calls.
    pub sync_wait: u64,
}

impl Asked {
    /// Adds what was asked beside it.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.launches, other.launches),
            (&mut self.graph_launches, other.graph_launches),
            (&mut self.bytes_to_device, other.bytes_to_device),
            (&mut self.bytes_to_host, other.bytes_to_host),
            (&mut self.bytes_other, other.bytes_other),
            (&mut self.copy_wait, other.copy_wait),
            (&mut self.copies_most, other.copies_most),
            (&mut self.copies_least, other.copies_least),
            (&mut self.sync_wait, other.sync_wait),
        ];
        for (sum, amount) in sums {
            // What a workload hands to the driver may be anything.
            *sum = sum.saturating_add(amount);
        }
    }
}

/// What the threads of an owner did since it is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTotals {
    /// Threads that call the CUDA driver.
    pub callers: Doings,
    /// The others.
    pub others: Doings,
}

impl ThreadTotals {
    /// Adds what they did in one more interval.
    pub fn add(&mut self, threads: &Threads) {
        add(&mut self.callers, &threads.callers);
        add(&mut self.others, &threads.others);
    }
}
