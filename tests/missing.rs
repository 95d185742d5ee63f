//! What a driver does not give is absent, and all else is kept.

use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;

const WORK: &str = "hog --duty 0.5 --kernel-us 1000";

/// The metrics after a GPU has been accounted for this many seconds.
fn after(daemon: &Daemon, gpu: &str, seconds: f64) -> Exposition {
    let metrics = daemon.when("seconds of accounts", |metrics| elapsed(metrics, gpu) >= seconds);
    assert_conserved(&metrics);
    metrics
}

/// Seconds of a GPU in what is counted so; none where the family is absent.
fn seconds(metrics: &Exposition, gpu: &str, what: &str) -> Option<f64> {
    metrics.get(&format!("warpmeter_gpu_{what}_seconds_total"), &[("gpu_uuid", gpu)])
}

#[test]
fn a_counter_that_reads_zero_while_another_shows_work_is_a_conflict_and_not_idleness() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"stuck_zero\"");
    let gpu = sim.gpus[0].uuid.as_str();
    let pods = sim.pods(&format!(
        "[[pod]]\nuid = \"1\"\nnamespace = \"a\"\nname = \"p\"\ncontainers = [{{ name = \"c\", devices = [{gpu:?}] }}]\n"
    ));
    let _program = Program::start(&sim, gpu, None, "hog");
    let daemon = Daemon::start(&sim, &pods);
    let metrics = after(&daemon, gpu, 6.0);
    let pod = |labels: Labels<'_>| metrics.sum("warpmeter_pod_gpu_seconds_total", labels);
    let conflict = pod(&[("state", "unknown"), ("cause", "conflict")]);
    assert!(conflict > 3.0, "{conflict}");
    assert!(pod(&[("state", "idle")]) < 1.0);
    assert!(metrics.sum("warpmeter_gpu_use_unknown_seconds_total", &[]) > 3.0);
}

#[test]
fn one_gpm_metric_that_fails_is_absent_and_the_others_are_kept() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"gpm_metric_error\"\nmetric = 10");
    let gpu = sim.gpus[0].uuid.as_str();
    let _program = Program::start(&sim, gpu, None, WORK);
    let daemon = Daemon::start(&sim, "");
    let metrics = after(&daemon, gpu, 4.0);
    assert_eq!(seconds(&metrics, gpu, "dram_bandwidth"), None);
    for kept in ["engine_active", "sm_active", "sm_occupied", "tensor_active"] {
        assert!(
            seconds(&metrics, gpu, kept).is_some_and(|active| active > 0.1),
            "{kept}: {:?}",
            seconds(&metrics, gpu, kept)
        );
    }
}

#[test]
fn a_gpu_whose_gpm_cannot_be_had_is_read_as_an_older_one_and_has_no_sm_figures_instead_of_zeros() {
    for (kind, function) in [
        ("missing_symbol", "nvmlGpmQueryDeviceSupport"),
        ("not_supported", "nvmlGpmQueryDeviceSupport"),
        ("missing_symbol", "nvmlGpmSampleGet"),
    ] {
        let sim = Sim::new(&format!(
            "[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"{kind}\"\nfunction = \"{function}\""
        ));
        let gpu = sim.gpus[0].uuid.as_str();
        let _program = Program::start(&sim, gpu, None, WORK);
        let daemon = Daemon::start(&sim, "");
        let metrics = after(&daemon, gpu, 4.0);
        assert!(
            seconds(&metrics, gpu, "engine_active").is_some_and(|active| active > 0.5),
            "{kind} {function}"
        );
        for absent in ["sm_active", "sm_occupied", "tensor_active", "dram_bandwidth"] {
            assert_eq!(seconds(&metrics, gpu, absent), None, "{kind} {function}: {absent}");
        }
        let status = daemon.until_status("the status", |_| true);
        assert!(status["gpus"][0]["authority"]["sm"].is_null(), "{kind} {function}: {status}");
    }
}

#[test]
fn without_figures_by_process_a_shared_gpus_work_is_unattributed_and_still_counted() {
    let function = "function = \"nvmlDeviceGetProcessUtilization\"";
    for kind in ["not_supported", "missing_symbol"] {
        let sim = Sim::new(&format!("[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"{kind}\"\n{function}"));
        let gpu = sim.gpus[0].uuid.as_str();
        let Some(mut cgroups) = warpmeter_tests::cgroup::Cgroups::new() else {
            return warpmeter_tests::tool::skip("no cgroup can be made here");
        };
        let containers = [cgroups.systemd(), cgroups.cgroupfs()];
        let _programs = [0, 1].map(|n| Program::start(&sim, gpu, Some(containers[n].procs.as_path()), WORK));
        let daemon = Daemon::start(&sim, "");
        let metrics = after(&daemon, gpu, 5.0);
        let active = metrics.sum("warpmeter_gpu_engine_active_seconds_total", &[]);
        let nobodys = metrics.sum("warpmeter_gpu_unattributed_seconds_total", &[]);
        assert!(active > 2.0 && nobodys > active - 1.5, "{kind}: {nobodys} of {active}");
        let status = daemon.until_status("the status", |_| true);
        assert!(status["gpus"][0]["authority"]["processes"].is_null(), "{kind}: {status}");
    }
}

