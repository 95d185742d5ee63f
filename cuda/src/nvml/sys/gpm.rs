//! GPU performance monitoring: samples, and averages between two of them.

use std::rc::Rc;

use nvml_wrapper_sys::bindings as nvml;

use super::{Device, Library, call, zeroed};
use crate::nvml::Fault;

/// Room for metrics in one request. The header's array has had 98, 210 and 333 entries under the same version
/// number; a buffer longer than all of them suits every driver, whichever it was compiled with.
const ROOM: usize = 400;

/// Metrics by id, each with its own status.
pub(crate) type Values = Vec<(u32, Result<f64, Fault>)>;

/// `nvmlGpmMetricsGet_t` with a longer array.
#[repr(C)]
#[derive(Debug)]
struct Request {
    version: u32,
    count: u32,
    earlier: nvml::nvmlGpmSample_t,
    later: nvml::nvmlGpmSample_t,
    metrics: [nvml::nvmlGpmMetric_t; ROOM],
}

const _: () = {
    assert!(size_of::<nvml::nvmlGpmMetric_t>() == 40);
    assert!(std::mem::offset_of!(Request, metrics) == 24);
    assert!(std::mem::offset_of!(nvml::nvmlGpmMetricsGet_t, metrics) == 24);
    assert!(size_of::<Request>() >= size_of::<nvml::nvmlGpmMetricsGet_t>());
    assert!(align_of::<Request>() == align_of::<nvml::nvmlGpmMetricsGet_t>());
};

/// Where the driver writes averages.
#[derive(Debug)]
pub(crate) struct GpmBuffer(Box<Request>);

impl GpmBuffer {
    pub(crate) fn new() -> Self {
        Self(Box::new(Request {
            version: nvml::NVML_GPM_METRICS_GET_VERSION,
            count: 0,
            earlier: std::ptr::null_mut(),
            later: std::ptr::null_mut(),
            metrics: [zeroed(); ROOM],
        }))
    }

    /// The metrics of these ids between two samples, each with its own status. Ids past the buffer are left out.
    pub(crate) fn measure(
        &mut self,
        earlier: &GpmSample,
        later: &GpmSample,
        ids: &[u32],
    ) -> Result<Values, Fault> {
        if !Rc::ptr_eq(&earlier.library, &later.library) {
            return Err(Fault::UNKNOWN);
        }
        let request = &mut *self.0;
        request.earlier = earlier.handle;
        request.later = later.handle;
        request.count = 0;
        for (metric, id) in request.metrics.iter_mut().zip(ids) {
            *metric = zeroed();
            metric.metricId = *id;
            // Whatever the driver leaves alone stays without a value.
            metric.nvmlReturn = Fault::UNKNOWN.0;
            request.count += 1;
        }
        // The driver reads `count` entries and writes no others; the buffer is longer than its own structure.
        let request: *mut Request = request;
        let outcome = call!(later.library, nvmlGpmMetricsGet(request.cast()));
        self.0.earlier = std::ptr::null_mut();
        self.0.later = std::ptr::null_mut();
        outcome?;
        let values = self.0.metrics.iter().take(ids.len());
        Ok(values
            .map(|metric| (metric.metricId, Fault::check(metric.nvmlReturn).map(|()| metric.value)))
            .collect())
    }
}

/// A sample of all counters at one time.
#[derive(Debug)]
pub(crate) struct GpmSample {
    library: Rc<Library>,
    handle: nvml::nvmlGpmSample_t,
}

impl GpmSample {
    fn new(library: &Rc<Library>) -> Result<Self, Fault> {
        let mut handle = std::ptr::null_mut();
        call!(library, nvmlGpmSampleAlloc(&raw mut handle))?;
        Ok(Self { library: Rc::clone(library), handle })
    }
}

impl Drop for GpmSample {
    fn drop(&mut self) {
        if let Err(fault) = call!(self.library, nvmlGpmSampleFree(self.handle)) {
            tracing::debug!(%fault, "GPM sample was not freed");
        }
    }
}

impl Device {
    /// Whether this device has GPM.
    pub(crate) fn gpm_supported(&self) -> Result<bool, Fault> {
        let mut support = nvml::nvmlGpmSupport_t { version: 1, isSupportedDevice: 0 };
        match call!(self.library, nvmlGpmQueryDeviceSupport(self.handle, &raw mut support)) {
            Err(fault) if fault.is_unsupported() => Ok(false),
            other => other.map(|()| support.isSupportedDevice != 0),
        }
    }

    /// Memory for a sample.
    pub(crate) fn gpm_alloc(&self) -> Result<GpmSample, Fault> {
        GpmSample::new(&self.library)
    }

    /// Samples this device's counters now.
    pub(crate) fn gpm_sample(&self, sample: &mut GpmSample) -> Result<(), Fault> {
        call!(self.library, nvmlGpmSampleGet(self.handle, sample.handle))
    }

    /// Samples the counters of one of this GPU's instances now.
    pub(crate) fn gpm_sample_instance(&self, gpu_instance: u32, sample: &mut GpmSample) -> Result<(), Fault> {
        call!(self.library, nvmlGpmMigSampleGet(self.handle, gpu_instance, sample.handle))
    }
}
