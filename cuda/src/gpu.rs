//! One GPU: what it can say, found out once. What it says is in [`poll`].

mod poll;
mod sampled;

use std::collections::BTreeSet;
use std::time::Duration;

use warpmeter_core::identity::{GpuId, MigId};
use warpmeter_core::inventory::{self, Authority, Counter, MemoryBus};
use warpmeter_core::time::MonoNs;

use crate::board;
use crate::clock::{self, Wall};
use crate::cupti::{Peak, PmSampling, Samples};
use crate::gpm::{self, Gives, Pair, Sampler};
use crate::mig::Layout;
use crate::nvml::Fault;
use crate::nvml::sys::{Device, GpmBuffer, GpmSample, Profile};
use crate::process_use::Cursor;
use crate::sieve::Sieve;
use crate::support::{Answer, Ask, Support};

/// The pause between samples while learning: more than the 100 ms that GPM demands.
pub(crate) const LEARNING_PAUSE: Duration = Duration::from_millis(110);

/// What all GPUs of a poll share.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) buffer: GpmBuffer,
    pub(crate) sieve: Sieve,
    /// What is wanted of performance monitors, if anything is.
    pub(crate) wanted: Option<PmSampling>,
    /// Whether DCGM's exporter gives the SM figures of devices for which nothing else does.
    pub(crate) dcgm: bool,
    /// Nanoseconds between polls.
    pub(crate) period: u64,
}

/// Where engine activity comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Gpm,
    Ring,
    Nothing,
}

/// A GPU that answers.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// As the inventory lists it.
    pub(crate) info: inventory::Gpu,
    device: Device,
    support: Support,
    engine: Engine,
    parts: Vec<Unit>,
    /// In MIG mode, the traffic of the board as a whole.
    links: Option<Pair>,
    /// The sample from which learning starts.
    oldest: Option<GpmSample>,
    profiles: Vec<Profile>,
    cursor: Option<Cursor>,
    /// What its performance monitor counted, if that is its authority of SM figures.
    samples: Option<Samples>,
    /// Why there is nothing new in it, or less than could be.
    unsampled: Option<String>,
    /// What bounds its memory traffic, if it says.
    peak: Option<Peak>,
    /// The end of the last reading.
    end: MonoNs,
    missing: BTreeSet<String>,
    lasting: BTreeSet<String>,
    disturbed: bool,
}

/// The GPU itself, or one of its instances.
#[derive(Debug)]
struct Unit {
    mig: Option<MigId>,
    /// None for a GPU instance that has no compute instance and hence no device.
    device: Option<Device>,
    pair: Option<Pair>,
    support: Support,
    /// Whether its processes were ever listed: if they are not any more, the layout has changed.
    listed: bool,
}

impl Gpu {
    /// Asks for everything that does not change. Learning has to follow before the first poll.
    pub(crate) fn open(device: Device, pci_bus_id: &str, index: u32) -> Result<Self, Fault> {
        let uuid = device.uuid()?;
        let now = clock::now();
        let clock = device.highest_memory_clock().ok();
        let bus = clock.zip(device.memory_bus_bits().ok());
        let mut gpu = Self {
            info: inventory::Gpu {
                id: GpuId::new(uuid),
                index: Some(index),
                minor: device.minor().ok(),
                pci_bus_id: pci_bus_id.to_owned(),
                model: device.name().unwrap_or_default(),
                memory_bytes: None,
                memory_bus: bus.map(|(clock_mhz, bits)| MemoryBus { clock_mhz, bits }),
                link: device.best_link().ok(),
                down: None,
                mig: None,
                authority: Authority::default(),
            },
            device,
            support: Support::default(),
            engine: Engine::Nothing,
            parts: Vec::new(),
            links: None,
            oldest: None,
            profiles: Vec::new(),
            cursor: None,
            samples: None,
            unsampled: None,
            peak: None,
            end: now,
            missing: BTreeSet::new(),
            lasting: BTreeSet::new(),
            disturbed: false,
        };
        let (_, total) = board::memory(&gpu.device, &mut gpu.support, now, &mut Sieve::default());
        gpu.info.memory_bytes = total;
        if gpu.device.mig_mode()? {
            gpu.open_instances()?;
        } else {
            gpu.open_whole(now)?;
        }
        gpu.support.fatal().map_or(Ok(gpu), Err)
    }

    fn open_whole(&mut self, now: MonoNs) -> Result<(), Fault> {
        let mut pair = None;
        if self.device.gpm_supported()? {
            let ids: Vec<u32> = gpm::COMPUTE.into_iter().chain(gpm::LINKS).collect();
            pair = Pair::new(Sampler::Own(self.device.clone()), &ids).ok();
        }
        self.parts = vec![Unit {
            mig: None,
            device: Some(self.device.clone()),
            pair,
            support: Support::default(),
            listed: false,
        }];
        let since = Wall::read().micros(now);
        if let Answer::Said(_) =
            self.support.ask(Ask::ProcessUse, now, || self.device.process_utilization(since))
        {
            self.cursor = Some(Cursor::new(now));
        }
        Ok(())
    }

