//! A view made by hand, with one of everything.

use std::sync::Arc;

use warpmeter_core::fact::{Board, HealthState, Own, PodInfo, Source};
use warpmeter_core::identity::{ContainerId, DeviceId, GpuId, MigId, Owner, PodUid};
use warpmeter_core::injected::{InjectedTotals, Sums};
use warpmeter_core::inventory::{Authority, Counter, Driver, Gpu, Instance, Mig};
use warpmeter_core::lengths::GapLengths;
use warpmeter_core::peak::{self, Peak};
use warpmeter_core::pressure::{Corroboration, PressureTotals};
use warpmeter_core::price::{Capacity, Date, Money, Origin, Price, Quote};
use warpmeter_core::probe::{Asked, Doing, Gap, GapKind, ThreadTotals};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::state::{Class, State};
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_core::view::{
    AccountView, Activity, BoardTotals, DeviceView, GpuView, NamespaceView, PodView, Residue, SourceView,
    Usage, View,
};

const PRICE: Price = Price(3_600_000);
const ENERGY: Price = Price(120_000);

/// A whole GPU, a GPU in MIG mode, a time-sliced one, and one that cannot be read.
pub(super) fn view() -> View {
    View {
        node: "node-1".into(),
        at: MonoNs(1_000 * SECOND),
        wall: 1_700_000_000 * SECOND,
        window: SECOND,
        windows: 305,
        currency: "USD".into(),
        driver: Some(Driver { version: "570.133.20".into(), nvml: Some("12.570.133.20".into()), cuda: None }),
        host_cost: Some(Money::of(Price(1_000_000), 1_000 * SECOND)),
        energy: Some(Quote::configured(ENERGY)),
        price_missing: String::new(),
        gpus: vec![whole(), divided(), shared(), unreadable()],
        accounts: accounts(),
        pods: pods(),
        namespaces: vec![namespace("", 30, false), namespace("team-a", 120, true)],
        sources: Source::ALL.into_iter().map(source).collect(),
        conservation_error: 0,
    }
}

fn whole() -> GpuView {
    let mut device = device("GPU-a", None, [60, 20, 10, 5, 5, 0]);
    device.costs = Some([60, 20, 10, 5, 5, 0].map(|seconds| Money::of(PRICE, seconds * SECOND)));
    device.activity = Activity {
        engine: Some(60 * SECOND),
        sm_active: Some(50 * SECOND),
        sm_occupied: Some(25 * SECOND + 1),
        tensor: Some(0),
        dram: Some(12_345_678_901),
    };
    device.memory_used = Some(40 << 30);
    let mut view = gpu("GPU-a", "NVIDIA H100 80GB HBM3", 100, vec![device]);
    view.quote = Some(quote());
    view.dram_peak = peak::dram(&[], &view.gpu.model, None);
    view.tensor_peak = Some(Peak { rate: 900_000_000_000_000, origin: peak::Origin::Configuration });
    view.board = board();
    view.totals = BoardTotals {
        energy_uj: Some(1_234_567_890),
        idle_energy_uj: Some(720_000_000),
        energy_cost: Some(Money::of_energy(ENERGY, 1_234_567_890)),
        pcie_receive: Some(1 << 40),
        pcie_transmit: Some(0),
        nvlink_receive: Some(1 << 70),
        nvlink_transmit: Some(7),
        throttle: Some([0, 1, 2, 3, 4, 5, 6, 7].map(|seconds| seconds * SECOND)),
    };
    view.xids = vec![(13, 1), (79, 2)];
    view
}

fn quote() -> Quote {
    let as_of = Date::new(2023, 10, 20);
    Quote {
        price: PRICE,
        origin: Origin::File,
        source: "list \"7\"".into(),
        as_of,
        capacity: Some(Capacity::Spot),
    }
}

