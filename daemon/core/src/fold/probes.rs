//! What the probes saw, until the windows that it concerns are closed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::Fold;
use crate::allocate::{Gpus, Held, resolve};
use crate::explain::{Caller, Who};
use crate::fact::DeviceRef;
use crate::identity::{DeviceId, HostPid, Owner, PodUid, ProcessId, Scope};
use crate::inventory::Link;
use crate::probe::{self, Asked, Calls, Doings, Gap, GapKind, Probes, Waits};
use crate::roster::Roster;
use crate::stall::Host;
use crate::time::{Interval, MonoNs, SECOND};

/// How long a window waits for the snapshot that covers its end.
const GRACE: u64 = 2 * SECOND;
/// After so long without a snapshot none is expected any more.
const LOST: u64 = 5 * SECOND;

/// Snapshots of the recent past.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    kept: VecDeque<Probes>,
    until: Option<MonoNs>,
}

/// What the probes saw of one owner on one device in a stretch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// For the causes of what it did not use.
    pub host: Host,
    /// Whether every process was watched from its first call on.
    pub from_start: bool,
    /// Whether any has ever enqueued anything, as far as it was watched.
    pub enqueued: bool,
    /// Kernels and graphs launched.
    pub launches: u64,
    /// Nanoseconds since the last call of any of them at the end of the stretch; none before the first call.
    pub quiet: Option<u64>,
    /// What each of its processes did between its calls.
    pub callers: BTreeMap<ProcessId, Caller>,
    processes: BTreeSet<HostPid>,
    /// How long each waited in synchronising calls.
    waits: BTreeMap<HostPid, u64>,
}

impl Fold {
    /// Books what can be booked at once, and keeps the rest for the windows.
    pub(super) fn probed(&mut self, probes: &Probes) {
        let gpus: Gpus = self.gpus.iter().map(|(id, state)| (id.clone(), Arc::clone(&state.gpu))).collect();
        let held = self.holdings.back().map(|(_, held)| Arc::clone(held)).unwrap_or_default();
        for calls in &probes.calls {
            let named = calls.device.as_ref().and_then(|named| resolve(named, &gpus));
            let process = self.roster.find(calls.process.pid, probes.during);
            if let (Some(named), Some(process)) = (named, process) {
                let owner = self.owner(process, held.get(&named));
                if let Some(device) = instance_of(named, &owner, &gpus, &held) {
                    self.ledger.post_calls(&owner, &device, calls);
                }
            }
        }
        for threads in &probes.threads {
            if let Scope::Pod { uid, .. } = &threads.scope {
                self.threads.entry(uid.clone()).or_default().add(threads);
            }
        }
        self.explain_waits(probes);
        self.snapshots.push(probes.clone());
    }
}

impl Fold {
    /// Keeps who waited for whom, by the pod that waited.
    fn explain_waits(&mut self, probes: &Probes) {
        let mut by_pod: BTreeMap<&PodUid, Vec<Waits>> = BTreeMap::new();
        for waits in &probes.waits {
            let sleeper = self.roster.find(waits.sleeper.pid, probes.during);
            if let Some(Scope::Pod { uid, .. }) = sleeper.map(|process| &process.scope) {
                by_pod.entry(uid).or_default().push(waits.clone());
            }
        }
        let during = probes.during;
        for (uid, waits) in by_pod {
            let who = |process: ProcessId| who(&self.roster, process.pid, during, uid);
            self.explanations.entry(uid.clone()).or_default().note_waits(during.end(), waits, who);
        }
    }
}

impl Snapshots {
    /// Keeps a snapshot.
    pub(super) fn push(&mut self, probes: Probes) {
        self.until = self.until.max(Some(probes.during.end()));
        self.kept.push_back(probes);
    }

    /// Forgets what ended before `open`.
    pub(super) fn forget(&mut self, open: MonoNs) {
        self.kept.retain(|probes| probes.during.end() > open);
    }

