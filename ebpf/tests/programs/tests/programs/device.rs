//! What processes ask of a device.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use warpmeter_ebpf_common::{Use, doing, gap, kind, process};
use warpmeter_ebpf_tests::{now, permitted};

use crate::support::{Node, Watched, attempts, ms, near, node, poorer_node};

/// Runs a sequence to its end, all gaps cut then.
fn sequence(node: &mut Node, name: &str) -> (Watched, u32, u64) {
    let mut run = node.start(&["cuda", name]);
    run.go();
    run.until("ended");
    let at = now();
    let pid = run.pid();
    node.probes.flush(pid, at);
    (run, pid, at)
}

/// Those that say how long the device was drained.
const SEQUENCES: [&str; 4] = ["event", "streams", "legacy", "proofs"];

/// Whether what the probes say is what the program says, about.
fn told(probes: u64, truth: u64, tolerance: u64) -> Result<(), String> {
    if near(probes, truth, tolerance) {
        Ok(())
    } else {
        Err(format!("{probes} ns by the probes, {truth} in truth"))
    }
}

#[test]
fn captured_launches_are_not_executed_ones() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let (mut run, pid, _) = sequence(&mut node, "capture");
    let uses = node.probes.uses(pid);
    let using = uses[&0];
    assert_eq!(using.launches, run.until("launches"), "{using:?}");
    assert_eq!(using.graph_launches, run.until("graphs"));
    assert_eq!(using.enqueued, run.until("enqueued"));
    assert!(node.probes.process(pid).unwrap().flags & process::FROM_START != 0);
    run.finish();
}

#[test]
fn gaps_cover_all_time_since_the_first_enqueue() {
    if !permitted() {
        return;
    }
    let mut node = node();
    for name in SEQUENCES {
        // A moment without a CPU between a clock's reading and the call lengthens the one and not the other.
        attempts(|| {
            let (mut run, pid, at) = sequence(&mut node, name);
            let began = run.until("began");
            let all: u64 = node.probes.gaps(pid).values().map(|gap| gap.total).sum();
            assert!(all <= at - began, "{name}: {all} of {}", at - began);
            for (key, gap) in node.probes.gaps(pid) {
                assert_eq!(gap.doings.iter().sum::<u64>(), gap.total, "{key:?}");
            }
            run.finish();
            told(all, at - began, ms(2)).map_err(|how| format!("{name}: {how}"))
        });
    }
}

#[test]
fn a_device_is_drained_only_when_all_that_was_enqueued_is_known_complete() {
    if !permitted() {
        return;
    }
    let mut node = node();
    for name in SEQUENCES {
        attempts(|| {
            let (mut run, pid, _) = sequence(&mut node, name);
            let said = run.until("drained");
            let drained = node.probes.gaps_of(pid, gap::DRAINED);
            run.finish();
            told(drained.total, said, ms(1)).map_err(|how| format!("{name}: {how}"))
        });
    }
}

#[test]
fn after_unseen_calls_no_gap_goes_on_and_nothing_is_drained() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let (run, pid, at) = sequence(&mut node, "event");
    let open = |node: &Node| node.probes.uses(pid)[&0].open_gap();
    assert!(open(&node).is_some());
    let gaps = node.probes.gaps(pid);
    node.probes.forget(pid);
    assert_eq!(open(&node), None);
    node.probes.flush(pid, at + ms(50));
    assert_eq!(node.probes.gaps(pid), gaps, "nothing is added while nothing is seen");
    assert_eq!(node.probes.uses(pid)[&0].flags, 0);
    run.finish();
}

#[test]
fn each_call_is_counted_by_its_kind_whichever_thread_makes_it() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let (mut run, pid, _) = sequence(&mut node, "event");
    let calls = |node: &Node| {
        let mut all = node.probes.process(pid).unwrap().calls;
        for task in node.probes.tasks().values().filter(|task| task.tgid == pid) {
            for (sum, more) in all.iter_mut().zip(task.calls) {
                *sum += more;
            }
        }
        all
    };
    let alive = calls(&node);
    assert_eq!(alive[kind::ENQUEUE], node.probes.uses(pid)[&0].enqueued);
    assert!(alive[kind::WAIT] > 0 && alive[kind::STATE] > 0, "{alive:?}");
    run.until("ended");
    run.finish();
    assert!(calls(&node).iter().zip(alive).all(|(after, before)| *after >= before), "{alive:?}");
}

#[test]
fn copies_have_the_bytes_and_the_direction_that_the_caller_states() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let (mut run, pid, _) = sequence(&mut node, "copies");
    let using = node.probes.uses(pid)[&0];
    assert_eq!(using.bytes_to_device, run.until("up"));
    assert_eq!(using.bytes_to_host, run.until("down"));
    assert_eq!(using.bytes_other, run.until("other"));
    assert!(using.copy_wait > 0 && using.sync_wait > 0);
    run.finish();
}

