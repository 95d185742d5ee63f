//! Each program does what it says: its own account agrees with the model's, to the nanosecond.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

// Named so that their shared libraries are built.
use simgpu_cuda as _;
use simgpu_nvml as _;
use tempfile::TempDir;
use warpmeter_simgpu::{Model, Node, Scenario};

struct Fixture {
    dir: TempDir,
    node: Node,
}

fn fixture() -> Fixture {
    let dir = TempDir::new().unwrap();
    warpmeter_simgpu::create(dir.path(), &Scenario::of(Model::H100, 1)).unwrap();
    let program = std::env::current_exe().unwrap();
    warpmeter_simgpu::install_libraries(program.parent().unwrap(), &dir.path().join("lib")).unwrap();
    let node = Node::open(dir.path()).unwrap();
    Fixture { dir, node }
}

impl Fixture {
    fn start(&self, words: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_warpmeter-workload"))
            .args(words)
            .env("SIMGPU_STATE", self.dir.path())
            .env("LD_LIBRARY_PATH", self.dir.path().join("lib"))
            .spawn()
            .unwrap()
    }

    fn report(&self) -> PathBuf {
        self.dir.path().join("report.json")
    }

    /// Runs a program for a second; returns (kernel seconds by its own account, active seconds of the device).
    fn run(&self, words: &[&str]) -> (f64, f64) {
        let before = self.active();
        let report = self.report();
        let mut all = vec![words[0], "--seconds", "1", "--report", report.to_str().unwrap()];
        all.extend(&words[1..]);
        assert!(self.start(&all).wait().unwrap().success());
        (number(&report, "kernel_s"), self.active() - before)
    }

    fn active(&self) -> f64 {
        let mut guard = self.node.lock();
        let now = guard.now;
        guard.advance(0, now);
        Duration::from_nanos(guard.engine[0].totals.active).as_secs_f64()
    }
}

fn number(path: &Path, key: &str) -> f64 {
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once(&format!("\"{key}\":")).unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn accounts_agree_with_the_device() {
    let f = fixture();
    let file = f.dir.path().join("checkpoint");
    let checkpoint = ["trainer", "--checkpoint-every", "20", "--checkpoint-mib", "1", "--checkpoint-file"];
    let checkpoint = [&checkpoint[..], &[file.to_str().unwrap()]].concat();
    let plans: [&[&str]; 9] = [
        &["trainer"],
        &["trainer", "--upload-kib", "512", "--host-us", "300", "--blocking-sync"],
        &["trainer", "--kernel-us", "5", "--gap-us", "10", "--kernels", "100"],
        &checkpoint,
        &["waiter", "--wait", "sleep"],
        &["waiter", "--wait", "cpu", "--wait-us", "5000"],
        &["waiter", "--wait", "lock", "--wait-us", "5000"],
        &["server"],
        &["hog", "--duty", "0.5"],
    ];
    for plan in plans {
        let (own, device) = f.run(plan);
        assert!(own > 0.01, "{plan:?} did {own} s");
        assert!((own - device).abs() < 2e-6, "{plan:?}: {own} against {device}");
    }
    let (own, device) = f.run(&["hog"]);
    assert!((own - device).abs() < 2e-6, "hog: {own} against {device}");
    assert!(own > 0.1, "a hog keeps its device busy, even on a busy machine: {own}");
}

#[test]
fn idle_programs_run_nothing() {
    let f = fixture();
    assert!(f.run(&["noop"]).1.abs() < 1e-9);
    assert!(f.run(&["holder"]).1.abs() < 1e-9);
    assert!(f.run(&["mps-server"]).1.abs() < 1e-9);
    let (own, device) = f.run(&["notebook", "--kernel-us", "2000"]);
    assert!((own - 0.002).abs() < 1e-9 && (device - 0.002).abs() < 1e-9);
}

#[test]
fn a_waiter_lives_on_what_a_feeder_sends_and_a_server_on_what_a_client_asks() {
    let f = fixture();
    let mut feeder = f.start(&["feeder", "--listen", "127.0.0.1:17077", "--delay-us", "10000"]);
    std::thread::sleep(Duration::from_millis(300));
    let (own, device) =
        f.run(&["waiter", "--wait", "network", "--connect", "127.0.0.1:17077", "--read-kib", "64"]);
    assert!(own > 0.05 && (own - device).abs() < 2e-6);
    feeder.kill().unwrap();
    feeder.wait().unwrap();
    let report = f.report();
    let mut server = f.start(&[
        "server",
        "--listen",
        "127.0.0.1:17078",
        "--seconds",
        "3",
        "--report",
        report.to_str().unwrap(),
    ]);
    std::thread::sleep(Duration::from_millis(500));
    f.start(&["client", "--connect", "127.0.0.1:17078", "--period-ms", "20", "--seconds", "1"])
        .wait()
        .unwrap();
    assert!(server.wait().unwrap().success());
    assert!(number(&report, "steps") >= 10.0);
}

#[test]
fn a_signal_ends_a_program_with_its_report() {
    let f = fixture();
    let report = f.report();
    let mut program = f.start(&["trainer", "--report", report.to_str().unwrap()]);
    let end = Instant::now() + Duration::from_secs(20);
    while f.active() < 0.05 {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&program);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(program.wait().unwrap().success());
    assert!(number(&report, "kernels") > 0.0);
}