    /// The snapshots that have something of `during`, and what of it.
    pub(super) fn of(&self, during: Interval) -> impl Iterator<Item = (&Probes, Interval)> {
        self.kept.iter().filter_map(move |probes| Some((probes, probes.during.overlap(during)?)))
    }

    /// Whether any snapshot has something of `during`.
    pub(super) fn cover(&self, during: Interval) -> bool {
        self.kept.iter().any(|probes| probes.during.overlap(during).is_some())
    }

    /// For how long of `during` the calls of processes were watched. Samples that stand in for that show no calls.
    pub(super) fn watched(&self, during: Interval) -> u64 {
        let watching = self.kept.iter().filter(|probes| probes.sampled.is_empty());
        watching.filter_map(|probes| probes.during.overlap(during)).map(Interval::nanos).sum()
    }

    /// Whether a window that ended at `end` should wait for a snapshot that covers it.
    pub(super) fn awaited(&self, end: MonoNs, watermark: MonoNs) -> bool {
        self.until
            .is_some_and(|until| until < end && watermark.since(until) < LOST && watermark.since(end) < GRACE)
    }

    /// What was seen of the calls that `of` accepts and sampled of the processes that `whose` does; nothing if there
    /// were none of either.
    pub(super) fn seen(
        &self,
        during: Interval,
        link: Option<Link>,
        feeders_of: impl Fn(&Scope) -> bool,
        of: impl Fn(&Calls) -> bool,
        whose: impl Fn(HostPid) -> bool,
    ) -> Option<Seen> {
        let mut seen = Seen { from_start: true, ..Seen::default() };
        seen.host.followed = true;
        let (mut moved, mut most) = (0_u64, 0_u64);
        for probes in &self.kept {
            let Some(overlap) = probes.during.overlap(during) else { continue };
            seen.host.followed &= probes.followed;
            let part = |amount: u64| scaled(amount, overlap.nanos(), probes.during.nanos());
            for calls in probes.calls.iter().filter(|calls| of(calls)) {
                seen.take(calls, during, part);
                moved = moved.saturating_add(moved_bytes(&calls.asked, part));
                most = most.saturating_add(part(calls.asked.copies_most));
                seen.host.copying = seen.host.copying.saturating_add(part(calls.asked.copies_least));
            }
            for waits in probes.waits.iter().filter(|waits| seen.processes.contains(&waits.sleeper.pid)) {
                add(&mut seen.host.passed, waits.doings, part);
            }
            for sampled in probes.sampled.iter().filter(|sampled| whose(sampled.process.pid)) {
                seen.from_start = false;
                seen.processes.insert(sampled.process.pid);
                let caller = seen.callers.entry(sampled.process).or_insert(Caller::new(sampled.process));
                add(&mut caller.between, sampled.doings, part);
                seen.host.samples = seen.host.samples.saturating_add(part(sampled.samples));
                add(&mut seen.host.sampled, sampled.doings, part);
            }
            for threads in probes.threads.iter().filter(|threads| feeders_of(&threads.scope)) {
                add(&mut seen.host.feeders, threads.others, part);
                add(&mut seen.host.callers, threads.callers, part);
            }
        }
        seen.host.alone = seen.processes.len() == 1;
        seen.host.waited = seen.waits.values().copied().max().unwrap_or(0);
        seen.host.copies = most.max(on_link(link, moved)).min(during.nanos());
        (!seen.processes.is_empty()).then_some(seen)
    }
}

