//! Events: XIDs, as they happen.

use std::ffi::{c_uint, c_ulonglong};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warpmeter_simgpu::FaultKind;
use warpmeter_simgpu::clock::{MILLI, mono};

use crate::abi::{
    Answer, GPU_IS_LOST, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, TIMEOUT, code, device_calls, nvmlDevice_t,
    nvmlEventData_t, nvmlEventSet_t, nvmlReturn_t, put,
};
use crate::session::{Target, node, on_node};

/// Types that can be registered: ECC errors, performance state, XID, clocks.
const SUPPORTED: u64 = 0x1f;
const XID: u64 = 8;

/// What one event set watches.
struct Set {
    watched: Vec<(usize, u64)>,
    /// Events are delivered in order of time; those up to here have been.
    delivered: Vec<(u64, u64, u64)>,
}

static SETS: Mutex<Vec<Option<Set>>> = Mutex::new(Vec::new());

fn with_set<T>(handle: nvmlEventSet_t, call: impl FnOnce(&mut Set) -> T) -> Result<T, nvmlReturn_t> {
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = (handle.addr() >> 4).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
    sets.get_mut(at).and_then(Option::as_mut).map(call).ok_or(INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    on_node("nvmlEventSetCreate", |_guard| {
        let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
        sets.push(Some(Set { watched: Vec::new(), delivered: Vec::new() }));
        put(set, std::ptr::without_provenance_mut(sets.len() << 4))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    let slot = (set.addr() >> 4).checked_sub(1).and_then(|at| sets.get_mut(at));
    match slot.and_then(Option::take) {
        Some(_) => SUCCESS,
        None => INVALID_ARGUMENT,
    }
}

device_calls! {
    nvmlDeviceGetSupportedEventTypes(types: *mut c_ulonglong) |v| {
        v.physical()?;
        put(types, SUPPORTED)
    };
    nvmlDeviceRegisterEvents(types: c_ulonglong, set: nvmlEventSet_t) |v| {
        v.physical()?;
        if types & !SUPPORTED != 0 { return Err(NOT_SUPPORTED); }
        let (device, now) = (v.target.device, v.now);
        with_set(set, |set| {
            set.watched.retain(|w| w.0 != device);
            if types & XID != 0 { set.watched.push((device, now)); }
        })
    };
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    ms: c_uint,
) -> nvmlReturn_t {
    code(wait(set, data, ms))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    ms: c_uint,
) -> nvmlReturn_t {
    code(wait(set, data, ms))
}

fn wait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, ms: c_uint) -> Answer {
    let deadline = mono() + u64::from(ms) * MILLI;
    loop {
        if let Some((device, xid)) = next(set)? {
            return put(
                data,
                nvmlEventData_t {
                    device: Target { device, part: None }.handle(),
                    eventType: XID,
                    eventData: xid,
                    gpuInstanceId: u32::MAX,
                    computeInstanceId: u32::MAX,
                },
            );
        }
        let now = mono();
        if now >= deadline {
            return Err(TIMEOUT);
        }
        std::thread::sleep(Duration::from_nanos((deadline - now).min(10 * MILLI)));
    }
}

/// The next event not yet delivered. A lost device among the watched ends the waiting, after its events.
fn next(handle: nvmlEventSet_t) -> Result<Option<(usize, u64)>, nvmlReturn_t> {
    let guard = node()?.lock();
    let now = guard.now;
    with_set(handle, |set| {
        for (device, since) in set.watched.clone() {
            for fault in guard.listed_faults() {
                let here = fault.gpu == u32::MAX || fault.gpu as usize == device;
                if fault.kind != FaultKind::Xid.code() || !here || fault.from < since {
                    continue;
                }
                let happened =
                    now.checked_sub(fault.from).map_or(0, |age| (age / MILLI + 1).min(fault.count));
                let key = (device as u64, fault.from, fault.arg);
                let seen = set.delivered.iter().filter(|d| **d == key).count() as u64;
                if seen < happened {
                    set.delivered.push(key);
                    return Ok(Some((device, fault.arg)));
                }
            }
        }
        let lost = set.watched.iter().any(|w| guard.faulty(FaultKind::Lost, Some(w.0), now).is_some());
        if lost { Err(GPU_IS_LOST) } else { Ok(None) }
    })?
}
