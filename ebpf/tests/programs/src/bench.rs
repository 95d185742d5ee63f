//! What the probes cost: each figure with and without them, in turns, so that a busy machine strikes both alike.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use warpmeter_ebpf_common::program;

use crate::cuda::{Driver, NON_BLOCKING};
use crate::{Flavour, Probes, cpu_time, now};

/// Rounds of each figure.
const ROUNDS: usize = 25;

/// A process that measures when it is told to.
struct Meter {
    child: Owned,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Meter {
    fn start(what: &str, node: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["meter", what])
            .env("SIMGPU_STATE", node)
            .env("LD_LIBRARY_PATH", node.join("lib"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child: Owned(child), orders, answers }
    }

    /// Nanoseconds of one operation.
    fn measure(&mut self) -> f64 {
        self.orders.write_all(b"x").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the meter ended");
            // It may say other things first.
            if let Ok(value) = line.trim().parse() {
                return value;
            }
        }
    }
}

/// A process that does not outlive its use.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One line of the table: the best rounds without and with, their difference, and the median and quartiles of the
/// differences of neighbouring rounds.
fn line(name: &str, pairs: &[(f64, f64)]) {
    let best = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).fold(f64::INFINITY, f64::min);
    let (without, with) = (best(|pair| pair.0), best(|pair| pair.1));
    let mut more: Vec<f64> = pairs.iter().map(|pair| pair.1 - pair.0).collect();
    let middle = median(&mut more);
    println!(
        "{name:42} {without:9.1} {with:9.1} {:+9.1} {middle:+9.1} ({:+.1} to {:+.1})",
        with - without,
        more[more.len() / 4],
        more[more.len() * 3 / 4],
    );
}

/// The benchmark: a table of nanoseconds, then the kernel's own statistics.
pub fn run() {
    let directory = tempfile::TempDir::new().unwrap();
    let node = directory.path();
    let scenario = warpmeter_simgpu::Scenario::of(warpmeter_simgpu::Model::H100, 1);
    warpmeter_simgpu::create(node, &scenario).unwrap();
    let program = std::env::current_exe().unwrap();
    // Two copies: only one is probed. Names that share an inode would be one object.
    let plain = node.join("plain");
    std::fs::create_dir_all(&plain).unwrap();
    warpmeter_simgpu::install_libraries(program.parent().unwrap(), &node.join("lib")).unwrap();
    warpmeter_simgpu::create(&plain, &scenario).unwrap();
    warpmeter_simgpu::install_libraries(program.parent().unwrap(), &plain.join("lib")).unwrap();

    println!("{:42} {:>9} {:>9} {:>9} {:>9}", "ns", "without", "with", "more", "median");
    let mut probes = Probes::load(Flavour::Fast, true, true);
    let attached = probes.attach(&node.join("lib/libcuda.so.1"), |_| true);
    for what in ["launch", "synchronisation", "event"] {
        let (mut a, mut b) = (Meter::start(what, &plain), Meter::start(what, node));
        let pairs: Vec<_> = (0..ROUNDS).map(|_| (a.measure(), b.measure())).collect();
        line(&format!("{what} (all probes attached)"), &pairs);
    }
    println!("{attached} probes of the library attached");
    drop(probes);

    for flavour in [Flavour::Fast, Flavour::Stack] {
        for (what, tracked) in [("switch", false), ("switch", true), ("read", false), ("read", true)] {
            let mut meter = Meter::start(what, node);
            let pairs: Vec<_> = (0..ROUNDS)
                .map(|_| {
                    let without = meter.measure();
                    let mut probes = Probes::load(flavour, true, true);
                    if tracked {
                        for process in family(meter.child.0.id()) {
                            probes.track(process, true);
                        }
                    }
                    (without, meter.measure())
                })
                .collect();
            let whose = if tracked { "tracked" } else { "unrelated" };
            line(&format!("{what}, {whose} ({flavour:?})"), &pairs);
        }
    }
    statistics(node);
}

/// A process and its child.
fn family(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(|child| child.parse().unwrap()).chain([pid]).collect()
}

