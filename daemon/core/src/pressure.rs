//! What a pod's cgroups say of how long its threads were held up: a second, independent signal beside the causes of
//! stalls, never a part of them.
//!
//! The kernel counts pressure as the time in which at least one thread of the pod waited for a resource, and
//! throttling as the time of each CPU on which a limit held the threads of a cgroup back. Neither is time of a device.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::identity::{ContainerId, PodUid};
use crate::level::Cumulative;
use crate::state::{Class, State};
use crate::time::{MonoNs, SECOND};

/// How far back corroboration looks.
const TRAILING: u64 = 60 * SECOND;

/// A part of a resource's or a limit's time that is below this share of a stretch confirms nothing: one hundredth.
const LEAST: u64 = 100;

/// Counters of a pod's cgroups, as they stood at one time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pressure {
    /// The pod.
    pub pod: PodUid,
    /// Nanoseconds in which some thread of it waited for a resource, in the order of [`Resource::ALL`]; each none
    /// where the kernel does not count them.
    pub waited: [Option<u64>; Resource::COUNT],
    /// Throttling of the pod's own cgroup and of those of its containers, in order; empty where no cgroup counts it.
    pub throttled: Vec<Throttled>,
}

/// How long a limit has held back a cgroup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Throttled {
    /// The container whose cgroup it is; none for the pod's own.
    pub container: Option<ContainerId>,
    /// Nanoseconds of CPUs since the cgroup was made.
    pub nanos: u64,
}

/// What the kernel counts pressure of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A CPU.
    Cpu,
    /// Block I/O.
    Io,
    /// Memory: reclaim, swap, pages that were lost.
    Memory,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Self; Self::COUNT] = [Self::Cpu, Self::Io, Self::Memory];
    /// How many there are.
    pub const COUNT: usize = 3;

    /// The resource as the kernel and labels call it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Io => "io",
            Self::Memory => "memory",
        }
    }

    /// What a thread waits for in time of this state, if the kernel counts pressure of that.
    const fn of(state: State) -> Option<Self> {
        match state {
            State::StalledCpuWait => Some(Self::Cpu),
            State::StalledDiskRead | State::StalledDiskWrite => Some(Self::Io),
            State::StalledMemory => Some(Self::Memory),
            _ => None,
        }
    }
}

/// A pod's totals since its cgroups were first read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PressureTotals {
    /// Nanoseconds of waiting, in the order of [`Resource::ALL`].
    pub waited: [Option<u64>; Resource::COUNT],
    /// Nanoseconds of CPUs in which a limit held it back.
    pub throttled: Option<u64>,
}

/// Whether a second signal shows what the leading cause of a pod's stalls says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corroboration {
    /// The cause to which most stalled time of the last minute went.
    pub leading: State,
    /// Nanoseconds of the pod's device time that went to it.
    pub stalled: u64,
    /// Nanoseconds over which this looks.
    pub during: u64,
    /// Nanoseconds in which threads of the pod waited for the resource of that cause; none if that is not counted.
    pub waited: Option<u64>,
    /// For [`State::StalledCpuWait`], nanoseconds of CPUs in which a limit held the pod back; none if that is not
    /// counted.
    pub throttled: Option<u64>,
}

impl Corroboration {
    /// Whether any second signal shows it; none if there is no signal that could.
    pub fn confirmed(&self) -> Option<bool> {
        let shows = |nanos: u64| nanos > self.during / LEAST;
        match (self.waited.map(shows), self.throttled.map(shows)) {
            (Some(waited), throttled) => Some(waited || throttled == Some(true)),
            // A limit is one reason of several to be without a CPU.
            (None, throttled) => throttled.filter(|shown| *shown),
        }
    }
}

/// Device time of a pod by state, over all its devices.
pub(crate) type States = [u64; State::COUNT];

/// What cgroups have said of pods.
#[derive(Debug, Default)]
pub(crate) struct Pressures {
    pods: BTreeMap<PodUid, Pod>,
}

#[derive(Debug, Default)]
struct Pod {
    waited: [Cumulative; Resource::COUNT],
    throttled: BTreeMap<Option<ContainerId>, Cumulative>,
    totals: PressureTotals,
    /// Totals at times of the last minute, and the states then.
    trail: VecDeque<(MonoNs, PressureTotals, States)>,
}

impl Pressures {
    /// Takes in what cgroups say at `at`, when the pod's device time was divided into `states`.
    pub(crate) fn take(&mut self, pressure: &Pressure, at: MonoNs, states: States) {
        let pod = self.pods.entry(pressure.pod.clone()).or_default();
        let counters = pod.waited.iter_mut().zip(pressure.waited);
        for (total, (counter, waited)) in pod.totals.waited.iter_mut().zip(counters) {
            let Some(waited) = waited else { continue };
            add(total, counter.advance(waited));
        }
        pod.throttled.retain(|container, _| pressure.throttled.iter().any(|one| one.container == *container));
        for one in &pressure.throttled {
            let counter = pod.throttled.entry(one.container.clone()).or_default();
            add(&mut pod.totals.throttled, counter.advance(one.nanos));
        }
        let old = |next: &(MonoNs, PressureTotals, States)| at.since(next.0) >= TRAILING;
        while pod.trail.get(1).is_some_and(old) {
            pod.trail.pop_front();
        }
        pod.trail.push_back((at, pod.totals, states));
    }

    /// A pod's totals; none before its cgroups were read.
    pub(crate) fn totals(&self, pod: &PodUid) -> Option<PressureTotals> {
        self.pods.get(pod).map(|pod| pod.totals)
    }

    /// What the last minute before `now` says of the leading cause of a pod's stalls; none if it did not stall, or if
    /// its cgroups are no longer read.
    pub(crate) fn corroboration(&self, pod: &PodUid, now: MonoNs) -> Option<Corroboration> {
        let trail = &self.pods.get(pod)?.trail;
        let ((begin, before, then), (end, after, states)) = (trail.front()?, trail.back()?);
        let during = end.since(*begin);
        if during == 0 || now.since(*end) >= TRAILING {
            return None;
        }
        let stalled = State::ALL.into_iter().filter(|state| state.class() == Class::Stalled);
        let grown = |state: State| states[state.index()].saturating_sub(then[state.index()]);
        let leading = stalled.rev().max_by_key(|state| grown(*state)).filter(|state| grown(*state) > 0)?;
        let more = |after: Option<u64>, before: Option<u64>| {
            after.map(|after| after.saturating_sub(before.unwrap_or(0)))
        };
        let place = Resource::of(leading).map(|resource| resource as usize);
        Some(Corroboration {
            leading,
            stalled: grown(leading),
            during,
            waited: place.and_then(|place| more(after.waited[place], before.waited[place])),
            throttled: more(after.throttled, before.throttled).filter(|_| leading == State::StalledCpuWait),
        })
    }

    /// Forgets pods that are not to be kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(&PodUid) -> bool) {
        self.pods.retain(|pod, _| keep(pod));
    }
}

/// Adds what a counter has gained; its first value and one after a step back begin the total and add nothing.
fn add(total: &mut Option<u64>, gained: Option<u64>) {
    let sum = total.get_or_insert(0);
    *sum = sum.saturating_add(gained.unwrap_or(0));
}

#[cfg(test)]
mod tests;
