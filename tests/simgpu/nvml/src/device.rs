//! What a device is: identity, capacity, links, modes.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

use warpmeter_simgpu::FaultKind;

use crate::abi::{
    Answer, BLANK_64, INVALID_ARGUMENT, NOT_SUPPORTED, VERSION_MISMATCH, chars, device_calls, get, narrow,
    nvmlBAR1Memory_t, nvmlBrandType_t, nvmlComputeMode_t, nvmlDevice_t, nvmlDeviceArchitecture_t,
    nvmlEnableState_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlReturn_t,
    nvmlRowRemapperHistogramValues_t, put, put_text,
};
use crate::session::View;

const MIB: u64 = 1 << 20;

device_calls! {
    nvmlDeviceGetName(name: *mut c_char, length: c_uint) |v| {
        let model = v.device().preset().name;
        if v.is_mig() {
            put_text(name, length, &format!("{model} MIG {}", v.engine()?.profile.as_str()))
        } else {
            put_text(name, length, model)
        }
    };
    nvmlDeviceGetUUID(uuid: *mut c_char, length: c_uint) |v| {
        let text = if v.is_mig() { v.engine()?.uuid.as_str() } else { v.device().uuid.as_str() };
        put_text(uuid, length, text)
    };
    nvmlDeviceGetIndex(index: *mut c_uint) |v| {
        let at = if v.is_mig() { v.engine()?.mig_index } else { narrow(v.target.device as u64) };
        put(index, at)
    };
    nvmlDeviceGetMinorNumber(minor: *mut c_uint) |v| { v.physical()?; put(minor, v.device().minor) };
    nvmlDeviceGetModuleId(id: *mut c_uint) |v| { v.physical()?; put(id, narrow(v.target.device as u64) + 1) };
    nvmlDeviceGetBrand(brand: *mut nvmlBrandType_t) |v| put(brand, v.device().preset().brand);
    nvmlDeviceGetArchitecture(architecture: *mut nvmlDeviceArchitecture_t)
        |v| put(architecture, v.device().preset().architecture);
    nvmlDeviceGetCudaComputeCapability(major: *mut c_int, minor: *mut c_int) |v| {
        let (a, b) = v.device().preset().capability;
        put(major, a.cast_signed())?;
        put(minor, b.cast_signed())
    };
    nvmlDeviceGetNumGpuCores(cores: *mut c_uint) |v| {
        v.physical()?;
        put(cores, v.device().sms * if v.device().preset().capability >= (8, 6) { 128 } else { 64 })
    };
    nvmlDeviceGetMemoryBusWidth(width: *mut c_uint) |v| {
        v.physical()?;
        put(width, v.device().preset().memory_bits)
    };
    nvmlDeviceGetPciInfo(pci: *mut nvmlPciInfo_t) |v| pci_info(v, pci);
    nvmlDeviceGetPciInfo_v2(pci: *mut nvmlPciInfo_t) |v| pci_info(v, pci);
    nvmlDeviceGetPciInfo_v3(pci: *mut nvmlPciInfo_t) |v| pci_info(v, pci);
    nvmlDeviceGetMemoryInfo(memory: *mut nvmlMemory_t) |v| {
        let m = Memory::of(v);
        put(memory, nvmlMemory_t { total: m.total, free: m.free, used: m.total - m.free })
    };
    nvmlDeviceGetMemoryInfo_v2(memory: *mut nvmlMemory_v2_t) |v| {
        let version = get(memory.cast::<c_uint>())?;
        if version != 0x0200_0000 | narrow(size_of::<nvmlMemory_v2_t>() as u64) {
            return Err(VERSION_MISMATCH);
        }
        let m = Memory::of(v);
        put(memory, nvmlMemory_v2_t { version, total: m.total, reserved: m.reserved, free: m.free, used: m.used })
    };
    nvmlDeviceGetBAR1MemoryInfo(memory: *mut nvmlBAR1Memory_t) |v| {
        let whole: u64 = v.engines().iter().map(|e| e.memory).sum();
        let bar1Total = whole.max(MIB).next_power_of_two();
        put(memory, nvmlBAR1Memory_t { bar1Total, bar1Free: bar1Total - 2 * MIB, bar1Used: 2 * MIB })
    };
    nvmlDeviceGetCurrPcieLinkGeneration(generation: *mut c_uint)
        |v| { v.physical()?; put(generation, v.device().preset().pcie_gen) };
    nvmlDeviceGetMaxPcieLinkGeneration(generation: *mut c_uint)
        |v| { v.physical()?; put(generation, v.device().preset().pcie_gen) };
    nvmlDeviceGetGpuMaxPcieLinkGeneration(generation: *mut c_uint)
        |v| { v.physical()?; put(generation, v.device().preset().pcie_gen) };
    nvmlDeviceGetCurrPcieLinkWidth(width: *mut c_uint) |v| { v.physical()?; put(width, 16) };
    nvmlDeviceGetMaxPcieLinkWidth(width: *mut c_uint) |v| { v.physical()?; put(width, 16) };
    nvmlDeviceGetPcieReplayCounter(value: *mut c_uint) |v| { v.physical()?; put(value, 0) };
    nvmlDeviceGetNvLinkState(link: c_uint, state: *mut nvmlEnableState_t) |v| {
        nvlink(v, link)?;
        put(state, 1)
    };
    nvmlDeviceGetNvLinkVersion(link: c_uint, version: *mut c_uint) |v| {
        nvlink(v, link)?;
        put(version, if v.device().preset().capability.0 >= 9 { 4 } else { 3 })
    };
    nvmlDeviceGetNvLinkErrorCounter(link: c_uint, counter: c_uint, value: *mut c_ulonglong) |v| {
        nvlink(v, link)?;
        if counter > 4 { Err(INVALID_ARGUMENT) } else { put(value, 0) }
    };
    nvmlDeviceGetPersistenceMode(mode: *mut nvmlEnableState_t) |v| { v.physical()?; put(mode, 1) };
    nvmlDeviceGetComputeMode(mode: *mut nvmlComputeMode_t) |_v| put(mode, 0);
    nvmlDeviceGetDisplayMode(mode: *mut nvmlEnableState_t) |v| { v.physical()?; put(mode, 0) };
    nvmlDeviceGetDisplayActive(mode: *mut nvmlEnableState_t) |v| { v.physical()?; put(mode, 0) };
    nvmlDeviceGetAccountingMode(mode: *mut nvmlEnableState_t) |v| { v.physical()?; put(mode, 0) };
    nvmlDeviceGetVbiosVersion(version: *mut c_char, length: c_uint)
        |v| { v.physical()?; put_text(version, length, "96.00.89.00.01") };
    nvmlDeviceGetEccMode(current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t) |v| {
        v.physical()?;
        put(current, 1)?;
        put(pending, 1)
    };
    nvmlDeviceGetTotalEccErrors(kind: c_uint, counter: c_uint, value: *mut c_ulonglong) |v| {
        v.physical()?;
        if kind > 1 || counter > 1 { return Err(INVALID_ARGUMENT); }
        put(value, if v.faulty(FaultKind::Garbage) { BLANK_64 } else { 0 })
    };
    nvmlDeviceGetMemoryErrorCounter(kind: c_uint, counter: c_uint, location: c_uint, value: *mut c_ulonglong) |v| {
        v.physical()?;
        if kind > 1 || counter > 1 || location > 8 { return Err(INVALID_ARGUMENT); }
        put(value, 0)
    };
    nvmlDeviceGetRemappedRows(
        correctable: *mut c_uint,
        uncorrectable: *mut c_uint,
        pending: *mut c_uint,
        failed: *mut c_uint
    ) |v| {
        remapper(v)?;
        [correctable, uncorrectable, pending, failed].into_iter().try_for_each(|out| put(out, 0))
    };
    nvmlDeviceGetRowRemapperHistogram(values: *mut nvmlRowRemapperHistogramValues_t) |v| {
        remapper(v)?;
        put(values, nvmlRowRemapperHistogramValues_t { max: 640, high: 0, partial: 0, low: 0, none: 0 })
    };
    nvmlDeviceGetRetiredPagesPendingStatus(pending: *mut nvmlEnableState_t) |v| {
        v.physical()?;
        if v.device().preset().mig { Err(NOT_SUPPORTED) } else { put(pending, 0) }
    };
    nvmlDeviceGetNumFans(count: *mut c_uint)
        |v| { v.physical()?; put(count, 0) };
}

