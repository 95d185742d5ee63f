//! A kubelet that has only just started, and does not list its pods or their devices yet: they run on meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpmeter_core::fact::{DeviceRef, Grant, GrantPart, Pod, Pods};
use warpmeter_core::identity::PodUid;

use super::bounds::{GRANTS, PODS};
use super::logs::Logs;
use super::mapping::{Holding, Mapping, PodName};

/// How long a kubelet may take to know its pods again after its first answer.
const SETTLING: Duration = Duration::from_secs(30);

/// Whether a kubelet has only just started, and what is held over from the one before.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// There is a new socket that has not answered yet.
    renewed: bool,
    until: Option<Instant>,
    /// Pods that are held over although no log directory tells whether they are still there, and since when.
    unseen: BTreeMap<PodUid, Instant>,
    /// How many devices of how many pods are held over, and one of those.
    held: Option<(usize, usize, PodName)>,
}

impl Settling {
    /// A kubelet has made its socket anew.
    pub(super) fn restarted(&mut self) {
        self.renewed = true;
    }

    /// Notes an answer, and gives whether it is of a kubelet that may not know its pods yet. However long that was
    /// away, its time counts from its first answer.
    pub(super) fn answered(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.renewed) {
            self.until = Some(now + SETTLING);
        }
        self.held = None;
        let settling = self.until.is_some_and(|until| now < until);
        if !settling {
            self.unseen.clear();
        }
        settling
    }

    /// Takes over what pods held by the `older` answer and do not by this one, as long as they still have a directory
    /// of logs, which the kubelet removes with a pod. What another pod holds by now has been given back.
    pub(super) fn complete(&mut self, mapping: &mut Mapping, older: &Pods, logs: &Logs, now: Instant) {
        let missing = missing(mapping, older);
        let mut unseen = BTreeMap::new();
        let (mut devices, mut pods, mut example) = (0, 0, None);
        let mut grants = mapping.grants().count();
        for (pod, missing) in missing {
            // Not much more than an answer holds, however often a kubelet restarts with other pods.
            if mapping.pods.len() >= 4 * PODS || grants >= GRANTS {
                break;
            }
            if logs.unread_pods().is_some() || pod.uid.is_unknown() {
                // Nothing shows that it has ended, so that only time can.
                let since = *self.unseen.get(&pod.uid).unwrap_or(&now);
                unseen.insert(pod.uid.clone(), since);
                if now.saturating_duration_since(since) >= SETTLING {
                    continue;
                }
            } else if !logs.has(&pod.uid) {
                continue;
            }
            let name = PodName { namespace: Arc::clone(&pod.namespace), name: Arc::clone(&pod.name) };
            grants += missing.len();
            if !missing.is_empty() {
                devices += missing.iter().map(|grant| &grant.device).collect::<BTreeSet<_>>().len();
                pods += 1;
                example.get_or_insert_with(|| name.clone());
            }
            // Of another pod of its name, if that is not the newest.
            let own = logs.uid(&name).is_none_or(|newest| *newest == pod.uid);
            let entries = mapping.pods.entry(name).or_default();
            let held = held_over(pod, missing, entries.is_empty());
            match &mut entries[..] {
                [only] if own => only.add(held),
                _ => entries.push(held),
            }
        }
        self.unseen = unseen;
        self.held = example.map(|example| (devices, pods, example));
    }

    /// What is held over, if anything is.
    pub(super) fn gap(&self) -> Option<String> {
        let (devices, pods, example) = self.held.as_ref()?;
        Some(format!(
            "the kubelet has restarted and does not list {devices} devices of {pods} pods yet, such as of {:?}: \
             their grants are held over for up to {SETTLING:?} while those pods have log directories",
            format!("{}/{}", example.namespace, example.name)
        ))
    }
}

