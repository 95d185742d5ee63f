//! The one writer: takes facts from all sources, folds them, and publishes each view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use warpmeter_core::fact::{Fact, Health, HealthState, Process, Sample, Source};
use warpmeter_core::fold::Fold;
use warpmeter_core::identity::{GpuId, HostPid, MigId, PodUid, Scope};
use warpmeter_core::inventory::Inventory;
use warpmeter_core::settings::Settings;
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_core::view::View;

use crate::clock;
use crate::process::own_use;
use crate::recording::{Recorder, RecordingError};
use crate::told::Told;

/// Facts that may wait for the pipeline: more than a minute of a large node.
const CAPACITY: usize = 8192;

/// How often windows may close.
const TICK: u64 = SECOND / 5;

/// How often the daemon's own use is measured.
const OWN_EVERY: u64 = 5 * SECOND;

/// Where sources put their facts. Never blocks: what does not fit is counted and reported as lost.
#[derive(Debug, Clone)]
pub struct Intake {
    source: Source,
    facts: SyncSender<Sample>,
    lost: Arc<AtomicU64>,
}

impl Intake {
    /// An intake for the facts of `source`, with its own count of losses.
    #[must_use]
    pub fn of(&self, source: Source) -> Self {
        Self { source, facts: self.facts.clone(), lost: Arc::default() }
    }

    /// Puts in a fact that was observed just now.
    pub fn put(&self, fact: Fact) {
        self.sample(Sample { at: clock::now(), source: self.source, fact });
    }

