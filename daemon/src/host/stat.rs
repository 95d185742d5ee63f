//! The text of `/proc/PID/stat`: what identifies a process, and whether it still runs.

use super::comm::Comm;
use super::mps::is_server;

/// Flag of kernel threads (`PF_KTHREAD`): they have no memory, files or cgroup of their own.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Flag of a task that has begun to exit (`PF_EXITING`).
const EXITING: u64 = 0x4;

/// What is needed of a process's `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// When it started, in clock ticks since boot, time asleep included.
    pub ticks: u64,
    /// Whether it is a thread of the kernel.
    pub kernel: bool,
    /// What it is called.
    pub name: Comm,
    /// Whether it is an MPS server by its name.
    pub server: bool,
    /// How far it is from its end.
    pub life: Life,
}

/// How far a process is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It runs.
    Running,
    /// Its first thread is exiting or has exited, and with it what `/proc` shows as the process's files and, under
    /// cgroup v1, its cgroup. Devices may still be held, by its other threads or until they are closed.
    Leaving,
    /// All of it has exited. A zombie keeps its pid until its parent takes notice, but it has released its memory
    /// and files, and with them every device: nothing can be its doing any more.
    Ended,
}

impl Stat {
    /// Parses `text`; nothing if it is not the whole text of a `stat` file.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        // The name stands in parentheses and may itself contain parentheses, spaces and line ends.
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let pid = std::str::from_utf8(text.get(..open)?).ok()?.trim();
        pid.parse::<u32>().ok()?;
        let rest = std::str::from_utf8(text.get(close..)?.get(1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let flags: u64 = fields.nth(5)?.parse().ok()?;
        let threads: u64 = fields.nth(10)?.parse().ok()?;
        let ticks = fields.nth(1)?.parse().ok()?;
        // Were the start time the last field, it might have been cut off and be another number.
        fields.next()?;
        let exited = matches!(state, "Z" | "X" | "x");
        let life = match (exited, threads > 1) {
            (true, false) => Life::Ended,
            (true, true) => Life::Leaving,
            (false, _) if flags & EXITING != 0 => Life::Leaving,
            (false, _) => Life::Running,
        };
        let name = text.get(open + 1..close)?;
        Some(Self {
            ticks,
            kernel: flags & KERNEL_THREAD != 0,
            name: Comm::new(name),
            server: is_server(name),
            life,
        })
    }
}

#[cfg(test)]
mod tests;
