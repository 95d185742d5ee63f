//! This process's use of the library: the driver beside it, and the way of a call to its device.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libloading::os::unix::Library;
use warpmeter_simgpu::{FaultKind, Guard, Node, Process};

use crate::abi::{Answer, Code, INVALID_DEVICE, MIG_DEVICE_NOT_SUPPORTED, NOT_INITIALIZED, UNKNOWN, code};

static NODE: OnceLock<Option<&'static Node>> = OnceLock::new();
static READY: AtomicBool = AtomicBool::new(false);

/// `RTLD_NOLOAD | RTLD_LAZY`: only what the process has loaded already.
const ONLY_LOADED: i32 = 4 | 1;

pub(crate) fn node() -> Option<&'static Node> {
    *NODE.get_or_init(|| Node::from_env().map(|node| &*Box::leak(Box::new(node))))
}

/// `cuptiProfilerInitialize`.
pub(crate) fn initialize() -> Answer {
    ordinals()?;
    READY.store(true, Ordering::Relaxed);
    Ok(())
}

/// Refuses calls before that.
pub(crate) fn ready() -> Answer {
    if READY.load(Ordering::Relaxed) { Ok(()) } else { Err(NOT_INITIALIZED) }
}

/// The version that the library calls itself.
pub(crate) fn version() -> u32 {
    let fault = node().and_then(|node| {
        let guard = node.lock();
        guard.faulty(FaultKind::CuptiVersion, None, guard.now).map(|fault| fault.arg)
    });
    fault.and_then(|arg| u32::try_from(arg).ok()).unwrap_or(26)
}

type Ask = unsafe extern "C" fn(*mut i32) -> u32;
type AskBus = unsafe extern "C" fn(*mut u8, i32, i32) -> u32;

/// The bus ids of the devices that the driver library of this process shows, once it is initialised.
pub(crate) fn ordinals() -> Answer<Vec<String>> {
    // SAFETY: loads nothing: a library that is there already has run its initialisers.
    let cuda = unsafe { Library::open(Some("libcuda.so.1"), ONLY_LOADED) }.map_err(|_| NOT_INITIALIZED)?;
    // SAFETY: the published signature.
    let count = unsafe { cuda.get::<Ask>(b"cuDeviceGetCount\0") }.map_err(|_| NOT_INITIALIZED)?;
    // SAFETY: the published signature.
    let bus = unsafe { cuda.get::<AskBus>(b"cuDeviceGetPCIBusId\0") }.map_err(|_| NOT_INITIALIZED)?;
    let mut devices = 0;
    // SAFETY: as published; the pointer is a local's.
    if unsafe { count(&raw mut devices) } != 0 {
        return Err(NOT_INITIALIZED);
    }
    let name = |ordinal: i32| {
        let mut text = [0_u8; 32];
        // SAFETY: as published; the buffer is as long as is said.
        let status = unsafe { bus(text.as_mut_ptr(), 32, ordinal) };
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..end]).map_err(|_| UNKNOWN)?;
        if status == 0 { Ok(text.to_owned()) } else { Err(UNKNOWN) }
    };
    (0..devices).map(name).collect()
}

/// The device with this ordinal.
pub(crate) fn device(ordinal: usize) -> Answer<usize> {
    ready()?;
    let bus = ordinals()?.into_iter().nth(ordinal).ok_or(INVALID_DEVICE)?;
    let guard = node().ok_or(NOT_INITIALIZED)?.lock();
    let found = guard.device.iter().take(guard.devices as usize).position(|d| d.pci_bus.as_str() == bus);
    found.ok_or(INVALID_DEVICE)
}

/// Takes the lock for a call that reads no counter.
pub(crate) fn on_node<T>(call: impl FnOnce(&mut Guard<'_>) -> Answer<T>) -> Answer<T> {
    ready()?;
    call(&mut node().ok_or(NOT_INITIALIZED)?.lock())
}

/// Takes the lock for a call that concerns a device's monitor. Faults strike here.
pub(crate) fn on_monitor<T>(
    device: usize,
    mut call: impl FnMut(&mut Guard<'_>, Process) -> Answer<T>,
) -> Answer<T> {
    ready()?;
    let node = node().ok_or(NOT_INITIALIZED)?;
    loop {
        let mut guard = node.lock();
        let now = guard.now;
        let faulty = |kind| guard.faulty(kind, Some(device), now).copied();
        if faulty(FaultKind::CuptiCrash).is_some() {
            drop(guard);
            std::process::abort();
        }
        if faulty(FaultKind::CuptiHang).is_some() {
            drop(guard);
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        if let Some(fault) = faulty(FaultKind::CuptiError) {
            return Err(u32::try_from(fault.arg).unwrap_or(UNKNOWN));
        }
        if faulty(FaultKind::Lost).is_some() {
            return Err(UNKNOWN);
        }
        if guard.device[device].mig == 1 {
            return Err(MIG_DEVICE_NOT_SUPPORTED);
        }
        return call(&mut guard, Process::current());
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetVersion(out: *mut u32) -> Code {
    code(crate::abi::put(out, version()))
}
