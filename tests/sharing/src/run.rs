//! Runs a case on the simulator's device model, and takes down what sources would report of it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use warpmeter_core::device_id;
use warpmeter_core::fact::{
    self, Board, Container, DeviceRef, Fact, Health, HealthState, Holder, Level, Mps, Opened, Part, Pipes,
    Pod, PodInfo, Pods, ProcessSample, ProcessUse, Reading, Replicas, Sample, Source,
};
use warpmeter_core::identity::{
    ContainerId, DeviceId, GpuId, HostPid, MigId, Owner, PodUid, ProcessId, Scope,
};
use warpmeter_core::inventory::{Authority, Counter, Gpu, Instance, Inventory, Mig};
use warpmeter_core::probe::{Asked, Calls, Probes};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::time::{Interval, MonoNs};
use warpmeter_simgpu::kernel::Kernel;
use warpmeter_simgpu::layout::{Load, LogRecord, Totals};
use warpmeter_simgpu::{Guard, Node, Scenario, StreamRef};

use crate::case::{Case, Sharing, Whose};
use crate::probes::Gaps;
use crate::program::Program;
use crate::{MS, SECOND, US};

/// How long a case runs, in seconds: as many windows.
pub const SECONDS: u64 = 12;
/// When the run begins on the timeline of its facts.
pub const BEGIN: u64 = 100 * SECOND;
/// Snapshots of the probes end so long after the driver's readings.
const SNAPSHOT: u64 = 130 * MS;
/// A synchronising call looks so often at most.
const LOOK: u64 = 20 * US;
/// From one launch to the next.
const LAUNCH: u64 = 5 * US;
/// The MPS server.
const SERVER: u32 = 900;

/// One program of one process on one device.
#[derive(Debug)]
struct Worker {
    process: usize,
    pid: u32,
    device: usize,
    program: Program,
    stream: Option<StreamRef>,
    gaps: Gaps,
    /// Kernels of the step that are still to be launched; none while it waits for them.
    left: Option<u32>,
    last: u64,
    random: u64,
    over: bool,
    launched: Vec<(u64, u64)>,
}

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

/// The owner in the daemon's terms.
pub fn owner(whose: Whose) -> Owner {
    match whose {
        Whose::Pod(pod, container) => {
            Owner::Pod { uid: uid(pod), container: container_name(container).into() }
        }
        Whose::Host => Owner::Host,
    }
}

fn uid(pod: u32) -> PodUid {
    PodUid::new(format!("pod-{pod:02}"))
}

fn container_name(container: u32) -> String {
    format!("c{container}")
}

fn container_id(pod: u32, container: u32) -> ContainerId {
    ContainerId::new(format!("{pod:032}{container:032}"))
}

