//! What injected libraries say: kept beside the ledgers, with the owner of each process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Fold;
use super::probes::instance_of;
use crate::allocate::Gpus;
use crate::fact::{Discard, Sample};
use crate::identity::{DeviceId, ProcessId};
use crate::injected::Injected;
use crate::roster::Roster;
use crate::time::Interval;

/// The last word of each process and device.
#[derive(Debug, Default)]
pub(super) struct Injections {
    last: BTreeMap<(ProcessId, DeviceId), Injected>,
}

impl Injections {
    /// Forgets processes that have ended.
    pub(super) fn forget(&mut self, roster: &Roster) {
        if !self.last.is_empty() {
            let living: BTreeSet<ProcessId> = roster.alive().map(|process| process.id).collect();
            self.last.retain(|(process, _), _| living.contains(process));
        }
    }
}

impl Fold {
    /// Adds what a library has summed since its last word to its process's owner. Of a first word only what can be
    /// since this fold began: counters start at 0 with it.
    pub(super) fn injected(&mut self, told: &Injected, sample: &Sample) {
        let moment = Interval::new(sample.at.minus(1), sample.at);
        let process = moment.and_then(|moment| self.roster.find(told.process.pid, moment));
        let Some(process) = process.filter(|process| process.id == told.process) else {
            self.sources.discard(sample.source, Discard::Late, 1);
            return;
        };
        if !self.gpus.contains_key(&told.device.gpu) {
            self.sources.discard(sample.source, Discard::DeviceId, 1);
            return;
        }
        let gpus: Gpus = self.gpus.iter().map(|(id, state)| (id.clone(), Arc::clone(&state.gpu))).collect();
        let held = self.holdings.back().map(|(_, held)| Arc::clone(held)).unwrap_or_default();
        let owner = self.owner(process, held.get(&told.device));
        let Some(device) = instance_of(told.device.clone(), &owner, &gpus, &held) else {
            self.sources.discard(sample.source, Discard::DeviceId, 1);
            return;
        };
        let before = self.injections.last.insert((told.process, told.device.clone()), told.clone());
        let watched = self.started.is_some_and(|started| sample.at.since(started) >= told.sums.elapsed);
        if before.is_none() && !watched {
            return;
        }
        match told.grown(before.as_ref()) {
            Some(grown) => self.ledger.post_injected(&owner, &device, &grown),
            None => self.sources.discard(sample.source, Discard::Range, 1),
        }
    }
}
