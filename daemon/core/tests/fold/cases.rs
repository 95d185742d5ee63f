//! Single cases: what becomes of one node's time.

use warpmeter_core::fact::{
    Allotment, DeviceRef, Fact, GrantPart, Health, HealthState, Level, Part, Pod, PodInfo, PodNames, Sample,
    Share, Source,
};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{GpuId, MigId, Owner, PodUid};
use warpmeter_core::inventory::Gpu;
use warpmeter_core::price::Money;
use warpmeter_core::ratio::Ppb;
use warpmeter_core::settings::Settings;
use warpmeter_core::state::{Class, DeviceState, State};
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_core::view::{AccountView, Evidence, View};

use crate::node::{
    gone, gpu, host_up, inventory, mig, part, pod, pods, process, process_use, reading, sample, settings,
    tick, whole,
};

pub(crate) const G: &str = "GPU-a";

/// What is known from the start is known well before the first second begins here.
pub(crate) const BEGIN: u64 = 10 * SECOND;

/// A node under test: facts go in by second, views come out.
pub(crate) struct Node {
    fold: Fold,
    pub(crate) view: View,
}

impl Node {
    pub(crate) fn new(settings: Settings, gpus: &[Gpu]) -> Self {
        let mut fold = Fold::new(settings);
        fold.apply(host_up());
        fold.apply(sample(1, Source::Nvidia, inventory(gpus)));
        Self { view: fold.view(), fold }
    }

    pub(crate) fn put(&mut self, at: u64, source: Source, fact: Fact) -> &mut Self {
        self.apply(sample(if at < 10 { at } else { BEGIN + at }, source, fact))
    }

    pub(crate) fn apply(&mut self, sample: Sample) -> &mut Self {
        if let Some(view) = self.fold.apply(sample) {
            assert_eq!(view.conservation_error, 0);
            self.view = view;
        }
        self
    }

    /// One second's reading of [`G`], ending at second `end`.
    pub(crate) fn second(&mut self, end: u64, engine: Option<u32>, pids: &[u32]) -> &mut Self {
        self.parts(end, vec![part(None, engine, pids)])
    }

    pub(crate) fn parts(&mut self, end: u64, parts: Vec<Part>) -> &mut Self {
        self.put(
            end * SECOND,
            Source::Nvidia,
            reading(G, BEGIN + (end - 1) * SECOND, BEGIN + end * SECOND, parts),
        )
    }

    pub(crate) fn tick(&mut self, second: u64) -> &mut Self {
        self.apply(tick(BEGIN + second * SECOND))
    }

    pub(crate) fn account(&self, pod: &str) -> &AccountView {
        let uid = PodUid::new(pod);
        let found = self.view.accounts.iter().find(|account| match &account.owner {
            Owner::Pod { uid: other, .. } => *other == uid,
            _ => false,
        });
        found.unwrap_or_else(|| panic!("{pod} has an account: {:#?}", self.view.accounts))
    }

    /// Milliseconds that a pod spent in a state.
    pub(crate) fn ms(&self, pod: &str, state: State) -> u64 {
        (self.account(pod).states[state.index()] + 500_000) / 1_000_000
    }

    pub(crate) fn device_ms(&self, state: DeviceState) -> u64 {
        let devices = self.view.gpus.iter().flat_map(|gpu| &gpu.devices);
        devices.map(|device| device.states[state.index()]).sum::<u64>() / 1_000_000
    }
}

fn one_pod() -> Fact {
    pods(&[pod("p", &[(whole(G), GrantPart::Whole)])], &[])
}

fn whole_gpu() -> Node {
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, one_pod());
    node
}

#[test]
fn a_whole_gpus_activity_is_its_pods() {
    let mut node = whole_gpu();
    node.put(3, Source::Host, process(7, 2, "p"));
    node.second(1, Some(80), &[7]).second(2, Some(60), &[7]).tick(4);
    assert_eq!((node.ms("p", State::Active), node.ms("p", State::UnknownNoEvidence)), (1400, 600));
    let account = node.account("p");
    assert_eq!((account.used, account.borrowed, account.profiled), (1_400_000_000, 0, 2 * SECOND));
    assert_eq!(
        (account.activity.sm_active, account.activity.sm_occupied),
        (Some(700_000_000), Some(350_000_000))
    );
    assert_eq!(account.use_evidence[Evidence::Measured as usize], account.used);
    assert_eq!(account.allocated, Some(Ppb::ONE));
    assert_eq!(node.view.namespaces[0].states.iter().sum::<u64>(), 2 * SECOND);
    // 3.6 an hour is a thousandth a second.
    assert_eq!(
        node.view.namespaces[0].costs.unwrap().iter().map(|m| m.0).sum::<u128>(),
        2 * Money::UNIT / 1000
    );
}