    /// Puts in a fact of a source process.
    pub fn sample(&self, sample: Sample) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let fact = Fact::Lost { count: lost };
            if self.facts.try_send(Sample { at: sample.at, source: self.source, fact }).is_err() {
                self.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
        match self.facts.try_send(sample) {
            // A pipeline that has ended wants no more facts.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// What the driver's readings ask of the host source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The processes that have this GPU open now.
    Holders(GpuId, BTreeSet<HostPid>),
    /// Other processes that the driver named.
    Also(BTreeSet<HostPid>),
    /// The MIG instances that there are.
    Instances(BTreeSet<MigId>),
}

/// The pipeline before it runs.
#[derive(Debug)]
pub struct Pipeline {
    facts: Receiver<Sample>,
    fold: Fold,
    recorder: Option<Recorder>,
    host: Option<Sender<Wanted>>,
    inventories: Option<Sender<Inventory>>,
    holders: BTreeMap<GpuId, BTreeSet<HostPid>>,
    instances: BTreeSet<MigId>,
    told: Told,
    pods: BTreeSet<PodUid>,
    unknown_pod: Arc<AtomicBool>,
    broken: Option<RecordingError>,
}

impl Pipeline {
    /// A pipeline and where its facts are put in. `host` is told which processes the driver names; `unknown_pod` is
    /// set when a process of a pod that nobody has named yet has a GPU open.
    pub fn new(
        settings: Settings,
        recorder: Option<Recorder>,
        host: Option<Sender<Wanted>>,
        unknown_pod: Arc<AtomicBool>,
    ) -> (Self, Intake) {
        let (sender, facts) = sync_channel(CAPACITY);
        let intake = Intake { source: Source::Daemon, facts: sender, lost: Arc::default() };
        (
            Self {
                facts,
                fold: Fold::new(settings),
                recorder,
                host,
                inventories: None,
                holders: BTreeMap::new(),
                instances: BTreeSet::new(),
                told: Told::default(),
                pods: BTreeSet::new(),
                unknown_pod,
                broken: None,
            },
            intake,
        )
    }

    /// The same, which tells `inventories` of every inventory.
    #[must_use]
    pub fn telling(self, inventories: Sender<Inventory>) -> Self {
        Self { inventories: Some(inventories), ..self }
    }

    /// Runs until `stop` says so or no source is left, handing each new view to `publish`.
    ///
    /// `publish` is called at least once a second: its calls are the pipeline's heartbeat.
    ///
    /// Gives the error of a recording that could not be completed; everything else went on without it.
    pub fn run(
        mut self,
        stop: &dyn Fn() -> bool,
        mut publish: impl FnMut(View),
    ) -> Result<(), RecordingError> {
        let mut next_tick = clock::now().plus(TICK);
        let mut next_own = clock::now();
        let up = Fact::Health(Health { state: HealthState::Up, reason: String::new() });
        self.take(Sample { at: clock::now(), source: Source::Daemon, fact: up }, &mut publish);
        while !stop() {
            let wait = next_tick.since(clock::now());
            match self.facts.recv_timeout(Duration::from_nanos(wait)) {
                Ok(sample) => {
                    self.ask(&sample);
                    self.take(sample, &mut publish);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = clock::now();
            if now >= next_own {
                next_own = now.plus(OWN_EVERY);
                if let Some(own) = own_use() {
                    self.take(Sample { at: now, source: Source::Daemon, fact: Fact::Own(own) }, &mut publish);
                }
            }
            if now >= next_tick {
                next_tick = after(next_tick, now);
                let tick = Fact::Tick { wall: clock::wall() };
                self.take(Sample { at: now, source: Source::Daemon, fact: tick }, &mut publish);
            }
        }
        if let Some(mut recorder) = self.recorder.take() {
            recorder.finish()?;
        }
        self.broken.map_or(Ok(()), Err)
    }

    fn take(&mut self, sample: Sample, publish: &mut impl FnMut(View)) {
        if let Fact::Health(health) = &sample.fact
            && self.told.is_news(sample.source, health, sample.at)
        {
            log_change(sample.source, health);
        }
        self.notice_unknown_pod(&sample.fact);
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.record(&sample)
        {
            // The node's accounts matter more than their recording.
            tracing::error!(%error, "recording ends here");
            self.recorder = None;
            self.broken = Some(error);
        }
        if let Some(view) = self.fold.apply(sample) {
            publish(view);
        }
    }

    /// A pod that started since the kubelet was last asked is known by its cgroup before it has a name.
    fn notice_unknown_pod(&mut self, fact: &Fact) {
        match fact {
            Fact::Pods(pods) => self.pods = pods.pods.iter().map(|pod| pod.uid.clone()).collect(),
            Fact::Process(Process { scope: Scope::Pod { uid, .. }, opened: Some(opened), .. })
                if !opened.minors.is_empty() && !self.pods.contains(uid) =>
            {
                self.unknown_pod.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Tells the host source of processes that it may not know yet: they may not live long. And of GPUs that are no
    /// longer read, so that it does not look on for whoever had them open.
    fn ask(&mut self, sample: &Sample) {
        if let (Fact::Inventory(inventory), Some(told)) = (&sample.fact, &self.inventories)
            && told.send(inventory.clone()).is_err()
        {
            self.inventories = None;
        }
        let unread = |gpu: &GpuId| match &sample.fact {
            Fact::Inventory(inventory) => !inventory.gpus.iter().any(|up| up.id == *gpu && up.down.is_none()),
            Fact::Health(Health { state, .. }) => {
                sample.source == Source::Nvidia && matches!(state, HealthState::Down | HealthState::Off)
            }
            _ => false,
        };
        let unread: Vec<GpuId> = self.holders.keys().filter(|gpu| unread(gpu)).cloned().collect();
        for gpu in unread {
            self.holders.remove(&gpu);
            self.send(Wanted::Holders(gpu, BTreeSet::new()));
        }
        let wanted = match &sample.fact {
            Fact::Reading(reading) => {
                let holders = reading.parts.iter().flat_map(|part| part.processes.iter().flatten());
                let pids: BTreeSet<HostPid> = holders.map(|holder| holder.pid).collect();
                if self.holders.get(&reading.gpu) == Some(&pids) {
                    return;
                }
                self.holders.insert(reading.gpu.clone(), pids.clone());
                Wanted::Holders(reading.gpu.clone(), pids)
            }
            Fact::ProcessUse(used) => {
                let held = self.holders.get(&used.gpu);
                let known = |pid: &HostPid| held.is_some_and(|held| held.contains(pid));
                let pids: BTreeSet<HostPid> =
                    used.samples.iter().map(|sample| sample.pid).filter(|pid| !known(pid)).collect();
                if pids.is_empty() {
                    return;
                }
                Wanted::Also(pids)
            }
            Fact::Inventory(inventory) => {
                let layouts = inventory.gpus.iter().filter_map(|gpu| gpu.mig.as_ref());
                let instances: BTreeSet<MigId> =
                    layouts.flat_map(|mig| &mig.instances).map(|instance| instance.id.clone()).collect();
                if instances == self.instances {
                    return;
                }
                self.instances.clone_from(&instances);
                Wanted::Instances(instances)
            }
            _ => return,
        };
        self.send(wanted);
    }

    fn send(&mut self, wanted: Wanted) {
        if self.host.as_ref().is_some_and(|host| host.send(wanted).is_err()) {
            self.host = None;
        }
    }
}

/// What [`Told`] finds worth a line.
fn log_change(source: Source, health: &Health) {
    let (source, state, reason) = (source.label(), health.state.label(), &health.reason);
    match health.state {
        HealthState::Up | HealthState::Off => tracing::info!(source, state, %reason, "source"),
        HealthState::Degraded | HealthState::Down => tracing::warn!(source, state, %reason, "source"),
    }
}

/// The next tick after `now`, on the grid of `tick`; what was missed is not made up for.
fn after(tick: MonoNs, now: MonoNs) -> MonoNs {
    tick.plus((now.since(tick) / TICK + 1) * TICK)
}

#[cfg(test)]
mod tests;
