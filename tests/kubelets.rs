//! A kubelet that fails takes nothing from the pods that are known, and is never asked by a scrape.

use std::time::{Duration, Instant};

use tonic::Code;
use warpmeter_simkubelet::{Kubelet, Manner, PodResources, container, devices, pod};
use warpmeter_tests::cgroup::Cgroups;
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{http, kubelet, tool};

/// A pod that holds the node's only GPU.
fn one_pod(sim: &Sim) -> Kubelet {
    let mut node = Kubelet::new().unwrap();
    node.list(vec![pod(
        "ns",
        "p",
        vec![container("main", vec![devices("nvidia.com/gpu", &[&sim.gpus[0].uuid])])],
    )]);
    node.log("ns", "p", "uid-p", &[]).unwrap();
    node.start().unwrap();
    node
}

fn held(metrics: &Exposition, pod: &str) -> f64 {
    metrics.sum("warpmeter_pod_gpu_seconds_total", &[("pod", pod)])
}

#[test]
fn t32_whatever_the_kubelet_does_the_last_mapping_stays_and_no_scrape_waits() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let gpu = sim.gpus[0].uuid.as_str();
    let mut node = one_pod(&sim);
    let daemon = Daemon::start(&sim, &kubelet::section(&node));
    daemon.when("the pod", |metrics| held(metrics, "p") > 0.5);
    let known = node.listed();
    let large = vec!["x".repeat(1 << 20); 20];
    let large = vec![pod("ns", "q", vec![container("main", vec![devices("nvidia.com/gpu", &large)])])];
    let refuses = Manner::Refuses(Code::Internal, "out of order".into());
    for (manner, list, word) in [
        (refuses, &known, "Internal"),
        (Manner::Hangs, &known, "within 2s"),
        (Manner::Answers, &large, "16 MiB"),
        (Manner::Sends(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), &known, "listens there"),
    ] {
        node.behave(manner);
        node.list(list.clone());
        // Made anew, the socket ends the wait of earlier failures.
        node.start().unwrap();
        daemon.until_status("the health to say why, and the status how old the mapping is", |status| {
            let sources = status["sources"].as_array().unwrap();
            let pods = sources.iter().find(|source| source["source"] == "pods").unwrap();
            pods["reason"].as_str().is_some_and(|reason| reason.contains(word) && reason.contains("stay"))
                && pods["last_answer_seconds_ago"].as_f64() > Some(0.0)
        });
        let began = Instant::now();
        let before = daemon.scrape();
        assert!(began.elapsed() < Duration::from_secs(1), "{word}: {:?}", began.elapsed());
        let until = elapsed(&before, gpu) + 2.0;
        let after = daemon.when("two seconds", |metrics| elapsed(metrics, gpu) >= until);
        assert_conserved(&after);
        let (device, pod) =
            (elapsed(&after, gpu) - elapsed(&before, gpu), held(&after, "p") - held(&before, "p"));
        assert!((device - pod).abs() < 1e-6, "{word}: {pod} of {device} s");
        assert!(after.all("warpmeter_pod_gpu_seconds_total", &[]).all(|series| series.label("pod") == "p"));
    }
}

#[test]
fn t33_a_hundred_scrapes_at_once_ask_the_kubelet_nothing() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let node = one_pod(&sim);
    let began = Instant::now();
    let daemon = Daemon::start(&sim, &kubelet::section(&node));
    daemon.when("the pod", |metrics| held(metrics, "p") > 0.5);
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(http::get(daemon.address, "/metrics", "").unwrap().status, 200);
                }
            });
        }
    });
    // At the start, and every two seconds after.
    let due = began.elapsed().as_secs() / 2 + 1;
    assert!(u64::from(node.calls().list) <= due, "{:?} in {:?}", node.calls(), began.elapsed());
}

#[test]
fn a_kubelet_that_restarts_and_knows_nobody_yet_takes_no_pods_time() {
    takes_no_time(Duration::ZERO, vec![]);
}

#[test]
fn a_kubelet_that_restarts_and_does_not_know_devices_yet_takes_no_pods_time() {
    takes_no_time(Duration::ZERO, vec![pod("ns", "p", vec![container("main", vec![])])]);
}