#[test]
fn a_pod_whose_devices_nobody_opened_is_idle_for_certain() {
    let mut node = whole_gpu();
    node.second(1, Some(0), &[]).tick(3);
    assert_eq!(node.ms("p", State::IdleNoProcess), 1000);
}

#[test]
fn without_a_host_source_nobody_is_idle_for_certain() {
    let mut node = whole_gpu();
    let down = Health { state: HealthState::Down, reason: "no /proc".into() };
    node.put(3, Source::Host, Fact::Health(down)).second(1, Some(0), &[]).tick(3);
    assert_eq!(node.ms("p", State::UnknownNoEvidence), 1000);
}

#[test]
fn a_pod_goes_from_opening_its_device_to_loading_to_work_to_no_work() {
    let mut node = Node::new(Settings { no_work_after: 3 * SECOND, ..settings() }, &[gpu(G)]);
    node.put(2, Source::Pods, one_pod()).put(3, Source::Host, process(7, 2, "p"));
    node.second(1, Some(0), &[]); // the device file is open
    node.second(2, Some(0), &[7]); // a context
    node.second(3, Some(50), &[7]); // work
    for second in 4..=7 {
        node.second(second, Some(0), &[7]);
    }
    node.tick(9);
    assert_eq!(node.ms("p", State::IdleInitializing), 1000);
    assert_eq!(node.ms("p", State::IdleModelLoad), 1000);
    assert_eq!(node.ms("p", State::Active), 500);
    assert_eq!(node.ms("p", State::UnknownNoEvidence), 500 + 2000, "quiet, but not for long enough");
    assert_eq!(node.ms("p", State::IdleNoWork), 2000);
}

#[test]
fn a_process_older_than_the_watch_may_have_worked_before_it() {
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, one_pod()).put(3, Source::Host, process(7, 0, "p"));
    node.second(1, Some(0), &[7]).tick(3);
    assert_eq!(node.ms("p", State::UnknownNoEvidence), 1000);
}

#[test]
fn lost_counters_are_unknown_and_not_zero() {
    let mut node = whole_gpu();
    node.second(1, Some(50), &[]).second(2, None, &[]).second(5, Some(50), &[]).tick(7);
    assert_eq!(
        node.ms("p", State::UnknownSourceLost),
        1000 + 2000,
        "a reading without its counter, and a gap"
    );
    let device = &node.view.gpus[0].devices[0];
    assert_eq!((device.usage.unknown, device.profiled), (3 * SECOND, 2 * SECOND));
    assert_eq!(device.activity.engine, Some(SECOND));
}

#[test]
fn a_source_that_dies_leaves_unknown_time_and_no_gauges() {
    let mut node = whole_gpu();
    node.second(1, Some(50), &[]);
    node.put(2 * SECOND, Source::Nvidia, inventory(&[]));
    for second in 2..=20 {
        node.tick(second);
    }
    assert!(node.ms("p", State::UnknownSourceLost) >= 16_000);
    let gpu = &node.view.gpus[0];
    assert!(!gpu.up && gpu.gpu.down.is_some() && gpu.board.energy_mj.is_none());
}

#[test]
fn a_counter_stuck_at_zero_beside_a_busy_signal_is_a_conflict() {
    let mut node = whole_gpu();
    for second in 1..=3 {
        let stuck = Part { corroboration: Ppb::percent(90), ..part(None, Some(0), &[]) };
        node.parts(second, vec![stuck]);
    }
    node.tick(5);
    assert_eq!(node.ms("p", State::UnknownConflict), 2000, "from the second time on");
    assert_eq!(node.view.gpus[0].devices[0].usage.unknown, 2 * SECOND);
}

