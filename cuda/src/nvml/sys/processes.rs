//! Processes of a device, and rings of utilisation samples.

use nvml_wrapper_sys::bindings as nvml;

use super::gauges::integer;
use super::{Device, Plain, call, zeroed};
use crate::nvml::Fault;

/// How often a list that grew between asking for its length and for itself is asked for again.
const TRIES: usize = 4;

/// Entries beyond the announced number, for those that appear before the next call.
const SLACK: u32 = 16;

/// More entries than this are a driver's slip, not a list.
const MOST: u32 = 65_536;

/// Which list of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// With a compute context.
    Compute,
    /// With a graphics context.
    Graphics,
    /// Clients of the MPS server.
    Mps,
}

/// A process in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its pid.
    pub(crate) pid: u32,
    /// Its memory on the device in bytes, or the driver's mark for "not available" (all ones).
    pub(crate) memory: u64,
}

/// A process's average utilisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessUtilization {
    /// Its pid.
    pub(crate) pid: u32,
    /// When the sample was taken, in µs of `CLOCK_REALTIME`.
    pub(crate) at: u64,
    /// Share of the SMs' time, in percent.
    pub(crate) sm: u32,
}

/// An entry of the ring of GPU utilisation samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingSample {
    /// When the sample was taken, in µs of `CLOCK_REALTIME`.
    pub(crate) at: u64,
    /// Percent, if the value is an integer at all.
    pub(crate) percent: Option<u64>,
}

impl Device {
    /// One list of processes, in the newest form that the driver has.
    pub(crate) fn processes(&self, list: List) -> Result<Vec<Listed>, Fault> {
        // The forms with instance ids share one layout; the first had none of these.
        macro_rules! newest_of {
            ($v3:ident, $v2:ident, $v1:ident) => {{
                let v3 = read_list(|count, infos| call!(self.library, $v3(self.handle, count, infos)));
                let newer = match v3 {
                    Err(Fault::FUNCTION_NOT_FOUND) => {
                        read_list(|count, infos| call!(self.library, $v2(self.handle, count, infos)))
                    }
                    other => other,
                };
                match newer {
                    Err(Fault::FUNCTION_NOT_FOUND) => {
                        read_list(|count, infos| call!(self.library, $v1(self.handle, count, infos)))
                            .map(|infos| infos.iter().map(Listed::first).collect())
                    }
                    other => other.map(|infos| infos.iter().map(Listed::newer).collect()),
                }
            }};
        }
        match list {
            List::Compute => newest_of!(
                nvmlDeviceGetComputeRunningProcesses_v3,
                nvmlDeviceGetComputeRunningProcesses_v2,
                nvmlDeviceGetComputeRunningProcesses
            ),
            List::Graphics => newest_of!(
                nvmlDeviceGetGraphicsRunningProcesses_v3,
                nvmlDeviceGetGraphicsRunningProcesses_v2,
                nvmlDeviceGetGraphicsRunningProcesses
            ),
            List::Mps => newest_of!(
                nvmlDeviceGetMPSComputeRunningProcesses_v3,
                nvmlDeviceGetMPSComputeRunningProcesses_v2,
                nvmlDeviceGetMPSComputeRunningProcesses
            ),
        }
    }

    /// Utilisation by process since `last_seen` (µs of `CLOCK_REALTIME`); empty if the driver found none.
    pub(crate) fn process_utilization(&self, last_seen: u64) -> Result<Vec<ProcessUtilization>, Fault> {
        let samples: Vec<nvml::nvmlProcessUtilizationSample_t> = read_list(|count, samples| {
            call!(self.library, nvmlDeviceGetProcessUtilization(self.handle, samples, count, last_seen))
        })?;
        Ok(samples
            .iter()
            .map(|sample| ProcessUtilization { pid: sample.pid, at: sample.timeStamp, sm: sample.smUtil })
            .collect())
    }

