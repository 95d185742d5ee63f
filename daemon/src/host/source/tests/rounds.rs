//! What is reported, and when.

use std::fs;

use super::tree::*;
use warpmeter_core::fact::Opened;
use warpmeter_core::identity::Scope;

#[test]
fn a_process_of_a_pod_is_reported_once() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.open(100, 3, "/dev/nvidiactl");
    tree.open(100, 4, "/dev/nvidia1");
    tree.open(100, 5, "/dev/nvidia0 (deleted)");
    tree.open(100, 6, "/dev/nvidia1");
    for other in [
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia",
        "/dev/nvidia+7",
        "/dev/nvidia99999999999",
        "/tmp/dev/nvidia9",
    ] {
        tree.open(100, u32::try_from(other.len()).unwrap() + 10, other);
    }
    assert_eq!(tree.round(&[]), [process(100, OLD, pod(), opened(true, &[0, 1]))]);
    assert_eq!(tree.rounds(30, &[]), []);
}

#[test]
fn what_has_cuda_open_is_told_from_what_only_reads_counters() {
    let mut tree = Tree::new();
    for (pid, uvm) in [(100, true), (101, false)] {
        tree.put(pid, OLD, &in_pod());
        tree.open(pid, 3, "/dev/nvidiactl");
        tree.open(pid, 4, "/dev/nvidia0");
        if uvm {
            tree.open(pid, 5, "/dev/nvidia-uvm");
        }
    }
    let seen = |uvm| Opened { uvm, ..opened(true, &[0]) };
    assert_eq!(
        tree.round(&[]),
        [process(100, OLD, pod(), seen(true)), process(101, OLD, pod(), seen(false))]
    );
}

#[test]
fn a_process_of_a_unit_is_reported_once_the_driver_names_it() {
    let mut tree = Tree::new();
    tree.put(100, OLD, IN_UNIT);
    tree.put(101, OLD, IN_ROOT);
    assert_eq!(tree.rounds(2, &[]), []);
    assert_eq!(tree.round(&[100]), [process(100, OLD, unit(), opened(false, &[]))]);
    assert_eq!(tree.round(&[101]), [process(101, OLD, Scope::Host, opened(false, &[]))]);
    assert_eq!(tree.round(&[]), []);
    tree.remove(100);
    assert_eq!(tree.round(&[]), [gone(100, OLD)]);
}

#[test]
fn a_process_of_a_unit_that_opens_a_gpu_is_reported_within_a_minute() {
    let mut tree = Tree::new();
    tree.put(100, OLD, IN_UNIT);
    tree.round(&[]);
    tree.open(100, 3, "/dev/nvidia2");
    assert_eq!(tree.rounds(61, &[]), [process(100, OLD, unit(), opened(false, &[2]))]);
}

#[test]
fn a_pid_that_is_reused_ends_one_process_and_starts_another() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.round(&[100]);
    // In the same directory: only the start time tells.
    tree.write(100, "stat", stat(100, OLD + 500, 'R', 0, 1));
    tree.write(100, "cgroup", IN_ROOT);
    assert_eq!(
        tree.round(&[100]),
        [gone(100, OLD), process(100, OLD + 500, Scope::Host, opened(false, &[]))]
    );
}

#[test]
fn a_pid_of_no_interest_that_a_pod_reuses_is_seen_at_once() {
    let mut tree = Tree::new();
    tree.put(100, OLD, IN_ROOT);
    tree.round(&[]);
    tree.put(100, OLD + 500, &in_pod());
    assert_eq!(tree.round(&[]), [process(100, OLD + 500, pod(), opened(false, &[]))]);
}

#[test]
fn a_pid_of_no_interest_that_is_reused_without_a_trace_in_the_listing_is_seen_in_ten_seconds() {
    let mut tree = Tree::new();
    tree.put(100, OLD, IN_ROOT);
    tree.round(&[]);
    tree.write(100, "stat", stat(100, OLD + 500, 'R', 0, 1));
    tree.write(100, "cgroup", in_pod());
    assert_eq!(tree.rounds(11, &[]), [process(100, OLD + 500, pod(), opened(false, &[]))]);
}

#[test]
fn a_young_process_that_joins_a_pod_is_seen_in_the_next_round() {
    let mut tree = Tree::new();
    tree.put(100, YOUNG, IN_UNIT);
    assert_eq!(tree.round(&[]), []);
    tree.write(100, "cgroup", in_pod());
    assert_eq!(tree.round(&[]), [process(100, YOUNG, pod(), opened(false, &[]))]);
}

#[test]
fn an_old_process_that_is_moved_is_seen_in_ten_seconds_and_keeps_its_identity() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.round(&[]);
    tree.write(100, "cgroup", IN_UNIT);
    assert_eq!(tree.rounds(11, &[]), [process(100, OLD, unit(), opened(false, &[]))]);
}

