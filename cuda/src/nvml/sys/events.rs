//! Faults that the driver reports by itself.

use std::rc::Rc;

use nvml_wrapper_sys::bindings as nvml;

use super::{Device, Library, call, zeroed};
use crate::nvml::Fault;

/// A set of devices whose critical errors are queued until they are asked for.
#[derive(Debug)]
pub(crate) struct EventSet {
    library: Rc<Library>,
    handle: nvml::nvmlEventSet_t,
}

impl EventSet {
    /// A set with no device in it.
    pub(crate) fn new(library: &Rc<Library>) -> Result<Self, Fault> {
        let mut handle = std::ptr::null_mut();
        call!(library, nvmlEventSetCreate(&raw mut handle))?;
        Ok(Self { library: Rc::clone(library), handle })
    }

    /// Adds a device's critical errors.
    pub(crate) fn register(&self, device: &Device) -> Result<(), Fault> {
        let kinds = u64::from(nvml::nvmlEventTypeXidCriticalError);
        call!(self.library, nvmlDeviceRegisterEvents(device.handle, kinds, self.handle))
    }

    /// The next critical error that is queued: its device and its XID. Waits a millisecond at most.
    pub(crate) fn next(&self) -> Result<Option<(Device, u64)>, Fault> {
        let mut event: nvml::nvmlEventData_t = zeroed();
        match call!(self.library, nvmlEventSetWait_v2(self.handle, &raw mut event, 1)) {
            Ok(()) => Ok(Some((self.library.adopt(event.device), event.eventData))),
            Err(Fault::TIMEOUT) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        if let Err(fault) = call!(self.library, nvmlEventSetFree(self.handle)) {
            tracing::debug!(%fault, "event set was not freed");
        }
    }
}
