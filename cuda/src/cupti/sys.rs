//! The calls into libcupti, and those into libcuda that it takes to start it.
//!
//! Libraries are opened by absolute path, and every function is looked up before any is called. Structures are
//! cudarc's; its functions are not used, since they panic where a library or a symbol is missing, and take results
//! as enumerations, which a newer library could overstep.
//!
//! Why the calls are sound: signatures are those of the headers, with results as numbers. Parameter structures are
//! locals that live over the call, state their size, and point only to buffers of the lengths that they state, which
//! live over the call too. Objects are those that the library gave, freed once, by their owners' `Drop`. All calls
//! come from one thread.
#![allow(unsafe_code, reason = "calls into NVIDIA's libraries")]
#![allow(non_snake_case, reason = "functions have the library's names")]

mod host;
mod sampling;

use std::ffi::{CStr, c_char};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use cudarc::cupti::sys as cupti;
use libloading::os::unix::{self, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::fault::Fault;

pub(super) use host::Host;
pub(super) use sampling::{Sampling, Setup};

/// The oldest interface whose sampling has all that is used here: that of CUDA 12.8.
const OLDEST: u32 = 26;

/// The library cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// It is none, or something that it needs is missing.
    #[error("open {}: {source}", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// Why.
        source: libloading::Error,
    },
    /// A function is missing.
    #[error("{} has no {name}: name the CUPTI of CUDA 12.8 or later in [cupti] libraries", path.display())]
    Symbol {
        /// The file.
        path: PathBuf,
        /// The function.
        name: &'static str,
    },
    /// It is too old.
    #[error(
        "{} is of interface version {version}, and {OLDEST} or later is needed: name the CUPTI of CUDA 12.8 or later \
         in [cupti] libraries",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it calls itself.
        version: u32,
    },
    /// The driver's CUDA library does not start.
    #[error("{}: cuInit gives {status}: allow this process to open /dev/nvidia-uvm and /dev/nvidia*", path.display())]
    Driver {
        /// The file.
        path: PathBuf,
        /// A `CUresult`.
        status: u32,
    },
    /// It does not start.
    #[error("{}: {fault}", path.display())]
    Start {
        /// The file.
        path: PathBuf,
        /// Why.
        fault: Fault,
    },
}

/// A function of CUPTI that takes one structure of parameters.
type Call<T> = unsafe extern "C" fn(*mut T) -> u32;

/// Functions by their names, all of them there.
macro_rules! functions {
    ($table:ident: $($name:ident($($argument:ty),*);)*) => {
        #[derive(Debug)]
        struct $table { $($name: unsafe extern "C" fn($($argument),*) -> u32,)* }

        impl $table {
            fn look_up(library: &unix::Library, path: &Path) -> Result<Self, OpenError> {
                Ok(Self { $($name: {
                    const NAME: &str = concat!(stringify!($name), "\0");
                    // SAFETY: the type is the function's, as published.
                    match unsafe { library.get(NAME.as_bytes()) } {
                        Ok(symbol) => *symbol,
                        Err(_absent) => {
                            return Err(OpenError::Symbol { path: path.to_owned(), name: stringify!($name) });
                        }
                    }
                },)* })
            }
        }
    };
}

functions! { Cuda:
    cuInit(u32);
    cuDeviceGetCount(*mut i32);
    cuDeviceGet(*mut i32, i32);
    cuDeviceGetPCIBusId(*mut c_char, i32, i32);
}

