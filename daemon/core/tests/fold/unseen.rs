//! Devices on which somebody works unseen: what it used is nobody's, and never its neighbours'.

use proptest::prelude::*;
use warpmeter_core::fact::{Board, Fact, GrantPart, Mps, Opened, Process, Reading, Sample, Source};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{GpuId, HostPid, Owner, PodUid, ProcessId, Scope};
use warpmeter_core::probe::{Asked, Calls, Doing, Gap, GapKind, Probes, Sampled, User};
use warpmeter_core::time::{Interval, MonoNs, SECOND};
use warpmeter_core::view::View;

use crate::node::{
    gpu, host_up, inventory, part, pod, pods, process, process_use, sample, settings, tick, whole,
};

const G: &str = "GPU-a";
const BEGIN: u64 = 10 * SECOND;
const MS: u64 = 1_000_000;
const SERVER: u32 = 90;
const FIRST: u32 = 7;
/// By how many milliseconds of the second a part may be too large: boundaries of snapshots, and a rounding.
const BOUND: u64 = 21;
/// By how many more for each process of which the driver says whole percents.
const ROUNDING: u64 = 10;

/// What the probes tell of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// All that it asks for.
    Seen,
    /// That it is there and not watched.
    Unwatched,
    /// That it refuses to be, and its device.
    Refused,
    /// That it refuses to be.
    RefusedSomewhere,
    /// Nothing: the driver that it uses is not found.
    Untold,
}

/// Every way in which a process's work is not seen.
const HIDDEN: [Watch; 4] = [Watch::Unwatched, Watch::Refused, Watch::RefusedSomewhere, Watch::Untold];

/// Whom the driver lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    /// All processes, without an MPS server among them.
    All,
    /// An MPS server and its clients.
    Clients,
    /// An MPS server.
    Server,
}

const LISTINGS: [Listing; 3] = [Listing::All, Listing::Clients, Listing::Server];

/// A process of a pod of its own.
#[derive(Debug, Clone, Copy)]
struct Worker {
    /// For how many milliseconds of the second its work ran, while nobody else's did.
    ran: u64,
    watch: Watch,
    /// Whether it has the name of an MPS server.
    named: bool,
}

const fn user(ran: u64, watch: Watch) -> Worker {
    Worker { ran, watch, named: false }
}

const fn disguised(ran: u64, watch: Watch) -> Worker {
    Worker { ran, watch, named: true }
}

fn id(pid: u32) -> ProcessId {
    ProcessId { pid: HostPid(pid), start: MonoNs(2) }
}

fn gap(kind: GapKind, ms: u64) -> Gap {
    let mut doings = [0; Doing::COUNT];
    doings[Doing::Unknown as usize] = ms * MS;
    Gap { kind, log2: 23, count: 10, total: ms * MS, ended: 10, lasted: ms * MS, doings }
}

/// Calls of a process that had work outstanding for so many milliseconds of a second.
fn calls(pid: u32, outstanding: u64) -> Calls {
    let gaps = [gap(GapKind::Drained, 1000 - outstanding), gap(GapKind::Sync, outstanding)];
    let launches = if outstanding > 0 { 10 } else { 0 };
    Calls {
        process: id(pid),
        device: Some(whole(G)),
        from_start: true,
        shed: false,
        enqueued: launches,
        last_call: Some(MonoNs(BEGIN)),
        asked: Asked { launches, ..Asked::default() },
        gaps: gaps.into_iter().filter(|gap| gap.total > 0).collect(),
    }
}

/// What is told of a process whose calls are not watched.
fn unwatched(pid: u32) -> Calls {
    let asked = Asked::default();
    Calls { from_start: false, enqueued: 1, last_call: None, asked, gaps: Vec::new(), ..calls(pid, 0) }
}

fn refusing(pid: u32) -> User {
    User { process: id(pid), device: Some(whole(G)), watched: false }
}

/// A second of one device, fact by fact.
struct Node {
    fold: Fold,
    view: View,
}

impl Node {
    /// The pods `p0` and so on hold a replica each, of as many.
    fn new(holders: u32) -> Self {
        let mut fold = Fold::new(settings());
        fold.apply(host_up());
        fold.apply(sample(1, Source::Nvidia, inventory(&[gpu(G)])));
        let held = |number| pod(&format!("p{number}"), &[(whole(G), GrantPart::Replica(number))]);
        let held: Vec<_> = (0..holders).map(held).collect();
        fold.apply(sample(2, Source::Pods, pods(&held, &[(whole(G), holders.max(1))])));
        Self { view: fold.view(), fold }
    }

