//! The processes of a host, round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use warpmeter_core::fact::{Fact, Health, Opened};
use warpmeter_core::identity::{HostPid, PodUid, ProcessId};
use warpmeter_core::time::{MonoNs, SECOND};

use super::clock::Clock;
use super::health::Missing;
use super::known::{Files, Known};
use super::path::is_workload;
use super::pressure::Pressures;
use super::proc::{Listed, Proc};
use super::reader::{Read, Reader};
use super::stat::Life;

/// Open files that are looked at in a round; those of processes that have waited longest come first.
const FILES_PER_ROUND: usize = 2048;
/// How long the driver must go on naming a process that the root has never shown before it counts as one that lives
/// and cannot be seen: it is slow to forget those that have ended, many of them before anybody looked.
const ABSENT: u64 = 10 * SECOND;

/// Where the host's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoots {
    /// A procfs that shows the host's PID namespace.
    pub proc: PathBuf,
    /// The directory of GPU device files, as the processes that open them see it: `/dev`, wherever the host's is
    /// mounted here.
    pub dev: PathBuf,
    /// The directory of the host's cgroup hierarchies, or the unified one itself. Pods that are not found below it have
    /// no pressure.
    pub cgroup: PathBuf,
}

impl Default for HostRoots {
    fn default() -> Self {
        Self { proc: "/proc".into(), dev: "/dev".into(), cgroup: "/sys/fs/cgroup".into() }
    }
}

/// Finds the processes that can matter to a GPU, and whose they are.
///
/// Reported are processes of pods, containers and Slurm jobs, and others once the driver names them or they are seen
/// to have a GPU device file open; again when their owner, name or device files change, until they have ended.
#[derive(Debug)]
pub struct HostSource {
    roots: HostRoots,
    reader: Reader,
    known: BTreeMap<u32, Known>,
    listed: Vec<Listed>,
    wanted: BTreeSet<u32>,
    /// Those of `wanted` that the root has shown since the driver names them.
    seen: BTreeSet<u32>,
    /// Those of `wanted` that it has not, and since when.
    absent: BTreeMap<u32, MonoNs>,
    missing: Missing,
    pressures: Pressures,
}

/// What of a process is to be looked at.
enum Due {
    /// All that there is: it is new, or another.
    All,
    /// Its cgroup and state.
    Check,
    /// Whether it has ended.
    State,
    /// Nothing.
    Nothing,
}

impl HostSource {
    /// A source that has seen nothing yet. Opens nothing.
    pub fn new(roots: HostRoots) -> Self {
        Self {
            reader: Reader::new(&roots),
            pressures: Pressures::new(roots.cgroup.clone()),
            roots,
            known: BTreeMap::new(),
            listed: Vec::new(),
            wanted: BTreeSet::new(),
            seen: BTreeSet::new(),
            absent: BTreeMap::new(),
            missing: Missing::default(),
        }
    }

    /// Looks at all processes once, with the pids that the driver names at present, and appends what is new.
    ///
    /// A root that cannot be read appends nothing: what was known stays so, and [`Self::health`] says why.
    pub fn poll(&mut self, wanted: &[HostPid], out: &mut Vec<Fact>) {
        self.round(Clock::read(), wanted, out);
    }

    /// Looks at the processes that have `pids` now, before they may end, and appends what is new of them.
    ///
    /// Takes them as named by the driver until the next [`Self::poll`]. Pids that no process has are passed over.
    pub fn look_up(&mut self, pids: &[HostPid], out: &mut Vec<Fact>) {
        self.look(Clock::read(), pids, out);
    }

    /// The processes that use a device now, as far as can be told.
    pub fn users(&self) -> Vec<ProcessId> {
        self.known.values().filter(|known| known.uses_device()).map(Known::id).collect()
    }

    /// How well the last round went.
    pub fn health(&self) -> Health {
        self.missing.health(&self.roots.proc)
    }

    fn round(&mut self, clock: Clock, wanted: &[HostPid], out: &mut Vec<Fact>) {
        let mut listed = std::mem::take(&mut self.listed);
        match self.list(&mut listed) {
            Ok(root) => {
                self.missing.all = None;
                self.wanted = wanted.iter().map(|pid| pid.0).collect();
                self.drop_unlisted(&listed, out);
                for &process in &listed {
                    self.visit(&root, clock, process, out);
                }
                self.scan_due(&root, clock, out);
                self.report(out);
                self.pressures.poll(&self.pods(), clock.now, out);
                self.take_stock(&root, clock, &listed);
            }
            Err(reason) => self.missing.all = Some(reason),
        }
        self.listed = listed;
    }

