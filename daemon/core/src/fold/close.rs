//! Closing windows: from one GPU's evidence over a stretch to postings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::energy::Parts;
use super::participants::Guise;
use super::probes::{self, Seen};
use super::{Fold, GpuState, IDENTITY_GRACE, Named, Recent, Watched};
use crate::allocate::{Gpus, Held, resolve};
use crate::attribute::{Participants, ProcessTimes, Weights};
use crate::explain::{Caller, Why};
use crate::fact::{Discard, HealthState, Part, Process, Source};
use crate::identity::{DeviceId, GpuId, HostPid, MigId, Owner, PodUid, ProcessId, Scope};
use crate::inventory::{Counter, Gpu};
use crate::ledger::Posting;
use crate::posting::{Standing, Stretch};
use crate::ratio::Ppb;
use crate::split::Split;
use crate::state::{Class, Progress};
use crate::time::{Interval, MonoNs, SECOND};
use crate::view::Evidence;
use crate::window::Window;

/// How far back a pod's trailing utilisation looks.
const TRAILING: u64 = 60 * SECOND;

/// A part of a GPU's time.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Slice {
    Device(Option<MigId>),
    Unallocated,
    Unallocatable,
}

/// A device in a piece of a window, and what is known of it there.
pub(super) struct Place<'a> {
    pub(super) device: &'a DeviceId,
    pub(super) window: &'a Window,
    pub(super) piece: Interval,
    pub(super) held: &'a Held,
    pub(super) who: &'a Participants,
    pub(super) part: Option<&'a Part>,
    /// Processes that the driver lists on it.
    pub(super) listed: BTreeSet<HostPid>,
    /// Its GPU, by which calls name it.
    pub(super) gpus: Gpus,
}

impl Fold {
    /// Closes every window whose evidence is complete, oldest first per GPU. Gives how many.
    pub(super) fn close_windows(&mut self) -> u64 {
        let mut closed = 0;
        let ids: Vec<GpuId> = self.gpus.keys().cloned().collect();
        for id in ids {
            let Some(state) = self.gpus.get_mut(&id) else { continue };
            let gpu = std::sync::Arc::clone(&state.gpu);
            state.timeline.give_up(self.watermark, self.settings.window, &gpu);
            while self
                .gpus
                .get(&id)
                .and_then(|state| state.timeline.front())
                .is_some_and(|window| self.ripe(window))
            {
                let Some(window) = self.gpus.get_mut(&id).and_then(|state| state.timeline.pop()) else {
                    break;
                };
                self.close(&id, &window);
                closed += 1;
            }
        }
        closed
    }

    /// Whether nothing more is to be expected of a window, or it has waited long enough.
    fn ripe(&self, window: &Window) -> bool {
        let Some(reading) = &window.reading else { return true };
        let Some(state) = self.gpus.get(&reading.gpu) else { return true };
        let end = window.during.end();
        let mut several = false;
        let mut strangers = false;
        let mut listed = BTreeSet::new();
        for part in &reading.parts {
            let pids = pids(window, part);
            listed.extend(pids.iter().copied());
            let scopes: BTreeSet<Option<&Scope>> = pids
                .into_iter()
                .map(|pid| self.roster.find(pid, window.during).map(|process| &process.scope))
                .collect();
            several |= part.mig.is_none() && scopes.len() > 1;
            strangers |= scopes.contains(&None);
        }
        if strangers && self.watermark.since(window.complete) < IDENTITY_GRACE {
            return false;
        }
        if !listed.is_empty() && self.snapshots.awaited(end, self.watermark) {
            return false;
        }
        let awaited = several && window.gpu.authority.processes.is_some();
        !awaited
            || state.timeline.sampled_until(end)
            || self.watermark.since(end) >= self.settings.process_lateness
    }

