//! Reads an answer of the kubelet. Its order means nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use warpmeter_core::fact::{DeviceRef, Discard, Grant, GrantPart};

use super::client::{Answer, Offered};
use super::dra::{self, Claimed};
use super::id::{self, Id};
use super::mapping::{Mapping, PodName};
use super::options::KubeletOptions;
use super::proto::{ContainerDevices, PodResources};

/// The longest name that Kubernetes allows.
const LONGEST_NAME: usize = 253;

/// What an answer says.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Who holds what.
    pub mapping: Mapping,
    /// What was left out, by hash: there may be much of it, and all that matters is whether it is new.
    pub discarded: BTreeSet<(Discard, u64)>,
    /// Whether units of memory were left out because nothing says whose they are.
    pub loose_units: bool,
}

/// Reads `answer` as far as `options` want it.
pub(super) fn read(answer: &Answer, options: &KubeletOptions) -> Reading {
    let offered = match &answer.offered {
        Offered::Devices(devices) => Some(devices),
        Offered::Unserved | Offered::Failed(_) => None,
    };
    let mut reader = Reader { options, reading: Reading::default(), parts: BTreeMap::new(), unit_gpu: None };
    if let Some(devices) = offered {
        reader.offered(devices);
    }
    for pod in &answer.pods {
        reader.pod(pod);
    }
    reader.finish()
}

struct Reader<'a> {
    options: &'a KubeletOptions,
    reading: Reading,
    /// The parts of every device that is offered in parts.
    parts: BTreeMap<DeviceRef, BTreeSet<u32>>,
    /// The GPU of all units of memory, if they are of one.
    unit_gpu: Option<DeviceRef>,
}

impl Reader<'_> {
    fn offered(&mut self, devices: &[ContainerDevices]) {
        let mut of_units = BTreeSet::new();
        for id in self.wanted(devices) {
            match id::read(id) {
                Id::Device(device, GrantPart::Replica(number)) => {
                    self.parts.entry(device).or_default().insert(number);
                }
                Id::Device(_, GrantPart::Whole | GrantPart::Fraction(_)) => {}
                Id::Unit(device, number) => {
                    of_units.insert(device.clone());
                    self.parts.entry(device).or_default().insert(number);
                }
                Id::Unknown => self.discard(Discard::DeviceId, id),
            }
        }
        if of_units.len() == 1 {
            self.unit_gpu = of_units.pop_first();
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
            for id in self.wanted(&container.devices) {
                match id::read(id) {
                    Id::Device(device, part) => grant((device, part)),
                    Id::Unit(device, number) if self.unit_gpu.as_ref() == Some(&device) => {
                        grant((device, GrantPart::Replica(number)));
                    }
                    Id::Unit(..) => self.reading.loose_units = true,
                    Id::Unknown => self.discard(Discard::DeviceId, id),
                }
            }
            for claim in container.dynamic_resources.iter().flat_map(|resource| &resource.claim_resources) {
                match dra::read(claim) {
                    Claimed::Devices(devices) => devices.into_iter().for_each(&mut grant),
                    Claimed::Unknown => self.discard(Discard::DeviceId, &claim.device_name),
                    Claimed::Other => {}
                }
            }
            holding.containers.insert(name);
        }
        self.reading.mapping.pods.insert(name, holding);
    }

    /// The ids of devices that are GPUs.
    fn wanted<'d>(&self, devices: &'d [ContainerDevices]) -> impl Iterator<Item = &'d [u8]> + use<'_, 'd> {
        let options = self.options;
        let wanted = devices.iter().filter(|devices| options.wants(&devices.resource_name));
        wanted.flat_map(|devices| devices.device_ids.iter().map(Vec::as_slice))
    }

    fn discard(&mut self, reason: Discard, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        self.reading.discarded.insert((reason, hasher.finish()));
    }

    fn finish(mut self) -> Reading {
        // A part that is held exists, also if it is not offered at present.
        for grant in self.reading.mapping.grants() {
            if let (Some(parts), GrantPart::Replica(number)) = (self.parts.get_mut(&grant.device), grant.part) {
                parts.insert(number);
            }
        }
        let count = |parts: BTreeSet<u32>| u32::try_from(parts.len()).unwrap_or(u32::MAX);
        self.reading.mapping.replicas =
            self.parts.into_iter().map(|(device, parts)| (device, count(parts))).collect();
        self.reading
    }
}
