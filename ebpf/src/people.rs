//! Who processes are, and which devices they mean.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use warpmeter_core::fact::{DeviceRef, Opened};
use warpmeter_core::identity::{GpuId, HostPid, MigId, PodUid, ProcessId, Scope};
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_ebpf_common::Process;

use crate::meter::Names;

/// How long after it was first seen a process is looked up at every chance: runtimes start it first and place it then.
const YOUNG: u64 = 5 * SECOND;
/// How often it is looked up after that.
const CHECK: u64 = 10 * SECOND;
/// Cgroups that are remembered.
const CGROUPS: usize = 4096;
/// A clock tick, in which the kernel tells when processes started.
const TICK: u64 = SECOND / 100;

/// The host, as far as probes need to know it.
pub trait Host {
    /// The process that has a pid now, and whose it is.
    fn process(&mut self, pid: u32) -> Option<(ProcessId, Scope)>;
    /// The GPU device files that it has open.
    fn opened(&mut self, pid: u32) -> Option<Opened>;
    /// Whether what runs under a scope is one workload: all of its processes concern its GPUs.
    fn is_workload(&self, scope: &Scope) -> bool;
}

#[derive(Debug, Clone)]
struct Known {
    id: ProcessId,
    scope: Scope,
    first: u64,
    checked: u64,
}

/// What is known of processes.
#[derive(Debug)]
pub(crate) struct People<H> {
    host: H,
    /// The time of what is asked.
    pub now: u64,
    known: HashMap<u32, Known>,
    /// Whose processes of a cgroup are; none if they are of several, as where the kernel's number means nothing.
    cgroups: HashMap<u64, Option<Scope>>,
    devices: HashMap<(u32, u32), [u8; 16]>,
    opened: HashMap<u32, (u64, Option<DeviceRef>)>,
    holders: BTreeMap<GpuId, BTreeSet<u32>>,
    instances: BTreeSet<String>,
    refusals: BTreeSet<PodUid>,
    /// Processes that use a driver.
    pub users: HashSet<u32>,
    /// Processes of which not every call is seen.
    pub unseen: HashSet<u32>,
    /// Processes whose calls are let alone for their cost.
    pub shed: HashSet<u32>,
}

impl<H: Host> People<H> {
    pub(crate) fn new(host: H) -> Self {
        Self {
            host,
            now: 0,
            known: HashMap::new(),
            cgroups: HashMap::new(),
            devices: HashMap::new(),
            opened: HashMap::new(),
            holders: BTreeMap::new(),
            instances: BTreeSet::new(),
            refusals: BTreeSet::new(),
            users: HashSet::new(),
            unseen: HashSet::new(),
            shed: HashSet::new(),
        }
    }

    pub(crate) fn hold(&mut self, gpu: GpuId, pids: Vec<u32>) {
        self.holders.insert(gpu, pids.into_iter().collect());
    }

    pub(crate) fn set_instances(&mut self, instances: &[MigId]) {
        self.instances = instances.iter().map(|id| id.as_str().to_owned()).collect();
    }

    /// Whether that is something new.
    pub(crate) fn refuse(&mut self, pods: Vec<PodUid>) -> bool {
        let pods = pods.into_iter().collect();
        std::mem::replace(&mut self.refusals, pods) != self.refusals
    }

    pub(crate) fn learn(&mut self, tgid: u32, ordinal: u32, uuid: [u8; 16]) {
        self.devices.insert((tgid, ordinal), uuid);
    }

    pub(crate) fn forget(&mut self, tgid: u32) {
        self.known.remove(&tgid);
        self.opened.remove(&tgid);
        self.users.remove(&tgid);
        self.unseen.remove(&tgid);
        self.shed.remove(&tgid);
        self.devices.retain(|(process, _), _| *process != tgid);
    }

    /// Forgets all processes but those that `exist`.
    pub(crate) fn keep(&mut self, exist: impl Fn(u32) -> bool) {
        self.known.retain(|pid, _| exist(*pid));
        self.opened.retain(|pid, _| exist(*pid));
        self.devices.retain(|(pid, _), _| exist(*pid));
        if self.cgroups.len() >= CGROUPS {
            self.cgroups.clear();
        }
    }

    /// Whose a process is.
    pub(crate) fn scope(&mut self, pid: u32) -> Option<Scope> {
        self.look_up(pid).map(|known| known.scope.clone())
    }

    /// The workload of a process: of pods without the container.
    pub(crate) fn workload(&mut self, pid: u32) -> Option<Scope> {
        match self.scope(pid)? {
            Scope::Pod { uid, .. } => Some(Scope::Pod { uid, container: None }),
            other => Some(other),
        }
    }

