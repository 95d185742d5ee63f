//! The view of what the fold knows.

use std::sync::Arc;

use super::tariff::Tariff;
use super::{Fold, GpuState, Recent};
use crate::explain::Explanation;
use crate::identity::{DeviceId, Owner, PodUid};
use crate::inventory::Instance;
use crate::ledger::DeviceAccount;
use crate::peak;
use crate::pressure::States;
use crate::ratio::Ppb;
use crate::state::State;
use crate::view::{AccountView, DeviceView, GpuView, NamespaceView, PodView, View};

impl Fold {
    /// Everything that can be read now.
    pub fn view(&self) -> View {
        let tariff = self.tariffs.last();
        View {
            node: self.settings.node.clone(),
            at: self.now,
            wall: self.wall,
            window: self.settings.window,
            windows: self.windows,
            currency: tariff.prices.currency.clone(),
            host_cost: self.tariffs.host_cost,
            energy: tariff.prices.energy.clone(),
            price_missing: tariff.prices.missing.clone(),
            driver: self.driver.clone(),
            gpus: self.gpus.values().map(|state| self.gpu_view(state, &tariff)).collect(),
            accounts: self.account_views(),
            pods: self.pod_views(),
            namespaces: self
                .ledger
                .namespaces()
                .iter()
                .map(|(name, account)| NamespaceView {
                    name: name.clone(),
                    states: account.states,
                    costs: account.costs,
                    energy_cost: account.energy_cost,
                })
                .collect(),
            sources: self.sources.view(),
            conservation_error: self.conservation_error(),
        }
    }

    fn gpu_view(&self, state: &GpuState, tariff: &Tariff) -> GpuView {
        let mut devices: Vec<DeviceView> = self
            .ledger
            .devices()
            .iter()
            .filter(|(id, _)| id.gpu == state.gpu.id)
            .map(|(id, account)| device_view(state, id, account))
            .collect();
        // A device is there from its first sight, before its first window closes.
        for id in existing(state) {
            if !devices.iter().any(|device| device.id == id) {
                devices.push(device_view(state, &id, &DeviceAccount::default()));
            }
        }
        devices.sort_by(|a, b| a.id.cmp(&b.id));
        let held = self.holdings.back().map(|(_, held)| Arc::clone(held)).unwrap_or_default();
        let replicated =
            held.iter().any(|(id, held)| id.gpu == state.gpu.id && id.mig.is_none() && held.replicated);
        GpuView {
            gpu: Arc::clone(&state.gpu),
            up: state.up,
            elapsed: state.elapsed - state.retired,
            devices,
            residue: state.residue,
            sharing: match (&state.gpu.mig, replicated) {
                (Some(_), _) => "mig",
                (None, true) => "replicas",
                (None, false) => "none",
            },
            board: state.board.clone(),
            totals: state.totals.clone(),
            quote: tariff.quote(&state.gpu.model),
            dram_peak: peak::dram(&self.settings.peaks, &state.gpu.model, state.gpu.memory_bus),
            tensor_peak: peak::tensor(&self.settings.peaks, &state.gpu.model),
            xids: state.xids.iter().map(|(xid, count)| (*xid, *count)).collect(),
            last_reading: state.last_reading,
            averaged_until: state.late.until(),
        }
    }

    fn account_views(&self) -> Vec<AccountView> {
        let held = self.holdings.back().map(|(_, held)| Arc::clone(held)).unwrap_or_default();
        let mut views = Vec::new();
        for (owner, accounts) in self.ledger.accounts() {
            let ended = self.ledger.ended(owner).is_some();
            let pod = match owner {
                Owner::Pod { uid, .. } => self.name(uid),
                _ => None,
            };
            for (device, account) in accounts {
                let memory = self.memory.get(&(owner.clone(), device.clone())).copied();
                views.push(AccountView {
                    owner: owner.clone(),
                    pod: pod.clone(),
                    device: device.clone(),
                    ended,
                    states: account.states,
                    costs: account.costs,
                    used: account.used,
                    borrowed: account.borrowed,
                    profiled: account.profiled,
                    activity: account.activity,
                    low_intensity: account.low_intensity,
                    bounds: account.bounds,
                    energy_uj: account.energy_uj,
                    idle_energy_uj: account.idle_energy_uj,
                    energy_cost: account.energy_cost,
                    calls: account.calls,
                    gaps: account.gaps.clone(),
                    injected: self.injections.of(owner, device),
                    memory_used: if ended { None } else { memory },
                    allocated: if ended {
                        None
                    } else {
                        held.get(device).and_then(|held| held.part_of(owner))
                    },
                    allocation_evidence: account.allocation_evidence,
                    use_evidence: account.use_evidence,
                });
            }
        }
        views
    }