fn divided() -> GpuView {
    let instances = [instance("MIG-1", 1, "3g.40gb", 3), instance("MIG-2", 2, "2g.20gb", 2)];
    let devices =
        instances.iter().zip([[15, 10, 10, 10, 0, 0], [0, 0, 20, 0, 10, 0]]).map(|(instance, states)| {
            let mut device = device("GPU-b", Some(instance.id.as_str()), states);
            device.instance = Some(instance.clone());
            device.costs = Some(states.map(|seconds| Money::of(PRICE, seconds * SECOND)));
            device.activity.sm_active = Some(3 * SECOND);
            device.memory_used = Some(1 << 30);
            device
        });
    let mut view = gpu("GPU-b", "NVIDIA H100 80GB HBM3", 105, devices.collect());
    view.sharing = "mig";
    view.quote = Some(quote());
    view.residue = Some(Residue {
        unallocated: 15 * SECOND,
        unallocatable: 15 * SECOND,
        unallocated_cost: Some(Money::of(PRICE, 15 * SECOND)),
        unallocatable_cost: Some(Money::of(PRICE, 15 * SECOND)),
    });
    view.board = Board { memory_used: Some(2 << 30), memory_total: Some(80 << 30), ..Board::default() };
    view.totals.energy_uj = Some(5_000_000);
    let gpu = Arc::make_mut(&mut view.gpu);
    gpu.mig = Some(Mig { slices: 7, instances: instances.to_vec(), creatable_slices: 1 });
    view
}

fn shared() -> GpuView {
    let mut device = device("GPU-c", None, [70, 0, 20, 10, 0, 0]);
    device.usage =
        Usage { used: 80 * SECOND, unattributed: 5 * SECOND, inactive: 10 * SECOND, unknown: 5 * SECOND };
    device.allocation_evidence = [50, 50, 0, 0].map(|seconds| seconds * SECOND);
    device.use_evidence = [20, 40, 20, 20].map(|seconds| seconds * SECOND);
    let mut view = gpu("GPU-c", "NVIDIA A100-SXM4-40GB", 100, vec![device]);
    view.sharing = "replicas";
    view
}

fn unreadable() -> GpuView {
    let mut view = gpu("GPU-d", "Tesla T4", 0, vec![device("GPU-d", None, [0; 6])]);
    view.up = false;
    view.last_reading = None;
    let gpu = Arc::make_mut(&mut view.gpu);
    gpu.index = None;
    gpu.minor = None;
    gpu.memory_bytes = None;
    gpu.down = Some("fell off the bus".into());
    view
}

fn gpu(id: &str, model: &str, elapsed: u64, devices: Vec<DeviceView>) -> GpuView {
    GpuView {
        gpu: Arc::new(Gpu {
            id: GpuId::new(id),
            index: Some(0),
            minor: Some(3),
            pci_bus_id: "00000000:17:00.0".into(),
            model: model.into(),
            memory_bytes: Some(80 << 30),
            memory_bus: None,
            link: None,
            down: None,
            mig: None,
            authority: Authority {
                engine: Some(Counter::Gpm),
                sm: Some(Counter::GpmCycles),
                processes: None,
            },
        }),
        up: true,
        elapsed: elapsed * SECOND,
        devices,
        residue: None,
        sharing: "none",
        board: Board::default(),
        totals: BoardTotals::default(),
        quote: None,
        dram_peak: None,
        tensor_peak: None,
        xids: Vec::new(),
        last_reading: Some(MonoNs(999 * SECOND + 500_000_000)),
        averaged_until: (id == "GPU-c").then_some(MonoNs(970 * SECOND)),
    }
}

pub(super) fn device(gpu: &str, mig: Option<&str>, states: [u64; 6]) -> DeviceView {
    let total: u64 = states.iter().sum::<u64>() * SECOND;
    DeviceView {
        id: DeviceId { gpu: GpuId::new(gpu), mig: mig.map(MigId::new) },
        instance: None,
        present: true,
        states: states.map(|seconds| seconds * SECOND),
        costs: None,
        usage: Usage { used: states[0] * SECOND, inactive: total - states[0] * SECOND, ..Usage::default() },
        profiled: total,
        activity: Activity::default(),
        memory_used: None,
        allocation_evidence: [total, 0, 0, 0],
        use_evidence: [total, 0, 0, 0],
    }
}

fn instance(id: &str, gpu_instance: u32, profile: &str, slices: u32) -> Instance {
    Instance {
        id: MigId::new(id),
        gpu_instance,
        compute_instance: Some(0),
        profile: profile.into(),
        slices,
        memory_bytes: Some(u64::from(slices) * (10 << 30)),
        placement: None,
    }
}

fn board() -> Board {
    Board {
        power_mw: Some(350_500),
        energy_mj: Some(1),
        power_limit_mw: Some(700_000),
        temperature_c: Some(61),
        memory_temperature_c: Some(-3),
        sm_clock_mhz: Some(1_980),
        memory_clock_mhz: Some(2_619),
        memory_used: Some(40 << 30),
        memory_total: Some(80 << 30),
        pcie_replays: Some(0),
        ecc_corrected: Some(4),
        ecc_uncorrected: Some(0),
        remapped_correctable: Some(1),
        remapped_uncorrectable: Some(0),
        remap_pending: Some(true),
        remap_failed: Some(false),
        ..Board::default()
    }
}

