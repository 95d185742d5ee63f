//! Whose threads are sampled: processes that use a GPU, and all others of their workloads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags};
use warpmeter_core::identity::{GpuId, PodUid, ProcessId, Scope};
use warpmeter_core::probe::{Doings, Probes, Sampled, Threads};
use warpmeter_core::time::{Interval, SECOND};
use warpmeter_ebpf::Order;

use super::member::{Eyes, Member};
use crate::host::{Lookup, is_workload};

/// The most processes that are watched: each takes a descriptor.
const PROCESSES: usize = 512;
/// The most processes of a machine that are looked up.
const LISTED: usize = 1 << 16;
/// How often all processes are listed for those of the workloads.
const LIST: u64 = 5 * SECOND;
/// How long what is known of a process is believed; a young one may not be in its place yet.
const TRUST: u64 = 30 * SECOND;
/// How long a process is young.
const YOUNG: u64 = 10 * SECOND;
/// The most threads that are looked at in one sample; beyond that workloads take turns, an interval each. About
/// 5 µs each.
const LIVELY: usize = 64;

#[derive(Debug)]
struct Known {
    id: ProcessId,
    scope: Scope,
    first: u64,
    checked: u64,
}

/// The processes.
#[derive(Debug)]
pub(super) struct Crowd {
    pub eyes: Eyes,
    /// How many workloads are sampled in this interval, and how many there are.
    pub turn: (usize, usize),
    proc: PathBuf,
    lookup: Lookup,
    holders: BTreeMap<GpuId, Vec<u32>>,
    refusals: BTreeSet<PodUid>,
    members: BTreeMap<u32, Member>,
    known: HashMap<u32, Known>,
    listed: Option<u64>,
    /// Workloads that use a GPU.
    workloads: BTreeSet<Scope>,
    /// The workload that was the last to have its turn.
    last: Option<Scope>,
}

impl Crowd {
    pub(super) fn new(proc: PathBuf, lookup: Lookup) -> Self {
        Self {
            eyes: Eyes::new(),
            turn: (0, 0),
            proc,
            lookup,
            holders: BTreeMap::new(),
            refusals: BTreeSet::new(),
            members: BTreeMap::new(),
            known: HashMap::new(),
            listed: None,
            workloads: BTreeSet::new(),
            last: None,
        }
    }