/// The pods of `older` that are not listed, or with fewer devices, and what they lack.
fn missing<'p>(mapping: &Mapping, older: &'p Pods) -> Vec<(&'p Pod, Vec<&'p Grant>)> {
    let mut holders: BTreeMap<(&DeviceRef, GrantPart), BTreeSet<&PodName>> = BTreeMap::new();
    for (name, entries) in &mapping.pods {
        for grant in entries.iter().flat_map(|entry| &entry.grants) {
            holders.entry((&grant.device, grant.part)).or_default().insert(name);
        }
    }
    let of = |pod: &'p Pod| {
        let name = PodName { namespace: Arc::clone(&pod.namespace), name: Arc::clone(&pod.name) };
        let entries = mapping.pods.get(&name);
        let listed = |grant: &Grant| {
            entries.is_some_and(|entries| entries.iter().any(|entry| entry.grants.contains(grant)))
        };
        let given_back = |grant: &Grant| {
            let holders = holders.get(&(&grant.device, grant.part));
            holders.is_some_and(|holders| holders.iter().any(|holder| **holder != name))
        };
        let grants = pod.grants.iter().filter(|grant| !listed(grant) && !given_back(grant));
        let grants: Vec<&Grant> = grants.collect();
        (entries.is_none() || !grants.is_empty()).then_some((pod, grants))
    };
    older.pods.iter().filter_map(of).collect()
}

/// What of a pod is held over: with its containers if it is not listed at all.
fn held_over(pod: &Pod, missing: Vec<&Grant>, unlisted: bool) -> Holding {
    let holders: BTreeSet<Arc<str>> = missing.iter().map(|grant| Arc::clone(&grant.container)).collect();
    let deferred = pod.deferred.iter().filter(|container| unlisted || holders.contains(*container));
    let all = pod.containers.iter().filter(|_| unlisted).map(|container| Arc::clone(&container.name));
    Holding {
        deferred: deferred.cloned().collect(),
        containers: all.chain(holders.iter().cloned()).collect(),
        grants: missing.into_iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::KubeletOptions;

    fn older(uid: PodUid) -> Pods {
        let grant = Grant { container: "main".into(), device: DeviceRef::Minor(0), part: GrantPart::Whole };
        let pod = Pod {
            uid,
            namespace: "ns".into(),
            name: "p".into(),
            containers: vec![],
            grants: vec![grant],
            deferred: vec![],
            info: warpmeter_core::fact::PodInfo::default(),
        };
        Pods { pods: vec![pod], replicas: vec![] }
    }

    #[test]
    fn the_time_to_settle_counts_from_the_first_answer_however_long_the_kubelet_was_away() {
        for away in [0, 1, 40, 3600] {
            let start = Instant::now();
            let after = |seconds: u64| start + Duration::from_secs(away + seconds);
            let mut settling = Settling::default();
            assert!(!settling.answered(start));
            settling.restarted();
            assert!(settling.answered(after(0)) && settling.answered(after(29)));
            assert!(!settling.answered(after(30)), "{away}");
        }
    }

    #[test]
    fn a_pod_without_logs_outlasts_its_last_listing_by_no_more_than_that_however_often_the_kubelet_restarts()
    {
        let directory = tempfile::tempdir().unwrap();
        let gone = KubeletOptions { pod_logs: directory.path().join("x"), ..KubeletOptions::default() };
        let mut unread = Logs::new(&gone);
        unread.read();
        let there = KubeletOptions { pod_logs: directory.path().into(), ..gone };
        let mut read = Logs::new(&there);
        read.read();
        for (logs, uid) in [(&unread, PodUid::new("u")), (&read, PodUid::unknown("ns", "p"))] {
            let older = older(uid);
            let start = Instant::now();
            let mut settling = Settling::default();
            let mut held = Vec::new();
            for second in 0..60 {
                let now = start + Duration::from_secs(second);
                settling.restarted();
                assert!(settling.answered(now));
                let mut mapping = Mapping::default();
                settling.complete(&mut mapping, &older, logs, now);
                if mapping.grants().count() == 1 {
                    held.push(second);
                }
                assert_eq!(settling.gap().is_some(), second < 30);
            }
            assert_eq!(held, (0..30).collect::<Vec<_>>());
        }
    }
}
