//! How a GPU in MIG mode is divided.

use warpmeter_core::identity::MigId;
use warpmeter_core::inventory::{Instance, Mig, Placement};

use crate::nvml::Fault;
use crate::nvml::sys::{Attributes, Device, Profile};

const MIB: u64 = 1 << 20;

/// A compute instance as its device describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Compute {
    uuid: String,
    gpu_instance: u32,
    id: u32,
    /// The device's name, which ends in its profile.
    name: String,
    attributes: Attributes,
}

/// The division of one GPU, with the device of each instance.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) mig: Mig,
    /// In the order of `mig.instances`; none for a GPU instance without a compute instance.
    pub(crate) devices: Vec<Option<Device>>,
    /// Whether GPU instances could be listed: this needs root, where the devices do not.
    pub(crate) complete: bool,
}

impl Layout {
    /// Asks the driver.
    pub(crate) fn read(device: &Device, profiles: &[Profile]) -> Result<Self, Fault> {
        let mut devices = Vec::new();
        for device in device.mig_devices()? {
            let compute = Compute {
                uuid: device.uuid()?,
                gpu_instance: device.gpu_instance()?,
                id: device.compute_instance()?,
                name: device.name()?,
                attributes: device.attributes()?,
            };
            devices.push((compute, device));
        }
        devices.sort_by_key(|(compute, _)| (compute.gpu_instance, compute.id));
        let listed = gpu_instances(device, profiles)?;
        let computes: Vec<&Compute> = devices.iter().map(|(compute, _)| compute).collect();
        let mig = assemble(profiles, &computes, listed.as_ref());
        let devices = mig
            .instances
            .iter()
            .map(|instance| {
                let of = |compute: &Compute| {
                    compute.gpu_instance == instance.gpu_instance
                        && Some(compute.id) == instance.compute_instance
                };
                devices.iter().find(|(compute, _)| of(compute)).map(|(_, device)| device.clone())
            })
            .collect();
        Ok(Self { mig, devices, complete: listed.is_some() })
    }
}

/// What only root is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GpuInstances {
    /// Every GPU instance, where it starts, and the index of its profile.
    existing: Vec<(u32, u32, usize)>,
    /// For each profile, how many more of it could be made.
    remaining: Vec<u32>,
}

fn gpu_instances(device: &Device, profiles: &[Profile]) -> Result<Option<GpuInstances>, Fault> {
    let mut listed = GpuInstances::default();
    for (index, profile) in profiles.iter().enumerate() {
        match device.gpu_instances(profile) {
            Ok(ids) => listed.existing.extend(ids.into_iter().map(|(id, start)| (id, start, index))),
            Err(fault) if fault == Fault::NO_PERMISSION || fault == Fault::FUNCTION_NOT_FOUND => {
                return Ok(None);
            }
            Err(fault) if fault.is_unsupported() || fault == Fault::NOT_FOUND => {}
            Err(fault) => return Err(fault),
        }
        listed.remaining.push(device.remaining_capacity(profile.id).unwrap_or_default());
    }
    Ok(Some(listed))
}

/// Puts the driver's answers together.
fn assemble(profiles: &[Profile], computes: &[&Compute], listed: Option<&GpuInstances>) -> Mig {
    let total = profiles.iter().map(|profile| profile.slices).max().unwrap_or_default();
    let placement = |gpu_instance: u32| {
        let existing = &listed?.existing;
        let (_, start, index) = existing.iter().find(|(id, ..)| *id == gpu_instance)?;
        Some(Placement { profile: profiles.get(*index)?.id, start: *start })
    };
    let mut instances: Vec<Instance> = computes
        .iter()
        .map(|compute| Instance {
            id: MigId::new(compute.uuid.as_str()),
            gpu_instance: compute.gpu_instance,
            compute_instance: Some(compute.id),
            profile: profile_of_name(&compute.name, compute.attributes.compute_instance_slices),
            slices: compute.attributes.compute_instance_slices,
            memory_bytes: Some(compute.attributes.memory_mib.saturating_mul(MIB)).filter(|bytes| *bytes > 0),
            placement: placement(compute.gpu_instance),
        })
        .collect();
    for (id, _, index) in listed.into_iter().flat_map(|listed| &listed.existing) {
        let Some(profile) = profiles.get(*index) else { continue };
        if computes.iter().any(|compute| compute.gpu_instance == *id) {
            continue;
        }
        let name = profile.name.as_deref().unwrap_or_default();
        instances.push(Instance {
            id: MigId::new(format!("gi-{id}")),
            gpu_instance: *id,
            compute_instance: None,
            profile: profile_of_name(name, profile.slices),
            slices: profile.slices,
            memory_bytes: Some(profile.memory_mib.saturating_mul(MIB)).filter(|bytes| *bytes > 0),
            placement: placement(*id),
        });
    }
    instances.sort_by_key(|instance| (instance.gpu_instance, instance.compute_instance));
    // One GPU instance can be listed under two profiles of the same shape.
    instances.dedup_by(|one, other| one.id == other.id);
    let used = instances.iter().map(|instance| instance.slices).fold(0, u32::saturating_add);
    let free = total.saturating_sub(used);
    let creatable = match listed {
        Some(listed) => creatable(profiles, computes, &listed.remaining).min(free),
        // Without permission to ask, all that is not used counts as free.
        None => free,
    };
    Mig { slices: total, instances, creatable_slices: creatable }
}

