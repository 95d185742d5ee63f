//! A GPU whose SM figures come from sampling its performance monitor.

use warpmeter_core::fact::Part;
use warpmeter_core::inventory::MemoryBus;
use warpmeter_core::time::Interval;

use super::Gpu;
use crate::cupti::{Peak, PmSampling, Samples};
use crate::gpm::{Levels, Links};

impl Gpu {
    /// Whether the performance monitor is to give the SM figures; decided once, whether it can be had just now or not.
    pub(super) fn choose_samples(&mut self, wanted: Option<&PmSampling>) -> bool {
        let Some(wanted) = wanted else { return false };
        let Ok(architecture) = self.device.architecture() else { return false };
        if !wanted.wants(architecture, self.info.id.as_str(), &self.info.pci_bus_id) {
            return false;
        }
        if self.in_mig_mode() {
            // One monitor for all: what it counts is no instance's.
            let reason = "PM sampling: not in MIG mode, in which all instances share the performance monitor";
            self.lasting.insert(reason.to_owned());
            return false;
        }
        self.peak = self.info.memory_bus.map(|MemoryBus { clock_mhz, bits }| Peak { clock_mhz, bits });
        self.samples = Some(Samples::default());
        true
    }

    /// Whether it is.
    pub(crate) const fn is_sampled(&self) -> bool {
        self.samples.is_some()
    }

    /// Has its monitor's samples collected; what is collected waits for the next reading.
    /// It gives what is missing.
    pub(crate) fn collect(&mut self, collect: impl FnOnce(&mut Samples, Option<Peak>) -> Option<String>) {
        let Some(samples) = self.samples.as_mut() else { return };
        self.unsampled = collect(samples, self.peak).map(|why| format!("PM sampling: {why}"));
    }

    /// Gives a stretch the SM figures of the monitor, if that is the authority. None stand in for what it does not
    /// know: an authority is not exchanged for one stretch.
    pub(super) fn sample(&mut self, during: Interval, part: &mut Part) {
        let Some(samples) = self.samples.as_mut() else { return };
        let Levels { engine: _, sm_active, sm_occupied, tensor, dram, pipes } = samples.over(during);
        (part.sm_active, part.sm_occupied, part.tensor, part.dram) = (sm_active, sm_occupied, tensor, dram);
        part.pipes = pipes;
    }

    /// The traffic of the board: the monitor's where nothing else gives it.
    pub(super) fn traffic(&self, links: Links) -> Links {
        match &self.samples {
            Some(samples) if links.pcie_receive.is_none() && links.pcie_transmit.is_none() => {
                let Links { pcie_receive, pcie_transmit, .. } = samples.links();
                Links { pcie_receive, pcie_transmit, ..links }
            }
            _ => links,
        }
    }
}
