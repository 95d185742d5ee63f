//! The driver itself, and what a program can ask about its devices.

use std::ffi::c_char;

use warpmeter_simgpu::Guard;
use warpmeter_simgpu::layout::NONE;

use crate::abi::{Answer, CuResult, INVALID_DEVICE, code, put};
use crate::inject;
use crate::runtime::{Visible, init, runtime};

pub(crate) extern "C" fn cu_init(_flags: u32) -> CuResult {
    code(init().inspect(|()| inject::load_once()))
}

pub(crate) extern "C" fn driver_version(out: *mut i32) -> CuResult {
    let version = runtime().map_or(12_080, |rt| rt.node.lock().cuda_version);
    code(put(out, version.cast_signed()))
}

pub(crate) extern "C" fn count(out: *mut i32) -> CuResult {
    code(runtime().and_then(|rt| put(out, i32::try_from(rt.visible.len()).unwrap_or(0))))
}

pub(crate) extern "C" fn get(out: *mut i32, ordinal: i32) -> CuResult {
    code(on(ordinal, |_guard, _seen| put(out, ordinal)))
}

fn on(ordinal: i32, call: impl FnOnce(&Guard<'_>, Visible) -> Answer) -> Answer {
    let rt = runtime()?;
    let at = usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?;
    let seen = *rt.visible.get(at).ok_or(INVALID_DEVICE)?;
    call(&rt.node.lock(), seen)
}

pub(crate) extern "C" fn name(out: *mut c_char, length: i32, ordinal: i32) -> CuResult {
    code(on(ordinal, |guard, seen| {
        let engine = &guard.engine[seen.engine];
        let mut name = guard.device[seen.device].preset().name.to_owned();
        if engine.gi != NONE {
            name.push_str(" MIG ");
            name.push_str(engine.profile.as_str());
        }
        let room = usize::try_from(length).unwrap_or(0).saturating_sub(1);
        for (at, byte) in name.bytes().take(room).chain([0]).enumerate() {
            put(out.wrapping_add(at), byte.cast_signed())?;
        }
        Ok(())
    }))
}

/// The GPU's UUID, also for a MIG device.
pub(crate) extern "C" fn uuid(out: *mut [u8; 16], ordinal: i32) -> CuResult {
    code(on(ordinal, |guard, seen| put(out, bytes(guard.device[seen.device].uuid.as_str()))))
}

/// The MIG device's UUID, if it is one.
pub(crate) extern "C" fn uuid_v2(out: *mut [u8; 16], ordinal: i32) -> CuResult {
    code(on(ordinal, |guard, seen| {
        let engine = &guard.engine[seen.engine];
        let text =
            if engine.gi == NONE { guard.device[seen.device].uuid.as_str() } else { engine.uuid.as_str() };
        put(out, bytes(text))
    }))
}

fn bytes(uuid: &str) -> [u8; 16] {
    let digits: Vec<u8> = uuid
        .split_once('-')
        .map_or("", |(_, rest)| rest)
        .chars()
        .filter_map(|c| u8::try_from(c.to_digit(16)?).ok())
        .collect();
    let mut out = [0; 16];
    for (to, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *to = pair[0] << 4 | pair[1];
    }
    out
}

pub(crate) extern "C" fn total_mem(out: *mut usize, ordinal: i32) -> CuResult {
    code(on(ordinal, |guard, seen| {
        put(out, usize::try_from(guard.engine[seen.engine].memory).unwrap_or(usize::MAX))
    }))
}

pub(crate) extern "C" fn attribute(out: *mut i32, attribute: i32, ordinal: i32) -> CuResult {
    code(on(ordinal, |guard, seen| {
        let d = &guard.device[seen.device];
        let p = d.preset();
        let value = match attribute {
            1..=3 => 1024,
            4 => 64,
            5 => i32::MAX.cast_unsigned(),
            6 | 7 => 65_535,
            8 => 49_152,
            10 => 32,
            9 | 12 | 82 => 65_536,
            13 => p.sm_clock_mhz * 1000,
            15 | 31 | 41 | 78 | 83 | 89 => 1,
            16 => guard.engine[seen.engine].sms,
            33 => d.pci[1],
            34 => d.pci[2],
            36 => p.mem_clock_mhz * 1000,
            37 => 5120,
            39 => p.warps_per_sm * 32,
            40 => 2,
            50 => d.pci[0],
            75 => p.capability.0,
            76 => p.capability.1,
            81 => 233_472,
            _ => 0,
        };
        put(out, value.cast_signed())
    }))
}

pub(crate) extern "C" fn compute_capability(major: *mut i32, minor: *mut i32, ordinal: i32) -> CuResult {
    code(on(ordinal, |guard, seen| {
        let (a, b) = guard.device[seen.device].preset().capability;
        put(major, a.cast_signed())?;
        put(minor, b.cast_signed())
    }))
}

pub(crate) extern "C" fn pci_bus_id(out: *mut c_char, length: i32, ordinal: i32) -> CuResult {
    code(on(ordinal, |guard, seen| {
        let room = usize::try_from(length).unwrap_or(0).saturating_sub(1);
        let text = guard.device[seen.device].pci_bus.as_str();
        for (at, byte) in text.bytes().take(room).chain([0]).enumerate() {
            put(out.wrapping_add(at), byte.cast_signed())?;
        }
        Ok(())
    }))
}
