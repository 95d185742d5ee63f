//! The daemon's processes: none is left behind, none is waited for, nothing leaks.

use std::time::Duration;

use rustix::process::Signal;
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{tool, wait};

const TWO_GPUS: &str = "[[gpu]]\nmodel = \"H100\"\ncount = 2";

/// A daemon that reads its GPUs.
fn reading(sim: &Sim) -> Daemon {
    let daemon = Daemon::start(sim, "");
    daemon.until_ready_is(200, "ready");
    daemon
}

#[test]
fn a_killed_daemon_leaves_no_process_behind() {
    let sim = Sim::new(TWO_GPUS);
    let mut daemon = reading(&sim);
    let children = daemon.kill();
    assert_eq!(children.len(), 1, "one nvidia process");
    wait::until("the nvidia process to end", || (!tool::runs(children[0])).then_some(()));
}

#[test]
fn a_killed_daemon_leaves_no_process_behind_in_a_call_that_hangs() {
    let sim = Sim::new(TWO_GPUS);
    let mut daemon = reading(&sim);
    sim.fault("kind=hang gpu=0 for_s=30");
    std::thread::sleep(Duration::from_millis(1500));
    let children = daemon.kill();
    wait::until("the nvidia process to end", || (!tool::runs(children[0])).then_some(()));
}

#[test]
fn signals_end_it_soon_and_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let sim = Sim::new(TWO_GPUS);
        let mut daemon = reading(&sim);
        let children = daemon.children();
        daemon.signal(signal);
        let (status, took) = daemon.terminate();
        assert!(status.success(), "{status}\n{}", daemon.log());
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert!(children.iter().all(|child| !tool::runs(*child)), "it ends after its processes");
    }
}

#[test]
fn it_ends_soon_while_a_call_hangs() {
    let sim = Sim::new(TWO_GPUS);
    let mut daemon = reading(&sim);
    sim.fault("kind=hang gpu=0 for_s=30");
    std::thread::sleep(Duration::from_millis(1500));
    let (status, took) = daemon.terminate();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_nvidia_process_that_dies_again_and_again_costs_no_file_and_leaves_no_zombie() {
    let sim = Sim::new(TWO_GPUS);
    let daemon = reading(&sim);
    let files = tool::open_files(daemon.pid());
    let mut before = daemon.children();
    // Each death doubles the wait for the next process: 0.5 s, 1 s, 2 s.
    for _ in 0..4 {
        kill(before[0]);
        before = wait::until("a new nvidia process", || {
            let now = daemon.children();
            (now.len() == 1 && now != before && !tool::is_zombie(now[0])).then_some(now)
        });
    }
    daemon.until_ready_is(200, "ready");
    wait::until("files to be closed", || (tool::open_files(daemon.pid()) <= files).then_some(()));
    assert!(daemon.children().iter().all(|child| !tool::is_zombie(*child)));
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}
