//! Roofline classes of pods that do known work, by a running daemon.

use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::assert_conserved;
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tool;

/// Pods, the loads of their kernels in percent, and the class that these are.
const PODS: [(&str, &str, &str); 5] = [
    ("mover", "--sm 20 --dram 90 --tensor 5", "bandwidth_bound"),
    ("multiplier", "--sm 90 --dram 20 --tensor 80", "compute_bound"),
    ("chaser", "--sm 20 --dram 15 --tensor 0", "latency_bound"),
    ("spinner", "--sm 8 --dram 2 --tensor 0", "low_intensity"),
    // On the device without counters of its SMs.
    ("unseen", "--sm 20 --dram 90 --tensor 5", "unknown"),
];

/// Seconds that a pod's work ran.
fn used(metrics: &Exposition, pod: &str) -> f64 {
    metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", pod)])
}

#[test]
fn each_pod_has_the_class_of_its_kernels_and_none_where_they_are_not_counted() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 4\n[[gpu]]\nmodel = \"A100\"");
    let containers = PODS.map(|_| cgroups.systemd());
    let devices: Vec<&str> = sim.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    let entries: Vec<_> = PODS
        .iter()
        .zip(&containers)
        .zip(&devices)
        .map(|(((name, ..), place), device)| (*name, place, *device))
        .collect();
    let daemon = Daemon::start(&sim, &sim.pods(&cgroup::pods(&entries)));
    let _programs: Vec<Program> = PODS
        .iter()
        .zip(&entries)
        .map(|((_, loads, _), (_, place, device))| {
            let words = format!("hog --duty 0.8 --kernel-us 1000 {loads}");
            Program::start(&sim, device, Some(&place.procs), &words)
        })
        .collect();
    let metrics = daemon.when("all to work for some seconds", |metrics| {
        PODS.iter().all(|(name, ..)| used(metrics, name) > 4.0)
    });
    assert_conserved(&metrics);
    for (name, _, class) in PODS {
        let whole = used(&metrics, name);
        let all = metrics.sum("warpmeter_pod_roofline_seconds_total", &[("pod", name)]);
        assert!((all - whole).abs() < 1e-6, "{name}: {all} of {whole}");
        let right = metrics.sum("warpmeter_pod_roofline_seconds_total", &[("pod", name), ("class", class)]);
        // The first window may have too little work in it.
        assert!(right > 0.9 * whole, "{name}: {right} of {whole} is {class}");
    }
    let peak = |place: usize| {
        let gpu = [("gpu_uuid", devices[place])];
        let rate = metrics.get("warpmeter_gpu_peak_dram_bandwidth_bytes_per_second", &gpu);
        rate.map(|rate| (rate / 1e9).round())
    };
    assert_eq!((peak(0), peak(4)), (Some(3350.0), Some(2039.0)));

    let said = |place: usize| {
        let answer = daemon.ask(&format!("/status/pods/{}", containers[place].pod_uid)).unwrap();
        answer.text().to_owned()
    };
    assert!(
        said(0).contains("of 3350 GB/s, NVIDIA H100 Tensor Core GPU")
            && said(0).contains("memory is the nearer roof")
    );
    assert!(said(4).contains("counters are missing"), "{}", said(4));
}
