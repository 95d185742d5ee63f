//! Keeps probes from costing a workload more than they are worth.

use std::collections::{HashMap, HashSet};

use warpmeter_ebpf_common::{Process, Task, kind, task};

use crate::libraries::Wish;

/// Calls by [`kind`].
pub(crate) type Counts = [u64; kind::COUNT];

/// What the probes of a call cost, in nanoseconds, where the kernel emulates the probed instruction, and where it has
/// to execute it out of line. The larger figures that were measured for a launch, a synchronisation and an event
/// record, see `docs/overhead.md`. A question is probed at its end too, as a wait is, and is taken to cost the same.
const COSTS: Counts = [800, 950, 950, 720];
const DEAR: Counts = [10_500, 21_000, 21_000, 10_500];
/// One part in so many of a calling thread's time may go to its probes.
const SHARE: u64 = 100;
/// For so many snapshots in a row it may be more: a start, a burst.
const PATIENCE: u32 = 3;

/// What one process has called.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    calls: Counts,
    over: u32,
}

/// Judges processes.
#[derive(Debug, Default)]
pub(crate) struct Governor {
    loads: HashMap<u32, Load>,
    threads: HashMap<u32, u64>,
}

impl Governor {
    /// By process, how many calls of each kind it has made, and how many of its threads made any since the last time.
    pub(crate) fn count(
        &mut self,
        tasks: &[(u32, Task)],
        processes: &[(u32, Process)],
    ) -> HashMap<u32, (Counts, u64)> {
        let mut found: HashMap<u32, (Counts, u64)> = HashMap::new();
        for (tgid, record) in processes {
            found.insert(*tgid, (record.calls, 0));
        }
        let calling = |record: &Task| record.flags & task::CALLER != 0 && !record.has_ended();
        for (tid, record) in tasks.iter().filter(|(_, record)| calling(record)) {
            let (calls, threads) = found.entry(record.tgid).or_default();
            plus(calls, &record.calls);
            let all = sum(&record.calls);
            *threads += u64::from(self.threads.insert(*tid, all) != Some(all));
        }
        let alive: HashSet<u32> = tasks.iter().map(|(tid, _)| *tid).collect();
        self.threads.retain(|tid, _| alive.contains(tid));
        found.retain(|_, (calls, _)| sum(calls) > 0);
        found
    }

    /// What of a process is to be probed. `calls` is what it made since it is watched, by `threads` threads in the last
    /// `elapsed` nanoseconds. What is not probed is not counted either, so that what is left is judged by itself. Also for
    /// how many nanoseconds it is to be let alone until what the probes have cost is no more than their share.
    pub(crate) fn judge(
        &mut self,
        tgid: u32,
        calls: Counts,
        threads: u64,
        elapsed: u64,
        dear: bool,
    ) -> (Wish, u64) {
        let load = self.loads.entry(tgid).or_default();
        let mut costs = Counts::default();
        for (at, cost) in costs.iter_mut().enumerate() {
            let each = if dear { DEAR } else { COSTS };
            *cost = calls[at].saturating_sub(load.calls[at]).saturating_mul(each[at]);
        }
        let first = sum(&load.calls) == 0;
        load.calls = calls;
        let allowed = elapsed.saturating_mul(threads.max(1)) / SHARE;
        load.over = if sum(&costs) > allowed && !first { load.over.saturating_add(1) } else { 0 };
        if load.over < PATIENCE {
            return (Wish::All, 0);
        }
        // Probed for as long again after that, and for the one time that is not judged.
        let cost = sum(&costs).saturating_mul(u64::from(PATIENCE) + 1);
        let alone = cost.saturating_mul(SHARE) / threads.max(1);
        // Without questions nothing is wrong, only less is known; without enqueues all else means nothing.
        for (kind, wish) in [(kind::QUERY, Wish::NoQuestions), (kind::ENQUEUE, Wish::Few)] {
            costs[kind] = 0;
            if sum(&costs) <= allowed {
                return (wish, alone);
            }
        }
        (Wish::Nothing, alone)
    }

    pub(crate) fn forget(&mut self, tgid: u32) {
        self.loads.remove(&tgid);
    }
}

fn sum(of: &Counts) -> u64 {
    of.iter().fold(0, |sum, more| sum.saturating_add(*more))
}

