//! The driver is let go of for maintenance, and taken up again.

use std::ffi::OsString;

use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::sim::Sim;

const ONE_GPU: &str = "[[gpu]]\nmodel = \"H100\"";

/// `warpmeter COMMAND` beside a running daemon of the same configuration.
fn tell(sim: &Sim, command: &str) -> std::process::Output {
    let config = sim.path("warpmeter.toml").into_os_string();
    let words = command.split(' ').map(OsString::from);
    daemon::run(sim, words.chain(["--config".into(), config]))
}

#[test]
fn a_release_leaves_no_process_with_the_driver_and_a_resume_takes_it_up_again() {
    let mut sim = Sim::new(ONE_GPU);
    // Where probes work, they are let go of too.
    sim.probes = "\"auto\"";
    let sim = sim;
    let gpu = sim.gpus[0].uuid.as_str();
    let daemon = Daemon::start(&sim, "");
    let before = daemon.when("the GPU to be read", |metrics| elapsed(metrics, gpu) >= 1.0);

    let output = tell(&sim, "release");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(daemon.children().len(), 0, "it is let go of when the command returns");
    // Now it can be exchanged.
    sim.remove_driver();
    daemon.until_status("the health to say so", |status| {
        status["sources"][0]["reason"].as_str().is_some_and(|reason| reason.contains("resume"))
    });
    assert_eq!(daemon.ask("/livez").unwrap().status, 200);
    let during = daemon.when("time to pass without counters", |metrics| {
        metrics.sum("warpmeter_gpu_use_unknown_seconds_total", &[("gpu_uuid", gpu)]) > 1.0
    });
    assert!(elapsed(&during, gpu) > elapsed(&before, gpu), "its time is counted on, as unknown");
    assert_conserved(&during);
    for counter in ["facts_total", "polls_total", "cpu_seconds_total"] {
        let count = |metrics: &Exposition| {
            metrics.get(&format!("warpmeter_source_{counter}"), &[("source", "nvidia")]).unwrap()
        };
        assert!(count(&during) >= count(&before), "{counter}");
    }
    assert_eq!(during.get("warpmeter_source_up", &[("source", "nvidia")]), None);

    sim.install_driver();
    assert!(tell(&sim, "resume").status.success());
    let profiled = |metrics: &Exposition| metrics.sum("warpmeter_gpu_profiled_seconds_total", &[]);
    let after = daemon.when("counters again", |metrics| profiled(metrics) > profiled(&during) + 1.0);
    assert_eq!(after.get("warpmeter_gpu_up", &[("gpu_uuid", gpu)]), Some(1.0));
    assert_conserved(&after);
}

#[test]
fn a_release_for_no_time_is_refused_before_anybody_is_told() {
    let sim = Sim::new(ONE_GPU);
    sim.configure(warpmeter_tests::http::free_address(), "");
    for time in ["0s", "999us"] {
        let output = tell(&sim, &format!("release --for {time}"));
        assert_eq!(output.status.code(), Some(64));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("--for") && error.contains("1ms or more"), "{error}");
    }
}

#[test]
fn a_release_without_a_daemon_says_so() {
    let sim = Sim::new(ONE_GPU);
    sim.configure(warpmeter_tests::http::free_address(), "");
    let output = tell(&sim, "release");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("control.sock") && error.contains("is it running"), "{error}");
}
