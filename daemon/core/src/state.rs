//! The states of allocated device time, and which of them a stretch of time was in.

use serde::{Deserialize, Serialize};

use crate::explain::Ground;
use crate::split::Split;
use crate::stall::Causes;

/// A state and its cause. Exhaustive: every allocated nanosecond is in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The device executes this owner's work.
    Active,
    /// Held up by block reads.
    StalledDiskRead,
    /// Held up by block writes.
    StalledDiskWrite,
    /// Held up by receiving from the network.
    StalledNetwork,
    /// Held up by the host computing.
    StalledCpu,
    /// Held up by runnable threads without a CPU.
    StalledCpuWait,
    /// Held up by reclaim, swap or fault service.
    StalledMemory,
    /// Held up by locks, pipes or other processes.
    StalledLock,
    /// Held up by copies between host and device.
    StalledTransfer,
    /// Held up by many short gaps between small kernels.
    StalledLaunch,
    /// In a synchronising call with work outstanding and nothing of the owner's running.
    StalledSync,
    /// Work outstanding while other owners run on the device.
    StalledContended,
    /// No process of the owner has opened the device.
    IdleNoProcess,
    /// A process has opened the device but has no context yet.
    IdleInitializing,
    /// A process has a context and has never run anything.
    IdleModelLoad,
    /// Nothing to do.
    IdleNoWork,
    /// Not idle for certain, and no evidence of what held it up.
    UnknownNoEvidence,
    /// The device's counters were not to be had.
    UnknownSourceLost,
    /// Two signals contradict each other.
    UnknownConflict,
}

impl State {
    /// Every state, in the order of their declaration.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Active,
        Self::StalledDiskRead,
        Self::StalledDiskWrite,
        Self::StalledNetwork,
        Self::StalledCpu,
        Self::StalledCpuWait,
        Self::StalledMemory,
        Self::StalledLock,
        Self::StalledTransfer,
        Self::StalledLaunch,
        Self::StalledSync,
        Self::StalledContended,
        Self::IdleNoProcess,
        Self::IdleInitializing,
        Self::IdleModelLoad,
        Self::IdleNoWork,
        Self::UnknownNoEvidence,
        Self::UnknownSourceLost,
        Self::UnknownConflict,
    ];
    /// How many states there are.
    pub const COUNT: usize = 19;

    /// The coarse state.
    pub const fn class(self) -> Class {
        match self {
            Self::Active => Class::Active,
            Self::StalledDiskRead
            | Self::StalledDiskWrite
            | Self::StalledNetwork
            | Self::StalledCpu
            | Self::StalledCpuWait
            | Self::StalledMemory
            | Self::StalledLock
            | Self::StalledTransfer
            | Self::StalledLaunch
            | Self::StalledSync
            | Self::StalledContended => Class::Stalled,
            Self::IdleNoProcess | Self::IdleInitializing | Self::IdleModelLoad | Self::IdleNoWork => {
                Class::Idle
            }
            Self::UnknownNoEvidence | Self::UnknownSourceLost | Self::UnknownConflict => Class::Unknown,
        }
    }

    /// The cause as a label value; `none` for active time.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Active => "none",
            Self::StalledDiskRead => "disk_read",
            Self::StalledDiskWrite => "disk_write",
            Self::StalledNetwork => "network",
            Self::StalledCpu => "cpu",
            Self::StalledCpuWait => "cpu_wait",
            Self::StalledMemory => "memory",
            Self::StalledLock => "lock",
            Self::StalledTransfer => "transfer",
            Self::StalledLaunch => "launch",
            Self::StalledSync => "sync",
            Self::StalledContended => "contended",
            Self::IdleNoProcess => "no_process",
            Self::IdleInitializing => "initializing",
            Self::IdleModelLoad => "model_load",
            Self::IdleNoWork => "no_work",
            Self::UnknownNoEvidence => "no_evidence",
            Self::UnknownSourceLost => "source_lost",
            Self::UnknownConflict => "conflict",
        }
    }

    /// Its place in [`State::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A coarse state of allocated time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The device executes this owner's work.
    Active,
    /// Work was wanted and the device stood still.
    Stalled,
    /// No work was wanted.
    Idle,
    /// Not known.
    Unknown,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; Self::COUNT] = [Self::Active, Self::Stalled, Self::Idle, Self::Unknown];
    /// How many classes there are.
    pub const COUNT: usize = 4;

    /// The class as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Stalled => "stalled",
            Self::Idle => "idle",
            Self::Unknown => "unknown",
        }
    }
}

