//! Processes over time: whose was a pid during a window?

use std::collections::BTreeMap;

use crate::fact::{Opened, Process};
use crate::identity::{ContainerId, HostPid, Owner, PodUid, ProcessId, Scope};
use crate::time::{Interval, MonoNs, SECOND};

/// How long ended processes are remembered: longer than any window waits.
const REMEMBER: u64 = 30 * SECOND;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    process: Process,
    seen: MonoNs,
    gone: Option<MonoNs>,
}

/// What is known of processes, now and in the recent past.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    by_pid: BTreeMap<HostPid, Vec<Entry>>,
}

impl Roster {
    /// A process exists, or what is known of it changed. Another process with the same pid has ended.
    pub fn seen(&mut self, process: Process, at: MonoNs) {
        let entries = self.by_pid.entry(process.id.pid).or_default();
        for entry in &mut *entries {
            if entry.process.id == process.id {
                *entry = Entry { process, seen: entry.seen, gone: None };
                return;
            }
        }
        for entry in &mut *entries {
            entry.gone.get_or_insert(at.min(process.id.start));
        }
        entries.push(Entry { process, seen: at, gone: None });
    }

    /// A process has ended.
    pub fn gone(&mut self, id: ProcessId, at: MonoNs) {
        let entries = self.by_pid.get_mut(&id.pid).into_iter().flatten();
        for entry in entries.filter(|entry| entry.process.id == id) {
            entry.gone.get_or_insert(at);
        }
    }

    /// Forgets processes that ended long before `now`.
    pub fn forget(&mut self, now: MonoNs) {
        self.by_pid.retain(|_, entries| {
            entries.retain(|entry| entry.gone.is_none_or(|gone| now.since(gone) < REMEMBER));
            !entries.is_empty()
        });
    }

    /// The process that had `pid` during `during`: the one that started last, of those that lived in it.
    pub fn find(&self, pid: HostPid, during: Interval) -> Option<&Process> {
        self.by_pid
            .get(&pid)?
            .iter()
            .filter(|entry| entry.process.id.start < during.end())
            .filter(|entry| entry.gone.is_none_or(|gone| gone >= during.start()))
            .max_by_key(|entry| entry.process.id.start)
            .map(|entry| &entry.process)
    }

    /// How many nanoseconds of `during` the process lived that [`Roster::find`] gives.
    pub fn lived(&self, pid: HostPid, during: Interval) -> u64 {
        let entries = self.by_pid.get(&pid).into_iter().flatten();
        let lives = entries.filter_map(|entry| {
            let life = Interval::new(entry.process.id.start, entry.gone.unwrap_or(during.end()))?;
            Some((entry.process.id.start, life.overlap(during)?.nanos()))
        });
        lives.max().map_or(0, |(_, nanos)| nanos)
    }

    /// The processes that lived in some of `during`.
    pub fn during(&self, during: Interval) -> impl Iterator<Item = &Process> {
        let lived = move |entry: &&Entry| {
            entry.process.id.start < during.end() && entry.gone.is_none_or(|gone| gone >= during.start())
        };
        self.by_pid.values().flatten().filter(lived).map(|entry| &entry.process)
    }

    /// Live processes.
    pub fn alive(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values().flatten().filter(|entry| entry.gone.is_none()).map(|entry| &entry.process)
    }

    /// What live processes of `owner` have of the GPU with minor number `minor` open: the most of any of them.
    /// None if there is no such process, or one could not be looked at and the others have nothing open.
    pub fn opened(&self, owner: &Owner, containers: &Containers, minor: Option<u32>) -> Option<bool> {
        let mut unknown = false;
        for process in self.alive().filter(|process| belongs(&process.scope, owner, containers)) {
            match &process.opened {
                None => unknown = true,
                Some(Opened { control, minors, .. }) => {
                    // Without a minor number any GPU's file will do; a control file alone is on its way to one.
                    let open = minor.map_or(!minors.is_empty(), |minor| minors.contains(&minor));
                    if open || (*control && minors.is_empty()) {
                        return Some(true);
                    }
                }
            }
        }
        if unknown { None } else { Some(false) }
    }
}

/// Names of the containers that are known, by pod and identifier.
pub type Containers = BTreeMap<(PodUid, ContainerId), std::sync::Arc<str>>;

/// Whether a process in `scope` is `owner`'s. A process in a pod's own cgroup, or in a container whose name is
/// not known, may be any container's of the pod.
pub fn belongs(scope: &Scope, owner: &Owner, containers: &Containers) -> bool {
    match (scope, owner) {
        (Scope::Pod { uid, container: id }, Owner::Pod { uid: owner, container: name }) => {
            uid == owner
                && id
                    .as_ref()
                    .and_then(|id| containers.get(&(uid.clone(), id.clone())))
                    .is_none_or(|known| known == name)
        }
        (Scope::Container(a), Owner::Container(b)) => a == b,
        (Scope::SlurmJob(a), Owner::SlurmJob(b)) | (Scope::Unit(a), Owner::Unit(b)) => a == b,
        (Scope::Host, Owner::Host) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, start: u64, unit: &str) -> Process {
        Process {
            id: ProcessId { pid: HostPid(pid), start: MonoNs(start) },
            scope: Scope::Unit(unit.into()),
            opened: Some(Opened::default()),
            mps: None,
            name: None,
        }
    }

    fn during(start: u64, end: u64) -> Interval {
        Interval::new(MonoNs(start), MonoNs(end)).unwrap()
    }

    #[test]
    fn a_reused_pid_is_each_owners_in_its_own_time() {
        let mut roster = Roster::default();
        roster.seen(process(7, 10, "a"), MonoNs(20));
        roster.seen(process(7, 50, "b"), MonoNs(60));
        let unit =
            |start, end| roster.find(HostPid(7), during(start, end)).map(|process| process.scope.clone());
        assert_eq!(unit(20, 30), Some(Scope::Unit("a".into())));
        assert_eq!(unit(60, 70), Some(Scope::Unit("b".into())));
        assert_eq!(unit(5, 9), None);
        assert_eq!(unit(45, 55), Some(Scope::Unit("b".into())), "the later one, if both lived in it");
    }

    #[test]
    fn a_process_that_ended_in_a_window_is_still_found_for_it() {
        let mut roster = Roster::default();
        roster.seen(process(7, 10, "a"), MonoNs(20));
        roster.gone(ProcessId { pid: HostPid(7), start: MonoNs(10) }, MonoNs(40));
        assert!(roster.find(HostPid(7), during(30, 60)).is_some());
        assert!(roster.find(HostPid(7), during(41, 60)).is_none());
        roster.forget(MonoNs(41 + REMEMBER));
        assert!(roster.find(HostPid(7), during(30, 60)).is_none());
    }
}
