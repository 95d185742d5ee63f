//! The daemon beside the truth: what it concludes from outside, and what injected libraries say from inside.

use std::ffi::OsStr;

use serde_json::Value;
use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::program::Program;
use warpmeter_tests::recording::{beginning, reached};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tool;

use super::{GPU, assert_near, command};

fn of(metrics: &Exposition, family: &str, pod: &str) -> f64 {
    metrics.sum(&format!("warpmeter_pod_{family}_total"), &[("pod", pod)])
}

#[test]
fn pods_that_share_a_device_are_told_apart_from_inside_as_from_outside() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::alone(GPU);
    let gpu = sim.gpus[0].uuid.clone();
    let places = [cgroups.systemd(), cgroups.systemd()];
    let pods = sim.pods(&format!(
        "[[device]]\nid = {gpu:?}\nreplicas = 2\n{}",
        cgroup::pods(&[("a", &places[0], &gpu), ("b", &places[1], &gpu)])
    ));
    let words =
        ["hog --kernel-us 200 --block 256", "trainer --kernels 30 --kernel-us 150 --host-us 6000 --block 96"];
    let recording = sim.path("run.jsonl");
    let mut daemon = Daemon::start_with(
        &sim,
        &format!("{pods}[inject]\nenabled = true\n[metrics]\nlevel = \"full\"\n"),
        &[OsStr::new("--record"), recording.as_os_str()],
    );
    daemon.when("the device", |metrics| metrics.sum("warpmeter_gpu_up", &[]) > 0.5);
    let [a, b] = [0, 1].map(|n| {
        Program::spawn(&mut command(&sim, Some(&places[n].procs), words[n], "1/1", "libcupti.so.12"))
    });
    let both = |seconds| {
        daemon.when("both", |metrics| {
            ["a", "b"].iter().all(|pod| of(metrics, "injected_elapsed_seconds", pod) >= seconds)
        })
    };
    let (before, metrics) = (both(2.0), both(9.0));
    let beginning = beginning(&recording, &gpu);
    let [from, to] = [&before, &metrics].map(|metrics| reached(metrics, &gpu, beginning));
    let busy = sim.busy_within(from..to);
    for (pod, program) in [("a", &a), ("b", &b)] {
        let gained = |family| of(&metrics, family, pod) - of(&before, family, pod);
        let truth = busy[&program.pid];
        assert_near(&format!("{pod} by the daemon"), gained("gpu_used_seconds"), truth, 0.1);
        // Its pages are of about the same stretch.
        let part = gained("injected_ran_seconds") / gained("injected_elapsed_seconds");
        assert_near(&format!("{pod} by its library"), part * super::seconds(to - from), truth, 0.1);
        let (elapsed, ran) =
            (of(&metrics, "injected_elapsed_seconds", pod), of(&metrics, "injected_ran_seconds", pod));
        assert!((of(&metrics, "injected_sampled_seconds", pod) - elapsed).abs() < 1e-6, "all of the time");
        assert!(of(&metrics, "injected_busy_seconds", pod) >= ran);
    }
    // 32 registers: nothing but the size of blocks limits. 96 threads are 3 warps: 21 blocks of 64 warps.
    for (pod, theoretical) in [("a", 1.0), ("b", 63.0 / 64.0)] {
        let shaped = of(&metrics, "injected_shaped_kernel_seconds", pod);
        let found = of(&metrics, "injected_theoretical_occupancy_seconds", pod) / shaped;
        assert!((found - theoretical).abs() < 1e-6, "{pod}: {found}");
    }
    let answer = daemon.ask(&format!("/status/pods/{}", places[1].pod_uid)).unwrap();
    let status: Value = serde_json::from_slice(&answer.body).unwrap();
    let told = &status["devices"][0]["injected"];
    assert!(told["kernels"].as_f64().unwrap() > 100.0 && told["dropped_records"] == 0, "{status}");
    assert!(status["words"].to_string().contains("the library injected into it says"), "{status}");
    daemon.terminate();
}

#[test]
fn nothing_is_read_unless_it_is_asked_for() {
    let sim = Sim::new(GPU);
    let _program = super::injected(&sim, "trainer --kernel-us 300 --host-us 2000");
    let daemon = Daemon::start(&sim, "[metrics]\nlevel = \"full\"\n");
    let metrics =
        daemon.when("windows", |metrics| metrics.sum("warpmeter_gpu_profiled_seconds_total", &[]) > 4.0);
    assert_eq!(metrics.all("warpmeter_source_up", &[("source", "inject")]).count(), 0);
    let status =
        daemon.until_status("the program", |status| !status["others"].as_array().unwrap().is_empty());
    assert!(!status.to_string().contains("\"injected\""), "{status}");
}
