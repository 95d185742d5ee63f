//! What lasts longer than the supervisor's patience: a driver that is not there, a GPU that hangs, a release.

use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::sim::Sim;

#[test]
fn a_process_that_waits_for_a_driver_is_not_taken_for_one_that_hangs() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"late\"\nfor_s = 16");
    let daemon = Daemon::start(&sim, "");
    daemon.until_ready_is(503, "load the kernel module");
    let child = daemon.children();
    let metrics =
        daemon.when("the driver to be taken up", |metrics| metrics.get("warpmeter_gpu_up", &[]) == Some(1.0));
    assert_conserved(&metrics);
    assert_eq!(daemon.children(), child, "the process that waited is the one that reads");
    assert!(!daemon.log().contains("fell silent"), "{}", daemon.log());
}

#[test]
fn one_gpu_that_hangs_is_found_by_its_bus_id_and_left_alone_at_once() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 2");
    let (good, bad) = (sim.gpus[1].uuid.as_str(), sim.gpus[0].uuid.as_str());
    let daemon = Daemon::start(&sim, "");
    daemon.when("both to be read", |metrics| elapsed(metrics, good) >= 2.0);
    sim.fault("kind=hang gpu=0 for_s=60");
    let lost =
        |metrics: &Exposition| metrics.sum("warpmeter_gpu_use_unknown_seconds_total", &[("gpu_uuid", good)]);
    let metrics = daemon.when("the good one to be read again, and not the other", |metrics| {
        metrics.get("warpmeter_gpu_up", &[("gpu_uuid", bad)]) == Some(0.0)
            && metrics.get("warpmeter_gpu_up", &[("gpu_uuid", good)]) == Some(1.0)
            && lost(metrics) > 0.0
    });
    let read = elapsed(&metrics, good);
    let later = daemon.when("more of it", |metrics| elapsed(metrics, good) > read + 5.0);
    assert!(lost(&later) < 6.5, "3 s until it is noticed, and a restart: {} s", lost(&later));
    let status = daemon.until_status("a reason", |status| {
        status["gpus"][0]["down_because"].is_string() || status["gpus"][1]["down_because"].is_string()
    });
    let reasons = status["gpus"].to_string() + &status["sources"].to_string();
    assert!(reasons.contains("did not return"), "{reasons}");
    assert!(!reasons.contains("index-"), "the bus id is known: {reasons}");
    assert_conserved(&later);
}

#[test]
fn a_released_gpu_has_no_gauges_and_is_not_up() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let daemon = Daemon::start(&sim, "");
    daemon.when("its power to be read", |metrics| metrics.get("warpmeter_gpu_power_watts", &[]).is_some());
    let config = sim.path("warpmeter.toml").into_os_string();
    let tell = |words: &[&str]| {
        let output =
            daemon::run(&sim, words.iter().map(Into::into).chain(["--config".into(), config.clone()]));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    tell(&["release", "--for", "30s"]);
    let metrics = daemon.when("it to be down", |metrics| metrics.get("warpmeter_gpu_up", &[]) == Some(0.0));
    for gauge in ["power_watts", "memory_used_bytes", "temperature_celsius"] {
        assert_eq!(metrics.get(&format!("warpmeter_gpu_{gauge}"), &[]), None, "{gauge}");
    }
    tell(&["resume"]);
    daemon.when("it to be up", |metrics| {
        metrics.get("warpmeter_gpu_up", &[]) == Some(1.0)
            && metrics.get("warpmeter_gpu_power_watts", &[]).is_some()
    });
    // A release that is for a while ends by itself.
    tell(&["release", "--for", "1500ms"]);
    daemon.when("it to be down", |metrics| metrics.get("warpmeter_gpu_up", &[]) == Some(0.0));
    daemon.when("it to be up", |metrics| metrics.get("warpmeter_gpu_up", &[]) == Some(1.0));
}
