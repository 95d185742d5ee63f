//! The library itself, the driver, and the finding of devices.

use std::ffi::{c_char, c_int, c_uint};

use warpmeter_simgpu::FaultKind;
use warpmeter_simgpu::layout::NONE;

use crate::abi::{
    Answer, GPU_IS_LOST, INVALID_ARGUMENT, NOT_FOUND, nvmlDevice_t, nvmlReturn_t, put, put_text, text,
};
use crate::session::{Target, init, on_node, shutdown};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> nvmlReturn_t {
    init("nvmlInit")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    init("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    shutdown()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text = match result {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

macro_rules! node_calls {
    ($($name:ident($($arg:ident: $ty:ty),*) |$guard:ident| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $ty),*) -> nvmlReturn_t {
            on_node(stringify!($name), |$guard| $body)
        }
    )*};
}

node_calls! {
    nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint)
        |guard| put_text(version, length, guard.driver_version.as_str());
    nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint)
        |guard| put_text(version, length, &format!("12.{}", guard.driver_version.as_str()));
    nvmlSystemGetCudaDriverVersion(version: *mut c_int)
        |guard| put(version, guard.cuda_version.cast_signed());
    nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int)
        |guard| put(version, guard.cuda_version.cast_signed());
    nvmlDeviceGetCount(count: *mut c_uint) |guard| put(count, guard.devices);
    nvmlDeviceGetCount_v2(count: *mut c_uint) |guard| put(count, guard.devices);
    nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t) |guard| by_index(guard, index, device);
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) |guard| by_index(guard, index, device);
    nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t)
        |guard| by_uuid(guard, text(uuid)?, device);
    nvmlDeviceGetHandleByPciBusId(bus: *const c_char, device: *mut nvmlDevice_t)
        |guard| by_pci(guard, text(bus)?, device);
    nvmlDeviceGetHandleByPciBusId_v2(bus: *const c_char, device: *mut nvmlDevice_t)
        |guard| by_pci(guard, text(bus)?, device);
    nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) |_guard| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| NOT_FOUND)?;
        let first = line.split(|&b| b == 0).next().unwrap_or_default();
        put_text(name, length, &String::from_utf8_lossy(first))
    };
}

type Guard<'a> = warpmeter_simgpu::Guard<'a>;

fn found(guard: &Guard<'_>, device: usize, part: Option<usize>, out: *mut nvmlDevice_t) -> Answer {
    if guard.faulty(FaultKind::Lost, Some(device), guard.now).is_some() {
        return Err(GPU_IS_LOST);
    }
    put(out, Target { device, part }.handle())
}

fn by_index(guard: &Guard<'_>, index: c_uint, out: *mut nvmlDevice_t) -> Answer {
    if index >= guard.devices {
        return Err(INVALID_ARGUMENT);
    }
    found(guard, index as usize, None, out)
}

fn by_uuid(guard: &Guard<'_>, uuid: &str, out: *mut nvmlDevice_t) -> Answer {
    let devices = guard.device.iter().take(guard.devices as usize);
    if let Some(at) = devices.into_iter().position(|d| d.uuid == *uuid) {
        return found(guard, at, None, out);
    }
    let engines = guard.engine.iter().take(guard.engines as usize);
    let at = engines.into_iter().position(|e| e.mig_index != NONE && e.uuid == *uuid).ok_or(NOT_FOUND)?;
    found(guard, guard.engine[at].device as usize, Some(at), out)
}

fn by_pci(guard: &Guard<'_>, bus: &str, out: *mut nvmlDevice_t) -> Answer {
    let tail = |text: &str| {
        let mut parts = text.rsplitn(3, ':').map(str::to_ascii_lowercase);
        (parts.next(), parts.next())
    };
    let wanted = tail(bus);
    let devices = guard.device.iter().take(guard.devices as usize);
    let at = devices.into_iter().position(|d| tail(d.pci_bus.as_str()) == wanted).ok_or(NOT_FOUND)?;
    found(guard, at, None, out)
}