#[test]
fn of_copies_that_are_only_enqueued_those_that_hold_their_thread_up_are_waited_for() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let (mut run, pid, _) = sequence(&mut node, "held");
    let using = node.probes.uses(pid)[&0];
    let (pinned, pageable) = (run.until("pinned"), run.until("pageable"));
    assert!(pageable > 5 * 1_000_000, "{pageable} ns");
    // Now and then one of pinned memory is held up, too, by whatever has its CPU meanwhile.
    assert!(using.copy_wait <= pinned + pageable, "{} of {pinned} and {pageable}", using.copy_wait);
    assert!(using.copy_wait >= pageable * 9 / 10, "{} of {pageable}", using.copy_wait);
    assert!(using.copies_most >= pageable * 9 / 10 && using.copies_most <= using.copy_wait, "{using:?}");
    let gaps = node.probes.gaps(pid);
    let of =
        |kind: u64| gaps.iter().filter(move |(key, _)| u64::from(key.kind) == kind).map(|(_, sum)| sum.total);
    let (waits, between) = (of(gap::SYNC).sum::<u64>(), of(gap::ENQUEUE).sum::<u64>());
    assert!(waits >= using.copy_wait + using.sync_wait * 9 / 10, "{gaps:?}");
    assert!(between < ms(1) + pinned, "nothing else takes long between calls: {gaps:?}");
    run.finish();
}

#[test]
fn of_a_wait_in_a_copy_that_is_the_copys_which_its_own_bytes_can_take() {
    if !permitted() {
        return;
    }
    let mut node = node();
    attempts(|| {
        let (mut run, pid, _) = sequence(&mut node, "items");
        let using = node.probes.uses(pid)[&0];
        let (large, small, most) = (run.until("large"), run.until("small"), run.until("most"));
        run.finish();
        // Kernels of 2 ms before each of ten.
        assert!(small > 15 * 1_000_000, "{small} ns");
        assert!(using.copy_wait <= large + small && using.copies_most <= most, "{using:?}");
        assert!(using.copies_least <= (10 * (16 << 20)) / 8 + 10 && using.copies_least <= most, "{using:?}");
        told(using.copy_wait, large + small, (large + small) / 10)?;
        told(using.copies_most, most, most / 10)
    });
}

#[test]
fn devices_are_known_by_the_identity_that_the_process_asked_for() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let (mut run, pid, _) = sequence(&mut node, "event");
    let uuid = node.probes.uuid(pid, 0).unwrap();
    assert_eq!(u64::from_be_bytes(uuid[..8].try_into().unwrap()), run.until("uuid"));
    run.finish();
}

fn number(text: &str, key: &str) -> f64 {
    let (_, rest) = text.split_once(&format!("\"{key}\":")).unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

/// Runs a workload program for two seconds; its process, when it was looked at, and its own account.
fn workload(node: &mut Node, words: &[&str]) -> (u32, String) {
    let report = node.path("report.json").to_string_lossy().into_owned();
    let mut all = vec!["workload", words[0], "--seconds", "2", "--report", &report];
    all.extend(&words[1..]);
    let mut run = node.start(&all);
    let pid = run.pid();
    run.go();
    run.finish();
    (pid, std::fs::read_to_string(report).unwrap())
}

#[test]
fn every_launch_is_counted_and_drained_gaps_are_the_waits() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let file = node.path("data-of-waiter").to_string_lossy().into_owned();
    std::fs::write(&file, vec![7_u8; 64 << 20]).unwrap();
    let plans: [(&[&str], u32); 5] = [
        (&["waiter", "--wait", "sleep", "--wait-us", "10000"], doing::TIMER),
        (&["waiter", "--wait", "cpu", "--wait-us", "10000"], doing::CPU),
        (&["waiter", "--wait", "lock", "--wait-us", "30000"], doing::LOCK),
        (&["waiter", "--wait", "disk", "--read-kib", "4096", "--file", &file], doing::DISK_READ),
        (&["trainer", "--host-us", "3000"], doing::CPU),
    ];
    for (words, class) in plans {
        attempts(|| launched(&mut node, words, class));
    }
}

