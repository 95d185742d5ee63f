//! Source processes: read line by line while they live, and ended without waiting for them; and what one uses itself.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, ExitStatus};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use warpmeter_core::fact::Own;
use warpmeter_core::time::SECOND;

/// The longest line that is taken from a process, in bytes.
const LONGEST_LINE: u64 = 4 << 20;

/// The lines that a process writes, until its pipe ends or has no reader any more. The thread that reads them ends
/// with the pipe: an abandoned process keeps it until it is gone.
pub(crate) fn lines(name: &str, pipe: ChildStdout) -> std::io::Result<Receiver<Vec<u8>>> {
    let (sender, lines) = sync_channel(256);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            match pipe.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                Ok(1..) if sender.send(line.clone()).is_ok() => {}
                _ => break,
            }
        }
    })?;
    Ok(lines)
}

/// Processes that were killed and may not be gone yet: one in an uninterruptible call dies when that returns.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    children: Vec<Child>,
}

impl Abandoned {
    /// Kills a process without waiting for it.
    pub(crate) fn kill(&mut self, mut child: Child) {
        if let Err(error) = child.kill() {
            tracing::debug!(%error, pid = child.id(), "kill a source process");
        }
        self.children.push(child);
        self.reap();
    }

    /// Takes notice of those that are gone.
    pub(crate) fn reap(&mut self) {
        self.children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
    }

    /// Whether all are gone.
    pub(crate) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        // A last chance for those that were killed just now, so that no zombie is left.
        for child in &mut self.children {
            wait_briefly(child);
        }
    }
}

/// How a process ended, if it does within a fifth of a second.
pub(crate) fn wait_briefly(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..20 {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// How a process ended, in words that follow its name.
pub(crate) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code}"),
        (None, None) => "ended".into(),
    }
}

/// What this process has used since its start.
pub(crate) fn own_use() -> Option<Own> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu = u64::try_from(time.tv_sec).ok()? * SECOND + u64::try_from(time.tv_nsec).ok()?;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some(Own { cpu, resident: pages * page })
}
