//! SM figures of devices without GPM, by sampling their performance monitors.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpmeter_simgpu::{Node, Process};
use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::gpus::{busy, engine_active as engine, labels, sm_active as sm};
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::recording::{beginning, reached};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{http, tool, wait};

const OLD_GPUS: &str = "[[gpu]]\nmodel = \"A100\"\n[[gpu]]\nmodel = \"T4\"";

/// The section of the configuration that has the node's monitors sampled, with further lines.
fn sampling(sim: &Sim, more: &str) -> String {
    format!("[cupti]\nenabled = true\nlibraries = [\"{}\"]\n{more}", sim.libraries().display())
}

/// What was counted of a GPU, in seconds: SM active, occupied, tensor, DRAM.
fn figures(metrics: &Exposition, gpu: Labels<'_>) -> [f64; 4] {
    ["sm_active", "sm_occupied", "tensor_active", "dram_bandwidth"]
        .map(|name| metrics.sum(&format!("warpmeter_gpu_{name}_seconds_total"), gpu))
}

/// Waits until the driver's source says this, and gives all that it says.
fn until_said(daemon: &Daemon, text: &str) -> String {
    daemon.until_health("nvidia", &format!("the source to say {text:?}"), |_, reason| reason.contains(text))
}

/// Which counter gives a GPU's SM figures.
fn authority(daemon: &Daemon, sim: &Sim, index: usize) -> Value {
    let listed = |status: &Value| {
        let gpus = status["gpus"].as_array()?;
        gpus.iter().find(|gpu| gpu["gpu_uuid"] == sim.gpus[index].uuid.as_str() && gpu["up"] == true).cloned()
    };
    let status = daemon.until_status("the inventory", |status| listed(status).is_some());
    listed(&status).unwrap()["authority"]["sm"].clone()
}

/// The processes that have the CUPTI library mapped.
fn users_of_cupti(daemon: &Daemon, sim: &Sim) -> Vec<u32> {
    let has = |pid: &u32| tool::handles(*pid, &sim.libraries()).iter().any(|path| path.contains("libcupti"));
    daemon.children().into_iter().filter(has).collect()
}

/// Who owns a GPU's monitor: a living process's pid, or 0.
fn owner(sim: &Sim, index: usize) -> u32 {
    let node = Node::open(&sim.state()).unwrap();
    let monitor = &node.lock().device[index].monitor;
    let alive = Process { pid: monitor.owner, start: monitor.owner_start }.alive();
    if alive { monitor.owner } else { 0 }
}

