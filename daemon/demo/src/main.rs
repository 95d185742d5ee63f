//! A simulated GPU node in one command, watched by the real daemon.
//!
//! Three simulated GPUs (one whole, one MIG-split, one time-sliced), programs of known behaviour in cgroups like
//! those of pods, the real daemon on them, a live summary, and at the end a comparison with the simulator's own
//! log of who kept which device busy.

mod cast;
mod cgroup;
mod exposition;
mod node;
mod oracle;
mod processes;
mod show;
mod summary;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// A simulated GPU node, watched by the real daemon.
#[derive(Debug, Parser)]
#[command(name = "warpmeter-demo")]
struct Cli {
    /// How long to show it.
    #[arg(long, default_value = "30s", value_parser = duration)]
    duration: Duration,
    /// Where the daemon's endpoints listen.
    #[arg(long, default_value = "127.0.0.1:9408")]
    listen: SocketAddr,
    /// Keep the recording of the run in this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    record: Option<std::path::PathBuf>,
}

/// Long enough for a few windows.
fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration < Duration::from_secs(10) { Err("the demo needs at least 10s".into()) } else { Ok(duration) }
}

fn main() -> ExitCode {
    // One binary plays all parts, so that one command builds and runs everything.
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments.get(1).and_then(|argument| argument.to_str()) {
        Some(processes::DAEMON) => return processes::daemon(),
        Some(processes::WORKLOAD) => return processes::workload(arguments),
        _ => {}
    }
    let cli = Cli::parse();
    match show::show(&show::Wishes { duration: cli.duration, listen: cli.listen, record: cli.record }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the only place where a failed demo speaks to its user")]
fn complain(error: &str) {
    eprintln!("warpmeter-demo: {error}");
}
