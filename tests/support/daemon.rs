//! The daemon as a process.

use std::ffi::OsStr;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::exposition::Exposition;
use crate::http::{self, Answer};
use crate::sim::{Sim, built};
use crate::{tool, wait};

/// The program that plays all parts.
pub fn program() -> PathBuf {
    built().parent().unwrap().join("node")
}

/// A `warpmeter` command on the simulated node.
pub fn command(sim: &Sim, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(program());
    command.arg("as-warpmeter").args(arguments).env("SIMGPU_STATE", sim.state()).stdin(Stdio::null());
    command
}

/// The same, run to its end.
pub fn run(sim: &Sim, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    command(sim, arguments).output().unwrap()
}

/// A running daemon. Dropped, it is killed.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    log: PathBuf,
}

impl Daemon {
    /// Starts one with a configuration that fits the node, followed by `more`.
    pub fn start(sim: &Sim, more: &str) -> Self {
        Self::start_with(sim, more, &[])
    }

    /// The same with further arguments.
    pub fn start_with(sim: &Sim, more: &str, arguments: &[&OsStr]) -> Self {
        let address = http::free_address();
        let config = sim.configure(address, more);
        let log = sim.path(&format!("daemon-{}.log", address.port()));
        let child = command(sim, [OsStr::new("run"), OsStr::new("--config"), config.as_os_str()])
            .args(arguments)
            .stderr(File::create(&log).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address, log }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The `nvidia` processes that it has.
    pub fn children(&self) -> Vec<u32> {
        tool::children(self.pid())
    }

    /// GETs `path`, if it is answered.
    pub fn ask(&self, path: &str) -> Option<Answer> {
        http::get(self.address, path, "").ok()
    }

    /// The metrics, once it serves them.
    pub fn scrape(&self) -> Exposition {
        self.until("metrics", |metrics| Some(metrics.clone()))
    }

    /// Scrapes until `look` sees something in the metrics, and gives that.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut(&Exposition) -> Option<T>) -> T {
        wait::until(what, || {
            let answer = self.ask("/metrics").filter(|answer| answer.status == 200)?;
            look(&Exposition::parse(answer.text()).unwrap())
        })
    }

    /// Scrapes until this is so, and gives the metrics in which it is.
    pub fn when(&self, what: &str, mut so: impl FnMut(&Exposition) -> bool) -> Exposition {
        self.until(what, |metrics| so(metrics).then(|| metrics.clone()))
    }

    /// Asks `/status` until this is so.
    pub fn until_status(&self, what: &str, mut so: impl FnMut(&Value) -> bool) -> Value {
        wait::until(what, || {
            let answer = self.ask("/status").filter(|answer| answer.status == 200)?;
            serde_json::from_slice(&answer.body).ok().filter(&mut so)
        })
    }

    /// Asks `/status` until what a source says of its health is so: its state and reason. Gives the reason.
    pub fn until_health(&self, source: &str, what: &str, so: impl Fn(&str, &str) -> bool) -> String {
        let of = |status: &Value| {
            let found = status["sources"].as_array()?.iter().find(|listed| listed["source"] == source)?;
            Some((found["health"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
        };
        let found = |status: &Value| of(status).is_some_and(|(health, reason)| so(&health, &reason));
        of(&self.until_status(what, found)).unwrap().1
    }

    /// Asks `/readyz` until it gives this status, and gives its text.
    pub fn until_ready_is(&self, status: u16, text: &str) -> String {
        wait::until(&format!("/readyz to give {status} with {text:?}"), || {
            let answer = self.ask("/readyz")?;
            (answer.status == status && answer.text().contains(text)).then(|| answer.text().to_owned())
        })
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Asks it to end; how it did, and how long that took.
    pub fn terminate(&mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        self.signal(Signal::TERM);
        let status = wait::until("the daemon to end", || self.child.try_wait().unwrap());
        (status, start.elapsed())
    }

    /// Kills it, and gives the processes that it had.
    pub fn kill(&mut self) -> Vec<u32> {
        let children = self.children();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        children
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the daemon's log\n{}---", self.log());
        }
        // It may have ended already.
        if self.child.kill().is_ok() {
            self.child.wait().unwrap();
        }
    }
}
