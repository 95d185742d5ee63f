//! Shared devices of which the driver does not say who used them, and whose their energy was.

use warpmeter_core::fact::{
    Board, DeviceRef, Fact, GrantPart, Mps, Opened, Part, Process, Reading, Sample, Source,
};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{GpuId, HostPid, MigId, Owner, PodUid, ProcessId, Scope};
use warpmeter_core::inventory::Gpu;
use warpmeter_core::probe::{Asked, Calls, Doing, Gap, GapKind, Probes};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::state::State;
use warpmeter_core::time::{Interval, MonoNs, SECOND};
use warpmeter_core::view::{AccountView, Evidence, View};

use crate::node::{
    gpu, host_up, inventory, mig, part, pod, pods, process, process_use, sample, settings, tick, whole,
};

const G: &str = "GPU-a";
const BEGIN: u64 = 10 * SECOND;
const MS: u64 = 1_000_000;
const SERVER: u32 = 90;

struct Node {
    fold: Fold,
    view: View,
    joules: u64,
}

/// What process `pid` asked of `device` in a second: so many milliseconds in gaps of each kind.
fn calls(pid: u32, device: DeviceRef, gaps: &[(GapKind, u64)]) -> Calls {
    let gap = |(kind, ms): &(GapKind, u64)| {
        let mut doings = [0; Doing::COUNT];
        doings[Doing::DiskRead as usize] = ms * MS;
        Gap { kind: *kind, log2: 23, count: 10, total: ms * MS, ended: 10, lasted: ms * MS, doings }
    };
    Calls {
        process: ProcessId { pid: HostPid(pid), start: MonoNs(2) },
        device: Some(device),
        from_start: true,
        shed: false,
        enqueued: 10,
        last_call: None,
        asked: Asked { launches: 10, ..Asked::default() },
        gaps: gaps.iter().map(gap).collect(),
    }
}

impl Node {
    /// Pods `p` and `q` hold a replica each of `device`, of two, and have the processes 7 and 8.
    fn new(gpu: Gpu, device: &DeviceRef) -> Self {
        let mut fold = Fold::new(settings());
        let held = |name, replica| pod(name, &[(device.clone(), GrantPart::Replica(replica))]);
        fold.apply(host_up());
        fold.apply(sample(1, Source::Nvidia, inventory(&[gpu])));
        fold.apply(sample(2, Source::Pods, pods(&[held("p", 0), held("q", 1)], &[(device.clone(), 2)])));
        fold.apply(sample(3, Source::Host, process(7, 2, "p")));
        fold.apply(sample(3, Source::Host, process(8, 2, "q")));
        let server = Process {
            id: ProcessId { pid: HostPid(SERVER), start: MonoNs(2) },
            scope: Scope::Unit("mps.service".into()),
            opened: Some(Opened { control: true, minors: vec![3], uvm: true }),
            mps: Some(Mps::Server),
            name: None,
        };
        fold.apply(sample(3, Source::Host, Fact::Process(server)));
        Self { view: fold.view(), fold, joules: 0 }
    }

    fn shared() -> Self {
        Self::new(gpu(G), &whole(G))
    }

    fn apply(&mut self, sample: Sample) {
        if let Some(view) = self.fold.apply(sample) {
            assert_eq!(view.conservation_error, 0);
            self.view = view;
        }
    }

    /// Second `end` as the driver saw it, in which the board took so many joules.
    fn second(&mut self, end: u64, part: Part, joules: u64) -> &mut Self {
        self.joules += joules;
        let end = BEGIN + end * SECOND;
        let during = Interval::new(MonoNs(end - SECOND), MonoNs(end)).unwrap();
        let board = Board { energy_mj: Some(self.joules * 1000), ..Board::default() };
        let reading = Reading { gpu: GpuId::new(G), during, board, parts: vec![part] };
        self.apply(sample(end, Source::Nvidia, Fact::Reading(Box::new(reading))));
        self
    }

    fn probed(&mut self, end: u64, calls: Vec<Calls>) -> &mut Self {
        let end = BEGIN + end * SECOND;
        let during = Interval::new(MonoNs(end - SECOND), MonoNs(end)).unwrap();
        let probes = Probes { calls, followed: true, ..Probes::of_nothing(during) };
        self.apply(sample(end + MS, Source::Probes, Fact::Probes(Box::new(probes))));
        self
    }

    fn tick(&mut self, ms: u64) -> &mut Self {
        self.apply(tick(BEGIN + ms * MS));
        self
    }

    fn account(&self, name: &str) -> &AccountView {
        let uid = PodUid::new(name);
        let is = |owner: &Owner| matches!(owner, Owner::Pod { uid: other, .. } if *other == uid);
        self.view.accounts.iter().find(|account| is(&account.owner)).unwrap()
    }

