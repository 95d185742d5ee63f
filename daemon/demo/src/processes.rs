//! The demo's processes: this program in other parts.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// First argument of the process that is the daemon.
pub(crate) const DAEMON: &str = "as-warpmeter";
/// First argument of the processes that are workloads.
pub(crate) const WORKLOAD: &str = "as-workload";

/// The body of the daemon.
pub(crate) fn daemon() -> ExitCode {
    end_with_parent();
    warpmeter::cli::main_as(&[DAEMON])
}

/// The body of a workload: `as-workload CGROUP_PROCS|- PROGRAM OPTIONS…`.
pub(crate) fn workload(mut arguments: Vec<OsString>) -> ExitCode {
    end_with_parent();
    if arguments.len() < 4 {
        return ExitCode::FAILURE;
    }
    let cgroup = arguments.remove(2);
    arguments.remove(1);
    // Before the device is opened, as a container runtime does. 0 stands for the writing process.
    if cgroup != "-" && std::fs::write(&cgroup, "0").is_err() {
        return ExitCode::FAILURE;
    }
    warpmeter_workload::main(arguments)
}

/// A demo that is killed leaves no process behind.
fn end_with_parent() {
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        // Then they end with the demo's own signals, as long as it lives to send them.
    }
}

/// A child process. Dropped, it is ended.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts this program in another part, in a process group of its own: Ctrl-C is the demo's to handle.
    pub(crate) fn start(arguments: &[OsString], adapt: impl FnOnce(&mut Command)) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        adapt(&mut command);
        Ok(Self { child: command.spawn()? })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, and makes it end after a while.
    pub(crate) fn end(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if self.ended() || pid.is_none_or(|pid| kill_process(pid, Signal::TERM).is_err()) {
            return;
        }
        for _ in 0..150 {
            if self.ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Ended it is, one way or the other; a zombie is reaped when the demo itself ends.
        if self.child.kill().is_ok() {
            self.ended();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
