//! A node on paper: a kubelet's answers go through the real source into the real fold and come out as metrics, on a
//! clock that the test moves. There is no daemon, no driver and no process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use warpmeter::config::Level;
use warpmeter::host::cgroup;
use warpmeter::kubelet::{KubeletOptions, KubeletSource};
use warpmeter_core::fact::{
    Board, Fact, Health, HealthState, Holder, Level as Counter, Opened, Part, Process, ProcessSample,
    ProcessUse, Reading, Sample, Source,
};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{GpuId, HostPid, MigId, ProcessId};
use warpmeter_core::inventory::{Authority, Counter as By, Driver, Gpu, Instance, Inventory, Mig, Placement};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::settings::Settings;
use warpmeter_core::time::{Interval, MonoNs, SECOND};
use warpmeter_simkubelet::Kubelet;

use crate::exposition::Exposition;

/// What is known from the start is known before the first second begins here.
const BEGIN: u64 = 10;

/// A GPU (its number) or one of its MIG instances (its place among them).
pub type Device = (usize, Option<usize>);

/// What runs on a device: its activity in percent, and of each process the pid, its own percent, and MiB of memory.
pub type Work<'a> = (Device, u32, &'a [(u32, u32, u64)]);

/// A node on paper.
#[derive(Debug)]
pub struct Paper {
    /// Its kubelet.
    pub kubelet: Kubelet,
    /// How it is asked.
    pub options: KubeletOptions,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// Version of its driver.
    pub driver: String,
    fold: Fold,
    second: u64,
}

impl Default for Paper {
    fn default() -> Self {
        Self::new()
    }
}

impl Paper {
    /// Two whole GPUs, whose minor numbers are not their indexes, and one that is divided into three instances.
    pub fn new() -> Self {
        Self::with(vec![gpu(0, 1), gpu(1, 0), divided(2, 2)], Settings::default())
    }

    /// These GPUs.
    pub fn with(gpus: Vec<Gpu>, settings: Settings) -> Self {
        let mut kubelet = Kubelet::new().unwrap();
        kubelet.start().unwrap();
        let options = KubeletOptions {
            socket: kubelet.socket(),
            pod_logs: kubelet.pod_logs(),
            container_logs: kubelet.container_logs(),
            refresh: Duration::from_millis(1),
            ..KubeletOptions::default()
        };
        let settings = Settings { node: "node-1".into(), infer_allocation: false, ..settings };
        let (fold, driver) = (Fold::new(settings), "570.124.06".to_owned());
        let mut node = Self { kubelet, options, gpus, driver, fold, second: 0 };
        let up = Health { state: HealthState::Up, reason: String::new() };
        node.put_at(1, Source::Host, Fact::Health(up));
        node.put_at(2, Source::Nvidia, node.inventory());
        node
    }

    fn inventory(&self) -> Fact {
        let driver = Driver { version: self.driver.clone(), nvml: None, cuda: None };
        Fact::Inventory(Inventory { driver: Some(driver), gpus: self.gpus.clone() })
    }

    /// The GPUs are now as [`Self::gpus`] says.
    pub fn changed(&mut self) {
        let inventory = self.inventory();
        self.put(Source::Nvidia, inventory);
    }

    /// The moment at which the next second begins.
    fn now(&self) -> u64 {
        if self.second == 0 { 3 } else { (BEGIN + self.second) * SECOND }
    }

    fn put_at(&mut self, at: u64, source: Source, fact: Fact) {
        assert!(self.fold.apply(Sample { at: MonoNs(at), source, fact }).is_none());
    }

    /// A fact that becomes known now.
    pub fn put(&mut self, source: Source, fact: Fact) {
        self.put_at(self.now(), source, fact);
    }

    /// Asks the kubelet afresh, and gives how that went.
    pub fn ask(&mut self) -> Health {
        let mut source = KubeletSource::new(self.options.clone());
        self.ask_by(&mut source)
    }

    /// Lets a source ask that may have asked before.
    pub fn ask_by(&mut self, source: &mut KubeletSource) -> Health {
        let mut facts = Vec::new();
        source.poll(&mut facts);
        let health = source.health();
        facts.push(Fact::Health(health.clone()));
        for fact in facts {
            self.put(Source::Pods, fact);
        }
        health
    }

    /// A process in this cgroup (`0::/kubepods/…`) that has the files of these GPUs (numbers) open.
    pub fn process(&mut self, pid: u32, cgroup: &str, open: &[usize]) {
        let minors = open.iter().map(|number| self.gpus[*number].minor.unwrap()).collect::<BTreeSet<u32>>();
        let minors = minors.into_iter().collect();
        let opened = Opened { control: !open.is_empty(), minors, uvm: !open.is_empty() };
        let id = ProcessId { pid: HostPid(pid), start: MonoNs(self.now() - 1) };
        let (scope, opened) = (cgroup::scope(cgroup), Some(opened));
        let process = Process { id, scope, opened, mps: None, name: None };
        self.put(Source::Host, Fact::Process(process));
    }

