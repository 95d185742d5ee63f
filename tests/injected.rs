//! The injected library in programs on simulated GPUs: what it sums beside the simulator's own log, what becomes of it
//! when something is wrong, and what the daemon makes of it.

mod daemon;
mod hostile;
mod library;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use warpmeter_inject_page::{Device, LINK, Page};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::wait;

const GPU: &str = "[[gpu]]\nmodel = \"H100\"";

/// A program with the library injected, which samples as said and uses such a libcupti.
fn command(sim: &Sim, cgroup: Option<&Path>, words: &str, sample: &str, cupti: &str) -> Command {
    let mut command = Program::command(sim, &sim.gpus[0].uuid, cgroup, words);
    inject(&mut command, sim, sample, cupti);
    command
}

fn inject(command: &mut Command, sim: &Sim, sample: &str, cupti: &str) {
    command
        .env("CUDA_INJECTION64_PATH", sim.install_inject())
        .env("WARPMETER_INJECT_SAMPLE", sample)
        .env("WARPMETER_INJECT_CUPTI", sim.libraries().join(cupti));
}

/// Starts a program with the library injected, which samples all of the time.
fn injected(sim: &Sim, words: &str) -> Program {
    Program::spawn(&mut command(sim, None, words, "1/1", "libcupti.so.12"))
}

/// The file in which a process keeps its page, if it has one.
fn file(pid: u32) -> Option<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is = |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.as_os_str() == link());
    entries.flatten().map(|entry| entry.path()).find(is)
}

fn link() -> &'static OsStr {
    OsStr::new(std::str::from_utf8(LINK).unwrap())
}

/// What stands in a program's page, once that is so.
fn when(program: &Program, so: impl Fn(&Page) -> bool) -> Page {
    let file = wait::until("a page", || file(program.pid));
    wait::until("the page", || Page::read(&std::fs::read(&file).ok()?).ok().filter(&so))
}

/// The same once so many seconds have passed and there is a device in it.
fn after(program: &Program, seconds: u64) -> Page {
    when(program, |page| page.elapsed >= seconds * 1_000_000_000 && !page.devices.is_empty())
}

/// What the simulator's log has for the time of a page. To be asked soon after the page was read.
fn truth(sim: &Sim, program: &Program, page: &Page) -> f64 {
    sim.busy_within(page.written - page.elapsed..page.written).get(&program.pid).copied().unwrap_or(0.0)
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

fn assert_near(what: &str, found: f64, truth: f64, tolerance: f64) {
    let error = (found - truth).abs() / truth;
    println!("{what}: {found:.4} s, {truth:.4} s in truth, {:.2} % off", error * 100.0);
    assert!(error <= tolerance, "{what}: {found} s found, {truth} s in truth: {:.2} % off", error * 100.0);
}

/// The only device of a page.
fn only(page: &Page) -> &Device {
    assert_eq!(page.devices.len(), 1, "{page:?}");
    &page.devices[0]
}
