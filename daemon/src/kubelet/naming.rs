//! Gives pods their UIDs and containers their identifiers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Container, Pod, PodInfo, Pods, Replicas};
use warpmeter_core::identity::PodUid;

use super::logs::Logs;
use super::mapping::{Holding, Mapping, PodName};

/// How long a pod may hold a device before its directory of logs exists: it waits for its volumes, say.
const PATIENCE: Duration = Duration::from_secs(60);

/// The UIDs of pods that are listed.
#[derive(Debug, Default)]
pub(super) struct Naming {
    /// Those that are known: a pod keeps its UID also when its logs are gone.
    known: BTreeMap<PodName, PodUid>,
    /// Pods that hold something and whose UID is not known, and since when.
    nameless: BTreeMap<PodName, Instant>,
}

impl Naming {
    /// All pods of `mapping`, in order of UID.
    ///
    /// A pod that holds something and whose UID is not known has `unknown:NAMESPACE/NAME` for one, which no pod has: it
    /// stays the same from answer to answer, and no process is ever its.
    pub(super) fn name(&mut self, mapping: &Mapping, logs: &Logs, now: Instant) -> Pods {
        self.known.retain(|name, _| mapping.pods.contains_key(name));
        let mut nameless = BTreeMap::new();
        let mut pods = Vec::new();
        for (name, holding) in &mapping.pods {
            if let Some(uid) = logs.uid(name) {
                self.known.insert(name.clone(), uid.clone());
            }
            let uid = match self.known.get(name) {
                Some(uid) => uid.clone(),
                // Nothing would be known of it but its name.
                None if holding.grants.is_empty() => continue,
                None => {
                    let since = self.nameless.get(name).copied().unwrap_or(now);
                    nameless.insert(name.clone(), since);
                    PodUid::unknown(&name.namespace, &name.name)
                }
            };
            pods.push(Pod {
                containers: containers(&uid, holding, logs),
                uid,
                namespace: Arc::clone(&name.namespace),
                name: Arc::clone(&name.name),
                grants: holding.grants.iter().cloned().collect(),
                info: PodInfo::default(),
            });
        }
        self.nameless = nameless;
        pods.sort();
        let replicas = mapping.replicas.iter();
        let replicas =
            replicas.map(|(device, count)| Replicas { device: device.clone(), count: *count }).collect();
        Pods { pods, replicas }
    }

    /// Whether a pod holds something whose UID is not known.
    pub(super) fn has_nameless(&self) -> bool {
        !self.nameless.is_empty()
    }

    /// Whether one has for longer than starting explains.
    pub(super) fn has_long_nameless(&self, now: Instant) -> bool {
        self.nameless.values().any(|since| now.saturating_duration_since(*since) >= PATIENCE)
    }
}

fn containers(uid: &PodUid, holding: &Holding, logs: &Logs) -> Vec<Container> {
    let identified: BTreeSet<Container> = logs
        .containers(uid)
        .map(|(name, id)| Container { name: Arc::clone(name), id: Some(id.clone()) })
        .collect();
    let unidentified = holding
        .containers
        .iter()
        .filter(|name| !identified.iter().any(|container| container.name == **name))
        .map(|name| Container { name: Arc::clone(name), id: None });
    let mut all: Vec<Container> = unidentified.collect();
    all.extend(identified);
    all.sort();
    all
}
