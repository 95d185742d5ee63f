//! Who holds what, by names: an answer of the kubelet without its order, its repetitions and what is not a GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpmeter_core::fact::{DeviceRef, Grant, GrantPart};

use super::bounds::{GRANTS, PODS};

/// A pod's namespace and name, which one pod of a node has at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// What a pod holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// The containers that the kubelet names: those of the pod's specification and its sidecars.
    pub containers: BTreeSet<Arc<str>>,
    /// What they were given.
    pub grants: BTreeSet<Grant>,
}

/// Who holds what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Every pod.
    pub pods: BTreeMap<PodName, Holding>,
    /// In how many replicas a device is offered that is offered in replicas, as far as that is known.
    pub replicas: BTreeMap<DeviceRef, u32>,
}

impl Mapping {
    /// Takes over from `older` the pods that a kubelet does not list because it has only just started and does not
    /// know them yet: those that it has listed `recently`. What another pod holds by now has been given back.
    pub(super) fn add_missing(&mut self, older: &Self, recently: impl Fn(&PodName) -> bool) {
        let held: BTreeSet<(DeviceRef, GrantPart)> =
            self.grants().map(|grant| (grant.device.clone(), grant.part)).collect();
        let mut grants = held.len();
        for (name, holding) in &older.pods {
            // Not much more than an answer holds, however often a kubelet restarts with other pods.
            if self.pods.len() >= 4 * PODS || grants >= GRANTS {
                break;
            }
            if !self.pods.contains_key(name) && recently(name) {
                let mut holding = holding.clone();
                holding.grants.retain(|grant| !held.contains(&(grant.device.clone(), grant.part)));
                grants += holding.grants.len();
                self.pods.insert(name.clone(), holding);
            }
        }
    }

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
        self.pods.values().flat_map(|holding| &holding.grants)
    }
}