#[test]
fn a_kubelet_that_was_away_for_longer_than_it_has_to_settle_takes_no_pods_time() {
    takes_no_time(Duration::from_secs(35), vec![]);
}

/// A kubelet is away for so long, and then lists this for some seconds.
fn takes_no_time(away: Duration, list: Vec<PodResources>) {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let gpu = sim.gpus[0].uuid.as_str();
    let mut node = one_pod(&sim);
    let daemon = Daemon::start(&sim, &kubelet::section(&node));
    let before = daemon.when("the pod", |metrics| held(metrics, "p") > 0.5);
    let (known, calls) = (node.listed(), node.calls().list);
    node.stop().unwrap();
    std::thread::sleep(away);
    node.list(list);
    node.start().unwrap();
    daemon.when("it to be asked anew", |_| node.calls().list > calls);
    let until = elapsed(&before, gpu) + 4.0;
    daemon.when("seconds of it", |metrics| elapsed(metrics, gpu) >= until);
    daemon.until_status("the health to say what is held over", |status| {
        let sources = status["sources"].as_array().unwrap();
        let pods = sources.iter().find(|source| source["source"] == "pods").unwrap();
        pods["reason"].as_str().is_some_and(|reason| reason.contains("held over"))
    });
    node.list(known);
    let until = until + 3.0;
    let after = daemon.when("more", |metrics| elapsed(metrics, gpu) >= until);
    assert_conserved(&after);
    let pod = held(&after, "p") - held(&before, "p");
    assert!((pod - (elapsed(&after, gpu) - elapsed(&before, gpu))).abs() < 1e-6, "{pod}");
}

#[test]
fn t14_without_the_hosts_processes_work_is_assumed_to_be_the_holders_health_says_why_and_nobody_is_idle() {
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let mut sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    // As in a container without hostPID: a /proc with other processes.
    let proc = sim.path("proc");
    std::fs::create_dir_all(proc.join("1")).unwrap();
    for file in ["stat", "uptime", "1/stat", "1/cgroup"] {
        std::fs::copy(std::path::Path::new("/proc").join(file), proc.join(file)).unwrap();
    }
    sim.host = format!("proc = {proc:?}\n");
    let gpu = sim.gpus[0].uuid.as_str();
    let container = cgroups.systemd();
    let pods = sim.pods(&warpmeter_tests::cgroup::pods(&[("p", &container, gpu)]));
    let daemon = Daemon::start(&sim, &pods);
    let _program = Program::start(&sim, gpu, Some(&container.procs), "hog --duty 0.5");
    let metrics = daemon.when("work of somebody unseen", |metrics| {
        let host = [("source", "host")];
        let poor = metrics.get("warpmeter_source_degraded", &host) == Some(1.0)
            || metrics.get("warpmeter_source_up", &host) == Some(0.0);
        poor && metrics.sum("warpmeter_gpu_engine_active_seconds_total", &[]) > 1.5
    });
    assert_conserved(&metrics);
    assert!(metrics.sum("warpmeter_pod_gpu_seconds_total", &[("state", "idle")]) < 1e-9);
    let used = metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", "p")]);
    let assumed = [("ledger", "use"), ("evidence", "assumed")];
    // Before the process had a context there was nobody to be unseen.
    assert!(used - metrics.sum("warpmeter_evidence_seconds_total", &assumed) < 0.5, "{used} s used");
}

#[test]
fn a_kubelet_that_restarts_again_and_again_keeps_no_pod_that_has_ended() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let mut node = one_pod(&sim);
    let daemon = Daemon::start(&sim, &kubelet::section(&node));
    daemon.when("the pod", |metrics| held(metrics, "p") > 0.5);
    node.remove_logs("ns", "p", "uid-p").unwrap();
    node.list(vec![]);
    for _ in 0..13 {
        node.start().unwrap();
        std::thread::sleep(Duration::from_secs(3));
    }
    let metrics = daemon.scrape();
    assert_eq!(metrics.all("warpmeter_pod_allocated_gpus", &[("pod", "p")]).count(), 0, "after 39 s");
}
