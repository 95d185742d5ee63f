//! One pod, as its API server writes it, to its names.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use warpmeter_core::fact::{Allotment, Container, PodInfo, PodNames};
use warpmeter_core::identity::{ContainerId, PodUid};

use super::allotment;
use super::options::LabelKeys;
use super::text::{self, NAME, VALUE};
use super::workload;

/// Containers of a pod that are named.
const CONTAINERS: usize = 128;

/// Annotation of every static pod: the UID by which its kubelet knows it, and which its cgroup carries. The UID in
/// the API server is that of a mirror object.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Annotation that makes a pod a mirror. A kubelet deletes mirrors that it did not make, so that a user who copies
/// both annotations does not keep another pod's name for long.
const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// What is read of a pod. All else, such as its volumes and managed fields, is skipped unread.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub creation_timestamp: String,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Vec<OwnerReference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnerReference {
    pub kind: String,
    pub name: String,
    pub controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    node_name: String,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<Named>,
    #[serde(deserialize_with = "or_default")]
    containers: Vec<Named>,
    #[serde(deserialize_with = "or_default")]
    ephemeral_containers: Vec<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "or_default")]
    phase: String,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<Named>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<Named>,
    #[serde(deserialize_with = "or_default")]
    ephemeral_container_statuses: Vec<Named>,
}

/// A container: in a specification without an identifier.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(rename = "containerID", deserialize_with = "or_default")]
    id: String,
}

/// `null` is how some writers say that there is none.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Pod {
    /// Whether the object mirrors a static pod.
    pub(super) fn is_mirror(&self) -> bool {
        self.metadata.annotations.contains_key(CONFIG_MIRROR)
    }

    /// Whether it runs on `node`.
    pub(super) fn is_on(&self, node: &str) -> bool {
        self.spec.node_name == node
    }

    /// Whether it wants no probes in its processes.
    pub(super) fn refuses_probes(&self, keys: &LabelKeys) -> bool {
        let value = self.metadata.attribute(&keys.probes);
        ["off", "false", "0", "no"].iter().any(|no| value.eq_ignore_ascii_case(no))
    }

    /// The pod's names; none if it has no usable identity. Also whether all that it says of GPUs is clear.
    pub(super) fn names(&self, keys: &LabelKeys) -> Option<(PodNames, bool)> {
        let metadata = &self.metadata;
        let hash = metadata.annotations.get(CONFIG_HASH).filter(|_| self.is_mirror());
        let uid = hash.unwrap_or(&metadata.uid);
        let named = [&metadata.namespace, &metadata.name].iter().all(|name| text::is_identity(name, NAME));
        if !named || !text::is_identity(uid, VALUE) {
            return None;
        }
        let allotments = self.allotments();
        let clear = allotments.is_some();
        let names = PodNames {
            uid: PodUid::new(uid.as_str()),
            namespace: metadata.namespace.as_str().into(),
            name: metadata.name.as_str().into(),
            containers: self.containers(),
            ended: matches!(self.status.phase.as_str(), "Succeeded" | "Failed"),
            info: metadata.info(keys),
            allotments: allotments.unwrap_or_default(),
        };
        Some((names, clear))
    }

    fn allotments(&self) -> Option<Vec<Allotment>> {
        let names = |all: &[Named]| -> Vec<Arc<str>> {
            all.iter().map(|named| text::shown(&named.name, NAME)).collect()
        };
        let (init, containers) = (names(&self.spec.init_containers), names(&self.spec.containers));
        allotment::read(&self.metadata.annotations, &init, &containers)
    }

    /// Containers in the order in which the pod lists them: a name is unique among all three kinds.
    fn containers(&self) -> Vec<Container> {
        let (spec, status) = (&self.spec, &self.status);
        let all = spec.init_containers.iter().chain(&spec.containers).chain(&spec.ephemeral_containers);
        let running = status.init_container_statuses.iter().chain(&status.container_statuses);
        let mut containers: Vec<Container> = Vec::new();
        for named in all.chain(running).chain(&status.ephemeral_container_statuses) {
            if !text::is_identity(&named.name, NAME) {
                continue;
            }
            let id = container_id(&named.id);
            if let Some(known) = containers.iter_mut().find(|known| *known.name == *named.name) {
                known.id = id.or(known.id.take());
            } else if containers.len() < CONTAINERS {
                containers.push(Container { name: named.name.as_str().into(), id });
            }
        }
        containers
    }
}

impl Metadata {
    fn info(&self, keys: &LabelKeys) -> PodInfo {
        let (workload_kind, workload) = workload::of(self);
        PodInfo {
            workload_kind,
            workload,
            team: self.attribute(&keys.team),
            app: self.attribute(&keys.app),
            model: self.attribute(&keys.model),
            environment: self.attribute(&keys.environment),
            idle_ok: ["true", "1", "yes"]
                .iter()
                .any(|yes| self.attribute(&keys.idle_ok).eq_ignore_ascii_case(yes)),
        }
    }

    /// The value of the first of `keys` that has one.
    fn attribute(&self, keys: &[String]) -> Arc<str> {
        keys.iter()
            .flat_map(|key| [self.labels.get(key), self.annotations.get(key)])
            .flatten()
            .map(|value| text::shown(value, VALUE))
            .find(|value| !value.is_empty())
            .unwrap_or_default()
    }
}

/// The identifier without its runtime: `containerd://<id>`, `cri-o://<id>`, `docker://<id>`.
fn container_id(id: &str) -> Option<ContainerId> {
    let id = id.split_once("://").map_or(id, |(_, id)| id);
    text::is_identity(id, VALUE).then(|| ContainerId::new(id))
}
