//! What is known of one process, and when it is worth another look.

use warpmeter_core::fact::{Fact, Mps, Opened, Process};
use warpmeter_core::identity::{PodUid, ProcessId, Scope};
use warpmeter_core::time::{MonoNs, SECOND};

use super::comm::Comm;
use super::devices::Scan;
use super::directory::Unread;
use super::path::is_workload;
use super::stat::{Life, Stat};

/// How long after its start a process is looked at in every round: runtimes start it first and place it then.
const YOUNG: u64 = 5 * SECOND;
/// How often a process is looked at after that.
const CHECK: u64 = 10 * SECOND;
/// How often the files of a process are looked at that is no workload and that the driver does not name.
const SWEEP: u64 = 60 * SECOND;
/// How long an unchanged number of open files is taken to mean that they are the same: of a workload, of others.
const TRUST: [u64; 2] = [SWEEP, 10 * SWEEP];
/// Multiplier that spreads neighbouring pids over a period: 2^64 ÷ the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What came of looking at a process's open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Files {
    /// They have not been looked at.
    Unseen,
    /// They have all been looked at.
    Seen,
    /// The kernel did not show them.
    Denied,
    /// There were too many.
    Cut,
}

/// What has been reported of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing.
    Nothing,
    /// That it exists, but something has changed since.
    Stale,
    /// All that is known.
    Current,
}

/// A process.
#[derive(Debug)]
pub(super) struct Known {
    /// The inode of its directory when it was last looked at.
    pub inode: u64,
    /// Whether the driver names it.
    pub wanted: bool,
    /// When its identity and cgroup are due for a look.
    pub check_at: MonoNs,
    /// When its files are.
    pub scan_at: MonoNs,
    /// What came of the last look at them.
    pub files: Files,
    /// How many files there were, all of which were looked at, and when.
    counted: Option<(usize, MonoNs)>,
    ticks: u64,
    id: ProcessId,
    kernel: bool,
    life: Life,
    scope: Scope,
    opened: Option<Opened>,
    mps: Option<Mps>,
    name: Comm,
    told: Told,
}

impl Known {
    /// A process that was just seen for the first time.
    pub(super) fn new(inode: u64, stat: Stat, id: ProcessId, scope: Scope, now: MonoNs) -> Self {
        let mut new = Self {
            inode,
            wanted: false,
            check_at: now,
            scan_at: now,
            files: Files::Unseen,
            counted: None,
            ticks: stat.ticks,
            id,
            kernel: stat.kernel,
            life: stat.life,
            scope,
            opened: None,
            mps: stat.server.then_some(Mps::Server),
            name: stat.name,
            told: Told::Nothing,
        };
        new.plan_check(now);
        if !new.concerns() {
            new.scan_at = new.turn(now, SWEEP);
        }
        new
    }

    /// Whether `stat` is of this process and not of another that has its pid now.
    pub(super) fn is(&self, stat: Stat) -> bool {
        self.ticks == stat.ticks
    }

    /// Whether it is a workload's, or used a device.
    pub(super) fn concerns(&self) -> bool {
        self.wanted || is_workload(&self.scope)
    }

    /// Whether it uses a device as far as can be told, so that its end must be seen in the round in which it ends.
    pub(super) fn uses_device(&self) -> bool {
        self.life != Life::Ended && (self.wanted || self.holds())
    }

    /// Which process it is.
    pub(super) fn id(&self) -> ProcessId {
        self.id
    }

    /// The pod whose it is, if it is a pod's.
    pub(super) fn pod(&self) -> Option<&PodUid> {
        if let Scope::Pod { uid, .. } = &self.scope { Some(uid) } else { None }
    }

