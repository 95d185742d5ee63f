//! Whose the time is in which several processes ran at once, as under MPS.

use std::collections::{BTreeMap, BTreeSet};

/// A process's pid, and from when until when it ran, in nanoseconds.
pub type Ran = (u32, u64, u64);

/// Nanoseconds by process: each moment is divided among those who ran in it, by their weights.
pub fn divided(ran: &BTreeSet<Ran>, weight: impl Fn(u32) -> u32) -> BTreeMap<u32, f64> {
    let edges = |(pid, start, end): &Ran| [(*start, true, *pid), (*end, false, *pid)];
    let mut edges: Vec<(u64, bool, u32)> = ran.iter().flat_map(edges).collect();
    edges.sort_unstable();
    let (mut running, mut since) = (BTreeMap::<u32, f64>::new(), 0);
    let mut parts = BTreeMap::new();
    for (at, begins, pid) in edges {
        let all: f64 = running.values().sum();
        for (pid, weight) in &running {
            let nanos = std::time::Duration::from_nanos(at - since).as_secs_f64() * 1e9;
            *parts.entry(*pid).or_default() += nanos * weight / all;
        }
        since = at;
        if begins {
            running.insert(pid, f64::from(weight(pid)));
        } else {
            running.remove(&pid);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_divided_among_those_who_run_in_it_by_their_weights() {
        let ran = BTreeSet::from([(1, 0, 10), (2, 4, 8), (1, 10, 12), (3, 20, 21)]);
        let parts = divided(&ran, |pid| if pid == 1 { 3 } else { 1 });
        let rounded: Vec<(u32, f64)> = parts.into_iter().map(|(pid, part)| (pid, part.round())).collect();
        assert_eq!(rounded, [(1, 11.0), (2, 1.0), (3, 1.0)]);
    }
}