#[test]
fn replicas_are_parts_and_those_that_nobody_holds_are_unallocated() {
    let held = |replica| [(whole(G), GrantPart::Replica(replica))];
    for redistribute in [false, true] {
        let mut node = Node::new(Settings { redistribute, ..settings() }, &[gpu(G)]);
        node.put(2, Source::Pods, pods(&[pod("p", &held(0)), pod("q", &held(1))], &[(whole(G), 4)]));
        node.put(3, Source::Host, process(7, 2, "p"));
        node.second(1, Some(80), &[7]).tick(3);
        let allocated = if redistribute { 500 } else { 250 };
        assert_eq!(node.ms("p", State::Active), allocated);
        assert_eq!(node.account("p").borrowed, (800 - allocated) * 1_000_000);
        assert_eq!(node.ms("q", State::IdleNoProcess), allocated);
        assert_eq!(node.device_ms(DeviceState::Unallocated), 1000 - 2 * allocated);
        assert_eq!(node.view.gpus[0].sharing, "replicas");
    }
}

#[test]
fn a_shared_devices_use_follows_the_drivers_process_samples() {
    let held = |replica| [(whole(G), GrantPart::Replica(replica))];
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, pods(&[pod("p", &held(0)), pod("q", &held(1))], &[(whole(G), 2)]));
    node.put(3, Source::Host, process(7, 2, "p")).put(3, Source::Host, process(8, 2, "q"));
    node.second(1, Some(90), &[7, 8]).tick(2);
    assert!(node.view.accounts.is_empty(), "the window waits for the samples");
    node.put(2 * SECOND + 1, Source::Nvidia, process_use(G, BEGIN, BEGIN + SECOND, &[(7, 60), (8, 30)]));
    node.second(2, Some(90), &[7, 8]).tick(3);
    assert_eq!((node.account("p").used, node.account("q").used), (600_000_000, 300_000_000));
    assert_eq!(node.account("p").use_evidence[Evidence::Apportioned as usize], 600_000_000);
    assert_eq!(node.account("p").borrowed, 100_000_000);
    // Without any samples it does not wait for ever, and invents nothing.
    node.tick(6);
    assert_eq!(node.view.gpus[0].devices[0].usage.unattributed, 900_000_000);
    assert_eq!(node.ms("q", State::UnknownNoEvidence), 200 + 500, "what ran may have been its own");
}

#[test]
fn instances_are_measured_in_time_of_the_whole_gpu() {
    let mut node = Node::new(settings(), &[mig(G, &[3, 1], 2)]);
    let instance = |index| MigId::new(format!("MIG-{G}-{index}"));
    let grant = [(DeviceRef::Mig(instance(0)), GrantPart::Whole)];
    node.put(2, Source::Pods, pods(&[pod("p", &grant)], &[])).put(3, Source::Host, process(7, 2, "p"));
    for second in 1..=7 {
        let parts = vec![part(Some(instance(0)), Some(50), &[7]), part(Some(instance(1)), Some(0), &[])];
        node.parts(second, parts);
    }
    node.tick(9);
    assert_eq!((node.ms("p", State::Active), node.ms("p", State::UnknownNoEvidence)), (1500, 1500));
    let gpu = &node.view.gpus[0];
    assert_eq!((gpu.elapsed, gpu.sharing), (7 * SECOND, "mig"));
    let residue = gpu.residue.unwrap();
    let ms = |nanos: u64| (nanos + 500_000) / 1_000_000;
    assert_eq!((ms(residue.unallocated), ms(residue.unallocatable)), (2000, 1000));
    assert_eq!(ms(gpu.devices[1].states[DeviceState::Unallocated.index()]), 1000);
}

#[test]
fn instances_made_anew_start_within_a_window_and_old_ones_end() {
    let mut node = Node::new(Settings { retain: 5 * SECOND, ..settings() }, &[mig(G, &[7], 0)]);
    let first = part(Some(MigId::new(format!("MIG-{G}-0"))), Some(50), &[]);
    node.parts(1, vec![first]).tick(2);
    let mut changed = mig(G, &[3, 3], 0);
    for (index, instance) in changed.mig.as_mut().unwrap().instances.iter_mut().enumerate() {
        instance.id = MigId::new(format!("MIG-new-{index}"));
    }
    node.put(SECOND + 1, Source::Nvidia, inventory(&[changed]));
    let parts =
        (0..2).map(|index| part(Some(MigId::new(format!("MIG-new-{index}"))), Some(50), &[])).collect();
    node.parts(2, parts).tick(4);
    let present: Vec<bool> = node.view.gpus[0].devices.iter().map(|device| device.present).collect();
    assert_eq!(present, [false, true, true]);
    for second in 5..12 {
        node.tick(second);
    }
    assert_eq!(node.view.gpus[0].devices.len(), 2, "the old one is dropped after a while");
}

