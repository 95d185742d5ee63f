//! What the probes saw, on its way to the ledgers.

use warpmeter_core::fact::{DeviceRef, Discard, Fact, GrantPart, Level, Part, Sample, Source};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{ContainerId, HostPid, MigId, Owner, PodUid, ProcessId, Scope};
use warpmeter_core::inventory::{Gpu, Link};
use warpmeter_core::probe::{Asked, Calls, Doing, Gap, GapKind, Probes, Sampled, Threads};
use warpmeter_core::ratio::Ppb;
use warpmeter_core::settings::Settings;
use warpmeter_core::state::State;
use warpmeter_core::time::{Interval, MonoNs, SECOND};
use warpmeter_core::view::View;

use crate::node::{
    gpu, host_up, inventory, mig, part, pod, pods, process, process_use, reading, sample, settings, tick,
    whole,
};

const G: &str = "GPU-a";
const BEGIN: u64 = 10 * SECOND;
const MS: u64 = 1_000_000;

/// A gap of one kind, in which the thread did one thing.
pub(crate) fn gap(kind: GapKind, count: u64, ms: u64, doing: Doing) -> Gap {
    let mut doings = [0; Doing::COUNT];
    doings[doing as usize] = ms * MS;
    Gap { kind, log2: 26, count, total: ms * MS, ended: count, lasted: ms * MS, doings }
}

/// What process `pid` asked of [`G`] in a second.
pub(crate) fn calls(pid: u32, gaps: &[Gap]) -> Calls {
    Calls {
        process: ProcessId { pid: HostPid(pid), start: MonoNs(2) },
        device: Some(whole(G)),
        from_start: false,
        shed: false,
        enqueued: 100,
        last_call: None,
        asked: Asked { launches: 10, ..Asked::default() },
        gaps: gaps.to_vec(),
    }
}

fn threads(pod: &str, doing: Doing, ms: u64) -> Threads {
    let scope = Scope::Pod { uid: PodUid::new(pod), container: Some(ContainerId::new("c-of-another")) };
    let mut others = [0; Doing::COUNT];
    others[doing as usize] = ms * MS;
    Threads { scope, callers: [0; Doing::COUNT], others }
}

struct Node {
    fold: Fold,
    view: View,
}

impl Node {
    fn new(settings: Settings, gpu: Gpu, grants: &[(&str, DeviceRef, GrantPart)]) -> Self {
        let mut fold = Fold::new(settings);
        let list: Vec<_> =
            grants.iter().map(|(name, device, part)| pod(name, &[(device.clone(), *part)])).collect();
        fold.apply(host_up());
        fold.apply(sample(1, Source::Nvidia, inventory(&[gpu])));
        fold.apply(sample(2, Source::Pods, pods(&list, &[])));
        for (index, (name, ..)) in grants.iter().enumerate() {
            fold.apply(sample(3, Source::Host, process(7 + u32::try_from(index).unwrap(), 2, name)));
        }
        Self { view: fold.view(), fold }
    }

    fn one() -> Self {
        Self::new(settings(), gpu(G), &[("p", whole(G), GrantPart::Whole)])
    }

    fn apply(&mut self, sample: Sample) -> &mut Self {
        if let Some(view) = self.fold.apply(sample) {
            assert_eq!(view.conservation_error, 0);
            self.view = view;
        }
        self
    }

    /// Second `end` as the driver saw it.
    fn second(&mut self, end: u64, engine: u32, pids: &[u32]) -> &mut Self {
        let (start, end) = (BEGIN + (end - 1) * SECOND, BEGIN + end * SECOND);
        self.apply(sample(end, Source::Nvidia, reading(G, start, end, vec![part(None, Some(engine), pids)])))
    }

    /// Second `end` as the probes saw it.
    fn probed(&mut self, end: u64, calls: Vec<Calls>, threads: Vec<Threads>) -> &mut Self {
        let end = BEGIN + end * SECOND;
        let during = Interval::new(MonoNs(end - SECOND), MonoNs(end)).unwrap();
        self.apply(sample(
            end + MS,
            Source::Probes,
            Fact::Probes(Box::new(Probes { calls, threads, ..Probes::of_nothing(during) })),
        ))
    }

