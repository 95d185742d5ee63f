//! The view of a large node: 8 GPUs of 7 MIG instances each, and 64 pods.

use std::sync::Arc;

use warpmeter_core::fact::{Board, Discard, HealthState, Own, Source};
use warpmeter_core::identity::{DeviceId, GpuId, MigId, Owner, PodUid};
use warpmeter_core::inventory::{Authority, Driver, Gpu, Instance, Mig};
use warpmeter_core::price::{Money, Price, Quote};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::time::MonoNs;
use warpmeter_core::view::{
    AccountView, Activity, BoardTotals, DeviceView, GpuView, NamespaceView, PodView, Residue, SourceView,
    Usage, View,
};

const GPUS: u64 = 8;
const INSTANCES: u64 = 7;
const PODS: u64 = 64;

/// The view after `window` windows: names stay, amounts differ in every digit.
pub(crate) fn view(window: u64) -> View {
    View {
        node: "gpu-node-17.eu-central.example.com".into(),
        at: MonoNs(window * 1_000_000_000),
        wall: 1_700_000_000_000_000_000 + window * 1_000_000_000,
        window: 1_000_000_000,
        windows: window * GPUS,
        currency: "USD".into(),
        host_cost: None,
        energy: None,
        price_missing: String::new(),
        driver: Some(Driver { version: "570.133.20".into(), nvml: None, cuda: Some("12.8".into()) }),
        gpus: (0..GPUS).map(|gpu| gpu_view(window, gpu)).collect(),
        accounts: (0..PODS).map(|pod| account(window, pod)).collect(),
        pods: (0..PODS).map(pod).collect(),
        namespaces: (0..8).map(|number| namespace(window, number)).collect(),
        sources: Source::ALL.into_iter().map(|source| source_view(window, source)).collect(),
        conservation_error: 0,
    }
}

/// Some amount that differs for each window and place.
const fn amount(window: u64, place: u64) -> u64 {
    (window + 1_000) * 987_654_321 + place * 123_456_789
}

fn gpu_id(gpu: u64) -> GpuId {
    GpuId::new(format!("GPU-8f1c2e4a-5b6d-7e8f-9a0b-{gpu:012x}"))
}

fn mig_id(gpu: u64, instance: u64) -> MigId {
    MigId::new(format!("MIG-c0ffee00-1234-5678-9abc-{:012x}", gpu * INSTANCES + instance))
}

fn instance(gpu: u64, number: u64) -> Instance {
    Instance {
        id: mig_id(gpu, number),
        gpu_instance: u32::try_from(number + 7).unwrap_or_default(),
        compute_instance: Some(0),
        profile: "1g.10gb".into(),
        slices: 1,
        memory_bytes: Some(10 << 30),
        placement: None,
    }
}

fn gpu_view(window: u64, gpu: u64) -> GpuView {
    let instances: Vec<_> = (0..INSTANCES).map(|number| instance(gpu, number)).collect();
    GpuView {
        devices: instances.iter().map(|instance| device(window, gpu, instance)).collect(),
        gpu: Arc::new(Gpu {
            id: gpu_id(gpu),
            index: u32::try_from(gpu).ok(),
            minor: u32::try_from(gpu).ok(),
            pci_bus_id: format!("00000000:{gpu:02x}:00.0"),
            model: "NVIDIA H100 80GB HBM3".into(),
            memory_bytes: Some(80 << 30),
            memory_bus: None,
            link: None,
            down: None,
            mig: Some(Mig { slices: 7, instances, creatable_slices: 0 }),
            authority: Authority::default(),
        }),
        up: true,
        elapsed: amount(window, gpu),
        residue: Some(Residue {
            unallocated_cost: Some(Money(0)),
            unallocatable_cost: Some(Money(0)),
            ..Residue::default()
        }),
        sharing: "mig",
        board: Board {
            power_mw: Some(350_000 + window),
            power_limit_mw: Some(700_000),
            temperature_c: Some(60),
            memory_temperature_c: Some(70),
            sm_clock_mhz: Some(1_980),
            memory_clock_mhz: Some(2_619),
            memory_used: Some(40 << 30),
            memory_total: Some(80 << 30),
            pcie_replays: Some(0),
            ecc_corrected: Some(0),
            ecc_uncorrected: Some(0),
            remapped_correctable: Some(0),
            remapped_uncorrectable: Some(0),
            remap_pending: Some(false),
            remap_failed: Some(false),
            ..Board::default()
        },
        totals: BoardTotals {
            energy_uj: Some(amount(window, gpu)),
            idle_energy_uj: None,
            energy_cost: None,
            pcie_receive: Some(u128::from(amount(window, gpu))),
            pcie_transmit: Some(u128::from(amount(window, gpu))),
            nvlink_receive: Some(u128::from(amount(window, gpu))),
            nvlink_transmit: Some(u128::from(amount(window, gpu))),
            throttle: Some([amount(window, gpu); 8]),
        },
        quote: Some(Quote::configured(Price(2_950_000))),
        dram_peak: None,
        tensor_peak: None,
        xids: Vec::new(),
        last_reading: Some(MonoNs(window * 1_000_000_000)),
        averaged_until: None,
    }
}

