//! Who may have used a device in a stretch: those whom the driver lists, and beside an MPS server those who asked for
//! something. If somebody may have used it unseen, nobody else is given all of its use.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Fold;
use super::close::pids;
use super::probes::is_on;
use crate::allocate::{Gpus, Held, resolve};
use crate::attribute::Participants;
use crate::fact::{DeviceRef, Mps, Opened, Part, Process};
use crate::identity::{DeviceId, HostPid, Owner, Scope};
use crate::time::Interval;
use crate::window::Window;

/// What a process is that has the name of an MPS server, which any process can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guise {
    /// A server: what the driver counts as its work is its clients'.
    Server,
    /// A server, or one that works under its name: nobody saw what it asks for.
    Unclear,
    /// One that has asked for work itself, and whether it launched any in the stretch.
    Worker {
        /// Whether it did.
        now: bool,
    },
}

/// A device in a piece of a window, before anything is known of who used it.
struct Stage<'a> {
    window: &'a Window,
    piece: Interval,
    device: &'a DeviceId,
    held: Option<&'a Held>,
    listed: BTreeSet<HostPid>,
    gpus: Gpus,
}

/// The owners of processes that may be on a device; none: of one that nobody knows.
type Perhaps = BTreeSet<Option<Owner>>;

/// Whether a process is on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Yes,
    Perhaps,
    No,
}

impl Fold {
    pub(super) fn participants(
        &self,
        window: &Window,
        part: &Part,
        piece: Interval,
        device: &DeviceId,
        held: Option<&Held>,
    ) -> Participants {
        debug_assert_eq!(part.mig, device.mig, "a part is its device's");
        let listed = pids(window, part);
        let gpus = [(device.gpu.clone(), Arc::clone(&window.gpu))].into();
        let stage = Stage { window, piece, device, held, listed, gpus };
        let mut who = Participants::default();
        for pid in &stage.listed {
            let Some(process) = self.roster.find(*pid, window.during) else {
                who.strangers = true;
                continue;
            };
            let guise = self.guise(process, piece);
            who.served |= !matches!(guise, None | Some(Guise::Worker { now: true }));
            who.unseen |= guise == Some(Guise::Unclear);
            if matches!(guise, None | Some(Guise::Worker { .. })) {
                who.owners.insert(self.owner(process, held));
            }
        }
        if who.served {
            // The clients are those who asked for something here. Unless they were watched, nobody knows them.
            who.strangers |= self.snapshots.watched(piece) < piece.nanos() / 2;
            self.add_clients(&stage, &mut who);
        }
        who
    }

    /// What a process is if it has the name of an MPS server; nothing if it has not.
    ///
    /// One of a workload is believed only where its calls are watched and ask for nothing. One of the node's own is
    /// believed until it asks: no pod can start one there.
    pub(super) fn guise(&self, process: &Process, piece: Interval) -> Option<Guise> {
        if process.mps != Some(Mps::Server) {
            return None;
        }
        let is = |pid: HostPid| pid == process.id.pid;
        let (mut watched, mut unseen, mut asked, mut launched) = (false, false, false, false);
        for (probes, _) in self.snapshots.of(piece) {
            for calls in probes.calls.iter().filter(|calls| is(calls.process.pid)) {
                watched = true;
                unseen |= calls.is_unseen();
                asked |= calls.enqueued > 0;
                launched |= calls.asked.launches > 0 || calls.asked.graph_launches > 0;
            }
            for user in probes.users.iter().filter(|user| is(user.process.pid)) {
                watched |= user.watched;
                unseen |= !user.watched;
            }
        }
        Some(if launched {
            Guise::Worker { now: true }
        } else if unseen {
            Guise::Unclear
        } else if asked {
            Guise::Worker { now: false }
        } else if watched || matches!(process.scope, Scope::Unit(_) | Scope::Host) {
            Guise::Server
        } else {
            Guise::Unclear
        })
    }

