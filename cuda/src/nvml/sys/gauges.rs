//! Gauges and counters of one device.

use nvml_wrapper_sys::bindings as nvml;
use warpmeter_core::inventory::Link;

use super::{Device, call, version, zeroed};
use crate::nvml::Fault;

/// Which clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Of the SMs.
    Sm,
    /// Of the memory.
    Memory,
}

/// Rows of memory that were replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remapped {
    /// For corrected errors.
    pub(crate) correctable: u32,
    /// For uncorrected errors.
    pub(crate) uncorrectable: u32,
    /// A replacement waits for a reset.
    pub(crate) pending: bool,
    /// A replacement failed.
    pub(crate) failed: bool,
}

impl Device {
    /// Power now, in mW.
    pub(crate) fn power(&self) -> Result<u32, Fault> {
        let mut value = 0;
        call!(self.library, nvmlDeviceGetPowerUsage(self.handle, &raw mut value))?;
        Ok(value)
    }

    /// The power limit in force, in mW.
    pub(crate) fn power_limit(&self) -> Result<u32, Fault> {
        let mut value = 0;
        call!(self.library, nvmlDeviceGetEnforcedPowerLimit(self.handle, &raw mut value))?;
        Ok(value)
    }

    /// Energy since the driver was loaded, in mJ.
    pub(crate) fn energy(&self) -> Result<u64, Fault> {
        let mut value = 0;
        call!(self.library, nvmlDeviceGetTotalEnergyConsumption(self.handle, &raw mut value))?;
        Ok(value)
    }

    /// Temperature of the GPU, in °C.
    pub(crate) fn temperature(&self) -> Result<u32, Fault> {
        let mut value = 0;
        let sensor = nvml::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU;
        call!(self.library, nvmlDeviceGetTemperature(self.handle, sensor, &raw mut value))?;
        Ok(value)
    }

    /// Temperature of the memory, in °C.
    pub(crate) fn memory_temperature(&self) -> Result<u64, Fault> {
        self.field(nvml::field_id::NVML_FI_DEV_MEMORY_TEMP, 0)
    }

    /// NVLink payload transmitted and received over all links since the driver was loaded, in KiB.
    pub(crate) fn nvlink_kib(&self) -> Result<(u64, u64), Fault> {
        // Scope u32::MAX stands for the sum over all links.
        let transmitted = self.field(nvml::field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, u32::MAX)?;
        let received = self.field(nvml::field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, u32::MAX)?;
        Ok((transmitted, received))
    }

    /// The generation of the GPU, by NVML's number.
    pub(crate) fn architecture(&self) -> Result<u32, Fault> {
        let mut value = 0;
        call!(self.library, nvmlDeviceGetArchitecture(self.handle, &raw mut value))?;
        Ok(value)
    }

    /// The highest clock of the memory, in MHz.
    pub(crate) fn highest_memory_clock(&self) -> Result<u32, Fault> {
        let mut value = 0;
        let which = nvml::nvmlClockType_enum_NVML_CLOCK_MEM;
        call!(self.library, nvmlDeviceGetMaxClockInfo(self.handle, which, &raw mut value))?;
        Ok(value)
    }

    /// The width of the memory's bus, in bits.
    pub(crate) fn memory_bus_bits(&self) -> Result<u32, Fault> {
        let mut value = 0;
        call!(self.library, nvmlDeviceGetMemoryBusWidth(self.handle, &raw mut value))?;
        Ok(value)
    }

    /// The best link that the device and its host can have.
    pub(crate) fn best_link(&self) -> Result<Link, Fault> {
        let (mut generation, mut lanes) = (0, 0);
        call!(self.library, nvmlDeviceGetMaxPcieLinkGeneration(self.handle, &raw mut generation))?;
        call!(self.library, nvmlDeviceGetMaxPcieLinkWidth(self.handle, &raw mut lanes))?;
        Ok(Link { generation, lanes })
    }

    /// A clock, in MHz.
    pub(crate) fn clock(&self, clock: Clock) -> Result<u32, Fault> {
        let which = match clock {
            Clock::Sm => nvml::nvmlClockType_enum_NVML_CLOCK_SM,
            Clock::Memory => nvml::nvmlClockType_enum_NVML_CLOCK_MEM,
        };
        let mut value = 0;
        call!(self.library, nvmlDeviceGetClockInfo(self.handle, which, &raw mut value))?;
        Ok(value)
    }