    fn close(&mut self, id: &GpuId, window: &Window) {
        let tariff = self.tariffs.at(window.during.start());
        let price = tariff.price(&window.gpu.model);
        let slices = slices(window);
        let (mut used, mut held) = (Parts::new(), Parts::new());
        for (piece, holdings) in self.held(window.during) {
            let weights = slices.clone();
            let Some(split) = Split::by_weight(piece.nanos(), weights) else { continue };
            let (mut unallocated, mut unallocatable) = (0, 0);
            for (slice, budget) in split.into_parts() {
                let mig = match slice {
                    Slice::Device(mig) => mig,
                    Slice::Unallocated => {
                        unallocated += budget;
                        continue;
                    }
                    Slice::Unallocatable => {
                        unallocatable += budget;
                        continue;
                    }
                };
                let device = DeviceId { gpu: id.clone(), mig };
                let part = window.reading.as_ref().and_then(|reading| {
                    let part = reading.parts.iter().find(|part| part.mig == device.mig)?;
                    Some((part, reading.during.start()))
                });
                let granted = holdings.get(&device);
                let who = part
                    .map(|(part, _)| self.participants(window, part, piece, &device, granted))
                    .unwrap_or_default();
                let owned = match granted {
                    Some(held) => held.clone(),
                    None if self.infers() => Held::inferred(&who.owners),
                    None => Held::free(),
                };
                let place = Place {
                    device: &device,
                    window,
                    piece,
                    held: &owned,
                    who: &who,
                    part: part.map(|(part, _)| part),
                    listed: part.map(|(part, _)| pids(window, part)).unwrap_or_default(),
                    gpus: [(id.clone(), Arc::clone(&window.gpu))].into(),
                };
                let times =
                    self.process_times(id, window, part.map(|(part, _)| part), piece, &device, &owned);
                let demands = self.demands(&place);
                let stretch = Stretch {
                    conflict: part
                        .is_some_and(|(part, start)| self.contradicted(part, start, window, &device)),
                    device: device.clone(),
                    during: piece,
                    budget,
                    price,
                    part,
                    held: &owned,
                    unheard: self.settings.grants_expected && !self.heard,
                    who: &who,
                    by: Weights { times, demands },
                    equal_split: self.settings.equal_split,
                    no_work_after: self.settings.no_work_after,
                };
                let posting = stretch.post(|owner| self.standing(owner, &place));
                if posting.contradicted > 0 {
                    self.sources.discard(Source::Probes, Discard::Range, posting.contradicted);
                }
                self.post(&posting, &who, piece, &mut used, &mut held);
                if window.gpu.authority.sm == Some(Counter::Dcgm)
                    && let Some(state) = self.gpus.get_mut(id)
                {
                    state.late.remember(&posting, piece);
                }
                self.explain(posting.whys);
                for (owner, habit) in posting.habits {
                    let known = self.habits.entry((owner, device.clone()));
                    known.and_modify(|known| known.renew(&habit)).or_insert(habit);
                }
            }
            if let Some(state) = self.gpus.get_mut(id) {
                state.elapsed += piece.nanos();
                if window.gpu.mig.is_some() {
                    state.add_residue(unallocated, unallocatable, price);
                }
            }
        }
        if let Some(reading) = &window.reading {
            self.after(id, window, reading.during);
            let price = tariff.prices.energy.as_ref().map(|quote| quote.price);
            let state = self.gpus.get_mut(id);
            let energy = state.and_then(|state| state.count(&reading.board, window.during, price));
            if let Some(energy) = energy {
                self.share_energy(id, window, energy, price, (used, held));
            }
        }
    }

    /// Keeps why pods' windows are what they are, for those who ask.
    fn explain(&mut self, whys: Vec<Why>) {
        for why in whys {
            let Owner::Pod { uid, .. } = why.owner.clone() else { continue };
            let during = why.during;
            let who = |process: ProcessId| probes::who(&self.roster, process.pid, during, &uid);
            self.explanations.entry(uid.clone()).or_default().note(why, who);
        }
    }

