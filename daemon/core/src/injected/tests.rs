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

#[test]
fn theoretical_occupancy_is_weighted_by_the_time_of_the_kernels() {
    // 64 registers of 256 threads: 4 blocks of 8 warps, half of 64. 32 registers: all.
    let told = told(10, 4 * SECOND, &[(256, 64, 20_000, 3 * SECOND), (256, 32, 0, SECOND)]);
    let grown = told.grown(None).unwrap();
    assert_eq!((grown.shaped, grown.theoretical), (4 * SECOND, 5 * SECOND / 2));
}

#[test]
fn what_no_sm_can_run_has_no_occupancy() {
    let mut told = told(10, 4 * SECOND, &[(2048, 64, 0, SECOND), (256, 300, 0, SECOND), (256, 32, 0, SECOND)]);
    assert_eq!(told.grown(None).unwrap().shaped, SECOND);
    told.capability = (6, 1);
    assert_eq!(told.grown(None).unwrap().shaped, 0, "nor on what is not known");
}

#[test]
fn only_what_was_added_counts_and_a_step_back_is_a_new_beginning() {
    let first = told(10, 4 * SECOND, &[(256, 32, 0, 4 * SECOND)]);
    let second = told(11, 5 * SECOND, &[(256, 32, 0, 5 * SECOND)]);
    let grown = second.grown(Some(&first)).unwrap();
    assert_eq!((grown.sums.elapsed, grown.sums.busy, grown.shaped), (SECOND, SECOND, SECOND));
    let again = told(2, SECOND, &[(256, 32, 0, SECOND)]);
    let grown = again.grown(Some(&second)).unwrap();
    assert_eq!((grown.sums.elapsed, grown.sums.busy, grown.shaped), (2 * SECOND, SECOND, SECOND));
}

#[test]
fn more_than_can_have_been_counts_as_nothing() {
    let first = told(10, 4 * SECOND, &[]);
    assert_eq!(told(11, 8 * SECOND, &[]).grown(Some(&first)), None, "four seconds in one");
    let mut odd = told(11, 5 * SECOND, &[]);
    odd.sums.sampled = 12 * SECOND;
    assert_eq!(odd.grown(Some(&first)), None, "sampled for longer than it was there");
}
