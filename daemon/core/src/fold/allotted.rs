//! What a pod really holds where its device plugin does as a scheduler noted, and not as the kubelet was told.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::allocate::{Gpus, resolve};
use crate::fact::{Allotment, DeviceRef, Grant, GrantPart, Pod, Replicas, Share};
use crate::identity::DeviceId;
use crate::ratio::Ppb;

/// The pod with the grants of `allotments` in place of the parts that the kubelet names, for each of its containers
/// that is deferred and has some. A container of which one cannot be told stays as it was.
pub(super) fn corrected<'p>(
    pod: &'p Pod,
    allotments: &[Allotment],
    offered: &[Replicas],
    gpus: &Gpus,
) -> Cow<'p, Pod> {
    let mut pod = Cow::Borrowed(pod);
    for container in pod.deferred.clone() {
        let own: Vec<&Allotment> =
            allotments.iter().filter(|allotment| allotment.container == container).collect();
        let parts: Option<Vec<(DeviceId, Ppb)>> =
            own.iter().map(|allotment| part(allotment, offered, gpus)).collect();
        let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { continue };
        // Two equal parts of one device are twice as much, and two equal grants are one.
        let mut sums: BTreeMap<DeviceId, u32> = BTreeMap::new();
        for (device, part) in parts {
            let sum = sums.entry(device).or_default();
            *sum = sum.saturating_add(part.parts()).min(Ppb::ONE.parts());
        }
        let grants = sums.into_iter().filter_map(|(device, parts)| {
            let device = device.mig.map_or(DeviceRef::Gpu(device.gpu), DeviceRef::Mig);
            let part = GrantPart::Fraction(Ppb::new(parts)?);
            Some(Grant { container: container.clone(), device, part })
        });
        let pod = pod.to_mut();
        pod.grants
            .retain(|grant| grant.container != container || !matches!(grant.part, GrantPart::Replica(_)));
        pod.grants.extend(grants);
    }
    pod
}

/// None if the device is not here, or it is not known how much of it that is.
fn part(allotment: &Allotment, offered: &[Replicas], gpus: &Gpus) -> Option<(DeviceId, Ppb)> {
    let device = resolve(&allotment.device, gpus)?;
    let part = match allotment.share {
        Share::Compute(ratio) => ratio,
        Share::Memory(bytes) => Ppb::of_whole(bytes.into(), memory(&device, gpus)?.into())?,
        Share::Units { units, of } => {
            let count = || {
                let offered =
                    offered.iter().find(|offered| resolve(&offered.device, gpus).as_ref() == Some(&device));
                offered.map(|offered| offered.count.into())
            };
            Ppb::of_whole(units.into(), of.or_else(count)?.into())?
        }
    };
    Some((device, part))
}

fn memory(device: &DeviceId, gpus: &Gpus) -> Option<u64> {
    let gpu = gpus.get(&device.gpu)?;
    match (&gpu.mig, &device.mig) {
        (Some(mig), Some(id)) => mig.instances.iter().find(|instance| instance.id == *id)?.memory_bytes,
        _ => gpu.memory_bytes,
    }
}
