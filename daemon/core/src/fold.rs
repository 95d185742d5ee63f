//! The fold: facts in, ledgers and a view out.
//!
//! Facts wait in order of time until the watermark has passed them, so that their order of arrival does not
//! matter within the lateness bound. Then each changes what is known, and windows whose evidence is complete
//! are closed, oldest first.

mod allotted;
mod averages;
mod close;
mod demand;
mod energy;
mod injected;
mod participants;
mod probes;
mod report;
mod tariff;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::allocate::{self, Gpus, Held};
use crate::explain::Explanations;
use crate::fact::{
    Board, Container, Discard, Fact, HealthState, Pod, PodInfo, PodNames, Pods, Reading, Sample, Source,
    Throttle,
};
use crate::habit::Habit;
use crate::identity::{DeviceId, GpuId, Owner, PodUid, Scope};
use crate::inventory::{Driver, Gpu, Inventory};
use crate::ledger::Ledger;
use crate::level::Cumulative;
use crate::pressure::Pressures;
use crate::price::{Money, Price};
use crate::probe::ThreadTotals;
use crate::roster::{Containers, Roster, belongs};
use crate::settings::Settings;
use crate::sources::Sources;
use crate::time::{Interval, MonoNs, SECOND};
use crate::view::{BoardTotals, Residue, View};
use crate::window::Timeline;

use self::averages::Late;
use self::injected::Injections;
use self::probes::Snapshots;
use self::tariff::Tariffs;

/// How long a window waits for the identity of a process that the driver named.
const IDENTITY_GRACE: u64 = SECOND / 2;

/// How long a retirement check may wait.
const RETIRE_EVERY: u64 = SECOND;

type Holdings = Arc<BTreeMap<DeviceId, Held>>;

/// All that is known, and the ledgers.
#[derive(Debug)]
pub struct Fold {
    settings: Settings,
    started: Option<MonoNs>,
    now: MonoNs,
    watermark: MonoNs,
    wall: u64,
    retired: MonoNs,
    pending: BTreeMap<Sample, u32>,
    sources: Sources,
    driver: Option<Driver>,
    gpus: BTreeMap<GpuId, GpuState>,
    /// Pods as their source gave them, and with every UID that is known.
    given: Pods,
    heard: bool,
    pods: Pods,
    names: BTreeMap<PodUid, PodNames>,
    named: BTreeMap<PodUid, Named>,
    containers: Containers,
    holdings: VecDeque<(MonoNs, Holdings)>,
    /// Grants of devices that do not exist here, when they were last resolved.
    unresolved: u64,
    roster: Roster,
    snapshots: Snapshots,
    /// What the threads of pods did, since they are watched.
    threads: BTreeMap<PodUid, ThreadTotals>,
    /// What the cgroups of pods say.
    pressures: Pressures,
    /// What injected libraries have said last.
    injections: Injections,
    watched: BTreeMap<(Owner, DeviceId), Watched>,
    habits: BTreeMap<(Owner, DeviceId), Habit>,
    recent: BTreeMap<PodUid, VecDeque<Recent>>,
    explanations: Explanations,
    memory: BTreeMap<(Owner, DeviceId), u64>,
    ledger: Ledger,
    tariffs: Tariffs,
    windows: u64,
}

/// One GPU.
#[derive(Debug)]
struct GpuState {
    gpu: Arc<Gpu>,
    up: bool,
    timeline: Timeline,
    board: Board,
    counters: Counters,
    totals: BoardTotals,
    elapsed: u64,
    retired: u64,
    /// Microwatts that it draws without work, once it was seen without any.
    idle_power: Option<u64>,
    residue: Option<Residue>,
    xids: BTreeMap<u64, u64>,
    last_reading: Option<MonoNs>,
    memory_used: BTreeMap<DeviceId, u64>,
    silent: BTreeSet<DeviceId>,
    late: Late,
}

/// Cumulative counters of a board, as last read.
#[derive(Debug, Default)]
struct Counters {
    energy: Cumulative,
    pcie_receive: Cumulative,
    pcie_transmit: Cumulative,
    nvlink_receive: Cumulative,
    nvlink_transmit: Cumulative,
}

/// An owner on a device: since when it is watched, and until when it was last seen to work.
#[derive(Debug, Clone, Copy)]
struct Watched {
    since: MonoNs,
    active: Option<MonoNs>,
    /// Whether any work of it was ever seen, however little.
    worked: bool,
}

