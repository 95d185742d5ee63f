//! Properties that need real processes: locks whose holders die, reaping, fair turns.
//!
//! A child is this test program again, told by a variable to run one of the ignored tests.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use warpmeter_simgpu::kernel::Kernel;
use warpmeter_simgpu::wait::wait_until;
use warpmeter_simgpu::{Model, Node, Process, Scenario};

fn node() -> (TempDir, Node) {
    let dir = TempDir::new().unwrap();
    warpmeter_simgpu::create(dir.path(), &Scenario::of(Model::H100, 1)).unwrap();
    let node = Node::open(dir.path()).unwrap();
    (dir, node)
}

fn child(dir: &TempDir, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--ignored"])
        .env("SIMGPU_STATE", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "a child of the tests below"]
fn holds_the_lock() {
    let Some(node) = Node::from_env() else { return };
    let mut guard = node.lock();
    // A count that lies, as after a death in the middle of a change.
    guard.engine[0].clients = 17;
    std::fs::write(node.dir().join("holding"), "").unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
#[ignore = "a child of the tests below"]
fn keeps_the_device_busy() {
    let Some(node) = Node::from_env() else { return };
    let mut guard = node.lock();
    let now = guard.now;
    let client = guard.attach(0, Process::current(), now).unwrap();
    let stream = guard.open_stream(client, 1, false, true).unwrap();
    drop(guard);
    loop {
        let mut guard = node.lock();
        let now = guard.now;
        let mut seq = 0;
        for _ in 0..20 {
            seq = guard.enqueue(stream, Kernel { nanos: 1_000_000, ..Kernel::default() }.op(), now).unwrap();
        }
        drop(guard);
        wait_until(&node, true, |s, now| s.due(stream, seq.saturating_sub(10), now));
    }
}

#[test]
fn the_lock_survives_the_death_of_its_holder() {
    let (dir, node) = node();
    let mut holder = child(&dir, "holds_the_lock");
    wait_for("the lock to be held", || dir.path().join("holding").exists());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let guard = node.lock();
    assert_eq!(guard.recoveries, 1);
    assert_eq!(guard.engine[0].clients, 0, "the tables are derived anew");
    drop(guard);
    assert_eq!(node.lock().recoveries, 1);
}

#[test]
fn a_killed_process_leaves_no_work_memory_or_open_record() {
    let (dir, node) = node();
    let mut busy = child(&dir, "keeps_the_device_busy");
    wait_for("work", || node.lock().engine[0].pending > 0);
    assert!(node.lock().engine[0].memory_used > 0);
    busy.kill().unwrap();
    busy.wait().unwrap();
    node.flush().unwrap();
    let guard = node.lock();
    assert_eq!((guard.engine[0].pending, guard.engine[0].clients, guard.engine[0].memory_used), (0, 0, 0));
    assert!(guard.client.iter().all(|c| c.used == 0 && c.open == [0; 3]));
    let text = std::fs::read_to_string(dir.path().join("oracle.jsonl")).unwrap();
    assert!(text.contains(&format!("\"pid\":{},", busy.id())));
}

#[test]
fn two_processes_of_equal_demand_get_equal_shares() {
    let (dir, node) = node();
    let mut children = [child(&dir, "keeps_the_device_busy"), child(&dir, "keeps_the_device_busy")];
    wait_for("both processes", || node.lock().engine[0].clients == 2);
    let read = || {
        let mut guard = node.lock();
        let now = guard.now;
        guard.advance(0, now);
        let mut active: Vec<(u32, u64)> = guard.engine[0]
            .listed()
            .iter()
            .map(|&c| (guard.client[c as usize].pid, guard.client[c as usize].totals.active))
            .collect();
        active.sort_unstable();
        active
    };
    std::thread::sleep(Duration::from_millis(200));
    let before = read();
    std::thread::sleep(Duration::from_millis(1500));
    let after = read();
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let share = |at: usize| after[at].1 - before[at].1;
    let (a, b) = (share(0), share(1));
    assert!(a.abs_diff(b) * 5 < a + b, "{a} and {b}");
}