/// For a while, SM figures stand still and engine activity is counted on; on another GPU both are.
fn assert_only_sm_is_lost(daemon: &Daemon, lost: Labels<'_>, well: Labels<'_>) -> Exposition {
    let before = daemon.scrape();
    let enough = |metrics: &Exposition| elapsed(metrics, lost[0].1) > elapsed(&before, lost[0].1) + 3.0;
    let after = daemon.when("three seconds without SM figures", enough);
    let added = |of: fn(&Exposition, Labels<'_>) -> f64, gpu| of(&after, gpu) - of(&before, gpu);
    assert!(added(sm, lost) < 1e-9, "{} s of SM activity from nowhere", added(sm, lost));
    assert!(added(engine, lost) > 1.0, "{} s of engine activity", added(engine, lost));
    assert!(added(engine, well) > 1.0 && added(sm, well) > 0.5, "the other GPU is sampled on");
    assert_conserved(&after);
    after
}

#[test]
fn sm_figures_of_gpus_without_gpm_are_what_the_simulator_logged() {
    let sim = Sim::alone(OLD_GPUS);
    let words = "hog --duty 0.6 --kernel-us 1000 --sm 50 --occ 40 --dram 30 --tensor 20";
    let recording = sim.path("run.jsonl");
    let arguments = [OsStr::new("--record"), recording.as_os_str()];
    let mut daemon = Daemon::start_with(&sim, &sampling(&sim, ""), &arguments);
    let mut programs: Vec<Program> =
        sim.gpus.iter().map(|gpu| Program::start(&sim, &gpu.uuid, None, words)).collect();
    let gpus = [labels(&sim, 0), labels(&sim, 1)];
    let before = daemon.when("both to be sampled", |metrics| gpus.iter().all(|gpu| sm(metrics, gpu) > 0.5));
    for index in [0, 1] {
        assert_eq!(authority(&daemon, &sim, index), "pm_sampling");
    }
    let end = elapsed(&before, gpus[0][0].1) + 12.0;
    let after = daemon.when("the measured time", |metrics| elapsed(metrics, gpus[0][0].1) >= end);

    // It holds both monitors, and no context: neither the driver lists it nor the model has a client of it.
    let [child] = users_of_cupti(&daemon, &sim)[..] else { panic!("one process has the library") };
    assert_eq!([owner(&sim, 0), owner(&sim, 1)], [child, child]);
    let node = Node::open(&sim.state()).unwrap();
    let guard = node.lock();
    let clients = guard.client.iter().filter(|client| client.used == 1).map(|client| client.pid);
    let pids: Vec<u32> = clients.collect();
    drop(guard);
    let mut expected: Vec<u32> = programs.iter().map(|program| program.pid).collect();
    expected.sort_unstable();
    assert_eq!(
        pids.iter().copied().collect::<std::collections::BTreeSet<_>>(),
        expected.into_iter().collect()
    );

    for program in &mut programs {
        program.end();
    }
    daemon.terminate();
    for (gpu, program) in gpus.iter().zip(&programs) {
        let beginning = beginning(&recording, gpu[0].1);
        let at = |metrics: &Exposition| reached(metrics, gpu[0].1, beginning);
        let busy = sim.busy_within(at(&before)..at(&after))[&program.pid];
        let shares = [0.5, 0.5 * 0.4, 0.2, 0.3];
        let (from, to) = (figures(&before, gpu), figures(&after, gpu));
        for ((share, from), to) in shares.into_iter().zip(from).zip(to) {
            let (counted, truth) = (to - from, share * busy);
            let error = (counted - truth).abs() / truth;
            println!(
                "{gpu:?} {share}: {counted:.3} s counted, {truth:.3} s in truth: {:.2} % off",
                error * 100.0
            );
            assert!(error < 0.01, "{gpu:?} {share}: {counted} s counted, {truth} s in truth");
        }
    }
}

#[test]
fn traffic_over_pcie_is_what_was_copied() {
    let sim = Sim::new(OLD_GPUS);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let gpu = labels(&sim, 0);
    let received = |metrics: &Exposition| metrics.get("warpmeter_gpu_pcie_receive_bytes_total", &gpu);
    daemon.when("both to be sampled", |metrics| received(metrics).is_some());
    let mut program = Program::start(&sim, gpu[0].1, None, "trainer --seconds 4 --upload-kib 4096");
    program.finish();
    let node = Node::open(&sim.state()).unwrap();
    let copied = |metrics: &Exposition| {
        let guard = node.lock();
        let totals = guard.engine[guard.device[0].engine as usize].totals;
        #[expect(clippy::cast_precision_loss, reason = "compared roughly")]
        let bytes = totals.rx as f64;
        (received(metrics).unwrap() / bytes - 1.0).abs() < 0.02
    };
    daemon.when("what was copied to be counted", copied);
}

#[test]
fn monitors_are_left_alone_unless_asked_for() {
    let sim = Sim::new(OLD_GPUS);
    let libraries = format!("[cupti]\nlibraries = [\"{}\"]\n", sim.libraries().display());
    let daemon = Daemon::start(&sim, &libraries);
    let gpu = labels(&sim, 0);
    let metrics = daemon.when("readings", |metrics| elapsed(metrics, gpu[0].1) > 2.0);
    assert_eq!(authority(&daemon, &sim, 0), Value::Null);
    assert_eq!(metrics.all("warpmeter_gpu_sm_active_seconds_total", &gpu).count(), 0, "unknown is no series");
    assert_eq!((users_of_cupti(&daemon, &sim).len(), owner(&sim, 0)), (0, 0));
}

#[test]
fn only_what_is_named_is_sampled_and_hopper_on_request() {
    let sim = Sim::new("[[gpu]]\nmodel = \"A100\"\ncount = 2\n[[gpu]]\nmodel = \"H100\"\ncount = 2");
    let more = format!(
        "architectures = [\"ampere\", \"hopper\"]\ndevices = [\"{}\", \"{}\"]\n",
        sim.gpus[0].uuid, sim.gpus[2].pci_bus_id
    );
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, &more));
    let [sampled, hopper] = [labels(&sim, 0), labels(&sim, 2)];
    daemon.when("both to be sampled", |metrics| sm(metrics, &sampled) > 0.5 && sm(metrics, &hopper) > 0.5);
    let authorities = [0, 1, 2, 3].map(|index| authority(&daemon, &sim, index));
    assert_eq!(
        authorities.each_ref().map(Value::as_str),
        [Some("pm_sampling"), None, Some("pm_sampling"), Some("gpm_cycles")]
    );
    assert_eq!([1, 3].map(|index| owner(&sim, index)), [0, 0]);
    let before = daemon.scrape();
    let later =
        daemon.when("time", |metrics| elapsed(metrics, hopper[0].1) > elapsed(&before, hopper[0].1) + 4.0);
    let [engine, sm] = [engine, sm].map(|of| of(&later, &hopper) - of(&before, &hopper));
    // Engine activity stays GPM's; both are of the same kernels, which take three fifths of the SMs.
    assert!((sm / engine - 0.6).abs() < 0.03, "{sm} of {engine}");
}

