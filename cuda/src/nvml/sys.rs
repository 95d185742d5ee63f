//! The calls themselves.
//!
//! Every call goes through [`call!`], which states once what makes it sound:
//!
//! - the library is open and initialised, because whoever calls holds an `Rc<Library>`, and dropping the last one
//!   is what shuts it down;
//! - handles come from that same library, because each type that holds one also holds its `Rc<Library>`;
//! - every pointer passed is to a local or to a buffer that outlives the call and is as long as the length passed
//!   with it; NVML keeps no pointer after returning;
//! - the library is used from one thread (`Rc` is not `Send`), though NVML is documented to be thread-safe.

#![allow(unsafe_code, reason = "the one layer that calls into the driver's library")]

mod events;
mod gauges;
mod gpm;
mod mig;
mod processes;

use std::ffi::c_char;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as nvml;
use warpmeter_core::inventory::Driver;

use super::Fault;

pub(crate) use events::EventSet;
pub(crate) use gauges::Clock;
pub(crate) use gpm::{GpmBuffer, GpmSample, Values};
pub(crate) use mig::{Attributes, Profile};
pub(crate) use processes::{List, Listed, ProcessUtilization, RingSample};

/// Calls one function of the library, by the name of its symbol.
macro_rules! call {
    ($library:expr, $symbol:ident ( $($argument:expr),* $(,)? )) => {
        match $library.functions().$symbol.as_ref() {
            Err(_absent) => Err($crate::nvml::Fault::FUNCTION_NOT_FOUND),
            // SAFETY: the library is initialised, handles are its own, and pointers are valid for the lengths
            // given with them, as the documentation of this module argues.
            Ok(function) => $crate::nvml::Fault::check(unsafe { function($($argument),*) }),
        }
    };
}
use call;

/// The library could not be opened, or refused to start.
#[derive(Debug, thiserror::Error)]
#[error("open {}: {source}", path.display())]
pub(crate) struct OpenError {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Why not.
    pub(crate) source: NvmlError,
}

/// An open and initialised library. Shut down and closed when the last handle that it gave is dropped.
#[derive(Debug)]
pub(crate) struct Library {
    nvml: Nvml,
}

impl Library {
    /// Opens the library in this file and initialises it.
    pub(crate) fn open(path: &Path) -> Result<Rc<Self>, OpenError> {
        let nvml = Nvml::builder()
            .lib_path(path.as_os_str())
            .init()
            .map_err(|source| OpenError { path: path.to_owned(), source })?;
        if nvml.lib().nvmlShutdown.is_err() {
            // Dropping it would panic for want of that symbol, so it stays open: no real library is like this.
            let _kept = ManuallyDrop::new(nvml);
            return Err(OpenError { path: path.to_owned(), source: NvmlError::FunctionNotFound });
        }
        Ok(Rc::new(Self { nvml }))
    }

    fn functions(&self) -> &nvml::NvmlLib {
        self.nvml.lib()
    }

    /// The versions of the driver and of the library.
    pub(crate) fn versions(&self) -> Result<Driver, Fault> {
        let cuda = self.nvml.sys_cuda_driver_version().ok().filter(|version| *version > 0);
        Ok(Driver {
            version: self.nvml.sys_driver_version()?,
            nvml: self.nvml.sys_nvml_version().ok(),
            cuda: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
        })
    }

    /// How many GPUs there are, including those that may not be used.
    pub(crate) fn device_count(&self) -> Result<u32, Fault> {
        Ok(self.nvml.device_count()?)
    }

    /// The GPU at this position.
    pub(crate) fn device(self: &Rc<Self>, index: u32) -> Result<Device, Fault> {
        let mut handle = std::ptr::null_mut();
        call!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut handle))?;
        Ok(self.adopt(handle))
    }

    fn adopt(self: &Rc<Self>, handle: nvml::nvmlDevice_t) -> Device {
        Device { library: Rc::clone(self), handle }
    }
}

/// A GPU or a MIG instance.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    library: Rc<Library>,
    handle: nvml::nvmlDevice_t,
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.library, &other.library) && self.handle == other.handle
    }
}

impl Device {
    /// `GPU-…` or `MIG-…`.
    pub(crate) fn uuid(&self) -> Result<String, Fault> {
        // NVML_DEVICE_UUID_V2_BUFFER_SIZE
        let mut text = [0; 96];
        call!(self.library, nvmlDeviceGetUUID(self.handle, text.as_mut_ptr(), 96))?;
        Ok(string(&text))
    }

    /// The product's name; for a MIG instance with ` MIG ` and its profile after it.
    pub(crate) fn name(&self) -> Result<String, Fault> {
        // NVML_DEVICE_NAME_V2_BUFFER_SIZE
        let mut text = [0; 96];
        call!(self.library, nvmlDeviceGetName(self.handle, text.as_mut_ptr(), 96))?;
        Ok(string(&text))
    }

    /// The `N` of `/dev/nvidiaN`.
    pub(crate) fn minor(&self) -> Result<u32, Fault> {
        let mut minor = 0;
        call!(self.library, nvmlDeviceGetMinorNumber(self.handle, &raw mut minor))?;
        Ok(minor)
    }

    /// The PCI bus id, such as `00000000:17:00.0`.
    pub(crate) fn pci_bus_id(&self) -> Result<String, Fault> {
        let mut pci: nvml::nvmlPciInfo_t = zeroed();
        call!(self.library, nvmlDeviceGetPciInfo_v3(self.handle, &raw mut pci))?;
        Ok(string(&pci.busId))
    }
}

/// Text up to its terminating zero; what is not UTF-8 is replaced, since this is only shown.
fn string(text: &[c_char]) -> String {
    let bytes: Vec<u8> =
        text.iter().take_while(|byte| **byte != 0).map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The value a versioned structure carries in its `version` field: its size, and its version in the top byte.
#[allow(clippy::cast_possible_truncation, reason = "sizes of structures of a few hundred bytes")]
const fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// A structure of C for which all bytes zero is a valid value.
///
/// # Safety
///
/// It consists of integers, floats, raw pointers and arrays, unions and structures of these.
unsafe trait Plain {}

fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` promises that all zero is a value of T.
    unsafe { std::mem::zeroed() }
}

macro_rules! plain {
    ($($type:ident),* $(,)?) => { $(
        // SAFETY: a bindgen structure of integers, floats, raw pointers, and arrays and unions of these.
        unsafe impl Plain for nvml::$type {}
    )* };
}
plain!(
    nvmlPciInfo_t,
    nvmlMemory_t,
    nvmlMemory_v2_t,
    nvmlUtilization_t,
    nvmlFieldValue_t,
    nvmlEventData_t,
    nvmlSample_t,
    nvmlProcessInfo_v1_t,
    nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationSample_t,
    nvmlDeviceAttributes_t,
    nvmlGpuInstanceInfo_t,
    nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t,
    nvmlGpmMetric_t,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_its_zero_and_bad_bytes_are_replaced() {
        let mut text = [0; 8];
        for (to, from) in text.iter_mut().zip(b" ab\xff") {
            *to = c_char::from_ne_bytes([*from]);
        }
        assert_eq!(string(&text), "ab\u{fffd}");
        assert_eq!(string(&[]), "");
    }

    #[test]
    fn versions_are_size_and_number() {
        assert_eq!(version::<nvml::nvmlMemory_v2_t>(2), 0x0200_0028);
    }
}
