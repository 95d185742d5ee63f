//! The library by itself: its sums, and its silence where something is missing.

use std::process::{Command, Stdio};

use warpmeter_inject_page::{Page, Reason, Shape, State};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{tool, wait};

use super::{GPU, after, assert_near, command, file, inject, injected, only, seconds, truth, when};

#[test]
fn a_program_alone_on_its_device_is_summed_as_the_log_has_it() {
    let sim = Sim::alone(GPU);
    let words =
        "trainer --kernels 20 --kernel-us 300 --host-us 4000 --upload-kib 1024 --block 128 --shared 4096";
    let program = injected(&sim, words);
    let page = after(&program, 4);
    let device = only(&page);
    assert_near("busy", seconds(device.busy), truth(&sim, &program, &page), 0.01);
    assert_eq!(
        (page.state, page.reason, page.dropped, page.discarded),
        (State::Sampling, Reason::None, 0, 0)
    );
    assert_eq!((device.ran, device.interrupted, device.late, device.unshaped), (device.busy, 0, 0, 0));
    assert_eq!(device.nanos, device.kernels * 300_000, "every kernel as long as it is");
    let shape =
        Shape { block: 128, registers: 32, shared: 4096, kernels: device.kernels, nanos: device.nanos };
    assert_eq!(device.shapes, [shape]);
    let [to_device, to_host, other] = device.copies;
    assert_eq!((to_device.bytes, to_host.count, other.count), (to_device.count << 20, 0, 0));
    assert!(to_device.count.abs_diff(device.kernels / 20) <= 1, "{device:?}");
}

#[test]
fn kernels_that_overlap_in_streams_of_a_process_count_once_as_busy_time() {
    let sim = Sim::alone(GPU);
    let program = injected(&sim, "trainer --kernels 10 --kernel-us 500 --host-us 3000 --sm 30 --threads 3");
    let page = after(&program, 4);
    let device = only(&page);
    assert_near("busy", seconds(device.busy), truth(&sim, &program, &page), 0.01);
    assert!(device.nanos > device.busy * 11 / 10, "they overlapped: {device:?}");
}

#[test]
fn two_and_three_processes_that_take_turns_ran_for_as_long_as_the_log_has_it() {
    for count in [2, 3] {
        let sim = Sim::alone(GPU);
        let words = [
            "hog --kernel-us 230",
            "trainer --kernels 30 --kernel-us 150 --host-us 3000",
            "hog --kernel-us 110 --duty 0.5",
        ];
        let programs: Vec<Program> = words[..count].iter().map(|words| injected(&sim, words)).collect();
        for (program, words) in programs.iter().zip(words) {
            let page = after(program, 5);
            let (device, truth) = (only(&page), truth(&sim, program, &page));
            assert_near(&format!("{count} processes, ran: {words}"), seconds(device.ran), truth, 0.01);
            println!("{count} processes, busy: {words}: {:.4} s of {truth:.4} s", seconds(device.busy));
            assert!(
                device.busy > device.ran && device.interrupted > 0,
                "its kernels span others' turns: {device:?}"
            );
        }
    }
}

#[test]
fn processes_under_mps_are_busy_for_as_long_as_the_log_has_it() {
    let sim = Sim::alone(&format!("{GPU}\nmps = true"));
    let words = [
        "hog --kernel-us 400 --sm 40 --duty 0.7",
        "trainer --kernels 20 --kernel-us 300 --sm 40 --host-us 4000",
    ];
    let programs = words.map(|words| injected(&sim, words));
    for (program, words) in programs.iter().zip(words) {
        let page = after(program, 5);
        assert_near(words, seconds(only(&page).busy), truth(&sim, program, &page), 0.01);
    }
}

#[test]
fn one_second_in_two_comes_to_half_of_the_sums() {
    let sim = Sim::alone(GPU);
    let words = "trainer --kernels 20 --kernel-us 300 --host-us 4000";
    let program = Program::spawn(&mut command(&sim, None, words, "1/2", "libcupti.so.12"));
    let page = after(&program, 8);
    let scaled = seconds(only(&page).busy) * seconds(page.elapsed) / seconds(page.sampled);
    assert!(page.sampled * 2 <= page.elapsed + 1_000_000_000 && page.sampled * 3 >= page.elapsed, "{page:?}");
    // The program's first moments are in one of four samples, or in none.
    assert_near("busy, scaled", scaled, truth(&sim, &program, &page), 0.1);
}

