//! A node made of facts: builders for cases, and random nodes for properties.

use warpmeter_core::fact::{
    Averages, Board, Container, DeviceRef, Fact, Grant, GrantPart, Health, HealthState, Holder, Level, Means,
    Mps, Opened, Part, Pipes, Pod, PodInfo, Pods, Process, ProcessSample, ProcessUse, Reading, Replicas,
    Sample, Source, Volume,
};
use warpmeter_core::identity::{ContainerId, DeviceId, GpuId, HostPid, MigId, PodUid, ProcessId, Scope};
use warpmeter_core::injected::{Injected, Shape, Sums};
use warpmeter_core::inventory::{Authority, Counter, Gpu, Instance, Inventory, Mig};
use warpmeter_core::price::{Price, Prices, Quote};
use warpmeter_core::probe::{Asked, Calls, Doing, Gap, GapKind, Probes, Threads};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::settings::Settings;
use warpmeter_core::time::{Interval, MonoNs, SECOND};

/// Facts at `at` nanoseconds from `source`.
pub(crate) fn sample(at: u64, source: Source, fact: Fact) -> Sample {
    Sample { at: MonoNs(at), source, fact }
}

pub(crate) fn tick(at: u64) -> Sample {
    sample(at, Source::Daemon, Fact::Tick { wall: 1_800_000_000 * SECOND + at })
}

pub(crate) fn gpu(name: &str) -> Gpu {
    Gpu {
        id: GpuId::new(name),
        index: Some(0),
        minor: Some(3),
        pci_bus_id: "00000000:17:00.0".into(),
        model: "NVIDIA H100 80GB HBM3".into(),
        memory_bytes: Some(80 << 30),
        memory_bus: None,
        link: None,
        down: None,
        mig: None,
        authority: Authority {
            engine: Some(Counter::Gpm),
            sm: Some(Counter::Gpm),
            processes: Some(Counter::ProcessUtilization),
        },
    }
}

pub(crate) fn mig(name: &str, slices: &[u32], creatable: u32) -> Gpu {
    let instance = |(index, slices): (usize, &u32)| Instance {
        id: MigId::new(format!("MIG-{name}-{index}")),
        gpu_instance: u32::try_from(index).unwrap(),
        compute_instance: Some(0),
        profile: format!("{slices}g"),
        slices: *slices,
        memory_bytes: None,
        placement: None,
    };
    let instances = slices.iter().enumerate().map(instance).collect();
    Gpu { mig: Some(Mig { slices: 7, instances, creatable_slices: creatable }), ..gpu(name) }
}

pub(crate) fn inventory(gpus: &[Gpu]) -> Fact {
    Fact::Inventory(Inventory { driver: None, gpus: gpus.to_vec() })
}

pub(crate) fn part(mig: Option<MigId>, engine: Option<u32>, pids: &[u32]) -> Part {
    let level = |percent: u32| Some(Level::Ratio(Ppb::percent(percent).unwrap()));
    Part {
        mig,
        engine: engine.and_then(level),
        corroboration: engine.and_then(Ppb::percent),
        sm_active: engine.and_then(|percent| level(percent / 2)),
        sm_occupied: engine.and_then(|percent| level(percent / 4)),
        tensor: engine.and_then(|_| level(0)),
        dram: engine.and_then(|_| level(0)),
        memory_used: Some(1 << 30),
        processes: Some(
            pids.iter().map(|pid| Holder { pid: HostPid(*pid), memory: Some(1 << 20) }).collect(),
        ),
        ..Part::default()
    }
}

pub(crate) fn reading(name: &str, start: u64, end: u64, parts: Vec<Part>) -> Fact {
    let during = Interval::new(MonoNs(start), MonoNs(end)).unwrap();
    let board = Board {
        energy_mj: Some(end / 10_000),
        pcie_receive: Some(Volume::PerSecond(1000)),
        ..Board::default()
    };
    Fact::Reading(Box::new(Reading { gpu: GpuId::new(name), during, board, parts }))
}

/// A GPU whose SM figures a neighbouring exporter gives.
pub(crate) fn neighbours(gpu: Gpu) -> Gpu {
    let authority = Authority { sm: Some(Counter::Dcgm), ..gpu.authority };
    Gpu { authority, ..gpu }
}

/// SM activity of a device over `[start, end)`, and half of it as occupancy.
pub(crate) fn averages(name: &str, mig: Option<&str>, start: u64, end: u64, percent: u32) -> Averages {
    Averages {
        device: DeviceId { gpu: GpuId::new(name), mig: mig.map(MigId::new) },
        during: Interval::new(MonoNs(start), MonoNs(end)).unwrap(),
        means: Means {
            sm_active: Ppb::percent(percent),
            sm_occupied: Ppb::percent(percent / 2),
            tensor: Some(Ppb::ZERO),
            dram: Some(Ppb::ZERO),
            ..Means::default()
        },
    }
}