    /// Milliseconds that `p` and `q` used, and nobody.
    fn used(&self) -> [u64; 3] {
        let nobodys = self.view.gpus[0].devices[0].usage.unattributed;
        [self.account("p").used, self.account("q").used, nobodys].map(|nanos| (nanos + MS / 2) / MS)
    }

    fn inferred(&self) -> bool {
        let evidence = self.account("p").use_evidence;
        evidence[Evidence::Inferred as usize] == self.account("p").used
    }
}

#[test]
fn where_the_driver_says_nothing_of_processes_the_time_is_divided_by_what_they_asked_for() {
    let mut node = Node::shared();
    let p = calls(7, whole(G), &[(GapKind::Sync, 1000)]);
    let q = calls(8, whole(G), &[(GapKind::Sync, 200), (GapKind::Drained, 800)]);
    node.second(1, part(None, Some(100), &[7, 8]), 0).probed(1, vec![p, q]).tick(6000);
    assert_eq!(node.used(), [900, 100, 0]);
    assert!(node.inferred());
    assert_eq!(node.account("p").borrowed, node.account("p").used - 500 * MS);
    let contended = node.account("q").states[State::StalledContended.index()] / MS;
    assert_eq!(
        contended, 44,
        "it waited for 100 of 900 ms that it did not use, and held 500, of which it used 100"
    );
}

#[test]
fn what_the_driver_says_of_processes_counts_before_what_they_asked_for() {
    let mut node = Node::shared();
    let asked = |pid| calls(pid, whole(G), &[(GapKind::Sync, 1000)]);
    node.second(1, part(None, Some(100), &[7, 8]), 0);
    node.apply(sample(
        BEGIN + SECOND,
        Source::Nvidia,
        process_use(G, BEGIN, BEGIN + SECOND, &[(7, 30), (8, 70)]),
    ));
    node.probed(1, vec![asked(7), asked(8)]).tick(6000);
    assert_eq!(node.used(), [300, 700, 0]);
    assert_eq!(node.account("p").use_evidence[Evidence::Apportioned as usize], node.account("p").used);
}

#[test]
fn processes_of_one_mig_instance_are_told_apart_by_what_they_asked_for() {
    let instance = MigId::new("MIG-GPU-a-0");
    let device = DeviceRef::Mig(instance.clone());
    let mut node = Node::new(mig(G, &[7], 0), &device);
    let p = calls(7, device.clone(), &[(GapKind::Sync, 1000)]);
    // Some ask by the name of the GPU that the instance is of.
    let q = calls(8, whole(G), &[(GapKind::Sync, 1000)]);
    node.second(1, part(Some(instance), Some(80), &[7, 8]), 0).probed(1, vec![p, q]).tick(6000);
    assert_eq!(node.used(), [400, 400, 0]);
    assert!(node.inferred());
}

#[test]
fn a_process_that_is_not_watched_may_have_run_the_time_of_those_that_are() {
    let unwatched = Calls { from_start: false, asked: Asked::default(), ..calls(8, whole(G), &[]) };
    for others in [vec![], vec![unwatched]] {
        let mut node = Node::shared();
        let p = calls(7, whole(G), &[(GapKind::Sync, 500), (GapKind::Drained, 500)]);
        node.second(1, part(None, Some(50), &[7, 8]), 0);
        node.probed(1, [vec![p], others].concat()).tick(6000);
        assert_eq!(node.used(), [250, 0, 250]);
    }
}

#[test]
fn work_of_an_mps_server_is_its_clients_and_inferred() {
    let mut node = Node::shared();
    let p = calls(7, whole(G), &[(GapKind::Sync, 600), (GapKind::Drained, 400)]);
    node.second(1, part(None, Some(60), &[SERVER]), 0).probed(1, vec![p.clone()]).tick(6000);
    assert_eq!(node.used(), [600, 0, 0]);
    assert!(node.inferred(), "that there is only one is by the probes' evidence");
    let q = calls(8, whole(G), &[(GapKind::Sync, 600), (GapKind::Drained, 400)]);
    let mut node = Node::shared();
    node.second(1, part(None, Some(84), &[SERVER]), 0).probed(1, vec![p, q]).tick(6000);
    assert_eq!(node.used(), [420, 420, 0]);
    // What the driver says of the server says nothing of whose work it was.
    let mut node = Node::shared();
    node.second(1, part(None, Some(60), &[SERVER]), 0);
    node.apply(sample(
        BEGIN + SECOND,
        Source::Nvidia,
        process_use(G, BEGIN, BEGIN + SECOND, &[(SERVER, 60)]),
    ));
    node.tick(6000);
    assert_eq!(node.used(), [0, 0, 600], "without probes nobody knows the clients");
}