#[test]
fn ada_is_sampled_in_full_and_a_chip_that_lacks_a_metric_says_which() {
    let sim = Sim::new("[[gpu]]\nmodel = \"L40S\"\n[[gpu]]\nmodel = \"GTX 1650\"");
    let words = "hog --duty 0.8 --kernel-us 1000 --sm 60 --occ 40 --dram 30 --tensor 20";
    let _programs: Vec<Program> =
        sim.gpus.iter().map(|gpu| Program::start(&sim, &gpu.uuid, None, words)).collect();
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let (ada, lacking) = (labels(&sim, 0), labels(&sim, 1));
    let metrics = daemon.when("both", |metrics| sm(metrics, &ada) > 2.0 && sm(metrics, &lacking) > 2.0);
    for index in [0, 1] {
        assert_eq!(authority(&daemon, &sim, index), "pm_sampling");
    }
    let tensor = "warpmeter_gpu_tensor_active_seconds_total";
    assert!(figures(&metrics, &ada).iter().all(|seconds| *seconds > 0.3), "{:?}", figures(&metrics, &ada));
    assert_eq!(metrics.all(tensor, &lacking).count(), 0, "unknown is no series");
    let reason = until_said(&daemon, "TU117 does not give tensor activity");
    for part in [&*sim.gpus[1].pci_bus_id, "sm__pipe_tensor_cycles_active", "no such metric"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    assert!(!reason.contains(&sim.gpus[0].pci_bus_id) && !reason.contains("SM activity"), "{reason}");
    assert_conserved(&metrics);
}

#[test]
fn a_chip_that_gives_nothing_that_is_wanted_says_so_and_is_left_alone_for_long() {
    let sim = Sim::new(OLD_GPUS);
    let metrics = [
        "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "dram__bytes_read.sum.pct_of_peak_sustained_elapsed",
        "dram__bytes_read.sum",
        "pcie__read_bytes.sum",
    ];
    for metric in metrics {
        sim.fault(&format!("kind=not_supported function={metric}"));
    }
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let reason = until_said(&daemon, "gives nothing that is wanted");
    for metric in metrics {
        assert!(reason.contains(metric), "{metric}: {reason}");
    }
    // What lasts is not tried again after a second, two and four.
    sim.clear_faults();
    let gpu = labels(&sim, 0);
    let before = daemon.scrape();
    let later = daemon.when("time", |metrics| elapsed(metrics, gpu[0].1) > elapsed(&before, gpu[0].1) + 8.0);
    assert!(sm(&later, &gpu) < 1e-9 && engine(&later, &gpu) > 1.0);
    assert_eq!(owner(&sim, 0), 0);
    assert_conserved(&later);
}

#[test]
fn in_mig_mode_nothing_is_sampled_and_that_is_said() {
    let sim =
        Sim::new("[[gpu]]\nmodel = \"A100\"\nmig = [{ profile = \"3g.40gb\" }]\n[[gpu]]\nmodel = \"T4\"");
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let reason = until_said(&daemon, "not in MIG mode");
    assert!(reason.contains(&sim.gpus[0].pci_bus_id), "{reason}");
    daemon.when("the other to be sampled", |metrics| sm(metrics, &labels(&sim, 1)) > 0.5);
    assert_eq!((authority(&daemon, &sim, 0), owner(&sim, 0)), (Value::Null, 0));
}

#[test]
fn a_monitor_that_another_has_is_tried_again_and_taken_when_it_is_free() {
    let sim = Sim::new(OLD_GPUS);
    let node = Node::open(&sim.state()).unwrap();
    let me = Process::current();
    assert!(node.lock().own_monitor(0, me));
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let (held, free) = (labels(&sim, 0), labels(&sim, 1));
    let reason = until_said(&daemon, "another program has the performance monitor");
    assert!(reason.contains(&sim.gpus[0].pci_bus_id) && reason.contains("dcgmi profile --pause"), "{reason}");
    daemon.when("the other to be sampled", |metrics| sm(metrics, &free) > 0.5);
    // The authority is the same all the while: nothing else stands in for it.
    assert_eq!(authority(&daemon, &sim, 0), "pm_sampling");
    assert_only_sm_is_lost(&daemon, &held, &free);
    assert_eq!(owner(&sim, 0), me.pid, "nothing is taken from anybody");
    node.lock().free_monitor(0, me);
    let back = daemon.when("its SM figures", |metrics| sm(metrics, &held) > 0.5);
    assert_conserved(&back);
    until_said(&daemon, "");
    daemon.until_status("all to be well", |status| status["sources"][0]["health"] == "up");

    // Taken away in the middle, it is let go of at once.
    sim.fault("kind=cupti_error code=26 gpu=0 for_s=6");
    until_said(&daemon, "another program has");
    let lost = assert_only_sm_is_lost(&daemon, &held, &free);
    daemon.when("its return", |metrics| sm(metrics, &held) > sm(&lost, &held) + 0.5);
}

#[test]
fn an_overflow_is_a_loss_that_is_counted_and_no_value() {
    let sim = Sim::new(OLD_GPUS);
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let (lost, well) = (labels(&sim, 0), labels(&sim, 1));
    let lost_values = |metrics: &Exposition| {
        metrics
            .sum("warpmeter_source_values_discarded_total", &[("source", "nvidia"), ("reason", "overflow")])
    };
    let before = daemon.when("both", |metrics| sm(metrics, &lost) > 0.5 && sm(metrics, &well) > 0.5);
    assert!(lost_values(&before) < 0.5);
    sim.fault("kind=cupti_overflow gpu=0 for_s=8");
    daemon.when("an overflow to be counted", |metrics| lost_values(metrics) >= 2.0);
    let during = assert_only_sm_is_lost(&daemon, &lost, &well);
    daemon.when("figures again", |metrics| sm(metrics, &lost) > sm(&during, &lost) + 0.5);
}

#[test]
fn a_monitor_whose_buffer_overflowed_is_said_and_started_anew() {
    // As a mark beside samples; and as a status that every decoding gives from then on.
    for how in ["", "code=8"] {
        let sim = Sim::new(OLD_GPUS);
        let _programs = busy(&sim);
        let daemon = Daemon::start(&sim, &sampling(&sim, ""));
        let (lost, well) = (labels(&sim, 0), labels(&sim, 1));
        daemon.when("both", |metrics| sm(metrics, &lost) > 0.5 && sm(metrics, &well) > 0.5);
        sim.fault(&format!("kind=cupti_overflow gpu=0 for_s=3 {how}"));
        let reason = until_said(&daemon, "its buffer overflowed");
        assert!(
            reason.contains(&sim.gpus[0].pci_bus_id) && !reason.contains(&sim.gpus[1].pci_bus_id),
            "{reason}"
        );
        let overflow = [("source", "nvidia"), ("reason", "overflow")];
        let discarded = "warpmeter_source_values_discarded_total";
        let during = daemon.when("it to be counted", |metrics| metrics.sum(discarded, &overflow) >= 1.0);
        let back = daemon.when("figures again", |metrics| sm(metrics, &lost) > sm(&during, &lost) + 1.5);
        daemon.until_status("all to be well", |status| status["sources"][0]["health"] == "up");
        assert_conserved(&back);
    }
}

#[test]
fn a_missing_privilege_is_said_with_what_grants_it() {
    let sim = Sim::new(OLD_GPUS);
    sim.fault("kind=cupti_error code=35");
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let reason = until_said(&daemon, "NVreg_RestrictProfilingToAdminUsers=0");
    assert!(reason.contains("CAP_SYS_ADMIN") && reason.matches("PM sampling").count() == 2, "{reason}");
    let metrics = daemon.when("engine activity", |metrics| engine(metrics, &labels(&sim, 0)) > 1.0);
    assert!(sm(&metrics, &labels(&sim, 0)) < 1e-9);
    assert_conserved(&metrics);
}

/// GPU 0's monitor goes unsampled while its calls do not return, or end the process; all else goes on.
fn left_alone(fault: &str, why: &str) {
    let sim = Sim::new(OLD_GPUS);
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let (bad, well) = (labels(&sim, 0), labels(&sim, 1));
    daemon.when("both", |metrics| sm(metrics, &bad) > 0.5 && sm(metrics, &well) > 0.5);
    sim.fault(fault);
    let reason = until_said(&daemon, why);
    let named = format!("PM sampling of GPU {} is left alone", sim.gpus[0].pci_bus_id);
    assert!(reason.contains(&named), "{reason}");
    let up = |metrics: &Exposition| metrics.get("warpmeter_gpu_up", &bad) == Some(1.0);
    let before = daemon.when("the GPU to be read on", up);
    daemon.when("the other to be sampled on", |metrics| sm(metrics, &well) > sm(&before, &well) + 1.0);
    assert_only_sm_is_lost(&daemon, &bad, &well);
}

#[test]
fn a_monitor_whose_calls_hang_is_left_alone_and_its_gpu_is_read_on() {
    left_alone("kind=cupti_hang gpu=0", "did not return");
}

#[test]
fn a_monitor_that_takes_the_reader_along_is_left_alone_and_its_gpu_is_read_on() {
    left_alone("kind=cupti_crash gpu=0", "signal 6");
}

/// What is said of a library, and that everything but SM figures is there.
fn unusable(sim: &Sim, libraries: &Path, says: &str) {
    let _programs = busy(sim);
    let more = format!("[cupti]\nenabled = true\nlibraries = [\"{}\"]\n", libraries.display());
    let daemon = Daemon::start(sim, &more);
    until_said(&daemon, says);
    let metrics = daemon.when("engine activity", |metrics| engine(metrics, &labels(sim, 0)) > 1.0);
    assert!(sm(&metrics, &labels(sim, 0)) < 1e-9);
    assert_conserved(&metrics);
}

#[test]
fn a_library_that_lacks_a_function_is_not_called_at_all() {
    let sim = Sim::new(OLD_GPUS);
    let path = sim.libraries().join("libcupti.so.12");
    let mut bytes = std::fs::read(&path).unwrap();
    let (name, other) = (b"cuptiPmSamplingStart\0", b"cuptiPmSamplingStarX\0");
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at..at + name.len()].copy_from_slice(other);
    std::fs::write(&path, bytes).unwrap();
    unusable(&sim, &sim.libraries(), "has no cuptiPmSamplingStart");
    assert_eq!(owner(&sim, 0), 0);
}

