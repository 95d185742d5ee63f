//! One fault stays one fault.

use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;

const TWO_GPUS: &str = "[[gpu]]\nmodel = \"H100\"\ncount = 2";

/// Labels of the node's GPUs.
fn labels(sim: &Sim) -> [[(&str, &str); 1]; 2] {
    [0, 1].map(|index| [("gpu_uuid", sim.gpus[index].uuid.as_str())])
}

fn profiled(metrics: &Exposition, gpu: Labels<'_>) -> f64 {
    metrics.sum("warpmeter_gpu_profiled_seconds_total", gpu)
}

fn unknown(metrics: &Exposition, gpu: Labels<'_>) -> f64 {
    metrics.sum("warpmeter_gpu_use_unknown_seconds_total", gpu)
}

fn up(metrics: &Exposition, gpu: Labels<'_>) -> Option<f64> {
    metrics.get("warpmeter_gpu_up", gpu)
}

/// A daemon that has read both GPUs for a while.
fn reading(sim: &Sim) -> (Daemon, Exposition) {
    let daemon = Daemon::start(sim, "");
    let before = daemon.when("both GPUs to be read", |metrics| {
        labels(sim).iter().all(|gpu| profiled(metrics, gpu) >= 1.0 && up(metrics, gpu) == Some(1.0))
    });
    (daemon, before)
}

#[test]
fn without_a_driver_it_runs_and_says_what_is_missing() {
    let sim = Sim::new(TWO_GPUS);
    sim.remove_driver();
    let mut daemon = Daemon::start(&sim, "");
    let reasons = daemon.until_ready_is(503, "libraries");
    assert!(reasons.contains("no GPU") && reasons.contains("install the driver"), "{reasons}");
    assert_eq!(daemon.ask("/livez").unwrap().status, 200);
    let metrics = daemon.when("the source to be down", |metrics| {
        metrics.get("warpmeter_source_up", &[("source", "nvidia")]) == Some(0.0)
    });
    assert_eq!(metrics.all("warpmeter_gpu_seconds_total", &[]).count(), 0, "no GPU, no time");
    assert!(daemon.terminate().0.success());
}

#[test]
fn a_driver_that_appears_later_is_taken_up_without_a_restart() {
    let sim = Sim::new(TWO_GPUS);
    sim.remove_driver();
    let daemon = Daemon::start(&sim, "");
    daemon.until_ready_is(503, "install the driver");
    // First the library, as a driver container puts it there, then the kernel module.
    sim.fault("kind=late");
    sim.install_driver();
    daemon.until_ready_is(503, "load the kernel module");
    sim.clear_faults();
    daemon.until_ready_is(200, "ready");
    let metrics = daemon.when("both GPUs", |metrics| metrics.all("warpmeter_gpu_up", &[]).count() == 2);
    assert_conserved(&metrics);
}

#[test]
fn a_lost_gpu_leaves_the_others_right_and_comes_back() {
    let sim = Sim::new(TWO_GPUS);
    let [well, lost] = labels(&sim);
    let (daemon, before) = reading(&sim);
    sim.fault("kind=lost gpu=1 for_s=4");
    let during = daemon.when("the loss to show", |metrics| up(metrics, &lost) == Some(0.0));
    assert_eq!(up(&during, &well), Some(1.0));
    assert!(daemon.ask("/status").unwrap().text().contains("lost"));
    assert!(during.get("warpmeter_gpu_power_watts", &lost).is_none(), "no gauge of what cannot be read");
    assert_eq!(daemon.ask("/readyz").unwrap().status, 200, "one of two is enough");
    let after = daemon.when("its return", |metrics| up(metrics, &lost) == Some(1.0));
    let after = daemon.when("counters of both", |metrics| profiled(metrics, &lost) > profiled(&after, &lost));
    assert_conserved(&after);
    assert!(unknown(&after, &lost) - unknown(&before, &lost) > 2.0);
    assert!(unknown(&after, &well) - unknown(&before, &well) < 0.5);
    let watched = |gpu: Labels<'_>| elapsed(&after, gpu[0].1) - elapsed(&before, gpu[0].1);
    assert!((watched(&well) - watched(&lost)).abs() < 3.0, "{} {}", watched(&well), watched(&lost));
}