fn sample(at: u64, source: Source, fact: Fact) -> Sample {
    Sample { at: MonoNs(at), source, fact }
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
        let mut workers = Vec::new();
        for (process, described) in case.processes.iter().enumerate() {
            for (device, program) in &described.programs {
                workers.push(Worker {
                    process,
                    pid: pid(process),
                    device: *device,
                    program: *program,
                    stream: None,
                    gaps: Gaps::default(),
                    left: Some(program.kernels),
                    last: 0,
                    random: 0x9e37_79b9 + workers.len() as u64 * 7919,
                    over: false,
                    launched: Vec::new(),
                });
            }
        }
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
            workers,
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
        self.facts.push(sample(Self::at(now), source, fact));
    }

    /// What is known from the beginning.
    fn begin(&mut self, guard: &Guard<'_>) {
        let health = Health { state: HealthState::Up, reason: String::new() };
        self.tell(0, Source::Host, Fact::Health(health));
        let gpus = (0..usize::try_from(self.case.gpus).unwrap()).map(|gpu| self.gpu(guard, gpu)).collect();
        self.tell(0, Source::Nvidia, Fact::Inventory(Inventory { driver: None, gpus }));
        let pods = self.pods();
        self.tell(0, Source::Pods, Fact::Pods(pods));
        if self.case.sharing == Sharing::Mps {
            let id = ProcessId { pid: HostPid(SERVER), start: MonoNs(BEGIN - 1) };
            let opened = Some(Opened { control: true, minors: vec![0] });
            let scope = Scope::Unit("nvidia-mps.service".into());
            let server = fact::Process { id, scope, opened, mps: Some(Mps::Server) };
            self.tell(0, Source::Host, Fact::Process(server));
        }
        for (number, process) in self.case.processes.iter().enumerate() {
            let begins = process.programs.iter().map(|(_, program)| program.begins).min().unwrap_or(0);
            let mut minors: Vec<u32> = process
                .programs
                .iter()
                .map(|(device, _)| u32::try_from(self.gpus[*device]).unwrap())
                .collect();
            minors.sort_unstable();
            minors.dedup();
            let fact = fact::Process {
                id: process_id(number, begins),
                scope: match process.whose {
                    Whose::Pod(pod, container) => {
                        Scope::Pod { uid: uid(pod), container: Some(container_id(pod, container)) }
                    }
                    Whose::Host => Scope::Host,
                },
                opened: Some(Opened { control: true, minors }),
                mps: process.threads.and_then(Ppb::percent).map(Mps::Client),
            };
            self.tell(begins, Source::Host, Fact::Process(fact));
        }
    }

    fn gpu(&self, guard: &Guard<'_>, gpu: usize) -> Gpu {
        let instances: Vec<Instance> = self
            .devices
            .iter()
            .enumerate()
            .filter(|(number, (device, _))| self.gpus[*number] == gpu && device.mig.is_some())
            .map(|(number, (device, (slices, _)))| Instance {
                id: device.mig.clone().unwrap(),
                gpu_instance: guard.engine[number].gi,
                compute_instance: Some(0),
                profile: guard.engine[number].profile.as_str().into(),
                slices: u32::try_from(*slices).unwrap(),
                memory_bytes: None,
                placement: None,
            })
            .collect();
        let mig = (!instances.is_empty()).then_some(Mig { slices: 7, instances, creatable_slices: 0 });
        Gpu {
            id: GpuId::new(guard.device[gpu].uuid.as_str()),
            index: u32::try_from(gpu).ok(),
            minor: Some(guard.device[gpu].minor),
            pci_bus_id: guard.device[gpu].pci_bus.as_str().into(),
            model: "NVIDIA H100 80GB HBM3".into(),
            memory_bytes: None,
            memory_bus: None,
            down: None,
            mig,
            authority: Authority {
                engine: Some(Counter::GpmCycles),
                sm: None,
                processes: Some(Counter::ProcessUtilization),
            },
        }
    }

    fn pods(&self) -> Pods {
        let mut pods: Vec<Pod> = Vec::new();
        let mut named: BTreeSet<(u32, u32)> = self.case.grants.iter().map(|grant| grant.to).collect();
        named.extend(self.case.processes.iter().filter_map(|process| match process.whose {
            Whose::Pod(pod, container) => Some((pod, container)),
            Whose::Host => None,
        }));
        for (pod, container) in named {
            let held = self.case.grants.iter().enumerate().filter(|(_, grant)| grant.to == (pod, container));
            let grants = held.map(|(number, grant)| {
                let device = &self.devices[grant.device].0;
                let mig = device.mig.as_ref().map_or("", MigId::as_str);
                let id = grant.id.replace("{gpu}", device.gpu.as_str()).replace("{mig}", mig);
                let (device, part) = device_id::parse(&id.replace("{n}", &number.to_string())).unwrap();
                fact::Grant { container: container_name(container).into(), device, part }
            });
            let grants: Vec<fact::Grant> = grants.collect();
            let described =
                Container { name: container_name(container).into(), id: Some(container_id(pod, container)) };
            match pods.iter_mut().find(|other| other.uid == uid(pod)) {
                Some(other) => {
                    other.containers.push(described);
                    other.grants.extend(grants);
                }
                None => pods.push(Pod {
                    uid: uid(pod),
                    namespace: "ns".into(),
                    name: format!("pod-{pod}").into(),
                    containers: vec![described],
                    grants,
                    deferred: Vec::new(),
                    info: PodInfo::default(),
                }),
            }
        }
        let offered = self.devices.iter().filter(|_| self.case.replicas > 0);
        let replicas = offered.map(|(device, _)| Replicas {
            device: device.mig.clone().map_or_else(|| DeviceRef::Gpu(device.gpu.clone()), DeviceRef::Mig),
            count: self.case.replicas,
        });
        Pods { pods, replicas: replicas.collect() }
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

    /// Lets a program make its next call; when it makes the one after.
    fn step(&mut self, guard: &mut Guard<'_>, number: usize, now: u64) -> Option<u64> {
        let epoch = self.epoch;
        let worker = &mut self.workers[number];
        if worker.over {
            return None;
        }
        if worker.program.dies.is_some_and(|dies| now >= dies) {
            worker.over = true;
            let (process, pid) = (worker.process, worker.pid);
            guard.advance_all(epoch + now);
            guard.remove_process(warpmeter_simgpu::Process { pid, start: 1 });
            let begins = self.case.processes[process].programs.iter().map(|(_, program)| program.begins);
            let id = process_id(process, begins.min().unwrap_or(0));
            self.tell(now + 50 * MS, Source::Host, Fact::Gone(id));
            return None;
        }
        let stream = if let Some(stream) = worker.stream {
            stream
        } else {
            let process = warpmeter_simgpu::Process { pid: worker.pid, start: 1 };
            let client = guard.attach(worker.device, process, epoch + now).unwrap();
            *worker.stream.insert(guard.open_stream(client, 1, false, true).unwrap())
        };
        if worker.program.kernels == 0 {
            return None;
        }
        let awake = worker.program.awake(now);
        match worker.left {
            Some(0) if worker.program.waits => {
                worker.left = None;
                worker.gaps.sync();
                Some(now + LAUNCH)
            }
            Some(0) => Some(worker.pause(now)),
            Some(_) if worker.left == Some(worker.program.kernels) && awake > now => Some(awake),
            Some(left) => {
                let load = Load { sm: worker.program.sm, occupancy: 500, dram: 100, tensor: 0 };
                let op = Kernel { nanos: worker.program.kernel, load }.op();
                match guard.enqueue(stream, op, epoch + now) {
                    Ok(seq) => {
                        worker.last = seq;
                        worker.gaps.launch(now);
                        worker.launched.push((now, worker.program.kernel));
                        worker.left = Some(left - 1);
                        Some(now + LAUNCH)
                    }
                    Err(_) => Some(now + LOOK),
                }
            }
            None => {
                if let Some(left) = guard.due(stream, worker.last, epoch + now) {
                    return Some(now + left.max(LOOK));
                }
                worker.gaps.drained(now);
                Some(worker.pause(now))
            }
        }
    }

    /// The driver's readings of the second that ends now.
    fn read(&mut self, guard: &mut Guard<'_>, now: u64) {
        guard.advance_all(self.epoch + now);
        let during = Interval::new(MonoNs(Self::at(now - SECOND)), MonoNs(Self::at(now))).unwrap();
        for gpu in 0..usize::try_from(self.case.gpus).unwrap() {
            let mut parts = Vec::new();
            for device in (0..self.devices.len()).filter(|device| self.gpus[*device] == gpu) {
                let engine = &guard.engine[device];
                let active = engine.totals.active - self.last[device].active;
                let sm = engine.totals.sm / 1000 - self.last[device].sm / 1000;
                self.last[device] = engine.totals;
                let mut pids: Vec<u32> =
                    engine.listed().iter().map(|client| guard.client[*client as usize].pid).collect();
                if self.case.sharing == Sharing::Mps {
                    pids = vec![SERVER];
                }
                pids.sort_unstable();
                let cycles = |active| Some(Level::Cycles { active, elapsed: SECOND });
                parts.push(Part {
                    mig: self.devices[device].0.mig.clone(),
                    engine: cycles(active),
                    corroboration: None,
                    sm_active: cycles(sm),
                    sm_occupied: None,
                    tensor: None,
                    dram: None,
                    pipes: Pipes::default(),
                    memory_used: None,
                    processes: Some(
                        pids.into_iter().map(|pid| Holder { pid: HostPid(pid), memory: None }).collect(),
                    ),
                });
            }
            let board = Board { energy_mj: Some(guard.energy_mj(gpu)), ..Board::default() };
            let id = GpuId::new(guard.device[gpu].uuid.as_str());
            let reading = Reading { gpu: id.clone(), during, board, parts };
            self.tell(now + MS, Source::Nvidia, Fact::Reading(Box::new(reading)));
            if self.case.sharing == Sharing::Turns {
                self.tell_processes(guard, gpu, id, now);
            }
        }
    }

    /// What the driver says of processes: not under MPS, not in MIG mode.
    fn tell_processes(&mut self, guard: &Guard<'_>, gpu: usize, id: GpuId, now: u64) {
        let visible = guard.device[gpu].visible(self.epoch + now);
        let fresh = visible.filter(|sample| sample.at > self.told[gpu]);
        let samples: Vec<ProcessSample> = fresh
            .map(|sample| {
                let end = Self::at(sample.at - self.epoch);
                let start = end - u64::from(sample.period_ms) * MS;
                ProcessSample {
                    pid: HostPid(sample.pid),
                    during: Interval::new(MonoNs(start), MonoNs(end)).unwrap(),
                    sm: Ppb::percent(sample.sm).unwrap(),
                }
            })
            .collect();
        self.told[gpu] = self.epoch + now;
        let used = ProcessUse { gpu: id, until: MonoNs(Self::at(now)), samples };
        self.tell(now + MS, Source::Nvidia, Fact::ProcessUse(used));
    }

    /// What the probes saw since the last snapshot.
    fn snapshot(&mut self, now: u64) {
        let begin = now.saturating_sub(SECOND);
        let during = Interval::new(MonoNs(Self::at(begin)), MonoNs(Self::at(now))).unwrap();
        let mut calls = Vec::new();
        for worker in &mut self.workers {
            let until = worker.program.dies.map_or(now, |dies| dies.min(now));
            if worker.program.begins > now || until < begin {
                continue;
            }
            let (launches, gaps) = worker.gaps.snapshot(until);
            let device = &self.devices[worker.device].0;
            let process = process_id(
                worker.process,
                self.case.processes[worker.process]
                    .programs
                    .iter()
                    .map(|(_, program)| program.begins)
                    .min()
                    .unwrap_or(0),
            );
            let seen = Calls {
                process,
                device: Some(
                    device.mig.clone().map_or_else(|| DeviceRef::Gpu(device.gpu.clone()), DeviceRef::Mig),
                ),
                from_start: true,
                shed: false,
                enqueued: worker.gaps.enqueued,
                last_call: worker.gaps.last_call.map(|at| MonoNs(Self::at(at))),
                asked: Asked { launches, ..Asked::default() },
                gaps,
            };
            calls.push(if self.case.processes[worker.process].watched {
                seen
            } else {
                let asked = Asked::default();
                Calls { from_start: false, enqueued: 1, last_call: None, asked, gaps: Vec::new(), ..seen }
            });
        }
        calls.sort();
        let probes = Probes {
            during,
            calls,
            threads: Vec::new(),
            sampled: Vec::new(),
            followed: true,
            waits: Vec::new(),
        };
        self.tell(now + MS, Source::Probes, Fact::Probes(Box::new(probes)));
    }

    /// Takes the log's records out of shared memory.
    fn drain(&mut self, guard: &mut Guard<'_>) {
        let waiting = guard.logged as usize;
        for LogRecord { engine, pid, start, end, busy } in guard.log.iter().take(waiting).copied() {
            assert_eq!(busy, end - start, "a log that merges no gaps");
            let process = usize::try_from(pid).unwrap() - 1000;
            self.intervals[engine as usize].push((process, start - self.epoch, end - self.epoch));
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

impl Worker {
    /// Ends a step; when the next begins.
    fn pause(&mut self, now: u64) -> u64 {
        self.left = Some(self.program.kernels);
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = (self.random >> 33) % (self.program.pause + 1);
        now + (self.program.pause / 2 + drawn).max(LAUNCH)
    }
}

fn pid(process: usize) -> u32 {
    1000 + u32::try_from(process).unwrap()
}

fn process_id(process: usize, begins: u64) -> ProcessId {
    ProcessId { pid: HostPid(pid(process)), start: MonoNs(BEGIN + begins) }
}