    /// Books a posting, and takes note of what it says of its owners.
    fn post(
        &mut self,
        posting: &Posting,
        who: &Participants,
        piece: Interval,
        used: &mut Parts,
        held: &mut Parts,
    ) {
        let device = &posting.device;
        for (owner, amount) in &posting.used {
            *used.entry((Some(owner.clone()), device.clone())).or_default() += amount;
        }
        *used.entry((None, device.clone())).or_default() += posting.usage.unattributed;
        for (owner, states) in &posting.allocated {
            let amount: u64 = states.iter().map(|(_, amount)| *amount).sum();
            *held.entry((Some(owner.clone()), device.clone())).or_default() += amount;
        }
        *held.entry((None, device.clone())).or_default() += posting.unallocated;

        let concerned = posting.allocated.iter().map(|(owner, _)| owner).chain(&who.owners);
        for owner in concerned.chain(posting.used.iter().map(|(owner, _)| owner)) {
            let watched = self.watched.entry((owner.clone(), device.clone())).or_insert(Watched {
                since: piece.start(),
                active: None,
                worked: false,
            });
            let used = posting.used.iter().find(|(user, _)| user == owner).map_or(0, |(_, amount)| *amount);
            let quiet = posting.elapsed / 1000;
            // A single kernel ends the loading of a model, where it is known to be this owner's.
            watched.worked |= used > if posting.use_evidence == Evidence::Measured { 0 } else { quiet };
            if used > quiet {
                watched.active = Some(piece.end());
            }
        }
        self.note_recent(posting, piece);
        let named = &self.named;
        self.ledger.post(posting, |owner| namespace(named, owner));
    }

    fn note_recent(&mut self, posting: &Posting, piece: Interval) {
        for (owner, states) in &posting.allocated {
            let Owner::Pod { uid, .. } = owner else { continue };
            let unknown =
                states.iter().filter(|(state, _)| !posting.profiled && state.class() == Class::Unknown);
            let activity =
                posting.owner_activity.iter().find(|(other, _)| other == owner).map(|(_, activity)| activity);
            let active = activity.and_then(|activity| activity.sm_active.or(activity.engine)).unwrap_or(0);
            let recent = Recent {
                until: piece.end(),
                allocated: states.iter().map(|(_, amount)| *amount).sum(),
                active,
                unknown: unknown.map(|(_, amount)| *amount).sum(),
            };
            let queue = self.recent.entry(uid.clone()).or_default();
            queue.push_back(recent);
            while queue.front().is_some_and(|oldest| piece.end().since(oldest.until) >= TRAILING) {
                queue.pop_front();
            }
        }
    }

    /// Takes note of a closed window's gauges: memory, and which engine counters read nothing.
    fn after(&mut self, id: &GpuId, window: &Window, reading: Interval) {
        let Some(parts) = window.reading.as_ref().map(|reading| &reading.parts) else { return };
        let held = self.holdings.back().map(|(_, held)| std::sync::Arc::clone(held)).unwrap_or_default();
        let mut memory: BTreeMap<(Owner, DeviceId), u64> = BTreeMap::new();
        for part in parts {
            let device = DeviceId { gpu: id.clone(), mig: part.mig.clone() };
            for holder in part.processes.iter().flatten() {
                if let (Some(process), Some(bytes)) =
                    (self.roster.find(holder.pid, window.during), holder.memory)
                {
                    let owner = self.owner(process, held.get(&device));
                    *memory.entry((owner, device.clone())).or_default() += bytes;
                }
            }
            let silent = quiet(part, reading.start(), window.during);
            let Some(state) = self.gpus.get_mut(id) else { continue };
            match part.memory_used {
                Some(bytes) if state.up => {
                    state.memory_used.insert(device.clone(), bytes);
                }
                _ => {
                    state.memory_used.remove(&device);
                }
            }
            if silent {
                state.silent.insert(device);
            } else {
                state.silent.remove(&device);
            }
        }
        self.memory.retain(|(_, device), _| device.gpu != *id);
        self.memory.extend(memory);
    }

    /// Whether a device's engine counter reads nothing for the second time while another shows work. Once may
    /// be a difference of their periods.
    fn contradicted(&self, part: &Part, start: MonoNs, window: &Window, device: &DeviceId) -> bool {
        let busy = part.corroboration.is_some_and(|ratio| ratio.parts() >= Ppb::ONE.parts() / 10);
        let before = self.gpus.get(&device.gpu).is_some_and(|state: &GpuState| state.silent.contains(device));
        busy && before && quiet(part, start, window.during)
    }