    /// The ring of GPU utilisation samples since `last_seen` (µs of `CLOCK_REALTIME`).
    pub(crate) fn utilization_ring(&self, last_seen: u64) -> Result<Vec<RingSample>, Fault> {
        let ring = nvml::nvmlSamplingType_enum_NVML_GPU_UTILIZATION_SAMPLES;
        let mut kind = nvml::nvmlValueType_enum_NVML_VALUE_TYPE_COUNT;
        let samples: Vec<nvml::nvmlSample_t> = read_list(|count, samples| {
            call!(
                self.library,
                nvmlDeviceGetSamples(self.handle, ring, last_seen, &raw mut kind, count, samples)
            )
        })?;
        Ok(samples
            .iter()
            .map(|sample| RingSample { at: sample.timeStamp, percent: integer(kind, sample.sampleValue) })
            .collect())
    }
}

impl Listed {
    fn first(info: &nvml::nvmlProcessInfo_v1_t) -> Self {
        Self { pid: info.pid, memory: info.usedGpuMemory }
    }

    fn newer(info: &nvml::nvmlProcessInfo_v2_t) -> Self {
        Self { pid: info.pid, memory: info.usedGpuMemory }
    }
}

/// Reads a list whose length must be asked for first, and may have grown by then. "Not found" is an empty list.
fn read_list<T: Plain + Clone>(
    mut read: impl FnMut(*mut u32, *mut T) -> Result<(), Fault>,
) -> Result<Vec<T>, Fault> {
    let mut announced = 0;
    match read(&raw mut announced, std::ptr::null_mut()) {
        // Nothing there at all: the length 0 fitted.
        Ok(()) if announced == 0 => return Ok(Vec::new()),
        Ok(()) | Err(Fault::INSUFFICIENT_SIZE) => {}
        Err(Fault::NOT_FOUND) => return Ok(Vec::new()),
        Err(fault) => return Err(fault),
    }
    for _ in 0..TRIES {
        let room = announced.min(MOST).saturating_add(SLACK);
        let length = usize::try_from(room).unwrap_or_default();
        let mut list: Vec<T> = vec![zeroed(); length];
        announced = room;
        match read(&raw mut announced, list.as_mut_ptr()) {
            Ok(()) => {
                list.truncate(usize::try_from(announced).unwrap_or_default());
                return Ok(list);
            }
            Err(Fault::INSUFFICIENT_SIZE) => {
                // A driver that does not say by how much: twice as long then.
                announced = if announced > room { announced } else { room.saturating_mul(2) };
            }
            Err(Fault::NOT_FOUND) => return Ok(Vec::new()),
            Err(fault) => return Err(fault),
        }
    }
    Err(Fault::INSUFFICIENT_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Info = nvml::nvmlProcessInfo_v2_t;

    #[test]
    fn a_list_that_grows_between_the_calls_is_asked_for_again() {
        let mut there = 3;
        let mut calls = 0;
        let list: Vec<Info> = read_list(|count, list: *mut Info| {
            calls += 1;
            // SAFETY: `read_list` passes a pointer to its own counter.
            let count = unsafe { &mut *count };
            let room = *count;
            *count = there;
            if list.is_null() || room < there {
                there = 40;
                return Err(Fault::INSUFFICIENT_SIZE);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!((list.len(), calls), (40, 3));
    }

    #[test]
    fn a_list_that_never_fits_is_given_up() {
        let result: Result<Vec<Info>, Fault> = read_list(|_, _| Err(Fault::INSUFFICIENT_SIZE));
        assert_eq!(result.err(), Some(Fault::INSUFFICIENT_SIZE));
    }

    #[test]
    fn not_found_is_an_empty_list_and_other_faults_stay() {
        assert_eq!(read_list(|_, _: *mut Info| Err(Fault::NOT_FOUND)).unwrap().len(), 0);
        assert_eq!(read_list(|_, _: *mut Info| Err(Fault::UNKNOWN)).err(), Some(Fault::UNKNOWN));
    }
}
