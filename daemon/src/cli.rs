//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, ConfigError};
use crate::{bpf, check, control, nvidia, occupancy, recording, run};

/// Says where paid GPU time goes, per pod: useful work, stalls and idleness, and what each costs.
#[derive(Debug, Parser)]
#[command(name = "warpmeter", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch this node and serve its metrics.
    Run {
        #[command(flatten)]
        common: Common,
        /// Where to listen, instead of what the configuration says.
        #[arg(long)]
        listen: Option<SocketAddr>,
        /// Record every fact to this file, which must not exist.
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
        /// Stop after this long.
        #[arg(long, value_parser = humantime::parse_duration)]
        duration: Option<Duration>,
    },
    /// Say what works on this node, what does not, and what would mend it.
    Check {
        #[command(flatten)]
        common: Common,
    },
    /// Record every fact to a file, without serving.
    Record {
        #[command(flatten)]
        common: Common,
        /// The file, which must not exist.
        file: PathBuf,
        /// Stop after this long.
        #[arg(long, value_parser = humantime::parse_duration)]
        duration: Option<Duration>,
        /// Write the final metrics to this file.
        #[arg(long, value_name = "FILE")]
        metrics: Option<PathBuf>,
    },
    /// Print the metrics at the end of a recording.
    Replay {
        #[command(flatten)]
        common: Common,
        /// The recording.
        file: PathBuf,
    },
    /// Tell the running daemon to let go of the driver, so that it can be unloaded or its GPUs be reset.
    Release {
        #[command(flatten)]
        common: Common,
        /// Take it up again by itself after this long.
        #[arg(long = "for", value_parser = control::span)]
        duration: Option<Duration>,
    },
    /// Tell the running daemon to take the driver up again.
    Resume {
        #[command(flatten)]
        common: Common,
    },
    /// Say where the figures of a pod on this node come from: its last windows, and who it waited for.
    Explain {
        #[command(flatten)]
        common: Common,
        /// Its UID, NAMESPACE/NAME, or its name if no other pod of the node has that. Pods that have ended count only
        /// where no other has the name.
        pod: String,
    },
    /// Say how many warps of a kernel an SM can hold at most, and what limits them. Needs no GPU and no daemon.
    Occupancy(occupancy::Arguments),
    /// A source process; started by `run` and of no use otherwise.
    #[command(hide = true)]
    Nvidia {
        /// Its orders, as JSON.
        orders: String,
    },
    /// A source process; started by `run` and of no use otherwise.
    #[command(hide = true)]
    Bpf {
        /// Its orders, as JSON.
        orders: String,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Configuration file. Without one, the defaults hold.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Common {
    fn load(&self) -> Result<Config, ConfigError> {
        self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::load)
    }
}

/// Exit status for a configuration that does not hold (`EX_USAGE`).
const BAD_CONFIGURATION: u8 = 64;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    main_as(&[])
}

/// The same for a program that plays several parts: this one begins behind the arguments `prefix`, with which
/// the daemon also starts its source processes.
pub fn main_as(prefix: &[&str]) -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    arguments.drain(1..=prefix.len().min(arguments.len().saturating_sub(1)));
    let prefix: Vec<OsString> = prefix.iter().map(OsString::from).collect();
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(BAD_CONFIGURATION) } else { ExitCode::SUCCESS };
            return if error.print().is_ok() { code } else { ExitCode::FAILURE };
        }
    };
    let daemon = matches!(cli.command, Command::Run { .. } | Command::Record { .. });
    if daemon {
        one_arena();
    }
    // What `check` finds it prints, and its sources need not say again.
    // Before any thread: what a thread lays down, those that it starts do not have.
    let laid_down = if daemon { bpf::confine::lay_down(false) } else { Ok(()) };
    log(if matches!(cli.command, Command::Check { .. }) { "off" } else { "info" });
    if let Err(error) = laid_down {
        tracing::warn!(%error, "the daemon keeps capabilities that only its bpf process uses");
    }
    match dispatch(cli.command, prefix) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            say_error(&text);
            let in_run = matches!(error.downcast_ref(), Some(run::RunError::Config(_)));
            let configuration = in_run || error.is::<ConfigError>();
            if configuration { ExitCode::from(BAD_CONFIGURATION) } else { ExitCode::FAILURE }
        }
    }
}

fn dispatch(command: Command, prefix: Vec<OsString>) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        Command::Run { common, listen, record, duration } => {
            let mut config = common.load()?;
            config.listen = listen.unwrap_or(config.listen);
            let options = run::Options { record, duration, serve: true, prefix, ..run::Options::default() };
            run::run(&config, options)?;
        }
        Command::Record { common, file, duration, metrics } => {
            let config = common.load()?;
            let record = Some(file);
            let options = run::Options { record, duration, metrics, prefix, ..run::Options::default() };
            run::run(&config, options)?;
        }
        Command::Check { common } => {
            let config = common.load()?;
            print(&check::check(&config, prefix).to_string())?;
        }
        Command::Replay { common, file } => {
            let config = common.load()?;
            let view = recording::replay(&file, |_| {})?;
            if let Some(view) = view {
                print(&run::exposition(&view, config.level))?;
            }
        }
        Command::Release { common, duration } => {
            tell(&common.load()?, &control::release(duration))?;
        }
        Command::Resume { common } => tell(&common.load()?, "resume")?,
        Command::Explain { common, pod } => tell(&common.load()?, &format!("explain {pod}"))?,
        Command::Occupancy(arguments) => print(&occupancy::explain(&arguments)?)?,
        Command::Nvidia { orders } => nvidia::run_child(&orders)?,
        Command::Bpf { orders } => bpf::run_child(&orders)?,
    }
    Ok(())
}

/// Starts this process anew, once, with a single arena of the C library's allocator.
///
/// Views and pages are made by one thread and freed by another. With an arena for each thread, as is the default,
/// what one has freed another cannot use, and a node on which pods come and go keeps several times what it needs.
/// Nor may the allocator learn from pages that large blocks come and go: it would keep them (1.5 of 41.5 MiB).
fn one_arena() {
    const ARENAS: &str = "MALLOC_ARENA_MAX";
    // Its own default: once set, it stays.
    const LARGE: &str = "MALLOC_MMAP_THRESHOLD_";
    if std::env::var_os(ARENAS).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let mut again = std::process::Command::new(program);
        again.args(std::env::args_os().skip(1)).env(ARENAS, "1");
        if std::env::var_os(LARGE).is_none() {
            again.env(LARGE, "131072");
        }
        let error = again.exec();
        // It only returns if it failed, and then all is well but for the memory.
        tracing::debug!(%error, "start anew with one arena");
    }
}

fn tell(config: &Config, command: &str) -> Result<(), Box<dyn std::error::Error>> {
    let Some(socket) = &config.control else {
        return Err(
            "[control] socket is empty: send SIGUSR1 to release and SIGUSR2 to resume; what explain \
                    says is at /status/pods/UID, too"
                .into(),
        );
    };
    print(&format!("{}\n", control::tell(socket, command)?))?;
    Ok(())
}

fn print(text: &str) -> std::io::Result<()> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads the first lines only has what it wanted.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[expect(clippy::print_stderr, reason = "the only place where a failed command speaks to its user")]
fn say_error(text: &str) {
    for line in text.lines() {
        eprintln!("warpmeter: {line}");
    }
}

/// Logs go to standard error; `WARPMETER_LOG` takes the filters of the `tracing` crates.
fn log(filter: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WARPMETER_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(filter));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}
