//! Who holds which device, from what was granted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::fact::{DeviceRef, Grant, GrantPart, Pod, Replicas};
use crate::identity::{DeviceId, GpuId, MigId, Owner, PodUid};
use crate::inventory::{Gpu, Instance};
use crate::ratio::Ppb;
use crate::split::Split;
use crate::view::Evidence;

/// Who holds a device now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The holders in order, each with its weight.
    pub holders: Vec<(Owner, u64)>,
    /// The weight of what nobody holds.
    pub free: u64,
    /// Whether the device is granted in replicas or fractions.
    pub replicated: bool,
    /// How this is known.
    pub evidence: Evidence,
}

impl Held {
    /// Nobody holds it.
    pub fn free() -> Self {
        Self { holders: Vec::new(), free: 1, replicated: false, evidence: Evidence::Measured }
    }

    /// Those who have it open hold it in equal parts, since nothing else says who does.
    pub fn inferred(owners: &BTreeSet<Owner>) -> Self {
        if owners.is_empty() {
            return Self { evidence: Evidence::Assumed, ..Self::free() };
        }
        let holders = owners.iter().map(|owner| (owner.clone(), 1)).collect();
        Self { holders, free: 0, replicated: false, evidence: Evidence::Assumed }
    }

    /// Divides `budget` nanoseconds of the device among the holders and nobody.
    pub fn divide(&self, budget: u64) -> Split<Option<Owner>> {
        let weights = self.holders.iter().map(|(owner, weight)| (Some(owner.clone()), *weight));
        Split::by_weight(budget, weights.chain([(None, self.free)]).collect())
            .unwrap_or_else(|| Split::all_to(budget, None))
    }

    /// How much of the device `owner` holds; nothing if it holds none.
    pub fn part_of(&self, owner: &Owner) -> Option<Ppb> {
        let total: u128 =
            self.holders.iter().map(|(_, weight)| u128::from(*weight)).sum::<u128>() + u128::from(self.free);
        let own = self.holders.iter().find(|(holder, _)| holder == owner)?.1;
        Ppb::of_whole(u128::from(own), total)
    }
}

/// The GPUs that grants can name.
pub type Gpus = BTreeMap<GpuId, Arc<Gpu>>;

/// Resolves all grants against the GPUs that exist.
///
/// `offered` says which devices are offered in replicas. Gives the holders of each of those and of every device
/// that somebody holds, and how many grants
/// name a device that does not exist here. `alive` says whether a pod has live processes: where several pods
/// claim all of one device, those that have some hold it, since a kubelet may list a pod that has ended.
pub fn holders<'p>(
    pods: impl IntoIterator<Item = &'p Pod>,
    offered: &[Replicas],
    gpus: &Gpus,
    redistribute: bool,
    alive: impl Fn(&PodUid) -> bool,
) -> (BTreeMap<DeviceId, Held>, u64) {
    let mut replicas: BTreeMap<DeviceId, u32> = BTreeMap::new();
    for offered in offered {
        if let Some(device) = resolve(&offered.device, gpus) {
            replicas.insert(device, offered.count.max(1));
        }
    }
    let mut unresolved = 0;
    let mut claims: Vec<Claim<'p>> = Vec::new();
    for pod in pods {
        for Grant { container, device, part } in &pod.grants {
            match resolve(device, gpus) {
                Some(device) if !divided(device.clone(), gpus).is_empty() => {
                    claims.push(Claim { uid: &pod.uid, container, device, part: *part });
                }
                _ => unresolved += 1,
            }
        }
    }
    settle(&mut claims, gpus, alive);
    let mut granted: BTreeMap<DeviceId, BTreeSet<(Owner, GrantPart)>> = BTreeMap::new();
    for Claim { uid, container, device, part } in claims {
        for device in divided(device, gpus) {
            let owner = Owner::Pod { uid: uid.clone(), container: Arc::clone(container) };
            granted.entry(device).or_default().insert((owner, part));
        }
    }
    for device in replicas.keys() {
        granted.entry(device.clone()).or_default();
    }
    let held = granted
        .into_iter()
        .map(|(device, grants)| {
            let count = replicas.get(&device).copied();
            (device, weigh(&grants, count, redistribute))
        })
        .collect();
    (held, unresolved)
}

/// What a pod was granted, of a device that exists.
struct Claim<'p> {
    uid: &'p PodUid,
    container: &'p Arc<str>,
    device: DeviceId,
    part: GrantPart,
}

/// What pods with live processes claim of one GPU.
#[derive(Default)]
struct Living<'p> {
    devices: BTreeSet<Option<&'p MigId>>,
    parts: BTreeSet<(Option<&'p MigId>, GrantPart)>,
}

impl Living<'_> {
    /// Whether somebody alive claims what overlaps with `part` of `mig`, on a GPU in MIG mode or not.
    fn overlaps(&self, mig: Option<&MigId>, part: GrantPart, in_mig_mode: bool) -> bool {
        if in_mig_mode && (mig.is_none() || self.devices.contains(&None)) {
            return true;
        }
        match part {
            GrantPart::Whole => self.devices.contains(&mig),
            GrantPart::Replica(_) => {
                self.parts.contains(&(mig, part)) || self.parts.contains(&(mig, GrantPart::Whole))
            }
            GrantPart::Fraction(_) => self.parts.contains(&(mig, GrantPart::Whole)),
        }
    }
}

