//! The device's side: owning its monitor, sampling with it, and decoding what it sampled.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::cupti::sys::{
    CUpti_Device_GetChipName_Params, CUpti_PmSampling_CounterData_GetSampleInfo_Params,
    CUpti_PmSampling_CounterDataImage_Initialize_Params, CUpti_PmSampling_DecodeData_Params,
    CUpti_PmSampling_DecodeStopReason, CUpti_PmSampling_Disable_Params, CUpti_PmSampling_Enable_Params,
    CUpti_PmSampling_GetCounterAvailability_Params, CUpti_PmSampling_GetCounterDataInfo_Params,
    CUpti_PmSampling_GetCounterDataSize_Params, CUpti_PmSampling_HardwareBuffer_AppendMode,
    CUpti_PmSampling_Object, CUpti_PmSampling_SetConfig_Params, CUpti_PmSampling_Start_Params,
    CUpti_PmSampling_Stop_Params, CUpti_PmSampling_TriggerMode,
};
use warpmeter_simgpu::{FaultKind, Process};

use crate::abi::{
    Answer, Code, HARDWARE_BUSY, INVALID_METRIC_NAME, INVALID_OPERATION, INVALID_PARAMETER, NOT_SUPPORTED,
    SUCCESS, bytes, code, get, put, put_bytes, texts,
};
use crate::chip;
use crate::image::{self, Config, Data};
use crate::session::{device, on_monitor, on_node};

/// Bytes of the hardware's buffer that one sample takes.
const RECORD: usize = 16 << 10;
/// Device time: the monotonic clock and this. Nobody may take one for the other.
const GPU_CLOCK: u64 = 7_000_000_000_000_000;

/// An enabled sampling: its device, and how it samples.
#[derive(Clone, Copy, Default)]
struct Sampling {
    device: usize,
    period: u64,
    room: u64,
    /// What every decoding gives after an overflow; 0: they go on.
    spoilt: Code,
}

/// All of this process, by the number that is their pointer.
fn open() -> MutexGuard<'static, BTreeMap<usize, Sampling>> {
    static OPEN: Mutex<BTreeMap<usize, Sampling>> = Mutex::new(BTreeMap::new());
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sampling(object: *mut CUpti_PmSampling_Object) -> Answer<Sampling> {
    open().get(&object.addr()).copied().ok_or(INVALID_PARAMETER)
}

