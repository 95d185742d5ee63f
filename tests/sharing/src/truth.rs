//! The truth of a run, from the simulator's log alone: whose work ran when, and who waited while another's did.

use std::collections::BTreeMap;

use crate::SECOND;
use crate::case::{Case, Whose};
use crate::run::{Busy, Launches, SECONDS};

/// One owner on one device in one second, in nanoseconds of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Second {
    /// Its part of the time in which the device ran: time in which several ran is divided among them.
    pub used: u64,
    /// Time in which it had work outstanding, none of which ran, and another owner's did.
    pub contended: u64,
}

/// By device and owner, its seconds.
pub type Truth = Vec<BTreeMap<Whose, Vec<Second>>>;

/// What changes for a process at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Busy(bool),
    Outstanding(bool),
}

/// Sums the log by device, owner and second.
pub fn truth(case: &Case, busy: &Busy) -> Truth {
    (0..busy.intervals.len()).map(|device| of_device(case, busy, device)).collect()
}

fn of_device(case: &Case, busy: &Busy, device: usize) -> BTreeMap<Whose, Vec<Second>> {
    let mut edges: Vec<(u64, usize, Change)> = Vec::new();
    for (process, start, end) in &busy.intervals[device] {
        edges.push((*start, *process, Change::Busy(true)));
        edges.push((*end, *process, Change::Busy(false)));
    }
    for Launches { process, kernels, ends } in &busy.launches[device] {
        for (start, end) in outstanding(&busy.intervals[device], *process, kernels, *ends) {
            edges.push((start, *process, Change::Outstanding(true)));
            edges.push((end, *process, Change::Outstanding(false)));
        }
    }
    edges.sort_unstable();
    let count = case.processes.len();
    let (mut runs, mut waits) = (vec![0_i32; count], vec![0_i32; count]);
    let mut sums: BTreeMap<Whose, Vec<Second>> = BTreeMap::new();
    for process in &case.processes {
        let on = process.programs.iter().any(|(on, _)| *on == device);
        if on {
            let seconds = usize::try_from(SECONDS).unwrap();
            sums.entry(process.whose).or_insert_with(|| vec![Second::default(); seconds]);
        }
    }
    let mut now = 0;
    for (at, process, change) in edges {
        while now < at {
            let until = at.min((now / SECOND + 1) * SECOND);
            if let Ok(second) = usize::try_from(now / SECOND) {
                add(case, &runs, &waits, second, until - now, &mut sums);
            }
            now = until;
        }
        match change {
            Change::Busy(on) => runs[process] += if on { 1 } else { -1 },
            Change::Outstanding(on) => waits[process] += if on { 1 } else { -1 },
        }
    }
    sums
}

/// Adds `nanos` in which nothing changes.
fn add(
    case: &Case,
    runs: &[i32],
    waits: &[i32],
    second: usize,
    nanos: u64,
    sums: &mut BTreeMap<Whose, Vec<Second>>,
) {
    let weight = |process: usize| u64::from(case.processes[process].threads.unwrap_or(100));
    let running: Vec<usize> = (0..runs.len()).filter(|process| runs[*process] > 0).collect();
    let all: u64 = running.iter().map(|process| weight(*process)).sum();
    for (whose, seconds) in sums.iter_mut() {
        let Some(sum) = seconds.get_mut(second) else { continue };
        let is = |process: &usize| case.processes[*process].whose == *whose;
        let own: u64 = running.iter().filter(|process| is(process)).map(|process| weight(*process)).sum();
        sum.used += (nanos * own).checked_div(all).unwrap_or(0);
        let waiting = (0..waits.len()).any(|process| waits[process] > 0 && is(&process));
        if waiting && own == 0 && all > 0 {
            sum.contended += nanos;
        }
    }
}

/// When a process had work outstanding: from each launch to its kernel's end. Its kernels run one after the other, so
/// that the n-th has ended when it has run for as long as the first n take.
fn outstanding(
    intervals: &[(usize, u64, u64)],
    process: usize,
    launches: &[(u64, u64)],
    ends: u64,
) -> Vec<(u64, u64)> {
    let mut own: Vec<(u64, u64)> = intervals
        .iter()
        .filter(|(other, ..)| *other == process)
        .map(|(_, start, end)| (*start, *end))
        .collect();
    own.sort_unstable();
    let (mut at, mut ran, mut needed) = (0, 0, 0);
    let mut found: Vec<(u64, u64)> = Vec::new();
    for (launched, takes) in launches {
        needed += takes;
        while at < own.len() && ran + (own[at].1 - own[at].0) < needed {
            ran += own[at].1 - own[at].0;
            at += 1;
        }
        let done = own.get(at).map_or(ends, |(start, _)| start + (needed - ran));
        let done = done.min(ends).min(SECONDS * SECOND);
        match found.last_mut() {
            Some(last) if *launched <= last.1 => last.1 = last.1.max(done),
            _ if done > *launched => found.push((*launched, done)),
            _ => {}
        }
    }
    found
}
