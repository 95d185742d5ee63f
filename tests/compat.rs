//! Figures under DCGM's names, as the tools that know only those read them: by their queries, in a real Prometheus.

use std::path::Path;

use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::program::Program;
use warpmeter_tests::prometheus::{Prometheus, job};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{tool, wait};

/// A whole GPU, one divided by MIG, one shared by replicas.
const NODE: &str = r#"
[[gpu]]
model = "H100"

[[gpu]]
model = "H100"
mig = [{ profile = "3g.40gb" }]

[[gpu]]
model = "H100"
"#;

#[test]
fn opencost_and_gpu_pruner_get_each_pods_own_part_and_the_parts_add_up() {
    let mut sim = Sim::new(NODE);
    sim.http = "compat_dcgm = true\n".into();
    let Some(mut cgroups) = Cgroups::new() else {
        return tool::skip("no cgroup can be made here");
    };
    let containers: [_; 4] = std::array::from_fn(|_| cgroups.systemd());
    let [whole, divided, shared] = [&sim.gpus[0].uuid, &sim.gpus[1].instances[0], &sim.gpus[2].uuid];
    let replicas = [format!("{shared}::0"), format!("{shared}::1")];
    let [a, b, c, d] = &containers;
    let pods = cgroup::pods(&[
        ("idle", a, whole),
        ("on-mig", b, divided),
        ("first", c, &replicas[0]),
        ("second", d, &replicas[1]),
    ]);
    let pods = sim.pods(&format!("[[device]]\nid = {shared:?}\nreplicas = 2\n{pods}"));
    // Nobody runs on the whole GPU: its pod is idle for certain.
    let _programs: Vec<_> = [(divided, b, "0.5"), (shared, c, "0.6"), (shared, d, "0.2")]
        .into_iter()
        .map(|(device, container, duty)| {
            let words = format!("hog --duty {duty} --kernel-us 1000");
            Program::start(&sim, device, Some(Path::new(&container.procs)), &words)
        })
        .collect();
    let daemon = Daemon::start(&sim, &pods);
    daemon.until_ready_is(200, "ready");
    let jobs = [
        job("gpu", daemon.address, "honor_labels: true"),
        job("dcgm", daemon.address, "metrics_path: /compat/dcgm\nhonor_labels: true"),
        job("exported", daemon.address, "metrics_path: /compat/dcgm"),
    ];
    let Some(prometheus) = Prometheus::start(&sim, &jobs) else {
        return tool::skip("prometheus is not installed");
    };
    let busy = "DCGM_FI_PROF_GR_ENGINE_ACTIVE{job=\"dcgm\", pod=\"first\"}";
    wait::until("fifteen scrapes of pods at work", || {
        let counts = prometheus.by("pod", &format!("count_over_time(({busy} > 0.1)[1m:1s])"))?;
        counts.first().filter(|(_, count)| *count >= 15.0).map(drop)
    });

    // OpenCost's, but for the length of the window.
    let usage = prometheus
        .by(
            "pod",
            "avg(avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{container!=\"\", job=\"dcgm\"}[12s])) \
             by (container, pod, namespace)",
        )
        .unwrap();
    let names: Vec<_> = usage.iter().map(|(pod, _)| pod.as_str()).collect();
    assert_eq!(names, ["first", "idle", "on-mig", "second"]);
    let own = |pod: &str| usage.iter().find(|(name, _)| name == pod).unwrap().1;
    assert!(own("idle") < 1e-6 && own("on-mig") > 0.3, "{usage:?}");
    assert!(own("first") > 1.5 * own("second"), "each has its own value: {usage:?}");
    // The same as Warpmeter's own, which an incumbent's copy of the device's value to each pod would not be.
    let used = prometheus
        .by("pod", "sum by (pod) (rate(warpmeter_pod_gpu_used_seconds_total{pod=~\"first|second\"}[12s]))")
        .unwrap();
    for (pod, used) in used {
        assert!((own(&pod) - used).abs() < 0.15, "{pod}: {used} and {usage:?}");
    }
    let sums = prometheus.by("UUID", "sum by (UUID) (DCGM_FI_DEV_GPU_UTIL{job=\"dcgm\"})").unwrap();
    assert!(sums.len() == 2 && sums.iter().all(|(_, sum)| (0.0..=100.0).contains(sum)), "{sums:?}");

    // gpu-pruner's, for a scrape that does not keep the pods' own labels.
    let idle = prometheus
        .by(
            "exported_pod",
            "sum by (Hostname, exported_container, exported_pod, exported_namespace, gpu, modelName) (\
             max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod!=\"\"}[12s]) or \
             max_over_time(DCGM_FI_DEV_GPU_UTIL{exported_pod!=\"\"}[12s]) / 100) <= 0.01",
        )
        .unwrap();
    assert_eq!(idle.iter().map(|(pod, _)| pod.as_str()).collect::<Vec<_>>(), ["idle"], "{idle:?}");
}