#[test]
fn a_young_process_that_opens_a_gpu_is_seen_in_the_next_round_and_an_old_one_in_ten_seconds() {
    let mut tree = Tree::new();
    tree.put(100, YOUNG, &in_pod());
    tree.put(101, OLD, &in_pod());
    tree.round(&[]);
    tree.open(100, 3, "/dev/nvidia0");
    tree.open(101, 3, "/dev/nvidia0");
    let young = process(100, YOUNG, pod(), opened(false, &[0]));
    assert!(tree.round(&[]).contains(&young));
    let old = process(101, OLD, pod(), opened(false, &[0]));
    tree.remove(100);
    assert!(tree.rounds(11, &[]).contains(&old));
}

#[test]
fn naming_a_process_makes_its_files_due_at_once() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.round(&[]);
    tree.open(100, 3, "/dev/nvidia0");
    assert_eq!(tree.round(&[100]), [process(100, OLD, pod(), opened(false, &[0]))]);
}

#[test]
fn a_zombie_is_gone_and_stays_so() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.round(&[100]);
    tree.write(100, "stat", stat(100, OLD, 'Z', 0x4, 1));
    tree.write(100, "cgroup", IN_ROOT);
    assert_eq!(tree.round(&[100]), [gone(100, OLD)]);
    assert_eq!(tree.rounds(12, &[100]), []);
    tree.remove(100);
    assert_eq!(tree.round(&[100]), []);
}

#[test]
fn a_process_whose_first_thread_has_exited_keeps_its_owner_and_devices() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.open(100, 3, "/dev/nvidia0");
    tree.round(&[]);
    tree.write(100, "stat", stat(100, OLD, 'Z', 0x4, 8));
    tree.write(100, "cgroup", IN_ROOT);
    fs::remove_file(tree.path(100, "fd/3")).unwrap();
    assert_eq!(tree.rounds(22, &[]), []);
}

#[test]
fn a_process_that_is_looked_up_is_reported_before_it_can_end() {
    let mut tree = Tree::new();
    tree.round(&[]);
    tree.put(100, YOUNG, &in_pod());
    tree.open(100, 3, "/dev/nvidia0");
    assert_eq!(tree.look_up(&[100]), [process(100, YOUNG, pod(), opened(false, &[0]))]);
    assert_eq!(tree.look_up(&[100]), []);
    tree.remove(100);
    assert_eq!(tree.round(&[]), [gone(100, YOUNG)]);
}

#[test]
fn looking_up_a_pid_that_was_reused_ends_the_old_process() {
    let mut tree = Tree::new();
    tree.put(100, OLD, IN_UNIT);
    tree.round(&[100]);
    tree.put(100, YOUNG, &in_pod());
    assert_eq!(tree.look_up(&[100]), [gone(100, OLD), process(100, YOUNG, pod(), opened(false, &[]))]);
}

#[test]
fn a_thread_that_is_looked_up_is_no_process() {
    let mut tree = Tree::new();
    tree.put(100, OLD, &in_pod());
    tree.write(100, "status", "Name:\ta\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t99\nPid:\t100\n");
    assert_eq!(tree.look_up(&[100, 7]), []);
}

#[test]
fn every_process_has_its_files_seen_though_a_round_sees_few() {
    let mut tree = Tree::new();
    for pid in 100..150 {
        tree.put(pid, OLD, &in_pod());
        for number in 0..199 {
            tree.open(pid, number, "/dev/null");
        }
        tree.open(pid, 199, "/dev/nvidia0");
    }
    let first = tree.round(&[]);
    let seen = |facts: &[_]| {
        (100..150).filter(|&pid| facts.contains(&process(pid, OLD, pod(), opened(false, &[0])))).count()
    };
    assert_eq!((first.len(), seen(&first)), (50, 11));
    assert_eq!(seen(&tree.rounds(4, &[])), 39);
}

#[test]
fn a_process_that_takes_another_name_is_reported_again() {
    let mut tree = Tree::new();
    tree.put(100, YOUNG, &in_pod());
    tree.put(101, OLD, &in_pod());
    tree.round(&[]);
    // As a worker does that was forked from its parent.
    for (pid, ticks) in [(100, YOUNG), (101, OLD)] {
        tree.write(pid, "stat", stat(pid, ticks, 'S', 0, 1).replace(NAME, "pt_data_worker"));
    }
    let renamed = |pid, ticks| called("pt_data_worker", process(pid, ticks, pod(), opened(false, &[])));
    let mut facts = tree.round(&[]);
    assert!(facts.contains(&renamed(100, YOUNG)), "{facts:?}");
    facts.extend(tree.rounds(11, &[]));
    assert!(facts.contains(&renamed(101, OLD)) && facts.len() == 2, "{facts:?}");
}
