//! Who uses a device: process lists and per-process utilisation.

use std::ffi::{c_uint, c_ulonglong};

use warpmeter_simgpu::FaultKind;
use warpmeter_simgpu::layout::{NONE, ProcessSample};

use crate::abi::{
    INSUFFICIENT_SIZE, NOT_FOUND, NOT_SUPPORTED, VERSION_MISMATCH, device_calls, get, narrow, nvmlDevice_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationInfo_v1_t,
    nvmlProcessUtilizationSample_t, nvmlProcessesUtilizationInfo_v1_t, nvmlReturn_t, put, put_at, put_list,
};
use crate::session::View;

/// Room that NVML asks for when the caller has none: its ring, not the number of processes.
const RING: u32 = 1000;

device_calls! {
    nvmlDeviceGetComputeRunningProcesses(count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t)
        |v| put_list(count, infos, old(running(v, false)));
    nvmlDeviceGetComputeRunningProcesses_v2(count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t)
        |v| put_list(count, infos, running(v, false));
    nvmlDeviceGetComputeRunningProcesses_v3(count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t)
        |v| put_list(count, infos, running(v, false));
    nvmlDeviceGetMPSComputeRunningProcesses(count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t)
        |v| put_list(count, infos, old(running(v, true)));
    nvmlDeviceGetMPSComputeRunningProcesses_v2(count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t)
        |v| put_list(count, infos, running(v, true));
    nvmlDeviceGetMPSComputeRunningProcesses_v3(count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t)
        |v| put_list(count, infos, running(v, true));
    nvmlDeviceGetGraphicsRunningProcesses(count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t)
        |_v| put_list(count, infos, Vec::new());
    nvmlDeviceGetGraphicsRunningProcesses_v2(count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t)
        |_v| put_list(count, infos, Vec::new());
    nvmlDeviceGetGraphicsRunningProcesses_v3(count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t)
        |_v| put_list(count, infos, Vec::new());
    nvmlDeviceGetProcessUtilization(
        samples: *mut nvmlProcessUtilizationSample_t,
        count: *mut c_uint,
        last_seen: c_ulonglong
    ) |v| {
        let found = newer(v, last_seen)?;
        let room = get(count)?;
        if samples.is_null() || room == 0 {
            put(count, RING)?;
            return Err(INSUFFICIENT_SIZE);
        }
        let garbage = v.faulty(FaultKind::Garbage);
        let needed = narrow(found.len() as u64);
        put(count, needed)?;
        if needed > room {
            return Err(INSUFFICIENT_SIZE);
        }
        for (at, s) in found.into_iter().enumerate() {
            let smUtil = if garbage { u32::MAX } else { s.sm };
            let sample = nvmlProcessUtilizationSample_t {
                pid: s.pid, timeStamp: s.real_us, smUtil, memUtil: s.memory, encUtil: 0, decUtil: 0,
            };
            put_at(samples, at, sample)?;
        }
        Ok(())
    };
    nvmlDeviceGetProcessesUtilizationInfo(info: *mut nvmlProcessesUtilizationInfo_v1_t) |v| {
        let mut head = get(info)?;
        if head.version != 0x0100_0000 | narrow(size_of::<nvmlProcessesUtilizationInfo_v1_t>() as u64) {
            return Err(VERSION_MISMATCH);
        }
        let found = newer(v, head.lastSeenTimeStamp)?;
        let room = head.processSamplesCount;
        let fits = !head.procUtilArray.is_null() && room as usize >= found.len();
        head.processSamplesCount = if fits { narrow(found.len() as u64) } else { RING };
        put(info, head)?;
        if !fits {
            return Err(INSUFFICIENT_SIZE);
        }
        for (at, s) in found.into_iter().enumerate() {
            let sample = nvmlProcessUtilizationInfo_v1_t {
                timeStamp: s.real_us, pid: s.pid, smUtil: s.sm, memUtil: s.memory,
                encUtil: 0, decUtil: 0, jpgUtil: 0, ofaUtil: 0,
            };
            put_at(head.procUtilArray, at, sample)?;
        }
        Ok(())
    };
}

/// Processes with a context: clients of an MPS server in the MPS list, all others and the server in the compute list.
fn running(v: &mut View<'_>, clients: bool) -> Vec<nvmlProcessInfo_v2_t> {
    let now = v.now;
    v.guard.bury_dead_sometimes(now);
    let mps = v.device().mps == 1;
    let mut found = Vec::new();
    for e in v.engines() {
        for &c in e.listed() {
            let Some(c) = v.shared().client.get(c as usize) else { continue };
            if (mps && c.server == 0) != clients {
                continue;
            }
            found.push(nvmlProcessInfo_v2_t {
                pid: c.pid,
                usedGpuMemory: c.memory,
                gpuInstanceId: e.gi,
                computeInstanceId: if e.gi == NONE { NONE } else { 0 },
            });
        }
    }
    found
}

fn old(infos: Vec<nvmlProcessInfo_v2_t>) -> Vec<nvmlProcessInfo_v1_t> {
    infos.into_iter().map(|i| nvmlProcessInfo_v1_t { pid: i.pid, usedGpuMemory: i.usedGpuMemory }).collect()
}

/// Per-process samples newer than `last_seen`; none is `NOT_FOUND`.
fn newer(v: &View<'_>, last_seen: u64) -> Result<Vec<ProcessSample>, nvmlReturn_t> {
    if v.is_mig() || v.device().mig == 1 {
        return Err(NOT_SUPPORTED);
    }
    let device = v.device();
    let mut found: Vec<ProcessSample> =
        device.visible(v.now).filter(|s| s.real_us > last_seen).copied().collect();
    if device.process_latest == 1 {
        let all = std::mem::take(&mut found);
        for sample in all.into_iter().rev() {
            if !found.iter().any(|s| s.pid == sample.pid) {
                found.push(sample);
            }
        }
    }
    if found.is_empty() { Err(NOT_FOUND) } else { Ok(found) }
}
