//! Who holds what, by names: an answer of the kubelet without its order, its repetitions and what is not a GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpmeter_core::fact::{DeviceRef, Grant, GrantPart};

/// A pod's namespace and name. A node has one pod of it at a time, but for one that ends while its successor starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// What a pod holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holding {
    /// The containers that the kubelet names: those of the pod's specification and its sidecars.
    pub containers: BTreeSet<Arc<str>>,
    /// What they were given.
    pub grants: BTreeSet<Grant>,
    /// Those whose device plugin chooses their GPUs by itself.
    pub deferred: BTreeSet<Arc<str>>,
}

impl Holding {
    /// Adds what another holds.
    pub(super) fn add(&mut self, other: Self) {
        self.containers.extend(other.containers);
        self.grants.extend(other.grants);
        self.deferred.extend(other.deferred);
    }
}

/// Who holds what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The entries of every name: one, unless there are several pods of it.
    pub pods: BTreeMap<PodName, Vec<Holding>>,
    /// In how many replicas a device is offered that is offered in replicas, as far as that is known.
    pub replicas: BTreeMap<DeviceRef, u32>,
}

impl Mapping {
    /// Takes over from `older` in how many replicas devices are offered that are not offered at present: those that
    /// are held, since a plugin takes back what it believes to be unhealthy; all, unless the offer is `complete`.
    pub(super) fn add_replicas(&mut self, older: &Self, complete: bool) {
        let held: BTreeSet<DeviceRef> = self.grants().map(|grant| grant.device.clone()).collect();
        for (device, count) in &older.replicas {
            if !complete || held.contains(device) {
                self.replicas.entry(device.clone()).or_insert(*count);
            }
        }
    }

    /// Whether a replica is held of a device of which nothing says how many it has.
    pub(super) fn lacks_replicas(&self) -> bool {
        let replica = |grant: &Grant| matches!(grant.part, GrantPart::Replica(_));
        self.grants().any(|grant| replica(grant) && !self.replicas.contains_key(&grant.device))
    }

    /// Everything that is held.
    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.pods.values().flatten().flat_map(|holding| &holding.grants)
    }
}
