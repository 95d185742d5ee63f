//! Reads an answer of the kubelet, where it lies: what is kept of it is bounded. Its order means nothing.
//!
//! The numbers of fields are those of `tests/kubelet/podresources.proto`.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use warpmeter_core::fact::{DeviceRef, Discard, Grant, GrantPart};

use super::bounds::{self, Draft, Kept};
use super::client::{Answer, AskError, Offered};
use super::dra::{self, Claimed};
use super::example::{Example, Found};
use super::id::{self, Id};
use super::mapping::{Mapping, PodName};
use super::options::KubeletOptions;
use super::wire::{Malformed, fields};

/// The longest name that Kubernetes allows.
const LONGEST_NAME: usize = 253;

/// What an answer says.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Who holds what.
    pub mapping: Mapping,
    /// How often a pod was left out that holds GPUs, for want of room.
    pub holders_left_out: u64,
    /// The same of pods that hold none.
    pub others_left_out: u64,
    /// What was not understood, by hash: all that matters is whether it is new.
    pub discarded: BTreeSet<(Discard, u64)>,
    /// Whether there was more of that than is remembered.
    pub more_discarded: bool,
    /// One of the device ids that were not understood, for people.
    pub example: Option<Example>,
    /// What became of the question for every device that there is to hold.
    pub offer: Offer,
    /// The GPU of all units of memory, if they are of one.
    pub unit_gpu: Option<DeviceRef>,
    /// Whether units of memory were left out because nothing says whose they are.
    pub loose_units: bool,
}

/// What became of the question for every device that there is to hold.
#[derive(Debug, Default)]
pub(super) enum Offer {
    /// It was answered.
    Known,
    /// This kubelet does not tell.
    #[default]
    Unserved,
    /// It does, but has not this time.
    Failed(AskError),
}

/// Reads `answer` as far as `options` want it. All units of memory are of `unit_gpu` unless it says otherwise.
pub(super) fn read(
    answer: Answer,
    options: &KubeletOptions,
    unit_gpu: Option<&DeviceRef>,
) -> Result<Reading, Malformed> {
    let mut reader = Reader {
        options,
        reading: Reading { unit_gpu: unit_gpu.cloned(), ..Reading::default() },
        parts: Parts::default(),
        holders: Kept::default(),
        others: Kept::default(),
    };
    reader.reading.offer = match answer.offered {
        Offered::Devices(devices) => match reader.offered(&devices) {
            Ok(()) if !reader.parts.full => Offer::Known,
            Ok(()) => Offer::Failed(AskError::TooMany),
            Err(malformed) => Offer::Failed(malformed.into()),
        },
        Offered::Unserved => Offer::Unserved,
        Offered::Failed(error) => Offer::Failed(error),
    };
    if matches!(reader.reading.offer, Offer::Failed(_)) {
        // A part of an offer would give wrong counts.
        reader.parts = Parts::default();
    }
    for field in fields(&answer.pods) {
        if let (1, pod) = field? {
            reader.pod(pod)?;
        }
    }
    Ok(reader.finish())
}

/// All that a `List` answer grants, as it is on the wire; none if it is no such answer. The source itself reads it
/// through gRPC: this is for those who want to know what any bytes would do.
pub fn grants(list: &[u8], options: &KubeletOptions) -> Option<BTreeSet<Grant>> {
    let answer = Answer { pods: list.to_vec().into(), offered: Offered::Unserved };
    let reading = read(answer, options, None).ok()?;
    Some(reading.mapping.grants().cloned().collect())
}

/// The parts of every device that is offered in parts.
#[derive(Debug, Default)]
struct Parts {
    of: BTreeMap<DeviceRef, BTreeSet<u32>>,
    count: usize,
    /// There are more than are counted.
    full: bool,
}

impl Parts {
    fn add(&mut self, device: DeviceRef, number: u32) {
        if self.count >= bounds::PARTS {
            self.full = true;
        } else if self.of.entry(device).or_default().insert(number) {
            self.count += 1;
        }
    }
}

struct Reader<'a> {
    options: &'a KubeletOptions,
    reading: Reading,
    parts: Parts,
    holders: Kept,
    others: Kept,
}