#[test]
fn an_mps_server_that_calls_and_asks_for_no_work_takes_nothing_from_its_clients() {
    let mut node = Node::shared();
    let gaps = [(GapKind::Sync, 600), (GapKind::Drained, 400)];
    let [p, q] = [7, 8].map(|pid| calls(pid, whole(G), &gaps));
    // It was there before the probes.
    let server = Calls {
        from_start: false,
        enqueued: 0,
        last_call: Some(MonoNs(BEGIN)),
        asked: Asked::default(),
        ..calls(SERVER, whole(G), &[])
    };
    node.second(1, part(None, Some(84), &[SERVER]), 0).probed(1, vec![p, q, server]).tick(6000);
    assert_eq!(node.used(), [420, 420, 0]);
}

#[test]
fn who_has_a_servers_name_and_asks_for_work_itself_is_not_let_off() {
    let mut node = Node::shared();
    let Fact::Process(named) = process(7, 2, "p") else { unreachable!() };
    node.apply(sample(4, Source::Host, Fact::Process(Process { mps: Some(Mps::Server), ..named })));
    let p = calls(7, whole(G), &[(GapKind::Sync, 1000)]);
    let q = calls(8, whole(G), &[(GapKind::Sync, 200), (GapKind::Drained, 800)]);
    node.second(1, part(None, Some(100), &[7, 8]), 0).probed(1, vec![p, q]).tick(6000);
    assert_eq!(node.used(), [900, 100, 0]);
}

#[test]
fn who_runs_beside_others_under_mps_does_not_wait_for_them() {
    let mut node = Node::shared();
    let asked = |pid| calls(pid, whole(G), &[(GapKind::Sync, 400), (GapKind::Drained, 600)]);
    node.second(1, part(None, Some(64), &[SERVER]), 0).probed(1, vec![asked(7), asked(8)]).tick(6000);
    assert_eq!(node.used(), [320, 320, 0]);
    let states = node.account("p").states;
    assert_eq!(states[State::StalledContended.index()], 0);
    assert_eq!(states[State::StalledDiskRead.index()] / MS, 180, "all that it held and did not use");
}

#[test]
fn a_counter_that_shows_nothing_of_waited_kernels_is_not_believed_under_mps_either() {
    let mut node = Node::shared();
    let asked = |pid| calls(pid, whole(G), &[(GapKind::Sync, 800), (GapKind::Drained, 200)]);
    node.second(1, part(None, Some(0), &[SERVER]), 0).probed(1, vec![asked(7), asked(8)]).tick(6000);
    assert_eq!(node.account("p").states[State::UnknownConflict.index()], 500 * MS);
}

#[test]
fn limited_threads_of_mps_clients_divide_the_time_in_which_they_run_together() {
    let mut node = Node::shared();
    for (pid, pod, percent) in [(7, "p", 20), (8, "q", 80)] {
        let Fact::Process(client) = process(pid, 2, pod) else { unreachable!() };
        let mps = Ppb::percent(percent).map(Mps::Client);
        node.apply(sample(4, Source::Host, Fact::Process(Process { mps, ..client })));
    }
    let asked = |pid| calls(pid, whole(G), &[(GapKind::Sync, 1000)]);
    node.second(1, part(None, Some(100), &[SERVER]), 0).probed(1, vec![asked(7), asked(8)]).tick(6000);
    assert_eq!(node.used(), [200, 800, 0]);
}

#[test]
fn what_a_board_draws_idle_is_its_holders_and_the_rest_its_users() {
    let mut node = Node::shared();
    let ran = |percent| part(None, Some(percent), &[7]);
    // The first reading sets the start.
    node.second(1, ran(0), 0).second(2, ran(100), 500).tick(2500);
    assert_eq!(node.account("p").energy_uj, Some(500_000_000), "what it draws idle is not known yet");
    assert_eq!(node.account("p").idle_energy_uj, None);
    node.second(3, ran(0), 80).second(4, ran(50), 280).tick(6000);
    assert_eq!(node.account("p").energy_uj, Some(500_000_000 + 40_000_000 + 40_000_000 + 200_000_000));
    assert_eq!(node.account("q").energy_uj, Some(40_000_000 + 40_000_000));
    assert_eq!(node.account("p").idle_energy_uj, Some(80_000_000));
    assert_eq!(node.account("q").idle_energy_uj, Some(80_000_000));
    let totals = &node.view.gpus[0].totals;
    assert_eq!((totals.energy_uj, totals.idle_energy_uj), (Some(860_000_000), Some(160_000_000)));
}

#[test]
fn idle_energy_of_what_nobody_holds_is_nobodys() {
    let mut node = Node::shared();
    node.apply(sample(
        4,
        Source::Pods,
        pods(&[pod("p", &[(whole(G), GrantPart::Replica(0))])], &[(whole(G), 4)]),
    ));
    node.second(1, part(None, Some(0), &[7]), 0).second(2, part(None, Some(0), &[7]), 80).tick(6000);
    assert_eq!(node.account("p").energy_uj, Some(20_000_000));
    assert_eq!(node.view.gpus[0].totals.energy_uj, Some(80_000_000));
}