/// Takes the lock for a call that the monitor's owner makes.
fn on_own<T>(
    object: *mut CUpti_PmSampling_Object,
    mut call: impl FnMut(&mut warpmeter_simgpu::Guard<'_>, Sampling) -> Answer<T>,
) -> Answer<T> {
    let sampling = sampling(object)?;
    on_monitor(sampling.device, |guard, me| {
        if guard.owns_monitor(sampling.device, me) { call(guard, sampling) } else { Err(HARDWARE_BUSY) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiDeviceGetChipName(params: *mut CUpti_Device_GetChipName_Params) -> Code {
    static NAMES: OnceLock<BTreeMap<&'static str, CString>> = OnceLock::new();
    let name = || {
        let mut p = get(params, 32)?;
        let at = device(p.deviceIndex)?;
        let chip = on_node(|guard| Ok(chip::of(&guard.device[at])))?;
        let names = NAMES.get_or_init(|| {
            let known = chip::CHIPS;
            known.into_iter().filter_map(|name| Some((name, CString::new(name).ok()?))).collect()
        });
        let name: Option<*const c_char> = names.get(chip).map(|name| name.as_ptr());
        p.pChipName = name.ok_or(INVALID_PARAMETER)?;
        put(params, p)
    };
    code(name())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingGetCounterAvailability(
    params: *mut CUpti_PmSampling_GetCounterAvailability_Params,
) -> Code {
    let availability = || {
        let mut p = get(params, 40)?;
        on_monitor(device(p.deviceIndex)?, |_guard, _me| Ok(()))?;
        let image = b"all counters";
        if p.pCounterAvailabilityImage.is_null() {
            p.counterAvailabilityImageSize = image.len();
            return put(params, p);
        }
        put_bytes(p.pCounterAvailabilityImage, p.counterAvailabilityImageSize, image)
    };
    code(availability())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingEnable(params: *mut CUpti_PmSampling_Enable_Params) -> Code {
    let enable = || {
        let mut p = get(params, 32)?;
        let at = device(p.deviceIndex)?;
        if open().values().any(|sampling| sampling.device == at) {
            return Err(INVALID_OPERATION);
        }
        on_monitor(at, |guard, me| if guard.own_monitor(at, me) { Ok(()) } else { Err(HARDWARE_BUSY) })?;
        let mut open = open();
        let number = open.keys().last().map_or(0x1000, |last| last + 0x10);
        open.insert(number, Sampling { device: at, ..Sampling::default() });
        p.pPmSamplingObject = std::ptr::without_provenance_mut(number);
        put(params, p)
    };
    code(enable())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingDisable(params: *mut CUpti_PmSampling_Disable_Params) -> Code {
    let disable = || {
        let p = get(params, 24)?;
        let sampling = sampling(p.pPmSamplingObject)?;
        open().remove(&p.pPmSamplingObject.addr());
        on_node(|guard| {
            guard.free_monitor(sampling.device, Process::current());
            Ok(())
        })
    };
    code(disable())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingSetConfig(params: *mut CUpti_PmSampling_SetConfig_Params) -> Code {
    let set = || {
        let p = get(params, 64)?;
        let config = Config::read(&bytes(p.pConfig, p.configSize)?)?;
        let (period, room) = on_own(p.pPmSamplingObject, |guard, sampling| {
            let device = &guard.device[sampling.device];
            let chip = chip::of(device);
            let latest = CUpti_PmSampling_HardwareBuffer_AppendMode::CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST;
            if config.chip != chip
                || chip::passes(chip, &config.metrics) != 1
                || !chip::can_keep_latest(chip) && p.hwBufferAppendMode == latest
            {
                return Err(NOT_SUPPORTED);
            }
            let by_time = CUpti_PmSampling_TriggerMode::CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
            let period = if p.triggerMode == by_time {
                if !chip::has_time_trigger(chip) {
                    return Err(NOT_SUPPORTED);
                }
                p.samplingInterval
            } else {
                p.samplingInterval * 1000 / u64::from(device.preset().sm_clock_mhz)
            };
            Ok((period, p.hardwareBufferSize / RECORD))
        })?;
        if period < 1000 || room == 0 {
            return Err(INVALID_PARAMETER);
        }
        if let Some(sampling) = open().get_mut(&p.pPmSamplingObject.addr()) {
            (sampling.period, sampling.room) = (period, room as u64);
        }
        Ok(())
    };
    code(set())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingStart(params: *mut CUpti_PmSampling_Start_Params) -> Code {
    let start = || {
        on_own(get(params, 24)?.pPmSamplingObject, |guard, sampling| {
            if sampling.period == 0 || guard.device[sampling.device].monitor.running == 1 {
                return Err(INVALID_OPERATION);
            }
            let now = guard.now;
            guard.start_monitor(sampling.device, sampling.period, sampling.room, now);
            Ok(())
        })
    };
    code(start())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingStop(params: *mut CUpti_PmSampling_Stop_Params) -> Code {
    let stop = || {
        on_own(get(params, 24)?.pPmSamplingObject, |guard, sampling| {
            if guard.device[sampling.device].monitor.running == 0 {
                return Err(INVALID_OPERATION);
            }
            guard.stop_monitor(sampling.device);
            Ok(())
        })
    };
    code(stop())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingGetCounterDataSize(
    params: *mut CUpti_PmSampling_GetCounterDataSize_Params,
) -> Code {
    let size = || {
        let mut p = get(params, 56)?;
        let device = sampling(p.pPmSamplingObject)?.device;
        let chip = on_node(|guard| Ok(chip::of(&guard.device[device])))?;
        let mut names = texts(p.pMetricNames, p.numMetrics)?.into_iter();
        let known = names.all(|name| chip::metric(chip, name).is_some());
        if !known {
            return Err(INVALID_METRIC_NAME);
        }
        p.counterDataSize = image::size(p.maxSamples as usize);
        put(params, p)
    };
    code(size())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingCounterDataImageInitialize(
    params: *mut CUpti_PmSampling_CounterDataImage_Initialize_Params,
) -> Code {
    let initialize = || {
        let p = get(params, 40)?;
        let device = sampling(p.pPmSamplingObject)?.device;
        let data = Data { device, room: image::room(p.counterDataSize), samples: Vec::new() };
        put_bytes(p.pCounterData, p.counterDataSize, &data.write())
    };
    code(initialize())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingDecodeData(params: *mut CUpti_PmSampling_DecodeData_Params) -> Code {
    let decode = || {
        let mut p = get(params, 45)?;
        let mut data = Data::read(&bytes(p.pCounterDataImage, p.counterDataImageSize)?)?;
        let (samples, overflow, spoilt) = on_own(p.pPmSamplingObject, |guard, sampling| {
            let now = guard.now;
            let forced = guard.faulty(FaultKind::CuptiOverflow, Some(sampling.device), now).map(|it| it.arg);
            let code = forced.and_then(|arg| Code::try_from(arg).ok()).unwrap_or(SUCCESS);
            let room = data.room - data.samples.len();
            let (samples, lost) = guard.take_samples(sampling.device, room, now);
            Ok((samples, lost || forced.is_some(), sampling.spoilt.max(code)))
        })?;
        if spoilt != SUCCESS {
            if let Some(sampling) = open().get_mut(&p.pPmSamplingObject.addr()) {
                sampling.spoilt = spoilt;
            }
            p.overflow = 1;
            put(params, p)?;
            return Err(spoilt);
        }
        data.samples.extend(samples);
        let full = data.samples.len() == data.room;
        p.decodeStopReason = if full {
            CUpti_PmSampling_DecodeStopReason::CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL
        } else {
            CUpti_PmSampling_DecodeStopReason::CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS
        };
        p.overflow = u8::from(overflow);
        put_bytes(p.pCounterDataImage, p.counterDataImageSize, &data.write())?;
        put(params, p)
    };
    code(decode())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingGetCounterDataInfo(
    params: *mut CUpti_PmSampling_GetCounterDataInfo_Params,
) -> Code {
    let info = || {
        let mut p = get(params, 56)?;
        let data = Data::read(&bytes(p.pCounterDataImage, p.counterDataImageSize)?)?;
        p.numTotalSamples = data.room;
        p.numPopulatedSamples = data.samples.len();
        p.numCompletedSamples = data.samples.len();
        put(params, p)
    };
    code(info())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiPmSamplingCounterDataGetSampleInfo(
    params: *mut CUpti_PmSampling_CounterData_GetSampleInfo_Params,
) -> Code {
    let info = || {
        let mut p = get(params, 64)?;
        let data = Data::read(&bytes(p.pCounterDataImage, p.counterDataImageSize)?)?;
        let sample = data.samples.get(p.sampleIndex).ok_or(INVALID_PARAMETER)?;
        (p.startTimestamp, p.endTimestamp) = (sample.start + GPU_CLOCK, sample.end + GPU_CLOCK);
        put(params, p)
    };
    code(info())
}
