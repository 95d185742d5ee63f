//! What one GPU says at each poll.

use warpmeter_core::fact::{Board, Fact, Level, Part, ProcessUse, Reading};
use warpmeter_core::time::{Interval, MonoNs};

use super::{Engine, Gpu, Tools, Unit};
use crate::clock::{self, Wall};
use crate::gpm::{Levels, Links};
use crate::nvml::Fault;
use crate::support::{Answer, Ask};
use crate::{board, processes, ring};

/// GPM's samples must be more than 100 ms apart.
const GPM_APART: u64 = 100_000_000;

impl Gpu {
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
        // So soon after it was opened, too.
        if self.engine != Engine::Ring && clock::now().since(self.end) < GPM_APART {
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
        let links = self.traffic(links);
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
        if let [part] = parts.as_mut_slice() {
            self.sample(during, part);
        }
        self.end = during.end();
        facts.push(Fact::Reading(Box::new(Reading { gpu: self.info.id.clone(), during, board, parts })));
        facts
    }

    /// A reading of the past: the present's gauges and processes are not its.
    fn engine_only(&mut self, during: Interval, level: Option<&Level>) -> Fact {
        let levels = || Levels { engine: level.cloned(), ..Levels::default() };
        let mut parts: Vec<Part> = self.parts.iter().map(|unit| part(unit, levels())).collect();
        if let [part] = parts.as_mut_slice() {
            self.sample(during, part);
        }
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
        pipes: levels.pipes,
        memory_used: None,
        processes: None,
    }
}
