//! The format of a pods file: TOML, read so that one problem does not hide the next.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use warpmeter_core::device_id;
use warpmeter_core::fact::{Container, Grant, GrantPart, Pod, PodInfo, Pods, Replicas};
use warpmeter_core::identity::{ContainerId, PodUid};

use crate::config::Problem;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceEntry {
    id: Spanned<String>,
    replicas: Spanned<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodEntry {
    uid: Spanned<String>,
    namespace: Arc<str>,
    name: Arc<str>,
    #[serde(default)]
    labels: PodInfo,
    #[serde(default = "yes")]
    probes: bool,
    #[serde(default)]
    containers: Vec<ContainerEntry>,
}

const fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContainerEntry {
    name: Arc<str>,
    id: Option<String>,
    #[serde(default)]
    devices: Vec<Spanned<String>>,
}

/// Parses a file's text. On failure gives every problem that can be told, in order of place.
pub fn parse(text: &str) -> Result<Pods, Vec<Problem>> {
    read(text).map(|(pods, _)| pods)
}

/// The same, with the pods that want no probes.
pub(super) fn read(text: &str) -> Result<(Pods, BTreeSet<PodUid>), Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        text,
        uids: BTreeSet::new(),
        pods: Pods::default(),
        refusals: BTreeSet::new(),
        problems: errors.iter().map(|error| Problem::of(text, error, 0)).collect(),
    };
    for (name, value) in document.into_inner() {
        match name.get_ref().as_ref() {
            "device" => reader.each(value, |reader, entry| reader.device(&entry)),
            "pod" => reader.each(value, Reader::pod),
            other => {
                let message = format!("unknown key `{other}`; a file has `[[device]]` and `[[pod]]`");
                reader.problem(name.span().start, message);
            }
        }
    }
    let Reader { mut pods, refusals, mut problems, .. } = reader;
    pods.pods.sort();
    pods.replicas.sort();
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok((pods, refusals)) } else { Err(problems) }
}

/// A file, as far as it has been read.
struct Reader<'t> {
    text: &'t str,
    uids: BTreeSet<String>,
    pods: Pods,
    refusals: BTreeSet<PodUid>,
    problems: Vec<Problem>,
}

impl<'t> Reader<'t> {
    /// Hands each entry of a list to `take`.
    fn each<T: Deserialize<'t>>(&mut self, list: Spanned<DeValue<'t>>, take: impl Fn(&mut Self, T)) {
        let place = list.span().start;
        let DeValue::Array(entries) = list.into_inner() else {
            self.problem(place, "wants a list: write its name in double brackets".to_owned());
            return;
        };
        for entry in entries {
            let place = entry.span().start;
            match T::deserialize(ValueDeserializer::from(entry)) {
                Ok(entry) => take(self, entry),
                Err(error) => self.problems.push(Problem::of(self.text, &error, place)),
            }
        }
    }

    fn device(&mut self, entry: &DeviceEntry) {
        let (id, count) = (entry.id.get_ref(), *entry.replicas.get_ref());
        if count == 0 {
            let message = format!("device {id:?}: replicas must be at least 1");
            self.problem(entry.replicas.span().start, message);
        }
        if let Some((device, GrantPart::Whole)) = device_id::parse(id) {
            self.pods.replicas.push(Replicas { device, count });
        } else {
            let message = format!("device {id:?}: not the id of a GPU or MIG instance");
            self.problem(entry.id.span().start, message);
        }
    }

    fn pod(&mut self, entry: PodEntry) {
        let place = entry.uid.span().start;
        let uid = entry.uid.into_inner();
        if uid.is_empty() || !self.uids.insert(uid.clone()) {
            self.problem(place, format!("pod {:?}: its uid {uid:?} is empty or another pod's", entry.name));
        }
        let uid = PodUid::new(uid);
        if !entry.probes {
            self.refusals.insert(uid.clone());
        }
        let mut pod = Pod {
            deferred: Vec::new(),
            uid,
            namespace: entry.namespace,
            name: entry.name,
            containers: Vec::new(),
            grants: Vec::new(),
            info: entry.labels,
        };
        for container in entry.containers {
            for id in &container.devices {
                if let Some((device, part)) = device_id::parse(id.get_ref()) {
                    pod.grants.push(Grant { container: container.name.clone(), device, part });
                } else {
                    let (pod, container, text) = (&pod.name, &container.name, id.get_ref());
                    let message = format!("pod {pod:?}, container {container:?}: unknown device id {text:?}");
                    self.problem(id.span().start, message);
                }
            }
            pod.containers.push(Container { name: container.name, id: container.id.map(ContainerId::new) });
        }
        self.pods.pods.push(pod);
    }

    fn problem(&mut self, offset: usize, message: String) {
        self.problems.push(Problem::at(self.text, offset, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "GPU-5a5a7118-e550-79a1-597e-7631e126c57a";

    fn problems(text: &str) -> Vec<String> {
        parse(text).expect_err("this must not parse").iter().map(ToString::to_string).collect()
    }

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
    fn every_problem_of_a_file_is_told_with_its_place() {
        let found = problems(
            "[[device]]\nid = \"x\"\nreplicas = 0\n[[pod]]\nuid = \"\"\nnamespace = \"n\"\nname = \"p\"\n\
             containers = [{ name = \"c\", devices = [\"y\", \"z\"] }]\n\
             [[pod]]\nuidd = 1\n[[pod]]\nuid = 2\n[pods]\n[[pod]]\n",
        );
        let starts = [
            "2:6: device \"x\": not the id",
            "3:12: device \"x\": replicas must be at least 1",
            "5:7: pod \"p\": its uid",
            "8:40: pod \"p\", container \"c\": unknown device id \"y\"",
            "8:45: pod \"p\", container \"c\": unknown device id \"z\"",
            "10:1: unknown field `uidd`",
            "12:7: invalid type: integer `2`",
            "13:2: unknown key `pods`",
            "14:1: missing field `uid`",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found} is not {start}");
        }
    }

    #[test]
    fn broken_syntax_has_a_place_and_does_not_hide_what_follows() {
        let found = problems("[[pod]]\nuid = \n[[device]]\nid = \"x\"\nreplicas = 1\n");
        assert!(found.iter().any(|problem| problem.starts_with("2:")), "{found:#?}");
        assert!(found.iter().any(|problem| problem.starts_with("4:6: device \"x\"")), "{found:#?}");
        let found = problems("pod = 3\n");
        assert!(found[0].starts_with("1:7: wants a list"), "{found:?}");
    }

    #[test]
    fn a_uid_is_one_pods() {
        let pod = "[[pod]]\nuid = \"u\"\nnamespace = \"n\"\nname = \"p\"\n";
        assert!(parse(pod).is_ok());
        assert!(problems(&pod.repeat(2))[0].starts_with("6:7: pod \"p\": its uid \"u\""));
    }
}