impl Seen {
    fn take(&mut self, calls: &Calls, during: Interval, part: impl Fn(u64) -> u64) {
        self.processes.insert(calls.process.pid);
        let caller = self.callers.entry(calls.process).or_insert(Caller::new(calls.process));
        self.from_start &= calls.from_start;
        self.host.shed |= calls.shed;
        self.enqueued |= calls.enqueued > 0;
        self.launches = self
            .launches
            .saturating_add(part(calls.asked.launches.saturating_add(calls.asked.graph_launches)));
        if let Some(last) = calls.last_call {
            let quiet = during.end().since(last);
            self.quiet = Some(self.quiet.map_or(quiet, |other| other.min(quiet)));
        }
        for gap in &calls.gaps {
            let (total, doings) = (part(gap.total), gap.doings.map(&part));
            if gap.kind == GapKind::Sync {
                let waited = self.waits.entry(calls.process.pid).or_default();
                *waited = waited.saturating_add(total);
                caller.within = caller.within.saturating_add(total);
            } else {
                probe::add(&mut caller.between, &doings);
            }
            // A count is that of gaps which begin, wherever in the snapshot they did.
            self.host.gaps.push(Gap { count: part(gap.count), total, doings, ..*gap });
        }
    }
}

fn add(sums: &mut Doings, doings: Doings, part: impl Fn(u64) -> u64) {
    probe::add(sums, &doings.map(part));
}

/// Who had `pid` then, as far as it concerns `pod`.
pub(super) fn who(roster: &Roster, pid: HostPid, during: Interval, pod: &PodUid) -> Who {
    let process = roster.find(pid, during);
    let own = process.is_some_and(|process| matches!(&process.scope, Scope::Pod { uid, .. } if uid == pod));
    Who { name: process.and_then(|process| process.name.clone()), own }
}

/// What copies move over the link, in bytes, of a part of what was asked.
pub(super) fn moved_bytes(asked: &Asked, part: impl Fn(u64) -> u64) -> u64 {
    part(asked.bytes_to_device.saturating_add(asked.bytes_to_host))
}

/// For how long so many bytes would be on a link that nobody else uses, in nanoseconds.
pub(super) fn on_link(link: Option<Link>, bytes: u64) -> u64 {
    link.unwrap_or(Link::ASSUMED).nanos(bytes)
}

/// `amount × part ÷ whole`, rounded to the nearest.
pub(super) fn scaled(amount: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(amount) * u128::from(part) + u128::from(whole / 2);
    u64::try_from(product / u128::from(whole)).unwrap_or(u64::MAX)
}

/// Whether processes in `scope` are `owner`'s, whatever container they are in: the threads of a whole pod feed it.
pub(super) fn feeds(scope: &Scope, owner: &Owner) -> bool {
    match (scope, owner) {
        (Scope::Pod { uid, .. }, Owner::Pod { uid: owner, .. }) => uid == owner,
        (Scope::Container(a), Owner::Container(b)) => a == b,
        (Scope::SlurmJob(a), Owner::SlurmJob(b)) | (Scope::Unit(a), Owner::Unit(b)) => a == b,
        (Scope::Host, Owner::Host) => true,
        _ => false,
    }
}

/// `named`, or if that is a GPU in MIG mode, the one instance of it that `owner` holds.
pub(super) fn instance_of(
    named: DeviceId,
    owner: &Owner,
    gpus: &Gpus,
    held: &BTreeMap<DeviceId, Held>,
) -> Option<DeviceId> {
    if named.mig.is_some() || gpus.get(&named.gpu).is_none_or(|gpu| gpu.mig.is_none()) {
        return Some(named);
    }
    let holds = |held: &Held| held.holders.iter().any(|(holder, _)| holder == owner);
    let mut instances =
        held.iter().filter(|(device, held)| device.gpu == named.gpu && holds(held)).map(|(device, _)| device);
    let only = instances.next()?;
    instances.next().is_none().then(|| only.clone())
}

/// Whether `device` is the one that calls name, or that the driver lists their process on.
pub(super) fn is_on(
    named: Option<&DeviceRef>,
    device: &DeviceId,
    resolved: Option<&DeviceId>,
    listed: bool,
) -> bool {
    match (named, resolved) {
        // A process that asks by the parent's name is on the instance that the driver lists it on.
        (Some(_), Some(named)) => {
            named == device || (listed && named.mig.is_none() && named.gpu == device.gpu)
        }
        (Some(_), None) => false,
        (None, _) => listed,
    }
}
