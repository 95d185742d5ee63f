//! The workload that a pod is part of, from what the pod itself says.
//!
//! A pod names the object that controls it, and that is often a part of what its user made. One step further is
//! taken where the pod shows that it exists; never by asking the server, which would need more permissions and a
//! request per pod.

use std::sync::Arc;

use super::created;
use super::pod::{Metadata, OwnerReference};
use super::text::{self, NAME};

/// Minutes between the time that a job of a cron job was due and the creation of its pods: less than a day, for a
/// late start and for retries.
const DUE_BEFORE: i64 = 24 * 60;

/// Objects that make others whose names are made of theirs: by the kind that is made, the label that its pods get.
const MAKERS: [(&str, &str, &str); 2] = [
    ("StatefulSet", "leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("Job", "jobset.sigs.k8s.io/jobset-name", "JobSet"),
];

/// Owners of replica sets, and the label by which each tells its replica sets apart.
const REPLICA_SETS: [(&str, &str); 2] =
    [("rollouts-pod-template-hash", "Rollout"), ("pod-template-hash", "Deployment")];

/// Kind and name of the workload that the pod is part of: the pod itself if nothing controls it.
pub(super) fn of(pod: &Metadata) -> (Arc<str>, Arc<str>) {
    let controller = pod.owner_references.iter().find(|owner| owner.controller == Some(true));
    let (kind, name) = match controller {
        // A static pod is controlled by its node, which is no workload.
        Some(owner) if owner.kind != "Node" && !owner.kind.is_empty() && !owner.name.is_empty() => {
            made_by(pod, owner).unwrap_or((&owner.kind, &owner.name))
        }
        _ => ("Pod", pod.name.as_str()),
    };
    (text::shown(kind, NAME), text::shown(name, NAME))
}

/// Who made the pod's controller, as far as the pod shows it.
fn made_by<'a>(pod: &'a Metadata, owner: &'a OwnerReference) -> Option<(&'a str, &'a str)> {
    if owner.kind == "ReplicaSet" {
        return REPLICA_SETS.iter().find_map(|&(label, kind)| {
            let hash = pod.labels.get(label).filter(|hash| !hash.is_empty())?;
            let name = owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')?;
            (!name.is_empty()).then_some((kind, name))
        });
    }
    let maker = MAKERS.iter().filter(|(made, ..)| *made == owner.kind).find_map(|&(_, label, kind)| {
        let name = pod.labels.get(label).filter(|name| !name.is_empty())?;
        let rest = owner.name.strip_prefix(name.as_str())?;
        (rest.is_empty() || rest.starts_with('-')).then_some((kind, name.as_str()))
    });
    maker.or_else(|| cron_job(pod, owner))
}

/// A cron job calls its jobs by its own name and the minute, counted from 1970, at which they were due. A name that
/// ends in a number is no proof; a number that is a minute shortly before the pod's creation is.
fn cron_job<'a>(pod: &Metadata, owner: &'a OwnerReference) -> Option<(&'a str, &'a str)> {
    if owner.kind != "Job" {
        return None;
    }
    let (name, due) = owner.name.rsplit_once('-')?;
    if name.is_empty() || !due.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let due: i64 = due.parse().ok()?;
    let waited = created::minutes(&pod.creation_timestamp)?.checked_sub(due)?;
    (0..DUE_BEFORE).contains(&waited).then_some(("CronJob", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod `p`, with its controller as `kind/name` and its labels as `key=value …`.
    fn pod(controller: &str, labels: &str) -> Metadata {
        let (kind, name) = controller.split_once('/').unwrap();
        let owner = OwnerReference { kind: kind.into(), name: name.into(), controller: Some(true) };
        Metadata {
            name: "p".into(),
            creation_timestamp: "2026-11-30T03:40:36Z".into(),
            labels: labels
                .split_whitespace()
                .filter_map(|label| label.split_once('='))
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            owner_references: vec![owner],
            ..Metadata::default()
        }
    }

    #[test]
    fn owner_chains_are_followed_as_far_as_the_pod_proves_them() {
        let lws = "leaderworkerset.sigs.k8s.io/name=llama";
        let set = "jobset.sigs.k8s.io/jobset-name=mpi";
        for (controller, labels, expected) in [
            ("ReplicaSet/web-6d4cf56db6", "pod-template-hash=6d4cf56db6", "Deployment/web"),
            ("ReplicaSet/a-b-c-5f7", "pod-template-hash=5f7", "Deployment/a-b-c"),
            ("ReplicaSet/web-6d4cf56db6", "", "ReplicaSet/web-6d4cf56db6"),
            ("ReplicaSet/web-1", "pod-template-hash=", "ReplicaSet/web-1"),
            ("ReplicaSet/web", "pod-template-hash=6d4cf56db6", "ReplicaSet/web"),
            ("ReplicaSet/-6d4", "pod-template-hash=6d4", "ReplicaSet/-6d4"),
            ("ReplicaSet/web6d4", "pod-template-hash=6d4", "ReplicaSet/web6d4"),
            ("ReplicaSet/api-7b9", "rollouts-pod-template-hash=7b9", "Rollout/api"),
            // Due at 03:40, at 03:39, a day before, and in a minute.
            ("Job/nightly-29933500", "", "CronJob/nightly"),
            ("Job/nightly-29933499", "", "CronJob/nightly"),
            ("Job/nightly-29932060", "", "Job/nightly-29932060"),
            ("Job/nightly-29933501", "", "Job/nightly-29933501"),
            ("Job/train-20261130", "", "Job/train-20261130"),
            ("Job/train-7", "", "Job/train-7"),
            ("Job/train", "", "Job/train"),
            ("Job/-29933500", "", "Job/-29933500"),
            ("Job/x-99999999999999999999", "", "Job/x-99999999999999999999"),
            ("Job/x--9223372036854775808", "", "Job/x--9223372036854775808"),
            ("Job/mpi-worker-0", set, "JobSet/mpi"),
            ("Job/other-0", set, "Job/other-0"),
            ("StatefulSet/db", "", "StatefulSet/db"),
            ("StatefulSet/llama", lws, "LeaderWorkerSet/llama"),
            ("StatefulSet/llama-0", lws, "LeaderWorkerSet/llama"),
            ("StatefulSet/llamaindex", lws, "StatefulSet/llamaindex"),
            ("DaemonSet/agent", "", "DaemonSet/agent"),
            ("PyTorchJob/bert", "", "PyTorchJob/bert"),
            ("RayCluster/rc", "", "RayCluster/rc"),
            ("Workflow/dag", "pod-template-hash=dag", "Workflow/dag"),
            ("Node/gpu-1", "", "Pod/p"),
            ("/", "", "Pod/p"),
        ] {
            let (kind, name) = of(&pod(controller, labels));
            assert_eq!(format!("{kind}/{name}"), expected, "{controller} {labels}");
        }
    }

    #[test]
    fn an_owner_that_does_not_control_is_not_the_workload() {
        let mut pod = pod("Job/train", "");
        pod.owner_references[0].controller = None;
        assert_eq!(of(&pod), ("Pod".into(), "p".into()));
        pod.owner_references.push(OwnerReference {
            kind: "StatefulSet".into(),
            name: "db".into(),
            controller: Some(true),
        });
        assert_eq!(of(&pod), ("StatefulSet".into(), "db".into()));
    }
}