/// What a device's time is, over all owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceState {
    /// Allocated, and in a state of its owner.
    Allocated(Class),
    /// Granted to nobody.
    Unallocated,
    /// Slices of a GPU in MIG mode that no further profile can use.
    Unallocatable,
}

impl DeviceState {
    /// Every state of a device.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Allocated(Class::Active),
        Self::Allocated(Class::Stalled),
        Self::Allocated(Class::Idle),
        Self::Allocated(Class::Unknown),
        Self::Unallocated,
        Self::Unallocatable,
    ];
    /// How many there are.
    pub const COUNT: usize = 6;

    /// The state as a label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Allocated(class) => class.label(),
            Self::Unallocated => "unallocated",
            Self::Unallocatable => "unallocatable",
        }
    }

    /// Its place in [`DeviceState::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Self::Allocated(class) => class as usize,
            Self::Unallocated => 4,
            Self::Unallocatable => 5,
        }
    }
}

/// What is known of one owner on one device over a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// Nanoseconds of the device allocated to the owner.
    pub allocated: u64,
    /// Length of the stretch in the device's own nanoseconds: what `allocated` is a part of.
    pub whole: u64,
    /// Nanoseconds that the owner's work ran on the device; none without counters.
    pub used: Option<u64>,
    /// Whether two signals about the device contradict each other.
    pub conflict: bool,
    /// How far the owner's processes have come; none if that is not known.
    pub progress: Option<Progress>,
    /// Nanoseconds since the owner's work was last seen on the device (or since it was first watched).
    pub quiet: u64,
    /// From how long a quiet on there is no work, in nanoseconds.
    pub no_work_after: u64,
    /// What held up the time that was not used, as weights; none without evidence from the host.
    pub causes: Option<Causes>,
}

/// How far an owner's processes have come with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Progress {
    /// None has opened it.
    NoProcess,
    /// One has it open, and none has a context.
    Opened,
    /// One has a context, none has run anything on it, and all were watched from their start.
    Loading,
    /// They have run work, or may have before they were watched.
    Working,
}

/// Divides an owner's allocated time over states, and says why. The amounts add up to `allocated`.
///
/// Below a thousandth of the stretch, use counts as none: counters of quiet devices are not always 0.
/// Time held up with a live process and recent work goes by its causes; without evidence from the host it is
/// `unknown/no_evidence`.
pub fn divide(s: &Situation) -> (Vec<(State, u64)>, Ground) {
    if s.allocated == 0 {
        return (Vec::new(), Ground::Used);
    }
    let Some(used) = s.used else {
        let (state, ground) = if s.conflict {
            (State::UnknownConflict, Ground::Conflict)
        } else {
            (State::UnknownSourceLost, Ground::SourceLost)
        };
        return (vec![(state, s.allocated)], ground);
    };
    let active = used.min(s.allocated);
    let rest = s.allocated - active;
    let quiet = used <= s.whole / 1000;
    let (state, ground) = match s.progress {
        _ if rest == 0 => (State::UnknownNoEvidence, Ground::Used),
        _ if s.conflict => (State::UnknownConflict, Ground::Conflict),
        Some(Progress::NoProcess) if quiet => (State::IdleNoProcess, Ground::Progress),
        Some(Progress::Opened) if quiet => (State::IdleInitializing, Ground::Progress),
        Some(Progress::Loading) if quiet => (State::IdleModelLoad, Ground::Progress),
        Some(_) if quiet && s.quiet >= s.no_work_after => (State::IdleNoWork, Ground::Quiet),
        _ => (State::UnknownNoEvidence, Ground::Unseen),
    };
    let by_cause = match (&s.causes, ground) {
        (Some(causes), Ground::Unseen) => {
            Split::by_weight(rest, causes.amounts.iter().map(|(state, weight)| (*state, *weight)).collect())
        }
        _ => None,
    };
    let ground = if by_cause.is_some() { Ground::Causes } else { ground };
    let held_up = by_cause.unwrap_or_else(|| Split::all_to(rest, state)).into_parts();
    let states =
        [(State::Active, active)].into_iter().chain(held_up).filter(|(_, amount)| *amount > 0).collect();
    (states, ground)
}
