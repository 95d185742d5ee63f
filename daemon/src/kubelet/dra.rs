//! Devices of resource claims (dynamic resource allocation).

use warpmeter_core::device_id;
use warpmeter_core::fact::{DeviceRef, GrantPart};

use super::proto::ClaimResource;

/// The DRA driver of NVIDIA's GPUs. Its sibling `compute-domain.nvidia.com` gives channels, not GPUs.
const DRIVER: &str = "gpu.nvidia.com";
/// The vendor of that driver's devices in CDI's notation, `VENDOR/CLASS=NAME`.
const VENDOR: &str = "k8s.gpu.nvidia.com";
/// The class of devices that are prepared for one claim: their names begin with its UID.
const CLAIM: &str = "claim";
const UUID: usize = 36;

/// What a part of a claim stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claimed {
    /// These devices.
    Devices(Vec<(DeviceRef, GrantPart)>),
    /// A GPU, but the name says nothing.
    Unknown,
    /// Another driver's.
    Other,
}

/// Reads a part of a claim: by the device's name, and where that does not tell, by those of its CDI devices.
pub(super) fn read(claim: &ClaimResource) -> Claimed {
    let cdi: Vec<(&str, &str, &str)> =
        claim.cdi_devices.iter().filter_map(|device| qualified(&device.name)).collect();
    // Kubelets before 1.31 name neither driver nor device.
    let ours = match claim.driver_name.as_str() {
        "" => cdi.iter().any(|(vendor, ..)| *vendor == VENDOR),
        driver => driver == DRIVER,
    };
    if !ours {
        return Claimed::Other;
    }
    if let Some(device) = device(&claim.device_name) {
        return Claimed::Devices(vec![device]);
    }
    let devices = cdi.iter().filter_map(|(vendor, class, name)| {
        let name = if *class == CLAIM { name.get(UUID..)?.strip_prefix('-')? } else { name };
        (*vendor == VENDOR).then(|| device(name))?
    });
    let devices: Vec<_> = devices.collect();
    if devices.is_empty() { Claimed::Unknown } else { Claimed::Devices(devices) }
}

/// The device of a name as the driver announces it. It announces no UUIDs, and a claim's could pass for one.
fn device(name: &str) -> Option<(DeviceRef, GrantPart)> {
    if name.starts_with("gpu-") { device_id::parse(name) } else { None }
}

fn qualified(name: &[u8]) -> Option<(&str, &str, &str)> {
    let (kind, name) = std::str::from_utf8(name).ok()?.split_once('=')?;
    let (vendor, class) = kind.split_once('/')?;
    Some((vendor, class, name))
}

#[cfg(test)]
mod tests {
    use super::super::proto::CdiDevice;
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

    fn minor(minor: u32) -> Claimed {
        Claimed::Devices(vec![(DeviceRef::Minor(minor), GrantPart::Whole)])
    }

    #[test]
    fn a_device_is_read_from_its_name_or_from_its_cdi_devices() {
        let prepared = format!("k8s.gpu.nvidia.com/claim={CLAIM_UID}-gpu-3");
        assert_eq!(read(&claim(DRIVER, "gpu-1", &[&prepared])), minor(1), "the name comes first");
        assert_eq!(read(&claim(DRIVER, "", &[&prepared])), minor(3));
        assert_eq!(read(&claim("", "", &[&prepared])), minor(3));
        assert_eq!(read(&claim(DRIVER, "", &["k8s.gpu.nvidia.com/device=gpu-2"])), minor(2));
    }

    #[test]
    fn a_name_that_says_nothing_is_unknown() {
        // A claim's own UID is not a GPU's, and an index is not a minor number.
        let claim_only = format!("k8s.gpu.nvidia.com/claim={CLAIM_UID}");
        for cdi in [&claim_only, "nvidia.com/gpu=0", "k8s.gpu.nvidia.com/claim=ü", "=", ""] {
            assert_eq!(read(&claim(DRIVER, "", &[cdi])), Claimed::Unknown, "{cdi}");
        }
        for name in ["gpu-vfio-0", CLAIM_UID, "imex-channel-0"] {
            assert_eq!(read(&claim(DRIVER, name, &[])), Claimed::Unknown, "{name}");
        }
    }

    #[test]
    fn other_drivers_are_ignored_by_name() {
        for driver in ["compute-domain.nvidia.com", "gpu.amd.com", "gpu.nvidia.com.example.org"] {
            assert_eq!(read(&claim(driver, "gpu-0", &[])), Claimed::Other, "{driver}");
        }
        assert_eq!(
            read(&claim("", "", &["k8s.compute-domain.nvidia.com/claim=x-channel-0"])),
            Claimed::Other
        );
        assert_eq!(read(&claim("", "", &[])), Claimed::Other);
    }
}