#[test]
fn a_library_that_is_too_old_is_not_started() {
    let sim = Sim::new(OLD_GPUS);
    sim.fault("kind=cupti_version code=24");
    unusable(&sim, &sim.libraries(), "is of interface version 24, and 26 or later is needed");
}

#[test]
fn libraries_whose_start_fails_stay_open_are_started_again_and_end_with_their_driver() {
    let sim = Sim::new(OLD_GPUS);
    sim.fault("kind=cuda_error code=999 for_s=20");
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    until_said(&daemon, "cuInit gives 999");
    let first = users_of_cupti(&daemon, &sim);
    assert_eq!(first.len(), 1);
    // Over several tries: after 1, 2 and 4 seconds.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        assert_eq!(users_of_cupti(&daemon, &sim), first, "it was closed");
        std::thread::sleep(Duration::from_millis(50));
    }
    // What cannot be closed is not taken over to another driver.
    sim.fault("kind=reload");
    let next = wait::until("another process", || {
        Some(users_of_cupti(&daemon, &sim)).filter(|next| next.len() == 1 && *next != first)
    });
    daemon.until_status("it to start", |status| status["sources"][0]["health"] == "up");
    let _programs = busy(&sim);
    let gpu = labels(&sim, 0);
    daemon.when("it to be sampled", |metrics| sm(metrics, &gpu) > 0.5);
    assert_eq!(users_of_cupti(&daemon, &sim), next, "by the process that had failed at first");
}

