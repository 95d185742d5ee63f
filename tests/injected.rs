//! The injected library in programs on simulated GPUs: what it sums, beside the simulator's own log.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use warpmeter_inject_page::{LINK, Page, Reason, State};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::wait;

const GPU: &str = "[[gpu]]\nmodel = \"H100\"";

/// Starts a program with the library injected, which samples one second in so many.
fn injected(sim: &Sim, words: &str, one_in: u32) -> Program {
    injected_with(sim, words, &format!("1/{one_in}"), "libcupti.so.12")
}

fn injected_with(sim: &Sim, words: &str, sample: &str, cupti: &str) -> Program {
    let library = sim.install_inject();
    let environment = [
        ("CUDA_INJECTION64_PATH", library.as_os_str()),
        ("WARPMETER_INJECT_SAMPLE", OsStr::new(sample)),
        ("WARPMETER_INJECT_CUPTI", sim.libraries().join(cupti).as_os_str()),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let environment: Vec<(&str, &OsStr)> = environment.iter().map(|(name, value)| (*name, &**value)).collect();
    Program::start_with(sim, &sim.gpus[0].uuid, None, words, &environment)
}

/// The page of a process, if it has one.
fn file(pid: u32) -> Option<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let is = |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.as_os_str().as_encoded_bytes() == LINK);
    entries.flatten().map(|entry| entry.path()).find(is)
}

/// What stands in it, of one time.
fn page(file: &Path) -> Page {
    wait::until("a page of one time", || Page::read(&std::fs::read(file).ok()?).ok())
}

/// What stands in a program's page, once that is so.
fn when(program: &Program, so: impl Fn(&Page) -> bool) -> Page {
    let file = wait::until("a page", || file(program.pid));
    wait::until("the page", || Some(page(&file)).filter(&so))
}

/// The part by which two amounts differ.
fn apart(found: f64, truth: f64) -> f64 {
    (found - truth).abs() / truth
}

fn seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}

#[test]
fn a_program_alone_on_its_device_is_summed_as_the_log_has_it() {
    let sim = Sim::alone(GPU);
    let mut program = injected(&sim, "trainer --kernels 20 --kernel-us 300 --host-us 4000 --seconds 4 --block 128 --shared 4096", 1);
    let pid = program.pid;
    // All that is seen before it ends, with the log up to about then.
    let found = when(&program, |page| page.elapsed > 3_000_000_000 && !page.devices.is_empty());
    let truth = sim.busy()[&pid];
    program.finish();
    let device = &found.devices[0];
    println!("{found:?}\nof {truth}");
    assert_eq!((found.state, found.reason, found.dropped, found.discarded), (State::Sampling, Reason::None, 0, 0));
    assert!(apart(seconds(device.busy), seconds(found.elapsed) * truth / seconds(found.elapsed)) < 0.05, "{device:?}");
    assert_eq!(device.shapes.len(), 1);
}
