//! Whose work ran: each pod's time against the simulator's own log, which shares no code with the daemon.

use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tool;

const ONE_GPU: &str = "[[gpu]]\nmodel = \"H100\"";

/// The metrics after as much more time of a GPU has been accounted as a shared device's window may wait.
fn settled(daemon: &Daemon, gpu: &str) -> Exposition {
    later(daemon, gpu, 5.0)
}

fn later(daemon: &Daemon, gpu: &str, seconds: f64) -> Exposition {
    let until = elapsed(&daemon.scrape(), gpu) + seconds;
    let metrics = daemon.when("later accounts", |metrics| elapsed(metrics, gpu) >= until);
    assert_conserved(&metrics);
    metrics
}

fn used(metrics: &Exposition, pod: &str) -> f64 {
    metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", pod)])
}

fn held(metrics: &Exposition, labels: Labels<'_>) -> f64 {
    metrics.sum("warpmeter_pod_gpu_seconds_total", labels)
}

fn assert_near(what: &str, counted: f64, truth: f64, tolerance: f64) {
    let error = (counted - truth).abs() / truth;
    assert!(
        error <= tolerance,
        "{what}: {counted} s counted, {truth} s in truth: {:.2} % off",
        error * 100.0
    );
}

#[test]
fn a_process_shorter_than_a_window_is_its_own_or_nobodys_and_never_anothers() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 2");
    let [held_gpu, free] = [0, 1].map(|n| sim.gpus[n].uuid.as_str());
    let (resident, visitor) = (cgroups.systemd(), cgroups.systemd());
    let pods = sim.pods(&cgroup::pods(&[("resident", &resident, held_gpu)]));
    let daemon = Daemon::start(&sim, &pods);
    let _resident = Program::start(&sim, held_gpu, Some(&resident.procs), "holder");
    later(&daemon, free, 1.0);
    let mut short =
        Program::start(&sim, free, Some(&visitor.procs), "trainer --kernel-us 2000 --seconds 0.3");
    short.finish();
    let metrics = settled(&daemon, free);
    let truth = sim.busy()[&short.pid];
    let on_free = [("gpu_uuid", free)];
    let nobodys = metrics.sum("warpmeter_gpu_unattributed_seconds_total", &on_free);
    let own =
        metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[on_free[0], ("pod_uid", &visitor.pod_uid)]);
    let all = nobodys + metrics.sum("warpmeter_gpu_used_seconds_total", &on_free);
    assert_near("its time on the device", all, truth, 0.1);
    assert!((all - nobodys - own).abs() < 1e-6, "{own} its own, {nobodys} nobody's, of {all}");
    assert!(used(&metrics, "resident") < 1e-9);
}

#[test]
fn a_process_outside_any_pod_is_the_hosts_and_not_the_holders() {
    let sim = Sim::new(ONE_GPU);
    let gpu = sim.gpus[0].uuid.as_str();
    let pods = sim.pods(&format!(
        "[[pod]]\nuid = \"1\"\nnamespace = \"a\"\nname = \"holder\"\ncontainers = [{{ name = \"c\", devices = [{gpu:?}] }}]\n"
    ));
    let daemon = Daemon::start(&sim, &pods);
    later(&daemon, gpu, 1.0);
    let mut program = Program::start(&sim, gpu, None, "hog --duty 0.5 --kernel-us 1000 --seconds 5");
    program.finish();
    let metrics = settled(&daemon, gpu);
    let owners = metrics.sum("warpmeter_owner_gpu_used_seconds_total", &[]);
    assert_near("the host's", owners, sim.busy()[&program.pid], 0.05);
    assert!(used(&metrics, "holder") < 1e-9);
    assert!(held(&metrics, &[("pod", "holder")]) > 8.0, "it holds and pays all the same");
}

#[test]
fn a_container_whose_identifier_the_file_does_not_know_is_its_pods_only_one() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::new(ONE_GPU);
    let gpu = sim.gpus[0].uuid.as_str();
    let container = cgroups.cgroupfs();
    let pods = sim.pods(&format!(
        "[[pod]]\nuid = {:?}\nnamespace = \"a\"\nname = \"p\"\ncontainers = [{{ name = \"only\", devices = [{gpu:?}] }}]\n",
        container.pod_uid
    ));
    let _program = Program::start(&sim, gpu, Some(&container.procs), "hog --duty 0.5");
    let daemon = Daemon::start(&sim, &pods);
    let metrics = daemon.when("its work", |metrics| used(metrics, "p") > 1.0);
    let named = metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", "p"), ("container", "only")]);
    // A grant counts from when the GPU is known, which is a moment after its first counters.
    assert!(named > 0.999 * used(&metrics, "p"), "{named} of {}", used(&metrics, "p"));
}

#[test]
fn without_a_file_of_pods_they_are_known_by_uid_and_hold_what_they_have_open() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::new(ONE_GPU);
    let gpu = sim.gpus[0].uuid.as_str();
    let container = cgroups.systemd();
    let _program = Program::start(&sim, gpu, Some(&container.procs), "hog --duty 0.5");
    let daemon = Daemon::start(&sim, "");
    let pod = [("pod_uid", container.pod_uid.as_str())];
    let metrics =
        daemon.when("its work", |metrics| metrics.sum("warpmeter_pod_gpu_used_seconds_total", &pod) > 1.0);
    assert!(held(&metrics, &pod) > 1.5);
    let assumed = [("ledger", "allocation"), ("evidence", "assumed")];
    assert!(metrics.sum("warpmeter_evidence_seconds_total", &assumed) > 1.5);
}

#[test]
fn a_file_of_pods_that_breaks_changes_nothing_but_the_health() {
    let sim = Sim::new(ONE_GPU);
    let gpu = sim.gpus[0].uuid.as_str();
    let entry = |name: &str| {
        format!(
            "[[pod]]\nuid = {name:?}\nnamespace = \"a\"\nname = {name:?}\ncontainers = [{{ name = \"c\", devices = [{gpu:?}] }}]\n"
        )
    };
    let daemon = Daemon::start(&sim, &sim.pods(&entry("first")));
    let before = daemon.when("the pod", |metrics| held(metrics, &[("pod", "first")]) > 1.0);
    sim.pods("[[pod]]\nuid = \"first\"\nnamespace =");
    let degraded = |wanted: f64| {
        move |metrics: &Exposition| {
            metrics.get("warpmeter_source_degraded", &[("source", "pods")]) == Some(wanted)
        }
    };
    daemon.when("the health to say so", degraded(1.0));
    let during = later(&daemon, gpu, 3.0);
    assert!(held(&during, &[("pod", "first")]) > held(&before, &[("pod", "first")]) + 2.5);
    daemon.until_status("the file and the line to be named", |status| {
        let sources = status["sources"].as_array().unwrap();
        let reason = sources.iter().find(|source| source["source"] == "pods").map(|source| &source["reason"]);
        reason
            .and_then(|reason| reason.as_str())
            .is_some_and(|text| text.contains("pods.toml") && text.contains('3'))
    });
    sim.pods(&entry("second"));
    let after =
        daemon.when("the pod of the mended file", |metrics| held(metrics, &[("pod", "second")]) > 1.0);
    assert!(degraded(0.0)(&after));
    assert_conserved(&after);
}
