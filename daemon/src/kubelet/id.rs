//! Device ids as device plugins write them.

use warpmeter_core::device_id;
use warpmeter_core::fact::{DeviceRef, GrantPart};

/// Parts the number of a unit from the id of its GPU, in the notation of Aliyun's gpushare.
const UNIT: &str = "-_-";

/// What an id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Id {
    /// A device, or a part of one.
    Device(DeviceRef, GrantPart),
    /// A unit of memory. Which GPU's it is on paper says nothing if there are several: the plugin counts the units
    /// that a pod was given and takes them where the scheduler's annotation says.
    Unit(DeviceRef, u32),
    /// A slot of HAMi on a GPU, whose plugin gives the GPU that the scheduler's annotation says.
    Slot(DeviceRef, u32),
    /// No known form.
    Unknown,
}

/// Reads an id, which need not be text.
pub(super) fn read(id: &[u8]) -> Id {
    let Ok(id) = std::str::from_utf8(id) else { return Id::Unknown };
    match device_id::parse(id) {
        Some((device, GrantPart::Replica(unit))) if id.contains(UNIT) => Id::Unit(device, unit),
        Some((device, GrantPart::Replica(slot))) if is_slot(id) => Id::Slot(device, slot),
        Some((device, part)) => Id::Device(device, part),
        None => Id::Unknown,
    }
}

/// Whether an id of a replica is `GPU-<uuid>-N`: all others have a colon or a slash.
fn is_slot(id: &str) -> bool {
    id.starts_with("GPU-") && !id.contains([':', '/'])
}

#[cfg(test)]
mod tests {
    use warpmeter_core::identity::GpuId;

    use super::*;

    const UUID: &str = "5a5a7118-e550-79a1-597e-7631e126c57a";

    #[test]
    fn a_unit_of_memory_a_slot_and_a_replica_are_told_apart() {
        let gpu = DeviceRef::Gpu(GpuId::new(format!("GPU-{UUID}")));
        for id in [format!("GPU-{UUID}-_-15"), format!("{UUID}-_-15")] {
            assert_eq!(read(id.as_bytes()), Id::Unit(gpu.clone(), 15), "{id}");
        }
        assert_eq!(read(format!("GPU-{UUID}-3").as_bytes()), Id::Slot(gpu.clone(), 3));
        let replica = read(format!("GPU-{UUID}::3").as_bytes());
        assert_eq!(replica, Id::Device(gpu.clone(), GrantPart::Replica(3)));
        let whole = read(format!("GPU-{UUID}").as_bytes());
        assert_eq!(whole, Id::Device(gpu, GrantPart::Whole));
    }

    #[test]
    fn what_is_no_id_is_unknown() {
        let long = vec![b'x'; 4096];
        let not_text = [&b"GPU-\xff\xfe"[..], UUID.as_bytes()].concat();
        let odd = [
            format!("GPU-{UUID}-_-"),
            format!("GPU-{UUID}-_-+1"),
            format!("GPU-{UUID}::1-_-1"),
            "-_-".into(),
        ];
        for id in odd.iter().map(String::as_bytes).chain([&long[..], &not_text, b"", b"tegra"]) {
            assert_eq!(read(id), Id::Unknown, "{:?}", String::from_utf8_lossy(id));
        }
    }
}
