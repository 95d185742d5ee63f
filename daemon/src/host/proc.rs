//! A proc root: which processes it shows, and what it says of one.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use warpmeter_core::fact::Mps;
use warpmeter_core::identity::Scope;

use super::cgroup::Membership;
use super::devices::{Devices, Scan};
use super::directory::{self, Unread};
use super::mps;
use super::stat::Stat;

/// Magic number of procfs.
const PROC_SUPER_MAGIC: i64 = 0x9fa0;
/// Longer than any `stat`.
const STAT: usize = 1024;
/// Longer than a cgroup file with the longest path in each of 15 hierarchies.
const CGROUP: usize = 64 * 1024;
/// Enough for the `Tgid` line of a `status` file, the fourth.
const STATUS: usize = 512;
/// The first PID namespace's inode, which the kernel fixes.
const INITIAL_NAMESPACE: &[u8] = b"pid:[4026531836]";

/// A process as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    /// Its pid.
    pub pid: u32,
    /// The inode of its directory, which the kernel makes anew for a new process: one that is unchanged tells that
    /// the pid was not reused (nearly: the kernel drops the old one as a courtesy), one that changed tells nothing.
    pub inode: u64,
}

/// What was read of a process's cgroups.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    /// The owner; none if the file says nothing.
    pub scope: Option<Scope>,
    /// Parts that did not parse.
    pub garbage: u64,
}

/// Why a process's `stat` gave nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoStat {
    /// It could not be read.
    Unread(Unread),
    /// It could not be understood.
    Garbage,
}

/// Whose processes a proc root shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All of the machine's, as far as can be told.
    Host,
    /// Those of a PID namespace below the host's.
    Namespace,
    /// Only this user's: `hidepid`.
    Own,
}

/// A proc root and what is needed to read it.
#[derive(Debug)]
pub(super) struct Proc {
    root: PathBuf,
    text: Vec<u8>,
    entries: Vec<MaybeUninit<u8>>,
}

impl Proc {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, text: vec![0; CGROUP], entries: vec![MaybeUninit::uninit(); 32 * 1024] }
    }

    /// Opens the root: anew each time, since it may be mounted over.
    pub(super) fn open(&self) -> Result<OwnedFd, Unread> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(CWD, &self.root, flags, Mode::empty())?)
    }

    /// Puts the processes that exist into `out`, in order of pid.
    pub(super) fn list(&mut self, root: &OwnedFd, out: &mut Vec<Listed>) -> Result<(), Unread> {
        out.clear();
        directory::entries(root, &mut self.entries, |name, inode| {
            let name = name.to_bytes();
            if name.iter().all(u8::is_ascii_digit)
                && let Some(pid) = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok())
            {
                out.push(Listed { pid, inode });
            }
            true
        })?;
        out.sort_unstable();
        Ok(())
    }

    /// Opens a process's directory. What is read through it is of that process, even if its pid is reused.
    pub(super) fn process(root: &OwnedFd, pid: u32) -> Result<OwnedFd, Unread> {
        directory::open(root, &pid.to_string())
    }

    /// The state of the process whose directory is `process`.
    pub(super) fn stat(&mut self, process: &OwnedFd) -> Result<Stat, NoStat> {
        self.stat_at(process, "stat")
    }

    /// The state of the process that has `pid` now.
    pub(super) fn stat_of(&mut self, root: &OwnedFd, pid: u32) -> Result<Stat, NoStat> {
        self.stat_at(root, &format!("{pid}/stat"))
    }

    fn stat_at(&mut self, at: &OwnedFd, name: &str) -> Result<Stat, NoStat> {
        let text = directory::read(at, name, &mut self.text[..STAT]).map_err(NoStat::Unread)?;
        Stat::parse(text).ok_or(NoStat::Garbage)
    }

    /// The owner of the process whose directory is `process`. A kernel without cgroups has no such file: without it,
    /// a process that proves to live is the host's.
    pub(super) fn cgroup(&mut self, process: &OwnedFd) -> Result<Cgroup, Unread> {
        match self.cgroup_at(process, "cgroup") {
            Err(Unread::Vanished) => Ok(Cgroup { scope: Some(Scope::Host), garbage: 0 }),
            read => read,
        }
    }

    /// The owner of the process that has `pid` now.
    pub(super) fn cgroup_of(&mut self, root: &OwnedFd, pid: u32) -> Result<Cgroup, Unread> {
        self.cgroup_at(root, &format!("{pid}/cgroup"))
    }

    fn cgroup_at(&mut self, at: &OwnedFd, name: &str) -> Result<Cgroup, Unread> {
        let text = directory::read(at, name, &mut self.text)?;
        let (whole, cut) = match (text.len() == CGROUP, text.iter().rposition(|&byte| byte == b'\n')) {
            (true, Some(end)) => (&text[..end], 1),
            (true, None) => (&text[..0], 1),
            (false, _) => (text, 0),
        };
        let Membership { scope, garbage } = Membership::parse(&String::from_utf8_lossy(whole));
        Ok(Cgroup { scope, garbage: garbage + cut })
    }

    /// Whether `pid` is a thread of another process: the root shows those too if asked by number.
    pub(super) fn is_thread(&mut self, process: &OwnedFd, pid: u32) -> bool {
        let Ok(status) = directory::read(process, "status", &mut self.text[..STATUS]) else { return false };
        String::from_utf8_lossy(status)
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse::<u32>().ok())
            .is_some_and(|leader| leader != pid)
    }

    /// The GPU device files that the process whose directory is `process` has open.
    pub(super) fn files(&mut self, process: &OwnedFd, devices: &Devices) -> Result<Scan, Unread> {
        devices.scan(process, &mut self.entries)
    }

    /// What the environment of the process whose directory is `process` says of it as a client of MPS, as far as the
    /// kernel shows it. It may hold secrets: nothing else of it is looked at.
    pub(super) fn client(&mut self, process: &OwnedFd) -> Option<Mps> {
        let found = directory::read(process, "environ", &mut self.text).ok().and_then(mps::client);
        self.text.fill(0);
        found
    }

    /// How many files the process that has `pid` now has open; none if the kernel (before Linux 6.2) does not say.
    pub(super) fn file_count(root: &OwnedFd, pid: u32) -> Option<usize> {
        let stat = rustix::fs::statat(root, format!("{pid}/fd"), AtFlags::empty()).ok()?;
        usize::try_from(stat.st_size).ok().filter(|&count| count > 0)
    }

    /// Whose processes the root shows, given what it listed.
    ///
    /// Only the host's PID namespace has kernel threads, the first of which is always pid 2; where they are hidden,
    /// this process's own namespace tells. A root that is not a procfs is taken at its word.
    pub(super) fn view(&mut self, root: &OwnedFd, listed: &[Listed]) -> View {
        if !rustix::fs::fstatfs(root).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC) {
            return View::Host;
        }
        let init = listed.iter().any(|listed| listed.pid == 1);
        match self.stat_of(root, 2) {
            Ok(stat) if stat.kernel => View::Host,
            Err(NoStat::Unread(Unread::Denied)) => View::Own,
            _ if !init => View::Own,
            _ => {
                let mut link = [0_u8; 64];
                let length = rustix::fs::readlinkat_raw(root, "self/ns/pid", &mut link[..]).unwrap_or(0);
                if link.get(..length) == Some(INITIAL_NAMESPACE) { View::Host } else { View::Namespace }
            }
        }
    }
}
