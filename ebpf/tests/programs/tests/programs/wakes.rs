//! Waits for other threads are what those did.

use warpmeter_ebpf_common::doing;
use warpmeter_ebpf_tests::{chains, now, permitted};

use crate::support::{Node, attempts, following_node};

/// A chain, and what its sleeper's waits are made of: of what its workers say that they did, or all of one class.
const CHAINS: [(&str, Option<u32>); 35] = [
    ("computing-process", None),
    ("reading-then-computing-thread", None),
    ("process-behind-thread", None),
    ("reading-ahead", None),
    ("lock-held-while-asking", Some(doing::NETWORK)),
    ("process-until-it-ends", None),
    ("long-process-until-it-ends", None),
    ("thread-until-it-ends", None),
    ("output-until-its-end", None),
    ("program-per-batch", None),
    ("program-after-another", None),
    ("two-kinds-in-turn", None),
    ("lock-with-timeouts", None),
    ("local-socket", None),
    ("connection-made", None),
    ("connection-ipv6", None),
    ("connection-polled", None),
    ("asked-within", Some(doing::REQUEST)),
    ("asked-within-rarely", Some(doing::REQUEST)),
    ("answer-not-taken", Some(doing::NETWORK)),
    ("answer-not-taken-polled", Some(doing::NETWORK)),
    ("polled-beside-movers", Some(doing::LOCK)),
    ("fed", Some(doing::NETWORK)),
    ("behind-a-sleeper", Some(doing::LOCK)),
    ("socket-made", Some(doing::NETWORK)),
    ("socket-accepted", Some(doing::REQUEST)),
    ("socket-made-with-timeouts", Some(doing::NETWORK)),
    ("socket-accepted-with-timeouts", Some(doing::REQUEST)),
    ("loop-with-timeouts", None),
    ("timer-then-loop-with-timeouts", None),
    ("loop-that-goes-on", None),
    ("timeouts-alone", Some(doing::TIMER)),
    ("nothing", Some(doing::TIMER)),
    ("stranger", Some(doing::LOCK)),
    ("stranger-after-timeouts", Some(doing::LOCK)),
];

/// How the names of chains begin whose sleepers wait for no thread that is followed.
const NOBODY_FOLLOWED: [&str; 8] = [
    "socket-made",
    "socket-accepted",
    "asked-within",
    "answer-not-taken",
    "fed",
    "timeouts-alone",
    "nothing",
    "stranger",
];

/// How far off a part may be: a switch in between, and what the machine does beside.
const TOLERANCE: f64 = 0.12;

fn holds(node: &mut Node) {
    for (name, expected) in CHAINS {
        attempts(|| attempt(node, name, expected).map_err(|how| format!("{name}: {how}")));
    }
}

/// Runs a chain; how its sleeper's waits differ from what they are made of.
fn attempt(node: &mut Node, name: &str, expected: Option<u32>) -> Result<(), String> {
    let started = now();
    let mut process = node.start(&["chain", name]);
    node.probes.track(process.pid(), true);
    process.go();
    let sleeper = u32::try_from(process.until("sleeper")).unwrap();
    if name.starts_with("stranger") {
        for _ in 0..chains::rounds() {
            std::thread::sleep(chains::milliseconds(16));
            process.go();
        }
    }
    let took = process.until("took") as f64;
    let own = process.until("own");
    let (computed, asked) = (process.until("computed") as f64, process.until("asked") as f64);
    let parts = match expected {
        Some(class) => vec![(class, 1.0)],
        // It never waits for us. On a CPU it is for more than computing where the machine is emulated.
        None if name == "reading-ahead" => vec![(doing::NETWORK, 1.0 - computed / took)],
        None => {
            let other = match name {
                "timer-then-loop-with-timeouts" => doing::TIMER,
                "loop-that-goes-on" => doing::POLL,
                _ => doing::NETWORK,
            };
            vec![(doing::CPU, computed / (computed + asked)), (other, asked / (computed + asked))]
        }
    };
    let tasks = node.probes.tasks();
    let (doings, _) = tasks[&sleeper].at(tasks[&sleeper].since, true);
    let woken = node.probes.wakes().iter().any(|(key, _)| key.sleeper == process.pid());
    process.finish();
    eprintln!("{name:30} {doings:?}, {own} of it its own; {computed} computed, {asked} asked, {took} in all");
    let sum: u64 = doings.iter().sum();
    assert!(sum <= tasks[&sleeper].since - started, "{name}: no time counts twice");
    assert_eq!(
        woken,
        !NOBODY_FOLLOWED.iter().any(|start| name.starts_with(start)) || name == "stranger-after-timeouts",
        "{name}: waits for threads that are followed"
    );
    // Its waits for a CPU depend on the machine, and so do its own time on one, and what system calls and emulation add to
    // others' computing.
    let most = if name == "reading-ahead" { u64::MAX } else { computed as u64 };
    let cpu = doings[doing::CPU as usize].saturating_sub(own).min(most);
    let more = doings[doing::CPU as usize] - cpu;
    let sleeps = ["reading-ahead", "lock-held-while-asking"].contains(&name);
    let slept = if sleeps { doings[doing::TIMER as usize] } else { 0 };
    let whole: u64 = sum - doings[doing::CPU_WAIT as usize] - more - slept;
    for (class, part) in parts {
        let seen = if class == doing::CPU { cpu } else { doings[class as usize] };
        let seen = seen as f64 / whole as f64;
        if (seen - part).abs() >= TOLERANCE {
            return Err(format!("{seen:.2} of class {class}, not {part:.2}: {doings:?}"));
        }
    }
    Ok(())
}

#[test]
fn a_wait_for_another_thread_is_what_that_thread_did() {
    if permitted() {
        holds(&mut following_node(true));
    }
}

#[test]
fn the_flavour_for_old_kernels_follows_wake_ups_too() {
    if permitted() {
        holds(&mut following_node(false));
    }
}
