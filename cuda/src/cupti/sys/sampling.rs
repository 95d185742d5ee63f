//! A monitor that is owned: configured, started, decoded, and given back.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::rc::Rc;

use cudarc::cupti::sys as cupti;

use super::{DECODE, Host, Library, SET_CONFIG, call, pointers};
use crate::cupti::fault::Fault;

/// How a device is sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cupti) struct Setup {
    /// The configuration of the metrics: one pass.
    pub(in crate::cupti) config: Vec<u8>,
    /// The metrics, in the order of the values.
    pub(in crate::cupti) metrics: Vec<&'static CStr>,
    /// Whether samples are triggered by the device's time, in nanoseconds; otherwise by its system clock, in cycles.
    pub(in crate::cupti) by_time: bool,
    /// Time or cycles between samples.
    pub(in crate::cupti) interval: u64,
    /// Bytes of the hardware's buffer.
    pub(in crate::cupti) buffer: usize,
    /// How many samples are decoded at once.
    pub(in crate::cupti) batch: u32,
}

/// A monitor that this process owns and that samples. Given back when dropped.
#[derive(Debug)]
pub(in crate::cupti) struct Sampling {
    library: Rc<Library>,
    object: *mut cupti::CUpti_PmSampling_Object,
    host: Host,
    names: Vec<*const c_char>,
    image: Vec<u8>,
    values: Vec<f64>,
}

/// How a decoding went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cupti) struct Decoded {
    /// Samples found no room in the hardware's buffer. Nothing says that the monitor goes on after that.
    pub(in crate::cupti) overflow: bool,
    /// There are more to decode.
    pub(in crate::cupti) more: bool,
}

impl Sampling {
    /// Takes a device's monitor and starts it.
    pub(in crate::cupti) fn start(
        library: &Rc<Library>,
        device: usize,
        host: Host,
        setup: &Setup,
    ) -> Result<Self, Fault> {
        let mut enable = cupti::CUpti_PmSampling_Enable_Params {
            structSize: 32,
            pPriv: null_mut(),
            deviceIndex: device,
            pPmSamplingObject: null_mut(),
        };
        call(library.cupti.cuptiPmSamplingEnable, &mut enable)?;
        // From here on it is given back whatever happens.
        let mut sampling = Self {
            library: Rc::clone(library),
            object: enable.pPmSamplingObject,
            host,
            names: pointers(&setup.metrics),
            image: Vec::new(),
            values: vec![0.0; setup.metrics.len()],
        };
        sampling.configure(setup)?;
        let mut start = cupti::CUpti_PmSampling_Start_Params {
            structSize: 24,
            pPriv: null_mut(),
            pPmSamplingObject: sampling.object,
        };
        call(library.cupti.cuptiPmSamplingStart, &mut start)?;
        Ok(sampling)
    }

    fn configure(&mut self, setup: &Setup) -> Result<(), Fault> {
        use cupti::CUpti_PmSampling_HardwareBuffer_AppendMode as Append;
        use cupti::CUpti_PmSampling_TriggerMode as Trigger;
        let mut config = cupti::CUpti_PmSampling_SetConfig_Params {
            structSize: SET_CONFIG,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
            configSize: setup.config.len(),
            pConfig: setup.config.as_ptr(),
            hardwareBufferSize: setup.buffer,
            samplingInterval: setup.interval,
            triggerMode: if setup.by_time {
                Trigger::CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL
            } else {
                Trigger::CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL
            },
            // What is lost is then said; and Turing knows no other.
            hwBufferAppendMode: Append::CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST,
        };
        call(self.library.cupti.cuptiPmSamplingSetConfig, &mut config)?;
        let mut size = cupti::CUpti_PmSampling_GetCounterDataSize_Params {
            structSize: 56,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
            pMetricNames: self.names.as_mut_ptr(),
            numMetrics: self.names.len(),
            maxSamples: setup.batch,
            counterDataSize: 0,
        };
        call(self.library.cupti.cuptiPmSamplingGetCounterDataSize, &mut size)?;
        self.image = vec![0; size.counterDataSize];
        Ok(())
    }