/// A pod's last stretches, for its trailing utilisation.
#[derive(Debug, Clone, Copy)]
struct Recent {
    until: MonoNs,
    allocated: u64,
    active: u64,
    unknown: u64,
}

/// What a pod is called. Kept until its accounts are dropped.
#[derive(Debug, Clone)]
struct Named {
    namespace: Arc<str>,
    name: Arc<str>,
    info: PodInfo,
}

impl Fold {
    /// An empty fold.
    pub fn new(settings: Settings) -> Self {
        Self {
            tariffs: Tariffs::new(settings.prices.clone()),
            settings,
            started: None,
            now: MonoNs(0),
            watermark: MonoNs(0),
            wall: 0,
            retired: MonoNs(0),
            pending: BTreeMap::new(),
            sources: Sources::default(),
            driver: None,
            gpus: BTreeMap::new(),
            given: Pods::default(),
            heard: false,
            pods: Pods::default(),
            names: BTreeMap::new(),
            named: BTreeMap::new(),
            containers: Containers::new(),
            holdings: VecDeque::new(),
            unresolved: 0,
            roster: Roster::default(),
            snapshots: Snapshots::default(),
            threads: BTreeMap::new(),
            pressures: Pressures::default(),
            injections: Injections::default(),
            watched: BTreeMap::new(),
            habits: BTreeMap::new(),
            recent: BTreeMap::new(),
            explanations: Explanations::new(),
            memory: BTreeMap::new(),
            ledger: Ledger::default(),
            windows: 0,
        }
    }

