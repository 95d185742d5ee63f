//! What threads do.

use std::collections::BTreeMap;
use std::time::Duration;

use warpmeter_ebpf_common::doing;
use warpmeter_ebpf_tests::{now, permitted};

use crate::support::{Node, attempts, ms, near, node, old_node, until};

/// Behaviours, those apart that compete for CPUs.
const THREADS: u32 = 18;

/// The class of each behaviour's waits.
const EXPECTED: [(&str, u32); THREADS as usize + 1] = [
    ("disk_read", doing::DISK_READ),
    ("disk_fault", doing::DISK_READ),
    ("disk_write", doing::DISK_WRITE),
    ("network", doing::NETWORK),
    ("request", doing::REQUEST),
    ("accept", doing::REQUEST),
    ("pipe", doing::LOCK),
    ("local", doing::LOCK),
    ("holder", doing::TIMER),
    ("lock", doing::LOCK),
    ("children", doing::LOCK),
    ("pidfd", doing::LOCK),
    ("eventfd", doing::LOCK),
    ("timerfd", doing::TIMER),
    ("epoll", doing::POLL),
    ("poll", doing::LOCK),
    ("poll_nothing", doing::TIMER),
    ("sleep", doing::TIMER),
    ("spin", doing::CPU_WAIT),
];

/// What the kernel says of the time on a CPU of a process's threads.
/// Of each thread: how long it was on a CPU, in nanoseconds, and how often.
fn cpu_times(pid: u32) -> BTreeMap<u32, (u64, u64)> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let tid = path.file_name().unwrap().to_string_lossy().parse().unwrap();
            let text = std::fs::read_to_string(path.join("schedstat")).unwrap();
            let mut values = text.split_whitespace().map(|value| value.parse().unwrap());
            let mut next = || values.next().unwrap();
            let (time, _waited, count) = (next(), next(), next());
            (tid, (time, count))
        })
        .collect()
}

fn leads(node: &mut Node, spinners: u32) {
    let directory = node.path("").to_string_lossy().into_owned();
    let mut threads = node.start(&["threads", "3", &directory, &spinners.to_string()]);
    let started = now();
    node.probes.track(threads.pid(), true);
    threads.go();
    assert_eq!(threads.until("running"), u64::from(THREADS + spinners));
    std::thread::sleep(Duration::from_millis(2300));
    let pid = threads.pid();
    let at = now();
    let tasks = node.probes.tasks();
    // Records of threads that go on meanwhile are newer than the rest.
    let reading = now() - at;
    let on_cpu = cpu_times(pid);
    let said = threads.finish();
    let mut seen = 0;
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [tid, name, made] = words[..] else { panic!("{line}") };
        let (tid, made): (u32, u64) = (tid.parse().unwrap(), made.parse().unwrap());
        let task = tasks.get(&tid).unwrap_or_else(|| panic!("{name} was not followed"));
        assert_eq!(task.tgid, pid);
        let (doings, in_driver) = task.at(at, false);
        let sum: u64 = doings.iter().sum();
        eprintln!("{name:12} {doings:?}");
        assert!(near(sum, at - made, ms(10) + reading) && in_driver == 0, "{name}: {sum} of {}", at - made);
        // The kernel's own account leaves out what interrupts and the hypervisor took.
        let (cpu, tolerance) = (on_cpu[&tid].0, ms(60) + reading + sum / 20);
        let (_, expected) = EXPECTED.iter().find(|(n, _)| *n == name).unwrap();
        // Moments between two waits for the same input or output belong to them.
        let pieces = match *expected {
            doing::DISK_READ | doing::DISK_WRITE | doing::NETWORK => cpu.saturating_sub(doings[0]),
            _ => 0,
        };
        assert!(near(doings[0] + pieces, cpu, tolerance), "{name}: {} on a CPU of {cpu}", doings[0]);
        assert!(pieces <= doings[*expected as usize], "{name}: {pieces} of {cpu} on a CPU are in no class");
        let waits = &doings[1..];
        // On a busy machine everybody waits for a CPU too; what a thread waits for itself leads the rest.
        let from = usize::from(name != "spin");
        let most = waits.iter().enumerate().skip(from).max_by_key(|(_, ns)| **ns).unwrap().0 + 1;
        assert_eq!(most, *expected as usize, "{name}: {doings:?}");
        seen += 1;
    }
    assert_eq!(seen, THREADS + spinners);
    // What ended threads did is their process's, once; two more threads feed these and make them.
    let process = node.probes.process(pid).unwrap();
    let total: u64 = process.others.iter().sum();
    assert!(total > u64::from(THREADS) * 2_900_000_000 && process.ended > 0, "{process:?}");
    assert!(total <= u64::from(THREADS + 2 + spinners) * (process.ended - started), "{process:?}");
    until("nothing is left of its threads", || node.probes.tasks().values().all(|task| task.tgid != pid));
}