    /// Whose a process is. In a container whose name is not known, it is the only granted one's of its pod.
    pub(super) fn owner(&self, process: &Process, held: Option<&Held>) -> Owner {
        match &process.scope {
            Scope::Pod { uid, container } => {
                let known = container.as_ref().and_then(|id| self.containers.get(&(uid.clone(), id.clone())));
                let granted = || {
                    let mut names = held?.holders.iter().filter_map(|(owner, _)| match owner {
                        Owner::Pod { uid: other, container } if other == uid => Some(container),
                        _ => None,
                    });
                    let name = names.next()?;
                    names.next().is_none().then_some(name)
                };
                let container = known.or_else(granted).cloned().unwrap_or_else(|| "".into());
                Owner::Pod { uid: uid.clone(), container }
            }
            Scope::Container(id) => Owner::Container(id.clone()),
            Scope::SlurmJob(job) => Owner::SlurmJob(job.clone()),
            Scope::Unit(unit) => Owner::Unit(unit.clone()),
            Scope::Host => Owner::Host,
        }
    }

    fn process_times(
        &self,
        id: &GpuId,
        window: &Window,
        part: Option<&Part>,
        piece: Interval,
        device: &DeviceId,
        held: &Held,
    ) -> Option<ProcessTimes> {
        if device.mig.is_some() {
            return None;
        }
        let mut times = ProcessTimes::default();
        let mut sampled: BTreeSet<HostPid> = BTreeSet::new();
        for (sample, overlap) in self.gpus.get(id)?.timeline.samples(piece) {
            let process = self.roster.find(sample.pid, window.during);
            let guise = process.and_then(|process| self.guise(process, piece));
            if !matches!(guise, None | Some(Guise::Worker { now: true })) {
                // It is, or may be, the work of its clients, and says nothing of whose.
                times.silent = true;
                continue;
            }
            let owner = process.map(|process| self.owner(process, Some(held)));
            *times.by_owner.entry(owner).or_default() += sample.sm.of(overlap.nanos());
            times.period = times.period.max(sample.during.nanos());
            sampled.insert(sample.pid);
        }
        times.processes = sampled.len().try_into().unwrap_or(u64::MAX);
        times.silent |= part.is_some_and(|part| pids(window, part).iter().any(|pid| !sampled.contains(pid)));
        (!sampled.is_empty()).then_some(times)
    }

    fn standing(&self, owner: &Owner, place: &Place<'_>) -> Standing {
        let end = place.window.during.end();
        let mut seen = self.seen(owner, place);
        let concerned = (owner.clone(), place.device.clone());
        if let Some(host) = seen.as_mut().map(|seen| &mut seen.host).filter(|host| host.shed) {
            let habit = self.habits.get(&concerned);
            let habit = habit.and_then(|habit| habit.stands(&host.callers, place.piece.nanos(), end));
            host.habit = habit.cloned();
        }
        let watched = self.watched.get(&concerned);
        let since =
            watched.map_or(place.window.during.start(), |watched| watched.active.unwrap_or(watched.since));
        let quiet = end.since(since);
        let quiet = seen.as_ref().and_then(|seen| seen.quiet).map_or(quiet, |called| quiet.min(called));
        let progress = self.progress(owner, place, seen.as_ref());
        let launches = seen.as_ref().map_or(0, |seen| seen.launches);
        let callers = seen.as_mut().map(|seen| std::mem::take(&mut seen.callers)).unwrap_or_default();
        let callers = Caller::most(callers.into_values());
        Standing { progress, quiet, host: seen.map(|seen| seen.host), launches, callers }
    }

