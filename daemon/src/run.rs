//! `run` and `record`: the one place where sources, pipeline and endpoints are put together.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use warpmeter_core::fact::{Fact, Health, HealthState, Source};
use warpmeter_core::identity::{GpuId, HostPid};
use warpmeter_core::settings::Settings;
use warpmeter_core::view::View;
use warpmeter_exporter::catalogue::Level;
use warpmeter_exporter::encode::Encoder;
use warpmeter_exporter::heartbeat::Heartbeat;
use warpmeter_exporter::page::{Page, Publisher};
use warpmeter_exporter::{http, readiness};

use crate::bpf;
use crate::config::{Config, Pods};
use crate::control::Control;
use crate::host::{HostRoots, HostSource};
use crate::kubelet::KubeletSource;
use crate::names::{NamesOptions, NamesSource};
use crate::nvidia::{Gate, Orders, Supervisor, Timing};
use crate::pipeline::{Intake, Pipeline, Wanted};
use crate::pods::PodsFile;
use crate::recording::{Recorder, RecordingError};
use crate::refusals::Refusals;

/// How often the pods' file is looked at.
const PODS_EVERY: Duration = Duration::from_secs(1);

/// How often a source that knows by itself when it is due is asked.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// What a run is to do beside watching.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Record every fact to this file.
    pub record: Option<PathBuf>,
    /// Stop after this long.
    pub duration: Option<Duration>,
    /// Serve the endpoints.
    pub serve: bool,
    /// Write the final metrics to this file.
    pub metrics: Option<PathBuf>,
    /// Arguments with which this program is started to play this part.
    pub prefix: Vec<OsString>,
}

/// Why a run could not start, or not finish.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The runtime, a thread or a signal handler could not be had.
    #[error("{attempt}: {source}")]
    Start {
        /// What was attempted.
        attempt: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("listen on {address}: {source}; choose another address with --listen or [http] listen")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The recording cannot be made.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The final metrics cannot be written.
    #[error("write metrics to {path}: {source}")]
    Metrics {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The exposition of a view.
pub fn exposition(view: &View, level: Level) -> String {
    Encoder::new(level).encode(view)
}

/// The fold's settings under a configuration.
pub fn settings(config: &Config) -> Settings {
    // In a container the host's name is the pod's; `NODE_NAME` is how a DaemonSet says which node it is on.
    let named = std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let node = if let (true, Some(name)) = (config.node.is_empty(), named) {
        name
    } else if config.node.is_empty() {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    } else {
        config.node.clone()
    };
    // Whoever names pods says who holds what; otherwise those hold a device who have it open.
    let grants_expected = pods_source(config) != Pods::None;
    let infer_allocation = config.infer.unwrap_or(!grants_expected);
    Settings { node, infer_allocation, grants_expected, ..config.settings.clone() }
}

/// Who says which pod holds which device on this node: the kubelet if there is one, unless told otherwise.
pub fn pods_source(config: &Config) -> Pods {
    match &config.pods {
        Pods::Auto if config.kubelet.socket.parent().is_some_and(std::path::Path::is_dir) => Pods::Kubelet,
        Pods::Auto => Pods::None,
        chosen => chosen.clone(),
    }
}

/// Watches the node until a signal or the end of the duration. Gives the last page.
pub fn run(config: &Config, options: Options) -> Result<Arc<Page>, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(|source| RunError::Start { attempt: "start the runtime", source })?;
    runtime.block_on(watch_node(config, options))
}

async fn watch_node(config: &Config, options: Options) -> Result<Arc<Page>, RunError> {
    let failed = |attempt| move |source| RunError::Start { attempt, source };
    // Everything that can fail is done before the first thread starts.
    let listener = if options.serve {
        let bound = TcpListener::bind(config.listen).await;
        Some(bound.map_err(|source| RunError::Listen { address: config.listen, source })?)
    } else {
        None
    };
    let settings = settings(config);
    let recorder = options.record.as_deref().map(|path| Recorder::create(path, &settings)).transpose()?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed("handle SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed("handle SIGINT"))?;
    let program = std::env::current_exe().map_err(failed("find this program"))?;

    let stop = Arc::new(AtomicBool::new(false));
    let heartbeat = Heartbeat::start();
    let (wanted, asked) = channel();
    let hasten = Arc::new(AtomicBool::new(false));
    let unknown_pod = Arc::clone(&hasten);
    let (pipeline, intake) = Pipeline::new(settings.clone(), recorder, Some(wanted), unknown_pod);
    let before = View { node: settings.node.clone(), window: settings.window, ..View::default() };
    let (mut publisher, page) = Publisher::new(config.level, readiness::reasons(&before));
    let mut threads = Threads { stop: Arc::clone(&stop), handles: Vec::new() };

    let orders = Orders {
        libraries: config.libraries.clone(),
        period: settings.window,
        skip: Vec::new(),
        known: Vec::new(),
    };
    let arguments = options.prefix.iter().cloned().chain(["nvidia".into()]).collect();
    let gate = Arc::new(Gate::default());
    let supervisor =
        Supervisor::new(program.clone(), arguments, orders, Timing::default(), &intake, Arc::clone(&gate));
    threads.start("nvidia", move |stop| supervisor.run(stop))?;
    let roots = HostRoots { proc: config.proc.clone(), dev: config.dev.clone() };
    let host = intake.of(Source::Host);
    let period = Duration::from_nanos(settings.window);
    let refusals = Refusals::default();
    let watched =
        start_probes(config, &options.prefix, program, period, &intake, &gate, &refusals, &mut threads)?;
    threads.start("host", move |stop| {
        watch_host(HostSource::new(roots), &host, &asked, watched.as_ref(), period, stop);
    })?;
    start_pods(config, &intake, hasten, &refusals, &mut threads)?;
    if let Some(options) = &config.names {
        let node = if options.node.is_empty() { settings.node.clone() } else { options.node.clone() };
        let mut source = NamesSource::new(NamesOptions { node, ..options.clone() }).telling(refusals.clone());
        let names = intake.of(Source::Names);
        threads.start("names", move |stop| {
            poll_until(stop, &names, |facts| {
                source.poll(facts);
                source.health()
            });
        })?;
    }
    drop(intake);
    if let Some(path) = config.control.as_deref().filter(|_| options.serve) {
        match Control::listen(path) {
            Ok(control) => {
                let gate = Arc::clone(&gate);
                threads.start("control", move |stop| control.serve(&gate, stop))?;
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no control socket: SIGUSR1 releases the driver, SIGUSR2 resumes");
            }
        }
    }
    let beat = heartbeat.clone();
    let (broken, breakage) = channel();
    threads.start("pipeline", move |stop| {
        let ended = pipeline.run(&|| stop.load(Ordering::Relaxed), |view| {
            beat.beat();
            let reasons = readiness::reasons(&view);
            publisher.publish(Arc::new(view), reasons);
        });
        if let Err(error) = ended
            && broken.send(error).is_err()
        {
            tracing::error!("nobody waits to hear that the recording is incomplete");
        }
    })?;

    let mut release = signal(SignalKind::user_defined1()).map_err(failed("handle SIGUSR1"))?;
    let mut resume = signal(SignalKind::user_defined2()).map_err(failed("handle SIGUSR2"))?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = release.recv() => {
                    tracing::info!("SIGUSR1: the driver is let go of");
                    gate.release(None, Duration::ZERO);
                }
                _ = resume.recv() => {
                    tracing::info!("SIGUSR2: the driver is taken up again");
                    gate.resume();
                }
            }
        }
    });
    let ended = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = elapsed(options.duration) => {}
        }
    };
    match listener {
        Some(listener) => {
            tracing::info!(address = %config.listen, "serving metrics");
            http::serve(listener, page.clone(), heartbeat, ended).await;
        }
        None => ended.await,
    }
    threads.join();
    let last = Arc::clone(&page.borrow());
    if let Some(path) = options.metrics {
        std::fs::write(&path, last.text()).map_err(|source| RunError::Metrics { path, source })?;
    }
    match breakage.try_recv() {
        Ok(error) => Err(error.into()),
        Err(_) => Ok(last),
    }
}

