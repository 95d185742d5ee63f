//! The processes of the tests and benchmarks.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests: a failed step is a failed test, and the parent reads what it prints"
)]

use std::path::Path;
use std::process::ExitCode;

use warpmeter_ebpf_tests::{Flavour, Probes, behave, bench, chains, cuda, lives, pieces, swapped};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let number = |at: usize| word(at).parse().unwrap_or(0.0);
    match word(1) {
        // Starts when a byte comes, so that it can be followed from then on.
        "threads" => {
            wait_for_byte();
            behave::run(number(2), Path::new(word(3)), word(4).parse().unwrap_or(0));
        }
        "chain" => {
            wait_for_byte();
            chains::run(word(2));
        }
        "compute" => chains::compute(word(2).parse().unwrap()),
        "lives" => {
            wait_for_byte();
            lives::run(word(2));
        }
        "pieces" => {
            wait_for_byte();
            if word(2) == "crowded" { pieces::run_crowded() } else { pieces::run() }
        }
        "swapped" => {
            wait_for_byte();
            swapped::run(std::time::Duration::from_secs_f64(number(2)), word(3) == "shared");
        }
        // What such a process becomes.
        "renewed" => lives::renewed(),
        "cuda" => {
            wait_for_byte();
            cuda::run(word(2));
        }
        "workload" => {
            wait_for_byte();
            return warpmeter_workload::main(std::env::args_os().skip(1).collect());
        }
        // Loads, attaches, and stays until it is killed.
        "hold" => {
            let mut probes = Probes::load(Flavour::Fast, true, true);
            println!("{}", probes.attach(Path::new(word(2)), |_| true));
            loop {
                std::thread::park();
            }
        }
        // The byte that is executed at the second instruction of cuInit.
        "bytes" => println!("{}", cuda::byte_at_probe(Path::new(word(2)))),
        "bench" => bench::run(),
        "meter" => bench::meter(word(2)),
        other => {
            eprintln!("no such process: {other}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn wait_for_byte() {
    use std::io::Read as _;
    let mut byte = [0];
    std::io::stdin().read_exact(&mut byte).unwrap();
}