    fn apply(&mut self, sample: Sample) {
        if let Some(view) = self.fold.apply(sample) {
            assert_eq!(view.conservation_error, 0);
            self.view = view;
        }
    }

    /// A process of pod `p<number>` with CUDA open.
    fn process(&mut self, pid: u32, number: u32, mps: Option<Mps>) -> &mut Self {
        let Fact::Process(known) = process(pid, 2, &format!("p{number}")) else { unreachable!() };
        let opened = known.opened.map(|opened| Opened { uvm: true, ..opened });
        self.apply(sample(3, Source::Host, Fact::Process(Process { opened, mps, ..known })));
        self
    }

    /// A process of the node's own.
    fn of_node(&mut self, pid: u32, uvm: bool, mps: Option<Mps>) -> &mut Self {
        let opened = Some(Opened { control: true, minors: vec![3], uvm });
        let known = Process { id: id(pid), scope: Scope::Unit("a.service".into()), opened, mps, name: None };
        self.apply(sample(3, Source::Host, Fact::Process(known)));
        self
    }

    /// The second, in which the device ran for so many milliseconds.
    fn second(&mut self, ran: u64, listed: &[u32], probes: Probes) -> &mut Self {
        let end = BEGIN + SECOND;
        let percent = u32::try_from(ran / 10).unwrap();
        let (during, parts) = (whole_second(), vec![part(None, Some(percent), listed)]);
        let reading = Reading { gpu: GpuId::new(G), during, board: Board::default(), parts };
        self.apply(sample(end, Source::Nvidia, Fact::Reading(Box::new(reading))));
        self.apply(sample(end + MS, Source::Probes, Fact::Probes(Box::new(probes))));
        self
    }

    /// What the driver says of processes, in percent.
    fn samples(&mut self, used: &[(u32, u32)]) -> &mut Self {
        let end = BEGIN + SECOND;
        self.apply(sample(end, Source::Nvidia, process_use(G, BEGIN, end, used)));
        self
    }

    /// Milliseconds that each of so many pods used, and nobody.
    fn used(&mut self, pods: u32) -> (Vec<u64>, u64) {
        self.apply(tick(BEGIN + 6 * SECOND));
        let ms = |nanos: u64| (nanos + MS / 2) / MS;
        let of = |number: u32| {
            let uid = PodUid::new(format!("p{number}"));
            let is = |owner: &Owner| matches!(owner, Owner::Pod { uid: other, .. } if *other == uid);
            self.view
                .accounts
                .iter()
                .filter(|account| is(&account.owner))
                .map(|account| account.used)
                .sum::<u64>()
        };
        let nobodys = self.view.gpus[0].devices[0].usage.unattributed;
        ((0..pods).map(|number| ms(of(number))).collect(), ms(nobodys))
    }
}

fn whole_second() -> Interval {
    Interval::new(MonoNs(BEGIN), MonoNs(BEGIN + SECOND)).unwrap()
}

fn probes(calls: Vec<Calls>, users: Vec<User>) -> Probes {
    Probes { calls, users, followed: true, ..Probes::of_nothing(whole_second()) }
}