    fn name(&self, uid: &PodUid) -> Option<(Arc<str>, Arc<str>)> {
        self.named.get(uid).map(|named| (named.namespace.clone(), named.name.clone()))
    }

    fn pod_views(&self) -> Vec<PodView> {
        let mut views: Vec<PodView> = Vec::new();
        for owner in self.ledger.owners() {
            let Owner::Pod { uid, .. } = owner else { continue };
            let ended = self.ledger.ended(owner).is_some();
            // Owners are in order, so the containers of a pod follow one another.
            if let Some(last) = views.last_mut()
                && last.uid == *uid
            {
                last.ended &= ended;
                continue;
            }
            let started = self.roster.alive().filter(|process| match &process.scope {
                crate::identity::Scope::Pod { uid: other, .. } => other == uid,
                _ => false,
            });
            let age = started.map(|process| self.now.since(process.id.start)).max();
            views.push(PodView {
                uid: uid.clone(),
                name: self.name(uid),
                ended,
                started: age.map(|age| self.wall.saturating_sub(age)),
                utilization: self.recent.get(uid).and_then(|recent| trailing(recent.iter())),
                info: self.named.get(uid).map(|named| named.info.clone()).unwrap_or_default(),
                threads: self.threads.get(uid).copied(),
                explanation: Arc::new(self.explanation(uid)),
                pressure: self.pressures.totals(uid),
                corroboration: self.pressures.corroboration(uid, self.now),
            });
        }
        views
    }

    /// What there is to say of a pod now.
    fn explanation(&self, uid: &PodUid) -> Explanation {
        let mut explanation = self.explanations.get(uid).cloned().unwrap_or_default();
        explanation.forget(self.now);
        explanation
    }

    /// Device time of a pod by state, over all its containers and devices.
    pub(super) fn states_of(&self, pod: &PodUid) -> States {
        let mut sums = [0; State::COUNT];
        for (owner, accounts) in self.ledger.accounts() {
            if !matches!(owner, Owner::Pod { uid, .. } if uid == pod) {
                continue;
            }
            for account in accounts.values() {
                sums.iter_mut().zip(account.states).for_each(|(sum, amount)| *sum += amount);
            }
        }
        sums
    }

    fn conservation_error(&self) -> u64 {
        let per_gpu = |state: &GpuState| {
            let devices = self.ledger.devices().iter().filter(|(id, _)| id.gpu == state.gpu.id);
            let booked: u64 = devices.map(|(_, account)| account.elapsed).sum();
            let residue = state.residue.map_or(0, |residue| residue.unallocated + residue.unallocatable);
            (booked + residue + state.retired).abs_diff(state.elapsed)
        };
        self.gpus.values().map(per_gpu).max().unwrap_or(0).max(self.ledger.conservation_error())
    }
}

/// Activity ÷ allocation; none while nothing was allocated or more than a tenth of it is unknown.
fn trailing<'a>(recent: impl Iterator<Item = &'a Recent>) -> Option<Ppb> {
    let (mut allocated, mut active, mut unknown) = (0_u128, 0_u128, 0_u128);
    for stretch in recent {
        allocated += u128::from(stretch.allocated);
        active += u128::from(stretch.active);
        unknown += u128::from(stretch.unknown);
    }
    if unknown * 10 > allocated {
        return None;
    }
    Ppb::of_whole(active, allocated)
}

fn existing(state: &GpuState) -> Vec<DeviceId> {
    let device = |mig| DeviceId { gpu: state.gpu.id.clone(), mig };
    match &state.gpu.mig {
        None => vec![device(None)],
        Some(mig) => mig.instances.iter().map(|instance| device(Some(instance.id.clone()))).collect(),
    }
}

fn device_view(state: &GpuState, id: &DeviceId, account: &DeviceAccount) -> DeviceView {
    let instances = state.gpu.mig.iter().flat_map(|mig| &mig.instances);
    let instance: Option<Instance> =
        instances.into_iter().find(|instance| Some(&instance.id) == id.mig.as_ref()).cloned();
    let present = match &id.mig {
        None => state.gpu.mig.is_none(),
        Some(_) => instance.is_some(),
    };
    DeviceView {
        id: id.clone(),
        present,
        instance,
        states: account.states,
        costs: account.costs,
        usage: account.usage,
        profiled: account.profiled,
        activity: account.activity,
        memory_used: state.memory_used.get(id).copied(),
        allocation_evidence: account.allocation_evidence,
        use_evidence: account.use_evidence,
    }
}
