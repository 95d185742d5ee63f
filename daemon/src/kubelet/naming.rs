//! Gives pods their UIDs and containers their identifiers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Container, Grant, Pod, PodInfo, Pods, Replicas};
use warpmeter_core::identity::PodUid;

use super::logs::Logs;
use super::mapping::{Holding, Mapping, PodName};

/// How long a pod may hold a device before its directory of logs exists: it waits for its volumes, say.
const PATIENCE: Duration = Duration::from_secs(60);

/// The UIDs of pods that are listed.
#[derive(Debug, Default)]
pub(super) struct Naming {
    /// Those that are known: a pod keeps its UID also when its logs are gone. Of several of a name the newest.
    known: BTreeMap<PodName, PodUid>,
    /// Pods that hold something and whose UID is not known, and since when.
    nameless: BTreeMap<PodName, Instant>,
    /// What each pod held that is listed or has logs.
    given: BTreeMap<PodUid, Vec<Grant>>,
    /// One of the names whose pods cannot be told apart, and how many there are.
    alike: Option<(PodName, usize)>,
}

impl Naming {
    /// All pods of `mapping`, in order of UID; `fresh` if it has just come.
    ///
    /// A pod that holds something and whose UID is not known has `unknown:NAMESPACE/NAME` for one, which no pod has: it
    /// stays the same from answer to answer, and no process is ever its. Of several entries of one name, one that holds
    /// what an older pod held stays that pod's, and the others are the newest's.
    pub(super) fn name(&mut self, mapping: &Mapping, logs: &Logs, fresh: bool, now: Instant) -> Pods {
        self.known.retain(|name, _| mapping.pods.contains_key(name));
        self.alike = None;
        let mut nameless = BTreeMap::new();
        let mut pods = Vec::new();
        for (name, entries) in &mapping.pods {
            // An answer says nothing of a pod that came after it, while the one of before is still there.
            let stays = !fresh && self.known.get(name).is_some_and(|known| logs.has(known));
            if let Some(uid) = logs.uid(name).filter(|_| !stays) {
                self.known.insert(name.clone(), uid.clone());
            }
            let newest = self.known.get(name).cloned();
            let rest = self.without_older(entries, name, newest.as_ref(), logs, &mut pods);
            let mut holding = Holding::default();
            for entry in rest {
                holding.add(entry.clone());
            }
            let uid = match newest {
                Some(uid) => uid,
                // Nothing would be known of it but its name.
                None if holding.grants.is_empty() => continue,
                None => {
                    let since = self.nameless.get(name).copied().unwrap_or(now);
                    nameless.insert(name.clone(), since);
                    PodUid::unknown(&name.namespace, &name.name)
                }
            };
            pods.push(pod(uid, name, &holding, logs));
        }
        self.nameless = nameless;
        pods.sort();
        self.remember(&pods, logs);
        let replicas = mapping.replicas.iter();
        let replicas =
            replicas.map(|(device, count)| Replicas { device: device.clone(), count: *count }).collect();
        Pods { pods, replicas }
    }

    /// Gives the entries of a name that are older pods' to `pods`, and leaves those that are the newest's.
    fn without_older<'e>(
        &mut self,
        entries: &'e [Holding],
        name: &PodName,
        newest: Option<&PodUid>,
        logs: &Logs,
        pods: &mut Vec<Pod>,
    ) -> Vec<&'e Holding> {
        let mut rest: Vec<&Holding> = entries.iter().collect();
        let uids = logs.uids(name);
        for older in uids.iter().filter(|uid| Some(*uid) != newest) {
            let Some(given) = self.given.get(older).filter(|_| rest.len() > 1) else { continue };
            if let Some(at) = rest.iter().position(|entry| entry.grants.iter().eq(given)) {
                pods.push(pod(older.clone(), name, rest.remove(at), logs));
            }
        }
        let holders = rest.iter().filter(|entry| !entry.grants.is_empty()).count();
        if rest.len() > 1 && (holders > 1 || (holders > 0 && uids.len() > 1)) {
            let (_, count) = self.alike.get_or_insert_with(|| (name.clone(), 0));
            *count += 1;
        }
        rest
    }

    fn remember(&mut self, pods: &[Pod], logs: &Logs) {
        let listed: BTreeSet<&PodUid> = pods.iter().map(|pod| &pod.uid).collect();
        self.given.retain(|uid, _| listed.contains(uid) || logs.has(uid));
        for pod in pods.iter().filter(|pod| !pod.grants.is_empty()) {
            if self.given.get(&pod.uid) != Some(&pod.grants) {
                self.given.insert(pod.uid.clone(), pod.grants.clone());
            }
        }
    }

    /// Whether a pod holds something whose UID is not known.
    pub(super) fn has_nameless(&self) -> bool {
        !self.nameless.is_empty()
    }

    /// Whether one has for longer than starting explains.
    pub(super) fn has_long_nameless(&self, now: Instant) -> bool {
        self.nameless.values().any(|since| now.saturating_duration_since(*since) >= PATIENCE)
    }

    /// Which pods cannot be told apart, if any.
    pub(super) fn gap(&self) -> Option<String> {
        let (name, count) = self.alike.as_ref()?;
        Some(format!(
            "two pods of one name are listed, and nothing tells which holds what: the newest has the grants of all \
             ({:?}{}; this ends when the older one's log directory is gone)",
            format!("{}/{}", name.namespace, name.name),
            if *count > 1 { format!(" and {} more names", count - 1) } else { String::new() }
        ))
    }
}

fn pod(uid: PodUid, name: &PodName, holding: &Holding, logs: &Logs) -> Pod {
    Pod {
        containers: containers(&uid, holding, logs),
        uid,
        namespace: Arc::clone(&name.namespace),
        name: Arc::clone(&name.name),
        grants: holding.grants.iter().cloned().collect(),
        deferred: holding.deferred.iter().cloned().collect(),
        info: PodInfo::default(),
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
