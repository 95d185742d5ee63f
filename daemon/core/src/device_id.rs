//! Device ids as allocators write them, told apart by their form alone.

use crate::fact::{DeviceRef, GrantPart};
use crate::identity::{GpuId, MigId};
use crate::inventory::Placement;

/// Longest id that is looked at; the longest real form has 56 characters.
const LONGEST: usize = 128;

/// Parses a device id of any known form into the device and how much of it the id stands for.
///
/// Forms: `GPU-<uuid>` and `MIG-<uuid>`, both also with `::N` (replica N) behind; `MIG-GPU-<uuid>/GI/CI` (drivers
/// before R470); a bare `<uuid>`; `GPU-<uuid>-N` (a slot N of HAMi); `nvidiaN` with `/giN`, `/vgpuN` or both (GKE,
/// N being the minor number); `gpu-N` and `gpu-N-mig-PROFILE-ID-START` (DRA: minor number, profile id, first memory
/// slice); `<uuid>-_-N` (Aliyun: a unit N of memory). Anything else is none.
pub fn parse(id: &str) -> Option<(DeviceRef, GrantPart)> {
    if id.len() > LONGEST {
        return None;
    }
    if let Some((base, replica)) = id.split_once("::") {
        let replica = if replica.is_empty() { None } else { Some(number(replica)?) };
        let (device, part) = base_form(base)?;
        return match (part, replica) {
            (GrantPart::Whole, Some(replica)) => Some((device, GrantPart::Replica(replica))),
            (part, None) => Some((device, part)),
            _ => None,
        };
    }
    base_form(id)
}

fn base_form(id: &str) -> Option<(DeviceRef, GrantPart)> {
    if let Some(rest) = id.strip_prefix("MIG-GPU-") {
        let mut fields = rest.split('/');
        let gpu = GpuId::new(format!("GPU-{}", uuid(fields.next()?)?));
        let gpu_instance = number(fields.next()?)?;
        let compute_instance = number(fields.next()?)?;
        let device = DeviceRef::GpuInstance { gpu, gpu_instance, compute_instance };
        return fields.next().is_none().then_some((device, GrantPart::Whole));
    }
    if let Some(rest) = id.strip_prefix("MIG-") {
        return uuid(rest).map(|_| (DeviceRef::Mig(MigId::new(id)), GrantPart::Whole));
    }
    if let Some(rest) = id.strip_prefix("GPU-") {
        if let Some((device, unit)) = rest.split_once("-_-") {
            let gpu = GpuId::new(format!("GPU-{}", uuid(device)?));
            return Some((DeviceRef::Gpu(gpu), GrantPart::Replica(number(unit)?)));
        }
        if uuid(rest).is_some() {
            return Some((DeviceRef::Gpu(GpuId::new(id)), GrantPart::Whole));
        }
        // A slot's number follows the 36 characters of the UUID: only its length tells it from the UUID's own parts.
        let slot = number(rest.get(36..)?.strip_prefix('-')?)?;
        let gpu = GpuId::new(format!("GPU-{}", uuid(&rest[..36])?));
        return Some((DeviceRef::Gpu(gpu), GrantPart::Replica(slot)));
    }
    if let Some(rest) = id.strip_prefix("nvidia") {
        return gke(rest);
    }
    if let Some(rest) = id.strip_prefix("gpu-") {
        return Some((dra(rest)?, GrantPart::Whole));
    }
    if let Some((device, unit)) = id.split_once("-_-") {
        let gpu = GpuId::new(format!("GPU-{}", uuid(device)?));
        return Some((DeviceRef::Gpu(gpu), GrantPart::Replica(number(unit)?)));
    }
    uuid(id).map(|uuid| (DeviceRef::Gpu(GpuId::new(format!("GPU-{uuid}"))), GrantPart::Whole))
}

/// What follows `gpu-` in a name of the DRA driver: `N`, or `N-mig-PROFILE-ID-START`, whose profile can hold
/// hyphens (`1g5gb-me`). Before drivers named the profile they wrote `N-mig-ID-START-SIZE`, all of it digits.
fn dra(rest: &str) -> Option<DeviceRef> {
    let Some((minor, instance)) = rest.split_once("-mig-") else {
        return Some(DeviceRef::Minor(number(rest)?));
    };
    let minor = number(minor)?;
    let fields: Vec<&str> = instance.split('-').collect();
    let (profile, start) = match fields[..] {
        [id, start, size] if number(id).is_some() && number(size).is_some() => (id, start),
        [_, .., id, start] if !fields[0].is_empty() => (id, start),
        _ => return None,
    };
    let placement = Placement { profile: number(profile)?, start: number(start)? };
    Some(DeviceRef::MinorPlacement { minor, placement })
}

