//! Causes of stalls without probes, from samples of threads: right or unknown, never another.

use std::collections::BTreeMap;

use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::http;
use warpmeter_tests::ledger::assert_conserved;
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tool;

/// Seconds by cause that the pod held its device and did not use it.
fn causes(metrics: &Exposition) -> BTreeMap<String, f64> {
    let all = metrics.all("warpmeter_pod_gpu_seconds_total", &[("pod", "p")]);
    let unused = all.filter(|row| row.label("state") != "active");
    unused.map(|row| (row.label("cause").to_owned(), row.value)).collect()
}

fn held(metrics: &Exposition) -> f64 {
    metrics.sum("warpmeter_pod_gpu_seconds_total", &[("pod", "p")])
}

/// What a program's device stood still for, in seconds by cause.
fn stood_still(words: &str, feeder: &str) -> Option<Vec<(String, f64)>> {
    let mut cgroups = Cgroups::new()?;
    let place = cgroups.systemd();
    let mut sim = Sim::alone("[[gpu]]\nmodel = \"H100\"");
    sim.probes = "\"proc\"";
    let device = sim.gpus[0].uuid.clone();
    let data = sim.path("data");
    std::fs::write(&data, vec![7_u8; 192 << 20]).unwrap();
    let address = http::free_address();
    let fill =
        |words: &str| words.replace("FILE", data.to_str().unwrap()).replace("ADDRESS", &address.to_string());
    let _feeder = (!feeder.is_empty()).then(|| {
        let feeder = Program::start_without(&fill(feeder));
        warpmeter_tests::wait::until("the feeder", || std::net::TcpStream::connect(address).ok());
        feeder
    });
    let mut daemon = Daemon::start(&sim, &sim.pods(&cgroup::pods(&[("p", &place, &device)])));
    daemon.when("the source", |metrics| metrics.sum("warpmeter_source_up", &[("source", "probes")]) > 0.5);
    let program = Program::start(&sim, &device, Some(&place.procs), &fill(words));
    let before = daemon.when("it at work", |metrics| {
        metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", "p")]) > 0.3
    });
    let end = held(&before) + 6.0;
    let after = daemon.when("the measured time", |metrics| held(metrics) >= end);
    drop(program);
    assert_conserved(&after);
    daemon.terminate();
    let begun = causes(&before);
    let found: Vec<(String, f64)> = causes(&after)
        .into_iter()
        .map(|(cause, time)| (cause.clone(), time - begun.get(&cause).copied().unwrap_or(0.0)))
        .filter(|(_, time)| *time > 0.0)
        .collect();
    println!("{words}: {found:?}");
    Some(found)
}

/// Runs a program and checks that no wrong cause leads. Gives the part of the time whose cause was found.
///
/// On a machine that is busy with other work, threads also wait for a CPU: that is no wrong cause.
fn found(words: &str, feeder: &str, cause: &str) -> Option<f64> {
    let found = stood_still(words, feeder)?;
    let of =
        |cause: &str| found.iter().filter(|(found, _)| found == cause).map(|(_, time)| time).sum::<f64>();
    let right = of(cause);
    let unknown: f64 = ["no_evidence", "source_lost", "conflict"].into_iter().map(of).sum();
    for (other, time) in &found {
        let wrong = ![cause, "cpu_wait", "no_evidence", "source_lost", "conflict"].contains(&other.as_str());
        assert!(!wrong || *time < right.max(unknown), "{words}: {other} leads in {found:?}");
    }
    let all: f64 = found.iter().map(|(_, time)| time).sum();
    Some((right + of("cpu_wait")) / all)
}

fn can_sample() -> bool {
    let can = Cgroups::new().is_some() && rustix::process::geteuid().is_root();
    if !can {
        tool::skip("samples of other processes need root, and a cgroup for the pod");
    }
    can
}

#[test]
fn what_mostly_holds_up_a_device_is_named_from_samples_alone() {
    if !can_sample() {
        return;
    }
    let network = "feeder --listen ADDRESS --delay-us 60000";
    let cases = [
        ("waiter --kernels 2 --kernel-us 3000 --wait disk --file FILE --read-kib 196608", "", "disk_read"),
        ("waiter --kernels 2 --kernel-us 1000 --wait network --connect ADDRESS", network, "network"),
        ("waiter --kernels 2 --kernel-us 1000 --wait lock --wait-us 60000", "", "cpu"),
        ("waiter --kernels 2 --kernel-us 1000 --wait sleep --wait-us 60000", "", "no_work"),
        ("waiter --kernels 2 --kernel-us 1000 --wait cpu --wait-us 60000", "", "cpu"),
    ];
    for (words, feeder, cause) in cases {
        let Some(part) = found(words, feeder, cause) else { return };
        assert!(part > 0.2, "{words}: a cause is found for {part} of the time");
    }
}

#[test]
fn where_the_device_may_have_worked_meanwhile_no_wrong_cause_leads() {
    if !can_sample() {
        return;
    }
    let cases = [
        ("waiter --kernels 10 --kernel-us 2000 --wait disk --file FILE --read-kib 16384", "disk_read"),
        ("waiter --kernels 10 --kernel-us 2000 --wait sleep --wait-us 15000", "no_work"),
        ("waiter --kernels 10 --kernel-us 2000 --wait cpu --wait-us 15000", "cpu"),
    ];
    for (words, cause) in cases {
        if found(words, "", cause).is_none() {
            return;
        }
    }
}
