//! MIG: GPU instances, compute instances, and the devices that they make.

use std::ffi::{c_char, c_uint};

use warpmeter_simgpu::layout::{Engine, NONE};
use warpmeter_simgpu::preset::Slice;

use crate::abi::{
    Answer, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, VERSION_MISMATCH, chars, device_calls, get, narrow,
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t,
    nvmlComputeInstanceProfileInfo_t, nvmlComputeInstanceProfileInfo_v2_t, nvmlDevice_t,
    nvmlDeviceAttributes_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t, nvmlReturn_t, put, put_at,
};
use crate::session::{Target, View, on_device};

const MIB: u64 = 1 << 20;

device_calls! {
    nvmlDeviceGetMigMode(current: *mut c_uint, pending: *mut c_uint) |v| {
        capable(v)?;
        put(current, v.device().mig)?;
        put(pending, v.device().mig)
    };
    nvmlDeviceGetMaxMigDeviceCount(count: *mut c_uint)
        |v| { v.physical()?; put(count, if v.device().preset().mig { 7 } else { 0 }) };
    nvmlDeviceGetMigDeviceHandleByIndex(index: c_uint, mig: *mut nvmlDevice_t) |v| {
        capable(v)?;
        if index >= 7 { return Err(INVALID_ARGUMENT); }
        let part = part(v, |e| e.mig_index == index)?;
        put(mig, Target { part: Some(part), ..v.target }.handle())
    };
    nvmlDeviceIsMigDeviceHandle(mig: *mut c_uint) |v| put(mig, u32::from(v.is_mig()));
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(parent: *mut nvmlDevice_t) |v| {
        if !v.is_mig() { return Err(INVALID_ARGUMENT); }
        put(parent, Target { part: None, ..v.target }.handle())
    };
    nvmlDeviceGetGpuInstanceId(id: *mut c_uint) |v| {
        if !v.is_mig() { return Err(NOT_SUPPORTED); }
        put(id, v.engine()?.gi)
    };
    nvmlDeviceGetComputeInstanceId(id: *mut c_uint) |v| {
        if !v.is_mig() { return Err(NOT_SUPPORTED); }
        put(id, 0)
    };
    nvmlDeviceGetAttributes(attributes: *mut nvmlDeviceAttributes_t) |v| put(attributes, attributes_of(v)?);
    nvmlDeviceGetAttributes_v2(attributes: *mut nvmlDeviceAttributes_t) |v| put(attributes, attributes_of(v)?);
    nvmlDeviceGetGpuInstanceProfileInfo(profile: c_uint, info: *mut nvmlGpuInstanceProfileInfo_t) |v| {
        let p = profile_info(v, profile)?;
        put(info, nvmlGpuInstanceProfileInfo_t {
            id: p.id, isP2pSupported: 0, sliceCount: p.sliceCount, instanceCount: p.instanceCount,
            multiprocessorCount: p.multiprocessorCount, copyEngineCount: p.copyEngineCount,
            decoderCount: p.decoderCount, encoderCount: 0, jpegCount: p.jpegCount, ofaCount: p.ofaCount,
            memorySizeMB: p.memorySizeMB,
        })
    };
    nvmlDeviceGetGpuInstanceProfileInfoV(profile: c_uint, info: *mut nvmlGpuInstanceProfileInfo_v2_t) |v| {
        let version = get(info.cast::<c_uint>())?;
        if version & 0xff00_0000 != 0x0200_0000 { return Err(VERSION_MISMATCH); }
        let p = profile_info(v, profile)?;
        put(info, nvmlGpuInstanceProfileInfo_v2_t { version, ..p })
    };
    nvmlDeviceGetGpuInstanceRemainingCapacity(id: c_uint, count: *mut c_uint) |v| {
        divided(v)?;
        let slice = slice_by(v, |s| profile_number(s) == id)?;
        let engines = v.engines();
        let compute: u32 = engines.iter().map(|e| e.slices).sum();
        let memory: u32 = engines.iter().map(|e| e.memory_slices).sum();
        put(count, ((7 - compute.min(7)) / slice.compute).min((8 - memory.min(8)) / slice.memory).min(slice.max))
    };
    nvmlDeviceGetGpuInstances(id: c_uint, instances: *mut nvmlGpuInstance_t, count: *mut c_uint) |v| {
        divided(v)?;
        let slice = slice_by(v, |s| profile_number(s) == id)?;
        let first = v.device().engine as usize;
        let parts: Vec<usize> = v.engines().iter().enumerate()
            .filter(|(_, e)| e.profile_id == slice.profile_id).map(|(at, _)| first + at).collect();
        put(count, narrow(parts.len() as u64))?;
        for (at, part) in parts.into_iter().enumerate() {
            put_at(instances, at, Target { part: Some(part), ..v.target }.instance())?;
        }
        Ok(())
    };
    nvmlDeviceGetGpuInstanceById(id: c_uint, instance: *mut nvmlGpuInstance_t) |v| {
        divided(v)?;
        let part = part(v, |e| e.gi == id)?;
        put(instance, Target { part: Some(part), ..v.target }.instance())
    };
}

