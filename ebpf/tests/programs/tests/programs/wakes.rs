//! Waits for other threads are what those did.

use std::time::Duration;

use warpmeter_ebpf_common::doing;
use warpmeter_ebpf_tests::permitted;

use crate::support::{Node, following_node, ms};

/// A chain, and what its sleeper's waits are made of, in parts of all of them.
const CHAINS: [(&str, &[(u32, f64)]); 10] = [
    ("computing-process", &[(doing::CPU, 1.0)]),
    ("reading-then-computing-thread", &[(doing::NETWORK, 0.66), (doing::CPU, 0.33)]),
    ("process-behind-thread", &[(doing::NETWORK, 1.0)]),
    ("two-kinds-in-turn", &[(doing::NETWORK, 0.66), (doing::CPU, 0.33)]),
    ("lock-with-timeouts", &[(doing::CPU, 1.0)]),
    ("local-socket", &[(doing::CPU, 1.0)]),
    ("socket-made", &[(doing::NETWORK, 1.0)]),
    ("socket-accepted", &[(doing::REQUEST, 1.0)]),
    ("nothing", &[(doing::TIMER, 1.0)]),
    ("stranger", &[(doing::LOCK, 1.0)]),
];

/// How far off a part may be: a switch in between, and what the machine does beside.
const TOLERANCE: f64 = 0.12;

fn holds(node: &mut Node) {
    for (name, expected) in CHAINS {
        let mut process = node.start(&["chain", name]);
        node.probes.track(process.pid(), true);
        process.go();
        let sleeper = u32::try_from(process.until("sleeper")).unwrap();
        if name == "stranger" {
            for _ in 0..40 {
                std::thread::sleep(Duration::from_millis(8));
                process.go();
            }
        }
        let took = process.until("took");
        let tasks = node.probes.tasks();
        let (doings, _) = tasks[&sleeper].at(tasks[&sleeper].since, true);
        let sum: u64 = doings.iter().sum();
        assert!(sum <= took + ms(50), "{name}: {sum} of {took}");
        // Its waits for a CPU depend on the machine.
        let whole: u64 = sum - doings[doing::CPU_WAIT as usize];
        for (class, part) in expected {
            let seen = doings[*class as usize] as f64 / whole as f64;
            assert!((seen - part).abs() < TOLERANCE, "{name}: {seen:.2} of class {class}: {doings:?}");
        }
        eprintln!("{name:30} {doings:?}");
        let woken = node.probes.wakes().iter().any(|(key, _)| key.sleeper == process.pid());
        assert_eq!(
            woken,
            !["socket-made", "socket-accepted", "nothing", "stranger"].contains(&name),
            "{name}"
        );
        process.finish();
    }
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
