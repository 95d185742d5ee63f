//! Pods from a file: who they are, and what they hold.
//!
//! ```toml
//! [[device]]                      # only devices that are shared
//! id = "GPU-…"                    # any form that a device plugin writes
//! replicas = 4
//!
//! [[pod]]
//! uid = "0e1f…"
//! namespace = "research"
//! name = "trainer-0"
//! labels = { team = "vision", idle_ok = false }
//! probes = false                  # its processes are not probed
//! containers = [{ name = "main", id = "<64 hex digits, optional>", devices = ["GPU-…::0"] }]
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use warpmeter_core::device_id;
use warpmeter_core::fact::{
    Container, Discard, Fact, Grant, Health, HealthState, Pod, PodInfo, Pods, Replicas, Source,
};
use warpmeter_core::identity::{ContainerId, PodUid};

use crate::refusals::Refusals;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    device: Vec<DeviceEntry>,
    pod: Vec<PodEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceEntry {
    id: String,
    replicas: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodEntry {
    uid: String,
    namespace: Arc<str>,
    name: Arc<str>,
    #[serde(default)]
    labels: PodInfo,
    #[serde(default = "yes")]
    probes: bool,
    #[serde(default)]
    containers: Vec<ContainerEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContainerEntry {
    name: Arc<str>,
    id: Option<String>,
    #[serde(default)]
    devices: Vec<String>,
}

const fn yes() -> bool {
    true
}

/// Parses a file's text. On failure gives every problem that can be told.
pub fn parse(text: &str) -> Result<Pods, Vec<String>> {
    read(text).map(|(pods, _)| pods)
}

/// The same, with the pods that want no probes.
fn read(text: &str) -> Result<(Pods, BTreeSet<PodUid>), Vec<String>> {
    let file: File = toml::from_str(text).map_err(|error| vec![error.to_string().trim_end().to_owned()])?;
    let mut problems = Vec::new();
    let mut pods = Pods::default();
    for entry in file.device {
        match device_id::parse(&entry.id) {
            _ if entry.replicas == 0 => {
                problems.push(format!("device {:?}: replicas must be at least 1", entry.id));
            }
            Some((device, warpmeter_core::fact::GrantPart::Whole)) => {
                pods.replicas.push(Replicas { device, count: entry.replicas });
            }
            _ => problems.push(format!("device {:?}: not the id of a GPU or MIG instance", entry.id)),
        }
    }
    let mut uids = BTreeSet::new();
    let refuse = file.pod.iter().filter(|entry| !entry.probes);
    let refusals = refuse.map(|entry| PodUid::new(entry.uid.as_str())).collect();
    for entry in file.pod {
        if entry.uid.is_empty() || !uids.insert(entry.uid.clone()) {
            problems.push(format!("pod {:?}: its uid {:?} is empty or another pod's", entry.name, entry.uid));
        }
        let mut pod = Pod {
            uid: PodUid::new(entry.uid),
            namespace: entry.namespace,
            name: entry.name,
            containers: Vec::new(),
            grants: Vec::new(),
            info: entry.labels,
        };
        for container in entry.containers {
            for id in &container.devices {
                match device_id::parse(id) {
                    Some((device, part)) => {
                        pod.grants.push(Grant { container: container.name.clone(), device, part });
                    }
                    None => problems.push(format!(
                        "pod {:?}, container {:?}: unknown device id {id:?}",
                        pod.name, container.name
                    )),
                }
            }
            pod.containers.push(Container { name: container.name, id: container.id.map(ContainerId::new) });
        }
        pods.pods.push(pod);
    }
    pods.pods.sort();
    pods.replicas.sort();
    if problems.is_empty() { Ok((pods, refusals)) } else { Err(problems) }
}

/// Reads the file again whenever it changes. A file with problems changes nothing but this source's health.
#[derive(Debug)]
pub struct PodsFile {
    path: PathBuf,
    read: Option<SystemTime>,
    health: Health,
    /// Where pods that want no probes are named.
    refusals: Refusals,
}

impl PodsFile {
    /// A source over `path`, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            read: None,
            health: Health { state: HealthState::Down, reason: "not read yet".into() },
            refusals: Refusals::default(),
        }
    }

    /// The same, which names the pods that want no probes to `refusals`.
    #[must_use]
    pub fn telling(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// Appends what has changed.
    pub fn poll(&mut self, out: &mut Vec<Fact>) {
        let health = match std::fs::metadata(&self.path).and_then(|metadata| metadata.modified()) {
            Ok(modified) if self.read == Some(modified) => return,
            Ok(modified) => {
                self.read = Some(modified);
                match std::fs::read_to_string(&self.path) {
                    Ok(text) => match read(&text) {
                        Ok((pods, refusals)) => {
                            self.refusals.set(Source::Pods, refusals);
                            out.push(Fact::Pods(pods));
                            Health { state: HealthState::Up, reason: String::new() }
                        }
                        Err(problems) => {
                            let count = problems.len().try_into().unwrap_or(u64::MAX);
                            out.push(Fact::Discarded { reason: Discard::Garbage, count });
                            let reason =
                                format!("{} is not used: {}", self.path.display(), problems.join("; "));
                            Health { state: HealthState::Degraded, reason }
                        }
                    },
                    Err(error) => {
                        // A file that is made readable has not changed, and is wanted all the same.
                        self.read = None;
                        self.unreadable(&error)
                    }
                }
            }
            Err(error) => {
                self.read = None;
                self.unreadable(&error)
            }
        };
        self.health = health;
    }

    /// How well the last reading went.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    fn unreadable(&self, error: &std::io::Error) -> Health {
        let reason = format!("read {}: {error}; the pods named last stay", self.path.display());
        Health { state: HealthState::Down, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "GPU-5a5a7118-e550-79a1-597e-7631e126c57a";

    #[test]
    fn a_file_names_pods_and_their_devices() {
        let text = format!(
            r#"
            [[device]]
            id = "{GPU}"
            replicas = 4
            [[pod]]
            uid = "u"
            namespace = "ns"
            name = "p"
            labels = {{ team = "t", idle_ok = true }}
            containers = [{{ name = "main", devices = ["{GPU}::1", "nvidia3/gi2"] }}, {{ name = "sidecar" }}]
            "#
        );
        let pods = parse(&text).unwrap();
        assert_eq!(pods.replicas[0].count, 4);
        assert_eq!((pods.pods[0].grants.len(), pods.pods[0].containers.len()), (2, 2));
        assert_eq!((&*pods.pods[0].info.team, pods.pods[0].info.idle_ok), ("t", true));
    }

    #[test]
    fn every_problem_of_a_file_is_told() {
        let text = "[[device]]\nid = \"x\"\nreplicas = 1\n[[pod]]\nuid = \"\"\nnamespace = \"n\"\nname = \"p\"\n\
                    containers = [{ name = \"c\", devices = [\"y\"] }]\n";
        assert_eq!(parse(text).unwrap_err().len(), 3);
        assert!(parse("[[pod]]\nuidd = 1\n").unwrap_err()[0].contains("uidd"));
    }

    #[test]
    fn a_broken_change_keeps_the_pods_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pods.toml");
        let mut source = PodsFile::new(&path);
        let mut poll = || {
            let mut facts = Vec::new();
            source.poll(&mut facts);
            (facts, source.health().state)
        };
        assert_eq!(poll(), (Vec::new(), HealthState::Down));
        std::fs::write(&path, "").unwrap();
        assert_eq!(poll(), (vec![Fact::Pods(Pods::default())], HealthState::Up));
        assert_eq!(poll(), (Vec::new(), HealthState::Up));
        std::fs::write(&path, "nonsense").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
        let (facts, state) = poll();
        assert!(matches!(&facts[..], [Fact::Discarded { .. }]));
        assert_eq!(state, HealthState::Degraded);
    }

    #[test]
    fn a_pod_of_the_file_may_refuse_probes() {
        let text = "[[pod]]\nuid = \"u1\"\nnamespace = \"n\"\nname = \"a\"\nprobes = false\n\
                    [[pod]]\nuid = \"u2\"\nnamespace = \"n\"\nname = \"b\"\n";
        let (pods, refusals) = read(text).unwrap();
        assert_eq!((pods.pods.len(), refusals), (2, BTreeSet::from([PodUid::new("u1")])));
    }
}