    /// How far an owner has come with a device, as far as that is known.
    fn progress(&self, owner: &Owner, place: &Place<'_>, seen: Option<&Seen>) -> Option<Progress> {
        let Place { device, window, who, .. } = place;
        let part = place.part.filter(|part| part.processes.is_some())?;
        if !who.owners.contains(owner) {
            let host = self.sources.health(Source::Host).map(|health| health.state);
            let known = matches!(host, Some(HealthState::Up | HealthState::Degraded));
            let opened =
                if known { self.roster.opened(owner, &self.containers, window.gpu.minor) } else { None };
            return opened.map(|opened| if opened { Progress::Opened } else { Progress::NoProcess });
        }
        let watched = self.watched.get(&(owner.clone(), (*device).clone()));
        let started = self.started.unwrap_or_default();
        let fresh = || {
            pids(window, part)
                .into_iter()
                .filter_map(|pid| self.roster.find(pid, window.during))
                .filter(|process| crate::roster::belongs(&process.scope, owner, &self.containers))
                .all(|process| process.id.start >= started)
        };
        let loading = match seen {
            // What it enqueued is known better than what a counter of the device shows of it.
            Some(seen) if seen.enqueued || seen.from_start => !seen.enqueued,
            _ => fresh() && !watched.is_some_and(|watched| watched.worked),
        };
        Some(if loading { Progress::Loading } else { Progress::Working })
    }

    /// What the probes saw of an owner on a device in a piece of a window.
    fn seen(&self, owner: &Owner, place: &Place<'_>) -> Option<Seen> {
        let Place { device, window, piece, held, listed, gpus, .. } = place;
        if !self.snapshots.cover(*piece) {
            return None;
        }
        let own = |pid: HostPid| {
            let process = self.roster.find(pid, window.during);
            process.is_some_and(|process| self.owner(process, Some(held)) == *owner)
        };
        self.snapshots.seen(
            *piece,
            window.gpu.link,
            |scope| probes::feeds(scope, owner),
            |calls| {
                let resolved = calls.device.as_ref().and_then(|named| resolve(named, gpus));
                let pid = calls.process.pid;
                let named = calls.device.as_ref();
                probes::is_on(named, device, resolved.as_ref(), listed.contains(&pid)) && own(pid)
            },
            |pid| listed.contains(&pid) && own(pid),
        )
    }
}

/// The namespace of an owner that is a pod; empty if that is not known.
pub(super) fn namespace(named: &BTreeMap<PodUid, Named>, owner: &Owner) -> Option<Arc<str>> {
    let Owner::Pod { uid, .. } = owner else { return None };
    Some(named.get(uid).map_or_else(|| "".into(), |named| named.namespace.clone()))
}

/// Processes that had a context at the window's start or end.
pub(super) fn pids(window: &Window, part: &Part) -> BTreeSet<HostPid> {
    let now = part.processes.iter().flatten().map(|holder| holder.pid);
    now.chain(window.before.get(&part.mig).into_iter().flatten().copied()).collect()
}

/// Whether a device's engine counter reads next to nothing.
fn quiet(part: &Part, start: MonoNs, during: Interval) -> bool {
    let engine = part.engine.as_ref().and_then(|level| crate::level::average(level, start, during));
    engine.is_some_and(|ratio| ratio.parts() < Ppb::ONE.parts() / 1000)
}

/// How a GPU's time is divided before anybody's part of it: by compute slices in MIG mode.
fn slices(window: &Window) -> Vec<(Slice, u64)> {
    let gpu: &Gpu = &window.gpu;
    let Some(mig) = &gpu.mig else { return vec![(Slice::Device(None), 1)] };
    let mut slices: Vec<(Slice, u64)> = mig
        .instances
        .iter()
        .map(|instance| (Slice::Device(Some(instance.id.clone())), u64::from(instance.slices)))
        .collect();
    let taken: u64 = slices.iter().map(|(_, weight)| weight).sum();
    let left = u64::from(mig.slices).saturating_sub(taken);
    let creatable = left.min(u64::from(mig.creatable_slices));
    slices.push((Slice::Unallocated, creatable));
    slices.push((Slice::Unallocatable, left - creatable));
    if slices.iter().all(|(_, weight)| *weight == 0) {
        // The driver said nothing of slices: the time is nobody's, not lost.
        slices.push((Slice::Unallocated, 1));
    }
    slices
}