/// Runs a workload program, every launch of which has to be counted; how its waits are not what was seen of them.
fn launched(node: &mut Node, words: &[&str], class: u32) -> Result<(), String> {
    let (pid, report) = workload(node, words);
    let using = node.probes.uses(pid)[&0];
    assert_eq!(using.launches as f64, number(&report, "kernels"), "{words:?}");
    let drained = node.probes.gaps_of(pid, gap::DRAINED);
    let synced = node.probes.gaps_of(pid, gap::SYNC);
    eprintln!("{words:?} {drained:?}\n{synced:?}\n{report}");
    let waited = if words[0] == "waiter" {
        number(&report, "wait_s")
    } else {
        // Its host work, which takes longer on a busy machine: what is left of its time.
        let wall = (number(&report, "end_ns") - number(&report, "start_ns")) / 1e9;
        wall - number(&report, "sync_s") - number(&report, "launch_s")
    };
    let seconds = drained.total as f64 / 1e9;
    if (seconds - waited).abs() >= ms(50) as f64 / 1e9 + waited * 0.05 {
        return Err(format!("{words:?}: drained {seconds}, waited {waited}"));
    }
    // What a thread waits for, if it does: waking, and copying what came, takes a CPU, and on a busy machine waits
    // for one.
    let first = if class == doing::CPU { doing::CPU } else { doing::DISK_READ };
    let ranked = drained.doings.iter().enumerate().skip(first as usize);
    let ranked = ranked.filter(|(of, _)| *of != doing::CPU_WAIT as usize);
    let most = ranked.max_by_key(|(_, ns)| **ns).unwrap().0;
    let synced = (using.sync_wait as f64 / 1e9 - number(&report, "sync_s")).abs();
    if most != class as usize || synced >= 0.05 {
        return Err(format!("{words:?}: synchronised {synced} s more or less; {drained:?}"));
    }
    Ok(())
}

#[test]
fn without_return_probes_launches_count_and_waits_that_the_driver_never_makes_end_a_synchronisation() {
    if !permitted() {
        return;
    }
    let mut node = poorer_node();
    let (pid, report) = workload(&mut node, &["waiter", "--wait", "sleep", "--wait-us", "10000"]);
    let using = node.probes.uses(pid).into_values().next().unwrap();
    assert_eq!(using.launches as f64, number(&report, "kernels"));
    let gaps = node.probes.gaps_of(pid, gap::DRAINED);
    let drained = gaps.total as f64 / 1e9;
    let waited = number(&report, "wait_s");
    assert!((drained - waited).abs() < 0.05 + waited * 0.05, "drained {drained}, waited {waited}");
    // The end of a call is seen later than what came after it: neither is any of that counted twice, nor taken for work.
    assert!(gaps.doings[doing::TIMER as usize] > gaps.total / 10 * 9, "{:?}", gaps.doings);
    let callers = node.probes.process(pid).unwrap().callers;
    assert!(callers[doing::CPU as usize] < callers[doing::TIMER as usize] / 4, "{callers:?}");
}