    fn list(&mut self, listed: &mut Vec<Listed>) -> Result<OwnedFd, String> {
        let path = self.roots.proc.display();
        let root = self.reader.proc.open().map_err(|error| format!("cannot open {path}: {error}"))?;
        self.reader.proc.list(&root, listed).map_err(|error| format!("cannot list {path}: {error}"))?;
        // Not even this process: nothing is mounted there, which is not the end of all processes.
        if listed.is_empty() { Err(format!("no process in {path}: is it a procfs?")) } else { Ok(root) }
    }

    fn drop_unlisted(&mut self, listed: &[Listed], out: &mut Vec<Fact>) {
        self.known.retain(|&pid, known| {
            let stays = shows(listed, pid);
            if !stays {
                out.extend(known.end());
            }
            stays
        });
        self.reader.forget(|pid| !shows(listed, pid));
    }

    /// Looks at one process as far as it is due.
    fn visit(&mut self, root: &OwnedFd, clock: Clock, Listed { pid, inode }: Listed, out: &mut Vec<Fact>) {
        let wanted = self.wanted.contains(&pid);
        let due = match self.known.get_mut(&pid) {
            None => Due::All,
            Some(known) => {
                if wanted {
                    known.want(clock.now);
                } else {
                    known.wanted = false;
                }
                match known {
                    known if known.inode != inode => Due::All,
                    known if known.check_at <= clock.now => Due::Check,
                    known if known.uses_device() => Due::State,
                    _ => Due::Nothing,
                }
            }
        };
        let settled = match due {
            Due::All => false,
            Due::Check => self.check(root, clock, pid, out),
            Due::State => self.still_lives(root, pid, out),
            Due::Nothing => true,
        };
        if !settled {
            self.identify(root, clock, Listed { pid, inode }, out);
        }
    }

    /// Looks whether the process that is known to have `pid` is where it was; false if there is more to it.
    fn check(&mut self, root: &OwnedFd, clock: Clock, pid: u32, out: &mut Vec<Fact>) -> bool {
        let Some(scope) = self.reader.scope(root, pid) else { return false };
        if let Some(known) = self.known.get_mut(&pid).filter(|known| known.bores_in(&scope)) {
            known.plan_check(clock.now);
            return true;
        }
        // If it is still the same process, it was when its cgroup was read.
        let same = self.still_lives(root, pid, out);
        if let Some(known) = self.known.get_mut(&pid).filter(|_| same) {
            known.is_in(Some(scope), clock.now);
        }
        same
    }

    /// Looks whether the process that is known to have `pid` still has it; false if another has, or that is not clear.
    fn still_lives(&mut self, root: &OwnedFd, pid: u32, out: &mut Vec<Fact>) -> bool {
        let Ok(stat) = self.reader.proc.stat_of(root, pid) else { return false };
        let Some(known) = self.known.get_mut(&pid).filter(|known| known.is(stat)) else { return false };
        out.extend(known.lives(stat));
        true
    }

    /// Reads who has a pid now and takes it in.
    fn identify(&mut self, root: &OwnedFd, clock: Clock, Listed { pid, inode }: Listed, out: &mut Vec<Fact>) {
        let (stat, scope) = match self.reader.read(root, pid) {
            Read::Process { stat, scope } => (stat, scope),
            Read::Unknown => return,
            Read::Vanished => {
                out.extend(self.known.remove(&pid).and_then(|mut known| known.end()));
                return;
            }
        };
        if let Some(known) = self.known.get_mut(&pid) {
            if known.is(stat) {
                known.inode = inode;
                out.extend(known.lives(stat));
                known.is_in(scope, clock.now);
                return;
            }
            out.extend(known.end());
            self.known.remove(&pid);
        }
        let scope = match scope {
            // What an exiting process shows is its cgroup only if it is somebody's.
            Some(scope) if stat.life != Life::Leaving || is_workload(&scope) => scope,
            _ => return,
        };
        let id = ProcessId { pid: HostPid(pid), start: clock.started(stat.ticks) };
        let mut known = Known::new(inode, stat, id, scope, clock.now);
        if self.wanted.contains(&pid) {
            known.want(clock.now);
        }
        self.known.insert(pid, known);
    }