/// Exports functions whose first argument is a GPU or compute instance.
macro_rules! instance_calls {
    ($($name:ident: $handle:ty, ($($arg:ident: $ty:ty),*) |$view:ident| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(instance: $handle, $($arg: $ty),*) -> nvmlReturn_t {
            on_device(stringify!($name), instance, |$view| if $view.is_mig() { $body } else { Err(INVALID_ARGUMENT) })
        }
    )*};
}

instance_calls! {
    nvmlGpuInstanceGetInfo: nvmlGpuInstance_t, (info: *mut nvmlGpuInstanceInfo_t) |v| {
        let e = v.engine()?;
        let slice = slice_by(v, |s| s.profile_id == e.profile_id)?;
        put(info, nvmlGpuInstanceInfo_t {
            device: Target { part: None, ..v.target }.handle(),
            id: e.gi,
            profileId: profile_number(&slice),
            placement: nvmlGpuInstancePlacement_t { start: start(v, e), size: e.memory_slices },
        })
    };
    nvmlGpuInstanceGetComputeInstances: nvmlGpuInstance_t,
        (id: c_uint, instances: *mut nvmlComputeInstance_t, count: *mut c_uint) |v| {
        let e = v.engine()?;
        let there = e.ci == 1 && id == compute_profile(e);
        put(count, u32::from(there))?;
        if there { put(instances, v.target.instance().cast()) } else { Ok(()) }
    };
    nvmlGpuInstanceGetComputeInstanceById: nvmlGpuInstance_t, (id: c_uint, instance: *mut nvmlComputeInstance_t) |v| {
        if v.engine()?.ci == 0 || id != 0 { return Err(NOT_FOUND); }
        put(instance, v.target.instance().cast())
    };
    nvmlGpuInstanceGetComputeInstanceProfileInfo: nvmlGpuInstance_t,
        (profile: c_uint, _engine: c_uint, info: *mut nvmlComputeInstanceProfileInfo_t) |v| {
        let e = whole_instance(v, profile)?;
        put(info, nvmlComputeInstanceProfileInfo_t {
            id: compute_profile(e), sliceCount: e.slices, instanceCount: 1, multiprocessorCount: e.sms,
            sharedCopyEngineCount: e.slices, sharedDecoderCount: e.slices, sharedEncoderCount: 0,
            sharedJpegCount: 0, sharedOfaCount: 0,
        })
    };
    nvmlGpuInstanceGetComputeInstanceProfileInfoV: nvmlGpuInstance_t,
        (profile: c_uint, _engine: c_uint, info: *mut nvmlComputeInstanceProfileInfo_v2_t) |v| {
        let version = get(info.cast::<c_uint>())?;
        if version & 0xff00_0000 != 0x0200_0000 { return Err(VERSION_MISMATCH); }
        let e = whole_instance(v, profile)?;
        put(info, nvmlComputeInstanceProfileInfo_v2_t {
            version, id: compute_profile(e), sliceCount: e.slices, instanceCount: 1, multiprocessorCount: e.sms,
            sharedCopyEngineCount: e.slices, sharedDecoderCount: e.slices, sharedEncoderCount: 0,
            sharedJpegCount: 0, sharedOfaCount: 0, name: name(e),
        })
    };
    nvmlGpuInstanceGetComputeInstanceRemainingCapacity: nvmlGpuInstance_t, (id: c_uint, count: *mut c_uint) |v| {
        let e = v.engine()?;
        put(count, u32::from(e.ci == 0 && id == compute_profile(e)))
    };
    nvmlComputeInstanceGetInfo: nvmlComputeInstance_t, (info: *mut nvmlComputeInstanceInfo_t) |v| compute_info(v, info);
    nvmlComputeInstanceGetInfo_v2: nvmlComputeInstance_t, (info: *mut nvmlComputeInstanceInfo_t) |v| compute_info(v, info);
}