    /// Why clocks are held down, as the driver's bits. The function has had two names.
    pub(crate) fn throttle(&self) -> Result<u64, Fault> {
        let mut value = 0;
        match call!(self.library, nvmlDeviceGetCurrentClocksEventReasons(self.handle, &raw mut value)) {
            Err(Fault::FUNCTION_NOT_FOUND) => {
                call!(self.library, nvmlDeviceGetCurrentClocksThrottleReasons(self.handle, &raw mut value))?;
            }
            other => other?,
        }
        Ok(value)
    }

    /// Memory in use and in total, in bytes. The newer form does not count what the driver reserves as used.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Fault> {
        let mut memory: nvml::nvmlMemory_v2_t = zeroed();
        memory.version = version::<nvml::nvmlMemory_v2_t>(2);
        match call!(self.library, nvmlDeviceGetMemoryInfo_v2(self.handle, &raw mut memory)) {
            Err(fault) if fault.is_unsupported() => {
                let mut memory: nvml::nvmlMemory_t = zeroed();
                call!(self.library, nvmlDeviceGetMemoryInfo(self.handle, &raw mut memory))?;
                Ok((memory.used, memory.total))
            }
            other => other.map(|()| (memory.used, memory.total)),
        }
    }

    /// PCIe replays since the driver was loaded.
    pub(crate) fn pcie_replays(&self) -> Result<u32, Fault> {
        let mut value = 0;
        call!(self.library, nvmlDeviceGetPcieReplayCounter(self.handle, &raw mut value))?;
        Ok(value)
    }

    /// ECC errors since the driver was loaded: corrected, uncorrected.
    pub(crate) fn ecc_errors(&self) -> Result<(u64, u64), Fault> {
        let corrected = self.ecc(nvml::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED)?;
        let uncorrected = self.ecc(nvml::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED)?;
        Ok((corrected, uncorrected))
    }

    fn ecc(&self, kind: nvml::nvmlMemoryErrorType_t) -> Result<u64, Fault> {
        let mut value = 0;
        let since = nvml::nvmlEccCounterType_enum_NVML_VOLATILE_ECC;
        call!(self.library, nvmlDeviceGetTotalEccErrors(self.handle, kind, since, &raw mut value))?;
        Ok(value)
    }

    /// Remapped rows.
    pub(crate) fn remapped(&self) -> Result<Remapped, Fault> {
        let [mut correctable, mut uncorrectable, mut pending, mut failed] = [0; 4];
        call!(
            self.library,
            nvmlDeviceGetRemappedRows(
                self.handle,
                &raw mut correctable,
                &raw mut uncorrectable,
                &raw mut pending,
                &raw mut failed,
            )
        )?;
        Ok(Remapped { correctable, uncorrectable, pending: pending != 0, failed: failed != 0 })
    }

    /// The driver's own average of engine activity over its last period, in percent.
    pub(crate) fn utilization(&self) -> Result<u32, Fault> {
        let mut rates: nvml::nvmlUtilization_t = zeroed();
        call!(self.library, nvmlDeviceGetUtilizationRates(self.handle, &raw mut rates))?;
        Ok(rates.gpu)
    }

    /// One value by its field number; the field has a status of its own.
    fn field(&self, id: u32, scope: u32) -> Result<u64, Fault> {
        let mut field: nvml::nvmlFieldValue_t = zeroed();
        field.fieldId = id;
        field.scopeId = scope;
        call!(self.library, nvmlDeviceGetFieldValues(self.handle, 1, &raw mut field))?;
        Fault::check(field.nvmlReturn)?;
        integer(field.valueType, field.value).ok_or(Fault::UNKNOWN)
    }
}

/// A tagged value as an integer, if it is one. Negative values keep their bits and fall to the range checks.
pub(super) fn integer(kind: nvml::nvmlValueType_t, value: nvml::nvmlValue_t) -> Option<u64> {
    match kind {
        nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT
        | nvml::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => {
            // SAFETY: every bit pattern is a u32, and the union is at least that long and fully initialised,
            // since it was zeroed before the call.
            Some(u64::from(unsafe { value.uiVal }))
        }
        nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG
        | nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        | nvml::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => {
            // SAFETY: as above for u64; `long` has 64 bits on every platform that the driver exists for.
            Some(unsafe { value.ullVal })
        }
        nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => {
            // SAFETY: as above for u16.
            Some(u64::from(unsafe { value.usVal }))
        }
        _ => None,
    }
}