#[test]
fn time_is_cut_where_a_grant_changes() {
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, pods(&[], &[]));
    node.put(SECOND / 4, Source::Pods, one_pod());
    node.second(1, Some(100), &[]).tick(3);
    assert_eq!(node.ms("p", State::Active), 750);
    assert_eq!(node.device_ms(DeviceState::Unallocated), 250);
    assert_eq!(node.view.gpus[0].devices[0].usage.unattributed, 250_000_000, "nobody held it when that ran");
}

#[test]
fn grants_that_are_heard_of_before_the_inventory_hold_from_the_start() {
    let mut fold = Fold::new(settings());
    fold.apply(sample(BEGIN, Source::Pods, one_pod()));
    fold.apply(sample(BEGIN + SECOND / 2, Source::Nvidia, inventory(&[gpu(G)])));
    let parts = vec![part(None, Some(100), &[])];
    fold.apply(sample(BEGIN + SECOND, Source::Nvidia, reading(G, BEGIN + 1, BEGIN + SECOND, parts)));
    let view = fold.apply(tick(BEGIN + 2 * SECOND)).unwrap();
    assert_eq!(view.accounts[0].used, SECOND - 1, "all of the first window is the pod's");
    assert_eq!(view.sources.iter().map(|source| source.discarded.iter().sum::<u64>()).sum::<u64>(), 0);
}

#[test]
fn before_the_source_of_grants_has_spoken_nobody_knows_who_holds_what() {
    let mut node = Node::new(Settings { grants_expected: true, ..settings() }, &[gpu(G)]);
    node.put(3, Source::Host, process(7, 2, "p")).second(1, Some(100), &[7]).tick(3);
    assert_eq!(node.device_ms(DeviceState::Unallocated), 0, "unknown is not unallocated");
    assert_eq!(node.device_ms(DeviceState::Allocated(Class::Unknown)), 1000);
    assert_eq!(node.view.gpus[0].devices[0].allocation_evidence, [0, 0, 0, SECOND]);
    node.put(3 * SECOND, Source::Pods, pods(&[], &[])).second(4, Some(0), &[]).tick(6);
    assert!(node.device_ms(DeviceState::Unallocated) >= 1000);
}

#[test]
fn inference_ends_for_good_when_a_source_of_grants_speaks_if_it_was_to_last_until_then() {
    for until_heard in [true, false] {
        let settings = Settings { infer_allocation: true, infer_until_heard: until_heard, ..settings() };
        let mut node = Node::new(settings, &[gpu(G)]);
        node.put(3, Source::Host, process(7, 2, "p")).second(1, Some(100), &[7]).tick(2);
        assert_eq!(node.device_ms(DeviceState::Allocated(Class::Active)), 1000, "inferred");
        assert_eq!(node.device_ms(DeviceState::Unallocated), 0);
        // In the middle of a window, all of which is still open.
        node.put(2 * SECOND + SECOND / 2, Source::Pods, pods(&[], &[]));
        node.second(2, Some(100), &[7]).second(3, Some(100), &[7]).second(4, Some(100), &[7]).tick(5);
        let unallocated = node.device_ms(DeviceState::Unallocated);
        assert_eq!(unallocated, if until_heard { 3000 } else { 0 }, "granted to nobody, {until_heard}");
    }
}

#[test]
fn grants_that_are_heard_of_after_the_first_reading_hold_from_its_start() {
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.second(1, Some(100), &[]).put(SECOND + 1, Source::Pods, one_pod()).tick(3);
    assert_eq!(node.ms("p", State::Active), 1000);
}

