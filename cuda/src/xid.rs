//! Faults that the driver reports by itself: each one a fact, as often as it happened.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::gpu::Gpu;
use crate::nvml::Fault;
use crate::nvml::sys::{Device, EventSet, Library};
use crate::report::{Outlet, Report};

/// More faults in one round are a storm, of which the rest can wait for the next.
const MOST: usize = 256;

/// The queue of faults of all GPUs.
#[derive(Debug)]
pub(crate) struct Queue {
    set: Option<EventSet>,
    /// Bus ids of the GPUs in the set.
    watched: BTreeSet<String>,
    refused: Option<Fault>,
}

impl Queue {
    /// A queue with no GPU in it.
    pub(crate) fn new(library: &Rc<Library>) -> Self {
        let (set, refused) = match EventSet::new(library) {
            Ok(set) => (Some(set), None),
            Err(fault) => (None, Some(fault)),
        };
        Self { set, watched: BTreeSet::new(), refused }
    }

    /// Adds a GPU, unless it is there already.
    pub(crate) fn watch(&mut self, gpu: &Gpu, outlet: &mut Outlet<'_>) {
        let name = &gpu.info.pci_bus_id;
        let Some(set) = self.set.as_ref().filter(|_| !self.watched.contains(name)) else { return };
        match outlet.touching(name, || set.register(gpu.device())) {
            Ok(()) => {
                self.watched.insert(name.clone());
            }
            // A GPU that is gone is reported as that.
            Err(fault) if fault.is_device_down() => {}
            Err(fault) => self.refused = Some(fault),
        }
    }

    /// Forgets a GPU that is down: when it is back it has to be added anew.
    pub(crate) fn forget(&mut self, pci_bus_id: &str) {
        self.watched.remove(pci_bus_id);
    }

    /// All that is queued. A set that fails is replaced by a new one without GPUs: one with a lost GPU in it may
    /// answer for none.
    pub(crate) fn drain(&mut self, library: &Rc<Library>, outlet: &mut Outlet<'_>) -> Vec<(Device, u64)> {
        let mut faults = Vec::new();
        while let Some(set) = self.set.as_ref().filter(|_| faults.len() < MOST) {
            match outlet.touching(Report::DRIVER, || set.next()) {
                Ok(Some(fault)) => faults.push(fault),
                Ok(None) => break,
                Err(fault) => {
                    tracing::debug!(%fault, "the queue of faults is made anew");
                    *self = Self::new(library);
                    break;
                }
            }
        }
        faults
    }

    /// Why faults are not reported, if they are not.
    pub(crate) const fn refused(&self) -> Option<Fault> {
        self.refused
    }
}