    /// Adds those who may be clients of an MPS server on a device.
    fn add_clients(&self, stage: &Stage<'_>, who: &mut Participants) {
        let mut told: BTreeSet<HostPid> = BTreeSet::new();
        let mut perhaps: Perhaps = BTreeSet::new();
        for (probes, _) in self.snapshots.of(stage.piece) {
            for calls in &probes.calls {
                let pid = calls.process.pid;
                told.insert(pid);
                self.add_client(stage, who, &mut perhaps, (pid, calls.device.as_ref()), calls.enqueued > 0);
            }
            for user in &probes.users {
                let pid = user.process.pid;
                told.insert(pid);
                if !user.watched {
                    self.add_client(stage, who, &mut perhaps, (pid, user.device.as_ref()), true);
                }
            }
        }
        // What has CUDA open and no driver that the probes know may work all the same.
        for process in self.roster.during(stage.piece) {
            let pid = process.id.pid;
            let silent = !told.contains(&pid) && !stage.listed.contains(&pid);
            let opened = process.opened.as_ref();
            if silent && opened.is_some_and(|opened| opened.uvm && stage.opens(opened)) {
                match self.guise(process, stage.piece) {
                    Some(Guise::Server) => {}
                    Some(Guise::Unclear) => who.unseen = true,
                    Some(Guise::Worker { .. }) | None => {
                        perhaps.insert(Some(self.owner(process, stage.held)));
                    }
                }
            }
        }
        if perhaps.is_empty() {
            return;
        }
        perhaps.extend(who.owners.iter().cloned().map(Some));
        match perhaps.pop_first() {
            // Whichever of its processes it was, it was nobody else.
            Some(Some(only)) if perhaps.is_empty() => who.owners = [only].into(),
            _ => who.unseen = true,
        }
    }

    /// Adds a process that calls a device by a name, or is not seen to call anything; `asks` says whether it may have
    /// asked for work.
    fn add_client(
        &self,
        stage: &Stage<'_>,
        who: &mut Participants,
        perhaps: &mut Perhaps,
        (pid, named): (HostPid, Option<&DeviceRef>),
        asks: bool,
    ) {
        let process = self.roster.find(pid, stage.window.during);
        let owner = || process.map(|process| self.owner(process, stage.held));
        let guise = process.and_then(|process| self.guise(process, stage.piece));
        match self.on(stage, pid, named, process) {
            On::No => {}
            _ if guise == Some(Guise::Server) => {}
            _ if guise == Some(Guise::Unclear) => who.unseen = true,
            On::Perhaps if asks => drop(perhaps.insert(owner())),
            On::Perhaps => {}
            On::Yes => match owner() {
                Some(owner) => drop(who.owners.insert(owner)),
                None => who.strangers = true,
            },
        }
    }

    /// Whether a process that calls `named` is on a device.
    fn on(
        &self,
        stage: &Stage<'_>,
        pid: HostPid,
        named: Option<&DeviceRef>,
        process: Option<&Process>,
    ) -> On {
        let Stage { device, held, listed, gpus, .. } = stage;
        let resolved = named.and_then(|named| resolve(named, gpus));
        if is_on(named, device, resolved.as_ref(), listed.contains(&pid)) {
            return On::Yes;
        }
        let may = match (named, resolved) {
            // The parent's name, of a process that the driver does not list: any of its instances.
            (Some(_), Some(named)) => named.mig.is_none() && named.gpu == device.gpu,
            (Some(_), None) => false,
            (None, _) => process.is_none_or(|process| {
                let owner = self.owner(process, *held);
                let holds = held.is_some_and(|held| held.holders.iter().any(|(holder, _)| *holder == owner));
                holds || process.opened.as_ref().is_none_or(|opened| stage.opens(opened))
            }),
        };
        if may { On::Perhaps } else { On::No }
    }
}

impl Stage<'_> {
    /// Whether the device's file is among those that a process has open.
    fn opens(&self, opened: &Opened) -> bool {
        self.window.gpu.minor.is_none_or(|minor| opened.minors.contains(&minor))
    }
}