    /// Second `end` as samples of processes and of loaders show it, in milliseconds.
    fn sampled(&mut self, end: u64, of: &[(u32, &[(Doing, u64)])], threads: Vec<Threads>) -> &mut Self {
        let end = BEGIN + end * SECOND;
        let during = Interval::new(MonoNs(end - SECOND), MonoNs(end)).unwrap();
        let sampled = of.iter().map(|(pid, parts)| {
            let mut doings = [0; Doing::COUNT];
            for (doing, ms) in *parts {
                doings[*doing as usize] = ms * MS;
            }
            Sampled { process: ProcessId { pid: HostPid(*pid), start: MonoNs(2) }, samples: 100, doings }
        });
        let probes = Probes { threads, sampled: sampled.collect(), ..Probes::of_nothing(during) };
        self.apply(sample(end + MS, Source::Probes, Fact::Probes(Box::new(probes))))
    }

    fn tick(&mut self, ms: u64) -> &mut Self {
        self.apply(tick(BEGIN + ms * MS))
    }

    /// A pod's states in milliseconds.
    fn states(&self, name: &str) -> Vec<(State, u64)> {
        let uid = PodUid::new(name);
        let is = |owner: &Owner| matches!(owner, Owner::Pod { uid: other, .. } if *other == uid);
        let account = self.view.accounts.iter().find(|account| is(&account.owner)).unwrap();
        let states = State::ALL.into_iter().zip(account.states);
        states.filter(|(_, time)| *time > 0).map(|(state, time)| (state, (time + MS / 2) / MS)).collect()
    }
}

#[test]
fn time_held_up_goes_to_its_cause() {
    let mut node = Node::one();
    let gaps = [gap(GapKind::Drained, 10, 500, Doing::DiskRead)];
    node.second(1, 40, &[7]).probed(1, vec![calls(7, &gaps)], Vec::new()).tick(2000);
    let expected = [(State::Active, 400), (State::StalledDiskRead, 500), (State::UnknownNoEvidence, 100)];
    assert_eq!(node.states("p"), expected);
}

#[test]
fn loaders_of_the_pod_say_what_the_trainer_waits_for() {
    let mut node = Node::one();
    let gaps = [gap(GapKind::Drained, 10, 600, Doing::Lock)];
    let others = vec![threads("another", Doing::Cpu, 900), threads("p", Doing::Network, 900)];
    node.second(1, 40, &[7]).probed(1, vec![calls(7, &gaps)], others).tick(2000);
    assert_eq!(node.states("p"), [(State::Active, 400), (State::StalledNetwork, 600)]);
}

/// What a process leaves behind whose calls are let alone.
fn shed(pid: u32) -> Calls {
    Calls { shed: true, enqueued: 1, asked: Asked::default(), ..calls(pid, &[]) }
}

/// What the threads of a pod that call the driver did.
fn callers(pod: &str, doing: Doing, ms: u64) -> Vec<Threads> {
    let threads = threads(pod, doing, ms);
    vec![Threads { callers: threads.others, others: threads.callers, ..threads }]
}

#[test]
fn what_was_seen_last_stands_for_calls_that_are_let_alone() {
    let mut node = Node::one();
    let small = Gap { count: 30_000, ..gap(GapKind::Drained, 0, 600, Doing::Cpu) };
    node.second(1, 40, &[7]).probed(1, vec![calls(7, &[small])], callers("p", Doing::Cpu, 900)).tick(2000);
    let seen = [(State::Active, 400), (State::StalledLaunch, 600)];
    assert_eq!(node.states("p"), seen);
    node.second(2, 35, &[7]).probed(2, vec![shed(7)], callers("p", Doing::Cpu, 1000)).tick(3000);
    assert_eq!(node.states("p"), [(State::Active, 750), (State::StalledLaunch, 1250)]);
    node.second(3, 10, &[7]).probed(3, vec![calls(7, &[])], callers("p", Doing::Cpu, 1000)).tick(4000);
    let unseen = (State::UnknownNoEvidence, 900);
    assert_eq!(node.states("p"), [(State::Active, 850), (State::StalledLaunch, 1250), unseen]);
}

