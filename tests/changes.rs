//! What changes under a running daemon: GPUs, instances, drivers, and time itself.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use warpmeter_tests::cgroup::Cgroups;
use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{cgroup, tool, wait};

fn tell(sim: &Sim, command: &str) {
    let arguments = [command.into(), "--config".into(), sim.path("warpmeter.toml").into_os_string()];
    let output = daemon::run(sim, arguments);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What any process of the daemon has open or mapped of the driver.
fn handles(daemon: &Daemon, of: &[&Path]) -> Vec<String> {
    let processes = daemon.children().into_iter().chain([daemon.pid()]);
    processes.flat_map(|pid| of.iter().flat_map(move |directory| tool::handles(pid, directory))).collect()
}

#[test]
fn t23_one_lost_gpu_of_eight_leaves_seven_and_its_xid_is_counted() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 8");
    let daemon = Daemon::start(&sim, "");
    let up = |metrics: &Exposition| metrics.sum("warpmeter_gpu_up", &[]);
    daemon.when("eight", |metrics| up(metrics) > 7.5);
    sim.fault("kind=xid gpu=3 code=79");
    sim.fault("kind=lost gpu=3");
    let lost = [("gpu_uuid", sim.gpus[3].uuid.as_str())];
    let metrics = daemon.when("seven", |metrics| {
        up(metrics) < 7.5 && metrics.sum("warpmeter_gpu_xid_errors_total", &[lost[0], ("xid", "79")]) > 0.5
    });
    assert_eq!(metrics.get("warpmeter_gpu_up", &lost), Some(0.0));
    assert_eq!(metrics.all("warpmeter_gpu_up", &[]).count(), 8);
    assert_eq!(metrics.all("warpmeter_gpu_power_watts", &[]).count(), 7);
    assert_conserved(&metrics);
}

#[test]
fn t26_instances_that_a_mig_manager_makes_anew_are_there_without_a_restart_and_the_old_ones_end() {
    let mut sim = Sim::new("[[gpu]]\nmodel = \"H100\"\nmig = [{ profile = \"7g.80gb\" }]");
    let old = sim.gpus[0].instances.clone();
    let daemon = Daemon::start(&sim, "[window]\nretain = \"3s\"\n");
    let time = |metrics: &Exposition, mig: &str| metrics.sum("warpmeter_gpu_seconds_total", &[("mig", mig)]);
    daemon.when("time of the old one", |metrics| time(metrics, &old[0]) > 0.5);
    tell(&sim, "release");
    let [one, other] = [1, 2].map(|n| format!("MIG-00000000-0000-4000-8000-{n:012}"));
    sim.replace(&format!(
        "[[gpu]]\nmodel = \"H100\"\nmig = [{{ profile = \"3g.40gb\", uuid = {one:?} }}, \
         {{ profile = \"3g.40gb\", uuid = {other:?} }}]"
    ));
    assert_eq!(sim.gpus[0].instances, [one, other]);
    tell(&sim, "resume");
    let metrics = daemon.when("the new ones, and no old one", |metrics| {
        let ended = metrics.all("warpmeter_gpu_seconds_total", &[("mig", &old[0])]).next().is_none();
        ended && sim.gpus[0].instances.iter().all(|mig| time(metrics, mig) > 0.1)
    });
    assert_conserved(&metrics);
}

#[test]
fn a_release_lets_go_of_every_handle_while_containers_use_the_gpu_and_takes_nothing_from_them() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let gpu = sim.gpus[0].uuid.as_str();
    let container = cgroups.systemd();
    let pods = sim.pods(&cgroup::pods(&[("p", &container, gpu)]));
    let program = Program::start(&sim, gpu, Some(&container.procs), "hog --duty 0.5");
    let daemon = Daemon::start(&sim, &pods);
    let used = |metrics: &Exposition| metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", "p")]);
    let before = daemon.when("work", |metrics| used(metrics) > 0.5);
    let (library, state) = (sim.libraries(), sim.state());
    let of = [library.as_path(), state.as_path()];
    assert!(!handles(&daemon, &of).is_empty());
    for how in ["release", "SIGUSR1"] {
        if how == "release" {
            tell(&sim, "release");
        } else {
            daemon.signal(Signal::USR1);
            wait::until("the driver to be let go of", || daemon.children().is_empty().then_some(()));
        }
        assert_eq!(handles(&daemon, &of), Vec::<String>::new(), "{how}");
        let theirs = tool::handles(program.pid, &state);
        assert!(theirs.iter().any(|path| path.ends_with("nvidia0")), "{how}: the pod goes on: {theirs:?}");
        let start = elapsed(&daemon.scrape(), gpu);
        let during = daemon.when("time without counters", |metrics| elapsed(metrics, gpu) > start + 2.0);
        assert_conserved(&during);
        let idle =
            |metrics: &Exposition| metrics.sum("warpmeter_pod_gpu_seconds_total", &[("state", "idle")]);
        assert!(idle(&during) - idle(&before) < 0.5, "unknown is not idle");
        if how == "release" {
            tell(&sim, "resume");
        } else {
            daemon.signal(Signal::USR2);
        }
        let so_far = used(&during);
        let after = daemon.when("its work again", |metrics| used(metrics) > so_far + 0.5);
        assert_conserved(&after);
        assert!(!handles(&daemon, &of).is_empty());
    }
}

#[test]
fn a_node_that_was_suspended_has_unknown_time_and_no_idle_time() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let gpu = sim.gpus[0].uuid.as_str();
    let container = cgroups.systemd();
    let pods = sim.pods(&cgroup::pods(&[("p", &container, gpu)]));
    let _program = Program::start(&sim, gpu, Some(&container.procs), "hog");
    let daemon = Daemon::start(&sim, &pods);
    let before = daemon.when("seconds of work", |metrics| elapsed(metrics, gpu) > 2.0);
    let processes: Vec<u32> = daemon.children().into_iter().chain([daemon.pid()]).collect();
    let all = |signal| {
        for pid in &processes {
            kill_process(Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap(), signal).unwrap();
        }
    };
    all(Signal::STOP);
    std::thread::sleep(Duration::from_secs(10));
    all(Signal::CONT);
    let until = elapsed(&before, gpu) + 14.0;
    let after = daemon.when("the time that passed and more", |metrics| elapsed(metrics, gpu) > until);
    assert_conserved(&after);
    let more = |family: &str, labels: Labels<'_>| after.sum(family, labels) - before.sum(family, labels);
    let inactive = more("warpmeter_gpu_inactive_seconds_total", &[]);
    let unknown = more("warpmeter_gpu_use_unknown_seconds_total", &[]);
    let idle = more("warpmeter_pod_gpu_seconds_total", &[("state", "idle")]);
    let used = more("warpmeter_gpu_used_seconds_total", &[]);
    println!("of 14 s {used:.2} s used, {unknown:.2} s unknown, {inactive:.2} s inactive, {idle:.2} s idle");
    assert!(inactive < 1.0 && idle < 1.0, "{inactive} s inactive, {idle} s idle");
    assert!(used + unknown > 12.0, "{used} s used, {unknown} s unknown");
    daemon.until_ready_is(200, "ready");
}
