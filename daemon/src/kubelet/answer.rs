//! Reads an answer of the kubelet. Its order means nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use prost::Message;
use warpmeter_core::fact::{DeviceRef, Discard, Grant, GrantPart};

use super::client::{Answer, Offered};
use super::dra::{self, Claimed};
use super::id::{self, Id};
use super::mapping::{Mapping, PodName};
use super::options::KubeletOptions;
use super::proto::{ContainerDevices, ListPodResourcesResponse, PodResources};

/// The longest name that Kubernetes allows.
const LONGEST_NAME: usize = 253;
/// How much is shown of an id of no known form.
const SHOWN: usize = 80;

/// What an answer says.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Who holds what.
    pub mapping: Mapping,
    /// What was left out, by hash: there may be much of it, and all that matters is whether it is new.
    pub discarded: BTreeSet<(Discard, u64)>,
    /// One of the device ids that were left out, for people.
    pub example: Option<String>,
    /// The GPU of all units of memory, if they are of one.
    pub unit_gpu: Option<DeviceRef>,
    /// Whether units of memory were left out because nothing says whose they are.
    pub loose_units: bool,
}

/// Reads `answer` as far as `options` want it. All units of memory are of `unit_gpu` unless it says otherwise.
pub(super) fn read(answer: &Answer, options: &KubeletOptions, unit_gpu: Option<&DeviceRef>) -> Reading {
    let offered = match &answer.offered {
        Offered::Devices(devices) => Some(devices),
        Offered::Unserved | Offered::Failed(_) => None,
    };
    let reading = Reading { unit_gpu: unit_gpu.cloned(), ..Reading::default() };
    let mut reader = Reader { options, reading, parts: BTreeMap::new() };
    if let Some(devices) = offered {
        reader.offered(devices);
    }
    for pod in &answer.pods {
        reader.pod(pod);
    }
    reader.finish()
}

/// All that a `List` answer grants, as it is on the wire; none if it is no such answer. The source itself reads it
/// through gRPC: this is for those who want to know what any bytes would do.
pub fn grants(list: &[u8], options: &KubeletOptions) -> Option<BTreeSet<Grant>> {
    let pods = ListPodResourcesResponse::decode(list).ok()?.pod_resources;
    let reading = read(&Answer { pods, offered: Offered::Unserved }, options, None);
    Some(reading.mapping.grants().cloned().collect())
}

struct Reader<'a> {
    options: &'a KubeletOptions,
    reading: Reading,
    /// The parts of every device that is offered in parts.
    parts: BTreeMap<DeviceRef, BTreeSet<u32>>,
}

impl Reader<'_> {
    fn offered(&mut self, devices: &[ContainerDevices]) {
        let mut of_units = BTreeSet::new();
        for id in wanted(self.options, devices) {
            match id::read(id) {
                Id::Device(device, GrantPart::Replica(number)) => {
                    self.parts.entry(device).or_default().insert(number);
                }
                Id::Device(_, GrantPart::Whole | GrantPart::Fraction(_)) => {}
                Id::Unit(device, number) => {
                    of_units.insert(device.clone());
                    self.parts.entry(device).or_default().insert(number);
                }
                Id::Unknown => self.unknown(id),
            }
        }
        match of_units.len() {
            // Its plugin has not registered yet.
            0 => {}
            1 => self.reading.unit_gpu = of_units.pop_first(),
            _ => self.reading.unit_gpu = None,
        }
    }

    fn pod(&mut self, pod: &PodResources) {
        let sound = |name: &str| !name.is_empty() && name.len() <= LONGEST_NAME;
        let containers = pod.containers.iter().filter(|container| container.name.len() <= LONGEST_NAME);
        if !sound(&pod.namespace) || !sound(&pod.name) || containers.clone().count() < pod.containers.len() {
            self.discard(Discard::Garbage, (&pod.namespace, &pod.name));
        }
        if !sound(&pod.namespace) || !sound(&pod.name) {
            return;
        }
        let name = PodName { namespace: pod.namespace.as_str().into(), name: pod.name.as_str().into() };
        let mut holding = self.reading.mapping.pods.remove(&name).unwrap_or_default();
        for container in containers {
            let name: Arc<str> = container.name.as_str().into();
            let mut grant = |(device, part)| {
                holding.grants.insert(Grant { container: Arc::clone(&name), device, part });
            };
            for id in wanted(self.options, &container.devices) {
                match id::read(id) {
                    Id::Device(device, part) => grant((device, part)),
                    Id::Unit(device, number) if self.reading.unit_gpu.as_ref() == Some(&device) => {
                        grant((device, GrantPart::Replica(number)));
                    }
                    Id::Unit(..) => self.reading.loose_units = true,
                    Id::Unknown => self.unknown(id),
                }
            }
            for claim in container.dynamic_resources.iter().flat_map(|resource| &resource.claim_resources) {
                match dra::read(claim) {
                    Claimed::Devices(devices) => devices.into_iter().for_each(&mut grant),
                    Claimed::Unknown => self.unknown(claim.device_name.as_bytes()),
                    Claimed::Other => {}
                }
            }
            holding.containers.insert(name);
        }
        self.reading.mapping.pods.insert(name, holding);
    }

    fn unknown(&mut self, id: &[u8]) {
        self.discard(Discard::DeviceId, id);
        let shown: String = String::from_utf8_lossy(id).chars().take(SHOWN).collect();
        // The least of all, whatever their order.
        if self.reading.example.as_ref().is_none_or(|example| shown < *example) {
            self.reading.example = Some(shown);
        }
    }

    fn discard(&mut self, reason: Discard, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        self.reading.discarded.insert((reason, hasher.finish()));
    }

    fn finish(mut self) -> Reading {
        // A part that is held exists, also if it is not offered at present.
        for grant in self.reading.mapping.grants() {
            if let (Some(parts), GrantPart::Replica(number)) = (self.parts.get_mut(&grant.device), grant.part)
            {
                parts.insert(number);
            }
        }
        let count = |parts: BTreeSet<u32>| u32::try_from(parts.len()).unwrap_or(u32::MAX);
        self.reading.mapping.replicas =
            self.parts.into_iter().map(|(device, parts)| (device, count(parts))).collect();
        self.reading
    }
}

/// The ids of devices that are GPUs.
fn wanted<'a>(
    options: &'a KubeletOptions,
    devices: &'a [ContainerDevices],
) -> impl Iterator<Item = &'a [u8]> {
    let wanted = devices.iter().filter(|devices| options.wants(&devices.resource_name));
    wanted.flat_map(|devices| devices.device_ids.iter().map(Vec::as_slice))
}
