//! `run` and `record`: the one place where sources, pipeline and endpoints are put together.

mod settings;
mod sources;
mod threads;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use warpmeter_core::fact::Source;
use warpmeter_core::view::View;
use warpmeter_exporter::catalogue::Level;
use warpmeter_exporter::compat::Dcgm;
use warpmeter_exporter::encode::Encoder;
use warpmeter_exporter::explain;
use warpmeter_exporter::heartbeat::Heartbeat;
use warpmeter_exporter::page::{Page, Pages, Publisher};
use warpmeter_exporter::{http, readiness};

use crate::config::{Config, ConfigError};
use crate::control;
use crate::endpoint;
use crate::nvidia::{Gate, Orders, Supervisor, Timing};
use crate::pipeline::Pipeline;
use crate::recording::{Recorder, RecordingError};
use crate::refusals::Refusals;

pub use settings::{expected_sources, pods_source, settings};

use threads::Threads;

/// What a run is to do beside watching.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Record every fact to this file.
    pub record: Option<PathBuf>,
    /// Stop after this long.
    pub duration: Option<Duration>,
    /// Then go on for at most so long while a source has not told yet how it stands.
    pub patience: Duration,
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
    /// The configuration names a file that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
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
    let (keeper, guard) =
        if options.serve { endpoint::open(&config.http)? } else { (None, http::Guard::none()) };
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

    let heartbeat = Heartbeat::start();
    let (wanted, asked) = channel();
    let hasten = Arc::new(AtomicBool::new(false));
    let unknown_pod = Arc::clone(&hasten);
    let (mut pipeline, intake) = Pipeline::new(settings.clone(), recorder, Some(wanted), unknown_pod);
    let before = View { node: settings.node.clone(), window: settings.window, ..View::default() };
    let dcgm = config.http.compat_dcgm.then(Dcgm::default);
    let (mut publisher, page) = Publisher::new(config.level, dcgm, readiness::reasons(&before));
    let mut threads = Threads::default();

    let orders = Orders {
        libraries: config.libraries.clone(),
        period: settings.window,
        skip: Vec::new(),
        known: Vec::new(),
        cupti: config.cupti.wanted().map(Into::into),
        dcgm: config.dcgm.is_some(),
    };
    let arguments = options.prefix.iter().cloned().chain(["nvidia".into()]).collect();
    let gate = Arc::new(Gate::default());
    let supervisor =
        Supervisor::new(program.clone(), arguments, orders, Timing::default(), &intake, Arc::clone(&gate));
    threads.start("nvidia", move |stop| supervisor.run(stop))?;
    let refusals = Refusals::default();
    let watched =
        sources::start_probes(config, program, &options.prefix, &intake, &gate, &refusals, &mut threads)?;
    let users = sources::start_inject(config, &intake, &mut threads)?;
    sources::start_host(config, &intake, asked, watched, users, &mut threads)?;
    sources::start_pods(config, &intake, hasten, &refusals, &mut threads)?;
    sources::start_names(config, &settings.node, &intake, &refusals, &mut threads)?;
    if let Some(options) = config.dcgm.clone() {
        let (told, inventories) = channel();
        pipeline = pipeline.telling(told);
        sources::start_dcgm(options, inventories, &intake, &mut threads)?;
    }
    if let Some(keeper) = keeper {
        let daemon = intake.of(Source::Daemon);
        threads.start("secrets", move |stop| endpoint::keep(keeper, &daemon, stop))?;
    }
    sources::start_prices(config, &settings, &intake, &mut threads)?;
    drop(intake);
    if let Some(path) = config.control.clone().filter(|_| options.serve) {
        let (gate, pages) = (Arc::clone(&gate), page.clone());
        let explain = move |name: &str| {
            let page = Arc::clone(&pages.borrow());
            explain::find(page.view(), name).map(|pod| explain::words(page.view(), pod).join("\n"))
        };
        threads.start("control", move |stop| control::keep(&path, &gate, &explain, stop))?;
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
    let mut seen = page.clone();
    let awaited = expected_sources(config);
    let ended = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = over(options.duration, options.patience, &mut seen, &awaited) => {}
        }
    };
    match listener {
        Some(listener) => {
            if endpoint::token_in_the_clear(&config.http) {
                tracing::warn!(
                    "[http] token_file without TLS: whoever sees a request's packets has the token"
                );
            }
            tracing::info!(address = %config.listen, "serving metrics");
            http::serve(listener, page.clone(), heartbeat, guard, ended).await;
        }
        None => ended.await,
    }
    threads.join();
    let last = Arc::clone(&page.borrow());
    if let Some(path) = options.metrics {
        std::fs::write(&path, last.metrics().text()).map_err(|source| RunError::Metrics { path, source })?;
    }
    match breakage.try_recv() {
        Ok(error) => Err(error.into()),
        Err(_) => Ok(last),
    }
}

/// Waits for the end of the duration, and then for whichever is first: all sources have told how they stand, or the
/// patience is over.
async fn over(duration: Option<Duration>, patience: Duration, pages: &mut Pages, awaited: &[Source]) {
    let Some(duration) = duration else { return std::future::pending().await };
    tokio::time::sleep(duration).await;
    let told = |page: &Arc<Page>| {
        let silent = page.view().sources.iter().filter(|source| source.state.is_none());
        !page.view().sources.is_empty() && !silent.clone().any(|source| awaited.contains(&source.source))
    };
    if tokio::time::timeout(patience, pages.wait_for(told)).await.is_err() {
        tracing::debug!(?patience, "a source has not told how it stands");
    }
}
