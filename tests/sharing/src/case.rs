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

/// What the probes tell of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// What it asks for.
    Watched,
    /// That it is not watched.
    Unwatched,
    /// That its pod refuses probes.
    Refused,
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
    pub watch: Watch,
    /// Whether it has taken the name of an MPS server.
    pub disguised: bool,
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
    /// How much of the device's computing time the scheduler has noted for it, in percent: then that counts, and not
    /// the slot of the id.
    pub share: Option<u32>,
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
        let grants = (0..count).map(|pod| Grant::of((pod, 0), 0, "{gpu}::{n}")).collect();
        Self { name, gpus: 1, sharing, replicas: count, processes, grants }
    }
}

impl Grant {
    /// One that holds what its id says.
    pub const fn of(to: (u32, u32), device: usize, id: &'static str) -> Self {
        Self { to, device, id, share: None }
    }
}

impl Process {
    /// One that runs `program` on `device`.
    pub fn of(whose: Whose, device: usize, program: Program) -> Self {
        Self::on(whose, &[(device, program)])
    }

    /// One that runs programs on several devices.
    pub fn on(whose: Whose, programs: &[(usize, Program)]) -> Self {
        let programs = programs.to_vec();
        Self { whose, programs, threads: None, watch: Watch::Watched, disguised: false }
    }

    /// When its first program begins.
    pub fn begins(&self) -> u64 {
        self.programs.iter().map(|(_, program)| program.begins).min().unwrap_or(0)
    }
}