/// The most slices that one kind of further GPU instance could take, and what further compute instances could
/// take of the GPU instances that have one already.
fn creatable(profiles: &[Profile], computes: &[&Compute], remaining: &[u32]) -> u32 {
    let outside =
        profiles.iter().zip(remaining).map(|(profile, count)| profile.slices.saturating_mul(*count)).max();
    let mut inside = 0_u32;
    for (position, compute) in computes.iter().enumerate() {
        let mut siblings = computes.iter().filter(|other| other.gpu_instance == compute.gpu_instance);
        let first = computes.iter().position(|other| other.gpu_instance == compute.gpu_instance);
        if first != Some(position) {
            continue;
        }
        let taken = siblings.try_fold(0_u32, |sum, c| sum.checked_add(c.attributes.compute_instance_slices));
        let whole = compute.attributes.gpu_instance_slices;
        inside = inside.saturating_add(whole.saturating_sub(taken.unwrap_or(whole)));
    }
    outside.unwrap_or_default().saturating_add(inside)
}

/// The profile at the end of a name: `NVIDIA A100-SXM4-40GB MIG 1g.5gb` and `MIG 1g.5gb` give `1g.5gb`. A driver
/// that gives no name leaves only the slices to tell: sizes of memory are never rounded into a name.
fn profile_of_name(name: &str, slices: u32) -> String {
    let profile = name.rsplit_once("MIG ").map_or("", |(_, profile)| profile).trim();
    if profile.is_empty() { format!("{slices}g") } else { profile.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(id: u32, slices: u32, name: &str) -> Profile {
        let name = (!name.is_empty()).then(|| format!("MIG {name}"));
        Profile { id, slices, instances: 7, memory_mib: 4864, name }
    }

    fn compute(gpu_instance: u32, id: u32, of: u32, slices: u32, name: &str) -> Compute {
        Compute {
            uuid: format!("MIG-{gpu_instance}-{id}"),
            gpu_instance,
            id,
            name: format!("NVIDIA A100-SXM4-40GB MIG {name}"),
            attributes: Attributes {
                gpu_instance_slices: of,
                compute_instance_slices: slices,
                memory_mib: 4864,
            },
        }
    }

    fn a100() -> Vec<Profile> {
        [
            profile(19, 1, "1g.5gb"),
            profile(14, 2, "2g.10gb"),
            profile(9, 3, "3g.20gb"),
            profile(0, 7, "7g.40gb"),
        ]
        .into()
    }

    fn summary(mig: &Mig) -> Vec<(&str, &str, u32)> {
        mig.instances.iter().map(|i| (i.id.as_str(), i.profile.as_str(), i.slices)).collect()
    }

    #[test]
    fn two_large_instances_leave_one_slice_that_nothing_fits() {
        let (one, two) = (compute(1, 0, 3, 3, "3g.20gb"), compute(2, 0, 3, 3, "3g.20gb"));
        let listed = GpuInstances { existing: vec![(1, 0, 2), (2, 4, 2)], remaining: vec![0, 0, 0, 0] };
        let mig = assemble(&a100(), &[&one, &two], Some(&listed));
        assert_eq!((mig.slices, mig.creatable_slices), (7, 0));
        assert_eq!(summary(&mig), [("MIG-1-0", "3g.20gb", 3), ("MIG-2-0", "3g.20gb", 3)]);
        assert_eq!(mig.instances[0].memory_bytes, Some(4864 << 20));
    }

    #[test]
    fn a_gpu_instance_without_a_compute_instance_is_listed_under_a_name_of_its_own() {
        let one = compute(1, 0, 3, 3, "3g.20gb");
        let listed = GpuInstances { existing: vec![(9, 6, 0), (1, 0, 2)], remaining: vec![3, 1, 1, 0] };
        let mig = assemble(&a100(), &[&one], Some(&listed));
        assert_eq!(summary(&mig), [("MIG-1-0", "3g.20gb", 3), ("gi-9", "1g.5gb", 1)]);
        assert_eq!(mig.instances[1].compute_instance, None);
        assert_eq!(mig.creatable_slices, 3);
    }

    #[test]
    fn what_a_gpu_instance_has_left_can_become_compute_instances() {
        let (one, two) = (compute(1, 0, 3, 1, "1c.3g.20gb"), compute(1, 1, 3, 1, "1c.3g.20gb"));
        let listed = GpuInstances { existing: vec![(1, 0, 2)], remaining: vec![4, 2, 1, 0] };
        let mig = assemble(&a100(), &[&one, &two], Some(&listed));
        assert_eq!(mig.creatable_slices, 4 + 1);
        assert_eq!(summary(&mig)[0].1, "1c.3g.20gb");
    }

    #[test]
    fn without_permission_all_that_is_unused_counts_as_creatable() {
        let one = compute(1, 0, 3, 3, "3g.20gb");
        assert_eq!(assemble(&a100(), &[&one], None).creatable_slices, 4);
        assert_eq!(assemble(&[], &[&one], None).creatable_slices, 0, "nothing known, nothing promised");
    }

    #[test]
    fn a_nameless_profile_is_told_by_its_slices_alone() {
        assert_eq!(profile_of_name("", 1), "1g");
        assert_eq!(profile_of_name("NVIDIA H100 80GB HBM3", 2), "2g");
        assert_eq!(profile_of_name("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", 1), "1g.10gb+me");
    }
}