functions! { Cupti:
    cuptiGetVersion(*mut u32);
    cuptiProfilerInitialize(*mut cupti::CUpti_Profiler_Initialize_Params);
    cuptiDeviceGetChipName(*mut cupti::CUpti_Device_GetChipName_Params);
    cuptiProfilerHostInitialize(*mut cupti::CUpti_Profiler_Host_Initialize_Params);
    cuptiProfilerHostDeinitialize(*mut cupti::CUpti_Profiler_Host_Deinitialize_Params);
    cuptiProfilerHostConfigAddMetrics(*mut cupti::CUpti_Profiler_Host_ConfigAddMetrics_Params);
    cuptiProfilerHostGetConfigImageSize(*mut cupti::CUpti_Profiler_Host_GetConfigImageSize_Params);
    cuptiProfilerHostGetConfigImage(*mut cupti::CUpti_Profiler_Host_GetConfigImage_Params);
    cuptiProfilerHostGetNumOfPasses(*mut cupti::CUpti_Profiler_Host_GetNumOfPasses_Params);
    cuptiProfilerHostEvaluateToGpuValues(*mut cupti::CUpti_Profiler_Host_EvaluateToGpuValues_Params);
    cuptiPmSamplingGetCounterAvailability(*mut cupti::CUpti_PmSampling_GetCounterAvailability_Params);
    cuptiPmSamplingEnable(*mut cupti::CUpti_PmSampling_Enable_Params);
    cuptiPmSamplingDisable(*mut cupti::CUpti_PmSampling_Disable_Params);
    cuptiPmSamplingSetConfig(*mut cupti::CUpti_PmSampling_SetConfig_Params);
    cuptiPmSamplingStart(*mut cupti::CUpti_PmSampling_Start_Params);
    cuptiPmSamplingStop(*mut cupti::CUpti_PmSampling_Stop_Params);
    cuptiPmSamplingGetCounterDataSize(*mut cupti::CUpti_PmSampling_GetCounterDataSize_Params);
    cuptiPmSamplingCounterDataImageInitialize(*mut cupti::CUpti_PmSampling_CounterDataImage_Initialize_Params);
    cuptiPmSamplingDecodeData(*mut cupti::CUpti_PmSampling_DecodeData_Params);
    cuptiPmSamplingGetCounterDataInfo(*mut cupti::CUpti_PmSampling_GetCounterDataInfo_Params);
    cuptiPmSamplingCounterDataGetSampleInfo(*mut cupti::CUpti_PmSampling_CounterData_GetSampleInfo_Params);
}

/// Calls a function with its structure of parameters, which may have changed when it returns.
fn call<T>(function: Call<T>, params: &mut T) -> Result<(), Fault> {
    // SAFETY: as argued at the head of this module.
    Fault::check(unsafe { function(params) })
}

/// What `structSize` is to be: up to the end of the last field, without the padding after it.
macro_rules! size {
    ($type:ident, $last:ident: $of:ty) => {
        std::mem::offset_of!(cupti::$type, $last) + size_of::<$of>()
    };
}

const _: () = {
    assert!(SET_CONFIG == cupti::PmSampling_SetConfig_Params_STRUCT_SIZE as usize);
    assert!(DECODE == cupti::PmSampling_DecodeData_Params_STRUCT_SIZE as usize);
    assert!(size_of::<cupti::CUpti_Profiler_Host_Initialize_Params>() == 48);
    assert!(size_of::<cupti::CUpti_Profiler_Host_EvaluateToGpuValues_Params>() == 72);
    assert!(size_of::<cupti::CUpti_PmSampling_CounterData_GetSampleInfo_Params>() == 64);
    assert!(size_of::<cupti::CUpti_PmSampling_GetCounterDataInfo_Params>() == 56);
};
const SET_CONFIG: usize = size!(CUpti_PmSampling_SetConfig_Params, hwBufferAppendMode: u32);
const DECODE: usize = size!(CUpti_PmSampling_DecodeData_Params, overflow: u8);

/// An open library. It stays open for the life of the process: once it or the driver's was started, whether that went
/// well or not, neither can be closed safely.
#[derive(Debug)]
pub(super) struct Library {
    cuda: Cuda,
    cupti: Cupti,
    cuda_path: PathBuf,
    path: PathBuf,
    _open: ManuallyDrop<Vec<unix::Library>>,
}

impl Library {
    /// Opens the driver's CUDA library and CUPTI, and starts neither. If anything is missing, all is closed again.
    pub(super) fn open(cuda_path: &Path, path: &Path) -> Result<Self, OpenError> {
        // Everybody's, so that CUPTI finds this one by its name, wherever it is.
        let cuda_library = load(cuda_path, RTLD_GLOBAL)?;
        let cuda = Cuda::look_up(&cuda_library, cuda_path)?;
        let mut open = vec![cuda_library];
        for part in ["libnvperf_target.so", "libnvperf_host.so"] {
            // CUPTI looks for them by name, too; where it does not need them, they are not there.
            let beside = path.with_file_name(part);
            if beside.is_file() {
                open.push(load(&beside, RTLD_GLOBAL)?);
            }
        }
        let cupti_library = load(path, RTLD_LOCAL)?;
        let cupti = Cupti::look_up(&cupti_library, path)?;
        open.push(cupti_library);
        let mut version = 0;
        // SAFETY: as argued at the head of this module; the pointer is a local's.
        let answer = Fault::check(unsafe { (cupti.cuptiGetVersion)(&raw mut version) });
        answer.map_err(|fault| OpenError::Start { path: path.to_owned(), fault })?;
        if version < OLDEST {
            return Err(OpenError::Version { path: path.to_owned(), version });
        }
        let (cuda_path, path) = (cuda_path.to_owned(), path.to_owned());
        Ok(Self { cuda, cupti, cuda_path, path, _open: ManuallyDrop::new(open) })
    }