#[test]
fn each_behaviour_has_its_class_and_classes_add_up_to_time() {
    if permitted() {
        leads(&mut node(), 0);
    }
}

#[test]
fn the_same_holds_while_others_compete_for_cpus() {
    if permitted() {
        leads(&mut node(), 4);
    }
}

fn takes_in(node: &mut Node) {
    let mut process = node.start(&["pieces"]);
    node.probes.track(process.pid(), true);
    process.go();
    let threads = ["takes", "works"].map(|name| u32::try_from(process.until(name)).unwrap());
    std::thread::sleep(Duration::from_secs(2));
    let at = now();
    let tasks = node.probes.tasks();
    let on_cpu = cpu_times(process.pid());
    drop(process.finish());
    let [takes, works] = threads.map(|tid| (tasks[&tid].at(at, false).0, on_cpu[&tid]));
    eprintln!("takes {takes:?}, works {works:?}");
    let (doings, (cpu, count)) = takes;
    // An emulated processor takes a byte in for as long as others work on one.
    if cpu / count < 50_000 {
        assert!(doings[0] * 2 < cpu, "taking in {} of {cpu}", doings[0]);
    }
    assert!(doings[doing::NETWORK as usize] > cpu);
    let (doings, (cpu, _)) = works;
    assert!(near(doings[0], cpu, ms(20) + cpu / 5), "working {} of {cpu}", doings[0]);
}

#[test]
fn what_takes_a_piece_in_is_part_of_the_wait_and_what_works_on_it_is_not() {
    if permitted() {
        takes_in(&mut node());
        takes_in(&mut old_node());
    }
}

fn gets_its_cpu_late(node: &mut Node) -> Result<(), String> {
    let mut process = node.start(&["pieces", "crowded"]);
    node.probes.track(process.pid(), true);
    process.go();
    let tid = u32::try_from(process.until("works")).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let at = now();
    let tasks = node.probes.tasks();
    let on_cpu = cpu_times(process.pid());
    drop(process.finish());
    let (doings, (cpu, count)) = (tasks[&tid].at(at, false).0, on_cpu[&tid]);
    eprintln!("crowded {doings:?}, {cpu} on a CPU, {count} times");
    assert!(doings[doing::CPU_WAIT as usize] > cpu, "it gets its CPU late");
    // Some bytes are on their way for longer than it works on them.
    if doings[0] * 2 > cpu { Ok(()) } else { Err(format!("working {} of {cpu}", doings[0])) }
}

#[test]
fn time_without_a_cpu_makes_no_wait_long_enough_for_work_to_be_part_of_it() {
    if permitted() {
        attempts(|| gets_its_cpu_late(&mut node()));
        let mut old = old_node();
        attempts(|| gets_its_cpu_late(&mut old));
    }
}

#[test]
fn the_flavour_for_old_kernels_says_the_same() {
    if permitted() {
        leads(&mut old_node(), 0);
    }
}
