//! What metrics take, and what their values are: the profiler's host side, which touches no device.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::rc::Rc;

use cudarc::cupti::sys as cupti;

use super::{Library, call, pointers};
use crate::cupti::fault::Fault;

/// The host side for one chip: what metrics take and what their values are. Freed when dropped.
#[derive(Debug)]
pub(in crate::cupti) struct Host {
    library: Rc<Library>,
    object: *mut cupti::CUpti_Profiler_Host_Object,
}

impl Host {
    /// For a chip whose monitor can count what `availability` says.
    pub(in crate::cupti) fn new(
        library: &Rc<Library>,
        chip: &CStr,
        availability: &[u8],
    ) -> Result<Self, Fault> {
        let mut params = cupti::CUpti_Profiler_Host_Initialize_Params {
            structSize: size_of::<cupti::CUpti_Profiler_Host_Initialize_Params>(),
            pPriv: null_mut(),
            profilerType: cupti::CUpti_ProfilerType::CUPTI_PROFILER_TYPE_PM_SAMPLING,
            pChipName: chip.as_ptr(),
            pCounterAvailabilityImage: availability.as_ptr(),
            pHostObject: null_mut(),
        };
        call(library.cupti.cuptiProfilerHostInitialize, &mut params)?;
        Ok(Self { library: Rc::clone(library), object: params.pHostObject })
    }

    /// The configuration of these metrics, and how many passes it takes. A host object takes one set only.
    pub(in crate::cupti) fn configure(&self, metrics: &[&'static CStr]) -> Result<(Vec<u8>, usize), Fault> {
        let calls = &self.library.cupti;
        let mut names = pointers(metrics);
        let mut add = cupti::CUpti_Profiler_Host_ConfigAddMetrics_Params {
            structSize: 40,
            pPriv: null_mut(),
            pHostObject: self.object,
            ppMetricNames: names.as_mut_ptr(),
            numMetrics: names.len(),
        };
        match call(calls.cuptiProfilerHostConfigAddMetrics, &mut add) {
            // What CUPTI 12.8 gives for a name that the chip does not have; the header names another status.
            Err(Fault::INVALID_PARAMETER) => return Err(Fault::INVALID_METRIC_NAME),
            other => other?,
        }
        let mut size = cupti::CUpti_Profiler_Host_GetConfigImageSize_Params {
            structSize: 32,
            pPriv: null_mut(),
            pHostObject: self.object,
            configImageSize: 0,
        };
        call(calls.cuptiProfilerHostGetConfigImageSize, &mut size)?;
        let mut image = vec![0; size.configImageSize];
        let mut fill = cupti::CUpti_Profiler_Host_GetConfigImage_Params {
            structSize: 40,
            pPriv: null_mut(),
            pHostObject: self.object,
            configImageSize: image.len(),
            pConfigImage: image.as_mut_ptr(),
        };
        call(calls.cuptiProfilerHostGetConfigImage, &mut fill)?;
        let mut passes = cupti::CUpti_Profiler_Host_GetNumOfPasses_Params {
            structSize: 40,
            pPriv: null_mut(),
            configImageSize: image.len(),
            pConfigImage: image.as_mut_ptr(),
            numOfPasses: 0,
        };
        call(calls.cuptiProfilerHostGetNumOfPasses, &mut passes)?;
        Ok((image, passes.numOfPasses))
    }

    pub(super) fn evaluate(
        &self,
        image: &[u8],
        index: usize,
        names: &mut [*const c_char],
        values: &mut [f64],
    ) -> Result<(), Fault> {
        if names.len() > values.len() {
            return Err(Fault::OUT_OF_MEMORY);
        }
        let mut params = cupti::CUpti_Profiler_Host_EvaluateToGpuValues_Params {
            structSize: 72,
            pPriv: null_mut(),
            pHostObject: self.object,
            pCounterDataImage: image.as_ptr(),
            counterDataImageSize: image.len(),
            rangeIndex: index,
            ppMetricNames: names.as_mut_ptr(),
            numMetrics: names.len(),
            pMetricValues: values.as_mut_ptr(),
        };
        call(self.library.cupti.cuptiProfilerHostEvaluateToGpuValues, &mut params)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let mut params = cupti::CUpti_Profiler_Host_Deinitialize_Params {
            structSize: 24,
            pPriv: null_mut(),
            pHostObject: self.object,
        };
        if let Err(fault) = call(self.library.cupti.cuptiProfilerHostDeinitialize, &mut params) {
            tracing::debug!(%fault, "a host object of CUPTI was not freed");
        }
    }
}
