//! What the probes saw of the processes on a device, where the driver does not say who used it.

use std::collections::{BTreeMap, BTreeSet};

use super::Fold;
use super::close::{Place, pids};
use super::probes::{is_on, on_link, scaled};
use crate::allocate::{Gpus, Held, resolve};
use crate::demand::{Demand, Demands};
use crate::fact::Mps;
use crate::identity::{DeviceId, HostPid, Owner};
use crate::probe::{Calls, GapKind};
use crate::time::Interval;
use crate::window::Window;

/// One process's, as it is summed up.
#[derive(Debug, Default)]
struct Sum {
    outstanding: u64,
    copies: u64,
    launches: u64,
    open: BTreeMap<u8, (u64, u64)>,
    /// Time that its gaps account for.
    told: u64,
    /// Whether what was not seen of it has not happened.
    from_start: bool,
    /// Whether it has asked for any work since it is watched.
    enqueued: bool,
}

impl Sum {
    fn add(&mut self, calls: &Calls, part: impl Fn(u64) -> u64) {
        self.from_start |= calls.from_start;
        self.enqueued |= calls.enqueued > 0;
        self.copies = self.copies.saturating_add(on_link(&calls.asked, &part));
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
        if who.owners.len() < 2 && !who.strangers {
            return None;
        }
        let mut covered = 0;
        let mut sums: BTreeMap<HostPid, Sum> = BTreeMap::new();
        for (probes, overlap) in self.snapshots.of(*piece) {
            covered += overlap.nanos();
            for calls in &probes.calls {
                let pid = calls.process.pid;
                let resolved = calls.device.as_ref().and_then(|named| resolve(named, gpus));
                if is_on(calls, device, resolved.as_ref(), listed.contains(&pid)) {
                    let part = |amount| scaled(amount, overlap.nanos(), probes.during.nanos());
                    sums.entry(pid).or_default().add(calls, part);
                }
            }
        }
        if covered < piece.nanos() / 2 {
            return None;
        }
        let mut demands = Demands { covered, seen: Vec::new(), unseen: false };
        let unlisted = listed.iter().filter(|pid| !sums.contains_key(pid));
        demands.unseen = unlisted.into_iter().any(|pid| {
            let process = self.roster.find(*pid, window.during);
            process.is_none_or(|process| process.mps != Some(Mps::Server))
        });
        for (pid, sum) in sums {
            let process = self.roster.find(pid, window.during);
            if process.is_some_and(|process| process.mps == Some(Mps::Server)) && !sum.enqueued {
                // Whatever it was not seen to do was its clients' work.
                continue;
            }
            // Of a process that was not watched from its first call, gaps tell since when it is.
            if !sum.from_start && sum.told < covered / 2 && !self.ended(pid, *piece) {
                demands.unseen = true;
            }
            demands.seen.push(Demand {
                owner: process.map(|process| self.owner(process, Some(held))),
                outstanding: sum.outstanding.saturating_sub(sum.copies),
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

    /// The owners of processes that asked for something on a device.
    pub(super) fn clients(
        &self,
        window: &Window,
        piece: Interval,
        device: &DeviceId,
        held: Option<&Held>,
    ) -> BTreeSet<Owner> {
        let gpus: Gpus = [(device.gpu.clone(), std::sync::Arc::clone(&window.gpu))].into();
        let listed: BTreeSet<HostPid> = window
            .reading
            .iter()
            .flat_map(|reading| &reading.parts)
            .filter(|part| part.mig == device.mig)
            .flat_map(|part| pids(window, part))
            .collect();
        let calls = self.snapshots.of(piece).flat_map(|(probes, _)| &probes.calls);
        calls
            .filter(|calls| {
                let resolved = calls.device.as_ref().and_then(|named| resolve(named, &gpus));
                is_on(calls, device, resolved.as_ref(), listed.contains(&calls.process.pid))
            })
            .filter_map(|calls| Some((calls, self.roster.find(calls.process.pid, window.during)?)))
            // A server asks for nothing itself. One that does has only its name.
            .filter(|(calls, process)| process.mps != Some(Mps::Server) || calls.enqueued > 0)
            .map(|(_, process)| self.owner(process, held))
            .collect()
    }
}