    /// Decodes what was sampled, as much as fits a batch, and hands each sample on: start and end on the device's
    /// clock in nanoseconds, and the metrics' values.
    pub(in crate::cupti) fn decode(
        &mut self,
        each: &mut dyn FnMut(u64, u64, &[f64]),
    ) -> Result<Decoded, Fault> {
        let mut clear = cupti::CUpti_PmSampling_CounterDataImage_Initialize_Params {
            structSize: 40,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
            counterDataSize: self.image.len(),
            pCounterData: self.image.as_mut_ptr(),
        };
        call(self.library.cupti.cuptiPmSamplingCounterDataImageInitialize, &mut clear)?;
        let mut decode = cupti::CUpti_PmSampling_DecodeData_Params {
            structSize: DECODE,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
            pCounterDataImage: self.image.as_mut_ptr(),
            counterDataImageSize: self.image.len(),
            decodeStopReason:
                cupti::CUpti_PmSampling_DecodeStopReason::CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER,
            overflow: 0,
        };
        let overflow = match call(self.library.cupti.cuptiPmSamplingDecodeData, &mut decode) {
            // So the header: records overflowed in the hardware's buffer. What had found room may be decoded.
            Err(Fault::OUT_OF_MEMORY) => true,
            other => other.map(|()| decode.overflow != 0)?,
        };
        let reason = (&raw const decode.decodeStopReason).cast::<u32>();
        // SAFETY: a field of a local, read as the number that the library wrote, whether it has a name here or not.
        let reason = unsafe { reason.read() };
        let full =
            cupti::CUpti_PmSampling_DecodeStopReason::CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
        let completed = match self.completed() {
            Err(_) if overflow => 0,
            completed => completed?,
        };
        for index in 0..completed {
            let (start, end) = self.stretch(index)?;
            self.host.evaluate(&self.image, index, &mut self.names, &mut self.values)?;
            each(start, end, &self.values);
        }
        Ok(Decoded { overflow, more: reason == full as u32 })
    }

    fn completed(&self) -> Result<usize, Fault> {
        let mut params = cupti::CUpti_PmSampling_GetCounterDataInfo_Params {
            structSize: 56,
            pPriv: null_mut(),
            pCounterDataImage: self.image.as_ptr(),
            counterDataImageSize: self.image.len(),
            numTotalSamples: 0,
            numPopulatedSamples: 0,
            numCompletedSamples: 0,
        };
        call(self.library.cupti.cuptiPmSamplingGetCounterDataInfo, &mut params)?;
        Ok(params.numCompletedSamples)
    }

    fn stretch(&self, index: usize) -> Result<(u64, u64), Fault> {
        let mut params = cupti::CUpti_PmSampling_CounterData_GetSampleInfo_Params {
            structSize: 64,
            pPriv: null_mut(),
            pPmSamplingObject: self.object,
            pCounterDataImage: self.image.as_ptr(),
            counterDataImageSize: self.image.len(),
            sampleIndex: index,
            startTimestamp: 0,
            endTimestamp: 0,
        };
        call(self.library.cupti.cuptiPmSamplingCounterDataGetSampleInfo, &mut params)?;
        Ok((params.startTimestamp, params.endTimestamp))
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let object = self.object;
        let mut stop = cupti::CUpti_PmSampling_Stop_Params {
            structSize: 24,
            pPriv: null_mut(),
            pPmSamplingObject: object,
        };
        // Refused if it never started, or has been taken away.
        if let Err(fault) = call(self.library.cupti.cuptiPmSamplingStop, &mut stop) {
            tracing::debug!(%fault, "PM sampling was not stopped");
        }
        let mut disable = cupti::CUpti_PmSampling_Disable_Params {
            structSize: 24,
            pPriv: null_mut(),
            pPmSamplingObject: object,
        };
        if let Err(fault) = call(self.library.cupti.cuptiPmSamplingDisable, &mut disable) {
            tracing::debug!(%fault, "PM sampling was not disabled");
        }
    }
}
