//! Captures, and what is cut off or mad.

use proptest::prelude::*;

use super::*;

const RUNNING: &[u8] = include_bytes!("../../../../tests/fixtures/proc/running.txt");
const ODD_NAME: &[u8] = include_bytes!("../../../../tests/fixtures/proc/odd-name.txt");
const ZOMBIE: &[u8] = include_bytes!("../../../../tests/fixtures/proc/zombie.txt");
const ZOMBIE_LEADER: &[u8] = include_bytes!("../../../../tests/fixtures/proc/zombie-leader.txt");
const KERNEL_THREAD: &[u8] = include_bytes!("../../../../tests/fixtures/proc/kernel-thread.txt");

fn stat(name: &[u8], ticks: u64, kernel: bool, life: Life) -> Stat {
    Stat { ticks, kernel, name: Comm::new(name), server: false, life }
}

#[test]
fn a_process_has_its_name_start_time_and_state() {
    assert_eq!(Stat::parse(RUNNING), Some(stat(b"python3", 987_654, false, Life::Running)));
    assert_eq!(Stat::parse(KERNEL_THREAD), Some(stat(b"kthreadd", 23, true, Life::Running)));
}

#[test]
fn a_name_with_parentheses_and_spaces_moves_no_field() {
    assert_eq!(Stat::parse(ODD_NAME), Some(stat(b"a) R 1 (b) 7", 987_655, false, Life::Running)));
}

#[test]
fn a_name_that_is_not_text_moves_no_field() {
    let mut text = RUNNING.to_vec();
    text[6] = 0xff;
    assert_eq!(Stat::parse(&text), Some(stat(b"\xffython3", 987_654, false, Life::Running)));
}

#[test]
fn a_zombie_has_ended_unless_other_threads_of_it_run() {
    assert_eq!(Stat::parse(ZOMBIE), Some(stat(b"sh", 987_656, false, Life::Ended)));
    assert_eq!(Stat::parse(ZOMBIE_LEADER), Some(stat(b"trainer", 987_657, false, Life::Leaving)));
}

#[test]
fn this_process_runs_and_started_before_now() {
    let text = std::fs::read("/proc/self/stat").unwrap();
    let stat = Stat::parse(&text).unwrap();
    let clock = crate::host::clock::Clock::read();
    assert_eq!((stat.kernel, stat.life), (false, Life::Running));
    assert!(clock.started(stat.ticks) <= clock.now, "{stat:?} {clock:?}");
    assert!(clock.now.since(clock.started(stat.ticks)) < 3_600_000_000_000, "{stat:?} {clock:?}");
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes: Vec<u8>) {
        let _parsed = Stat::parse(&bytes);
    }

    #[test]
    fn a_text_that_is_cut_off_gives_nothing_or_the_same(length in 0..RUNNING.len()) {
        let cut = Stat::parse(&RUNNING[..length]);
        prop_assert!(cut.is_none() || cut == Stat::parse(RUNNING), "{cut:?}");
    }
}