fn gke(rest: &str) -> Option<(DeviceRef, GrantPart)> {
    let mut fields = rest.split('/');
    let minor = number(fields.next()?)?;
    let mut device = DeviceRef::Minor(minor);
    let mut part = GrantPart::Whole;
    for field in fields {
        match (field.strip_prefix("gi"), field.strip_prefix("vgpu")) {
            (Some(gi), None) if part == GrantPart::Whole && device == DeviceRef::Minor(minor) => {
                device = DeviceRef::MinorInstance { minor, gpu_instance: number(gi)? };
            }
            (None, Some(replica)) if part == GrantPart::Whole => part = GrantPart::Replica(number(replica)?),
            _ => return None,
        }
    }
    Some((device, part))
}

/// `text`, if it is a UUID of 36 characters.
fn uuid(text: &str) -> Option<&str> {
    let hyphen = |position: usize| matches!(position, 8 | 13 | 18 | 23);
    let fits = |(position, byte): (usize, u8)| {
        if hyphen(position) { byte == b'-' } else { byte.is_ascii_hexdigit() }
    };
    (text.len() == 36 && text.bytes().enumerate().all(fits)).then_some(text)
}

/// A number of decimal digits only: no sign, which `parse` would take.
fn number(text: &str) -> Option<u32> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "5a5a7118-e550-79a1-597e-7631e126c57a";

    fn gpu() -> DeviceRef {
        DeviceRef::Gpu(GpuId::new(format!("GPU-{UUID}")))
    }

    fn mig() -> DeviceRef {
        DeviceRef::Mig(MigId::new(format!("MIG-{UUID}")))
    }

    #[test]
    fn every_known_form_is_told_apart() {
        let whole = GrantPart::Whole;
        let replica = GrantPart::Replica;
        let slices = DeviceRef::GpuInstance {
            gpu: GpuId::new(format!("GPU-{UUID}")),
            gpu_instance: 12,
            compute_instance: 0,
        };
        let instance = DeviceRef::MinorInstance { minor: 0, gpu_instance: 3 };
        let placed = DeviceRef::MinorPlacement { minor: 1, placement: Placement { profile: 14, start: 0 } };
        for (id, device, part) in [
            (format!("GPU-{UUID}"), gpu(), whole),
            (format!("GPU-{UUID}::3"), gpu(), replica(3)),
            (format!("MIG-{UUID}"), mig(), whole),
            (format!("MIG-{UUID}::7"), mig(), replica(7)),
            (format!("MIG-GPU-{UUID}/12/0"), slices, whole),
            ("nvidia0".into(), DeviceRef::Minor(0), whole),
            ("nvidia0/vgpu1".into(), DeviceRef::Minor(0), replica(1)),
            ("nvidia0/gi3".into(), instance.clone(), whole),
            ("nvidia0/gi3/vgpu0".into(), instance, replica(0)),
            (UUID.into(), gpu(), whole),
            (format!("{UUID}::2"), gpu(), replica(2)),
            (format!("{UUID}::"), gpu(), whole),
            ("gpu-1".into(), DeviceRef::Minor(1), whole),
            (format!("GPU-{UUID}-3"), gpu(), replica(3)),
            (format!("GPU-{UUID}-_-7"), gpu(), replica(7)),
            (format!("{UUID}-_-7"), gpu(), replica(7)),
            ("gpu-1-mig-1g6gb-14-0".into(), placed.clone(), whole),
            ("gpu-1-mig-1g5gb-me-14-0".into(), placed.clone(), whole),
            ("gpu-1-mig-14-0-1".into(), placed, whole),
        ] {
            assert_eq!(parse(&id), Some((device, part)), "{id}");
        }
    }

    #[test]
    fn other_forms_are_none() {
        for id in [
            String::new(),
            "::".into(),
            "::3".into(),
            "tegra".into(),
            "GPU-x::abc".into(),
            format!("GPU-{UUID}::abc"),
            format!("GPU-{UUID}::+1"),
            format!("GPU-{UUID}-"),
            format!("GPU-{UUID}-3::1"),
            format!("MIG-GPU-{UUID}/12"),
            format!("MIG-GPU-{UUID}/12/0/0"),
            "nvidia".into(),
            "nvidia0/gi".into(),
            "nvidia0/gi1/gi1".into(),
            "nvidia99999999999".into(),
            "gpu-vfio-0".into(),
            "gpu-1-mig-1g6gb-14".into(),
            "gpu-1-mig--14-0".into(),
            format!("{UUID}-_-"),
            "0000:17:00.0".into(),
            "x".repeat(4096),
            format!("GPU-{}ü", &UUID[..35]),
        ] {
            assert_eq!(parse(&id), None, "{id}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(id in ".{0,80}", tail in "(::|-|/gi|/vgpu)?[0-9a-f/:-]{0,8}") {
            prop_assert!(parse(&id).is_none_or(|_| id.len() <= LONGEST));
            for id in [format!("GPU-{UUID}{tail}{id}"), format!("nvidia{tail}{id}")] {
                prop_assert!(parse(&id).is_none_or(|_| id.is_ascii()));
            }
        }
    }
}
