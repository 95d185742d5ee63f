//! One GPU: what it can say, found out once, and what it says at each poll.

use std::collections::BTreeSet;
use std::time::Duration;

use warpmeter_core::fact::{Board, Fact, Level, Part, ProcessUse, Reading};
use warpmeter_core::identity::{GpuId, MigId};
use warpmeter_core::inventory::{self, Authority, Counter};
use warpmeter_core::time::{Interval, MonoNs};

use crate::clock::{self, Wall};
use crate::gpm::{self, Gives, Levels, Links, Pair, Sampler};
use crate::mig::Layout;
use crate::nvml::Fault;
use crate::nvml::sys::{Device, GpmBuffer, GpmSample, Profile};
use crate::process_use::Cursor;
use crate::sieve::Sieve;
use crate::support::{Answer, Ask, Support};
use crate::{board, processes, ring};

/// GPM's samples must be more than 100 ms apart.
const GPM_APART: u64 = 100_000_000;
/// The pause between samples while learning: the same with room for the scheduler.
pub(crate) const LEARNING_PAUSE: Duration = Duration::from_millis(110);

/// What all GPUs of a poll share.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) buffer: GpmBuffer,
    pub(crate) sieve: Sieve,
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
        let mut gpu = Self {
            info: inventory::Gpu {
                id: GpuId::new(uuid),
                index: Some(index),
                minor: device.minor().ok(),
                pci_bus_id: pci_bus_id.to_owned(),
                model: device.name().unwrap_or_default(),
                memory_bytes: None,
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
            Err(fault) => self.give_up_gpm(fault),
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
        if let Some(links) = self.links.as_mut() {
            links.learn(&mut tools.buffer);
        }
        if self.links.as_ref().is_some_and(|links| links.ids().is_empty()) {
            self.links = None;
        }
        for pair in self.pairs() {
            pair.start(&mut tools.buffer);
        }
        self.choose();
    }

    fn pairs(&mut self) -> impl Iterator<Item = &mut Pair> {
        self.parts.iter_mut().filter_map(|unit| unit.pair.as_mut()).chain(self.links.as_mut())
    }

    fn give_up_gpm(&mut self, fault: Fault) {
        self.support.note(fault);
        self.lasting.insert(format!("GPM: {fault}"));
        self.links = None;
        for unit in &mut self.parts {
            unit.pair = None;
        }
    }

    fn in_mig_mode(&self) -> bool {
        self.info.mig.is_some()
    }

    /// Chooses the authorities, once.
    fn choose(&mut self) {
        let gives = self.parts.iter().find_map(|unit| unit.pair.as_ref()).map(Pair::gives);
        self.engine = if gives.is_some() {
            Engine::Gpm
        } else if !self.in_mig_mode() && self.has_ring() {
            Engine::Ring
        } else {
            Engine::Nothing
        };
        self.info.authority = authority(self.engine, gives.unwrap_or_default(), self.cursor.is_some());
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
        self.missing.iter().chain(&self.lasting)
    }

    /// The GPU's device.
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    /// The end of its last reading.
    pub(crate) const fn end(&self) -> MonoNs {
        self.end
    }

    /// A reading without values from `start` to where this GPU's own readings begin: it was divided anew meanwhile.
    pub(crate) fn bridge(&self, start: MonoNs) -> Option<Fact> {
        let during = Interval::new(start, self.end)?;
        let parts = self.parts.iter().map(|unit| part(unit, Levels::default())).collect();
        let reading = Reading { gpu: self.info.id.clone(), during, board: Board::default(), parts };
        Some(Fact::Reading(Box::new(reading)))
    }

    /// One round: the facts in order, and the fault that ended all conversation, if one did.
    pub(crate) fn poll(&mut self, tools: &mut Tools) -> (Vec<Fact>, Option<Fault>) {
        self.missing.clear();
        if self.engine == Engine::Gpm && clock::now().since(self.end) < GPM_APART {
            return (Vec::new(), None);
        }
        // Counters first and all at once, so that the instances' intervals agree to within the calls themselves.
        let faults: Vec<Fault> = self.pairs().filter_map(|pair| pair.sample().err()).collect();
        let now = clock::now();
        let wall = Wall::read();
        for fault in faults {
            self.gpm_failed(fault);
        }
        let (levels, links) = self.measure(tools);
        let board = board::read(&self.device, links, &mut self.support, now, &mut tools.sieve);
        let mut parts: Vec<Part> =
            self.parts.iter().zip(levels).map(|(unit, levels)| part(unit, levels)).collect();
        for (position, part) in parts.iter_mut().enumerate() {
            self.occupy(position, part, &board, now, tools);
        }
        let mut facts = self.readings(board, parts, wall, now, tools);
        facts.extend(self.process_use(wall, now, tools));
        let fatal = self.support.fatal().or_else(|| self.parts.iter().find_map(|unit| unit.support.fatal()));
        (facts, fatal)
    }

    fn gpm_failed(&mut self, fault: Fault) {
        self.support.note(fault);
        self.missing.insert(format!("GPM: {fault}"));
        self.disturbed |= self.in_mig_mode();
    }

    fn measure(&mut self, tools: &mut Tools) -> (Vec<Levels>, Links) {
        let mut faults = Vec::new();
        let mut all = Vec::with_capacity(self.parts.len());
        let mut links = Links::default();
        for unit in &mut self.parts {
            let measured = unit.pair.as_mut().map(|pair| pair.measure(&mut tools.buffer, &mut tools.sieve));
            all.push(match measured {
                None => Levels::default(),
                Some(Ok((levels, of_whole))) => {
                    links = if unit.mig.is_none() { of_whole } else { links };
                    levels
                }
                Some(Err(fault)) => {
                    faults.push(fault);
                    Levels::default()
                }
            });
        }
        if let Some(pair) = self.links.as_mut() {
            match pair.measure(&mut tools.buffer, &mut tools.sieve) {
                Ok((_, of_board)) => links = of_board,
                Err(fault) => faults.push(fault),
            }
        }
        for fault in faults {
            self.gpm_failed(fault);
        }
        (all, links)
    }

    /// Memory, processes and the second opinion on engine activity.
    fn occupy(&mut self, position: usize, part: &mut Part, board: &Board, now: MonoNs, tools: &mut Tools) {
        let Some(unit) = self.parts.get_mut(position) else { return };
        let Some(device) = unit.device.as_ref() else { return };
        if unit.mig.is_none() {
            part.memory_used = board.memory_used;
            // Where the ring is the authority this would be the same counter again.
            if self.engine == Engine::Gpm {
                let utilization = self.support.ask(Ask::Utilization, now, || device.utilization()).said();
                part.corroboration = utilization.and_then(|percent| tools.sieve.percent(u64::from(percent)));
            }
        } else {
            part.memory_used = board::memory(device, &mut unit.support, now, &mut tools.sieve).0;
        }
        match processes::holders(device, &mut unit.support, now, &mut tools.sieve) {
            Answer::Said(holders) => {
                unit.listed = true;
                part.processes = Some(holders);
            }
            answer => {
                if let Answer::Failed(fault) = answer {
                    self.missing.insert(format!("process list: {fault}"));
                }
                self.disturbed |= unit.mig.is_some() && unit.listed;
            }
        }
    }

    fn readings(
        &mut self,
        board: Board,
        parts: Vec<Part>,
        wall: Wall,
        now: MonoNs,
        tools: &mut Tools,
    ) -> Vec<Fact> {
        let mut pieces: Vec<(Interval, Option<Level>)> = match self.engine {
            Engine::Gpm | Engine::Nothing => {
                Interval::new(self.end, now).map(|during| (during, None)).into_iter().collect()
            }
            Engine::Ring => {
                let since = wall.micros(self.end);
                let samples = self.support.ask(Ask::Ring, now, || self.device.utilization_ring(since));
                if let Answer::Failed(fault) = samples {
                    self.missing.insert(format!("utilisation samples: {fault}"));
                }
                let samples = match samples {
                    Answer::Said(samples) => samples,
                    Answer::Unsupported | Answer::Failed(_) => Vec::new(),
                };
                ring::readings(self.end, &samples, wall, now, tools.period, &mut tools.sieve)
            }
        };
        let Some((during, level)) = pieces.pop() else { return Vec::new() };
        let mut facts: Vec<Fact> =
            pieces.into_iter().map(|(during, level)| self.engine_only(during, level.as_ref())).collect();
        let mut parts = parts;
        if let (Engine::Ring, [part]) = (self.engine, parts.as_mut_slice()) {
            part.engine = level;
        }
        self.end = during.end();
        facts.push(Fact::Reading(Box::new(Reading { gpu: self.info.id.clone(), during, board, parts })));
        facts
    }

    /// A reading of the past: the present's gauges and processes are not its.
    fn engine_only(&self, during: Interval, level: Option<&Level>) -> Fact {
        let levels = || Levels { engine: level.cloned(), ..Levels::default() };
        let parts = self.parts.iter().map(|unit| part(unit, levels())).collect();
        Fact::Reading(Box::new(Reading { gpu: self.info.id.clone(), during, board: Board::default(), parts }))
    }

    fn process_use(&mut self, wall: Wall, now: MonoNs, tools: &mut Tools) -> Option<Fact> {
        let cursor = self.cursor.as_mut()?;
        let since = cursor.since(wall);
        match self.support.ask(Ask::ProcessUse, now, || self.device.process_utilization(since)) {
            Answer::Said(returned) => {
                let (until, samples) = cursor.take(&returned, wall, now, tools.period, &mut tools.sieve);
                Some(Fact::ProcessUse(ProcessUse { gpu: self.info.id.clone(), until, samples }))
            }
            Answer::Unsupported => None,
            Answer::Failed(fault) => {
                self.missing.insert(format!("process utilisation: {fault}"));
                None
            }
        }
    }
}

