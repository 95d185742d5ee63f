//! The queries of the autoscaling samples, answered by a real Prometheus that scrapes the real daemon. What they make of
//! absent values is in `deploy/autoscaling/check.py`.

use std::path::Path;

use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::program::Program;
use warpmeter_tests::prometheus::{Prometheus, job};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{tool, wait};

/// The values of a key of a sample, each alone on its line in single quotes.
fn quoted(file: &str, key: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/autoscaling").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": '"));
    lines.map(|line| line.strip_suffix('\'').unwrap().to_owned()).collect()
}

#[test]
fn the_samples_queries_are_answered_for_the_pods_of_a_deployment() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 2");
    let Some(mut cgroups) = Cgroups::new() else {
        return tool::skip("no cgroup can be made here");
    };
    let containers = [cgroups.systemd(), cgroups.systemd()];
    let pods = cgroup::pods(&[
        ("llm-1", &containers[0], &sim.gpus[0].uuid),
        ("llm-2", &containers[1], &sim.gpus[1].uuid),
    ]);
    let procs = Some(containers[0].procs.as_path());
    let _program = Program::start(&sim, &sim.gpus[0].uuid, procs, "hog --duty 0.6 --kernel-us 1000");
    let daemon = Daemon::start(&sim, &sim.pods(&pods));
    daemon.until_ready_is(200, "ready");
    let namespace = daemon.until("the pods' ratios", |metrics| {
        let ratios = metrics.all("warpmeter_pod_gpu_utilization_ratio", &[]);
        let known: Vec<_> = ratios.filter(|series| !series.label("pod").is_empty()).collect();
        (known.len() == 2).then(|| known[0].label("namespace").to_owned())
    });
    let Some(prometheus) = Prometheus::start(&sim, &[job("gpu", daemon.address, "honor_labels: true")])
    else {
        return tool::skip("prometheus is not installed");
    };

    let [queue, ratio] = &quoted("prometheus-adapter.values.yaml", "metricsQuery")[..] else {
        panic!("two rules");
    };
    // As the adapter expands them for an autoscaler of these two pods.
    let expand = |query: &str, series: &str| {
        let matchers = format!("namespace=\"{namespace}\",pod=~\"llm-1|llm-2\"");
        query
            .replace("<<.Series>>", series)
            .replace("<<.LabelMatchers>>", &matchers)
            .replace("<<.GroupBy>>", "pod")
    };
    let ratio = expand(ratio, "warpmeter_pod_gpu_utilization_ratio");
    let ratios = wait::until("a ratio of each pod", || {
        prometheus.by("pod", &ratio).filter(|ratios| ratios.len() == 2 && ratios[0].1 > 0.2)
    });
    assert!(ratios[0].0 == "llm-1" && ratios[0].1 <= 1.0 && ratios[1].1 < 0.01, "{ratios:?}");
    let queue = prometheus.query(&expand(queue, "vllm:num_requests_waiting")).unwrap();
    assert!(queue.is_empty(), "nobody counts requests here: {queue:?}");

    let [waiting, busy] = &quoted("keda-scaledobject.yaml", "query")[..] else { panic!("two triggers") };
    assert!(prometheus.query(waiting).unwrap().is_empty());
    let busy = busy.replace("namespace=\"serving\"", &format!("namespace=\"{namespace}\""));
    let sum = prometheus.query(&busy).unwrap();
    assert_eq!(sum.len(), 1, "one element, as KEDA needs: {sum:?}");
    assert_eq!(sum[0]["metric"].as_object().unwrap().len(), 0);
}
