//! Each pod's time against the simulator's own log, which shares no code with the daemon.

use std::ffi::OsStr;

use warpmeter_tests::cgroup::{self, Cgroups, Container};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::recording::{beginning, reached};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tool;

const NODE: &str = r#"
[[gpu]]
model = "H100"

[[gpu]]
model = "H100"
mig = [{ profile = "3g.40gb" }, { profile = "1g.10gb" }]

[[gpu]]
model = "H100"
"#;

/// For how long each program runs, and for how long of that it is measured.
const RUN: f64 = 14.0;
const MEASURED: f64 = 9.0;

/// A pod, its program, and what it should come to.
struct Role<'a> {
    pod: &'a str,
    gpu: &'a str,
    device: &'a str,
    grant: String,
    program: &'a str,
    /// Seconds of the GPU that a second of the device is.
    weight: f64,
    tolerance: f64,
}

fn used(metrics: &Exposition, pod: &str) -> f64 {
    metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", pod)])
}

fn assert_near(what: &str, counted: f64, truth: f64, tolerance: f64) {
    let error = (counted - truth).abs() / truth;
    println!("{what}: {counted:.3} s counted, {truth:.3} s in truth: {:.2} % off", error * 100.0);
    assert!(
        error <= tolerance,
        "{what}: {counted} s counted, {truth} s in truth: {:.2} % off",
        error * 100.0
    );
}

#[test]
fn each_pods_time_is_what_the_simulator_logged_on_whole_divided_and_shared_gpus() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::alone(NODE);
    let [whole, divided, shared] = [0, 1, 2].map(|n| sim.gpus[n].uuid.as_str());
    let instance = sim.gpus[1].instances[0].as_str();
    let role = |pod, gpu, device, grant: &str, program, weight, tolerance| Role {
        pod,
        gpu,
        device,
        grant: grant.to_owned(),
        program,
        weight,
        tolerance,
    };
    let replica = |number: u32| format!("{shared}::{number}");
    let waiter = "waiter --kernel-us 1000 --kernels 20 --wait-us 15000";
    let server = "server --kernels 10 --kernel-us 1000 --period-ms 50";
    let roles = [
        role("whole", whole, whole, whole, waiter, 1.0, 0.02),
        role("divided", divided, instance, instance, "hog --duty 0.6 --kernel-us 1000", 3.0 / 7.0, 0.02),
        role("greedy", shared, shared, &replica(0), "hog --duty 0.8 --kernel-us 1000", 1.0, 0.05),
        role("modest", shared, shared, &replica(1), server, 1.0, 0.05),
        role("forgotten", shared, shared, &replica(2), "noop", 1.0, 0.0),
    ];
    let containers: Vec<Container> =
        (0..roles.len()).map(|n| if n % 2 == 0 { cgroups.systemd() } else { cgroups.cgroupfs() }).collect();
    let entries: Vec<_> = roles
        .iter()
        .zip(&containers)
        .map(|(role, container)| (role.pod, container, role.grant.as_str()))
        .collect();
    let pods = sim.pods(&format!("[[device]]\nid = {shared:?}\nreplicas = 4\n{}", cgroup::pods(&entries)));
    let recording = sim.path("run.jsonl");
    let mut daemon = Daemon::start_with(&sim, &pods, &[OsStr::new("--record"), recording.as_os_str()]);
    daemon.when("all GPUs and pods", |metrics| {
        sim.gpus.iter().all(|gpu| elapsed(metrics, &gpu.uuid) >= 1.0)
            && metrics.all("warpmeter_pod_info", &[]).count() == roles.len()
    });
    let mut programs: Vec<Program> = roles
        .iter()
        .zip(&containers)
        .map(|(role, container)| {
            let words = format!("{} --seconds {RUN}", role.program);
            Program::start(&sim, role.device, Some(&container.procs), &words)
        })
        .collect();
    let before = daemon
        .when("all of them at work", |metrics| roles[..4].iter().all(|role| used(metrics, role.pod) > 0.4));
    let end = elapsed(&before, shared) + MEASURED;
    let after = daemon.when("the measured time", |metrics| elapsed(metrics, shared) >= end);
    for program in &mut programs {
        program.finish();
    }
    let end = elapsed(&daemon.scrape(), shared) + 5.0;
    let at_last = daemon.when("the accounts to be complete", |metrics| elapsed(metrics, shared) >= end);
    assert_conserved(&after);
    assert_conserved(&at_last);
    daemon.terminate();

    // While they run.
    for (role, program) in roles.iter().zip(&programs).take(4) {
        let beginning = beginning(&recording, role.gpu);
        let stretch = reached(&before, role.gpu, beginning)..reached(&after, role.gpu, beginning);
        let truth = sim.busy_within(stretch)[&program.pid] * role.weight;
        assert_near(role.pod, used(&after, role.pod) - used(&before, role.pod), truth, role.tolerance);
    }

    // Over their lives, nothing is lost. Of the last period of a shared GPU's processes the driver shows nothing
    // once they have ended: it counts, but as nobody's.
    let busy = sim.busy();
    let truth = |n: usize| busy[&programs[n].pid] * roles[n].weight;
    for n in [0, 1] {
        assert_near(roles[n].pod, used(&at_last, roles[n].pod), truth(n), 0.02);
    }
    let nobodys = at_last.sum("warpmeter_gpu_unattributed_seconds_total", &[("gpu_uuid", shared)]);
    assert!(nobodys < 1.5, "{nobodys}");
    let all = used(&at_last, "greedy") + used(&at_last, "modest") + nobodys;
    assert_near("the shared GPU", all, truth(2) + truth(3), 0.02);

    // Whatever is used, each holds its quarter; more than that is borrowed.
    let time = elapsed(&at_last, shared);
    let held = |labels: Labels<'_>| at_last.sum("warpmeter_pod_gpu_seconds_total", labels);
    for pod in ["greedy", "modest", "forgotten"] {
        assert_near(pod, held(&[("pod", pod)]), time / 4.0, 0.02);
    }
    let borrowed = at_last.sum("warpmeter_pod_gpu_borrowed_seconds_total", &[("pod", "greedy")]);
    assert!(borrowed > 2.0, "{borrowed}");
    assert!(used(&at_last, "forgotten") < 1e-9);
    let labels = [("pod", "forgotten"), ("state", "idle"), ("cause", "no_process")];
    let meanwhile = |labels: Labels<'_>| {
        let [from, to] =
            [&before, &after].map(|metrics| metrics.sum("warpmeter_pod_gpu_seconds_total", labels));
        to - from
    };
    assert_near("a process that never opened its GPU", meanwhile(&labels), meanwhile(&labels[..1]), 0.01);
}