    /// Takes a fact. At a tick, closes every window that can be closed, and gives a new view if any was or
    /// if a second has passed since the last one.
    pub fn apply(&mut self, sample: Sample) -> Option<View> {
        let Fact::Tick { wall } = sample.fact else {
            self.started = Some(self.started.map_or(sample.at, |started| started.min(sample.at)));
            self.accept(sample);
            return None;
        };
        self.started.get_or_insert(sample.at);
        self.now = self.now.max(sample.at);
        self.wall = wall;
        self.watermark = self.watermark.max(self.now.minus(self.settings.lateness));
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().at > self.watermark {
                break;
            }
            let (sample, times) = entry.remove_entry();
            for _ in 0..times {
                self.learn(&sample);
            }
        }
        self.charge_host();
        let closed = self.close_windows();
        self.count_averages();
        self.windows += closed;
        let due = self.now.since(self.retired) >= RETIRE_EVERY;
        if due {
            self.retired = self.now;
            self.retire();
        }
        (closed > 0 || due).then(|| self.view())
    }

    fn accept(&mut self, sample: Sample) {
        if sample.at > self.watermark {
            *self.pending.entry(sample).or_default() += 1;
            return;
        }
        // Its place in time has passed. A measurement's window may be closed; what exists still exists.
        match sample.fact {
            Fact::Reading(_) | Fact::ProcessUse(_) => {
                self.sources.note(&sample);
                self.sources.discard(sample.source, Discard::Late, 1);
            }
            _ => self.learn(&Sample { at: self.watermark, ..sample }),
        }
    }

    fn learn(&mut self, sample: &Sample) {
        self.sources.note(sample);
        match &sample.fact {
            Fact::Inventory(inventory) => self.inventory(inventory, sample.at),
            Fact::Pods(pods) => self.pods(pods, sample.at),
            Fact::Names(names) => self.names(names, sample.at),
            Fact::Prices(prices) => self.prices(prices, sample.at),
            Fact::Process(process) => self.roster.seen(process.clone(), sample.at),
            Fact::Gone(id) => self.roster.gone(*id, sample.at),
            Fact::Probes(probes) => self.probed(probes),
            Fact::Pressure(pressure) => {
                let states = self.states_of(&pressure.pod);
                self.pressures.take(pressure, sample.at, states);
            }
            Fact::Reading(reading) => self.reading(reading, sample),
            Fact::ProcessUse(used) => {
                if let Some(state) = self.gpus.get_mut(&used.gpu) {
                    state.timeline.sampled(used.clone());
                }
            }
            Fact::Averages(averages) => self.averages(averages, sample.source),
            Fact::Injected(told) => self.injected(told, sample),
            Fact::Xid { gpu, xid } => {
                if let Some(state) = self.gpus.get_mut(gpu) {
                    *state.xids.entry(*xid).or_default() += 1;
                }
            }
            Fact::Health(health) => {
                if sample.source == Source::Nvidia
                    && matches!(health.state, HealthState::Down | HealthState::Off)
                {
                    // Its next inventory says which GPUs are there.
                    for state in self.gpus.values_mut() {
                        let down = Some(format!("not read: {}", health.reason));
                        state.gpu = Arc::new(Gpu { down, ..Gpu::clone(&state.gpu) });
                        state.lose();
                    }
                }
            }
            Fact::Poll { .. }
            | Fact::Discarded { .. }
            | Fact::Lost { .. }
            | Fact::Own(_)
            | Fact::Tick { .. } => {}
        }
    }

    fn reading(&mut self, reading: &Reading, sample: &Sample) {
        let Some(state) = self.gpus.get_mut(&reading.gpu) else {
            // A reading without an inventory has nothing to be measured against.
            self.sources.discard(sample.source, Discard::Garbage, 1);
            return;
        };
        state.last_reading = Some(reading.during.end());
        if state.up {
            state.board = reading.board.clone();
        }
        let gpu = Arc::clone(&state.gpu);
        if !state.timeline.push(reading.clone(), sample.at, &gpu) {
            self.sources.discard(sample.source, Discard::Late, 1);
        }
    }

    fn inventory(&mut self, inventory: &Inventory, at: MonoNs) {
        self.driver.clone_from(&inventory.driver);
        self.count_gpus(inventory.gpus.len(), at);
        for state in self.gpus.values_mut() {
            if !inventory.gpus.iter().any(|gpu| gpu.id == state.gpu.id) {
                let down = Some("the driver no longer shows it".to_owned());
                state.gpu = Arc::new(Gpu { down, ..Gpu::clone(&state.gpu) });
                state.lose();
            }
        }
        for gpu in &inventory.gpus {
            let state = self.gpus.entry(gpu.id.clone()).or_insert_with(|| GpuState::new(gpu, at));
            state.gpu = Arc::new(gpu.clone());
            state.up = gpu.down.is_none();
            if !state.up {
                state.lose();
            }
        }
        self.hold(at);
    }

    fn pods(&mut self, pods: &Pods, at: MonoNs) {
        // Sent again in case it was lost on its way: nothing is new.
        if self.heard && self.given == *pods {
            return;
        }
        self.given = pods.clone();
        if !self.heard && self.settings.infer_until_heard {
            // Time that is still open is taken to be as the first word says, not as nobody's.
            self.holdings.clear();
        }
        self.heard = true;
        self.identify(at);
    }

    /// Whether devices without any grant belong to those who have them open.
    fn infers(&self) -> bool {
        self.settings.infer_allocation && !(self.heard && self.settings.infer_until_heard)
    }

    /// Takes the pods as given, with the UIDs that their source did not know and another does.
    fn identify(&mut self, at: MonoNs) {
        let mut pods = self.given.clone();
        for pod in pods.pods.iter_mut().filter(|pod| pod.uid.is_unknown()) {
            let called = |names: &&PodNames| names.namespace == pod.namespace && names.name == pod.name;
            if let Some(names) = self.names.values().filter(|names| !names.ended).find(called) {
                pod.uid = names.uid.clone();
            }
        }
        self.pods = pods.clone();
        for pod in &pods.pods {
            let mut info = pod.info.clone();
            if let Some(names) = self.names.get(&pod.uid).filter(|_| info == PodInfo::default()) {
                info = names.info.clone();
            }
            let named = Named { namespace: pod.namespace.clone(), name: pod.name.clone(), info };
            self.name_pod(&pod.uid, named, &pod.containers);
        }
        self.hold(at);
    }

    fn names(&mut self, names: &[PodNames], at: MonoNs) {
        self.names = names.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
        if self.given.pods.iter().any(|pod| pod.uid.is_unknown()) {
            self.identify(at);
        }
        for pod in names {
            // What a file says of a pod is meant to hold.
            let granted = self.pods.pods.iter().find(|granted| granted.uid == pod.uid);
            let info = granted.map(|granted| &granted.info).filter(|info| **info != PodInfo::default());
            let info = info.unwrap_or(&pod.info).clone();
            let named = Named { namespace: pod.namespace.clone(), name: pod.name.clone(), info };
            self.name_pod(&pod.uid, named, &pod.containers);
        }
        self.hold(at);
    }

    fn name_pod(&mut self, uid: &PodUid, named: Named, containers: &[Container]) {
        self.named.insert(uid.clone(), named);
        for container in containers {
            if let Some(id) = &container.id {
                self.containers.insert((uid.clone(), id.clone()), container.name.clone());
            }
        }
    }

    /// Notes who holds what from `at` on.
    fn hold(&mut self, at: MonoNs) {
        // Grants can be heard of before the first inventory, and after it: until both are there nothing is known of
        // who holds what, which is not the same as that nobody does.
        if self.gpus.is_empty() || !(self.heard || self.infers()) {
            return;
        }
        let gpus: Gpus = self.gpus.iter().map(|(id, state)| (id.clone(), Arc::clone(&state.gpu))).collect();
        let living: BTreeSet<&PodUid> = self
            .roster
            .alive()
            .filter_map(|process| match &process.scope {
                Scope::Pod { uid, .. } => Some(uid),
                _ => None,
            })
            .collect();
        let alive = |uid: &PodUid| living.contains(uid);
        // A kubelet may go on listing a pod that has ended; who knows for certain is believed.
        let ended = |uid: &PodUid| self.names.get(uid).is_some_and(|names| names.ended);
        let replicas = &self.pods.replicas;
        let pods: Vec<Cow<'_, Pod>> = self
            .pods
            .pods
            .iter()
            .filter(|pod| !ended(&pod.uid))
            .map(|pod| match self.names.get(&pod.uid) {
                Some(names) => allotted::corrected(pod, &names.allotments, replicas, &gpus),
                None => Cow::Borrowed(pod),
            })
            .collect();
        let redistribute = self.settings.redistribute;
        let pods = pods.iter().map(AsRef::as_ref);
        let (held, unresolved) = allocate::holders(pods, replicas, &gpus, redistribute, alive);
        if unresolved > self.unresolved {
            self.sources.discard(Source::Pods, Discard::DeviceId, unresolved - self.unresolved);
        }
        self.unresolved = unresolved;
        if self.holdings.back().is_none_or(|(_, last)| **last != held) {
            self.holdings.push_back((at, Arc::new(held)));
        }
    }

    /// Who held what, in the pieces of `during` in which that did not change.
    fn held(&self, during: Interval) -> Vec<(Interval, Holdings)> {
        let mut pieces: Vec<(Interval, Holdings)> = Vec::new();
        let mut end = during.end();
        for (since, held) in self.holdings.iter().rev() {
            if let Some(piece) = Interval::new((*since).max(during.start()), end) {
                pieces.push((piece, Arc::clone(held)));
                end = piece.start();
            }
        }
        // Before the first grant was heard of, the first one known is the best guess there is.
        if let Some(rest) = Interval::new(during.start(), end) {
            pieces.push((rest, self.holdings.front().map(|(_, held)| Arc::clone(held)).unwrap_or_default()));
        }
        pieces.reverse();
        pieces
    }

    fn retire(&mut self) {
        // Who lives may have changed, and with it who holds a device that several pods claim.
        self.hold(self.watermark);
        let ended = |uid: &PodUid| self.names.get(uid).is_some_and(|names| names.ended);
        let listed: BTreeSet<&PodUid> =
            self.pods.pods.iter().map(|pod| &pod.uid).filter(|uid| !ended(uid)).collect();
        let held = self.holdings.back().map(|(_, held)| Arc::clone(held)).unwrap_or_default();
        let living: BTreeSet<&Scope> = self.roster.alive().map(|process| &process.scope).collect();
        let containers = &self.containers;
        let alive = |owner: &Owner| {
            let granted = match owner {
                Owner::Pod { uid, container } => {
                    listed.contains(uid)
                        && (container.is_empty()
                            || held
                                .values()
                                .any(|held| held.holders.iter().any(|(holder, _)| holder == owner)))
                }
                _ => false,
            };
            granted || living.iter().any(|scope| belongs(scope, owner, containers))
        };
        let gpus = &self.gpus;
        let exists = |id: &DeviceId| {
            gpus.get(&id.gpu).is_some_and(|state| match (&state.gpu.mig, &id.mig) {
                (None, None) => true,
                (Some(mig), Some(id)) => mig.instances.iter().any(|instance| instance.id == *id),
                _ => false,
            })
        };
        let before: BTreeMap<DeviceId, u64> =
            self.ledger.devices().iter().map(|(id, device)| (id.clone(), device.elapsed)).collect();
        self.ledger.retire(self.now, self.settings.retain, alive, exists);
        for (id, elapsed) in before {
            if !self.ledger.devices().contains_key(&id)
                && let Some(state) = self.gpus.get_mut(&id.gpu)
            {
                state.retired += elapsed;
            }
        }

        let ledger = &self.ledger;
        let kept: BTreeSet<&PodUid> = ledger
            .owners()
            .filter_map(|owner| match owner {
                Owner::Pod { uid, .. } => Some(uid),
                _ => None,
            })
            .chain(listed)
            .chain(self.names.keys())
            .collect();
        self.named.retain(|uid, _| kept.contains(uid));
        self.recent.retain(|uid, _| kept.contains(uid));
        self.explanations.retain(|uid, _| kept.contains(uid));
        self.explanations.values_mut().for_each(|explanation| explanation.forget(self.now));
        self.threads.retain(|uid, _| kept.contains(uid));
        self.pressures.retain(|uid| kept.contains(uid));
        self.containers.retain(|(uid, _), _| kept.contains(uid));
        let owners: BTreeSet<&Owner> = ledger.owners().collect();
        let recently = self.now.minus(self.settings.retain);
        self.habits.retain(|(owner, _), _| owners.contains(owner));
        self.injections.retain(&self.roster, |owner| owners.contains(owner), recently);
        self.watched.retain(|(owner, _), watched| owners.contains(owner) || watched.since > recently);
        self.memory.retain(|(owner, _), _| owners.contains(owner));

        self.roster.forget(self.watermark);
        let open = self
            .gpus
            .values()
            .filter_map(|state| state.timeline.open_since())
            .min()
            .unwrap_or(self.watermark);
        self.snapshots.forget(open);
        while self.holdings.len() > 1 && self.holdings[1].0 <= open {
            self.holdings.pop_front();
        }
        self.tariffs.forget(open);
        for state in self.gpus.values_mut() {
            state.timeline.forget();
        }
    }
}

