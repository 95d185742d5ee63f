//! The daemon beside the truth: what it concludes from outside, and what injected libraries say from inside.

use serde_json::Value;
use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::program::Program;
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
    let mut daemon =
        Daemon::start(&sim, &format!("{pods}[inject]\nenabled = true\n[metrics]\nlevel = \"full\"\n"));
    daemon.when("the device", |metrics| metrics.sum("warpmeter_gpu_up", &[]) > 0.5);
    let [a, b] = [0, 1].map(|n| {
        Program::spawn(&mut command(&sim, Some(&places[n].procs), words[n], "1/1", "libcupti.so.12"))
    });
    let some = |pod| move |metrics: &Exposition| of(metrics, "injected_elapsed_seconds", pod) >= 6.0;
    let metrics = daemon.when("six seconds of both", |metrics| some("a")(metrics) && some("b")(metrics));
    let busy = sim.busy();
    for (pod, program) in [("a", &a), ("b", &b)] {
        let elapsed = of(&metrics, "injected_elapsed_seconds", pod);
        let ran = of(&metrics, "injected_ran_seconds", pod);
        let used = of(&metrics, "gpu_used_seconds", pod);
        println!(
            "{pod}: ran {ran:.3} s by its library, used {used:.3} s by the daemon, {:.3} s by the log in the end",
            busy[&program.pid]
        );
        // The log is of a little more time than the last page.
        assert_near(pod, ran, busy[&program.pid] * elapsed / (elapsed + 1.0), 0.15);
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
