//! One second of a large node through the fold: 8 GPUs of 7 MIG instances, or 8 GPUs in 8 replicas, with 64 pods.
//!
//! `cargo bench -p warpmeter-core`. For instruction counts run the binary under callgrind with `--bench`.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use warpmeter_core::fact::{
    Board, Container, DeviceRef, Fact, Grant, GrantPart, Health, HealthState, Holder, Level, Part, Pipes,
    Pod, PodInfo, Pods, Process, ProcessSample, ProcessUse, Reading, Replicas, Sample, Source,
};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{ContainerId, GpuId, HostPid, MigId, PodUid, ProcessId, Scope};
use warpmeter_core::inventory::{Authority, Counter, Gpu, Instance, Inventory, Mig};
use warpmeter_core::price::{Price, Prices, Quote};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::settings::Settings;
use warpmeter_core::time::{Interval, MonoNs, SECOND};

const GPUS: u32 = 8;
const PODS: u32 = 64;

fn uuid(gpu: u32) -> GpuId {
    GpuId::new(format!("GPU-00000000-0000-0000-0000-{gpu:012}"))
}

fn mig(gpu: u32, instance: u32) -> MigId {
    MigId::new(format!("MIG-00000000-0000-0000-{gpu:04}-{instance:012}"))
}

fn inventory(in_mig: bool) -> Fact {
    let instance = |gpu| {
        move |index| Instance {
            id: mig(gpu, index),
            gpu_instance: index,
            compute_instance: Some(0),
            profile: "1g.10gb".into(),
            slices: 1,
            memory_bytes: Some(10 << 30),
            placement: None,
        }
    };
    let gpu = |index: u32| Gpu {
        id: uuid(index),
        index: Some(index),
        minor: Some(index),
        pci_bus_id: format!("00000000:{index:02x}:00.0"),
        model: "NVIDIA H100 80GB HBM3".into(),
        memory_bytes: Some(80 << 30),
        memory_bus: None,
        link: None,
        down: None,
        mig: in_mig.then(|| Mig {
            slices: 7,
            instances: (0..7).map(instance(index)).collect(),
            creatable_slices: 0,
        }),
        authority: Authority {
            engine: Some(Counter::Gpm),
            sm: Some(Counter::Gpm),
            processes: (!in_mig).then_some(Counter::ProcessUtilization),
        },
    };
    Fact::Inventory(Inventory { driver: None, gpus: (0..GPUS).map(gpu).collect() })
}

/// Pod `p` is on GPU `p % 8`: in MIG mode on instance `p / 8` (the last eight share the first), else in replica `p / 8`.
fn pods(in_mig: bool) -> Fact {
    let pod = |index: u32| {
        let (gpu, place) = (index % GPUS, index / GPUS);
        let (device, part) = if in_mig {
            (DeviceRef::Mig(mig(gpu, place % 7)), GrantPart::Whole)
        } else {
            (DeviceRef::Gpu(uuid(gpu)), GrantPart::Replica(place))
        };
        Pod {
            deferred: Vec::new(),
            uid: PodUid::new(format!("pod-{index:04}")),
            namespace: format!("ns-{}", index % 5).into(),
            name: format!("trainer-{index}").into(),
            containers: vec![Container {
                name: "main".into(),
                id: Some(ContainerId::new(format!("{index:064}"))),
            }],
            grants: vec![Grant { container: "main".into(), device, part }],
            info: PodInfo::default(),
        }
    };
    let replicas =
        (0..GPUS).filter(|_| !in_mig).map(|gpu| Replicas { device: DeviceRef::Gpu(uuid(gpu)), count: 8 });
    Fact::Pods(Pods { pods: (0..PODS).map(pod).collect(), replicas: replicas.collect() })
}

fn holders(gpu: u32, instance: Option<u32>) -> Vec<Holder> {
    (0..PODS)
        .filter(|pod| pod % GPUS == gpu && instance.is_none_or(|instance| pod / GPUS % 7 == instance))
        .map(|pod| Holder { pid: HostPid(1000 + pod), memory: Some(1 << 30) })
        .collect()
}

