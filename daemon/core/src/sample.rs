//! Samples of threads: what they show of a process, and of a thread over an interval.
//!
//! A sample shows what a thread does at one instant. How long it was on a CPU and waited for one the kernel counts
//! exactly, where it does; the rest of an interval goes by how often each wait was seen in it.

use crate::probe::{Doing, Doings};
use crate::split::Split;

/// What the kernel counted of threads in an interval, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ran {
    /// On a CPU.
    pub cpu: u64,
    /// Runnable without one.
    pub waited: u64,
}

/// What a process does whose threads do this at one instant. Who of them feeds the device is not known, so:
///
/// - Those that are under way (on a CPU, reading, receiving) hold the others up. If they differ, or another waits for
///   something unknown, which may be the device, nothing can be said.
/// - Otherwise, one that waits for any of several files may wait for anything, whatever the others do.
/// - One that waits for a lock waits for one of the others, if these do anything else.
pub fn together(threads: impl IntoIterator<Item = Doing>) -> Doing {
    let mut seen = [false; Doing::COUNT];
    for doing in threads {
        if let Some(seen) = seen.get_mut(doing as usize) {
            *seen = true;
        }
    }
    let of = |doing: Doing| seen.get(doing as usize).copied().unwrap_or(false);
    if of(Doing::Unknown) {
        return Doing::Unknown;
    }
    let mut busy = Doing::ALL.into_iter().filter(|doing| doing.is_busy() && of(*doing));
    match (busy.next(), busy.next()) {
        (Some(only), None) => return only,
        (Some(_), Some(_)) => return Doing::Unknown,
        (None, _) => {}
    }
    let still = [Doing::Poll, Doing::Request, Doing::Timer, Doing::Lock];
    still.into_iter().find(|doing| of(*doing)).unwrap_or(Doing::Unknown)
}

/// What a process did in `elapsed` nanoseconds, of which `seen` counts samples by [`together`], those with a thread
/// that runs or could run as [`Doing::Cpu`]; `ran` is that of all its threads. Sums to `elapsed`.
pub fn process(elapsed: u64, ran: Option<Ran>, seen: &Doings) -> Doings {
    let mut doings = by_count(elapsed, seen);
    let [cpu, waited, .., unknown] = &mut doings;
    let running = std::mem::take(cpu);
    let ran = ran.unwrap_or_default();
    match Split::by_weight(running, vec![(true, ran.cpu), (false, ran.waited)]) {
        Some(split) => {
            for (on_cpu, amount) in split.into_parts() {
                *(if on_cpu { &mut *cpu } else { &mut *waited }) += amount;
            }
        }
        None => *unknown += running,
    }
    doings
}

/// What a thread did in `elapsed` nanoseconds, of which `seen` counts samples. Sums to `elapsed`.
pub fn thread(elapsed: u64, ran: Option<Ran>, seen: &Doings) -> Doings {
    let cpu = ran.map_or(0, |ran| ran.cpu).min(elapsed);
    let waited = ran.map_or(0, |ran| ran.waited).min(elapsed - cpu);
    let mut asleep = *seen;
    let [running, could_run, .., unknown] = &mut asleep;
    if ran.is_none() {
        *unknown += *running + *could_run;
    }
    (*running, *could_run) = (0, 0);
    let mut doings = by_count(elapsed - cpu - waited, &asleep);
    let [on_cpu, without, ..] = &mut doings;
    (*on_cpu, *without) = (cpu, waited);
    doings
}

/// Divides `total` by counts; without any it is unknown.
fn by_count(total: u64, counts: &Doings) -> Doings {
    let mut doings = Doings::default();
    let weights = Doing::ALL.into_iter().zip(*counts).collect();
    let split = Split::by_weight(total, weights).unwrap_or_else(|| Split::all_to(total, Doing::Unknown));
    for (doing, amount) in split.into_parts() {
        if let Some(sum) = doings.get_mut(doing as usize) {
            *sum += amount;
        }
    }
    doings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(of: &[(Doing, u64)]) -> Doings {
        let mut sums = Doings::default();
        for (doing, count) in of {
            sums[*doing as usize] = *count;
        }
        sums
    }

    #[test]
    fn threads_under_way_hold_the_others_up_unless_they_differ() {
        use Doing::{Cpu, DiskRead, Lock, Network, Poll, Request, Timer, Unknown};
        let cases: [(&[Doing], Doing); 11] = [
            (&[], Unknown),
            (&[DiskRead, Lock, Poll], DiskRead),
            (&[Lock, Cpu], Cpu),
            (&[DiskRead, Network], Unknown),
            (&[DiskRead, Cpu, Lock], Unknown),
            (&[DiskRead, Unknown], Unknown),
            (&[Lock, Timer], Timer),
            (&[Lock, Request, Timer], Request),
            (&[Lock, Poll, Timer], Poll),
            (&[Lock, Lock], Lock),
            (&[Timer, Unknown], Unknown),
        ];
        for (threads, whole) in cases {
            assert_eq!(together(threads.iter().copied()), whole, "{threads:?}");
        }
    }

    #[test]
    fn time_on_a_cpu_is_as_counted_and_the_rest_as_seen() {
        let ran = Some(Ran { cpu: 300, waited: 100 });
        let seen = counts(&[(Doing::Cpu, 9), (Doing::DiskRead, 3), (Doing::Timer, 1)]);
        let expected =
            counts(&[(Doing::Cpu, 300), (Doing::CpuWait, 100), (Doing::DiskRead, 450), (Doing::Timer, 150)]);
        assert_eq!(thread(1000, ran, &seen), expected);
        let unseen = counts(&[(Doing::Cpu, 300), (Doing::CpuWait, 100), (Doing::Unknown, 600)]);
        assert_eq!(thread(1000, ran, &counts(&[(Doing::Cpu, 9)])), unseen);
        assert_eq!(thread(1000, None, &counts(&[(Doing::Cpu, 9)])), counts(&[(Doing::Unknown, 1000)]));
    }

    #[test]
    fn a_process_that_could_run_did_so_for_the_part_that_the_kernel_counted() {
        let seen = counts(&[(Doing::Cpu, 8), (Doing::DiskRead, 2)]);
        let ran = Some(Ran { cpu: 600, waited: 200 });
        let expected = counts(&[(Doing::Cpu, 600), (Doing::CpuWait, 200), (Doing::DiskRead, 200)]);
        assert_eq!(process(1000, ran, &seen), expected);
        let unknown = counts(&[(Doing::DiskRead, 200), (Doing::Unknown, 800)]);
        assert_eq!(process(1000, None, &seen), unknown, "whether it had a CPU is not known");
    }

    proptest! {
        #[test]
        fn whatever_was_seen_the_parts_sum_to_the_interval(
            elapsed in 0..10_u64.pow(10),
            seen in prop::array::uniform11(0..100_u64),
            cpu in any::<u64>(),
            waited in any::<u64>(),
            counted in any::<bool>(),
        ) {
            let ran = counted.then_some(Ran { cpu, waited });
            for doings in [process(elapsed, ran, &seen), thread(elapsed, ran, &seen)] {
                prop_assert_eq!(doings.iter().sum::<u64>(), elapsed);
            }
        }
    }
}