#[test]
fn after_its_loader_is_killed_nothing_stays_attached() {
    if !permitted() {
        return;
    }
    let library = node().path("own/libcuda.so.1");
    std::fs::create_dir_all(library.parent().unwrap()).unwrap();
    std::fs::copy(node().path("lib/libcuda.so.1"), &library).unwrap();
    let mut loader = Command::new(env!("CARGO_BIN_EXE_probed"))
        .args(["hold", &library.to_string_lossy()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(loader.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.trim().parse::<u32>().unwrap() > 60, "{line}");
    let probed = || {
        // A probe is a breakpoint in the page that a process maps.
        let mut run = Command::new(env!("CARGO_BIN_EXE_probed"));
        let run = run.args(["bytes", &library.to_string_lossy()]).output().unwrap();
        String::from_utf8(run.stdout).unwrap()
    };
    assert_eq!(probed().trim(), "204", "cuInit is probed by an int3");
    loader.kill().unwrap();
    loader.wait().unwrap();
    let patience = now() + ms(60_000);
    while probed().trim() != "116" {
        assert!(now() < patience, "still probed: {}", probed());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn snapshots_cut_gaps_without_losing_or_doubling_time() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let report = node.path("report-of-snapshots.json").to_string_lossy().into_owned();
    let words = [
        "workload",
        "waiter",
        "--wait",
        "sleep",
        "--wait-us",
        "50000",
        "--seconds",
        "2",
        "--report",
        &report,
    ];
    let mut run = node.start(&words);
    let pid = run.pid();
    run.go();
    let mut last = (0, 0);
    let mut first = None;
    // While it lives: what goes on after a thread's end is unknown.
    let end = now() + 1_500_000_000;
    while now() < end {
        std::thread::sleep(std::time::Duration::from_millis(13));
        let at = now();
        node.probes.flush(pid, at);
        let open = |node: &Node| node.probes.uses(pid).get(&0).and_then(Use::open_gap);
        let before = open(&node);
        let gaps = node.probes.gaps(pid);
        let sum: u64 = gaps.values().map(|gap| gap.total).sum();
        // While the process goes on no gap may end between two readings.
        if let Some((_, since)) = before.filter(|_| before == open(&node)) {
            let start = since - sum;
            // From the first enqueue to the last cut every nanosecond is in one gap.
            assert_eq!(start, *first.get_or_insert(start), "after {} ms", (since - start) / 1_000_000);
            assert!(since >= at && sum >= last.1);
            last = (at, sum);
            for (key, gap) in &gaps {
                assert_eq!(gap.doings.iter().sum::<u64>(), gap.total, "{key:?} {gap:?}");
            }
        }
    }
    run.finish();
    let report = std::fs::read_to_string(report).unwrap();
    let drained = node.probes.gaps_of(pid, gap::DRAINED);
    // The last one was never followed by an enqueue; it is in no cut either if it began after the last.
    let steps = number(&report, "steps") as u64;
    assert!(drained.count == steps || drained.count + 1 == steps, "{} of {steps}", drained.count);
    // Each was cut three times and more, and ended once, at its whole length.
    assert!(drained.ended == steps || drained.ended + 1 == steps, "{} of {steps}", drained.ended);
    let cut: u64 = drained.total.saturating_sub(drained.lasted);
    assert!(drained.lasted <= drained.total && cut < ms(60), "{} of {} ns", drained.lasted, drained.total);
    for (key, gap) in node.probes.gaps(pid).iter().filter(|(key, _)| u64::from(key.kind) == gap::DRAINED) {
        assert!(
            gap.ended == 0 || 2 << key.log2 > 50_000_000_u64,
            "{} gaps end after 2^{} ns",
            gap.ended,
            key.log2
        );
        assert!(gap.lasted >> key.log2 >= gap.ended && gap.lasted < (gap.ended + 1) << (key.log2 + 1));
    }
    let asleep = drained.doings[doing::TIMER as usize] + drained.doings[doing::CPU_WAIT as usize];
    assert!(
        asleep * 10 > drained.total * 9,
        "{drained:?} {:?} {:?}",
        node.probes.gaps(pid),
        node.probes.drops()
    );
}

#[test]
fn threads_that_share_a_device_share_its_time() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let words = ["trainer", "--threads", "4", "--kernel-us", "100", "--kernels", "5", "--host-us", "200"];
    let (pid, report) = workload(&mut node, &words);
    let using = node.probes.uses(pid)[&0];
    assert_eq!(using.launches as f64, number(&report, "kernels"));
    let gaps = node.probes.gaps(pid);
    let sum: u64 = gaps.values().map(|gap| gap.total).sum();
    let (_, since) = using.open_gap().unwrap();
    // All that began was ended by somebody, and no time is in two gaps.
    let wall = (number(&report, "end_ns") - number(&report, "start_ns")) as u64;
    assert!(sum <= wall && sum + ms(100) > wall, "{sum} of {wall}");
    assert!(since > 0 && using.waiting == 0);
    assert!(gaps.values().all(|gap| gap.doings.iter().sum::<u64>() == gap.total));
    // Nothing is outstanding at the end, and the count of busy streams has found its way back.
    assert_eq!(using.outstanding & 0xff_ffff, 0, "{using:?}");
}

#[test]
fn a_process_that_came_before_the_probes_is_never_drained_until_its_whole_context_was_waited_for() {
    if !permitted() {
        return;
    }
    let mut node = node();
    for (name, drains) in [("streams", false), ("proofs", true)] {
        attempts(|| {
            let mut run = node.start(&["cuda", name]);
            let pid = run.pid();
            node.probes.declare(pid, process::LATE);
            run.go();
            let truth = run.until("drained");
            node.probes.flush(pid, now());
            assert!(node.probes.process(pid).unwrap().flags & process::FROM_START == 0);
            let drained = node.probes.gaps_of(pid, gap::DRAINED).total;
            run.finish();
            if !drains {
                assert_eq!(drained, 0, "{name}");
                return Ok(());
            }
            // Of three pauses only the one after the context's synchronisation.
            told(drained, truth / 3, ms(3)).map_err(|how| format!("{name}: {how}"))
        });
    }
}

#[test]
fn an_ignored_process_leaves_no_trace() {
    if !permitted() {
        return;
    }
    let mut node = node();
    let mut run = node.start(&["cuda", "copies"]);
    let pid = run.pid();
    node.probes.declare(pid, process::IGNORED);
    run.go();
    run.until("ended");
    assert!(node.probes.uses(pid).is_empty() && node.probes.gaps(pid).is_empty());
    assert!(node.probes.tasks().values().all(|task| task.tgid != pid));
    run.finish();
}