fn device(window: u64, gpu: u64, instance: &Instance) -> DeviceView {
    let some = |place: u64| amount(window, gpu * 10 + place);
    DeviceView {
        id: DeviceId { gpu: gpu_id(gpu), mig: Some(instance.id.clone()) },
        instance: Some(instance.clone()),
        present: true,
        states: [some(0), some(1), some(2), some(3), some(4), 0],
        costs: Some([0, 1, 2, 3, 4, 5].map(|place| Money::of(Price(2_950_000), some(place)))),
        usage: Usage { used: some(0), unattributed: some(1), inactive: some(2), unknown: some(3) },
        profiled: some(4),
        activity: activity(some(5)),
        memory_used: Some(5 << 30),
        allocation_evidence: [some(6), 0, 0, 0],
        use_evidence: [some(6), some(7), 0, 0],
    }
}

fn activity(amount: u64) -> Activity {
    let some = Some(amount);
    Activity { engine: some, sm_active: some, sm_occupied: some, tensor: some, dram: some }
}

fn name(pod: u64) -> (Arc<str>, Arc<str>) {
    (
        Arc::from(format!("team-{}", pod % 8)),
        Arc::from(format!("training-job-resnet-{pod}-worker-{}", pod % 4)),
    )
}

fn uid(pod: u64) -> PodUid {
    PodUid::new(format!("3f2a9c1e-77aa-4b6c-8d2e-{pod:012x}"))
}

fn account(window: u64, pod: u64) -> AccountView {
    let place = pod % (GPUS * INSTANCES);
    let (gpu, instance) = (place / INSTANCES, place % INSTANCES);
    let some = |place: u64| amount(window, pod * 31 + place);
    let mut states = [0; 19];
    for (state, place) in states.iter_mut().zip(0..) {
        *state = some(place);
    }
    AccountView {
        owner: Owner::Pod { uid: uid(pod), container: "main".into() },
        pod: Some(name(pod)),
        device: DeviceId { gpu: gpu_id(gpu), mig: Some(mig_id(gpu, instance)) },
        ended: false,
        states,
        costs: Some([0, 1, 2, 3].map(|place| Money::of(Price(2_950_000), some(place)))),
        used: some(1),
        borrowed: some(2),
        profiled: some(3),
        activity: activity(some(4)),
        low_intensity: Some(some(5)),
        bounds: [1, 2, 3, 4, 5].map(some),
        energy_uj: Some(some(6)),
        idle_energy_uj: Some(some(2)),
        energy_cost: None,
        calls: None,
        gaps: None,
        injected: None,
        memory_used: Some(3 << 30),
        allocated: Some(Ppb::ONE),
        allocation_evidence: [some(7), 0, 0, 0],
        use_evidence: [some(8), 0, 0, 0],
    }
}

fn pod(pod: u64) -> PodView {
    PodView {
        uid: uid(pod),
        name: Some(name(pod)),
        ended: false,
        started: Some(1_699_999_000_000_000_000),
        utilization: Ppb::percent(u32::try_from(pod).unwrap_or_default()),
        info: warpmeter_core::fact::PodInfo {
            workload_kind: "Job".into(),
            workload: "training-job-resnet".into(),
            team: "vision".into(),
            ..warpmeter_core::fact::PodInfo::default()
        },
        threads: None,
        explanation: Arc::default(),
        pressure: None,
        corroboration: None,
    }
}

fn namespace(window: u64, number: u64) -> NamespaceView {
    let states = [0, 1, 2, 3].map(|place| amount(window, number * 7 + place));
    let costs = Some(states.map(|nanos| Money::of(Price(2_950_000), nanos)));
    NamespaceView { name: Arc::from(format!("team-{number}")), states, costs, energy_cost: None }
}

fn source_view(window: u64, source: Source) -> SourceView {
    SourceView {
        source,
        state: Some(HealthState::Up),
        reason: String::new(),
        since: MonoNs(0),
        last_fact: Some(MonoNs(window * 1_000_000_000)),
        last_answer: Some(MonoNs(window * 1_000_000_000)),
        facts: amount(window, 0),
        lost: 0,
        polls: window,
        poll_nanos: amount(window, 1),
        discarded: [0; Discard::ALL.len()],
        own: Some(Own { cpu: amount(window, 2), resident: 12 << 20 }),
    }
}
