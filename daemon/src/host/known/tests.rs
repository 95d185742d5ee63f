//! When a process is due, and what its files are taken to be.

use warpmeter_core::identity::HostPid;

use super::*;

const NOW: MonoNs = MonoNs(1000 * SECOND);

fn known(pid: u32, start: u64, scope: Scope) -> Known {
    let name = Comm::new(b"trainer");
    let stat = Stat { ticks: start * 100, kernel: false, name, server: false, life: Life::Running };
    let id = ProcessId { pid: HostPid(pid), start: MonoNs(start * SECOND) };
    Known::new(7, stat, id, scope, NOW)
}

fn container() -> Scope {
    Scope::Container(warpmeter_core::identity::ContainerId::new("c"))
}

fn scan(minors: &[u32], cut: bool) -> Scan {
    Scan { opened: Opened { minors: minors.to_vec(), ..Opened::default() }, files: 10, cut }
}

fn opened(known: &mut Known) -> Option<Opened> {
    match known.report() {
        Some(Fact::Process(process)) => process.opened,
        other => panic!("not reported: {other:?}"),
    }
}

#[test]
fn files_that_are_denied_are_unknown_and_not_none() {
    let mut known = known(100, 1, container());
    known.has_open(Err(Unread::Denied), NOW);
    assert_eq!((known.files, opened(&mut known)), (Files::Denied, None));
    known.has_open(Ok(scan(&[], false)), NOW);
    assert_eq!((known.files, opened(&mut known)), (Files::Seen, Some(Opened::default())));
}

#[test]
fn of_too_many_files_those_that_were_found_are_open_and_none_found_is_unknown() {
    let mut known = known(100, 1, container());
    known.has_open(Ok(scan(&[], true)), NOW);
    assert_eq!((known.files, opened(&mut known)), (Files::Cut, None));
    known.has_open(Ok(scan(&[4], true)), NOW);
    assert_eq!(opened(&mut known), Some(scan(&[4], true).opened));
}

#[test]
fn a_process_that_vanished_under_the_scan_keeps_its_files() {
    let mut known = known(100, 1, container());
    known.has_open(Ok(scan(&[4], false)), NOW);
    assert!(known.report().is_some());
    known.has_open(Err(Unread::Vanished), NOW);
    assert_eq!(known.report(), None);
}

#[test]
fn checks_of_old_processes_are_spread_over_ten_seconds() {
    let mut per_second = [0_u32; 10];
    for pid in 0..2000 {
        let due = known(pid, 1, Scope::Host).check_at.since(NOW);
        assert!(0 < due && due <= CHECK, "{due}");
        per_second[usize::try_from((due - 1) / SECOND).unwrap()] += 1;
    }
    assert!(per_second.iter().all(|&count| (150..=250).contains(&count)), "{per_second:?}");
}

#[test]
fn a_young_process_is_due_in_every_round() {
    assert_eq!(known(100, 996, Scope::Host).check_at, NOW);
    assert!(known(100, 994, Scope::Host).check_at > NOW);
}

#[test]
fn the_longer_a_workload_has_no_device_the_later_it_is_looked_at_again() {
    let next = |start| {
        let mut known = known(100, start, container());
        known.has_open(Ok(scan(&[], false)), NOW);
        known.scan_at.since(NOW)
    };
    assert_eq!(next(996), 0);
    assert!((1..4 * SECOND).contains(&next(970)), "{}", next(970));
    assert!((1..=CHECK).contains(&next(1)), "{}", next(1));
}

#[test]
fn an_unchanged_number_of_files_is_trusted_for_a_minute() {
    let mut known = known(100, 1, container());
    assert!(!known.has_still(Some(10), NOW));
    known.has_open(Ok(scan(&[], false)), NOW);
    assert!(known.has_still(Some(10), NOW.plus(59 * SECOND)));
    assert!(!known.has_still(Some(10), NOW.plus(60 * SECOND)));
    assert!(!known.has_still(Some(11), NOW) && !known.has_still(None, NOW));
    known.want(NOW);
    assert!(!known.has_still(Some(10), NOW));
    known.has_open(Ok(scan(&[], true)), NOW);
    assert!(!known.has_still(Some(10), NOW));
}