#[test]
fn an_older_driver_without_samples_of_instances_costs_at_most_their_activity() {
    let sim = Sim::new(
        "[[gpu]]\nmodel = \"H100\"\nmig = [{ profile = \"3g.40gb\" }]\n[[gpu]]\nmodel = \"H100\"\n\
         [[fault]]\nkind = \"missing_symbol\"\nfunction = \"nvmlGpmMigSampleGet\"",
    );
    let (divided, whole) = (sim.gpus[0].uuid.as_str(), sim.gpus[1].uuid.as_str());
    let _programs =
        [&sim.gpus[0].instances[0], &sim.gpus[1].uuid].map(|device| Program::start(&sim, device, None, WORK));
    let daemon = Daemon::start(&sim, "");
    let metrics = after(&daemon, divided, 4.0);
    let active = |gpu| metrics.sum("warpmeter_gpu_sm_active_seconds_total", &[("gpu_uuid", gpu)]);
    assert!(active(whole) > 0.5);
    let instance = [("mig", sim.gpus[0].instances[0].as_str())];
    let known = active(divided) > 0.1;
    let unknown = metrics.sum("warpmeter_gpu_use_unknown_seconds_total", &instance);
    assert!(known || unknown > 1.0, "known by other means, or unknown: never idle");
}

#[test]
fn old_drivers_without_newer_functions_are_read_all_the_same() {
    for function in [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetFieldValues",
    ] {
        let fault = format!("[[fault]]\nkind = \"missing_symbol\"\nfunction = \"{function}\"");
        let sim = Sim::new(&format!("[[gpu]]\nmodel = \"H100\"\n{fault}"));
        let gpu = sim.gpus[0].uuid.as_str();
        let _program = Program::start(&sim, gpu, None, WORK);
        let daemon = Daemon::start(&sim, "");
        let metrics = after(&daemon, gpu, 3.0);
        assert!(metrics.sum("warpmeter_gpu_engine_active_seconds_total", &[]) > 0.5, "{function}");
        assert_eq!(metrics.get("warpmeter_gpu_up", &[]), Some(1.0), "{function}");
    }
}

#[test]
fn a_gpu_instance_without_a_compute_instance_is_there_and_nobodys() {
    let sim = Sim::new(
        "[[gpu]]\nmodel = \"H100\"\nmig = [{ profile = \"3g.40gb\" }, { profile = \"2g.20gb\", ci = false }]",
    );
    let gpu = sim.gpus[0].uuid.as_str();
    let _program = Program::start(&sim, &sim.gpus[0].instances[0], None, WORK);
    let daemon = Daemon::start(&sim, "");
    let metrics = after(&daemon, gpu, 4.0);
    let bare = metrics
        .all("warpmeter_gpu_info", &[("mig_profile", "2g.20gb")])
        .map(|series| series.label("mig").to_owned())
        .next()
        .unwrap();
    let time = metrics.sum("warpmeter_gpu_seconds_total", &[("mig", &bare)]);
    let free = metrics.sum("warpmeter_gpu_seconds_total", &[("mig", &bare), ("state", "unallocated")]);
    assert!((time - free).abs() < 1e-6 && time > 0.9, "{free} of {time}");
    let slices = time / elapsed(&metrics, gpu) * 7.0;
    assert!((slices - 2.0).abs() < 0.01, "{slices} of 7 slices");
    let used = metrics.sum("warpmeter_gpu_used_seconds_total", &[("mig", &sim.gpus[0].instances[0])]);
    assert!(used > 0.3, "the instance beside it is accounted: {used}");
}

#[test]
fn gpus_of_different_ages_are_each_read_as_well_as_they_can_be() {
    let sim = Sim::new("[[gpu]]\nmodel = \"T4\"\n[[gpu]]\nmodel = \"H100\"");
    let _programs = [0, 1].map(|n| Program::start(&sim, &sim.gpus[n].uuid, None, WORK));
    let daemon = Daemon::start(&sim, "");
    let metrics = after(&daemon, &sim.gpus[0].uuid, 4.0);
    let [old, new] = [0, 1].map(|n| [("gpu_uuid", sim.gpus[n].uuid.as_str())]);
    for gpu in [&old, &new] {
        assert!(metrics.sum("warpmeter_gpu_engine_active_seconds_total", gpu) > 0.5, "{gpu:?}");
    }
    assert_eq!(metrics.get("warpmeter_gpu_sm_active_seconds_total", &old), None);
    assert!(metrics.get("warpmeter_gpu_sm_active_seconds_total", &new).is_some_and(|active| active > 0.5));
}