#[test]
fn what_was_seen_last_stands_for_no_more_than_goes_with_how_long_the_device_ran() {
    // Half as long, and not at all: a server without requests waits in a lock as one does that launches.
    for (ran, launch) in [(20, 375), (0, 0)] {
        let mut node = Node::one();
        let small = Gap { count: 30_000, ..gap(GapKind::Drained, 0, 600, Doing::Cpu) };
        node.second(1, 40, &[7]).probed(1, vec![calls(7, &[small])], callers("p", Doing::Lock, 0)).tick(2000);
        node.second(2, ran, &[7]).probed(2, vec![shed(7)], callers("p", Doing::Poll, 1000)).tick(3000);
        let rest = 1000 - u64::from(ran) * 10 - launch;
        let expected = [
            (State::Active, 400 + u64::from(ran) * 10),
            (State::StalledLaunch, 600 + launch),
            (State::UnknownNoEvidence, rest),
        ];
        assert_eq!(node.states("p"), expected);
    }
}

#[test]
fn what_was_seen_last_does_not_stand_for_threads_that_wait_for_something_else_now() {
    for (waits, stands) in [(100, true), (300, false)] {
        let mut node = Node::one();
        let gaps = [gap(GapKind::Drained, 10, 600, Doing::Cpu)];
        node.second(1, 40, &[7]).probed(1, vec![calls(7, &gaps)], callers("p", Doing::Cpu, 600)).tick(2000);
        node.second(2, 40, &[7]).probed(2, vec![shed(7)], callers("p", Doing::Network, waits)).tick(3000);
        let cpu = if stands { 1200 } else { 600 };
        assert!(node.states("p").contains(&(State::StalledCpu, cpu)), "{:?}", node.states("p"));
    }
}

#[test]
fn what_was_seen_long_ago_stands_for_nothing() {
    let mut node = Node::one();
    let gaps = [gap(GapKind::Drained, 10, 600, Doing::Cpu)];
    node.second(1, 40, &[7]).probed(1, vec![calls(7, &gaps)], Vec::new()).tick(2000);
    node.second(700, 40, &[7]).probed(700, vec![shed(7)], Vec::new()).tick(701_000);
    assert!(node.states("p").contains(&(State::StalledCpu, 600)), "{:?}", node.states("p"));
}

#[test]
fn what_a_process_did_is_another_owners_habit_no_more_than_its_own_on_another_device() {
    let mut node = Node::new(
        settings(),
        gpu(G),
        &[("p", whole(G), GrantPart::Whole), ("q", whole(G), GrantPart::Whole)],
    );
    let gaps = [gap(GapKind::Drained, 10, 600, Doing::Cpu)];
    node.second(1, 0, &[7, 8]).probed(1, vec![calls(7, &gaps), shed(8)], Vec::new()).tick(3000);
    node.second(2, 0, &[7, 8]).probed(2, vec![calls(7, &gaps), shed(8)], Vec::new()).tick(4000);
    assert!(node.states("q").iter().all(|(state, _)| *state != State::StalledCpu), "{:?}", node.states("q"));
}

#[test]
fn a_window_waits_for_its_snapshot_but_not_for_ever() {
    let gaps = [gap(GapKind::Drained, 10, 600, Doing::Cpu)];
    let mut node = Node::one();
    node.second(1, 40, &[7]).probed(1, vec![calls(7, &gaps)], Vec::new()).tick(1500);
    let windows = node.view.windows;
    node.second(2, 40, &[7]).tick(3000);
    assert_eq!(node.view.windows, windows, "the snapshot of the second may still come");
    node.probed(2, vec![calls(7, &gaps)], Vec::new()).tick(3100);
    assert_eq!(node.states("p"), [(State::Active, 800), (State::StalledCpu, 1200)]);
    node.second(3, 40, &[7]).tick(6000);
    assert_eq!(node.view.windows, windows + 2);
    assert!(node.states("p").contains(&(State::UnknownNoEvidence, 600)), "{:?}", node.states("p"));
}

#[test]
fn without_probes_no_window_waits() {
    let mut node = Node::one();
    node.second(1, 40, &[7]).tick(1400);
    assert_eq!(node.states("p"), [(State::Active, 400), (State::UnknownNoEvidence, 600)]);
}

#[test]
fn calls_of_another_device_or_pod_say_nothing() {
    let gaps = [gap(GapKind::Drained, 10, 600, Doing::Cpu)];
    let elsewhere = Calls { device: Some(whole("GPU-b")), ..calls(7, &gaps) };
    let mut node = Node::one();
    node.second(1, 40, &[7]).probed(1, vec![elsewhere, calls(99, &gaps)], Vec::new()).tick(2000);
    assert_eq!(node.states("p"), [(State::Active, 400), (State::UnknownNoEvidence, 600)]);
}

