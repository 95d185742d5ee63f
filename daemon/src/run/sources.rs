//! The sources of a run, each on its thread.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Fact, Health, HealthState, Source};
use warpmeter_core::identity::{GpuId, HostPid, ProcessId};
use warpmeter_core::inventory::Inventory;
use warpmeter_core::settings::Settings;

use super::RunError;
use super::settings::{has_kubelet, pods_source};
use super::threads::Threads;
use crate::bpf;
use crate::clock::pause;
use crate::config::{Config, Pods};
use crate::dcgm::{DcgmOptions, DcgmSource};
use crate::host::{HostRoots, HostSource};
use crate::inject::InjectSource;
use crate::kubelet::{KubeletOptions, KubeletSource};
use crate::names::{NamesOptions, NamesSource};
use crate::nvidia::Gate;
use crate::pipeline::{Intake, Wanted};
use crate::pods::PodsFile;
use crate::prices::PriceSource;
use crate::refusals::Refusals;

/// How often files of pods and prices are looked at, and whether a kubelet has come.
const FILES_EVERY: Duration = Duration::from_secs(1);

/// How often a health that has not changed is told again.
const HEALTH_EVERY: Duration = Duration::from_mins(1);

/// How often a source that knows by itself when it is due is asked.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Starts the source of processes, which also looks up those that it is `asked` for; `also_told` hears of these too,
/// and `users` of those that use a GPU, once a round.
pub(super) fn start_host(
    config: &Config,
    intake: &Intake,
    asked: Receiver<Wanted>,
    also_told: Option<Sender<Wanted>>,
    users: Option<SyncSender<Vec<ProcessId>>>,
    threads: &mut Threads,
) -> Result<(), RunError> {
    let roots =
        HostRoots { proc: config.proc.clone(), dev: config.dev.clone(), cgroup: config.cgroup.clone() };
    let host = intake.of(Source::Host);
    let period = Duration::from_nanos(config.settings.window);
    threads.start("host", move |stop| {
        watch_host(HostSource::new(roots), &host, &asked, also_told.as_ref(), users.as_ref(), period, stop);
    })
}

/// Starts the supervisor of the process that probes. Gives where it is told of processes that the driver names.
pub(super) fn start_probes(
    config: &Config,
    program: PathBuf,
    prefix: &[OsString],
    intake: &Intake,
    gate: &Arc<Gate>,
    refusals: &Refusals,
    threads: &mut Threads,
) -> Result<Option<Sender<Wanted>>, RunError> {
    if config.probes == bpf::Enabled::No {
        let reason = "switched off by [bpf] enabled".to_owned();
        intake.of(Source::Probes).put(Fact::Health(Health { state: HealthState::Off, reason }));
        return Ok(None);
    }
    let orders = bpf::Orders {
        enabled: config.probes,
        proc: config.proc.clone(),
        dev: config.dev.clone(),
        period: config.settings.window,
    };
    let arguments = prefix.iter().cloned().chain(["bpf".into()]).collect();
    let (sender, wanted) = channel();
    let (gate, refusals) = (Arc::clone(gate), refusals.clone());
    let supervisor = bpf::Supervisor::new(program, arguments, orders, intake, gate, wanted, refusals);
    threads.start("bpf", move |stop| supervisor.run(stop))?;
    Ok(Some(sender))
}

/// Starts the source that says which pod holds which device, if there is to be one. Setting `hasten` has the kubelet
/// asked at once.
pub(super) fn start_pods(
    config: &Config,
    intake: &Intake,
    hasten: Arc<AtomicBool>,
    refusals: &Refusals,
    threads: &mut Threads,
) -> Result<(), RunError> {
    let pods = intake.of(Source::Pods);
    match pods_source(config) {
        Pods::File(path) => {
            let mut file = PodsFile::new(&path).telling(refusals.clone());
            threads.start("pods", move |stop| {
                poll_until(stop, &pods, FILES_EVERY, |facts| {
                    file.poll(facts);
                    file.health()
                });
            })
        }
        source @ (Pods::Kubelet | Pods::Auto) => {
            let options = config.kubelet.clone();
            threads.start("kubelet", move |stop| {
                if source == Pods::Auto {
                    await_kubelet(&options, &pods, stop);
                }
                let mut kubelet = KubeletSource::new(options);
                poll_until(stop, &pods, POLL_EVERY, |facts| {
                    if hasten.swap(false, Ordering::Relaxed) {
                        kubelet.hasten();
                    }
                    kubelet.poll(facts);
                    kubelet.health()
                });
            })
        }
        Pods::None => Ok(()),
    }
}

/// Waits for a kubelet on a node that has none so far, which may be one that is only being set up.
fn await_kubelet(options: &KubeletOptions, intake: &Intake, stop: &AtomicBool) {
    if has_kubelet(options) {
        return;
    }
    let reason = format!(
        "no kubelet here so far: there is no directory for {}, which is looked for every second; until it answers, \
         nobody says who holds which device",
        options.socket.display()
    );
    intake.put(Fact::Health(Health { state: HealthState::Off, reason }));
    while !has_kubelet(options) && !stop.load(Ordering::Relaxed) {
        pause(FILES_EVERY, stop);
    }
}

/// Starts the source of pods' names and labels, if it is wanted, for the pods of `node`.
pub(super) fn start_names(
    config: &Config,
    node: &str,
    intake: &Intake,
    refusals: &Refusals,
    threads: &mut Threads,
) -> Result<(), RunError> {
    let Some(options) = config.names.clone() else { return Ok(()) };
    let node = if options.node.is_empty() { node.to_owned() } else { options.node.clone() };
    let mut source = NamesSource::new(NamesOptions { node, ..options }).telling(refusals.clone());
    let names = intake.of(Source::Names);
    threads.start("names", move |stop| {
        poll_until(stop, &names, POLL_EVERY, |facts| {
            source.poll(facts);
            source.health()
        });
    })
}

