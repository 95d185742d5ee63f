//! Reads processes of a proc root in the order in which the parts can be believed, and counts what does not parse.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use warpmeter_core::fact::{Discard, Fact};
use warpmeter_core::identity::Scope;

use super::devices::{Devices, Scan};
use super::directory::Unread;
use super::proc::{NoStat, Proc};
use super::source::HostRoots;
use super::stat::Stat;

/// What became of a process that was to be read.
pub(super) enum Read {
    /// It lives, or is a zombie. No scope if that could not be told.
    Process { stat: Stat, scope: Option<Scope> },
    /// It does not exist any more.
    Vanished,
    /// It exists, but what it is cannot be told now.
    Unknown,
}

/// A proc root, and what of it has not been readable.
#[derive(Debug)]
pub(super) struct Reader {
    /// The root.
    pub proc: Proc,
    devices: Devices,
    /// Processes of which a file does not parse.
    spoilt: BTreeSet<u32>,
    garbage: u64,
    unseen: usize,
}

impl Reader {
    pub(super) fn new(roots: &HostRoots) -> Self {
        Self {
            proc: Proc::new(roots.proc.clone()),
            devices: Devices::new(&roots.dev),
            spoilt: BTreeSet::new(),
            garbage: 0,
            unseen: 0,
        }
    }

    /// Reads who has a pid now.
    pub(super) fn read(&mut self, root: &OwnedFd, pid: u32) -> Read {
        let process = match Proc::process(root, pid) {
            Ok(process) => process,
            Err(error) => return self.unread(pid, NoStat::Unread(error)),
        };
        // The cgroup first: if the process runs afterwards, it ran when that was read.
        let cgroup = self.proc.cgroup(&process);
        let stat = match self.proc.stat(&process) {
            Ok(stat) => stat,
            Err(error) => return self.unread(pid, error),
        };
        let scope = match cgroup {
            Ok(cgroup) => {
                match cgroup.garbage.max(u64::from(cgroup.scope.is_none())) {
                    0 => self.sound(pid),
                    count => self.spoilt(pid, "cgroup", count),
                }
                cgroup.scope
            }
            Err(error) => {
                self.failed(pid, NoStat::Unread(error));
                None
            }
        };
        Read::Process { stat, scope }
    }

    /// Reads the owner of who has a pid now, if there is nothing odd about it.
    pub(super) fn scope(&mut self, root: &OwnedFd, pid: u32) -> Option<Scope> {
        let cgroup = self.proc.cgroup_of(root, pid).ok().filter(|cgroup| cgroup.garbage == 0)?;
        self.sound(pid);
        cgroup.scope
    }

    /// Reads the open files of a process, and then its state: if it runs, it had not begun to close them.
    pub(super) fn files(&mut self, process: &OwnedFd) -> (Result<Scan, Unread>, Result<Stat, NoStat>) {
        (self.proc.files(process, &self.devices), self.proc.stat(process))
    }

    fn unread(&mut self, pid: u32, error: NoStat) -> Read {
        self.failed(pid, error);
        if error == NoStat::Unread(Unread::Vanished) { Read::Vanished } else { Read::Unknown }
    }

    /// Counts a process that could not be read.
    pub(super) fn failed(&mut self, pid: u32, error: NoStat) {
        match error {
            NoStat::Unread(Unread::Vanished) => {}
            NoStat::Unread(Unread::Denied | Unread::Failed(_)) => self.unseen += 1,
            NoStat::Garbage => self.spoilt(pid, "stat", 1),
        }
    }

    /// Counts `count` values that did not parse, and says so when the first process has such.
    fn spoilt(&mut self, pid: u32, file: &'static str, count: u64) {
        self.garbage += count;
        if self.spoilt.is_empty() {
            tracing::warn!(
                pid,
                file,
                "a file of a process does not parse; such values are left out and counted"
            );
        }
        self.spoilt.insert(pid);
    }

    /// Notes that a process's files parse.
    fn sound(&mut self, pid: u32) {
        if self.spoilt.remove(&pid) && self.spoilt.is_empty() {
            tracing::info!("all files of processes parse again");
        }
    }

    /// Forgets the processes that are `gone`.
    pub(super) fn forget(&mut self, gone: impl Fn(u32) -> bool) {
        let gone: Vec<_> = self.spoilt.iter().copied().filter(|&pid| gone(pid)).collect();
        for pid in gone {
            self.sound(pid);
        }
    }

    /// The fact that values did not parse since the last call, if any did not.
    pub(super) fn garbage(&mut self) -> Option<Fact> {
        let count = std::mem::take(&mut self.garbage);
        (count > 0).then_some(Fact::Discarded { reason: Discard::Garbage, count })
    }

    /// How many reads were refused since the last call.
    pub(super) fn take_unseen(&mut self) -> usize {
        std::mem::take(&mut self.unseen)
    }
}