#[test]
fn calls_without_a_device_are_of_the_one_that_the_driver_lists_their_process_on() {
    let gaps = [gap(GapKind::Drained, 10, 600, Doing::Cpu)];
    let somewhere = Calls { device: None, ..calls(7, &gaps) };
    let mut node = Node::one();
    node.second(1, 40, &[7]).probed(1, vec![somewhere], Vec::new()).tick(2000);
    assert_eq!(node.states("p"), [(State::Active, 400), (State::StalledCpu, 600)]);
}

#[test]
fn a_process_that_was_watched_from_its_first_call_loads_until_it_enqueues_something() {
    let loading = Calls { from_start: true, enqueued: 0, asked: Asked::default(), ..calls(7, &[]) };
    let mut node = Node::one();
    node.second(1, 0, &[7]).probed(1, vec![loading], Vec::new()).tick(2000);
    assert_eq!(node.states("p"), [(State::IdleModelLoad, 1000)]);
    // A kernel too short for the engine counter.
    let working = Calls { from_start: true, ..calls(7, &[gap(GapKind::Drained, 1, 1000, Doing::Network)]) };
    node.second(2, 0, &[7]).probed(2, vec![working], Vec::new()).tick(3000);
    assert_eq!(node.states("p"), [(State::StalledNetwork, 1000), (State::IdleModelLoad, 1000)]);
}

#[test]
fn a_process_that_has_made_no_call_for_long_has_no_work() {
    let gaps = [gap(GapKind::Drained, 0, 1000, Doing::Poll)];
    let asked = |second: u64| Calls {
        last_call: Some(MonoNs(BEGIN + SECOND / 2)),
        ..calls(7, &gaps[..usize::from(second > 0)])
    };
    let mut node = Node::new(
        Settings { no_work_after: 2 * SECOND, ..settings() },
        gpu(G),
        &[("p", whole(G), GrantPart::Whole)],
    );
    for second in 1..=4 {
        node.second(second, 0, &[7]).probed(second, vec![asked(second)], Vec::new());
        node.tick(second * 1000 + 600);
    }
    node.tick(6000);
    assert_eq!(node.states("p"), [(State::IdleNoWork, 2000), (State::UnknownNoEvidence, 2000)]);
}

#[test]
fn a_counter_that_shows_nothing_of_kernels_that_were_waited_for_is_not_believed() {
    let gaps = [gap(GapKind::Sync, 10, 800, Doing::Unknown)];
    let mut node = Node::one();
    node.second(1, 0, &[7]).probed(1, vec![calls(7, &gaps)], Vec::new()).tick(2000);
    assert_eq!(node.states("p"), [(State::UnknownConflict, 1000)]);
    let asked = Asked { copy_wait: 800 * MS, copies_most: 800 * MS, ..Asked::default() };
    let copies = Calls { asked, ..calls(7, &gaps) };
    let mut node = Node::one();
    node.second(1, 0, &[7]).probed(1, vec![copies], Vec::new()).tick(2000);
    assert_eq!(node.states("p"), [(State::StalledTransfer, 800), (State::UnknownNoEvidence, 200)]);
}

#[test]
fn a_copy_that_was_waited_for_is_transfer_for_no_longer_than_its_own_bytes_can_take() {
    // Of 500 ms in copies: all of them; none, as of who reads four bytes and waits for kernels; and as much as the link
    // takes for 4 GB of pinned memory that nobody waits for, which went beside them.
    for (most, pinned, transfer) in
        [(500, 0, 490), (0, 0, 0), (0, 4_000_000_000, 160), (200, 4_000_000_000, 200)]
    {
        let mut node = Node::one();
        let asked = Asked {
            copy_wait: 500 * MS,
            copies_most: most * MS,
            bytes_to_device: pinned,
            ..Asked::default()
        };
        let waits = Calls { asked, ..calls(7, &[gap(GapKind::Sync, 10, 500, Doing::Unknown)]) };
        node.second(1, 1, &[7]).probed(1, vec![waits], Vec::new()).tick(2000);
        let of = |wanted: State| {
            let found = node.states("p").into_iter().find(|(state, _)| *state == wanted);
            found.map_or(0, |(_, ms)| ms)
        };
        // The device ran for 10 ms of them.
        let found = (of(State::StalledTransfer), of(State::StalledSync));
        assert_eq!(found, (transfer, 490 - transfer), "{most} ms, {pinned} bytes");
    }
}