    /// Lets seconds pass in which this runs.
    pub fn pass(&mut self, seconds: u64, work: &[Work<'_>]) {
        for _ in 0..seconds {
            self.second(work);
        }
    }

    fn second(&mut self, work: &[Work<'_>]) {
        let during = |second: u64| (BEGIN + second) * SECOND;
        let (start, end) = (during(self.second), during(self.second + 1));
        let interval = Interval::new(MonoNs(start), MonoNs(end)).unwrap();
        let busy: BTreeMap<Device, &Work<'_>> = work.iter().map(|work| (work.0, work)).collect();
        for (number, gpu) in self.gpus.clone().into_iter().enumerate() {
            let part = |instance: Option<usize>, mig: Option<MigId>| part(mig, busy.get(&(number, instance)));
            let parts = match &gpu.mig {
                None => vec![part(None, None)],
                Some(mig) => {
                    let ids = mig.instances.iter().map(|instance| instance.id.clone()).enumerate();
                    ids.map(|(at, id)| part(Some(at), Some(id))).collect()
                }
            };
            let board = Board { energy_mj: Some(end / 10_000_000), ..Board::default() };
            let reading = Reading { gpu: gpu.id.clone(), during: interval, board, parts };
            self.put_at(end, Source::Nvidia, Fact::Reading(Box::new(reading)));
            if gpu.mig.is_none() {
                let of = busy.get(&(number, None)).map_or(&[][..], |work| work.2);
                let sample = |(pid, percent, _): &(u32, u32, u64)| ProcessSample {
                    pid: HostPid(*pid),
                    during: interval,
                    sm: Ppb::percent(*percent).unwrap(),
                };
                let samples = of.iter().filter(|(_, percent, _)| *percent > 0).map(sample).collect();
                let used = ProcessUse { gpu: gpu.id.clone(), until: MonoNs(end), samples };
                self.put_at(end, Source::Nvidia, Fact::ProcessUse(used));
            }
        }
        self.second += 1;
    }

    /// The metrics after every window has closed.
    pub fn metrics(&mut self) -> Exposition {
        self.metrics_at(|at| 1_800_000_000 * SECOND + at)
    }

    /// The same by a wall clock of its own.
    pub fn metrics_at(&mut self, wall: impl Fn(u64) -> u64) -> Exposition {
        let mut view = None;
        // Windows wait for what may be late; the ticks in between are those of a daemon.
        for fifth in 0..20 {
            let at = self.now() + fifth * SECOND / 5;
            let tick = Fact::Tick { wall: wall(at) };
            let new = self.fold.apply(Sample { at: MonoNs(at), source: Source::Daemon, fact: tick });
            view = new.or(view);
        }
        let text = warpmeter::run::exposition(&view.unwrap(), Level::Full);
        Exposition::parse(&text).unwrap()
    }

    /// Labels of a device in the metrics: `gpu_uuid` and `mig`.
    pub fn labels(&self, (number, instance): Device) -> [(&'static str, String); 2] {
        let gpu = &self.gpus[number];
        let mig = instance.map(|at| gpu.mig.as_ref().unwrap().instances[at].id.as_str().to_owned());
        [("gpu_uuid", gpu.id.as_str().to_owned()), ("mig", mig.unwrap_or_default())]
    }
}

fn part(mig: Option<MigId>, work: Option<&&Work<'_>>) -> Part {
    let (percent, processes) = work.map_or((0, &[][..]), |work| (work.1, work.2));
    let level = |percent: u32| Some(Counter::Ratio(Ppb::percent(percent).unwrap()));
    let holder = |(pid, _, mib): &(u32, u32, u64)| Holder { pid: HostPid(*pid), memory: Some(*mib << 20) };
    Part {
        mig,
        engine: level(percent),
        corroboration: Ppb::percent(percent),
        sm_active: level(percent / 2),
        sm_occupied: level(percent / 4),
        tensor: level(0),
        dram: level(0),
        memory_used: Some(processes.iter().map(|(_, _, mib)| mib << 20).sum()),
        processes: Some(processes.iter().map(holder).collect()),
        ..Part::default()
    }
}

/// The UUID of GPU `number`, without a prefix.
pub fn uuid(number: usize) -> String {
    format!("5a5a7118-e550-79a1-597e-{number:012}")
}

/// A whole GPU with this number and minor number.
pub fn gpu(number: usize, minor: u32) -> Gpu {
    Gpu {
        id: GpuId::new(format!("GPU-{}", uuid(number))),
        index: Some(u32::try_from(number).unwrap()),
        minor: Some(minor),
        pci_bus_id: format!("00000000:{number:02X}:00.0"),
        model: "NVIDIA H100 80GB HBM3".into(),
        memory_bytes: Some(80 << 30),
        memory_bus: None,
        link: None,
        down: None,
        mig: None,
        authority: Authority {
            engine: Some(By::Gpm),
            sm: Some(By::Gpm),
            processes: Some(By::ProcessUtilization),
        },
    }
}

/// The same, divided into instances of 3, 2 and 1 slices: GPU instances 3, 7 and 12.
pub fn divided(number: usize, minor: u32) -> Gpu {
    let instance = |(at, (slices, gpu_instance, profile, start)): (usize, (u32, u32, u32, u32))| Instance {
        id: MigId::new(format!("MIG-{}", uuid(number * 100 + at))),
        gpu_instance,
        compute_instance: Some(0),
        profile: format!("{slices}g"),
        slices,
        memory_bytes: None,
        placement: Some(Placement { profile, start }),
    };
    let kinds = [(3, 3, 9, 0), (2, 7, 14, 4), (1, 12, 19, 6)];
    let instances = kinds.into_iter().enumerate().map(instance).collect();
    Gpu { mig: Some(Mig { slices: 7, instances, creatable_slices: 1 }), ..gpu(number, minor) }
}
