//! What the kernel says of how long a pod was held up, beside the causes of its stalls.

use std::fs;
use std::path::{Path, PathBuf};

use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::ledger::assert_conserved;
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tool;

/// A tenth of a CPU for the cgroup with this file of processes, or for one of the same name where limits are; and the
/// directories that were made for that.
fn limit(procs: &Path, pid: u32) -> Option<Vec<PathBuf>> {
    let own = procs.parent()?;
    if fs::write(own.join("cpu.max"), "10000 100000").is_ok() {
        return Some(Vec::new());
    }
    let below = own.strip_prefix("/sys/fs/cgroup").ok()?;
    let below: PathBuf = below.components().skip(1).collect();
    let mut path = PathBuf::from("/sys/fs/cgroup/cpu");
    fs::metadata(path.join("cgroup.procs")).ok()?;
    let mut made = Vec::new();
    for part in below.components() {
        path.push(part);
        fs::create_dir(&path).ok()?;
        made.push(path.clone());
    }
    fs::write(path.join("cpu.cfs_quota_us"), "10000").ok()?;
    fs::write(path.join("cgroup.procs"), pid.to_string()).ok()?;
    Some(made)
}

#[test]
fn a_pod_that_a_limit_holds_back_has_throttling_and_pressure_where_its_kernel_counts_them() {
    let Some(mut cgroups) = Cgroups::new() else {
        return tool::skip("no cgroup can be made here");
    };
    let place = cgroups.systemd();
    let sim = Sim::alone("[[gpu]]\nmodel = \"H100\"");
    let device = sim.gpus[0].uuid.clone();
    let mut daemon = Daemon::start(&sim, &sim.pods(&cgroup::pods(&[("p", &place, &device)])));
    let words = "waiter --kernels 2 --kernel-us 1000 --wait cpu --wait-us 20000";
    let program = Program::start(&sim, &device, Some(&place.procs), words);
    let limited = limit(&place.procs, program.pid);
    let pressed = fs::read_to_string(place.procs.with_file_name("cpu.pressure")).is_ok();
    let pod = [("pod", "p"), ("pod_uid", place.pod_uid.as_str())];
    if limited.is_some() {
        daemon.when("throttling", |metrics| {
            metrics.sum("warpmeter_pod_cpu_throttled_seconds_total", &pod) > 0.5
        });
    } else {
        println!("skipped: no CPU limit can be set here");
    }
    if pressed {
        daemon.when("pressure", |metrics| {
            metrics.sum("warpmeter_pod_pressure_seconds_total", &[("pod", "p"), ("resource", "cpu")]) > 0.1
        });
    } else {
        println!("skipped: no pressure is counted here");
    }
    let metrics = daemon.scrape();
    assert_conserved(&metrics);
    let series = |name: &str| metrics.all(name, &pod).count();
    assert_eq!(series("warpmeter_pod_pressure_seconds_total") > 0, pressed, "unknown is no series");
    drop(program);
    daemon.terminate();
    for path in limited.into_iter().flatten().rev() {
        warpmeter_tests::wait::until("an empty cgroup", || fs::remove_dir(&path).ok());
    }
}
