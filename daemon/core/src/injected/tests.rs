use super::*;
use crate::identity::{GpuId, HostPid};
use crate::time::{MonoNs, SECOND};

fn told(seconds: u64, busy: u64, shapes: &[(u32, u32, u32, u64)]) -> Injected {
    let sums = Sums {
        elapsed: seconds * SECOND,
        sampled: seconds * SECOND,
        busy,
        ran: busy,
        kernel: busy,
        kernels: busy / 1000,
        ..Sums::default()
    };
    let shape = |&(block, registers, shared, nanos)| Shape { block, registers, shared, nanos };
    Injected {
        process: ProcessId { pid: HostPid(7), start: MonoNs(1) },
        device: DeviceId { gpu: GpuId::new("GPU-1"), mig: None },
        capability: (9, 0),
        sums,
        shapes: shapes.iter().map(shape).collect(),
    }
}

/// The time of all words that do not say theirs.
const NOW: MonoNs = MonoNs(20 * SECOND);

#[test]
fn theoretical_occupancy_is_weighted_by_the_time_of_the_kernels() {
    // 64 registers of 256 threads: 4 blocks of 8 warps, half of 64. 32 registers: all.
    let told = told(10, 4 * SECOND, &[(256, 64, 20_000, 3 * SECOND), (256, 32, 0, SECOND)]);
    let grown = told.grown(None, NOW).unwrap();
    assert_eq!((grown.shaped, grown.theoretical), (4 * SECOND, 5 * SECOND / 2));
}

#[test]
fn what_no_sm_can_run_has_no_occupancy() {
    let mut told =
        told(10, 4 * SECOND, &[(2048, 64, 0, SECOND), (256, 300, 0, SECOND), (256, 32, 0, SECOND)]);
    assert_eq!(told.grown(None, NOW).unwrap().shaped, SECOND);
    told.capability = (6, 1);
    assert_eq!(told.grown(None, NOW).unwrap().shaped, 0, "nor on what is not known");
}

#[test]
fn only_what_was_added_counts_however_late_it_comes() {
    let first = told(10, SECOND, &[(256, 32, 0, SECOND)]);
    let second = told(11, 9 * SECOND, &[(256, 32, 0, 9 * SECOND)]);
    let grown = second.grown(Some((&first, MonoNs(19 * SECOND))), NOW).unwrap();
    assert_eq!((grown.sums.elapsed, grown.sums.busy, grown.shaped), (SECOND, 8 * SECOND, 8 * SECOND));
}

#[test]
fn a_step_back_is_a_new_beginning_since_the_last_word() {
    let last = told(11, 5 * SECOND, &[(256, 32, 0, 5 * SECOND)]);
    let again = told(4, SECOND, &[(256, 32, 0, SECOND)]);
    let grown = again.grown(Some((&last, MonoNs(15 * SECOND))), NOW).unwrap();
    assert_eq!((grown.sums.elapsed, grown.sums.busy, grown.shaped), (4 * SECOND, SECOND, SECOND));
    assert_eq!(again.grown(Some((&last, MonoNs(19 * SECOND))), NOW), None, "four seconds in one");
}

#[test]
fn more_than_can_have_been_counts_as_nothing() {
    let possible = told(10, 4 * SECOND, &[]);
    assert!(possible.grown(None, NOW).is_some());
    assert_eq!(told(23, 4 * SECOND, &[]).grown(None, NOW), None, "longer than the process lived");
    assert_eq!(told(10, 13 * SECOND, &[]).grown(None, NOW), None, "busy for longer than it was there");
    let odd = |change: fn(&mut Sums)| {
        let mut odd = possible.clone();
        change(&mut odd.sums);
        odd.grown(None, NOW)
    };
    assert_eq!(odd(|sums| sums.sampled = 11 * SECOND), None, "sampled for longer than it was there");
    assert_eq!(odd(|sums| sums.ran = 5 * SECOND), None, "ran for longer than it was busy");
    assert_eq!(odd(|sums| sums.kernel = 3 * SECOND), None, "busy for longer than its kernels took");
}