#[test]
fn of_two_pods_that_claim_a_whole_device_those_that_live_hold_it() {
    let claim = |name| pod(name, &[(whole(G), GrantPart::Whole)]);
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, pods(&[claim("p"), claim("q")], &[]));
    node.second(1, Some(100), &[]).tick(2);
    assert_eq!(
        (node.ms("p", State::Active), node.ms("q", State::UnknownNoEvidence)),
        (0, 500),
        "nobody is known to"
    );
    node.put(2 * SECOND, Source::Host, process(8, 2, "q")).tick(3);
    node.second(4, Some(100), &[]).tick(6);
    assert_eq!(node.account("q").states[0], SECOND, "the kubelet lists p, but it has ended");
    assert_eq!(node.account("q").allocated, Some(Ppb::ONE));
}

#[test]
fn names_from_the_api_server_name_pods_and_end_them() {
    let names = |ended| {
        let Pod { uid, namespace, name, containers, info, .. } = pod("p", &[]);
        let info = PodInfo { team: "vision".into(), ..info };
        Fact::Names(vec![PodNames { uid, namespace, name, containers, ended, info, allotments: Vec::new() }])
    };
    let mut node = Node::new(Settings { infer_allocation: true, ..settings() }, &[gpu(G)]);
    node.put(2, Source::Names, names(false)).put(3, Source::Host, process(7, 2, "p"));
    node.second(1, Some(100), &[7]).tick(3);
    assert_eq!(node.account("p").pod.as_ref().map(|(_, name)| &**name), Some("pod-p"));
    assert_eq!(&*node.view.pods[0].info.team, "vision");
    assert!(matches!(&node.account("p").owner, Owner::Pod { container, .. } if &**container == "main"));

    let mut node = whole_gpu();
    node.put(3, Source::Names, names(true)).second(1, Some(0), &[]).tick(3);
    assert_eq!(node.device_ms(DeviceState::Unallocated), 1000, "the kubelet lists it, and it has ended");
}

#[test]
fn of_two_pods_that_claim_one_replica_the_one_that_lives_holds_it() {
    let claim = |name| pod(name, &[(whole(G), GrantPart::Replica(0))]);
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, pods(&[claim("p"), claim("q")], &[(whole(G), 4)]));
    node.put(2, Source::Host, process(8, 2, "q")).second(1, Some(100), &[8]).tick(3);
    assert_eq!((node.ms("q", State::Active), node.device_ms(DeviceState::Unallocated)), (250, 750));
}

#[test]
fn a_whole_grant_of_a_divided_gpu_is_of_all_its_instances() {
    let mut node = Node::new(settings(), &[mig(G, &[3, 4], 0)]);
    node.put(2, Source::Pods, one_pod());
    let parts =
        (0..2).map(|index| part(Some(MigId::new(format!("MIG-{G}-{index}"))), Some(50), &[])).collect();
    node.parts(1, parts).tick(3);
    assert_eq!(node.device_ms(DeviceState::Unallocated), 0);
    assert_eq!(node.view.accounts.len(), 2);
}

