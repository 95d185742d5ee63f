//! What the probes saw of the processes on a device, where the driver does not say who used it.

use std::collections::BTreeMap;

use super::Fold;
use super::close::Place;
use super::participants::Guise;
use super::probes::{is_on, moved_bytes, on_link, scaled};
use crate::allocate::resolve;
use crate::demand::{Demand, Demands};
use crate::fact::{DeviceRef, Mps, Process};
use crate::identity::HostPid;
use crate::probe::{Calls, GapKind};
use crate::time::Interval;

/// One process's, as it is summed up.
#[derive(Debug, Default)]
struct Sum {
    outstanding: u64,
    /// Bytes over the link.
    moved: u64,
    launches: u64,
    open: BTreeMap<u8, (u64, u64)>,
    /// Time that its gaps account for.
    told: u64,
    /// Whether what was not seen of it has not happened.
    from_start: bool,
    /// Whether it may have asked for anything, since its calls are not watched.
    unseen: bool,
}

impl Sum {
    fn add(&mut self, calls: &Calls, part: impl Fn(u64) -> u64) {
        self.from_start |= calls.from_start;
        self.unseen |= calls.is_unseen();
        self.moved = self.moved.saturating_add(moved_bytes(&calls.asked, &part));
        let launches = calls.asked.launches.saturating_add(calls.asked.graph_launches);
        self.launches = self.launches.saturating_add(part(launches));
        for gap in &calls.gaps {
            let total = part(gap.total);
            self.told = self.told.saturating_add(total);
            match gap.kind {
                GapKind::Drained => {}
                GapKind::Sync => self.outstanding = self.outstanding.saturating_add(total),
                GapKind::Enqueue => {
                    let (count, sum) = self.open.entry(gap.log2).or_default();
                    *count = count.saturating_add(part(gap.count));
                    *sum = sum.saturating_add(total);
                }
            }
        }
    }
}

impl Fold {
    /// What the probes saw of the processes on a device; nothing unless they saw at least half of the time.
    pub(super) fn demands(&self, place: &Place<'_>) -> Option<Demands> {
        let Place { device, window, piece, held, who, listed, gpus, .. } = place;
        if who.owners.len() < 2 && !who.strangers && !who.unseen {
            return None;
        }
        let mut covered = 0;
        let mut sums: BTreeMap<HostPid, Sum> = BTreeMap::new();
        for (probes, overlap) in self.snapshots.of(*piece) {
            covered += overlap.nanos();
            let here = |pid: HostPid, named: Option<&DeviceRef>| {
                let resolved = named.and_then(|named| resolve(named, gpus));
                is_on(named, device, resolved.as_ref(), listed.contains(&pid))
            };
            for calls in &probes.calls {
                let pid = calls.process.pid;
                if here(pid, calls.device.as_ref()) {
                    let part = |amount| scaled(amount, overlap.nanos(), probes.during.nanos());
                    sums.entry(pid).or_default().add(calls, part);
                }
            }
            for user in probes.users.iter().filter(|user| !user.watched) {
                let pid = user.process.pid;
                if here(pid, user.device.as_ref()) {
                    sums.entry(pid).or_default().unseen = true;
                }
            }
        }
        if covered < piece.nanos() / 2 {
            return None;
        }
        let serves = |process: &Process| self.guise(process, *piece) == Some(Guise::Server);
        let silent = listed.iter().filter(|pid| !sums.contains_key(pid));
        let silent = silent.into_iter().any(|pid| {
            let process = self.roster.find(*pid, window.during);
            process.is_none_or(|process| !serves(process))
        });
        let mut demands = Demands { covered, seen: Vec::new(), unseen: who.unseen || silent };
        for (pid, sum) in sums {
            let process = self.roster.find(pid, window.during);
            if process.is_some_and(serves) {
                // Whatever it was not seen to do was its clients' work.
                continue;
            }
            // Of a process that was not watched from its first call, gaps tell since when it is.
            let late = !sum.from_start && sum.told < covered / 2 && !self.ended(pid, *piece);
            demands.unseen |= sum.unseen || late;
            demands.seen.push(Demand {
                owner: process.map(|process| self.owner(process, Some(held))),
                outstanding: sum.outstanding.saturating_sub(on_link(window.gpu.link, sum.moved)),
                open: sum.open.into_values().collect(),
                launches: sum.launches,
                threads: process.and_then(|process| match process.mps {
                    Some(Mps::Client(threads)) => Some(threads),
                    _ => None,
                }),
            });
        }
        Some(demands)
    }

    /// Whether a process ended or began in `piece`, so that nothing is to be seen of it in a part of that.
    fn ended(&self, pid: HostPid, piece: Interval) -> bool {
        self.roster.lived(pid, piece) < piece.nanos() / 2
    }
}