#[test]
fn what_is_copied_without_waiting_is_no_part_of_the_blocking_copies() {
    // It drained nothing, computed for 390 ms, and waited for kernels of 500 ms in a copy of four bytes; 80 MB of pinned
    // memory went beside them 48 times.
    let mut node = Node::one();
    let asked = Asked { copy_wait: 500 * MS, bytes_to_device: 4_000_000_000, ..Asked::default() };
    let gaps = [gap(GapKind::Sync, 48, 500, Doing::Unknown), gap(GapKind::Enqueue, 48, 500, Doing::Cpu)];
    node.second(1, 50, &[7]).probed(1, vec![Calls { asked, ..calls(7, &gaps) }], Vec::new()).tick(2000);
    let mut states = node.states("p");
    states.retain(|(_, ms)| *ms > 0);
    assert_eq!(states, [(State::Active, 500), (State::StalledCpu, 500)]);
}

#[test]
fn a_copy_that_is_not_waited_for_takes_as_long_as_the_devices_link_needs() {
    // 5 GB: 200 ms at 25 GB/s.
    for (generation, lanes, expected) in [(3, 16, 400), (4, 16, 200), (5, 16, 100), (3, 8, 800)] {
        let linked = Gpu { link: Some(Link { generation, lanes }), ..gpu(G) };
        for (gpu, expected) in [(linked, expected), (gpu(G), 200)] {
            let mut node = Node::new(settings(), gpu, &[("p", whole(G), GrantPart::Whole)]);
            let asked = Asked { bytes_to_device: 5_000_000_000, ..Asked::default() };
            let waits = Calls { asked, ..calls(7, &[gap(GapKind::Sync, 10, 1000, Doing::Unknown)]) };
            node.second(1, 10, &[7]).probed(1, vec![waits], Vec::new()).tick(2000);
            let transfer = node.states("p").into_iter().find(|(state, _)| *state == State::StalledTransfer);
            assert_eq!(transfer, Some((State::StalledTransfer, expected)), "{generation}.0 x {lanes}");
        }
    }
}

#[test]
fn the_little_that_a_contradicted_counter_shows_is_use_and_active_in_both_ledgers() {
    let mut node = Node::one();
    let little = Part { engine: Some(Level::Ratio(Ppb::new(500_000).unwrap())), ..part(None, Some(0), &[7]) };
    let gaps = [gap(GapKind::Sync, 10, 800, Doing::Unknown)];
    node.apply(sample(BEGIN + SECOND, Source::Nvidia, reading(G, BEGIN, BEGIN + SECOND, vec![little])));
    node.probed(1, vec![calls(7, &gaps)], Vec::new()).tick(2000);
    let [account] = node.view.accounts.as_slice() else { panic!("one account") };
    assert_eq!((account.used, account.borrowed), (500_000, 0));
    let of = |state: State| account.states[state.index()];
    assert_eq!((of(State::Active), of(State::UnknownConflict)), (500_000, SECOND - 500_000));
}

#[test]
fn who_waits_while_another_runs_on_the_device_contends() {
    let halves = [("p", whole(G), GrantPart::Replica(0)), ("q", whole(G), GrantPart::Replica(1))];
    let mut node = Node::new(settings(), gpu(G), &halves);
    let p = calls(7, &[gap(GapKind::Sync, 10, 1000, Doing::Unknown)]);
    let q = calls(8, &[gap(GapKind::Sync, 10, 1000, Doing::Unknown)]);
    node.second(1, 100, &[7, 8]);
    node.apply(sample(
        BEGIN + SECOND,
        Source::Nvidia,
        process_use(G, BEGIN, BEGIN + SECOND, &[(7, 20), (8, 80)]),
    ));
    node.probed(1, vec![p, q], Vec::new()).tick(5000);
    assert_eq!(node.states("p"), [(State::Active, 200), (State::StalledContended, 300)]);
    assert_eq!(node.states("q"), [(State::Active, 500)]);
}