    fn holds(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| *opened != Opened::default())
    }

    /// Whether it is of no interest and, if its scope is `scope`, stays so, whoever it is.
    pub(super) fn bores_in(&self, scope: &Scope) -> bool {
        !self.concerns() && !self.holds() && self.told == Told::Nothing && self.scope == *scope
    }

    /// Whether its files are due for a look.
    pub(super) fn scan_due(&self, now: MonoNs) -> bool {
        self.scan_at <= now && !self.kernel && self.life == Life::Running
    }

    /// The driver names it, which it did not before: everything about it is due.
    pub(super) fn want(&mut self, now: MonoNs) {
        if !self.wanted {
            self.wanted = true;
            self.check_at = now;
            self.scan_at = now;
            self.counted = None;
        }
    }

    /// Takes in its state; the fact that it has ended, if it has and it had been reported.
    pub(super) fn lives(&mut self, stat: Stat) -> Option<Fact> {
        self.life = stat.life;
        if stat.name != self.name {
            self.name = stat.name;
            self.changed();
        }
        if stat.server && self.mps != Some(Mps::Server) {
            // It is named so by the program that it has begun to run since.
            self.mps = Some(Mps::Server);
            self.changed();
        }
        if self.life == Life::Ended { self.end() } else { None }
    }

    /// The fact that it has ended, if it had been reported.
    pub(super) fn end(&mut self) -> Option<Fact> {
        let told = std::mem::replace(&mut self.told, Told::Nothing);
        (told != Told::Nothing).then_some(Fact::Gone(self.id))
    }

    /// Takes in the cgroup that was read before `stat` was.
    pub(super) fn is_in(&mut self, scope: Option<Scope>, now: MonoNs) {
        // Once it exits, cgroup v1 shows the root instead.
        if let Some(scope) = scope.filter(|scope| *scope != self.scope && self.life == Life::Running) {
            if is_workload(&scope) && !self.concerns() {
                self.scan_at = now;
            }
            self.scope = scope;
            self.changed();
        }
        self.plan_check(now);
    }

    /// Settles when its identity and cgroup are due next.
    pub(super) fn plan_check(&mut self, now: MonoNs) {
        let young = now.since(self.id.start) < YOUNG;
        self.check_at = if young { now } else { self.turn(now, CHECK) };
    }

    /// Takes in a look at its files, unless it had begun to close them.
    pub(super) fn has_open(&mut self, scan: Result<Scan, Unread>, now: MonoNs) {
        // If it has vanished, the next listing tells.
        if self.life == Life::Running && scan != Err(Unread::Vanished) {
            let count = scan.as_ref().ok().map(|scan| scan.files);
            let (files, opened) = match scan {
                Ok(Scan { opened, cut: false, .. }) => (Files::Seen, Some(opened)),
                // What was found is there, but if nothing was, that says nothing.
                Ok(Scan { opened, cut: true, .. }) => {
                    (Files::Cut, Some(opened).filter(|opened| *opened != Opened::default()))
                }
                Err(Unread::Denied) => (Files::Denied, None),
                Err(Unread::Vanished | Unread::Failed(_)) => (Files::Unseen, None),
            };
            self.files = files;
            self.counted = count.filter(|_| files == Files::Seen).map(|count| (count, now));
            if opened != self.opened {
                self.opened = opened;
                self.changed();
            }
        }
        self.plan_scan(now);
    }

    /// Takes in what its environment says of it as a client of MPS.
    pub(super) fn is_client(&mut self, mps: Option<Mps>) {
        if mps.is_some() && self.mps.is_none() {
            self.mps = mps;
            self.changed();
        }
    }

    /// Whether its files are the same as at the last look, given how many they are now.
    ///
    /// To open a GPU without a change in number it would have to close as many files at the same time.
    pub(super) fn has_still(&self, count: Option<usize>, now: MonoNs) -> bool {
        let trust = TRUST[usize::from(!self.concerns())];
        self.counted.is_some_and(|(last, at)| Some(last) == count && now.since(at) < trust)
    }

    /// Settles when its files are due next. A workload opens its device early or never: the longer it has not, the
    /// later.
    pub(super) fn plan_scan(&mut self, now: MonoNs) {
        let patience = now.since(self.id.start) / 8;
        self.scan_at = if !self.concerns() && !self.holds() {
            self.turn(now, SWEEP)
        } else if self.files == Files::Seen && !self.holds() && patience < CHECK {
            now.plus(patience.saturating_sub(YOUNG / 8))
        } else {
            self.turn(now, CHECK)
        };
    }

    fn changed(&mut self) {
        if self.told == Told::Current {
            self.told = Told::Stale;
        }
    }

    /// What is to be reported of it now, if anything is.
    pub(super) fn report(&mut self) -> Option<Fact> {
        let due = match self.told {
            Told::Current => false,
            Told::Stale => true,
            Told::Nothing => self.concerns() || self.holds(),
        };
        (due && self.life != Life::Ended).then(|| {
            self.told = Told::Current;
            let (scope, opened) = (self.scope.clone(), self.opened.clone());
            Fact::Process(Process { id: self.id, scope, opened, mps: self.mps, name: self.name.text() })
        })
    }

    /// The first instant after `now` that is this process's turn in a period, so that each round has its share.
    fn turn(&self, now: MonoNs, period: u64) -> MonoNs {
        let phase = u64::from(self.id.pid.0).wrapping_mul(SPREAD) % period;
        let since = now.plus(period - phase).0 % period;
        now.plus(period - since)
    }
}

#[cfg(test)]
mod tests;
