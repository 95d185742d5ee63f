//! Devices of resource claims (dynamic resource allocation).

use warpmeter_core::device_id;
use warpmeter_core::fact::{DeviceRef, GrantPart};

use super::wire::{Malformed, fields};

/// The DRA driver of NVIDIA's GPUs. Its sibling `compute-domain.nvidia.com` gives channels, not GPUs.
pub(super) const DRIVER: &str = "gpu.nvidia.com";
/// The vendor of that driver's devices in CDI's notation, `VENDOR/CLASS=NAME`.
const VENDOR: &str = "k8s.gpu.nvidia.com";
/// The class of devices that are prepared for one claim: their names begin with its UID.
const CLAIM: &str = "claim";
const UUID: usize = 36;

/// What a part of a claim stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimed<'a> {
    /// The devices that were granted.
    Devices,
    /// A GPU, but the name says nothing.
    Unknown(&'a [u8]),
    /// Another driver's.
    Other,
}

/// Reads a part of a claim, a `ClaimResource`, and grants its devices: by the device's name, and where that does not
/// tell, by those of its CDI devices.
pub(super) fn read(
    claim: &[u8],
    mut grant: impl FnMut((DeviceRef, GrantPart)),
) -> Result<Claimed<'_>, Malformed> {
    let (mut driver, mut name) = (&b""[..], &b""[..]);
    let mut of_vendor = false;
    for field in fields(claim) {
        match field? {
            (1, device) => of_vendor |= qualified(device)?.is_some_and(|(vendor, ..)| vendor == VENDOR),
            (2, text) => driver = text,
            (4, text) => name = text,
            _ => {}
        }
    }
    // Kubelets before 1.31 name neither driver nor device.
    let ours = if driver.is_empty() { of_vendor } else { driver == DRIVER.as_bytes() };
    if !ours {
        return Ok(Claimed::Other);
    }
    if let Some(device) = std::str::from_utf8(name).ok().and_then(device) {
        grant(device);
        return Ok(Claimed::Devices);
    }
    let mut claimed = Claimed::Unknown(name);
    for field in fields(claim) {
        let (1, cdi) = field? else { continue };
        if let Some((VENDOR, class, name)) = qualified(cdi)?
            && let Some(name) = if class == CLAIM { without_uid(name) } else { Some(name) }
            && let Some(device) = device(name)
        {
            grant(device);
            claimed = Claimed::Devices;
        }
    }
    Ok(claimed)
}

/// The device of a name as the driver announces it. It announces no UUIDs, and a claim's could pass for one.
fn device(name: &str) -> Option<(DeviceRef, GrantPart)> {
    if name.starts_with("gpu-") { device_id::parse(name) } else { None }
}

fn without_uid(name: &str) -> Option<&str> {
    name.get(UUID..)?.strip_prefix('-')
}

/// Vendor, class and name of a `CDIDevice`.
fn qualified(device: &[u8]) -> Result<Option<(&str, &str, &str)>, Malformed> {
    let mut name = &b""[..];
    for field in fields(device) {
        if let (1, text) = field? {
            name = text;
        }
    }
    let parts = || {
        let (kind, name) = std::str::from_utf8(name).ok()?.split_once('=')?;
        let (vendor, class) = kind.split_once('/')?;
        Some((vendor, class, name))
    };
    Ok(parts())
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use warpmeter_simkubelet::{CdiDevice, ClaimResource};

    use super::*;

    const CLAIM_UID: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

    fn claim(driver: &str, device: &str, cdi: &[&str]) -> ClaimResource {
        ClaimResource {
            cdi_devices: cdi.iter().map(|name| CdiDevice { name: name.as_bytes().to_vec() }).collect(),
            driver_name: driver.into(),
            pool_name: "node-1".into(),
            device_name: device.into(),
            share_id: None,
        }
    }

    /// What is made of a claim: which minor numbers are granted, and what is said.
    fn made(claim: &ClaimResource) -> (Vec<u32>, &'static str) {
        let bytes = claim.encode_to_vec();
        let mut granted = Vec::new();
        let claimed = read(&bytes, |grant| match grant {
            (DeviceRef::Minor(minor), GrantPart::Whole) => granted.push(minor),
            other => panic!("{other:?}"),
        });
        let said = match claimed.unwrap() {
            Claimed::Devices => "devices",
            Claimed::Unknown(name) => {
                assert_eq!(name, claim.device_name.as_bytes());
                "unknown"
            }
            Claimed::Other => "other",
        };
        (granted, said)
    }

    fn minor(minor: u32) -> (Vec<u32>, &'static str) {
        (vec![minor], "devices")
    }

    #[test]
    fn a_device_is_read_from_its_name_or_from_its_cdi_devices() {
        let prepared = format!("k8s.gpu.nvidia.com/claim={CLAIM_UID}-gpu-3");
        assert_eq!(made(&claim(DRIVER, "gpu-1", &[&prepared])), minor(1), "the name comes first");
        assert_eq!(made(&claim(DRIVER, "", &[&prepared])), minor(3));
        assert_eq!(made(&claim("", "", &[&prepared])), minor(3));
        assert_eq!(made(&claim(DRIVER, "", &["k8s.gpu.nvidia.com/device=gpu-2"])), minor(2));
    }

    #[test]
    fn a_name_that_says_nothing_is_unknown() {
        // A claim's own UID is not a GPU's, and an index is not a minor number.
        let claim_only = format!("k8s.gpu.nvidia.com/claim={CLAIM_UID}");
        for cdi in [&claim_only, "nvidia.com/gpu=0", "k8s.gpu.nvidia.com/claim=ü", "=", ""] {
            assert_eq!(made(&claim(DRIVER, "", &[cdi])), (vec![], "unknown"), "{cdi}");
        }
        for name in ["gpu-vfio-0", CLAIM_UID, "imex-channel-0"] {
            assert_eq!(made(&claim(DRIVER, name, &[])), (vec![], "unknown"), "{name}");
        }
    }

    #[test]
    fn other_drivers_are_ignored_by_name() {
        for driver in ["compute-domain.nvidia.com", "gpu.amd.com", "gpu.nvidia.com.example.org"] {
            assert_eq!(made(&claim(driver, "gpu-0", &[])), (vec![], "other"), "{driver}");
        }
        assert_eq!(
            made(&claim("", "", &["k8s.compute-domain.nvidia.com/claim=x-channel-0"])),
            (vec![], "other")
        );
        assert_eq!(made(&claim("", "", &[])), (vec![], "other"));
    }
}
