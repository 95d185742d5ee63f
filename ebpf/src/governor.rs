//! Keeps probes from costing a workload more than they are worth.

use std::collections::HashMap;

/// What a probe on an enqueue costs, in nanoseconds, where the kernel emulates the probed instruction, and where it
/// has to execute it out of line. Measured, see `docs/overhead.md`.
const COST: u64 = 700;
const DEAR: u64 = 10_500;
/// One part in so many of a launching thread's time may go to its probes.
const SHARE: u64 = 100;
/// For so many snapshots in a row it may be more: a start, a burst.
const PATIENCE: u32 = 3;

/// What one process has enqueued.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    enqueued: u64,
    over: u32,
}

/// Judges processes.
#[derive(Debug, Default)]
pub(crate) struct Governor {
    loads: HashMap<u32, Load>,
}

impl Governor {
    /// Whether a process's enqueues are to be let alone. `enqueued` is how many it made since it is watched, by
    /// `threads` threads in the last `elapsed` nanoseconds.
    pub(crate) fn sheds(&mut self, tgid: u32, enqueued: u64, threads: u64, elapsed: u64, dear: bool) -> bool {
        let load = self.loads.entry(tgid).or_default();
        let more = enqueued.saturating_sub(load.enqueued);
        let first = load.enqueued == 0;
        load.enqueued = enqueued;
        let cost = more.saturating_mul(if dear { DEAR } else { COST });
        let allowed = elapsed.saturating_mul(threads.max(1)) / SHARE;
        load.over = if cost > allowed && !first { load.over.saturating_add(1) } else { 0 };
        load.over >= PATIENCE
    }

    pub(crate) fn forget(&mut self, tgid: u32) {
        self.loads.remove(&tgid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn shed_after(per_second: u64, threads: u64, dear: bool) -> Option<u64> {
        let mut governor = Governor::default();
        (1..20).find(|second| governor.sheds(7, second * per_second, threads, SECOND, dear))
    }

    #[test]
    fn only_a_load_that_stays_too_dear_is_shed() {
        assert_eq!(shed_after(14_000, 1, false), None, "just below a hundredth of the thread's time");
        assert_eq!(shed_after(15_000, 1, false), Some(4));
        assert_eq!(shed_after(15_000, 2, false), None, "two threads share the cost");
        assert_eq!(shed_after(1_000, 1, true), Some(4), "where each probe is dear");
    }

    #[test]
    fn a_burst_is_no_reason_to_shed() {
        let mut governor = Governor::default();
        let mut enqueued = 0;
        for second in 0..40 {
            enqueued += if second % 3 == 0 { 1_000 } else { 100_000 };
            assert!(!governor.sheds(7, enqueued, 1, SECOND, false), "{second}");
        }
    }
}
