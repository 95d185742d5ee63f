//! A case of the matrix: a device, its programs, and who holds it.

use crate::program::Program;

/// How the devices are made and shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Processes take turns.
    Turns,
    /// Processes run at once, and the driver lists their server only.
    Mps,
    /// So many MIG instances of one slice each.
    Mig(u32),
}

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// A container of a pod, both by number.
    Pod(u32, u32),
    /// The host's.
    Host,
}

/// A process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Whose.
    pub whose: Whose,
    /// What it does on which device (a whole one, or an instance), by number.
    pub programs: Vec<(usize, Program)>,
    /// The part of the device's threads that MPS lets it use, in percent, if its environment says so.
    pub threads: Option<u32>,
    /// Whether probes see what it asks for.
    pub watched: bool,
}

/// What a container holds, by the id that the allocator gives it: `{gpu}` and `{mig}` stand for the device's own.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The pod and its container.
    pub to: (u32, u32),
    /// The device, by number.
    pub device: usize,
    /// Its id's form.
    pub id: &'static str,
}

/// A case.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// GPUs.
    pub gpus: u32,
    /// How they are shared.
    pub sharing: Sharing,
    /// In how many replicas each device is offered; 0 for whole ones.
    pub replicas: u32,
    /// Its processes.
    pub processes: Vec<Process>,
    /// Who holds what.
    pub grants: Vec<Grant>,
}

impl Case {
    /// Pods 0, 1, … on a device in as many replicas as there are, each with one process that runs its program.
    pub fn pods(name: &'static str, sharing: Sharing, programs: &[Program]) -> Self {
        let count = u32::try_from(programs.len()).unwrap();
        let numbered = (0..count).zip(programs);
        let processes = numbered.map(|(pod, program)| Process::of(Whose::Pod(pod, 0), 0, *program)).collect();
        let grants = (0..count).map(|pod| Grant { to: (pod, 0), device: 0, id: "{gpu}::{n}" }).collect();
        Self { name, gpus: 1, sharing, replicas: count, processes, grants }
    }
}

impl Process {
    /// One that runs `program` on `device`.
    pub fn of(whose: Whose, device: usize, program: Program) -> Self {
        Self { whose, programs: vec![(device, program)], threads: None, watched: true }
    }

    /// When its first program begins.
    pub fn begins(&self) -> u64 {
        self.programs.iter().map(|(_, program)| program.begins).min().unwrap_or(0)
    }
}
