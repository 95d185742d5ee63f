//! Why a call was refused, and what that means for the rest.

use std::fmt;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as nvml;

/// A call's status other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) nvml::nvmlReturn_t);

impl Fault {
    pub(crate) const NOT_FOUND: Self = Self(nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    pub(crate) const FUNCTION_NOT_FOUND: Self = Self(nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND);
    pub(crate) const NO_PERMISSION: Self = Self(nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION);
    pub(crate) const TIMEOUT: Self = Self(nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT);
    pub(crate) const UNKNOWN: Self = Self(nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN);

    /// Nothing for success, otherwise the fault.
    pub(crate) const fn check(code: nvml::nvmlReturn_t) -> Result<(), Self> {
        if code == nvml::nvmlReturn_enum_NVML_SUCCESS { Ok(()) } else { Err(Self(code)) }
    }

    /// The device or the driver does not offer this, and will not a second later either.
    pub(crate) const fn is_unsupported(self) -> bool {
        matches!(
            self.0,
            nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
                | nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND
                | nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION
                | nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT
                | nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH
                | nvml::nvmlReturn_enum_NVML_ERROR_DEPRECATED
        )
    }

    /// This device gives nothing any more; others may.
    pub(crate) const fn is_device_down(self) -> bool {
        matches!(
            self.0,
            nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST
                | nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED
                | nvml::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND
        )
    }

    /// The driver has been unloaded or exchanged: every handle is worthless.
    pub(crate) const fn is_driver_gone(self) -> bool {
        matches!(
            self.0,
            nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED
                | nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED
                | nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH
        )
    }

    /// Why a device or the driver is down, in a few words.
    pub(crate) fn reason(self) -> String {
        match self.0 {
            nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED => "reloaded".to_owned(),
            nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => "lost".to_owned(),
            nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => "reset required".to_owned(),
            nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => "no permission".to_owned(),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NvmlError::from(self.0).fmt(f)
    }
}

impl std::error::Error for Fault {}

impl From<NvmlError> for Fault {
    fn from(error: NvmlError) -> Self {
        // The wrapper's own errors have no code of their own and become "unknown".
        match error {
            NvmlError::FailedToLoadSymbol(_) => Self::FUNCTION_NOT_FOUND,
            other => Self(other.into()),
        }
    }
}
