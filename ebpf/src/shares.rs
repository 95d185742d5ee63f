//! How many threads of a workload are followed, so that one workload's threads leave room for the others'.

use std::collections::{BTreeMap, HashMap, HashSet};

use warpmeter_core::identity::Scope;
use warpmeter_ebpf_common::{Task, task};

/// The most threads of a workload that are followed: a quarter of what the kernel programs have room for.
const THREADS: usize = 4096;
/// The most of them that may call the driver. Such a thread is always taken in, so with more nothing else is left than
/// to let go of the workload.
const CALLERS: usize = THREADS / 2;

/// Workloads with too many threads.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    crowded: HashSet<Scope>,
    excluded: HashSet<Scope>,
}

impl Shares {
    /// Which threads are to be let go of. `workload` says whose a process is.
    pub(crate) fn judge(
        &mut self,
        tasks: &[(u32, Task)],
        mut workload: impl FnMut(u32) -> Option<Scope>,
    ) -> HashSet<u32> {
        let mut processes: BTreeMap<u32, Vec<(bool, u32)>> = BTreeMap::new();
        for (tid, record) in tasks {
            let quiet = record.flags & task::CALLER == 0;
            processes.entry(record.tgid).or_default().push((quiet, *tid));
        }
        let mut workloads: HashMap<Scope, Vec<(bool, u32)>> = HashMap::new();
        for (tgid, threads) in processes {
            // One that cannot be told has ended.
            if let Some(workload) = workload(tgid) {
                workloads.entry(workload).or_default().extend(threads);
            }
        }
        let few = |of: &Scope| workloads.get(of).is_none_or(|threads| threads.len() < THREADS / 2);
        self.crowded.retain(|of| !few(of));
        let mut surplus = HashSet::new();
        for (of, mut threads) in workloads {
            if self.excluded.contains(&of) {
                surplus.extend(threads.iter().map(|(_, tid)| *tid));
                continue;
            }
            if threads.len() <= THREADS {
                continue;
            }
            let callers = threads.iter().filter(|(quiet, _)| !quiet).count();
            let most = if callers > CALLERS { 0 } else { THREADS };
            // Those that call the driver stay, and the oldest of the others, as far as numbers show that.
            threads.sort_unstable();
            surplus.extend(threads.iter().skip(most).map(|(_, tid)| *tid));
            if most == 0 {
                self.excluded.insert(of);
            } else {
                self.crowded.insert(of);
            }
        }
        surplus
    }

    /// Whether no more threads of a workload are followed but those that call the driver.
    pub(crate) fn is_crowded(&self, of: Option<&Scope>) -> bool {
        of.is_some_and(|of| self.crowded.contains(of) || self.excluded.contains(of))
    }

    /// Whether a workload is let go of.
    pub(crate) fn excludes(&self, of: Option<&Scope>) -> bool {
        of.is_some_and(|of| self.excluded.contains(of))
    }

    /// Forgets workloads of which nothing is left.
    pub(crate) fn keep(&mut self, live: impl Fn(&Scope) -> bool) {
        self.excluded.retain(live);
    }

    /// What is wrong, in words.
    pub(crate) fn problems(&self) -> Vec<String> {
        let name = crate::words::workload;
        let crowded = self.crowded.iter().map(|of| {
            format!("{} has more than {THREADS} threads: what the others do is not known", name(of))
        });
        let excluded = self
            .excluded
            .iter()
            .map(|of| format!("{} calls by more than {CALLERS} threads, and so is not probed", name(of)));
        let mut all: Vec<String> = crowded.chain(excluded).collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sys::zero;

    fn threads(tgid: u32, tids: std::ops::Range<u32>, flags: u32) -> Vec<(u32, Task)> {
        tids.map(|tid| (tid, Task { tgid, flags, ..zero() })).collect()
    }

    fn workload(tgid: u32) -> Scope {
        Scope::Unit(Arc::from(format!("w{}", tgid / 100)))
    }

    #[test]
    fn a_workload_keeps_its_share_of_threads_and_those_that_call_first() {
        let mut shares = Shares::default();
        // Two processes of one workload, and one of another.
        let mut tasks = threads(100, 10_000..14_000, 0);
        tasks.extend(threads(101, 20_000..20_100, task::CALLER));
        tasks.extend(threads(101, 20_100..21_000, 0));
        tasks.extend(threads(200, 30_000..34_000, 0));
        let surplus = shares.judge(&tasks, |tgid| Some(workload(tgid)));
        assert_eq!(surplus.len(), 5000 - THREADS);
        assert!(
            surplus.iter().all(|tid| (13_996..14_000).contains(tid) || *tid >= 20_100),
            "callers and the oldest stay"
        );
        assert!(shares.is_crowded(Some(&workload(100))) && !shares.is_crowded(Some(&workload(200))));
        assert!(!shares.excludes(Some(&workload(100))));
        shares.judge(&threads(100, 10_000..13_000, 0), |tgid| Some(workload(tgid)));
        assert!(shares.is_crowded(Some(&workload(100))), "until half of it is gone");
        shares.judge(&threads(100, 10_000..11_000, 0), |tgid| Some(workload(tgid)));
        assert!(!shares.is_crowded(Some(&workload(100))) && shares.problems().is_empty());
    }

    #[test]
    fn a_workload_whose_callers_alone_are_too_many_is_let_go_of_as_long_as_it_lives() {
        let mut shares = Shares::default();
        let tasks = threads(100, 10_000..15_000, task::CALLER);
        assert_eq!(shares.judge(&tasks, |tgid| Some(workload(tgid))).len(), 5000);
        assert!(shares.excludes(Some(&workload(100))));
        assert_eq!(shares.judge(&threads(100, 1..2, 0), |tgid| Some(workload(tgid))).len(), 1);
        shares.keep(|_| false);
        assert!(shares.judge(&threads(100, 1..2, 0), |tgid| Some(workload(tgid))).is_empty());
    }
}