#[test]
fn no_library_and_none_that_is_one_are_said() {
    let sim = Sim::new(OLD_GPUS);
    let nowhere = sim.path("nowhere");
    std::fs::create_dir(&nowhere).unwrap();
    unusable(&sim, &nowhere, "no libcupti was found");
    std::fs::copy(daemon::program(), nowhere.join("libcupti.so")).unwrap();
    unusable(&sim, &nowhere, "open ");
}

fn tell(sim: &Sim, command: &str) {
    let config = sim.path("warpmeter.toml").into_os_string();
    let output = daemon::run(sim, [OsString::from(command), "--config".into(), config]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_release_gives_the_monitors_back_and_a_resume_takes_them_again() {
    let sim = Sim::new(OLD_GPUS);
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let gpu = labels(&sim, 0);
    daemon.when("it to be sampled", |metrics| sm(metrics, &gpu) > 0.5);
    assert_eq!(users_of_cupti(&daemon, &sim).len(), 1);
    tell(&sim, "release");
    assert_eq!((users_of_cupti(&daemon, &sim).len(), owner(&sim, 0), owner(&sim, 1)), (0, 0, 0));
    // Now a profiler can have them.
    let node = Node::open(&sim.state()).unwrap();
    let me = Process::current();
    assert!(node.lock().own_monitor(0, me));
    node.lock().free_monitor(0, me);
    let before = daemon.scrape();
    tell(&sim, "resume");
    let after = daemon.when("it to be sampled again", |metrics| sm(metrics, &gpu) > sm(&before, &gpu) + 0.5);
    assert_conserved(&after);
}

#[test]
fn a_reloaded_driver_is_sampled_again() {
    let sim = Sim::new(OLD_GPUS);
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let gpu = labels(&sim, 0);
    let before = daemon.when("it to be sampled", |metrics| sm(metrics, &gpu) > 0.5);
    let first = users_of_cupti(&daemon, &sim);
    sim.fault("kind=reload");
    let after = daemon.when("figures of after", |metrics| sm(metrics, &gpu) > sm(&before, &gpu) + 2.0);
    // The driver's CUDA library starts once in a process.
    assert_ne!(users_of_cupti(&daemon, &sim), first);
    assert_conserved(&after);
}

#[test]
fn a_run_with_samples_and_the_replay_of_its_recording_end_in_the_same_bytes() {
    let sim = Sim::new(OLD_GPUS);
    sim.fault("kind=cupti_overflow gpu=1 at_s=4 for_s=2");
    let _programs = busy(&sim);
    let config = sim.configure(http::free_address(), &sampling(&sim, "")).into_os_string();
    let (recording, metrics) = (sim.path("run.jsonl"), sim.path("run.prom"));
    let words = ["record".into(), "--config".into(), config, "--duration".into(), "8s".into()];
    let files = ["--metrics".into(), metrics.clone().into(), recording.clone().into()];
    let output = daemon::run(&sim, words.into_iter().chain::<[OsString; 3]>(files));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = daemon::run(&sim, [OsString::from("replay"), recording.into()]);
    let ran = std::fs::read_to_string(&metrics).unwrap();
    assert_eq!(ran, String::from_utf8(output.stdout).unwrap());
    let ran = Exposition::parse(&ran).unwrap();
    assert!([0, 1].iter().all(|index| sm(&ran, &labels(&sim, *index)) > 0.5));
}

#[test]
fn a_check_beside_a_running_daemon_leaves_the_monitors_alone_and_says_so() {
    let sim = Sim::new(OLD_GPUS);
    let _programs = busy(&sim);
    let daemon = Daemon::start(&sim, &sampling(&sim, ""));
    let gpu = labels(&sim, 0);
    let before = daemon.when("it to be sampled", |metrics| sm(metrics, &gpu) > 0.5);
    // Given back, they are there for whoever asks; the daemon runs on.
    tell(&sim, "release");
    let config = sim.path("warpmeter.toml").into_os_string();
    let words = [OsString::from("check"), "--config".into(), config];
    let mut check = daemon::command(&sim, words).stdout(Stdio::piped()).spawn().unwrap();
    while check.try_wait().unwrap().is_none() {
        let owners = [0, 1].map(|index| owner(&sim, index));
        assert_eq!(owners, [0, 0], "the check has taken one");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut found = String::new();
    check.stdout.take().unwrap().read_to_string(&mut found).unwrap();
    assert!(found.contains("off       PM sampling: not tried") && found.contains("/status"), "{found}");
    tell(&sim, "resume");
    daemon.when("it to be sampled again", |metrics| sm(metrics, &gpu) > sm(&before, &gpu) + 0.5);
}

#[test]
fn check_lists_the_library_the_authority_and_what_is_refused() {
    let sim =
        Sim::new("[[gpu]]\nmodel = \"T4\"\n[[gpu]]\nmodel = \"A100\"\nmig = [{ profile = \"7g.80gb\" }]");
    let check = |more: &str| {
        let config = sim.configure(http::free_address(), more).into_os_string();
        let output = daemon::run(&sim, [OsString::from("check"), "--config".into(), config]);
        String::from_utf8(output.stdout).unwrap()
    };
    let found = check(&sampling(&sim, ""));
    let library =
        format!("ok        PM sampling: library {}", sim.libraries().join("libcupti.so.12").display());
    for line in [library.as_str(), "SM activity from pm_sampling", "not in MIG mode", "were taken for these"]
    {
        assert!(found.contains(line), "{line}: {found}");
    }
    let off = check("");
    assert!(off.contains("[cupti] enabled = true") && !off.contains("PM sampling"), "{off}");
}