/// Starts the source of prices, if they can change: `settings` has those that hold at the start.
pub(super) fn start_prices(
    config: &Config,
    settings: &Settings,
    intake: &Intake,
    threads: &mut Threads,
) -> Result<(), RunError> {
    if !config.price.can_change() {
        return Ok(());
    }
    let mut source = PriceSource::new(config.price.clone(), &settings.node).holding(settings.prices.clone());
    let prices = intake.of(Source::Prices);
    let mut next = Instant::now();
    threads.start("prices", move |stop| {
        poll_until(stop, &prices, POLL_EVERY, |facts| {
            if Instant::now() >= next {
                next = Instant::now() + FILES_EVERY;
                source.poll(facts);
            }
            source.health()
        });
    })
}

/// Starts the source that reads a neighbouring DCGM exporter, for the GPUs that `inventories` say need it.
pub(super) fn start_dcgm(
    options: DcgmOptions,
    inventories: Receiver<Inventory>,
    intake: &Intake,
    threads: &mut Threads,
) -> Result<(), RunError> {
    let mut source = DcgmSource::new(options, inventories);
    let dcgm = intake.of(Source::Dcgm);
    threads.start("dcgm", move |stop| {
        poll_until(stop, &dcgm, POLL_EVERY, |facts| {
            source.poll(facts);
            source.health()
        });
    })
}

/// Starts the source that reads sums of injected libraries, if it is wanted. Gives where it is told who uses a GPU.
pub(super) fn start_inject(
    config: &Config,
    intake: &Intake,
    threads: &mut Threads,
) -> Result<Option<SyncSender<Vec<ProcessId>>>, RunError> {
    if !config.inject {
        return Ok(None);
    }
    let mut source = InjectSource::new(config.proc.clone());
    let inject = intake.of(Source::Inject);
    // Who does not keep up is told the next time.
    let (sender, told) = sync_channel::<Vec<ProcessId>>(1);
    threads.start("inject", move |stop| {
        poll_until(stop, &inject, POLL_EVERY, |facts| {
            if let Some(users) = told.try_iter().last() {
                source.poll(&users, crate::clock::now(), facts);
            }
            source.health()
        });
    })?;
    Ok(Some(sender))
}

/// Polls a source at once and then this often, and tells its health when that changes, or once a minute: it may have been
/// lost.
fn poll_until(
    stop: &AtomicBool,
    intake: &Intake,
    every: Duration,
    mut poll: impl FnMut(&mut Vec<Fact>) -> Health,
) {
    let mut facts = Vec::new();
    let mut told: Option<(Health, Instant)> = None;
    while !stop.load(Ordering::Relaxed) {
        let health = poll(&mut facts);
        let known = |(told, at): &(Health, Instant)| *told == health && at.elapsed() < HEALTH_EVERY;
        if !told.as_ref().is_some_and(known) {
            told = Some((health.clone(), Instant::now()));
            facts.push(Fact::Health(health));
        }
        for fact in facts.drain(..) {
            intake.put(fact);
        }
        pause(every, stop);
    }
}

/// Looks at the host's processes once a period, and at those that the driver names as soon as it does.
fn watch_host(
    mut source: HostSource,
    intake: &Intake,
    asked: &Receiver<Wanted>,
    mut also_told: Option<&Sender<Wanted>>,
    mut users: Option<&SyncSender<Vec<ProcessId>>>,
    period: Duration,
    stop: &AtomicBool,
) {
    let mut holders: BTreeMap<GpuId, BTreeSet<HostPid>> = BTreeMap::new();
    let mut also: BTreeSet<HostPid> = BTreeSet::new();
    let mut health: Option<Health> = None;
    let mut facts = Vec::new();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let wait = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(100));
        let named = asked.recv_timeout(wait);
        if let (Some(other), Ok(named)) = (also_told, &named)
            && other.send(named.clone()).is_err()
        {
            also_told = None;
        }
        match named {
            Ok(Wanted::Holders(gpu, pids)) => {
                let new: Vec<HostPid> = pids.iter().copied().collect();
                holders.insert(gpu, pids);
                source.look_up(&new, &mut facts);
            }
            Ok(Wanted::Also(pids)) => {
                let new: Vec<HostPid> = pids.iter().copied().collect();
                also.extend(pids);
                source.look_up(&new, &mut facts);
            }
            Ok(Wanted::Instances(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => pause(Duration::from_millis(100), stop),
        }
        if Instant::now() >= next {
            next = (next + period).max(Instant::now());
            let began = Instant::now();
            let wanted: BTreeSet<HostPid> = holders.values().flatten().chain(&also).copied().collect();
            source.poll(&wanted.into_iter().collect::<Vec<_>>(), &mut facts);
            also.clear();
            let gone = |users: &SyncSender<_>| {
                matches!(users.try_send(source.users()), Err(TrySendError::Disconnected(_)))
            };
            if users.is_some_and(gone) {
                users = None;
            }
            let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let now = source.health();
            facts.push(Fact::Poll { took, answered: now.state != HealthState::Down });
            if health.as_ref() != Some(&now) {
                health = Some(now.clone());
                facts.push(Fact::Health(now));
            }
        }
        for fact in facts.drain(..) {
            intake.put(fact);
        }
    }
}