    /// The processes that have a GPU open for work, as the driver says.
    pub(crate) fn holders(&self) -> BTreeSet<u32> {
        self.holders.values().flatten().copied().collect()
    }

    /// Whether a process's pod wants no probes.
    pub(crate) fn refuses(&mut self, pid: u32) -> bool {
        if self.refusals.is_empty() {
            return false;
        }
        let refused = matches!(self.look_up(pid).map(|known| &known.scope), Some(Scope::Pod { .. }));
        refused
            && match self.known.get(&pid).map(|known| &known.scope) {
                Some(Scope::Pod { uid, .. }) => self.refusals.contains(uid),
                _ => false,
            }
    }

    pub(crate) fn is_workload(&self, scope: &Scope) -> bool {
        self.host.is_workload(scope)
    }

    fn look_up(&mut self, pid: u32) -> Option<&Known> {
        let now = self.now;
        let due = self.known.get(&pid).is_none_or(|known| {
            let every = if now.saturating_sub(known.first) < YOUNG { 1 } else { CHECK };
            now.saturating_sub(known.checked) >= every
        });
        if due && let Some((id, scope)) = self.host.process(pid) {
            let first = self.known.get(&pid).filter(|known| known.id == id).map_or(now, |known| known.first);
            self.known.insert(pid, Known { id, scope, first, checked: now });
        }
        self.known.get(&pid)
    }

    /// The one device that a process can mean, if there is only one.
    fn only_device(&mut self, pid: u32) -> Option<DeviceRef> {
        let mut held = self.holders.iter().filter(|(_, pids)| pids.contains(&pid)).map(|(gpu, _)| gpu);
        if let (Some(gpu), None) = (held.next(), held.next()) {
            return Some(DeviceRef::Gpu(gpu.clone()));
        }
        let now = self.now;
        if let Some((checked, device)) = self.opened.get(&pid)
            && now.saturating_sub(*checked) < CHECK
        {
            return device.clone();
        }
        let device = match self.host.opened(pid)?.minors.as_slice() {
            [minor] => Some(DeviceRef::Minor(*minor)),
            _ => None,
        };
        self.opened.insert(pid, (now, device.clone()));
        device
    }
}

impl<H: Host> Names for People<H> {
    fn process(&mut self, tgid: u32, record: &Process) -> Option<(ProcessId, Scope)> {
        let ended = record.ended != 0;
        // The pid may be another process's by now.
        if !ended {
            self.look_up(tgid);
        }
        if let Some(Known { id, scope, .. }) = self.known.get(&tgid) {
            if record.cgroup != 0 && self.cgroups.len() < CGROUPS {
                let place = self.cgroups.entry(record.cgroup).or_insert_with(|| Some(scope.clone()));
                if place.as_ref() != Some(scope) {
                    *place = None;
                }
            }
            return Some((*id, scope.clone()));
        }
        // It was gone before it could be looked up: it is its neighbours', and started about when it was first seen.
        let scope = self.cgroups.get(&record.cgroup).filter(|_| ended)?.clone()?;
        let start = MonoNs(record.seen / TICK * TICK);
        Some((ProcessId { pid: HostPid(tgid), start }, scope))
    }

    fn device(&mut self, tgid: u32, slot: Option<u32>) -> Option<DeviceRef> {
        let Some(bytes) = slot.and_then(|slot| self.devices.get(&(tgid, slot))) else {
            return self.only_device(tgid);
        };
        let uuid = uuid(bytes);
        let instance = format!("MIG-{uuid}");
        Some(if self.instances.contains(&instance) {
            DeviceRef::Mig(MigId::new(instance))
        } else {
            DeviceRef::Gpu(GpuId::new(format!("GPU-{uuid}")))
        })
    }

    fn is_watched(&self, tgid: u32) -> bool {
        !self.unseen.contains(&tgid)
    }

    fn is_shed(&self, tgid: u32) -> bool {
        self.shed.contains(&tgid)
    }

    fn unwatched(&mut self) -> Vec<u32> {
        let mut all: Vec<u32> = self.unseen.iter().copied().collect();
        all.sort_unstable();
        all.retain(|pid| !self.refuses(*pid));
        all
    }

    fn users(&self) -> Vec<u32> {
        // One that used a driver and does not any more may do so unseen.
        let mut all: Vec<u32> = self.users.union(&self.unseen).copied().collect();
        all.sort_unstable();
        all
    }
}

/// Bytes as the driver writes them: in groups of 8, 4, 4, 4 and 12 digits.
fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests;