fn part(unit: &Unit, levels: Levels) -> Part {
    Part {
        mig: unit.mig.clone(),
        engine: levels.engine,
        corroboration: None,
        sm_active: levels.sm_active,
        sm_occupied: levels.sm_occupied,
        tensor: levels.tensor,
        dram: levels.dram,
        memory_used: None,
        processes: None,
    }
}

/// Which counter is believed for which quantity.
fn authority(engine: Engine, gpm: Gives, process_use: bool) -> Authority {
    Authority {
        engine: match engine {
            Engine::Gpm => gpm.engine.then_some(Counter::Gpm),
            Engine::Ring => Some(Counter::UtilizationSamples),
            Engine::Nothing => None,
        },
        sm: match gpm {
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
        let hopper = authority(Engine::Gpm, Gives { engine: true, sm_active: true, sm_cycles: true }, true);
        assert_eq!((hopper.engine, hopper.sm), (Some(Counter::Gpm), Some(Counter::GpmCycles)));
        let averages =
            authority(Engine::Gpm, Gives { engine: true, sm_active: true, sm_cycles: false }, true);
        assert_eq!(averages.sm, Some(Counter::Gpm));
        let old = authority(Engine::Ring, Gives::default(), true);
        assert_eq!((old.engine, old.sm), (Some(Counter::UtilizationSamples), None));
        assert_eq!(old.processes, Some(Counter::ProcessUtilization));
        assert_eq!(authority(Engine::Nothing, Gives::default(), false), Authority::default());
    }
}
