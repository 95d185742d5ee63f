//! Programs of known behaviour that occupy a simulated GPU.
//!
//! Each opens the driver library as any CUDA program does, behaves as its name says until its time is up or SIGTERM
//! comes, and can write its own account of it (`--report`).

mod data;
mod driver;
mod network;
mod programs;
mod report;
mod stop;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Programs of known behaviour that occupy a simulated GPU.
#[derive(Debug, Parser)]
#[command(name = "warpmeter-workload")]
struct Cli {
    #[command(subcommand)]
    program: Program,
}

/// What a program does.
#[derive(Debug, Subcommand)]
enum Program {
    /// Steps of kernels, each ended by a synchronisation.
    Trainer(Step),
    /// A trainer that waits for data before each step.
    Waiter(Waiter),
    /// A context, one kernel, then nothing.
    Notebook(Common),
    /// Bursts of kernels, one per request: from a timer, or from clients.
    Server(Server),
    /// Keeps the queue filled, for a share of each period.
    Hog(Hog),
    /// Never opens its GPU.
    Noop(Common),
    /// Holds a context and memory; launches nothing.
    Holder(Common),
    /// A context under the name of an MPS server; calls, and launches nothing.
    MpsServer(Common),
    /// Sends data to waiters that ask for it; uses no GPU.
    Feeder(Feeder),
    /// Waits as a waiter does and hands on through a named pipe, again and again; uses no GPU.
    Relay(Relay),
    /// Sends requests to a server; uses no GPU.
    Client(Client),
}

/// Options of every program.
#[derive(Clone, Debug, Args)]
struct Common {
    /// Driver library.
    #[arg(long, default_value = "libcuda.so.1")]
    library: PathBuf,
    /// Device ordinal.
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// Ends after this many seconds; 0 is never.
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
    /// Duration of a kernel.
    #[arg(long, default_value_t = 500.0)]
    kernel_us: f64,
    /// Percent of the SMs that a kernel takes.
    #[arg(long, default_value_t = 90.0)]
    sm: f64,
    /// Percent of the warps resident on them.
    #[arg(long, default_value_t = 50.0)]
    occ: f64,
    /// Percent of the memory bandwidth.
    #[arg(long, default_value_t = 30.0)]
    dram: f64,
    /// Percent of time with tensor pipes active.
    #[arg(long, default_value_t = 40.0)]
    tensor: f64,
    /// Threads of a kernel's block.
    #[arg(long, default_value_t = 256)]
    block: u32,
    /// Bytes of shared memory of a kernel's block.
    #[arg(long, default_value_t = 0)]
    shared: u32,
    /// Threads, each with a stream of its own.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Device memory to hold.
    #[arg(long, default_value_t = 0)]
    memory_mib: usize,
    /// Synchronisation sleeps.
    #[arg(long)]
    blocking_sync: bool,
    /// Writes the program's own account here at its end.
    #[arg(long)]
    report: Option<PathBuf>,
}

/// A step.
#[derive(Clone, Debug, Args)]
struct Step {
    #[command(flatten)]
    common: Common,
    /// Kernels in a step.
    #[arg(long, default_value_t = 20)]
    kernels: u32,
    /// Copied to the device before each step.
    #[arg(long, default_value_t = 0)]
    upload_kib: usize,
    /// Host work before each step.
    #[arg(long, default_value_t = 0)]
    host_us: u64,
    /// Host work between two launches.
    #[arg(long, default_value_t = 0)]
    gap_us: u64,
    /// Calms down after this many seconds: from then on a step has at least 20 ms of host work; 0 is never.
    #[arg(long, default_value_t = 0.0)]
    calm_after: f64,
    /// Writes a checkpoint after this many steps; 0 is never.
    #[arg(long, default_value_t = 0)]
    checkpoint_every: u64,
    /// Size of a checkpoint.
    #[arg(long, default_value_t = 64)]
    checkpoint_mib: usize,
    /// File of the checkpoint.
    #[arg(long, default_value = "checkpoint.bin")]
    checkpoint_file: PathBuf,
}

/// How a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// Sleeps.
    Sleep,
    /// Computes.
    Cpu,
    /// Reads a file past the page cache.
    Disk,
    /// Waits for another thread that computes.
    Lock,
    /// Asks a feeder, over a connection.
    Network,
    /// Reads a byte from a named pipe.
    Pipe,
}

/// A trainer that waits.
#[derive(Clone, Debug, Args)]
struct Waiter {
    #[command(flatten)]
    step: Step,
    #[command(flatten)]
    source: Source,
}

/// What comes before each step.
#[derive(Clone, Debug, Args)]
struct Source {
    /// How it waits.
    #[arg(long, value_enum, default_value = "sleep")]
    wait: Wait,
    /// How long it waits before each step.
    #[arg(long, default_value_t = 20_000)]
    wait_us: u64,
    /// File or named pipe to read.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Feeder to ask.
    #[arg(long, default_value = "127.0.0.1:7077")]
    connect: SocketAddr,
    /// Read before each step, from file or feeder.
    #[arg(long, default_value_t = 4096)]
    read_kib: usize,
}

/// Bursts.
#[derive(Clone, Debug, Args)]
struct Server {
    #[command(flatten)]
    common: Common,
    /// Kernels per request.
    #[arg(long, default_value_t = 10)]
    kernels: u32,
    /// Time from request to request.
    #[arg(long, default_value_t = 50)]
    period_ms: u64,
    /// Takes requests here instead of from a timer.
    #[arg(long)]
    listen: Option<SocketAddr>,
}

/// A source of data.
#[derive(Clone, Debug, Args)]
struct Feeder {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:7077")]
    listen: SocketAddr,
    /// Delay of each answer.
    #[arg(long, default_value_t = 20_000)]
    delay_us: u64,
    /// Ends after this many seconds; 0 is never.
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
}

/// A process that gets what others wait for.
#[derive(Clone, Debug, Args)]
struct Relay {
    #[command(flatten)]
    source: Source,
    /// Named pipe into which it puts a byte after each wait.
    #[arg(long)]
    to: PathBuf,
    /// Ends after this many seconds; 0 is never.
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
}

/// A source of requests.
#[derive(Clone, Debug, Args)]
struct Client {
    /// The server.
    #[arg(long)]
    connect: SocketAddr,
    /// Time from request to request.
    #[arg(long, default_value_t = 50)]
    period_ms: u64,
    /// Ends after this many seconds; 0 is never.
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
}

/// Constant load.
#[derive(Clone, Debug, Args)]
struct Hog {
    #[command(flatten)]
    common: Common,
    /// Share of each period with work queued.
    #[arg(long, default_value_t = 1.0)]
    duty: f64,
    /// Period.
    #[arg(long, default_value_t = 100)]
    period_ms: u64,
}

/// Runs the program that `arguments` name; the first of them is this program's own name.
///
/// Ends the process by itself where the arguments are not understood.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    match programs::run(&Cli::parse_from(arguments).program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            let cause = std::error::Error::source(&error).map_or(String::new(), |c| format!(": {c}"));
            // Nothing is left to do when standard error is closed.
            drop(writeln!(std::io::stderr(), "warpmeter-workload: {error}{cause}"));
            ExitCode::FAILURE
        }
    }
}
