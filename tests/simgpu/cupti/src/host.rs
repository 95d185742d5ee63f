//! The profiler's host side: which metrics a chip has, how many passes they take, and what samples make of them.

use cudarc::cupti::sys::{
    CUpti_Profiler_Host_ConfigAddMetrics_Params, CUpti_Profiler_Host_Deinitialize_Params,
    CUpti_Profiler_Host_EvaluateToGpuValues_Params, CUpti_Profiler_Host_GetConfigImage_Params,
    CUpti_Profiler_Host_GetConfigImageSize_Params, CUpti_Profiler_Host_GetNumOfPasses_Params,
    CUpti_Profiler_Host_Initialize_Params, CUpti_Profiler_Host_Object, CUpti_Profiler_Initialize_Params,
    CUpti_ProfilerType,
};
use warpmeter_simgpu::{FaultKind, Guard, hash};

use crate::abi::{
    Answer, Code, INVALID_CHIP_NAME, INVALID_METRIC_NAME, INVALID_PARAMETER, NOT_SUPPORTED, bytes, code, get,
    put, put_bytes, text, texts,
};
use crate::chip;
use crate::image::{Config, Data};
use crate::session::{initialize, on_node, ready};

/// What a host object is: the chip, and the metrics added so far.
struct Host {
    mark: u64,
    config: Config,
}

/// Marks a live host object.
const MARK: u64 = 0x686f_7374_5f6f_626a;

/// The object behind a pointer that this library gave.
fn host(object: *mut CUpti_Profiler_Host_Object) -> Answer<&'static mut Host> {
    let host: *mut Host = object.cast();
    // SAFETY: null, or a pointer that `cuptiProfilerHostInitialize` gave and that is used by one thread at a time.
    match unsafe { host.as_mut() } {
        Some(host) if host.mark == MARK => Ok(host),
        _ => Err(INVALID_PARAMETER),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiProfilerInitialize(params: *mut CUpti_Profiler_Initialize_Params) -> Code {
    code(get(params, 16).and_then(|_| initialize()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiProfilerHostInitialize(params: *mut CUpti_Profiler_Host_Initialize_Params) -> Code {
    let make = || {
        let mut p = get(params, 48)?;
        ready()?;
        if p.profilerType != CUpti_ProfilerType::CUPTI_PROFILER_TYPE_PM_SAMPLING {
            return Err(NOT_SUPPORTED);
        }
        let chip = text(p.pChipName)?.to_owned();
        if !chip::exists(&chip) {
            return Err(INVALID_CHIP_NAME);
        }
        let host = Host { mark: MARK, config: Config { chip, metrics: Vec::new() } };
        p.pHostObject = Box::into_raw(Box::new(host)).cast();
        put(params, p)
    };
    code(make())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiProfilerHostDeinitialize(
    params: *mut CUpti_Profiler_Host_Deinitialize_Params,
) -> Code {
    let end = || {
        let p = get(params, 24)?;
        host(p.pHostObject)?.mark = 0;
        // SAFETY: the mark showed a live object made by `cuptiProfilerHostInitialize`, which is freed once.
        drop(unsafe { Box::from_raw(p.pHostObject.cast::<Host>()) });
        Ok(())
    };
    code(end())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiProfilerHostConfigAddMetrics(
    params: *mut CUpti_Profiler_Host_ConfigAddMetrics_Params,
) -> Code {
    let add = || {
        let p = get(params, 40)?;
        let host = host(p.pHostObject)?;
        for name in texts(p.ppMetricNames, p.numMetrics)? {
            let refused = |guard: &mut Guard<'_>| {
                guard.faulty_for(FaultKind::NotSupported, None, hash(name), guard.now)
            };
            // Not the status that the header names for it: so does CUPTI 12.8.
            let metric = chip::metric(&host.config.chip, name).ok_or(INVALID_PARAMETER)?;
            if on_node(|guard| Ok(refused(guard)))? {
                return Err(INVALID_PARAMETER);
            }
            host.config.metrics.push(metric);
        }
        Ok(())
    };
    code(add())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiProfilerHostGetConfigImageSize(
    params: *mut CUpti_Profiler_Host_GetConfigImageSize_Params,
) -> Code {
    let size = || {
        let mut p = get(params, 32)?;
        p.configImageSize = host(p.pHostObject)?.config.write().len();
        put(params, p)
    };
    code(size())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiProfilerHostGetConfigImage(
    params: *mut CUpti_Profiler_Host_GetConfigImage_Params,
) -> Code {
    let image = || {
        let p = get(params, 40)?;
        put_bytes(p.pConfigImage, p.configImageSize, &host(p.pHostObject)?.config.write())
    };
    code(image())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiProfilerHostGetNumOfPasses(
    params: *mut CUpti_Profiler_Host_GetNumOfPasses_Params,
) -> Code {
    let count = || {
        let mut p = get(params, 40)?;
        let config = Config::read(&bytes(p.pConfigImage, p.configImageSize)?)?;
        p.numOfPasses = chip::passes(&config.chip, &config.metrics);
        put(params, p)
    };
    code(count())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiProfilerHostEvaluateToGpuValues(
    params: *mut CUpti_Profiler_Host_EvaluateToGpuValues_Params,
) -> Code {
    let evaluate = || {
        let p = get(params, 72)?;
        let host = host(p.pHostObject)?;
        let data = Data::read(&bytes(p.pCounterDataImage, p.counterDataImageSize)?)?;
        let sample = data.samples.get(p.rangeIndex).ok_or(INVALID_PARAMETER)?;
        let names = texts(p.ppMetricNames, p.numMetrics)?;
        on_node(|guard| {
            let garbage = guard.faulty(FaultKind::Garbage, Some(data.device), guard.now).is_some();
            for (at, name) in names.iter().enumerate() {
                let metric = chip::metric(&host.config.chip, name).ok_or(INVALID_METRIC_NAME)?;
                let value = chip::value(metric, &guard.device[data.device], sample);
                let value = value.filter(|_| !garbage).unwrap_or(f64::NAN);
                put(p.pMetricValues.wrapping_add(at), value)?;
            }
            Ok(())
        })
    };
    code(evaluate())
}
