//! Annotations in which schedulers that divide GPUs note what each container gets. Whoever may create a pod can write
//! them too, so they are read within bounds, and only what is certain is taken from them.
//!
//! ```text
//! HAMi, of its containers in order        hami.io/vgpu-devices-allocated: GPU-<uuid>,NVIDIA,4096,25:;
//!   UUID, type, MiB of memory, percent    (4pd.io/… before it was called HAMi)
//! gpushare, since version 2               scheduler.framework.gpushare.allocation: {"0":{"1":8}}
//!   container → minor number → units
//! gpushare before                         ALIYUN_COM_GPU_MEM_IDX: "1"  ALIYUN_COM_GPU_MEM_POD: "8"
//!   minor number, units of the pod, of    ALIYUN_COM_GPU_MEM_DEV: "22"
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use warpmeter_core::device_id;
use warpmeter_core::fact::{Allotment, DeviceRef, GrantPart, Share};
use warpmeter_core::ratio::Ppb;

/// Bytes of an annotation that is read: Kubernetes allows 256 KiB for all of a pod.
const LONGEST: usize = 1 << 16;
/// Allotments of a pod: more than 16 containers with 16 GPUs each.
const MOST: usize = 256;

const HAMI: [&str; 2] = ["hami.io/vgpu-devices-allocated", "4pd.io/vgpu-devices-allocated"];
const GPUSHARE: &str = "scheduler.framework.gpushare.allocation";
const INDEX: &str = "ALIYUN_COM_GPU_MEM_IDX";
const UNITS: &str = "ALIYUN_COM_GPU_MEM_POD";
const OF: &str = "ALIYUN_COM_GPU_MEM_DEV";

/// What the pod's containers were given, in order; nothing if no annotation says so, and none if one does not say
/// clearly what.
///
/// `containers` are those of its specification without the `init` containers, both in order. Schedulers number
/// either.
pub(super) fn read(
    annotations: &BTreeMap<String, String>,
    init: &[Arc<str>],
    containers: &[Arc<str>],
) -> Option<Vec<Allotment>> {
    let value = |key: &str| annotations.get(key).map(String::as_str).filter(|value| !value.is_empty());
    let mut found = if let Some(text) = HAMI.iter().find_map(|key| value(key)) {
        hami(bounded(text)?, init, containers)?
    } else if let Some(text) = value(GPUSHARE) {
        gpushare(bounded(text)?, containers)?
    } else if let (Some(index), Some(units)) = (value(INDEX), value(UNITS)) {
        older(index, units, value(OF), containers)?
    } else {
        return Some(Vec::new());
    };
    if found.len() > MOST {
        return None;
    }
    found.sort();
    Some(found)
}

fn bounded(text: &str) -> Option<&str> {
    if text.len() <= LONGEST { Some(text) } else { None }
}

fn hami(text: &str, init: &[Arc<str>], containers: &[Arc<str>]) -> Option<Vec<Allotment>> {
    // Each container's devices end with a semicolon.
    let parts: Vec<&str> = text.strip_suffix(';').unwrap_or(text).split(';').collect();
    let given = |part: &&str| part.contains(',');
    if !parts.iter().any(given) {
        return Some(Vec::new());
    }
    // Some versions leave out the containers before the first that has a GPU, and then it is not known whose is whose.
    let all: Vec<&Arc<str>> = if parts.len() == containers.len() {
        containers.iter().collect()
    } else if parts.len() == init.len() + containers.len() {
        init.iter().chain(containers).collect()
    } else {
        return None;
    };
    let mut found = Vec::new();
    for (part, container) in parts.iter().zip(all) {
        for device in part.split(':').filter(given) {
            if found.len() > MOST {
                return None;
            }
            found.push(hami_device(device, container)?);
        }
    }
    Some(found)
}

fn hami_device(text: &str, container: &Arc<str>) -> Option<Allotment> {
    let mut fields = text.split(',');
    let (id, _, memory, cores) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    // An instance that HAMi makes of a GPU is `GPU-<uuid>[N-M]`, which does not tell what the driver calls it.
    let (device, GrantPart::Whole) = device_id::parse(id)? else { return None };
    let memory: u64 = memory.parse().ok()?;
    let share = match cores.parse().ok()? {
        0 if memory == 0 => return None,
        // Without a limit of computing time it is shared as memory is.
        0 => Share::Memory(memory.checked_mul(1 << 20)?),
        percent => Share::Compute(Ppb::percent(percent)?),
    };
    Some(Allotment { container: Arc::clone(container), device, share })
}

fn gpushare(text: &str, containers: &[Arc<str>]) -> Option<Vec<Allotment>> {
    let given: BTreeMap<String, BTreeMap<String, u64>> = serde_json::from_str(text).ok()?;
    let mut found = Vec::new();
    for (place, devices) in given {
        let place: usize = place.parse().ok()?;
        let container = containers.get(place)?;
        for (minor, units) in devices.into_iter().filter(|(_, units)| *units > 0) {
            let device = DeviceRef::Minor(minor.parse().ok()?);
            let share = Share::Units { units, of: None };
            found.push(Allotment { container: Arc::clone(container), device, share });
        }
    }
    Some(found)
}

fn older(index: &str, units: &str, of: Option<&str>, containers: &[Arc<str>]) -> Option<Vec<Allotment>> {
    // Not placed yet.
    if index == "-1" {
        return Some(Vec::new());
    }
    // It says nothing of how several containers divide what the pod was given.
    let [container] = containers else { return None };
    let device = DeviceRef::Minor(index.parse().ok()?);
    let units: u64 = units.parse().ok()?;
    let of = of.map(str::parse).transpose().ok()?;
    if units == 0 || of.is_some_and(|of| units > of) {
        return None;
    }
    Some(vec![Allotment { container: Arc::clone(container), device, share: Share::Units { units, of } }])
}