fn part(gpu: u32, instance: Option<u32>) -> Part {
    let level = |percent| Ppb::percent(percent).map(Level::Ratio);
    Part {
        mig: instance.map(|instance| mig(gpu, instance)),
        engine: level(80),
        corroboration: Ppb::percent(80),
        sm_active: level(60),
        sm_occupied: level(30),
        tensor: level(20),
        dram: level(40),
        pipes: Pipes { integer: level(10), fp64: level(0), fp32: level(15), fp16: level(5) },
        memory_used: Some(8 << 30),
        processes: Some(holders(gpu, instance)),
    }
}

/// The facts of second `second`.
fn second(second: u64, in_mig: bool) -> Vec<Sample> {
    let (Some(during), at) = (
        Interval::new(MonoNs(second * SECOND), MonoNs((second + 1) * SECOND)),
        MonoNs((second + 1) * SECOND),
    ) else {
        return Vec::new();
    };
    let mut facts = Vec::new();
    for gpu in 0..GPUS {
        let parts = if in_mig { (0..7).map(|i| part(gpu, Some(i))).collect() } else { vec![part(gpu, None)] };
        let board = Board { power_mw: Some(500_000), energy_mj: Some(second * 500_000), ..Board::default() };
        let reading = Reading { gpu: uuid(gpu), during, board, parts };
        facts.push(Sample { at, source: Source::Nvidia, fact: Fact::Reading(Box::new(reading)) });
        if !in_mig {
            let sample = |holder: Holder| ProcessSample {
                pid: holder.pid,
                during,
                sm: Ppb::percent(10).unwrap_or_default(),
            };
            let samples = holders(gpu, None).into_iter().map(sample).collect();
            let used = ProcessUse { gpu: uuid(gpu), until: during.end(), samples };
            facts.push(Sample { at, source: Source::Nvidia, fact: Fact::ProcessUse(used) });
        }
    }
    // Five ticks a second, as the daemon makes them; the second one closes the windows.
    for tick in 1..=5 {
        let at = at.plus(tick * SECOND / 5);
        facts.push(Sample { at, source: Source::Daemon, fact: Fact::Tick { wall: at.0 } });
    }
    facts
}

fn node(in_mig: bool) -> Fold {
    let models = vec![("H100".into(), Quote::configured(Price(2_950_000)))];
    let prices = Prices { currency: "USD".into(), models, ..Prices::default() };
    let mut fold = Fold::new(Settings { infer_allocation: false, prices, ..Settings::default() });
    let start = |fact, source| Sample { at: MonoNs(1), source, fact };
    fold.apply(start(Fact::Health(Health { state: HealthState::Up, reason: String::new() }), Source::Host));
    fold.apply(start(inventory(in_mig), Source::Nvidia));
    fold.apply(start(pods(in_mig), Source::Pods));
    for pod in 0..PODS {
        let process = Process {
            id: ProcessId { pid: HostPid(1000 + pod), start: MonoNs(0) },
            scope: Scope::Pod {
                uid: PodUid::new(format!("pod-{pod:04}")),
                container: Some(ContainerId::new(format!("{pod:064}"))),
            },
            opened: None,
            mps: None,
            name: None,
        };
        fold.apply(start(Fact::Process(process), Source::Host));
    }
    fold
}

fn bench(c: &mut Criterion) {
    for (name, in_mig) in [("8 GPUs x 7 MIG x 64 pods", true), ("8 GPUs x 8 replicas x 64 pods", false)] {
        let mut fold = node(in_mig);
        let mut now = 0;
        c.bench_function(&format!("one second: {name}"), |bencher| {
            bencher.iter_batched(
                || {
                    now += 1;
                    second(now, in_mig)
                },
                |facts| facts.into_iter().filter_map(|sample| fold.apply(sample)).count(),
                BatchSize::SmallInput,
            );
        });
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