fn accounts() -> Vec<AccountView> {
    let named = |name: &str| Some((Arc::from("team-a"), Arc::from(name)));
    let mut full = account(pod_owner("uid-1", "main"), "GPU-a", None, State::Active, 95);
    full.pod = named("trainer-0");
    full.costs = Some([60, 20, 10, 5].map(|seconds| Money::of(PRICE, seconds * SECOND)));
    full.states[State::Active.index()] = 60 * SECOND;
    full.states[State::StalledDiskRead.index()] = 20 * SECOND;
    full.states[State::IdleNoWork.index()] = 10 * SECOND;
    full.states[State::UnknownNoEvidence.index()] = 5 * SECOND;
    full.activity = Activity {
        engine: Some(60 * SECOND),
        sm_active: Some(50 * SECOND),
        sm_occupied: Some(25 * SECOND),
        tensor: Some(1),
        dram: Some(2),
    };
    full.used = 60 * SECOND;
    full.bounds = [30, 15, 8, 2, 5].map(|seconds| seconds * SECOND);
    full.low_intensity = Some(3 * SECOND);
    full.energy_uj = Some(1_000_001);
    full.idle_energy_uj = Some(250_000);
    full.energy_cost = Some(Money::of_energy(ENERGY, 1_000_001));
    full.memory_used = Some(39 << 30);
    let unnamed = account(pod_owner("uid-2", ""), "GPU-b", Some("MIG-1"), State::Active, 45);
    let mut job = account(Owner::SlurmJob("4711".into()), "GPU-b", Some("MIG-2"), State::IdleNoProcess, 20);
    job.costs = Some([0, 0, 20, 0].map(|seconds| Money::of(PRICE, seconds * SECOND)));
    job.memory_used = Some(5);
    let mut half = account(pod_owner("uid-3", "serve"), "GPU-c", None, State::Active, 50);
    half.pod = named("server \"7\"");
    half.allocated = Ppb::percent(50);
    half.borrowed = 9 * SECOND;
    let mut ended = account(pod_owner("uid-4", "serve"), "GPU-c", None, State::IdleNoWork, 50);
    ended.pod = named("server-8");
    ended.ended = true;
    ended.memory_used = Some(1);
    let host = account(Owner::Container(ContainerId::new("c0ffee")), "GPU-d", None, State::Active, 0);
    full.calls = Some(Asked {
        launches: 12_345,
        graph_launches: 67,
        bytes_to_device: 3 << 30,
        bytes_to_host: 1 << 20,
        bytes_other: 512,
        copy_wait: SECOND / 4,
        copies_most: SECOND / 5,
        copies_least: SECOND / 8,
        sync_wait: 3 * SECOND,
    });
    full.gaps = Some(Arc::new(gaps()));
    full.injected = Some(injected());
    let mut list = vec![full, unnamed, half, ended, host, job];
    list.sort_by(|a, b| (&a.owner, &a.device).cmp(&(&b.owner, &b.device)));
    list
}

/// One drained gap of every length from 1 ns to a minute, and some between enqueues.
fn injected() -> InjectedTotals {
    let sums = Sums {
        elapsed: 600 * SECOND,
        sampled: 60 * SECOND,
        dropped: 7,
        cpu: SECOND / 4,
        busy: 42 * SECOND,
        ran: 40 * SECOND,
        interrupted: 12,
        kernels: 123_456,
        kernel: 50 * SECOND,
        late: 1_000,
        to_device: 1 << 30,
        to_host: 1 << 20,
        other: 0,
        copying: SECOND,
        set: 4096,
    };
    InjectedTotals { sums, shaped: 48 * SECOND, theoretical: 24 * SECOND }
}

fn gaps() -> GapLengths {
    let mut gaps = GapLengths::default();
    for log2 in 0..36 {
        gaps.add(&gap(GapKind::Drained, log2, 1));
    }
    gaps.add(&gap(GapKind::Enqueue, 13, 123_456));
    gaps
}

fn gap(kind: GapKind, log2: u8, ended: u64) -> Gap {
    Gap { kind, log2, count: 0, total: 0, ended, lasted: ended << log2, doings: [0; Doing::COUNT] }
}

