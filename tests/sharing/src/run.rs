//! Runs a case on the simulator's device model, and takes down what sources would report of it.

mod description;
mod names;
mod reports;
mod worker;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use warpmeter_core::fact::{Fact, Sample, Source};
use warpmeter_core::identity::{DeviceId, GpuId, HostPid, MigId, ProcessId};
use warpmeter_core::time::MonoNs;
use warpmeter_simgpu::layout::{LogRecord, Totals};
use warpmeter_simgpu::{Guard, Node, Scenario};

pub use self::names::owner;
use self::names::{number, pid};
use self::worker::Worker;
use crate::case::{Case, Sharing};
use crate::{MS, SECOND};

/// How long a case runs, in seconds: as many windows.
pub const SECONDS: u64 = 12;
/// When the run begins on the timeline of its facts.
pub const BEGIN: u64 = 100 * SECOND;
/// Snapshots of the probes end so long after the driver's readings.
const SNAPSHOT: u64 = 130 * MS;

/// When the model's device was busy for whom, and what was launched when.
#[derive(Debug, Clone)]
pub struct Busy {
    /// By device: the process's number, from when, until when.
    pub intervals: Vec<Vec<(usize, u64, u64)>>,
    /// By device: what each process launched.
    pub launches: Vec<Vec<Launches>>,
}

/// What a process launched on a device.
#[derive(Debug, Clone)]
pub struct Launches {
    /// The process, by number.
    pub process: usize,
    /// Its launches in order: when, and how long each runs.
    pub kernels: Vec<(u64, u64)>,
    /// When it ends.
    pub ends: u64,
}

/// A run of a case.
#[derive(Debug, Clone)]
pub struct Run {
    /// What was reported, whoever by.
    pub facts: Vec<Sample>,
    /// What the model logged.
    pub busy: Busy,
    /// The devices, by number, each with how much of its GPU it is: slices of so many.
    pub devices: Vec<(DeviceId, (u64, u64))>,
}

/// Runs it.
pub fn run(case: &Case) -> Run {
    let instances = match case.sharing {
        Sharing::Mig(count) => count,
        Sharing::Turns | Sharing::Mps => 0,
    };
    let profiles = vec![r#"{ profile = "1g.10gb" }"#; usize::try_from(instances).unwrap()].join(", ");
    let text = format!(
        "[oracle]\nmerge_gap_us = 0\n[[gpu]]\nmodel = \"H100\"\ncount = {}\nmps = {}\nmig = [{profiles}]\n",
        case.gpus,
        case.sharing == Sharing::Mps,
    );
    let dir = tempfile::tempdir().unwrap();
    warpmeter_simgpu::create(dir.path(), &Scenario::parse(&text).unwrap()).unwrap();
    let node = Node::open(dir.path()).unwrap();
    let mut guard = node.lock();
    let mut recorder = Recorder::new(case, &guard);
    recorder.begin(&guard);
    recorder.all(&mut guard);
    recorder.finish(&mut guard)
}

struct Recorder<'c> {
    case: &'c Case,
    epoch: u64,
    workers: Vec<Worker>,
    devices: Vec<(DeviceId, (u64, u64))>,
    /// The GPU of each device, by number.
    gpus: Vec<usize>,
    facts: Vec<Sample>,
    intervals: Vec<Vec<(usize, u64, u64)>>,
    last: Vec<Totals>,
    told: Vec<u64>,
}

/// What happens at a time, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Reading,
    Snapshot,
    Worker(usize),
}

impl<'c> Recorder<'c> {
    fn new(case: &'c Case, guard: &Guard<'_>) -> Self {
        let mut devices = Vec::new();
        let mut gpus = Vec::new();
        for engine in guard.engine.iter().take(guard.engines as usize) {
            let gpu = GpuId::new(guard.device[engine.device as usize].uuid.as_str());
            let uuid = engine.uuid.as_str();
            let mig = (!uuid.is_empty()).then(|| MigId::new(uuid));
            let part = if mig.is_some() { (u64::from(engine.slices), 7) } else { (1, 1) };
            devices.push((DeviceId { gpu, mig }, part));
            gpus.push(engine.device as usize);
        }
        let count = devices.len();
        Self {
            case,
            epoch: guard.epoch,
            workers: Worker::all(case),
            devices,
            gpus,
            facts: Vec::new(),
            intervals: vec![Vec::new(); count],
            last: vec![Totals::default(); count],
            told: vec![0; usize::try_from(case.gpus).unwrap()],
        }
    }

    /// A time of the run on the timeline of its facts.
    fn at(now: u64) -> u64 {
        BEGIN + now
    }

    fn tell(&mut self, now: u64, source: Source, fact: Fact) {
        self.facts.push(Sample { at: MonoNs(Self::at(now)), source, fact });
    }

    /// A process's identity in the facts.
    fn id(&self, process: usize) -> ProcessId {
        let begins = self.case.processes[process].begins();
        ProcessId { pid: HostPid(pid(process)), start: MonoNs(Self::at(begins)) }
    }

    /// Lets everything happen.
    fn all(&mut self, guard: &mut Guard<'_>) {
        let mut queue: BinaryHeap<Reverse<(u64, Event)>> = BinaryHeap::new();
        for (number, worker) in self.workers.iter().enumerate() {
            queue.push(Reverse((worker.program.begins, Event::Worker(number))));
            queue.extend(worker.program.dies.map(|dies| Reverse((dies, Event::Worker(number)))));
        }
        queue.push(Reverse((SECOND, Event::Reading)));
        queue.push(Reverse((SNAPSHOT, Event::Snapshot)));
        while let Some(Reverse((now, event))) = queue.pop() {
            if now > SECONDS * SECOND + SNAPSHOT {
                break;
            }
            match event {
                Event::Reading => {
                    self.read(guard, now);
                    queue.push(Reverse((now + SECOND, event)));
                }
                Event::Snapshot => {
                    self.snapshot(now);
                    queue.push(Reverse((now + SECOND, event)));
                }
                Event::Worker(number) => {
                    let next = self.step(guard, number, now);
                    queue.extend(next.map(|next| Reverse((next, event))));
                }
            }
            self.drain(guard);
        }
    }

    /// Takes the log's records out of shared memory.
    fn drain(&mut self, guard: &mut Guard<'_>) {
        let waiting = guard.logged as usize;
        for LogRecord { engine, pid, start, end, busy } in guard.log.iter().take(waiting).copied() {
            assert_eq!(busy, end - start, "a log that merges no gaps");
            self.intervals[engine as usize].push((number(pid), start - self.epoch, end - self.epoch));
        }
        guard.logged = 0;
        assert_eq!(guard.log_lost, 0);
    }

    fn finish(mut self, guard: &mut Guard<'_>) -> Run {
        for process in 0..self.case.processes.len() {
            guard.remove_process(warpmeter_simgpu::Process { pid: pid(process), start: 1 });
            self.drain(guard);
        }
        let mut launches = vec![Vec::new(); self.devices.len()];
        for worker in self.workers {
            let ends = worker.program.dies.unwrap_or(u64::MAX);
            launches[worker.device].push(Launches {
                process: worker.process,
                kernels: worker.launched,
                ends,
            });
        }
        self.facts.sort();
        let busy = Busy { intervals: self.intervals, launches };
        Run { facts: self.facts, busy, devices: self.devices }
    }
}