fn compute_info(v: &View<'_>, info: *mut nvmlComputeInstanceInfo_t) -> Answer {
    let e = v.engine()?;
    put(
        info,
        nvmlComputeInstanceInfo_t {
            device: Target { part: None, ..v.target }.handle(),
            gpuInstance: v.target.instance(),
            id: 0,
            profileId: compute_profile(e),
            placement: nvmlComputeInstancePlacement_t { start: 0, size: e.slices },
        },
    )
}

fn capable(v: &View<'_>) -> Answer {
    v.physical()?;
    if v.device().preset().mig { Ok(()) } else { Err(NOT_SUPPORTED) }
}

fn divided(v: &View<'_>) -> Answer {
    capable(v)?;
    if v.device().mig == 1 { Ok(()) } else { Err(NOT_SUPPORTED) }
}

/// The engine of a device that fits.
fn part(v: &View<'_>, fits: impl Fn(&Engine) -> bool) -> Result<usize, nvmlReturn_t> {
    let at = v.engines().iter().position(|e| e.gi != NONE && fits(e)).ok_or(NOT_FOUND)?;
    Ok(v.device().engine as usize + at)
}

fn slice_by(v: &View<'_>, fits: impl Fn(&Slice) -> bool) -> Result<Slice, nvmlReturn_t> {
    v.device().preset().slices.iter().copied().find(|s| fits(s)).ok_or(INVALID_ARGUMENT)
}

/// The id that the driver gives to a profile, as `nvidia-smi mig -lgip` shows it.
const fn profile_number(slice: &Slice) -> u32 {
    match slice.compute {
        1 => 19,
        2 => 14,
        3 => 9,
        4 => 5,
        _ => 0,
    }
}

/// The profile of the compute instance that fills a GPU instance.
const fn compute_profile(e: &Engine) -> u32 {
    match e.slices {
        7 => 4,
        n => n - 1,
    }
}

/// Where an instance starts: instances lie one after the other, in the scenario's order.
fn start(v: &View<'_>, e: &Engine) -> u32 {
    let first = v.device().engine as usize;
    let all = v.shared().engine.get(first..first + v.device().engines as usize).unwrap_or_default();
    all.iter().take_while(|o| o.gi != e.gi).map(|o| o.memory_slices).sum()
}

fn whole_instance<'a>(v: &'a View<'_>, profile: u32) -> Result<&'a Engine, nvmlReturn_t> {
    let e = v.engine()?;
    if profile == compute_profile(e) { Ok(e) } else { Err(NOT_SUPPORTED) }
}

fn name(e: &Engine) -> [c_char; 96] {
    chars(&format!("MIG {}", e.profile.as_str()))
}

fn profile_info(v: &View<'_>, profile: u32) -> Result<nvmlGpuInstanceProfileInfo_v2_t, nvmlReturn_t> {
    capable(v)?;
    let slice = match profile {
        0..=4 => slice_by(v, |s| s.profile_id == profile)?,
        5..=15 => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_ARGUMENT),
    };
    let preset = v.device().preset();
    Ok(nvmlGpuInstanceProfileInfo_v2_t {
        version: 0,
        id: profile_number(&slice),
        isP2pSupported: 0,
        sliceCount: slice.compute,
        instanceCount: slice.max,
        multiprocessorCount: slice.sms,
        copyEngineCount: slice.compute,
        decoderCount: slice.compute,
        encoderCount: 0,
        jpegCount: slice.compute,
        ofaCount: 0,
        memorySizeMB: preset.slice_mib(&slice, v.device().memory / MIB),
        name: chars(&format!("MIG {}", preset.profile(&slice))),
    })
}

fn attributes_of(v: &View<'_>) -> Result<nvmlDeviceAttributes_t, nvmlReturn_t> {
    if !v.is_mig() {
        return Err(NOT_SUPPORTED);
    }
    let e = v.engine()?;
    Ok(nvmlDeviceAttributes_t {
        multiprocessorCount: e.sms,
        sharedCopyEngineCount: e.slices,
        sharedDecoderCount: e.slices,
        sharedEncoderCount: 0,
        sharedJpegCount: e.slices,
        sharedOfaCount: 0,
        gpuInstanceSliceCount: e.slices,
        computeInstanceSliceCount: e.slices,
        memorySizeMB: e.memory / MIB,
    })
}
