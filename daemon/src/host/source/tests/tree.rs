//! A proc root in a temporary directory, and a source over it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use warpmeter_core::fact::{Discard, Fact, Opened, Process};
use warpmeter_core::identity::{ContainerId, HostPid, PodUid, ProcessId, Scope};
use warpmeter_core::time::{MonoNs, SECOND};

use crate::host::clock::Clock;
use crate::host::{HostRoots, HostSource};

pub(super) const UID: &str = "0b2a7c1e-54f0-4a8e-9d3b-8f6f2f1f0a11";
pub(super) const ID: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
pub(super) const IN_UNIT: &str = "0::/system.slice/ollama.service\n";
pub(super) const IN_ROOT: &str = "0::/\n";
/// Ticks of a start long before [`NOW`], and of one just before it.
pub(super) const OLD: u64 = 90_000;
pub(super) const YOUNG: u64 = 99_900;
/// What all processes are called.
pub(super) const NAME: &str = "a (b) c";
/// Seconds since boot at which the tests begin.
pub(super) const NOW: u64 = 1000;

pub(super) fn in_pod() -> String {
    format!("0::/kubepods/burstable/pod{UID}/{ID}\n")
}

pub(super) fn pod() -> Scope {
    Scope::Pod { uid: PodUid::new(UID), container: Some(ContainerId::new(ID)) }
}

pub(super) fn unit() -> Scope {
    Scope::Unit("ollama.service".into())
}

pub(super) fn opened(control: bool, minors: &[u32]) -> Opened {
    Opened { control, minors: minors.to_vec(), uvm: false }
}

pub(super) fn id(pid: u32, ticks: u64) -> ProcessId {
    ProcessId { pid: HostPid(pid), start: MonoNs(ticks * 10_000_000) }
}

pub(super) fn process(pid: u32, ticks: u64, scope: Scope, opened: Opened) -> Fact {
    let Fact::Process(process) = closed_book(pid, ticks, scope) else { panic!("no process") };
    Fact::Process(Process { opened: Some(opened), ..process })
}

/// The same under another name.
pub(super) fn called(name: &str, fact: Fact) -> Fact {
    let Fact::Process(process) = fact else { panic!("no process") };
    Fact::Process(Process { name: Some(name.into()), ..process })
}

/// A process whose open files could not be read.
pub(super) fn closed_book(pid: u32, ticks: u64, scope: Scope) -> Fact {
    Fact::Process(Process { id: id(pid, ticks), scope, opened: None, mps: None, name: Some(NAME.into()) })
}

pub(super) fn gone(pid: u32, ticks: u64) -> Fact {
    Fact::Gone(id(pid, ticks))
}

pub(super) fn garbage(count: u64) -> Fact {
    Fact::Discarded { reason: Discard::Garbage, count }
}

/// The text of a `stat` file.
pub(super) fn stat(pid: u32, ticks: u64, state: char, flags: u64, threads: u64) -> String {
    format!(
        "{pid} ({NAME}) {state} 1 1 1 0 -1 {flags} 0 0 0 0 1 1 0 0 20 0 {threads} 0 {ticks} 1000 100 18446744073709551615 0\n"
    )
}

/// A proc root, a source over it, and the time.
pub(super) struct Tree {
    directory: TempDir,
    pub source: HostSource,
    seconds: u64,
}

impl Tree {
    pub(super) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let roots = HostRoots {
            proc: directory.path().join("proc"),
            dev: "/dev".into(),
            cgroup: directory.path().join("cgroup"),
        };
        fs::create_dir(&roots.proc).unwrap();
        let tree = Self { directory, source: HostSource::new(roots), seconds: NOW };
        // A root without any process is taken for none.
        tree.put(1, 0, "0::/init.scope\n");
        tree
    }

    pub(super) fn root(&self) -> PathBuf {
        self.directory.path().join("proc")
    }

    pub(super) fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.root().join(pid.to_string()).join(file)
    }

    /// Makes a process that runs and has no files, in the place of one that had its pid.
    pub(super) fn put(&self, pid: u32, ticks: u64, cgroup: &str) {
        // Beside the old one first, so that the inode is another.
        let new = self.root().join("new");
        fs::create_dir_all(new.join("fd")).unwrap();
        fs::write(new.join("stat"), stat(pid, ticks, 'S', 0, 1)).unwrap();
        fs::write(new.join("cgroup"), cgroup).unwrap();
        self.remove(pid);
        fs::rename(new, self.path(pid, "")).unwrap();
    }

    pub(super) fn write(&self, pid: u32, file: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(pid, file), content).unwrap();
    }

    pub(super) fn open(&self, pid: u32, number: u32, target: impl AsRef<Path>) {
        symlink(target, self.path(pid, "fd").join(number.to_string())).unwrap();
    }

    pub(super) fn remove(&self, pid: u32) {
        let path = self.path(pid, "");
        if path.exists() {
            fs::remove_dir_all(path).unwrap();
        }
    }

    fn clock(&self) -> Clock {
        Clock { now: MonoNs(self.seconds * SECOND), asleep: 0 }
    }

    /// A round now, and a second passes.
    pub(super) fn round(&mut self, wanted: &[u32]) -> Vec<Fact> {
        let wanted: Vec<_> = wanted.iter().copied().map(HostPid).collect();
        let mut out = Vec::new();
        self.source.round(self.clock(), &wanted, &mut out);
        self.seconds += 1;
        out
    }

    /// The facts of the rounds of `seconds` seconds.
    pub(super) fn rounds(&mut self, seconds: u64, wanted: &[u32]) -> Vec<Fact> {
        (0..seconds).flat_map(|_| self.round(wanted)).collect()
    }

    pub(super) fn look_up(&mut self, pids: &[u32]) -> Vec<Fact> {
        let pids: Vec<_> = pids.iter().copied().map(HostPid).collect();
        let mut out = Vec::new();
        self.source.look(self.clock(), &pids, &mut out);
        out
    }
}