impl Reader<'_> {
    /// Reads an `AllocatableResourcesResponse`.
    fn offered(&mut self, response: &[u8]) -> Result<(), Malformed> {
        // Of units of memory: of one GPU, or of several.
        let (mut of_one, mut of_several) = (None, false);
        for field in fields(response) {
            let (1, devices) = field? else { continue };
            wanted(self.options, devices, |resource, id| match id::read(id) {
                Id::Device(device, GrantPart::Replica(number)) | Id::Slot(device, number) => {
                    self.parts.add(device, number);
                }
                Id::Device(_, GrantPart::Whole | GrantPart::Fraction(_)) => {}
                Id::Unit(device, number) => {
                    of_several |= of_one.as_ref().is_some_and(|one| *one != device);
                    of_one = Some(device.clone());
                    self.parts.add(device, number);
                }
                Id::Unknown => self.reading.unknown(Found { id, resource, ..Found::default() }),
            })?;
        }
        match of_one {
            // Its plugin has not registered yet.
            None => {}
            Some(_) if of_several => self.reading.unit_gpu = None,
            one => self.reading.unit_gpu = one,
        }
        Ok(())
    }

    /// Reads a `PodResources`.
    fn pod(&mut self, pod: &[u8]) -> Result<(), Malformed> {
        let (mut name, mut namespace) = (&b""[..], &b""[..]);
        for field in fields(pod) {
            match field? {
                (1, text) => name = text,
                (2, text) => namespace = text,
                _ => {}
            }
        }
        let (Some(sound_name), Some(sound_namespace)) =
            (sound(name).filter(|name| !name.is_empty()), sound(namespace).filter(|name| !name.is_empty()))
        else {
            self.reading.discard(Discard::Garbage, (namespace, name));
            return Ok(());
        };
        let key = PodName { namespace: sound_namespace.into(), name: sound_name.into() };
        let mut draft = Draft::default();
        for field in fields(pod) {
            let (3, container) = field? else { continue };
            if !self.container(container, &key, &mut draft)? {
                self.reading.discard(Discard::Garbage, (namespace, name));
            }
        }
        if draft.holds() {
            self.holders.put(key, draft);
        } else {
            self.others.put(key, draft);
        }
        Ok(())
    }

    /// Reads a `ContainerResources`; false if it has no possible name.
    fn container(&mut self, container: &[u8], pod: &PodName, draft: &mut Draft) -> Result<bool, Malformed> {
        let mut name = &b""[..];
        for field in fields(container) {
            if let (1, text) = field? {
                name = text;
            }
        }
        let Some(name) = sound(name) else { return Ok(false) };
        let name: Arc<str> = name.into();
        draft.container(&name);
        let Self { options, reading, .. } = self;
        let (namespace, pod) = (pod.namespace.as_bytes(), pod.name.as_bytes());
        let at = Found { namespace, pod, container: name.as_bytes(), ..Found::default() };
        for field in fields(container) {
            let grant = |draft: &mut Draft, device, part| {
                draft.grant(Grant { container: Arc::clone(&name), device, part });
            };
            match field? {
                (2, devices) => wanted(options, devices, |resource, id| match id::read(id) {
                    Id::Device(device, part) => grant(draft, device, part),
                    Id::Slot(device, number) => {
                        draft.defer(&name);
                        grant(draft, device, GrantPart::Replica(number));
                    }
                    Id::Unit(device, number) => {
                        draft.defer(&name);
                        if reading.unit_gpu.as_ref() == Some(&device) {
                            grant(draft, device, GrantPart::Replica(number));
                        } else {
                            reading.loose_units = true;
                        }
                    }
                    Id::Unknown => reading.unknown(Found { id, resource, ..at }),
                })?,
                (5, resource) => {
                    for field in fields(resource) {
                        let (4, claim) = field? else { continue };
                        let claimed = dra::read(claim, |(device, part)| grant(draft, device, part))?;
                        if let Claimed::Unknown(id) = claimed {
                            reading.unknown(Found { id, resource: dra::DRIVER.as_bytes(), ..at });
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn finish(self) -> Reading {
        let Self { mut reading, mut parts, holders, others, .. } = self;
        reading.holders_left_out = holders.left_out();
        reading.others_left_out = others.left_out();
        for (name, holding) in others.into_pods().chain(holders.into_pods()) {
            reading.mapping.pods.entry(name).or_default().push(holding);
        }
        // A part that is held exists, also if it is not offered at present.
        for grant in reading.mapping.grants() {
            if let (Some(parts), GrantPart::Replica(number)) = (parts.of.get_mut(&grant.device), grant.part) {
                parts.insert(number);
            }
        }
        let count = |parts: BTreeSet<u32>| u32::try_from(parts.len()).unwrap_or(u32::MAX);
        reading.mapping.replicas =
            parts.of.into_iter().map(|(device, parts)| (device, count(parts))).collect();
        reading
    }
}

impl Reading {
    fn unknown(&mut self, found: Found<'_>) {
        self.discard(Discard::DeviceId, found.id);
        Example::keep(&mut self.example, found);
    }

    /// How many things were not understood, for this reason.
    pub(super) fn count(&self, reason: Discard) -> usize {
        self.discarded.iter().filter(|(other, _)| *other == reason).count()
    }

    fn discard(&mut self, reason: Discard, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        self.discarded.insert((reason, hasher.finish()));
        if self.discarded.len() > bounds::ODD {
            self.discarded.pop_last();
            self.more_discarded = true;
        }
    }
}

/// A name that Kubernetes could have given.
fn sound(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok().filter(|name| name.len() <= LONGEST_NAME)
}

/// Gives the resource and the ids of a `ContainerDevices` whose devices are GPUs.
fn wanted<'a>(
    options: &KubeletOptions,
    devices: &'a [u8],
    mut take: impl FnMut(&'a [u8], &'a [u8]),
) -> Result<(), Malformed> {
    let mut resource = &b""[..];
    for field in fields(devices) {
        if let (1, name) = field? {
            resource = name;
        }
    }
    if !std::str::from_utf8(resource).is_ok_and(|resource| options.wants(resource)) {
        return Ok(());
    }
    for field in fields(devices) {
        if let (2, id) = field? {
            take(resource, id);
        }
    }
    Ok(())
}