/// Where the claims of several pods overlap, drops those of pods without live processes if another has some, and with
/// them all that they claim of that GPU: it was granted before the GPU was divided anew, or given on.
fn settle(claims: &mut Vec<Claim<'_>>, gpus: &Gpus, alive: impl Fn(&PodUid) -> bool) {
    let pods: BTreeSet<&PodUid> = claims.iter().map(|claim| claim.uid).collect();
    let alive: BTreeSet<&PodUid> = pods.into_iter().filter(|uid| alive(uid)).collect();
    let mut living: BTreeMap<&GpuId, Living<'_>> = BTreeMap::new();
    for claim in claims.iter().filter(|claim| alive.contains(claim.uid)) {
        let of_gpu = living.entry(&claim.device.gpu).or_default();
        of_gpu.devices.insert(claim.device.mig.as_ref());
        of_gpu.parts.insert((claim.device.mig.as_ref(), claim.part));
    }
    let in_mig_mode = |gpu: &GpuId| gpus.get(gpu).is_some_and(|gpu| gpu.mig.is_some());
    let overtaken = |claim: &Claim<'_>| {
        !alive.contains(claim.uid)
            && living.get(&claim.device.gpu).is_some_and(|living| {
                living.overlaps(claim.device.mig.as_ref(), claim.part, in_mig_mode(&claim.device.gpu))
            })
    };
    let gone: BTreeSet<(PodUid, GpuId)> = claims
        .iter()
        .filter(|claim| overtaken(claim))
        .map(|claim| (claim.uid.clone(), claim.device.gpu.clone()))
        .collect();
    claims.retain(|claim| !gone.contains(&(claim.uid.clone(), claim.device.gpu.clone())));
}

/// Weights in units of which a whole device has `count` × one billion: exact for replicas and fractions alike.
fn weigh(grants: &BTreeSet<(Owner, GrantPart)>, replicas: Option<u32>, redistribute: bool) -> Held {
    let seen = grants.iter().filter_map(|(_, part)| match part {
        GrantPart::Replica(number) => Some(number.saturating_add(1)),
        GrantPart::Whole | GrantPart::Fraction(_) => None,
    });
    // Without a stated count, there are at least as many replicas as the highest number held.
    let count = u64::from(replicas.or(seen.max()).unwrap_or(1));
    let one = u64::from(Ppb::ONE.parts());
    let whole = count.saturating_mul(one);
    let mut weights: BTreeMap<&Owner, u64> = BTreeMap::new();
    let mut sum: u64 = 0;
    for (owner, part) in grants {
        let weight = match part {
            GrantPart::Whole => whole,
            GrantPart::Replica(_) => one,
            GrantPart::Fraction(ratio) => u64::from(ratio.parts()).saturating_mul(count),
        };
        let own = weights.entry(owner).or_default();
        *own = own.saturating_add(weight);
        sum = sum.saturating_add(weight);
    }
    let replicated = replicas.is_some() || grants.iter().any(|(_, part)| *part != GrantPart::Whole);
    let free = if redistribute && sum > 0 { 0 } else { whole.saturating_sub(sum) };
    // More granted than there is: somebody shares, and nothing says in which parts.
    let evidence = if sum > whole { Evidence::Assumed } else { Evidence::Measured };
    Held {
        holders: weights.into_iter().map(|(owner, weight)| (owner.clone(), weight)).collect(),
        free,
        replicated,
        evidence,
    }
}

/// A device, or all instances of a whole GPU that is in MIG mode: a plugin that does not know of MIG grants it whole.
fn divided(device: DeviceId, gpus: &Gpus) -> Vec<DeviceId> {
    match gpus.get(&device.gpu).and_then(|gpu| gpu.mig.as_ref()) {
        Some(mig) if device.mig.is_none() => {
            let instance = |id: &MigId| DeviceId { gpu: device.gpu.clone(), mig: Some(id.clone()) };
            mig.instances.iter().map(|each| instance(&each.id)).collect()
        }
        _ => vec![device],
    }
}

/// The device that a reference names, if it exists here.
pub fn resolve(device: &DeviceRef, gpus: &Gpus) -> Option<DeviceId> {
    match device {
        DeviceRef::Gpu(id) => gpus.contains_key(id).then(|| DeviceId { gpu: id.clone(), mig: None }),
        DeviceRef::Mig(id) => gpus.values().find_map(|gpu| instance(gpu, |instance| instance.id == *id)),
        DeviceRef::Minor(minor) => {
            let gpu = gpus.values().find(|gpu| gpu.minor == Some(*minor))?;
            Some(DeviceId { gpu: gpu.id.clone(), mig: None })
        }
        DeviceRef::MinorInstance { minor, gpu_instance } => {
            let gpu = gpus.values().find(|gpu| gpu.minor == Some(*minor))?;
            instance(gpu, |instance| instance.gpu_instance == *gpu_instance)
        }
        DeviceRef::MinorPlacement { minor, placement } => {
            let gpu = gpus.values().find(|gpu| gpu.minor == Some(*minor))?;
            instance(gpu, |instance| instance.placement == Some(*placement))
        }
        DeviceRef::GpuInstance { gpu, gpu_instance, compute_instance } => {
            instance(gpus.get(gpu)?, |instance| {
                instance.gpu_instance == *gpu_instance && instance.compute_instance == Some(*compute_instance)
            })
        }
    }
}

fn instance(gpu: &Gpu, wanted: impl Fn(&Instance) -> bool) -> Option<DeviceId> {
    let found = gpu.mig.as_ref()?.instances.iter().find(|instance| wanted(instance))?;
    Some(DeviceId { gpu: gpu.id.clone(), mig: Some(found.id.clone()) })
}