pub(super) fn pod_owner(uid: &str, container: &str) -> Owner {
    Owner::Pod { uid: PodUid::new(uid), container: container.into() }
}

pub(super) fn account(owner: Owner, gpu: &str, mig: Option<&str>, state: State, seconds: u64) -> AccountView {
    let mut states = [0; State::COUNT];
    states[state.index()] = seconds * SECOND;
    AccountView {
        owner,
        pod: None,
        device: DeviceId { gpu: GpuId::new(gpu), mig: mig.map(MigId::new) },
        ended: false,
        states,
        costs: None,
        used: if state == State::Active { seconds * SECOND } else { 0 },
        borrowed: 0,
        profiled: seconds * SECOND,
        activity: Activity::default(),
        low_intensity: None,
        bounds: [0, 0, 0, 0, if state == State::Active { seconds * SECOND } else { 0 }],
        energy_uj: None,
        idle_energy_uj: None,
        energy_cost: None,
        calls: None,
        gaps: None,
        injected: None,
        memory_used: None,
        allocated: Some(Ppb::ONE),
        allocation_evidence: [seconds * SECOND, 0, 0, 0],
        use_evidence: [0; 4],
    }
}

fn pods() -> Vec<PodView> {
    let named = |uid: &str, name: &str| {
        let mut pod = pod(uid);
        pod.name = Some((Arc::from("team-a"), Arc::from(name)));
        pod
    };
    let mut full = named("uid-1", "trainer-0");
    full.started = Some(1_699_999_000_123_456_789);
    full.utilization = Ppb::new(526_315_789);
    full.info = PodInfo {
        workload_kind: "Job".into(),
        workload: "trainer".into(),
        team: "vision".into(),
        app: "resnet".into(),
        model: "resnet-50".into(),
        environment: "production".into(),
        idle_ok: true,
    };
    full.threads = Some(ThreadTotals {
        callers: std::array::from_fn(|place| place as u64 * SECOND),
        others: [SECOND / 2; Doing::COUNT],
    });
    full.pressure = Some(PressureTotals {
        waited: [Some(12 * SECOND), Some(SECOND / 4), None],
        throttled: Some(7 * SECOND + 500_000),
    });
    full.corroboration = Some(Corroboration {
        leading: State::StalledCpuWait,
        stalled: 20 * SECOND,
        during: 55 * SECOND,
        waited: Some(12 * SECOND),
        throttled: Some(7 * SECOND),
    });
    let mut ended = named("uid-4", "server-8");
    ended.ended = true;
    ended.utilization = Ppb::percent(1);
    vec![full, pod("uid-2"), named("uid-3", "server \"7\""), ended]
}

pub(super) fn pod(uid: &str) -> PodView {
    PodView {
        uid: PodUid::new(uid),
        name: None,
        ended: false,
        started: None,
        utilization: None,
        info: PodInfo::default(),
        threads: None,
        explanation: Arc::default(),
        pressure: None,
        corroboration: None,
    }
}

fn namespace(name: &str, seconds: u64, priced: bool) -> NamespaceView {
    let states = [seconds, 0, 1, 2].map(|seconds| seconds * SECOND);
    let costs = priced.then(|| states.map(|nanos| Money::of(PRICE, nanos)));
    assert_eq!(states.len(), Class::COUNT);
    let energy_cost = priced.then(|| Money::of_energy(ENERGY, 1_000_001));
    NamespaceView { name: name.into(), states, costs, energy_cost }
}

fn source(source: Source) -> SourceView {
    let (state, reason) = match source {
        Source::Nvidia => (Some(HealthState::Up), ""),
        Source::Host => (Some(HealthState::Degraded), "cannot read /proc/1/fd"),
        Source::Pods | Source::Names | Source::Prices | Source::Probes | Source::Dcgm | Source::Inject => {
            (Some(HealthState::Off), "not configured")
        }
        Source::Daemon => (None, ""),
    };
    SourceView {
        source,
        state,
        reason: reason.into(),
        since: MonoNs(990 * SECOND),
        last_fact: Some(MonoNs(999 * SECOND)),
        last_answer: Some(MonoNs(997 * SECOND)),
        facts: 1_000,
        lost: 1,
        polls: 500,
        poll_nanos: 1_500_000,
        discarded: [1, 0, 0, 0, 0, 0, 2, 0, 0],
        own: (source == Source::Nvidia).then_some(Own { cpu: 1_250_000_000, resident: 12 << 20 }),
    }
}
