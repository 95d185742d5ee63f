//! When processes begin and end, and which threads are theirs.

use std::time::Duration;

use warpmeter_ebpf_common::process;
use warpmeter_ebpf_tests::permitted;

use crate::support::{Node, Watched, node, old_node, until};

/// Starts a process that is followed.
fn start(node: &mut Node, how: &str) -> Watched {
    let mut run = node.start(&["lives", how]);
    node.probes.track(run.pid(), true);
    run.go();
    run
}

/// Whether a thread is a zombie, or is gone.
fn ended(tid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{tid}/stat"))
        .map_or(true, |stat| stat.rsplit_once(") ").unwrap().1.starts_with('Z'))
}

fn a_process_ends_with_its_last_thread(node: &mut Node) {
    let run = start(node, "main-ends");
    let pid = run.pid();
    until("the first thread ends", || ended(pid));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(node.probes.process(pid).unwrap().ended, 0, "another thread goes on");
    let others = node.probes.tasks().into_values().filter(|task| task.tgid == pid).count();
    assert_eq!(others, 1);
    run.finish();
    until("it has ended", || node.probes.process(pid).unwrap().ended != 0);
    until("nothing is left of its threads", || node.probes.tasks().values().all(|task| task.tgid != pid));
    assert!(!node.probes.is_tracked(pid));
}

fn a_process_that_replaces_its_program_goes_on_as_one_thread(node: &mut Node, how: &str) {
    let mut run = start(node, how);
    let pid = run.pid();
    let old = u32::try_from(run.until("before")).unwrap();
    assert_eq!(u64::from(pid), run.until("after"));
    std::thread::sleep(Duration::from_millis(50));
    let record = node.probes.process(pid).unwrap();
    assert_eq!(record.ended, 0, "{how}: it goes on");
    assert_eq!(record.flags & (process::LATE | process::FROM_START | process::CALLER), 0);
    let threads: Vec<u32> =
        node.probes.tasks().into_iter().filter(|(_, task)| task.tgid == pid).map(|(tid, _)| tid).collect();
    assert_eq!(threads, [pid], "{how}: the thread was {old}");
    assert!(node.probes.is_tracked(pid) && (old == pid || !node.probes.is_tracked(old)));
    run.finish();
    until("it has ended", || node.probes.process(pid).unwrap().ended != 0);
    until("nothing is left of its threads", || node.probes.tasks().values().all(|task| task.tgid != pid));
    assert!(!node.probes.is_tracked(pid));
}

#[test]
fn processes_live_as_long_as_any_of_their_threads_whatever_becomes_of_the_first() {
    if !permitted() {
        return;
    }
    let mut node = node();
    a_process_ends_with_its_last_thread(&mut node);
    for how in ["execs", "thread-execs"] {
        a_process_that_replaces_its_program_goes_on_as_one_thread(&mut node, how);
    }
}

#[test]
fn the_flavour_for_old_kernels_knows_lives_too() {
    if !permitted() {
        return;
    }
    let mut node = old_node();
    a_process_ends_with_its_last_thread(&mut node);
    for how in ["execs", "thread-execs"] {
        a_process_that_replaces_its_program_goes_on_as_one_thread(&mut node, how);
    }
}

#[test]
fn a_crowded_process_takes_no_more_threads_in_and_hands_that_on() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let run = node.start(&["lives", "main-ends"]);
    let pid = run.pid();
    node.probes.track(pid, true);
    node.probes.mark(pid, process::CROWDED, 0);
    let mut run = run;
    run.go();
    until("the first thread ends", || ended(pid));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!node.probes.tasks().values().any(|task| task.tgid == pid));
    node.probes.mark(pid, 0, process::CROWDED);
    assert_eq!(node.probes.process(pid).unwrap().flags, 0);
    run.finish();
}