/// `(pid, percent)` over `[start, end)`.
pub(crate) fn process_use(name: &str, start: u64, end: u64, used: &[(u32, u32)]) -> Fact {
    let during = Interval::new(MonoNs(start), MonoNs(end)).unwrap();
    let samples = used
        .iter()
        .map(|(pid, percent)| ProcessSample {
            pid: HostPid(*pid),
            during,
            sm: Ppb::percent(*percent).unwrap(),
        })
        .collect();
    Fact::ProcessUse(ProcessUse { gpu: GpuId::new(name), until: MonoNs(end), samples })
}

/// A process of pod `pod` that has the GPU with minor number 3 open.
pub(crate) fn process(pid: u32, start: u64, pod: &str) -> Fact {
    Fact::Process(Process {
        id: ProcessId { pid: HostPid(pid), start: MonoNs(start) },
        scope: Scope::Pod { uid: PodUid::new(pod), container: Some(ContainerId::new(format!("c-{pod}"))) },
        opened: Some(Opened { control: true, minors: vec![3], uvm: false }),
        mps: None,
        name: None,
    })
}

pub(crate) fn gone(pid: u32, start: u64) -> Fact {
    Fact::Gone(ProcessId { pid: HostPid(pid), start: MonoNs(start) })
}

pub(crate) fn host_up() -> Sample {
    sample(1, Source::Host, Fact::Health(Health { state: HealthState::Up, reason: String::new() }))
}

pub(crate) fn pod(name: &str, grants: &[(DeviceRef, GrantPart)]) -> Pod {
    Pod {
        deferred: Vec::new(),
        uid: PodUid::new(name),
        namespace: "ns".into(),
        name: format!("pod-{name}").into(),
        containers: vec![Container { name: "main".into(), id: Some(ContainerId::new(format!("c-{name}"))) }],
        grants: grants
            .iter()
            .map(|(device, part)| Grant { container: "main".into(), device: device.clone(), part: *part })
            .collect(),
        info: PodInfo::default(),
    }
}

pub(crate) fn pods(pods: &[Pod], replicas: &[(DeviceRef, u32)]) -> Fact {
    let replicas =
        replicas.iter().map(|(device, count)| Replicas { device: device.clone(), count: *count }).collect();
    Fact::Pods(Pods { pods: pods.to_vec(), replicas })
}

pub(crate) fn whole(name: &str) -> DeviceRef {
    DeviceRef::Gpu(GpuId::new(name))
}

pub(crate) fn settings() -> Settings {
    let models = vec![("H100".into(), Quote::configured(Price(3_600_000)))];
    let prices = Prices { currency: "USD".into(), models, ..Prices::default() };
    Settings { node: "node".into(), infer_allocation: false, prices, ..Settings::default() }
}