/// A second with these processes. The first `holders` of their pods hold the device; `values` says whether the driver
/// has values of processes. Gives milliseconds by pod, and of nobody.
fn told(users: &[Worker], listing: Listing, holders: u32, values: bool) -> (Vec<u64>, u64) {
    let mut node = Node::new(holders);
    let mut listed = Vec::new();
    let (mut seen, mut others, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    for (number, user) in (0_u32..).zip(users) {
        let pid = FIRST + number;
        node.process(pid, number, user.named.then_some(Mps::Server));
        if listing != Listing::Server {
            listed.push(pid);
        }
        if listing == Listing::All {
            samples.push((pid, u32::try_from(user.ran / 10).unwrap()));
        }
        match user.watch {
            Watch::Seen => seen.push(calls(pid, user.ran)),
            Watch::Unwatched => seen.push(unwatched(pid)),
            Watch::Refused => others.push(refusing(pid)),
            Watch::RefusedSomewhere => others.push(User { device: None, ..refusing(pid) }),
            Watch::Untold => {}
        }
    }
    let ran: u64 = users.iter().map(|user| user.ran).sum();
    if listing != Listing::All {
        node.of_node(SERVER, true, Some(Mps::Server));
        listed.push(SERVER);
        samples.push((SERVER, u32::try_from(ran / 10).unwrap()));
    }
    node.second(ran, &listed, probes(seen, others));
    if values {
        node.samples(&samples);
    }
    let count = u32::try_from(users.len()).unwrap();
    node.used(count)
}

fn assert_nobody_has_too_much(users: &[Worker], listing: Listing, holders: u32, values: bool) {
    let (used, nobodys) = told(users, listing, holders, values);
    let sampled = if values && listing == Listing::All { users.len() as u64 } else { 0 };
    for (user, used) in users.iter().zip(&used) {
        let most = user.ran + BOUND + ROUNDING * sampled;
        assert!(*used <= most, "{used} ms by {user:?} of {users:?} {listing:?} {holders} {values}");
    }
    let ran: u64 = users.iter().map(|user| user.ran).sum();
    assert!((used.iter().sum::<u64>() + nobodys).abs_diff(ran) <= 4, "{used:?} and {nobodys} of {ran} ms");
}

#[test]
fn who_works_unseen_puts_nothing_on_its_neighbours_whatever_its_name_and_whoever_is_listed() {
    for watch in HIDDEN {
        for own in [user(600, watch), disguised(600, watch)] {
            for listing in LISTINGS {
                for neighbours in [&[0][..], &[200], &[0, 0], &[200, 100]] {
                    let neighbours = neighbours.iter().map(|ran| user(*ran, Watch::Seen));
                    let mut users: Vec<Worker> = neighbours.chain([own]).collect();
                    for turn in 0..users.len() {
                        users.rotate_left(turn);
                        for (holders, values) in [(0, false), (1, false), (4, false), (1, true), (4, true)] {
                            assert_nobody_has_too_much(&users, listing, holders, values);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn who_has_a_servers_name_and_is_seen_to_work_has_used_what_it_used() {
    for listing in LISTINGS {
        let users = [disguised(600, Watch::Seen), user(0, Watch::Seen)];
        assert_eq!(told(&users, listing, 2, false), (vec![600, 0], 0), "{listing:?}");
    }
    let users = [disguised(600, Watch::Seen), user(200, Watch::Seen)];
    assert_eq!(told(&users, Listing::All, 2, true), (vec![600, 200], 0), "by the driver's values too");
}

#[test]
fn the_only_client_has_all_of_it_where_everybody_is_watched_or_asks_for_nothing() {
    for listing in [Listing::Clients, Listing::Server] {
        let (client, silent) = (user(600, Watch::Seen), user(0, Watch::Seen));
        assert_eq!(told(&[client], listing, 1, false), (vec![600], 0));
        assert_eq!(told(&[client, silent], listing, 2, false), (vec![600, 0], 0));
    }
    // Where all others are watched and asked for nothing, it is the one that refuses.
    assert_eq!(told(&[user(600, Watch::Refused)], Listing::Server, 2, false), (vec![600], 0));
    let mut node = Node::new(2);
    node.process(FIRST, 0, None).process(FIRST + 1, 1, None).of_node(SERVER, true, Some(Mps::Server));
    // It maps a driver and has not called it.
    let silent = User { watched: true, ..refusing(FIRST + 1) };
    node.second(600, &[SERVER], probes(vec![calls(FIRST, 600)], vec![silent]));
    assert_eq!(node.used(2), (vec![600, 0], 0));
}

#[test]
fn a_server_in_a_pod_is_believed_by_what_it_is_seen_not_to_ask_for_and_not_by_its_name() {
    let asks_nothing = Calls { from_start: false, ..calls(SERVER, 0) };
    let asks = |server: Option<Calls>, user: Option<User>| {
        let mut node = Node::new(1);
        node.process(FIRST, 0, None).process(SERVER, 9, Some(Mps::Server));
        let seen = [calls(FIRST, 600)].into_iter().chain(server).collect();
        node.second(600, &[SERVER], probes(seen, user.into_iter().collect()));
        node.used(1)
    };
    assert_eq!(asks(Some(asks_nothing), None), (vec![600], 0));
    assert_eq!(asks(None, Some(User { watched: true, ..refusing(SERVER) })), (vec![600], 0));
    let halves = (vec![300], 300);
    assert_eq!(asks(None, None), halves, "nothing says that it is one");
    assert_eq!(asks(None, Some(refusing(SERVER))), halves);
    assert_eq!(asks(Some(unwatched(SERVER)), None), halves);
}

#[test]
fn what_has_the_device_open_without_cuda_is_no_client() {
    for (uvm, expected) in [(false, (vec![600], 0)), (true, (vec![300], 300))] {
        let mut node = Node::new(1);
        node.process(FIRST, 0, None).of_node(SERVER, true, Some(Mps::Server)).of_node(50, uvm, None);
        node.second(600, &[SERVER], probes(vec![calls(FIRST, 600)], Vec::new()));
        assert_eq!(node.used(1), expected, "uvm: {uvm}");
    }
}

#[test]
fn whose_device_is_not_known_may_be_the_only_client_there_is_and_else_nobody_is() {
    let somewhere = |pid| Calls { device: None, ..calls(pid, 600) };
    for listed in [&[SERVER][..], &[SERVER, FIRST]] {
        let mut node = Node::new(2);
        node.process(FIRST, 0, None).of_node(SERVER, true, Some(Mps::Server));
        node.second(600, listed, probes(vec![somewhere(FIRST)], Vec::new()));
        assert_eq!(node.used(2), (vec![600, 0], 0));
    }
    let mut node = Node::new(2);
    node.process(FIRST, 0, None).process(FIRST + 1, 1, None).of_node(SERVER, true, Some(Mps::Server));
    node.second(600, &[SERVER], probes(vec![calls(FIRST, 600), somewhere(FIRST + 1)], Vec::new()));
    assert_eq!(node.used(2), (vec![300, 0], 300));
}

#[test]
fn a_caller_that_nobody_knows_takes_from_the_other_clients_what_it_asked_for() {
    let mut node = Node::new(2);
    node.process(FIRST, 0, None).of_node(SERVER, true, Some(Mps::Server));
    node.second(750, &[SERVER], probes(vec![calls(FIRST, 500), calls(70, 500)], Vec::new()));
    assert_eq!(node.used(1), (vec![375], 375));
}

#[test]
fn samples_in_place_of_probes_show_no_clients() {
    let mut node = Node::new(2);
    node.process(FIRST, 0, None).process(FIRST + 1, 1, None).of_node(SERVER, true, Some(Mps::Server));
    let sampled = vec![Sampled { process: id(FIRST), samples: 9, doings: [0; Doing::COUNT] }];
    let sampled = Probes { sampled, ..Probes::of_nothing(whole_second()) };
    node.second(600, &[FIRST, SERVER], sampled);
    assert_eq!(node.used(2), (vec![0, 0], 600), "the driver lists one of two");
}

#[test]
fn who_is_not_watched_is_unseen_however_short_it_lives() {
    let mut node = Node::new(2);
    node.process(FIRST, 0, None);
    let Fact::Process(known) = process(FIRST + 1, BEGIN + 600 * MS, "p1") else { unreachable!() };
    let short = known.id;
    node.apply(sample(BEGIN + 600 * MS, Source::Host, Fact::Process(known)));
    node.apply(sample(BEGIN + 990 * MS, Source::Host, Fact::Gone(short)));
    // The one that is seen waits for the other.
    let seen = vec![calls(FIRST, 1000), Calls { process: short, ..unwatched(FIRST + 1) }];
    node.second(1000, &[FIRST, FIRST + 1], probes(seen, Vec::new()));
    assert_eq!(node.used(2), (vec![500, 0], 500));
}

fn any_user() -> impl Strategy<Value = Worker> {
    let watch = prop_oneof![Just(Watch::Seen), proptest::sample::select(HIDDEN.to_vec())];
    (0..=25_u64, watch, proptest::bool::weighted(0.3)).prop_map(|(ran, watch, named)| Worker {
        ran: ran * 10,
        watch,
        named,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_pod_is_given_what_it_did_not_use_whoever_is_unseen(
        users in proptest::collection::vec(any_user(), 1..=4),
        listing in proptest::sample::select(LISTINGS.to_vec()),
        holders in 0..=4_u32,
        values in any::<bool>(),
    ) {
        assert_nobody_has_too_much(&users, listing, holders, values);
    }
}