/// Memory of a device or MIG device, in bytes.
struct Memory {
    total: u64,
    reserved: u64,
    used: u64,
    free: u64,
}

impl Memory {
    fn of(v: &View<'_>) -> Self {
        let total = if v.is_mig() { v.engines().iter().map(|e| e.memory).sum() } else { v.device().memory };
        let used: u64 = v.engines().iter().map(|e| e.memory_used).sum();
        let reserved = if v.is_mig() { 0 } else { (total / 128).min(total - used) };
        Self { total, reserved, used, free: total - used - reserved }
    }
}

fn pci_info(v: &View<'_>, out: *mut nvmlPciInfo_t) -> Answer {
    let d = v.device();
    let [domain, bus, device] = d.pci;
    let legacy = format!("{domain:04X}:{bus:02X}:{device:02X}.0");
    put(
        out,
        nvmlPciInfo_t {
            busIdLegacy: chars(&legacy),
            domain,
            bus,
            device,
            pciDeviceId: d.preset().pci_id,
            pciSubSystemId: 0x16c1_10de,
            busId: chars(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
        },
    )
}

fn nvlink(v: &View<'_>, link: u32) -> Answer {
    v.physical()?;
    match v.device().preset().nvlinks {
        0 => Err(NOT_SUPPORTED),
        links if link >= links => Err(INVALID_ARGUMENT),
        _ => Ok(()),
    }
}

fn remapper(v: &View<'_>) -> Answer {
    v.physical()?;
    if v.device().preset().mig { Ok(()) } else { Err(NOT_SUPPORTED) }
}
