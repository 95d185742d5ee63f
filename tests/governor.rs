//! A program that launches too often for probes: they let go of it, say so, and come back.

use std::time::Duration;

use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::assert_conserved;
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tool;

use crate::probes::can_probe;

fn launches(metrics: &Exposition) -> f64 {
    metrics.sum("warpmeter_pod_kernel_launches_total", &[("pod", "p")])
}

/// The pod's time that was not used and whose cause is known.
fn named(metrics: &Exposition) -> f64 {
    let all = metrics.all("warpmeter_pod_gpu_seconds_total", &[("pod", "p")]);
    all.filter(|row| !["active", "unknown"].contains(&row.label("state"))).map(|row| row.value).sum()
}

fn without_evidence(metrics: &Exposition) -> f64 {
    metrics.sum("warpmeter_pod_gpu_seconds_total", &[("pod", "p"), ("cause", "no_evidence")])
}

fn degraded(metrics: &Exposition) -> bool {
    metrics.sum("warpmeter_source_degraded", &[("source", "probes")]) > 0.5
}

#[test]
fn a_program_that_launches_too_often_is_probed_now_and_then_which_stands_for_the_rest_until_it_has_calmed_down()
 {
    if !can_probe() {
        return;
    }
    let Some(mut cgroups) = Cgroups::new() else {
        return tool::skip("no cgroup can be made here");
    };
    let place = cgroups.systemd();
    let mut sim = Sim::alone("[[gpu]]\nmodel = \"H100\"");
    sim.probes = "true";
    let device = sim.gpus[0].uuid.clone();
    let more = format!("[metrics]\nlevel = \"full\"\n{}", sim.pods(&cgroup::pods(&[("p", &place, &device)])));
    let mut daemon = Daemon::start(&sim, &more);
    daemon.when("the probes", |metrics| metrics.sum("warpmeter_source_up", &[("source", "probes")]) > 0.5);

    // Well above what a thread may launch where a probe costs 0.8 µs: 12,500 a second.
    let words = "trainer --kernels 200 --kernel-us 4 --host-us 1000 --calm-after 30";
    let mut program = Program::start(&sim, &device, Some(&place.procs), words);
    daemon.when("its launches", |metrics| launches(metrics) > 1000.0);
    daemon.when("the probes to be shed", degraded);
    let said = daemon.until_status("what is said of it", |status| {
        let sources = status["sources"].as_array().unwrap();
        let probes = sources.iter().find(|source| source["source"] == "probes").unwrap();
        probes["reason"].as_str().unwrap().contains("1 processes launch so often")
    });
    println!("{}", said["sources"]);

    // Windows that had begun before are over.
    std::thread::sleep(Duration::from_secs(4));
    let before = daemon.scrape();
    std::thread::sleep(Duration::from_secs(6));
    let after = daemon.scrape();
    let (more, unknown) =
        (named(&after) - named(&before), without_evidence(&after) - without_evidence(&before));
    println!("while shed: {more} s of known causes, {unknown} s without evidence");
    assert!((launches(&after) - launches(&before)).abs() < 0.5, "nothing is counted that is not probed");
    assert!(more > 4.0 * unknown, "what was seen stands for it: {more} s named, {unknown} s unknown");
    let launch = |metrics: &Exposition| {
        metrics.sum("warpmeter_pod_gpu_seconds_total", &[("pod", "p"), ("cause", "launch")])
    };
    assert!(launch(&after) > launch(&before), "of which some is launching");
    assert!(degraded(&after) && !program.ended());

    // It is let alone for a minute, and has calmed down by then.
    std::thread::sleep(Duration::from_secs(30));
    let back = daemon.when("the probes to come back", |metrics| !degraded(metrics));
    let calm =
        daemon.when("launches to be seen again", |metrics| launches(metrics) > launches(&back) + 1000.0);
    daemon.when("causes to be found again", |metrics| named(metrics) > named(&calm) + 1.0);
    assert!(!degraded(&daemon.scrape()), "and it stays probed");
    assert_conserved(&after);
    program.end();
    daemon.terminate();
}