/// The kernel's own account of the programs: it reads its clock twice a run, which is in these figures.
fn statistics(node: &Path) {
    let _on = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
    for flavour in [Flavour::Fast, Flavour::Stack] {
        let mut probes = Probes::load(flavour, true, true);
        probes.attach(&node.join("lib/libcuda.so.1"), |_| true);
        for what in ["launch", "synchronisation", "event", "switch"] {
            let mut meter = Meter::start(what, node);
            for process in family(meter.child.0.id()) {
                probes.track(process, true);
            }
            meter.measure();
            meter.measure();
        }
        println!("{flavour:?}: program, runs, ns per run");
        for (name, runs, spent) in probes.statistics() {
            if runs > 0 && name != program::FLUSH {
                println!("  {name:16} {runs:9} {:7.0}", spent as f64 / runs as f64);
            }
        }
    }
}

/// A measuring process: an answer for each byte that comes.
pub fn meter(what: &str) {
    let mut operation: Box<dyn FnMut() -> f64> = match what {
        "launch" => {
            let driver = Driver::open(1);
            let stream = driver.stream(NON_BLOCKING);
            // Below the queue's depth, so that no launch waits.
            Box::new(move || {
                let (mut spent, rounds, each) = (0, 40, 250);
                for _ in 0..rounds {
                    let began = cpu_time();
                    for _ in 0..each {
                        driver.launch(stream);
                    }
                    spent += cpu_time() - began;
                    driver.synchronize(stream);
                }
                spent as f64 / f64::from(rounds * each)
            })
        }
        "synchronisation" => {
            let driver = Driver::open(1);
            let stream = driver.stream(NON_BLOCKING);
            Box::new(move || each(5_000, cpu_time, || driver.synchronize(stream)))
        }
        "event" => {
            let driver = Driver::open(1);
            let (stream, event) = (driver.stream(NON_BLOCKING), driver.event());
            Box::new(move || each(5_000, cpu_time, || driver.record(event, stream)))
        }
        "read" => {
            let mut zero = File::open("/dev/zero").unwrap();
            let mut byte = [0];
            Box::new(move || each(100_000, cpu_time, || zero.read_exact(&mut byte).unwrap()))
        }
        "switch" => {
            pin();
            let (mut ping, mut pong) = (crate::behave::new_pipe(), crate::behave::new_pipe());
            let (from, to) = (ping.1.as_fd().try_clone_to_owned(), pong.0.as_fd().try_clone_to_owned());
            let echo = Owned(
                Command::new(std::env::current_exe().unwrap())
                    .args(["meter", "echo"])
                    .stdin(from.unwrap())
                    .stdout(to.unwrap())
                    .spawn()
                    .unwrap(),
            );
            let mut byte = [0];
            Box::new(move || {
                let _alive = &echo;
                each(10_000, now, || {
                    ping.0.write_all(b"x").unwrap();
                    pong.1.read_exact(&mut byte).unwrap();
                }) / 2.0
            })
        }
        "echo" => {
            pin();
            let (mut from, mut to) = (
                std::io::stdin().lock(),
                File::from(std::io::stdout().as_fd().try_clone_to_owned().unwrap()),
            );
            let mut byte = [0];
            while from.read_exact(&mut byte).is_ok() {
                to.write_all(&byte).unwrap();
            }
            return;
        }
        other => panic!("nothing called {other} to measure"),
    };
    let mut byte = [0];
    while std::io::stdin().read_exact(&mut byte).is_ok() {
        println!("{:.2}", operation());
    }
}

fn each(times: u32, clock: fn() -> u64, mut operation: impl FnMut()) -> f64 {
    let began = clock();
    for _ in 0..times {
        operation();
    }
    (clock() - began) as f64 / f64::from(times)
}

/// To the last CPU, so that both sides of a switch share one.
pub(crate) fn pin() {
    // SAFETY: no precondition.
    let last = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } - 1;
    pin_to(usize::try_from(last).unwrap());
}

/// To one CPU.
pub(crate) fn pin_to(cpu: usize) {
    // SAFETY: a set of CPUs that lives through the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}