type Shares<'a> = &'a [(&'a str, Share)];

/// What a scheduler noted for the pod `p`, whose plugin does as it says.
fn allotted(shares: Shares<'_>) -> Fact {
    let Pod { uid, namespace, name, containers, info, .. } = pod("p", &[]);
    let allotment = |(device, share): &(&str, Share)| Allotment {
        container: "main".into(),
        device: whole(device),
        share: *share,
    };
    let allotments = shares.iter().map(allotment).collect();
    Fact::Names(vec![PodNames { uid, namespace, name, containers, ended: false, info, allotments }])
}

#[test]
fn what_a_scheduler_noted_replaces_the_parts_that_the_kubelet_names_of_a_deferred_container() {
    let percent = |percent| Share::Compute(Ppb::percent(percent).unwrap());
    let half = Share::Memory(40 << 30);
    let units = |units, of| Share::Units { units, of };
    let cases: [(Shares<'_>, u64, u64); 8] = [
        (&[], 100, 0),
        (&[("GPU-b", percent(25))], 0, 250),
        (&[("GPU-b", percent(25)), ("GPU-b", percent(25))], 0, 500),
        (&[(G, half), ("GPU-b", half)], 500, 500),
        (&[("GPU-b", units(3, Some(8)))], 0, 375),
        // Of the ten parts of the first that are offered; how many units the other has is not known.
        (&[(G, units(3, None))], 300, 0),
        (&[("GPU-b", units(3, None))], 100, 0),
        (&[("GPU-b", half), ("GPU-elsewhere", half)], 100, 0),
    ];
    for (shares, first, second) in cases {
        for deferred in [true, false] {
            let mut granted = pod("p", &[(whole(G), GrantPart::Replica(0))]);
            granted.deferred = if deferred { vec!["main".into()] } else { vec![] };
            let mut node = Node::new(settings(), &[gpu(G), Gpu { minor: Some(4), ..gpu("GPU-b") }]);
            node.put(2, Source::Pods, pods(&[granted], &[(whole(G), 10)]));
            node.put(3, Source::Names, allotted(shares));
            node.second(1, Some(0), &[]);
            node.fold.apply(sample(
                BEGIN + 2 * SECOND,
                Source::Nvidia,
                reading("GPU-b", BEGIN + SECOND, BEGIN + 2 * SECOND, vec![part(None, Some(0), &[])]),
            ));
            node.tick(4);
            let held = |device: &str| {
                let accounts =
                    node.view.accounts.iter().filter(|account| account.device.gpu.as_str() == device);
                accounts.map(|account| account.states.iter().sum::<u64>()).sum::<u64>() / (SECOND / 1000)
            };
            let expected = if deferred { (first, second) } else { (100, 0) };
            assert_eq!((held(G), held("GPU-b")), expected, "{shares:?}");
            assert_eq!(node.view.conservation_error, 0);
        }
    }
}

#[test]
fn a_uid_that_the_kubelet_does_not_tell_is_the_api_servers() {
    let mut unknown = pod("p", &[(whole(G), GrantPart::Whole)]);
    unknown.uid = PodUid::unknown("ns", "pod-p");
    unknown.containers.clear();
    let Pod { uid, namespace, name, containers, info, .. } = pod("p", &[]);
    let names =
        vec![PodNames { uid, namespace, name, containers, ended: false, info, allotments: Vec::new() }];
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, pods(&[unknown], &[])).put(3, Source::Host, process(7, 2, "p"));
    node.put(4, Source::Names, Fact::Names(names)).second(1, Some(100), &[7]).tick(3);
    assert_eq!((node.account("p").states[0], node.account("p").borrowed), (SECOND, 0));
}

#[test]
fn whoever_has_a_device_open_holds_it_only_where_nothing_else_says_who_does() {
    for infer_allocation in [false, true] {
        let mut node = Node::new(Settings { infer_allocation, ..settings() }, &[gpu(G)]);
        node.put(3, Source::Host, process(7, 2, "p"));
        node.second(1, Some(100), &[7]).tick(3);
        let account = node.account("p");
        assert_eq!(account.used, SECOND);
        assert_eq!(account.states[0], if infer_allocation { SECOND } else { 0 });
        assert_eq!(account.borrowed, if infer_allocation { 0 } else { SECOND });
        assert_eq!(account.allocation_evidence[Evidence::Assumed as usize], account.states[0]);
    }
}

#[test]
fn a_process_too_short_to_be_identified_is_waited_for_and_then_nobodys() {
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.second(1, Some(100), &[7]).apply(tick(BEGIN + SECOND + SECOND / 4 + 1));
    assert_eq!(node.view.windows, 0, "its identity may be on its way");
    node.put(SECOND + SECOND / 2, Source::Host, process(7, 2, "p")).tick(2);
    assert_eq!(node.account("p").used, SECOND);
    node.second(2, Some(100), &[9]).tick(6);
    assert_eq!(node.view.gpus[0].devices[0].usage.unattributed, SECOND);
}

#[test]
fn an_ended_pods_counters_stay_for_a_while_and_its_gauges_go_at_once() {
    let mut node = Node::new(Settings { retain: 5 * SECOND, ..settings() }, &[gpu(G)]);
    node.put(2, Source::Pods, one_pod()).put(3, Source::Host, process(7, 2, "p"));
    node.second(1, Some(100), &[7]).tick(3);
    assert!(node.account("p").memory_used.is_some() && node.view.pods[0].utilization.is_some());
    node.put(3 * SECOND, Source::Host, gone(7, 2)).put(3 * SECOND, Source::Pods, pods(&[], &[])).tick(5);
    let account = node.account("p");
    assert!(account.ended && account.memory_used.is_none() && account.allocated.is_none());
    assert_eq!(account.pod.as_ref().map(|(_, name)| name.as_ref()), Some("pod-p"), "its name stays as long");
    for second in 6..14 {
        node.tick(second);
    }
    assert!(node.view.accounts.is_empty() && node.view.pods.is_empty());
    assert_eq!(
        node.view.namespaces[0].states.iter().sum::<u64>(),
        node.view.gpus[0].devices[0].states[..4].iter().sum::<u64>()
    );
}

#[test]
fn the_trailing_utilisation_is_of_the_last_minute_and_absent_when_unknown() {
    let mut node = whole_gpu();
    for second in 1..=70 {
        node.second(second, Some(if second <= 10 { 100 } else { 40 }), &[]);
    }
    node.tick(72);
    assert_eq!(node.view.pods[0].utilization, Ppb::percent(20), "SM activity, which is half of the engine's");
    for second in 71..=80 {
        node.second(second, None, &[]);
    }
    node.tick(82);
    assert_eq!(node.view.pods[0].utilization, None);
}

#[test]
fn energy_goes_to_those_who_used_the_gpu() {
    let held = |replica| [(whole(G), GrantPart::Replica(replica))];
    let mut node = Node::new(settings(), &[gpu(G)]);
    node.put(2, Source::Pods, pods(&[pod("p", &held(0)), pod("q", &held(1))], &[(whole(G), 2)]));
    node.put(3, Source::Host, process(7, 2, "p"));
    node.second(1, Some(100), &[7]).second(2, Some(100), &[7]).second(3, Some(0), &[7]).tick(5);
    // 100 J a second: the first reading sets the start, the second second is p's, the idle third both holders'.
    assert_eq!(node.account("p").energy_uj, Some(150_000_000));
    assert_eq!(node.account("q").energy_uj, Some(50_000_000));
    assert_eq!(node.view.gpus[0].totals.energy_uj, Some(200_000_000));
}

#[test]
fn faults_are_counted_by_number_and_repeats_count() {
    let mut node = whole_gpu();
    for xid in [79, 31, 79] {
        node.put(SECOND, Source::Nvidia, Fact::Xid { gpu: GpuId::new(G), xid });
    }
    node.tick(2);
    assert_eq!(node.view.gpus[0].xids, [(31, 1), (79, 2)]);
}

#[test]
fn a_late_reading_is_counted_and_left_out() {
    let mut node = whole_gpu();
    node.second(1, Some(50), &[]).tick(10);
    node.second(2, Some(50), &[]).tick(11);
    let nvidia = &node.view.sources[0];
    assert_eq!(nvidia.discarded.iter().sum::<u64>(), 1);
    assert_eq!(node.view.gpus[0].devices[0].activity.engine, Some(SECOND / 2));
}

#[test]
fn cycles_and_utilisation_samples_are_levels_too() {
    let mut node = whole_gpu();
    let cycles =
        Part { sm_active: Some(Level::Cycles { active: 1, elapsed: 4 }), ..part(None, Some(50), &[]) };
    node.parts(1, vec![cycles]).tick(3);
    assert_eq!(node.account("p").activity.sm_active, Some(SECOND / 4));
}

#[test]
fn only_an_answer_confirms_what_a_source_has_told() {
    let mut node = whole_gpu();
    let confirmed = |node: &Node| {
        let pods = node.view.sources.iter().find(|source| source.source == Source::Pods).unwrap();
        (pods.last_answer, pods.last_fact.map(|at| at.0))
    };
    let round = |answered| Fact::Poll { took: 1, answered };
    node.put(SECOND, Source::Pods, round(true)).second(1, Some(50), &[]).tick(4);
    let at = BEGIN + SECOND;
    assert_eq!(confirmed(&node), (Some(MonoNs(at)), Some(at)));
    let down = Fact::Health(Health { state: HealthState::Down, reason: "it hangs".into() });
    node.put(5 * SECOND, Source::Pods, round(false)).put(6 * SECOND, Source::Pods, down);
    node.second(2, Some(50), &[]).tick(9);
    assert_eq!(confirmed(&node), (Some(MonoNs(at)), Some(BEGIN + 6 * SECOND)), "a question is no answer");
    let old: Fact = serde_json::from_str(r#"{"poll":{"took":5}}"#).unwrap();
    assert_eq!(old, Fact::Poll { took: 5, answered: false }, "a recording that does not say");
}
