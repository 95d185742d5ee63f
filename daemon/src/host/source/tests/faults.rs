//! What is broken, missing or mad costs nothing else.

use std::fs;
use std::os::unix::fs::symlink;

use super::tree::*;
use proptest::prelude::*;
use warpmeter_core::fact::HealthState;

#[test]
fn a_root_that_is_gone_ends_no_process_and_says_so() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.round(&[]);
    fs::rename(tree.root(), tree.root().with_extension("away")).unwrap();
    assert_eq!(tree.round(&[]), []);
    let health = tree.source.health();
    assert_eq!(health.state, HealthState::Down);
    assert!(health.reason.contains("it does not exist"), "{}", health.reason);
    fs::create_dir(tree.root()).unwrap();
    assert_eq!(tree.round(&[]), []);
    assert!(tree.source.health().reason.contains("is it a procfs?"));
    fs::remove_dir(tree.root()).unwrap();
    symlink("proc", tree.root()).unwrap();
    assert_eq!(tree.round(&[]), []);
    assert_eq!(tree.source.health().state, HealthState::Down);
    fs::remove_file(tree.root()).unwrap();
    fs::rename(tree.root().with_extension("away"), tree.root()).unwrap();
    assert_eq!(tree.round(&[]), []);
    assert_eq!(tree.source.health().state, HealthState::Up);
}

#[test]
fn a_stat_that_does_not_parse_is_counted_and_ends_nothing() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.put(101, OLD, &in_pod());
    tree.put(102, OLD, &in_pod());
    tree.write(100, "stat", "");
    tree.write(101, "stat", &stat(101, OLD, 'S', 0, 1)[..40]);
    assert_eq!(tree.round(&[]), [process(102, OLD, pod(), opened(false, &[])), garbage(2)]);
    tree.write(100, "stat", stat(100, OLD, 'S', 0, 1));
    tree.write(102, "stat", [0xff; 4000]);
    let facts = tree.rounds(11, &[]);
    assert!(facts.contains(&process(100, OLD, pod(), opened(false, &[]))), "{facts:?}");
    assert!(!facts.contains(&gone(102, OLD)), "{facts:?}");
}

#[test]
fn a_process_whose_cgroup_file_says_nothing_is_nobodys_rather_than_the_hosts() {
    let mut tree = Tree::new();
    tree.put(100, OLD, "nonsense");
    assert_eq!(tree.round(&[100]), [garbage(1)]);
    tree.write(100, "cgroup", "");
    assert_eq!(tree.round(&[100]), [garbage(1)]);
    tree.write(100, "cgroup", in_pod());
    assert_eq!(tree.round(&[100]), [process(100, OLD, pod(), opened(false, &[]))]);
}

#[test]
fn a_huge_cgroup_file_is_read_as_far_as_is_sensible() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &(in_pod() + &"4:memory:/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n".repeat(20_000)));
    tree.put(101, OLD, &"a".repeat(1 << 20));
    assert_eq!(tree.round(&[]), [process(100, OLD, pod(), opened(false, &[])), garbage(2)]);
}

#[test]
fn a_cgroup_name_that_is_not_text_is_taken_as_far_as_it_is() {
    let mut tree = Tree::new();
    let line =
        [b"0::/\xff\xfe.slice/kubepods/burstable/pod", UID.as_bytes(), b"/", ID.as_bytes(), b"/\xc3\n"];
    tree.put(100, OLD, "");
    tree.write(100, "cgroup", line.concat());
    assert_eq!(tree.round(&[]), [process(100, OLD, pod(), opened(false, &[]))]);
}

#[test]
fn a_process_that_vanishes_while_it_is_read_is_passed_over() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.round(&[100]);
    fs::remove_file(tree.path(100, "stat")).unwrap();
    tree.put(101, OLD, &in_pod());
    fs::remove_file(tree.path(101, "stat")).unwrap();
    tree.put(102, OLD, &in_pod());
    fs::remove_dir(tree.path(102, "fd")).unwrap();
    assert_eq!(tree.round(&[100]), [gone(100, OLD), closed_book(102, OLD, pod())]);
    tree.remove(100);
    assert_eq!(tree.round(&[100]), []);
    assert_eq!(tree.source.health().state, HealthState::Up);
}

#[test]
fn loops_of_links_are_not_followed() {
    let mut tree = Tree::new();
    symlink("300", tree.root().join("300")).unwrap();
    tree.put(100, OLD, &in_pod());
    fs::remove_dir(tree.path(100, "fd")).unwrap();
    symlink("fd", tree.path(100, "fd")).unwrap();
    tree.put(101, OLD, &in_pod());
    tree.open(101, 3, tree.path(101, "fd/3"));
    tree.open(101, 4, "/dev/nvidia0");
    let facts = [closed_book(100, OLD, pod()), process(101, OLD, pod(), opened(false, &[0]))];
    assert_eq!(tree.round(&[]), facts);
    let health = tree.source.health();
    assert_eq!(health.state, HealthState::Degraded);
    assert!(health.reason.contains("1 process cannot be looked at"), "{}", health.reason);
}

#[test]
fn a_process_that_the_driver_keeps_naming_and_that_was_never_there_is_missed_after_a_while() {
    let mut tree = Tree::new();
    tree.rounds(10, &[4000]);
    assert_eq!(tree.source.health().state, HealthState::Up);
    tree.round(&[4000]);
    let health = tree.source.health();
    assert_eq!(health.state, HealthState::Degraded);
    assert!(health.reason.contains("hostPID"), "{}", health.reason);
    tree.round(&[]);
    assert_eq!(tree.source.health().state, HealthState::Up);
}

#[test]
fn processes_that_have_ended_are_no_sign_of_a_wrong_namespace() {
    let mut tree = Tree::new();
    // One that was there, and that the driver does not forget.
    tree.put(100, OLD, IN_UNIT);
    tree.look_up(&[100]);
    tree.remove(100);
    // Others that ended before they were looked for, each of which the driver names for some time.
    for second in 0..60 {
        let named: Vec<u32> = (second..second + 8).map(|n| 4000 + n).chain([100]).collect();
        tree.look_up(&named);
        tree.round(&named);
        assert_eq!(tree.source.health().state, HealthState::Up, "in second {second}");
    }
    // A pid that is named again is another process.
    tree.rounds(20, &[]);
    tree.rounds(11, &[100]);
    assert_eq!(tree.source.health().state, HealthState::Degraded);
}

#[test]
fn entries_that_are_no_processes_are_passed_over() {
    let mut tree = Tree::new();
    for name in ["self", "12a", "-5", "+5", "99999999999", "sys"] {
        fs::create_dir(tree.root().join(name)).unwrap();
    }
    fs::write(tree.root().join("77"), "").unwrap();
    assert_eq!(tree.round(&[]), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_one_process_shows_the_other_is_reported(stat: Vec<u8>, cgroup: Vec<u8>, named: bool) {
        let mut tree = Tree::new();
        tree.put(100, OLD, "");
        tree.write(100, "stat", stat);
        tree.write(100, "cgroup", cgroup);
        tree.put(101, OLD, &in_pod());
        let wanted: &[u32] = if named { &[100] } else { &[] };
        prop_assert!(tree.round(wanted).contains(&process(101, OLD, pod(), opened(false, &[]))));
    }
}