impl GpuState {
    fn new(gpu: &Gpu, at: MonoNs) -> Self {
        Self {
            gpu: Arc::new(gpu.clone()),
            up: gpu.down.is_none(),
            timeline: Timeline::new(at),
            board: Board::default(),
            counters: Counters::default(),
            totals: BoardTotals::default(),
            elapsed: 0,
            retired: 0,
            idle_power: None,
            residue: None,
            xids: BTreeMap::new(),
            last_reading: None,
            memory_used: BTreeMap::new(),
            silent: BTreeSet::new(),
            late: Late::default(),
        }
    }

    /// Forgets gauges, which are no longer true.
    fn lose(&mut self) {
        self.up = false;
        self.board = Board::default();
        self.memory_used.clear();
    }

    /// Adds what a reading says of the board. Gives its energy, in microjoules.
    fn count(&mut self, board: &Board, during: Interval, energy_price: Option<Price>) -> Option<u64> {
        let nanos = during.nanos();
        let add = |total: &mut Option<u128>, bytes: Option<u64>| {
            if let Some(bytes) = bytes {
                *total.get_or_insert(0) += u128::from(bytes);
            }
        };
        let counters = &mut self.counters;
        let bytes = board.pcie_receive.and_then(|volume| counters.pcie_receive.bytes(volume, nanos));
        add(&mut self.totals.pcie_receive, bytes);
        let bytes = board.pcie_transmit.and_then(|volume| counters.pcie_transmit.bytes(volume, nanos));
        add(&mut self.totals.pcie_transmit, bytes);
        let bytes = board.nvlink_receive.and_then(|volume| counters.nvlink_receive.bytes(volume, nanos));
        add(&mut self.totals.nvlink_receive, bytes);
        let bytes = board.nvlink_transmit.and_then(|volume| counters.nvlink_transmit.bytes(volume, nanos));
        add(&mut self.totals.nvlink_transmit, bytes);
        if let Some(reasons) = &board.throttle {
            let held = self.totals.throttle.get_or_insert([0; Throttle::ALL.len()]);
            for reason in reasons {
                held[*reason as usize] += nanos;
            }
        }
        let energy = counters.energy.advance(board.energy_mj?)?.saturating_mul(1000);
        *self.totals.energy_uj.get_or_insert(0) += energy;
        if let Some(price) = energy_price {
            self.totals.energy_cost.get_or_insert_default().add(Money::of_energy(price, energy));
        }
        Some(energy)
    }

    fn add_residue(&mut self, unallocated: u64, unallocatable: u64, price: Option<Price>) {
        let residue = self.residue.get_or_insert_default();
        residue.unallocated += unallocated;
        residue.unallocatable += unallocatable;
        if let Some(price) = price {
            residue.unallocated_cost.get_or_insert_default().add(Money::of(price, unallocated));
            residue.unallocatable_cost.get_or_insert_default().add(Money::of(price, unallocatable));
        }
    }
}
