//! What injected libraries say: kept beside the ledgers, by the owner of each process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Fold;
use super::probes::instance_of;
use crate::allocate::Gpus;
use crate::fact::{Discard, Sample};
use crate::identity::{DeviceId, Owner, ProcessId};
use crate::injected::{Injected, InjectedTotals};
use crate::roster::Roster;
use crate::time::{Interval, MonoNs};

/// What they have said.
#[derive(Debug, Default)]
pub(super) struct Injections {
    /// The last word of each process and device, and when that was.
    last: BTreeMap<(ProcessId, DeviceId), (Injected, MonoNs)>,
    /// The sums of each owner and device, and when they last grew. That a process names a device makes no account.
    totals: BTreeMap<(Owner, DeviceId), (InjectedTotals, MonoNs)>,
}

impl Injections {
    /// An owner's sums on a device.
    pub(super) fn of(&self, owner: &Owner, device: &DeviceId) -> Option<InjectedTotals> {
        self.totals.get(&(owner.clone(), device.clone())).map(|(totals, _)| *totals)
    }

    /// Forgets processes that have ended, and owners that are not to be kept unless they have said something since
    /// `recently`.
    pub(super) fn retain(&mut self, roster: &Roster, keep: impl Fn(&Owner) -> bool, recently: MonoNs) {
        if !self.last.is_empty() {
            let living: BTreeSet<ProcessId> = roster.alive().map(|process| process.id).collect();
            self.last.retain(|(process, _), _| living.contains(process));
        }
        self.totals.retain(|(owner, _), (_, grew)| keep(owner) || *grew > recently);
    }
}

/// Whether there is such a device, or a GPU in MIG mode of this name: others could be named without end.
fn exists(gpus: &Gpus, device: &DeviceId) -> bool {
    gpus.get(&device.gpu).is_some_and(|gpu| match (&device.mig, &gpu.mig) {
        (None, _) => true,
        (Some(id), Some(mig)) => mig.instances.iter().any(|instance| instance.id == *id),
        (Some(_), None) => false,
    })
}

impl Fold {
    /// Adds what a library has summed since its last word to its process's owner. Of a first word only what can be
    /// since this fold began: counters start at 0 with it.
    pub(super) fn injected(&mut self, told: &Injected, sample: &Sample) {
        let at = sample.at;
        let moment = Interval::new(at.minus(1), at);
        let process = moment.and_then(|moment| self.roster.find(told.process.pid, moment));
        let Some(process) = process.filter(|process| process.id == told.process) else {
            self.sources.discard(sample.source, Discard::Late, 1);
            return;
        };
        let gpus: Gpus = self.gpus.iter().map(|(id, state)| (id.clone(), Arc::clone(&state.gpu))).collect();
        let held = self.holdings.back().map(|(_, held)| Arc::clone(held)).unwrap_or_default();
        let owner = self.owner(process, held.get(&told.device));
        let named = exists(&gpus, &told.device).then(|| told.device.clone());
        let Some(device) = named.and_then(|named| instance_of(named, &owner, &gpus, &held)) else {
            self.sources.discard(sample.source, Discard::DeviceId, 1);
            return;
        };
        let before = self.injections.last.insert((told.process, told.device.clone()), (told.clone(), at));
        let watched = self.started.is_some_and(|started| at.since(started) >= told.sums.elapsed);
        if before.is_none() && !watched {
            return;
        }
        match told.grown(before.as_ref().map(|(told, at)| (told, *at)), at) {
            Some(grown) => {
                let (totals, grew) = self.injections.totals.entry((owner, device)).or_default();
                totals.add(&grown);
                *grew = at;
            }
            None => self.sources.discard(sample.source, Discard::Range, 1),
        }
    }
}