    /// Takes in what the daemon knows.
    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Holders(gpu, pids) => {
                self.holders.insert(gpu, pids);
            }
            Order::Refusals(pods) => self.refusals = pods.into_iter().collect(),
            // A process is sampled once the driver says which device it holds, and that is all there is to know of it.
            Order::Look(_) | Order::Instances(_) => {}
        }
    }

    /// Takes a sample of all whose turn it is.
    pub(super) fn sample(&mut self) {
        self.eyes.files.begin();
        for member in self.members.values_mut().filter(|member| member.watched) {
            member.sample(&mut self.eyes);
        }
    }

    /// Ends an interval: what was seen in it.
    pub(super) fn account(&mut self, during: Interval) -> Probes {
        self.eyes.files.begin();
        let mut threads: BTreeMap<Scope, (Doings, Doings)> = BTreeMap::new();
        let mut sampled = Vec::new();
        let eyes = &mut self.eyes;
        self.members.retain(|_, member| {
            let Some(account) = member.account(during.nanos(), eyes) else { return false };
            let (callers, others) = threads.entry(member.scope.clone()).or_default();
            let sums = if member.uses { callers } else { others };
            for (sum, more) in sums.iter_mut().zip(account.threads) {
                *sum = sum.saturating_add(more);
            }
            if let Some((doings, samples)) = account.whole.filter(|_| member.uses) {
                sampled.push(Sampled { process: member.id, samples, doings });
            }
            true
        });
        sampled.sort_unstable();
        let threads = threads
            .into_iter()
            .map(|(scope, (callers, others))| Threads { scope, callers, others })
            .collect();
        Probes { threads, sampled, ..Probes::of_nothing(during) }
    }

    /// Finds out who is to be watched in the next interval.
    pub(super) fn gather(&mut self, now: u64) {
        let users: BTreeSet<u32> = self.holders.values().flatten().copied().collect();
        let mut workloads = BTreeSet::new();
        let mut wanted = BTreeSet::new();
        for pid in users {
            let Some((id, scope)) = self.look_up(pid, now) else { continue };
            if is_workload(&scope) {
                workloads.insert(whole(&scope));
            }
            wanted.insert(pid);
            self.watch(pid, id, scope, true);
        }
        let fresh = !workloads.is_subset(&self.workloads);
        let due = fresh || self.listed.is_none_or(|listed| now.saturating_sub(listed) >= LIST);
        if due && !workloads.is_empty() {
            self.listed = Some(now);
            let pids = self.list();
            let exist: BTreeSet<u32> = pids.iter().copied().collect();
            self.known.retain(|pid, _| exist.contains(pid));
            for pid in pids {
                let Some((id, scope)) = self.look_up(pid, now).filter(|_| !wanted.contains(&pid)) else {
                    continue;
                };
                if workloads.contains(&whole(&scope)) {
                    self.watch(pid, id, scope, false);
                }
            }
        }
        let refusals = &self.refusals;
        self.members.retain(|pid, member| {
            let refused = matches!(&member.scope, Scope::Pod { uid, .. } if refusals.contains(uid));
            let concerns =
                if member.uses { wanted.contains(pid) } else { workloads.contains(&whole(&member.scope)) };
            concerns && !refused
        });
        if self.listed.is_some_and(|listed| listed == now) {
            self.eyes.files.forget();
        }
        self.workloads = workloads;
        self.take_turns();
    }

    fn watch(&mut self, pid: u32, id: ProcessId, scope: Scope, uses: bool) {
        if let Some(member) = self.members.get_mut(&pid)
            && (member.id, &member.scope) == (id, &scope)
        {
            member.uses = uses;
            return;
        }
        self.members.remove(&pid);
        if self.members.len() < PROCESSES
            && let Some(member) = Member::open(&self.proc, id, scope, uses)
        {
            self.members.insert(pid, member);
        }
    }

    /// Settles who is sampled in the next interval: all, or as many workloads as are not too much.
    fn take_turns(&mut self) {
        let mut sizes: BTreeMap<Scope, usize> = BTreeMap::new();
        for member in self.members.values() {
            *sizes.entry(whole(&member.scope)).or_default() += member.lively();
        }
        let after = |scope: &Scope| self.last.as_ref().is_some_and(|last| scope > last);
        let order: Vec<Scope> =
            sizes.keys().filter(|s| after(s)).chain(sizes.keys().filter(|s| !after(s))).cloned().collect();
        let (mut chosen, mut size) = (BTreeSet::new(), 0);
        for scope in order {
            size += sizes.get(&scope).copied().unwrap_or(0);
            if size > LIVELY && !chosen.is_empty() {
                break;
            }
            self.last = Some(scope.clone());
            chosen.insert(scope);
        }
        self.turn = (chosen.len(), sizes.len());
        for member in self.members.values_mut() {
            member.watched = chosen.contains(&whole(&member.scope));
        }
    }

    fn look_up(&mut self, pid: u32, now: u64) -> Option<(ProcessId, Scope)> {
        let known = self.known.get(&pid).filter(|known| {
            let young = now.saturating_sub(known.first) < YOUNG;
            !young && now.saturating_sub(known.checked) < TRUST
        });
        if let Some(known) = known {
            return Some((known.id, known.scope.clone()));
        }
        let (id, scope) = self.lookup.process(pid)?;
        let first = self.known.get(&pid).filter(|known| known.id == id).map_or(now, |known| known.first);
        self.known.insert(pid, Known { id, scope: scope.clone(), first, checked: now });
        Some((id, scope))
    }

    fn list(&mut self) -> Vec<u32> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root: Result<OwnedFd, _> = rustix::fs::openat(CWD, &self.proc, flags, Mode::empty());
        root.ok().and_then(|root| self.eyes.numbers(&root, LISTED).ok()).unwrap_or_default()
    }
}

/// A scope without the container: the threads of a whole pod feed its devices.
fn whole(scope: &Scope) -> Scope {
    match scope {
        Scope::Pod { uid, .. } => Scope::Pod { uid: uid.clone(), container: None },
        other => other.clone(),
    }
}
