//! Pages that anybody may have written: they cost nobody else anything, and are said.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use warpmeter_inject_page::{BYTES, MAGIC, NAME, VERSION, device, word};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::ledger::assert_conserved;
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;

use super::{GPU, injected};

const HONEST: &str = "trainer --kernel-us 300 --host-us 2000";

/// A memory file by the name of pages, as long as said.
fn memory(bytes: usize) -> File {
    let file = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    File::from(file)
}

/// A program that has this file open, as its standard input.
fn holder(sim: &Sim, file: &File) -> Program {
    let mut command = Program::command(sim, &sim.gpus[0].uuid, None, "notebook");
    Program::spawn(command.stdin(OwnedFd::from(file.try_clone().unwrap())))
}

fn put(file: &File, words: &[(usize, u64)]) {
    for (place, value) in words {
        file.write_all_at(&value.to_le_bytes(), (place * 8) as u64).unwrap();
    }
}

const HEAD: [(usize, u64); 2] = [(word::MAGIC, MAGIC), (word::VERSION, VERSION)];

#[test]
fn pages_that_cannot_be_are_said_and_cost_the_others_nothing() {
    let sim = Sim::new(GPU);
    let mut holders = Vec::new();
    // Nothing, too little, noise, another version, one that never stands still, and more time than there was.
    let files = [BYTES, 100, BYTES, BYTES, BYTES, BYTES].map(memory);
    files[2].write_all_at(&vec![0xa5; BYTES], 0).unwrap();
    put(&files[3], &[HEAD[0], (word::VERSION, 77)]);
    put(&files[4], &HEAD);
    put(&files[4], &[(word::SEQUENCE, 1)]);
    put(&files[5], &HEAD);
    for file in &files {
        holders.push(holder(&sim, file));
    }
    let hour = 3_600_000_000_000;
    put(
        &files[5],
        &[
            (word::PID, holders[5].pid.into()),
            (word::STATE, 1),
            (word::ELAPSED, 2 * hour),
            (device::first(0) + device::UUID, 7),
            (device::first(0) + device::BUSY, u64::MAX),
            (device::first(0) + device::NANOS, u64::MAX),
        ],
    );
    let honest = injected(&sim, HONEST);
    let daemon = Daemon::start(&sim, "[inject]\nenabled = true\n[metrics]\nlevel = \"full\"\n");
    let status = daemon.until_status("what is the matter with each", |status| {
        let sources = status["sources"].as_array().unwrap();
        let source = sources.iter().find(|source| source["source"] == "inject");
        source.is_some_and(|source| {
            let reason = source["reason"].as_str().unwrap();
            let said = ["is none", "page 77", "never stands still", "cannot be (kernels)"];
            source["health"] == "degraded" && said.iter().all(|said| reason.contains(said))
        })
    });
    assert!(status["others"].as_array().is_some());
    daemon.when("each of them counted", |metrics| {
        metrics.sum("warpmeter_source_values_discarded_total", &[("source", "inject"), ("reason", "garbage")])
            > 4.0
    });
    daemon.until_status("the honest one's sums", |status| {
        let others = status["others"].as_array().unwrap();
        others
            .iter()
            .any(|account| account["injected"]["kernels"].as_u64().is_some_and(|kernels| kernels > 0))
    });
    drop(honest);
    assert_conserved(&daemon.scrape());
}

#[test]
fn another_processes_page_is_not_taken_for_its_own() {
    let sim = Sim::new(GPU);
    let honest = injected(&sim, HONEST);
    let page = warpmeter_tests::wait::until("a page", || super::file(honest.pid));
    let thief = holder(&sim, &File::open(page).unwrap());
    let daemon = Daemon::start(&sim, "[inject]\nenabled = true\n");
    let kernels = |status: &serde_json::Value| {
        let others = status["others"].as_array().unwrap();
        others.iter().filter_map(|account| account["injected"]["kernels"].as_u64()).sum::<u64>()
    };
    daemon.until_status("sums", |status| kernels(status) > 0);
    // Both are the host's: counted twice, it would be twice as many as there were.
    let before = super::after(&honest, 0);
    let status = daemon.until_status("later sums", |status| kernels(status) > 500);
    let after = super::when(&honest, |page| page.written > before.written);
    assert!(kernels(&status) <= super::only(&after).kernels, "{status}");
    drop(thief);
}