/// Starts the supervisor of the process that probes. Gives where it is told of processes that the driver names.
#[expect(clippy::too_many_arguments, reason = "the parts of a run that it is connected to")]
fn start_probes(
    config: &Config,
    prefix: &[OsString],
    program: PathBuf,
    period: Duration,
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
        period: u64::try_from(period.as_nanos()).unwrap_or(u64::MAX),
    };
    let arguments = prefix.iter().cloned().chain(["bpf".into()]).collect();
    let (sender, wanted) = channel();
    let (gate, refusals) = (Arc::clone(gate), refusals.clone());
    let supervisor = bpf::Supervisor::new(program, arguments, orders, intake, gate, wanted, refusals);
    threads.start("bpf", move |stop| supervisor.run(stop))?;
    Ok(Some(sender))
}

/// Starts the source that says which pod holds which device.
fn start_pods(
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
                poll_until(stop, &pods, |facts| {
                    let began = Instant::now();
                    file.poll(facts);
                    facts.push(Fact::Poll {
                        took: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
                    });
                    pause(PODS_EVERY, stop);
                    file.health()
                });
            })
        }
        Pods::Kubelet => {
            let mut kubelet = KubeletSource::new(config.kubelet.clone());
            threads.start("kubelet", move |stop| {
                poll_until(stop, &pods, |facts| {
                    if hasten.swap(false, Ordering::Relaxed) {
                        kubelet.hasten();
                    }
                    kubelet.poll(facts);
                    kubelet.health()
                });
            })
        }
        Pods::Auto | Pods::None => Ok(()),
    }
}

/// Polls a source five times a second, and tells its health when that changes.
fn poll_until(stop: &AtomicBool, intake: &Intake, mut poll: impl FnMut(&mut Vec<Fact>) -> Health) {
    let mut facts = Vec::new();
    let mut told: Option<Health> = None;
    while !stop.load(Ordering::Relaxed) {
        let health = poll(&mut facts);
        if told.as_ref() != Some(&health) {
            told = Some(health.clone());
            facts.push(Fact::Health(health));
        }
        for fact in facts.drain(..) {
            intake.put(fact);
        }
        pause(POLL_EVERY, stop);
    }
}

async fn elapsed(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// Looks at the host's processes once a period, and at those that the driver names as soon as it does; `also_told`
/// hears of these too.
fn watch_host(
    mut source: HostSource,
    intake: &Intake,
    asked: &Receiver<Wanted>,
    mut also_told: Option<&Sender<Wanted>>,
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
            let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            facts.push(Fact::Poll { took });
            let now = source.health();
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

fn pause(wait: Duration, stop: &AtomicBool) {
    let until = Instant::now() + wait;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50).min(wait));
    }
}

/// The threads of a run. All end when this is dropped, also if the next one cannot be started.
struct Threads {
    stop: Arc<AtomicBool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(&mut self, name: &str, body: impl FnOnce(&AtomicBool) + Send + 'static) -> Result<(), RunError> {
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || body(&stop));
        self.handles.push(thread.map_err(|source| RunError::Start { attempt: "start a thread", source })?);
        Ok(())
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                tracing::error!("a thread panicked: its last figures are missing");
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.join();
    }
}