    /// Looks at the files of processes that are due, as many as a round may.
    fn scan_due(&mut self, root: &OwnedFd, clock: Clock, out: &mut Vec<Fact>) {
        let due = self.known.iter().filter(|(_, known)| known.scan_due(clock.now));
        let mut due: Vec<_> = due.map(|(&pid, known)| (!known.wanted, known.scan_at, pid)).collect();
        due.sort_unstable();
        let mut left = FILES_PER_ROUND;
        for (_, _, pid) in due {
            if left == 0 {
                break;
            }
            let still = |known: &Known| known.has_still(Proc::file_count(root, pid), clock.now);
            if let Some(known) = self.known.get_mut(&pid).filter(|known| still(known)) {
                known.plan_scan(clock.now);
            } else {
                left = left.saturating_sub(self.scan(root, clock, pid, out));
            }
        }
    }

    /// Looks at the files of the process that is known to have `pid`; how many they were.
    fn scan(&mut self, root: &OwnedFd, clock: Clock, pid: u32, out: &mut Vec<Fact>) -> usize {
        let Ok(process) = Proc::process(root, pid) else { return 0 };
        let (scan, stat) = self.reader.files(&process);
        let count = scan.as_ref().map_or(0, |scan| scan.files);
        let opened = scan.as_ref().is_ok_and(|scan| scan.opened != Opened::default());
        let mps = if opened { self.reader.proc.client(&process) } else { None };
        match (stat, self.known.get_mut(&pid)) {
            (Ok(stat), Some(known)) if known.is(stat) => {
                out.extend(known.lives(stat));
                known.is_client(mps);
                known.has_open(scan, clock.now);
            }
            // Another has the pid now, which the next listing tells.
            (Ok(_), Some(known)) => known.check_at = clock.now,
            (Ok(_), None) => {}
            (Err(error), _) => self.reader.failed(pid, error),
        }
        count
    }

    fn report(&mut self, out: &mut Vec<Fact>) {
        out.extend(self.known.values_mut().filter_map(Known::report));
        out.extend(self.reader.garbage());
    }

    /// Pods of which a process uses a device.
    fn pods(&self) -> BTreeSet<PodUid> {
        let users = self.known.values().filter(|known| known.uses_device());
        users.filter_map(Known::pod).cloned().collect()
    }

    /// Notes what this round could not see.
    fn take_stock(&mut self, root: &OwnedFd, clock: Clock, listed: &[Listed]) {
        if self.missing.view.is_none() {
            self.missing.view = Some(self.reader.proc.view(root, listed));
        }
        self.missing.processes = self.reader.take_unseen();
        self.seen.retain(|pid| self.wanted.contains(pid));
        self.seen.extend(self.wanted.iter().filter(|&&pid| shows(listed, pid)));
        let before = std::mem::take(&mut self.absent);
        let absent = self.wanted.difference(&self.seen);
        self.absent = absent.map(|&pid| (pid, before.get(&pid).copied().unwrap_or(clock.now))).collect();
        self.missing.absent = self.absent.values().filter(|&&since| clock.now.since(since) >= ABSENT).count();
        let concerning = || self.known.values().filter(|known| known.concerns());
        self.missing.files = concerning().filter(|known| known.files == Files::Denied).count();
        self.missing.cut = concerning().filter(|known| known.files == Files::Cut).count();
    }

    fn look(&mut self, clock: Clock, pids: &[HostPid], out: &mut Vec<Fact>) {
        // Whether the root can be read is for a round to say.
        let Ok(root) = self.reader.proc.open() else { return };
        for &HostPid(pid) in pids {
            let thread = |process| self.reader.proc.is_thread(&process, pid);
            if !self.known.contains_key(&pid) && Proc::process(&root, pid).is_ok_and(thread) {
                self.seen.insert(pid);
                continue;
            }
            self.wanted.insert(pid);
            // The inode is left to the next listing, which has it for nothing.
            self.identify(&root, clock, Listed { pid, inode: 0 }, out);
            if let Some(known) = self.known.get_mut(&pid) {
                self.seen.insert(pid);
                known.want(clock.now);
                if known.scan_due(clock.now) {
                    self.scan(&root, clock, pid, out);
                }
            }
            out.extend(self.known.get_mut(&pid).and_then(Known::report));
        }
        out.extend(self.reader.garbage());
    }
}

/// Whether `listed`, in order of pid, shows `pid`.
fn shows(listed: &[Listed], pid: u32) -> bool {
    listed.binary_search_by_key(&pid, |listed| listed.pid).is_ok()
}

#[cfg(test)]
mod tests;