/// A small deterministic source of numbers (SplitMix64), so that a failing node is its seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn small(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).unwrap()
    }

    /// Averages of some device over a time that may be long ago, to come, or counted already.
    fn averages(&mut self, now: u64, names: &[&str]) -> Fact {
        let name = names[usize::try_from(self.below(3)).unwrap()];
        let mig = self.chance(50).then(|| format!("MIG-{name}-{}", self.below(3)));
        let end = now + SECOND - self.below(now + SECOND - 1);
        let start = end - 1 - self.below(40 * SECOND).min(end - 1);
        let percent = self.small(101);
        Fact::Averages(averages(name, mig.as_deref(), start, end, percent))
    }

    /// Sums of a library that contradict themselves and everything else.
    fn injected(&mut self, now: u64, names: &[&str]) -> Fact {
        let name = names[usize::try_from(self.below(3)).unwrap()];
        let mig = self.chance(30).then(|| MigId::new(format!("MIG-{name}-{}", self.below(3))));
        let mut amount = || self.number() >> self.below(64);
        let sums = Sums {
            elapsed: amount(),
            sampled: amount(),
            dropped: amount(),
            busy: amount(),
            ran: amount(),
            kernels: amount(),
            kernel: amount(),
            to_device: amount(),
            ..Sums::default()
        };
        let shapes = (0..self.below(4)).map(|_| Shape {
            block: self.small(1100),
            registers: self.small(300),
            shared: self.small(300_000),
            nanos: self.number() >> self.below(64),
        });
        let shapes = shapes.collect();
        Fact::Injected(Box::new(Injected {
            process: ProcessId {
                pid: HostPid(1 + self.small(12)),
                start: MonoNs(now.saturating_sub(self.below(5 * SECOND))),
            },
            device: DeviceId { gpu: GpuId::new(name), mig },
            capability: (self.small(13), self.small(10)),
            sums,
            shapes,
        }))
    }

    /// A snapshot that contradicts itself and everything else.
    fn probes(&mut self, end: u64, names: &[&str]) -> Fact {
        let start = end - 1 - self.below(2 * SECOND).min(end - 1);
        let during = Interval::new(MonoNs(start), MonoNs(end)).unwrap();
        let calls = (0..self.below(4)).map(|_| self.calls(end, names)).collect();
        let threads = (0..self.below(3)).map(|_| self.threads()).collect();
        Fact::Probes(Box::new(Probes { calls, threads, ..Probes::of_nothing(during) }))
    }

    fn calls(&mut self, end: u64, names: &[&str]) -> Calls {
        let device = match self.below(3) {
            0 => None,
            1 => Some(whole(names[usize::try_from(self.below(3)).unwrap()])),
            _ => Some(DeviceRef::Mig(MigId::new(format!("MIG-{}-{}", names[1], self.below(3))))),
        };
        let kinds = [GapKind::Drained, GapKind::Enqueue, GapKind::Sync];
        let gaps = (0..self.below(6)).map(|_| {
            let doings = self.doings();
            let kind = kinds[usize::try_from(self.below(3)).unwrap()];
            let (total, log2) = (doings.iter().sum(), u8::try_from(self.below(40)).unwrap());
            let (ended, lasted) = (self.below(2000), self.below(1 << 40));
            Gap { kind, log2, count: self.below(2000), total, ended, lasted, doings }
        });
        let gaps = gaps.collect();
        Calls {
            process: ProcessId { pid: HostPid(1 + self.small(12)), start: MonoNs(self.below(end)) },
            device,
            from_start: self.chance(50),
            shed: self.chance(20),
            enqueued: self.below(3),
            last_call: self.chance(50).then(|| MonoNs(self.below(end + SECOND))),
            asked: Asked {
                launches: self.below(3),
                graph_launches: 0,
                bytes_to_device: self.number() >> self.below(64),
                bytes_to_host: self.number() >> self.below(64),
                bytes_other: 0,
                copy_wait: self.below(SECOND),
                copies_most: self.number() >> self.below(64),
                copies_least: self.number() >> self.below(64),
                sync_wait: self.below(SECOND),
            },
            gaps,
        }
    }

    fn threads(&mut self) -> Threads {
        let scope = Scope::Pod { uid: PodUid::new(format!("p{}", self.below(5))), container: None };
        Threads { scope, callers: self.doings(), others: self.doings() }
    }

    fn doings(&mut self) -> [u64; Doing::COUNT] {
        std::array::from_fn(|_| if self.chance(30) { self.below(SECOND) } else { 0 })
    }

    /// The same process, which may be one of MPS.
    fn part_in_mps(&mut self, fact: Fact) -> Fact {
        let Fact::Process(process) = fact else { return fact };
        let mps = match self.below(8) {
            0 => Some(Mps::Server),
            1 => Ppb::percent(self.small(101)).map(Mps::Client),
            _ => None,
        };
        Fact::Process(Process { mps, ..process })
    }

    fn ratio(&mut self) -> Option<Level> {
        match self.below(10) {
            0 => None,
            1 => Some(Level::Cycles { active: self.below(1000), elapsed: self.below(1000) }),
            2 => Some(Level::Ratio(Ppb::ZERO)),
            3 => Some(Level::Ratio(Ppb::ONE)),
            _ => Ppb::new(self.small(1_000_000_001)).map(Level::Ratio),
        }
    }
}

