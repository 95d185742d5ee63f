//! A list of pods, read as it arrives: only one pod is in memory as the server wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use warpmeter_core::fact::PodNames;
use warpmeter_core::identity::PodUid;

use super::options::LabelKeys;
use super::pod::{Pod, or_default};

/// Pods that are named: a node runs 110 by default, and 250 on the largest in use.
pub(super) const PODS: usize = 1024;
/// Bytes of a token for the next page.
const TOKEN: usize = 4096;

/// The pods of one or more pages.
#[derive(Debug)]
pub(super) struct Roll<'a> {
    keys: &'a LabelKeys,
    /// The node whose pods are wanted; none for all.
    node: Option<&'a str>,
    /// By UID, and whether a mirror object named it.
    pods: BTreeMap<PodUid, (bool, PodNames)>,
    /// Pods that want no probes.
    refusals: BTreeSet<PodUid>,
    /// Pods that do not parse or have no usable identity.
    pub unread: u64,
    /// Pods beyond those that are named.
    pub beyond: u64,
    /// Pods of other nodes.
    pub foreign: u64,
    /// Pods whose annotations say something of GPUs, but not what.
    pub unclear: u64,
}

impl<'a> Roll<'a> {
    pub(super) fn new(keys: &'a LabelKeys, node: Option<&'a str>) -> Self {
        let (pods, refusals) = (BTreeMap::new(), BTreeSet::new());
        Self { keys, node, pods, refusals, unread: 0, beyond: 0, foreign: 0, unclear: 0 }
    }

    /// Adds a page. Gives the token for the next one, empty after the last.
    pub(super) fn page(&mut self, text: impl Read) -> Result<String, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_reader(text);
        let next = Page { roll: self }.deserialize(&mut reader)?;
        reader.end()?;
        Ok(next)
    }

    /// The pods in order of UID.
    pub(super) fn into_names(self) -> Vec<PodNames> {
        self.pods.into_values().map(|(_, names)| names).collect()
    }

    /// Pods that want no probes.
    pub(super) fn refusals(&self) -> BTreeSet<PodUid> {
        self.refusals.iter().filter(|uid| self.pods.contains_key(uid)).cloned().collect()
    }

    fn add(&mut self, text: &RawValue) {
        let pod = serde_json::from_str::<Pod>(text.get()).ok();
        if let (Some(pod), Some(node)) = (&pod, self.node)
            && !pod.is_on(node)
        {
            self.foreign += 1;
            return;
        }
        let read = |pod: Pod| Some((pod.is_mirror(), pod.refuses_probes(self.keys), pod.names(self.keys)?));
        match pod.and_then(read) {
            Some((mirror, refuses, (names, clear))) => {
                self.unclear += u64::from(!clear);
                let uid = names.uid.clone();
                // Whoever stays says it.
                match (self.put(mirror, names), refuses) {
                    (true, true) => {
                        self.refusals.insert(uid);
                    }
                    (true, false) => {
                        self.refusals.remove(&uid);
                    }
                    (false, _) => {}
                }
            }
            None => self.unread += 1,
        }
    }

    /// Of two pods with one UID the first stays, unless it is a mirror and the other is not: a mirror's UID is an
    /// annotation, and the other's was given by the server. Whether this one does.
    fn put(&mut self, mirror: bool, names: PodNames) -> bool {
        if let Some((was_mirror, _)) = self.pods.get(&names.uid) {
            if !*was_mirror || mirror {
                return false;
            }
        } else if self.pods.len() >= PODS {
            self.beyond += 1;
            // A pod that has ended needs its name least.
            let ended = self.pods.iter().find(|(_, (_, pod))| pod.ended).map(|(uid, _)| uid.clone());
            match ended {
                Some(uid) if !names.ended => self.pods.remove(&uid),
                _ => return false,
            };
        }
        self.pods.insert(names.uid.clone(), (mirror, names));
        true
    }
}

/// Reads one page of pods, as `GET /api/v1/pods` answers it. Gives its pods in order of UID.
pub fn parse(text: impl Read, keys: &LabelKeys) -> Result<Vec<PodNames>, serde_json::Error> {
    let mut roll = Roll::new(keys, None);
    roll.page(text)?;
    Ok(roll.into_names())
}

/// A page that goes into a roll as it is read.
struct Page<'r, 'a> {
    roll: &'r mut Roll<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    #[serde(rename = "continue", deserialize_with = "or_default")]
    next: String,
}

impl<'de> DeserializeSeed<'de> for Page<'_, '_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Page<'_, '_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a PodList")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut next = String::new();
        let mut listed = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "kind" => {
                    let kind: String = map.next_value()?;
                    if kind != "PodList" {
                        return Err(A::Error::custom("its kind is not PodList"));
                    }
                }
                "metadata" => {
                    next = map.next_value::<Option<ListMetadata>>()?.unwrap_or_default().next;
                    if next.len() > TOKEN {
                        return Err(A::Error::custom("its token for the next page is too long"));
                    }
                }
                "items" => {
                    map.next_value_seed(Items { roll: self.roll })?;
                    listed = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        // Else whatever answers `{}` would unname every pod.
        if listed { Ok(next) } else { Err(A::Error::missing_field("items")) }
    }
}

struct Items<'r, 'a> {
    roll: &'r mut Roll<'a>,
}

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pods")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pods: A) -> Result<(), A::Error> {
        while let Some(pod) = pods.next_element::<Box<RawValue>>()? {
            self.roll.add(&pod);
        }
        Ok(())
    }
}