    fn open_instances(&mut self) -> Result<(), Fault> {
        self.profiles = self.device.profiles()?;
        let layout = Layout::read(&self.device, &self.profiles)?;
        if !layout.complete {
            self.lasting.insert("GPU instances cannot be listed: run as root".to_owned());
        }
        let supported = self.device.gpm_supported()?
            || layout.devices.iter().flatten().any(|device| device.gpm_supported().unwrap_or(false));
        if supported {
            self.links = Pair::new(Sampler::Own(self.device.clone()), &gpm::LINKS).ok();
        }
        let instances = layout.mig.instances.iter();
        let alone = |id: u32| instances.clone().filter(|other| other.gpu_instance == id).count() == 1;
        self.parts = instances
            .clone()
            .zip(layout.devices)
            .map(|(instance, device)| {
                let sampler = device.clone().map(|device| {
                    // Through the GPU only if the GPU instance is one compute instance, and the driver can.
                    if alone(instance.gpu_instance) && self.samples_instances(instance.gpu_instance) {
                        Sampler::Instance(self.device.clone(), instance.gpu_instance)
                    } else {
                        Sampler::Own(device)
                    }
                });
                let pair =
                    sampler.filter(|_| supported).and_then(|sampler| Pair::new(sampler, &gpm::COMPUTE).ok());
                Unit {
                    mig: Some(instance.id.clone()),
                    device,
                    pair,
                    support: Support::default(),
                    listed: false,
                }
            })
            .collect();
        self.info.mig = Some(layout.mig);
        Ok(())
    }

    fn samples_instances(&self, gpu_instance: u32) -> bool {
        let Ok(mut sample) = self.device.gpm_alloc() else { return false };
        self.device.gpm_sample_instance(gpu_instance, &mut sample).is_ok()
    }

    /// Whether there is something to learn that takes time.
    pub(crate) fn has_gpm(&self) -> bool {
        self.parts.iter().any(|unit| unit.pair.is_some())
    }

    /// The first of three samples, [`LEARNING_PAUSE`] apart.
    pub(crate) fn learn_first(&mut self) {
        let Some(pair) = self.parts.iter().find_map(|unit| unit.pair.as_ref()) else { return };
        match pair.extra() {
            Ok(sample) => self.oldest = Some(sample),
            Err(fault) => {
                self.support.note(fault);
                self.give_up_gpm(&fault.to_string());
            }
        }
    }

    /// The second.
    pub(crate) fn learn_second(&mut self, tools: &mut Tools) {
        for pair in self.pairs() {
            // A fault shows again at the third.
            if pair.sample().is_ok() {
                pair.start(&mut tools.buffer);
            }
        }
    }

    /// The third; then it is known what the GPU gives.
    pub(crate) fn learn_third(&mut self, tools: &mut Tools) {
        for unit in &mut self.parts {
            let fault = unit.pair.as_mut().and_then(|pair| pair.sample().err());
            if let Some(fault) = fault.filter(|fault| fault.is_unsupported()) {
                self.lasting.insert(format!("GPM: {fault}"));
                unit.pair = None;
            }
        }
        // In MIG mode a driver may give GPM of the instances and not of the board; nothing is wrong then.
        if self.links.as_mut().is_some_and(|links| links.sample().is_err()) {
            self.links = None;
        }
        self.end = clock::now();
        let oldest = self.oldest.take();
        let mut learnt: Option<(Vec<u32>, Option<gpm::Cycles>)> = None;
        for unit in &mut self.parts {
            let Some(pair) = unit.pair.as_mut() else { continue };
            let (ids, cycles) = learnt.get_or_insert_with(|| {
                pair.learn(&mut tools.buffer);
                let cycles = oldest.as_ref().and_then(|oldest| pair.learn_cycles(oldest, &mut tools.buffer));
                (pair.ids().to_vec(), cycles)
            });
            pair.adopt(ids, *cycles);
        }
        if learnt.is_some_and(|(ids, _)| ids.is_empty()) {
            self.give_up_gpm("no metric is given");
        }
        if let Some(links) = self.links.as_mut() {
            links.learn(&mut tools.buffer);
        }
        if self.links.as_ref().is_some_and(|links| links.ids().is_empty()) {
            self.links = None;
        }
        for pair in self.pairs() {
            pair.start(&mut tools.buffer);
        }
        self.choose(tools.wanted.as_ref(), tools.dcgm);
    }