/// A random node: its facts in order of time, and its settings. Nothing in it is well behaved: windows have
/// gaps and odd lengths, counters are missing or contradict each other, pods and processes come and go, pids
/// are reused, instances change, the driver forgets GPUs.
pub(crate) fn random(seed: u64, windows: u64) -> (Settings, Vec<Sample>) {
    let mut r = Random(seed);
    let settings = Settings {
        equal_split: r.chance(30),
        redistribute: r.chance(30),
        infer_allocation: r.chance(40),
        infer_until_heard: r.chance(30),
        retain: 20 * SECOND,
        prices: if r.chance(70) { settings().prices } else { Prices::default() },
        ..settings()
    };
    let mut facts = vec![host_up()];
    let mut cursors = [SECOND; 3];
    let names = ["GPU-a", "GPU-b", "GPU-c"];
    let layouts: [&[u32]; 4] = [&[1, 1, 2], &[3, 4], &[7], &[]];
    let mut current: Vec<Gpu> = Vec::new();
    for step in 0..windows {
        let now = cursors.iter().copied().max().unwrap();
        if step == 0 || r.chance(5) {
            let layout = layouts[usize::try_from(r.below(4)).unwrap()];
            current = vec![gpu(names[0]), mig(names[1], layout, r.small(8)), gpu(names[2])];
            if r.chance(10) {
                current.remove(0);
            }
            for gpu in &mut current {
                if r.chance(50) {
                    *gpu = neighbours(gpu.clone());
                }
            }
            facts.push(sample(now, Source::Nvidia, inventory(&current)));
        }
        if r.chance(20) {
            let mut devices = vec![whole(names[0]), whole(names[2]), DeviceRef::Minor(3)];
            devices
                .extend((0..3).map(|index| DeviceRef::Mig(MigId::new(format!("MIG-{}-{index}", names[1])))));
            let mut list = Vec::new();
            for index in 0..r.below(5) {
                let mut grants = Vec::new();
                for _ in 0..r.below(3) {
                    let device = devices[usize::try_from(r.below(6)).unwrap()].clone();
                    let part = match r.below(3) {
                        0 => GrantPart::Whole,
                        1 => GrantPart::Replica(r.small(6)),
                        _ => GrantPart::Fraction(Ppb::percent(r.small(101)).unwrap()),
                    };
                    grants.push((device, part));
                }
                list.push(pod(&format!("p{index}"), &grants));
            }
            let replicas: Vec<_> =
                if r.chance(50) { vec![(whole(names[2]), 1 + r.small(9))] } else { Vec::new() };
            facts.push(sample(now - r.below(SECOND), Source::Pods, pods(&list, &replicas)));
        }
        for _ in 0..r.below(3) {
            let pid = 1 + r.small(12);
            let start = now.saturating_sub(r.below(5 * SECOND));
            let owner = format!("p{}", r.below(5));
            let fact =
                if r.chance(25) { gone(pid, start) } else { r.part_in_mps(process(pid, start, &owner)) };
            facts.push(sample(now - r.below(SECOND / 2), Source::Host, fact));
        }
        if r.chance(60) {
            let end = now + r.below(SECOND / 10);
            facts.push(sample(end, Source::Probes, r.probes(end, &names)));
        }
        if r.chance(20) {
            facts.push(sample(now, Source::Inject, r.injected(now, &names)));
        }
        for _ in 0..r.below(3) {
            let at = now - r.below(SECOND / 2);
            facts.push(sample(at, Source::Dcgm, r.averages(now, &names)));
        }
        for (index, name) in names.iter().enumerate() {
            if r.chance(10) {
                cursors[index] += r.below(8 * SECOND);
            }
            let start = cursors[index] - if r.chance(5) { r.below(SECOND / 2) } else { 0 };
            let end = cursors[index] + 1 + if r.chance(80) { SECOND } else { r.below(3 * SECOND) };
            cursors[index] = end;
            let described =
                current.iter().find(|gpu| gpu.id.as_str() == *name).and_then(|gpu| gpu.mig.as_ref());
            let keys: Vec<Option<MigId>> = match described {
                Some(mig) => mig.instances.iter().map(|instance| Some(instance.id.clone())).collect(),
                None => vec![None],
            };
            let parts = keys.into_iter().map(|key| {
                let pids: Vec<u32> = (0..r.below(4)).map(|_| 1 + r.small(12)).collect();
                let mut part = part(key, Some(50), &pids);
                part.engine = r.ratio();
                part.sm_active = r.ratio();
                part.sm_occupied = r.ratio();
                (part.tensor, part.dram) = (r.ratio(), r.ratio());
                let [integer, fp64, fp32, fp16] = std::array::from_fn(|_| r.ratio());
                part.pipes = Pipes { integer, fp64, fp32, fp16 };
                part.corroboration = Ppb::percent(r.small(101));
                if r.chance(10) {
                    part.processes = None;
                }
                part
            });
            let parts = parts.collect();
            facts.push(sample(end + r.below(SECOND / 10), Source::Nvidia, reading(name, start, end, parts)));
            if r.chance(60) {
                let used: Vec<(u32, u32)> =
                    (0..r.below(4)).map(|_| (1 + r.small(12), r.small(101))).collect();
                let from = end - r.below(2 * SECOND).min(end - 1) - 1;
                facts.push(sample(
                    end + r.below(SECOND / 10),
                    Source::Nvidia,
                    process_use(name, from, end, &used),
                ));
            }
        }
    }
    facts.sort();
    (settings, facts)
}
