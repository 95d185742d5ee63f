//! What is not there when the daemon starts is taken up when it comes.

use std::os::unix::fs::symlink;

use warpmeter_simkubelet::{Kubelet, container, devices, pod};
use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::wait;

fn state(metrics: &Exposition, gpu: &str, state: &str) -> f64 {
    metrics.sum("warpmeter_gpu_seconds_total", &[("gpu_uuid", gpu), ("state", state)])
}

#[test]
fn a_kubelet_that_comes_later_is_taken_up_and_ends_what_was_inferred() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 2");
    let [granted, free] = [0, 1].map(|n| sim.gpus[n].uuid.as_str());
    let mut node = Kubelet::new().unwrap();
    node.list(vec![pod("ns", "p", vec![container("main", vec![devices("nvidia.com/gpu", &[granted])])])]);
    node.log("ns", "p", "uid-p", &[]).unwrap();
    let directory = sim.path("pod-resources");
    let socket = directory.join("kubelet.sock");
    let logs = [node.pod_logs(), node.container_logs()];
    let config = format!(
        "[kubelet]\nsocket = {socket:?}\npod_logs = {:?}\ncontainer_logs = {:?}\nrefresh = \"2s\"\n",
        logs[0], logs[1]
    );
    let _program = Program::start(&sim, free, None, "hog --duty 0.5");
    let daemon = Daemon::start(&sim, &config);
    let before = daemon.when("use to be taken for holding", |metrics| state(metrics, free, "active") > 0.5);
    assert_eq!(before.all("warpmeter_pod_gpu_seconds_total", &[]).count(), 0);
    assert_eq!(before.all("warpmeter_source_up", &[("source", "pods")]).count(), 0, "nobody is missed");
    let reason = "no kubelet here so far";
    daemon.until_status("it to say who is awaited", |status| status["sources"].to_string().contains(reason));
    // First the directory, as a kubelet makes it before it listens there.
    symlink(node.socket().parent().unwrap(), &directory).unwrap();
    daemon.until_ready_is(503, "source pods is down");
    node.start().unwrap();
    let after = daemon.when("the pod", |metrics| {
        metrics.sum("warpmeter_pod_gpu_seconds_total", &[("pod", "p"), ("gpu_uuid", granted)]) > 1.0
    });
    let later = daemon.when("more", |metrics| elapsed(metrics, free) > elapsed(&after, free) + 3.0);
    let gained = |name| state(&later, free, name) - state(&after, free, name);
    assert!(gained("unallocated") > 2.9 && gained("active") < 1e-9, "used without a grant: {later:?}");
    assert_conserved(&later);
}

#[test]
fn a_daemon_that_started_beside_another_takes_its_control_socket_up_when_that_has_ended() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    let tell = |word: &str| {
        let config = sim.path("warpmeter.toml").into_os_string();
        daemon::run(&sim, [word.into(), "--config".into(), config]).status.success()
    };
    let mut first = Daemon::start(&sim, "");
    first.scrape();
    let second = Daemon::start(&sim, "");
    second.until_ready_is(200, "ready");
    wait::until("it to say that it has no socket", || {
        second.log().contains("another daemon listens there").then_some(())
    });
    assert!(tell("release") && first.children().is_empty(), "the first one is told");
    assert_eq!(second.children().len(), 1);
    assert!(first.terminate().0.success());
    wait::until("the second one to be told", || tell("release").then_some(()));
    assert!(second.children().is_empty());
    assert_eq!(second.log().matches("another daemon listens there").count(), 1, "{}", second.log());
}