    fn pairs(&mut self) -> impl Iterator<Item = &mut Pair> {
        self.parts.iter_mut().filter_map(|unit| unit.pair.as_mut()).chain(self.links.as_mut())
    }

    fn give_up_gpm(&mut self, reason: &str) {
        self.lasting.insert(format!("GPM: {reason}"));
        self.links = None;
        for unit in &mut self.parts {
            unit.pair = None;
        }
    }

    fn in_mig_mode(&self) -> bool {
        self.info.mig.is_some()
    }

    /// Chooses the authorities, once.
    fn choose(&mut self, wanted: Option<&PmSampling>, dcgm: bool) {
        let gives = self.parts.iter().find_map(|unit| unit.pair.as_ref()).map(Pair::gives);
        self.engine = if gives.is_some() {
            Engine::Gpm
        } else if !self.in_mig_mode() && self.has_ring() {
            Engine::Ring
        } else {
            if !self.in_mig_mode() {
                self.lasting.insert("no counter of engine activity".to_owned());
            }
            Engine::Nothing
        };
        let sampled = self.choose_samples(wanted);
        let gives = gives.unwrap_or_default();
        let authority = authority(self.engine, gives, sampled, self.cursor.is_some());
        let sm = authority.sm.or(dcgm.then_some(Counter::Dcgm));
        self.info.authority = Authority { sm, ..authority };
    }

    fn has_ring(&mut self) -> bool {
        let since = Wall::read().micros(self.end);
        let answer = self.support.ask(Ask::Ring, self.end, || self.device.utilization_ring(since));
        !matches!(answer, Answer::Unsupported)
    }

    /// Whether the GPU is still as it was opened; the driver's answer for its place is `device`.
    pub(crate) fn refresh(&mut self, device: &Device) -> Result<bool, Fault> {
        if *device != self.device || device.uuid()? != self.info.id.as_str() {
            return Ok(false);
        }
        if self.device.mig_mode()? != self.in_mig_mode() {
            return Ok(false);
        }
        let Some(known) = self.info.mig.as_mut() else { return Ok(true) };
        let layout = Layout::read(&self.device, &self.profiles)?;
        let same = layout.mig.instances == known.instances && !self.disturbed;
        *known = layout.mig;
        Ok(same)
    }

    /// Whether a call to an instance failed in a way that suggests a new layout.
    pub(crate) const fn disturbed(&self) -> bool {
        self.disturbed
    }

    /// What it should give and does not.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &String> {
        self.missing.iter().chain(&self.lasting).chain(&self.unsampled)
    }

    /// The GPU's device.
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    /// The end of its last reading.
    pub(crate) const fn end(&self) -> MonoNs {
        self.end
    }
}

/// Which counter is believed for which quantity. Who wants the performance monitor sampled wants its figures.
fn authority(engine: Engine, gpm: Gives, sampled: bool, process_use: bool) -> Authority {
    Authority {
        engine: match engine {
            Engine::Gpm => gpm.engine.then_some(Counter::Gpm),
            Engine::Ring => Some(Counter::UtilizationSamples),
            Engine::Nothing => None,
        },
        sm: match gpm {
            _ if sampled => Some(Counter::PmSampling),
            Gives { sm_cycles: true, .. } => Some(Counter::GpmCycles),
            Gives { sm_active: true, .. } => Some(Counter::Gpm),
            Gives { .. } => None,
        },
        processes: process_use.then_some(Counter::ProcessUtilization),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_its_own_authorities() {
        let all = Gives { engine: true, sm_active: true, sm_cycles: true };
        let hopper = authority(Engine::Gpm, all, false, true);
        assert_eq!((hopper.engine, hopper.sm), (Some(Counter::Gpm), Some(Counter::GpmCycles)));
        let on_request = authority(Engine::Gpm, all, true, true);
        assert_eq!((on_request.engine, on_request.sm), (Some(Counter::Gpm), Some(Counter::PmSampling)));
        let averages = authority(Engine::Gpm, Gives { sm_cycles: false, ..all }, false, true);
        assert_eq!(averages.sm, Some(Counter::Gpm));
        let sampled = authority(Engine::Ring, Gives::default(), true, true);
        assert_eq!(
            (sampled.engine, sampled.sm),
            (Some(Counter::UtilizationSamples), Some(Counter::PmSampling))
        );
        let old = authority(Engine::Ring, Gives::default(), false, true);
        assert_eq!((old.engine, old.sm), (Some(Counter::UtilizationSamples), None));
        assert_eq!(old.processes, Some(Counter::ProcessUtilization));
        assert_eq!(authority(Engine::Nothing, Gives::default(), false, false), Authority::default());
    }
}