/// GPU 0 stays right while the reader does not survive GPU 1.
fn left_alone(fault: &str, why: &str) {
    let sim = Sim::new(TWO_GPUS);
    let [well, bad] = labels(&sim);
    let (daemon, before) = reading(&sim);
    let process = daemon.children();
    sim.fault(fault);
    let bus = sim.gpus[1].pci_bus_id.as_str();
    daemon.until_status("the device to be named", |status| {
        let nvidia = &status["sources"][0];
        nvidia["health"] == "degraded"
            && nvidia["reason"].as_str().is_some_and(|text| text.contains(bus) && text.contains(why))
    });
    let status = daemon.until_status("its new reader's word", |status| status["gpus"][1]["up"].is_boolean());
    let reason = status["sources"][0]["reason"].as_str().unwrap();
    assert_eq!(reason.matches(bus).count(), 1, "it is said once: {reason}");
    let during = daemon.when("the other to be read on", |metrics| {
        up(metrics, &bad) == Some(0.0) && profiled(metrics, &well) >= profiled(&before, &well) + 3.0
    });
    assert_eq!(up(&during, &well), Some(1.0));
    assert_ne!(daemon.children(), process, "another process reads");
    let after = daemon.when("time without counters", |metrics| {
        unknown(metrics, &bad) - unknown(&before, &bad) > 2.0
            && profiled(metrics, &well) > profiled(&during, &well) + 2.0
    });
    assert_conserved(&after);
    // While a new process starts, the other GPU goes unread too: for the patience of one call, and a start.
    assert!(unknown(&after, &well) - unknown(&before, &well) < 8.0);
}

#[test]
fn a_gpu_whose_calls_hang_is_left_alone_and_the_other_is_read_on() {
    left_alone("kind=hang gpu=1", "did not return");
}

#[test]
fn a_gpu_that_takes_the_reader_along_is_left_alone_and_the_other_is_read_on() {
    left_alone("kind=crash gpu=1", "signal 6");
}

#[test]
fn a_reloaded_driver_is_opened_again() {
    let sim = Sim::new(TWO_GPUS);
    let gpus = labels(&sim);
    let (daemon, before) = reading(&sim);
    sim.fault("kind=reload");
    let after = daemon.when("counters of both after the reload", |metrics| {
        gpus.iter().all(|gpu| profiled(metrics, gpu) > profiled(&before, gpu) + 4.0)
    });
    assert_conserved(&after);
    for gpu in &gpus {
        assert_eq!(up(&after, gpu), Some(1.0));
        assert!(unknown(&after, gpu) - unknown(&before, gpu) < 5.0);
    }
}

#[test]
fn every_xid_is_counted_two_different_at_once_and_repeats() {
    let sim = Sim::new(TWO_GPUS);
    let [one, other] = labels(&sim);
    let (daemon, _) = reading(&sim);
    let count = |metrics: &Exposition, gpu: Labels<'_>, xid: &str| {
        metrics.get("warpmeter_gpu_xid_errors_total", &[gpu[0], ("xid", xid)])
    };
    for fault in ["kind=xid gpu=0 code=31", "kind=xid gpu=0 code=94 count=3", "kind=xid gpu=1 code=79"] {
        sim.fault(fault);
    }
    daemon.when("all five", |metrics| {
        (count(metrics, &one, "31"), count(metrics, &one, "94"), count(metrics, &other, "79"))
            == (Some(1.0), Some(3.0), Some(1.0))
    });
    sim.fault("kind=xid gpu=0 code=31");
    let metrics = daemon.when("a repeat", |metrics| count(metrics, &one, "31") == Some(2.0));
    assert_eq!(metrics.all("warpmeter_gpu_xid_errors_total", &[]).count(), 3, "and nothing else");
    // An error of an application leaves the GPU as it is.
    assert_eq!(up(&metrics, &one), Some(1.0));
}

#[test]
fn garbage_never_gets_out_and_is_counted_by_reason() {
    let sim = Sim::new(TWO_GPUS);
    let [bad, well] = labels(&sim);
    let _program = Program::start(&sim, bad[0].1, None, "hog --duty 0.5");
    let (daemon, before) = reading(&sim);
    let discarded = |metrics: &Exposition, reason: &str| {
        metrics.sum("warpmeter_source_values_discarded_total", &[("source", "nvidia"), ("reason", reason)])
    };
    sim.fault("kind=garbage gpu=0 for_s=5");
    let end = elapsed(&before, well[0].1) + 9.0;
    let after = daemon.when("nine seconds, five of them garbage", |metrics| {
        for series in &metrics.series {
            let most = match series.name.as_str() {
                name if name.ends_with("_bytes")
                    || name.ends_with("_hertz")
                    || name.ends_with("_bytes_total") =>
                {
                    1e12
                }
                name if name.ends_with("_timestamp_seconds") => 1e10,
                name if name.starts_with("warpmeter_gpu_peak_") => 1e16,
                name if name.ends_with("_ratio") => 1.0,
                name if name.ends_with("facts_total") => 1e6,
                _ => 1e5,
            };
            assert!((0.0..=most).contains(&series.value), "{series:?}");
        }
        elapsed(metrics, well[0].1) >= end
    });
    assert_conserved(&after);
    for reason in ["sentinel", "not_a_number"] {
        assert!(discarded(&after, reason) > discarded(&before, reason), "{reason}");
    }
    let active = |metrics: &Exposition, gpu| metrics.sum("warpmeter_gpu_engine_active_seconds_total", gpu);
    assert!(active(&after, &bad) <= profiled(&after, &bad));
    assert!(unknown(&after, &bad) > 2.0, "{}", unknown(&after, &bad));
    assert!(unknown(&after, &well) < 0.5, "{}", unknown(&after, &well));
    assert_eq!(up(&after, &bad), Some(1.0));
}
