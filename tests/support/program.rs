//! Programs that occupy a simulated GPU.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon;
use crate::sim::Sim;
use crate::wait;

/// A running program. Dropped, it is killed.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// Its process.
    pub pid: u32,
}

impl Program {
    /// Starts a workload's program on `device` (`GPU-…`, `MIG-…`), in a cgroup if one is given.
    pub fn start(sim: &Sim, device: &str, cgroup: Option<&Path>, words: &str) -> Self {
        Self::start_with(sim, device, cgroup, words, &[])
    }

    /// The same with more in its environment.
    pub fn start_with(
        sim: &Sim,
        device: &str,
        cgroup: Option<&Path>,
        words: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        Self::spawn(Self::command(sim, device, cgroup, words).envs(environment.iter().copied()))
    }

    /// The command of such a program.
    pub fn command(sim: &Sim, device: &str, cgroup: Option<&Path>, words: &str) -> Command {
        let mut command = Command::new(daemon::program());
        command
            .arg("as-workload")
            .arg(cgroup.unwrap_or(Path::new("-")))
            .args(words.split_whitespace())
            .arg("--library")
            .arg(sim.libraries().join("libcuda.so.1"))
            .arg("--blocking-sync")
            .env("SIMGPU_STATE", sim.state())
            .env("CUDA_VISIBLE_DEVICES", device)
            .stdin(Stdio::null());
        command
    }

    /// Starts a command.
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.spawn().unwrap();
        Self { pid: child.id(), child }
    }

    /// Starts one that uses no GPU.
    pub fn start_without(words: &str) -> Self {
        Self::start_beside(Path::new("-"), words)
    }

    /// Starts one that uses no GPU, in a cgroup.
    pub fn start_beside(cgroup: &Path, words: &str) -> Self {
        let mut command = Command::new(daemon::program());
        command.arg("as-workload").arg(cgroup).args(words.split_whitespace()).stdin(Stdio::null());
        Self::spawn(&mut command)
    }

    /// Whether it has ended, if it has.
    pub fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it ends by itself.
    pub fn finish(&mut self) {
        let status = wait::until("a program to end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits.
    pub fn end(&mut self) {
        kill_process(Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap(), Signal::TERM).unwrap();
        self.finish();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        if self.child.kill().is_ok() {
            self.child.wait().unwrap();
        }
    }
}