#[test]
fn an_instance_stands_still_as_long_as_its_process_does() {
    let instance = MigId::new("MIG-GPU-a-0");
    let grant = [("p", DeviceRef::Mig(instance.clone()), GrantPart::Whole)];
    let mut node = Node::new(settings(), mig(G, &[2], 0), &grant);
    let gaps = [gap(GapKind::Drained, 10, 700, Doing::DiskWrite)];
    let asked = Calls { device: Some(DeviceRef::Mig(instance.clone())), ..calls(7, &gaps) };
    let parts = vec![part(Some(instance), Some(30), &[7])];
    node.apply(sample(BEGIN + SECOND, Source::Nvidia, reading(G, BEGIN, BEGIN + SECOND, parts.clone())));
    node.probed(1, vec![asked], Vec::new()).tick(2000);
    // Two slices of seven.
    let expected = [(State::Active, 86), (State::StalledDiskWrite, 200)];
    assert_eq!(node.states("p"), expected);
    // Some ask by the name of the GPU that the instance is of.
    let mut node = Node::new(settings(), mig(G, &[2], 0), &grant);
    node.apply(sample(BEGIN + SECOND, Source::Nvidia, reading(G, BEGIN, BEGIN + SECOND, parts)));
    node.probed(1, vec![calls(7, &gaps)], Vec::new()).tick(2000);
    assert_eq!(node.states("p"), expected);
}

#[test]
fn half_a_snapshot_says_half() {
    let gaps = [gap(GapKind::Drained, 10, 1000, Doing::Cpu)];
    let mut node = Node::one();
    let middle = BEGIN + SECOND / 2;
    node.apply(sample(
        middle,
        Source::Nvidia,
        reading(G, middle - SECOND, middle, vec![part(None, Some(0), &[7])]),
    ));
    node.probed(1, vec![calls(7, &gaps)], Vec::new()).tick(4000);
    assert_eq!(node.states("p"), [(State::StalledCpu, 500), (State::UnknownNoEvidence, 500)]);
}

#[test]
fn what_samples_show_beyond_the_time_that_the_device_worked_is_the_cause() {
    let mut node = Node::one();
    let doings: &[(Doing, u64)] = &[(Doing::DiskRead, 700), (Doing::Cpu, 300)];
    node.second(1, 25, &[7]).sampled(1, &[(7, doings)], Vec::new()).tick(2000);
    let expected = [
        (State::Active, 250),
        // Less the standard error of a hundred samples of 70 %, and of 30 %.
        (State::StalledDiskRead, 404),
        (State::StalledCpu, 4),
        (State::UnknownNoEvidence, 342),
    ];
    assert_eq!(node.states("p"), expected);
}

#[test]
fn a_wait_that_may_have_been_while_the_device_worked_is_no_cause() {
    let mut node = Node::one();
    let doings: &[(Doing, u64)] = &[(Doing::Network, 500), (Doing::Timer, 500)];
    node.second(1, 60, &[7]).sampled(1, &[(7, doings)], Vec::new()).tick(2000);
    assert_eq!(node.states("p"), [(State::Active, 600), (State::UnknownNoEvidence, 400)]);
}

#[test]
fn a_sampled_wait_for_loaders_goes_to_what_they_did() {
    let mut node = Node::one();
    let doings: &[(Doing, u64)] = &[(Doing::Lock, 900), (Doing::Unknown, 100)];
    let others = vec![threads("another", Doing::Cpu, 900), threads("p", Doing::Network, 900)];
    node.second(1, 10, &[7]).sampled(1, &[(7, doings)], others).tick(2000);
    let expected = [(State::Active, 100), (State::StalledNetwork, 770), (State::UnknownNoEvidence, 130)];
    assert_eq!(node.states("p"), expected);
}

#[test]
fn samples_of_several_processes_of_an_owner_name_no_cause() {
    let mut node = Node::one();
    node.apply(sample(4, Source::Host, process(8, 2, "p")));
    let doings: &[(Doing, u64)] = &[(Doing::Timer, 1000)];
    node.second(1, 10, &[7, 8]).sampled(1, &[(7, doings), (8, doings)], Vec::new()).tick(2000);
    assert_eq!(node.states("p"), [(State::Active, 100), (State::UnknownNoEvidence, 900)]);
}

#[test]
fn gaps_that_leave_less_time_than_the_device_ran_are_counted() {
    let counted = |gap_ms: u64| {
        let mut node = Node::one();
        let gaps = [gap(GapKind::Drained, 10, gap_ms, Doing::Cpu)];
        node.second(1, 40, &[7]).probed(1, vec![calls(7, &gaps)], Vec::new()).tick(2000);
        let probes = node.view.sources.iter().find(|source| source.source == Source::Probes).unwrap();
        probes.discarded[Discard::Range as usize]
    };
    assert_eq!([600, 610, 900].map(counted), [0, 0, 1]);
}