fn plus(to: &mut Counts, more: &Counts) {
    for (sum, more) in to.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::zero;

    const SECOND: u64 = 1_000_000_000;

    /// What is left of a process that makes so many calls a second, and when that was decided.
    fn judged(per_second: Counts, threads: u64, dear: bool) -> (Wish, u64) {
        let mut governor = Governor::default();
        let found = (1..20).find_map(|second| {
            let (wish, _) = governor.judge(7, per_second.map(|calls| calls * second), threads, SECOND, dear);
            (wish != Wish::All).then_some((wish, second))
        });
        found.unwrap_or((Wish::All, 0))
    }

    fn of(kind: usize, calls: u64) -> Counts {
        let mut counts = Counts::default();
        counts[kind] = calls;
        counts
    }

    #[test]
    fn only_a_load_that_stays_too_dear_is_shed() {
        let launches = |count| of(kind::ENQUEUE, count);
        assert_eq!(judged(launches(12_400), 1, false).0, Wish::All, "just below a hundredth of its time");
        assert_eq!(judged(launches(12_600), 1, false), (Wish::Few, 4));
        assert_eq!(judged(launches(12_600), 2, false).0, Wish::All, "two threads share the cost");
        assert_eq!(judged(launches(1_000), 1, true), (Wish::Few, 4), "where each probe is dear");
    }

    #[test]
    fn every_kind_of_call_is_judged_and_what_is_dear_is_shed() {
        assert_eq!(judged(of(kind::QUERY, 1_000_000), 1, false), (Wish::NoQuestions, 4));
        assert_eq!(judged(of(kind::STATE, 1_000_000), 1, false), (Wish::Nothing, 4));
        assert_eq!(judged(of(kind::WAIT, 1_000_000), 1, false), (Wish::Nothing, 4));
        assert_eq!(
            judged([9_000, 1_000, 100_000, 100], 1, false).0,
            Wish::NoQuestions,
            "launches are worth it"
        );
        assert_eq!(judged([20_000, 1_000, 100_000, 100], 1, false).0, Wish::Few);
        assert_eq!(judged([4_000; kind::COUNT], 1, false).0, Wish::NoQuestions, "the sum counts");
    }

    #[test]
    fn what_is_dear_is_let_alone_until_its_probes_have_cost_no_more_than_their_share() {
        for (launches, threads, dear) in [(20_000, 1, false), (100_000, 3, false), (5_000, 1, true)] {
            let mut governor = Governor::default();
            let counts = |second| of(kind::ENQUEUE, launches * second);
            let judged = (1..20).map(|second| governor.judge(7, counts(second), threads, SECOND, dear));
            let (second, (_, alone)) = (1..).zip(judged).find(|(_, (wish, _))| *wish != Wish::All).unwrap();
            let cost = launches * if dear { DEAR } else { COSTS }[kind::ENQUEUE] * second;
            let share = cost * SHARE / threads;
            assert!(alone + second * SECOND >= share && alone <= share, "{alone} of {share}");
        }
    }

    #[test]
    fn a_burst_is_no_reason_to_shed() {
        let mut governor = Governor::default();
        let mut enqueued = 0;
        for second in 0..40 {
            enqueued += if second % 3 == 0 { 1_000 } else { 100_000 };
            let (wish, _) = governor.judge(7, of(kind::ENQUEUE, enqueued), 1, SECOND, false);
            assert_eq!(wish, Wish::All, "{second}");
        }
    }

    #[test]
    fn calls_of_threads_that_have_ended_count_and_only_threads_that_called_bear_the_cost() {
        let mut governor = Governor::default();
        let thread = |calls| Task { tgid: 7, flags: task::CALLER, calls, ..zero() };
        let process = Process { calls: [5, 0, 0, 1], ..zero() };
        let tasks = [(8, thread([1, 2, 3, 4])), (9, thread([1, 0, 0, 0])), (10, Task { tgid: 7, ..zero() })];
        let first = governor.count(&tasks, &[(7, process)]);
        assert_eq!(first[&7], ([7, 2, 3, 5], 2));
        let ends = Task { flags: task::CALLER | task::ENDED, ..thread([5, 0, 0, 1]) };
        let tasks = [(8, thread([2, 2, 3, 4])), (9, thread([1, 0, 0, 0])), (11, ends)];
        assert_eq!(governor.count(&tasks, &[(7, process)])[&7], ([8, 2, 3, 5], 1));
    }
}