#[test]
fn what_is_missing_switches_the_library_off_and_the_program_goes_on() {
    let cases = [
        ("libcupti.so.99", "", Reason::NoCupti),
        ("libnvidia-ml.so.1", "", Reason::Symbol),
        ("libcupti.so.12", "kind=cupti_version code=17", Reason::Version),
        ("libcupti.so.12", "kind=cupti_error code=15", Reason::Refused),
    ];
    for (cupti, fault, reason) in cases {
        let sim = Sim::new(GPU);
        if !fault.is_empty() {
            sim.fault(fault);
        }
        let words = "trainer --kernels 5 --kernel-us 300 --host-us 1000 --seconds 2";
        let mut program = Program::spawn(&mut command(&sim, None, words, "1/1", cupti));
        let page = when(&program, |page| page.state == State::Off);
        assert_eq!((page.reason, page.devices.len()), (reason, 0), "{cupti} {fault}");
        assert!(!page.reason.words(page.detail).is_empty());
        program.finish();
        assert!(sim.busy()[&program.pid] > 0.1, "{cupti} {fault}: it worked");
    }
}

#[test]
fn records_without_room_are_counted_and_the_program_goes_on() {
    let sim = Sim::new(GPU);
    sim.fault("kind=cupti_overflow");
    let mut program = injected(&sim, "trainer --kernels 5 --kernel-us 300 --host-us 1000");
    when(&program, |page| page.dropped > 0);
    sim.clear_faults();
    let page = when(&program, |page| !page.devices.is_empty());
    assert_eq!(page.discarded, 0);
    program.end();
}

#[test]
fn a_cupti_that_hangs_holds_up_nothing_but_the_library() {
    let sim = Sim::new(GPU);
    sim.fault("kind=cupti_hang");
    let mut program = injected(&sim, "trainer --kernels 5 --kernel-us 300 --host-us 1000 --seconds 3");
    let page = when(&program, |page| page.state == State::Sampling);
    program.finish();
    assert!(page.devices.is_empty() && sim.busy()[&program.pid] > 0.3, "{page:?}");
}

#[test]
fn a_library_that_is_not_there_changes_nothing() {
    let sim = Sim::new(GPU);
    let words = "trainer --kernels 5 --kernel-us 300 --seconds 1";
    let mut command = command(&sim, None, words, "1/1", "libcupti.so.12");
    let mut program = Program::spawn(command.env("CUDA_INJECTION64_PATH", "/nowhere/libwarpmeter_inject.so"));
    program.finish();
    assert!(sim.busy()[&program.pid] > 0.1);
}

/// Forks after its first kernel; parent and child then wait for the end of standard input.
const FORKING: &str = "
import os, sys
sys.path.insert(0, sys.argv[1])
from cuda import Driver
driver = Driver(blocking=True)
kernel = driver.kernel('us=500')
driver.launch(kernel)
driver.synchronize()
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
while True:
    driver.launch(kernel)
    driver.synchronize()
";

#[test]
fn a_child_of_a_fork_has_no_page_and_does_not_write_to_its_parents() {
    let Some(python) = tool::find("python3") else { return tool::skip("python3 is not installed") };
    let sim = Sim::new(GPU);
    let mut command = Command::new(python);
    command
        .args(["-c", FORKING, concat!(env!("CARGO_MANIFEST_DIR"), "/workload/python")])
        .env("LD_LIBRARY_PATH", sim.libraries())
        .env("SIMGPU_STATE", sim.state())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    inject(&mut command, &sim, "1/1", "libcupti.so.12");
    let mut parent = command.spawn().unwrap();
    // Kept from the parent's end on, which would close it.
    let input = parent.stdin.take();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(parent.stdout.take().unwrap()), &mut line)
        .unwrap();
    let child: u32 = line.trim().parse().unwrap();
    let page = wait::until("the parent's page", || file(parent.id()));
    // The handler runs in the child, after the parent has gone on.
    wait::until("the child to close it", || file(child).is_none().then_some(()));
    let kept = std::fs::File::open(&page).unwrap();
    wait::until("kernels", || {
        let bytes = std::fs::read(&page).ok()?;
        Page::read(&bytes).ok().filter(|page| page.devices.first().is_some_and(|device| device.kernels > 1))
    });
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(tool::runs(child));
    let read = || {
        let mut bytes = vec![0; warpmeter_inject_page::BYTES];
        std::os::unix::fs::FileExt::read_exact_at(&kept, &mut bytes, 0).unwrap();
        bytes
    };
    let last = read();
    // More than a period of the library's.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(tool::runs(child) && read() == last, "nobody writes any more");
    drop(input);
}