    /// Starts the driver's CUDA library and CUPTI. Makes no context. What fails may be tried again.
    pub(super) fn start(&self) -> Result<(), OpenError> {
        // SAFETY: as argued at the head of this module; 0 is the only value of the flags.
        let status = unsafe { (self.cuda.cuInit)(0) };
        if status != 0 {
            return Err(OpenError::Driver { path: self.cuda_path.clone(), status });
        }
        let mut params = cupti::CUpti_Profiler_Initialize_Params { structSize: 16, pPriv: null_mut() };
        let answer = call(self.cupti.cuptiProfilerInitialize, &mut params);
        answer.map_err(|fault| OpenError::Start { path: self.path.clone(), fault })
    }

    /// The PCI bus ids of the devices that CUDA shows to this process, by ordinal.
    pub(super) fn devices(&self) -> Vec<String> {
        let mut count = 0;
        // SAFETY: as argued at the head of this module; the pointer is a local's.
        if unsafe { (self.cuda.cuDeviceGetCount)(&raw mut count) } != 0 {
            return Vec::new();
        }
        let place = |ordinal| {
            let (mut device, mut text) = (0, [0_u8; 32]);
            // SAFETY: as above.
            if unsafe { (self.cuda.cuDeviceGet)(&raw mut device, ordinal) } != 0 {
                return String::new();
            }
            // SAFETY: as above; the buffer is as long as is said.
            if unsafe { (self.cuda.cuDeviceGetPCIBusId)(text.as_mut_ptr().cast(), 32, device) } != 0 {
                return String::new();
            }
            CStr::from_bytes_until_nul(&text)
                .map(|text| text.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        (0..count).map(place).collect()
    }

    /// The name of a device's chip, such as `GA100`.
    pub(super) fn chip(&self, device: usize) -> Result<String, Fault> {
        let mut params = cupti::CUpti_Device_GetChipName_Params {
            structSize: 32,
            pPriv: null_mut(),
            deviceIndex: device,
            pChipName: std::ptr::null(),
        };
        call(self.cupti.cuptiDeviceGetChipName, &mut params)?;
        if params.pChipName.is_null() {
            return Err(Fault::INVALID_METRIC_NAME);
        }
        // SAFETY: not null, and a zero-terminated text of the library's own.
        Ok(unsafe { CStr::from_ptr(params.pChipName) }.to_string_lossy().into_owned())
    }

    /// What a device's monitor can count now, as the host side wants it. Refused while another has it.
    pub(super) fn availability(&self, device: usize) -> Result<Vec<u8>, Fault> {
        let mut params = cupti::CUpti_PmSampling_GetCounterAvailability_Params {
            structSize: 40,
            pPriv: null_mut(),
            deviceIndex: device,
            counterAvailabilityImageSize: 0,
            pCounterAvailabilityImage: null_mut(),
        };
        call(self.cupti.cuptiPmSamplingGetCounterAvailability, &mut params)?;
        let mut image = vec![0; params.counterAvailabilityImageSize];
        params.pCounterAvailabilityImage = image.as_mut_ptr();
        call(self.cupti.cuptiPmSamplingGetCounterAvailability, &mut params)?;
        Ok(image)
    }
}

fn load(path: &Path, visibility: i32) -> Result<unix::Library, OpenError> {
    // SAFETY: NVIDIA's libraries, whose initialisers have no precondition; whether the file is such a library at all
    // is the administrator's word, who named the directory.
    let opened = unsafe { unix::Library::open(Some(path), RTLD_NOW | visibility) };
    opened.map_err(|source| OpenError::Load { path: path.to_owned(), source })
}

fn pointers(names: &[&'static CStr]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}
