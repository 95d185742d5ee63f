//! Where a pod's figures come from, asked of a running daemon.

use std::ffi::OsString;
use std::net::TcpStream;

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;
use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::daemon::{self, Daemon};
use warpmeter_tests::ledger::elapsed;
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{http, tool, wait};

use crate::probes::can_probe;

/// `warpmeter explain NAME` beside a running daemon: whether it succeeded, and what it said.
fn explain(sim: &Sim, name: &str) -> (bool, String) {
    let words = ["explain", name, "--config"].map(OsString::from);
    let output = daemon::run(sim, words.into_iter().chain([sim.path("warpmeter.toml").into_os_string()]));
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// The processes of a chain, from the one that drives the device.
fn pids(chain: &Value) -> Vec<u64> {
    let wakers = chain["links"].as_array().unwrap().iter().map(|link| &link["waker"]);
    std::iter::once(&chain["driver"]).chain(wakers).map(|process| process["pid"].as_u64().unwrap()).collect()
}

#[test]
fn a_pod_is_explained_down_to_the_thread_that_it_waited_for() {
    if !can_probe() {
        return;
    }
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let mut sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 2");
    sim.probes = "true";
    let sim = sim;
    let [gpu, other] = [0, 1].map(|n| sim.gpus[n].uuid.as_str());
    let (waiter, idler) = (cgroups.systemd(), cgroups.systemd());
    let pods = sim.pods(&cgroup::pods(&[("waiter", &waiter, gpu), ("idler", &idler, other)]));
    let daemon = Daemon::start(&sim, &pods);
    let words = "waiter --kernels 2 --kernel-us 2000 --wait lock --wait-us 20000";
    let program = Program::start(&sim, gpu, Some(&waiter.procs), words);
    daemon.when("some seconds", |metrics| elapsed(metrics, gpu) >= 8.0);

    let uid = waiter.pod_uid.as_str();
    let answer = daemon.ask(&format!("/status/pods/{uid}")).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let json: Value = serde_json::from_str(answer.text()).unwrap();
    let windows = json["devices"][0]["windows"].as_array().unwrap();
    let last = windows.last().unwrap();
    assert_eq!((&last["ground"], &last["use_evidence"]), (&"causes".into(), &"measured".into()), "{last}");
    for window in windows {
        let states: f64 = window["states"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
        assert!((states - window["seconds"].as_f64().unwrap()).abs() < 1e-6, "a whole device: {window}");
    }
    // Its second thread computes; it waits for that one.
    let found = ["stalled/cpu", "stalled/cpu_wait"].map(|state| last["rules"][state].as_object());
    let cpu: f64 =
        found.into_iter().flatten().flat_map(|rules| rules.values()).filter_map(Value::as_f64).sum();
    assert!(cpu > 0.5, "{last}");
    let chain = &json["devices"][0]["chain"];
    assert_eq!(pids(chain), [u64::from(program.pid); 2], "{chain}");
    assert_eq!(chain["end"], "itself", "{chain}");
    assert!(chain["links"][0]["count"].as_u64().unwrap() > 50, "{chain}");

    let name = format!("{}/waiter", json["namespace"].as_str().unwrap());
    for name in [uid, "waiter", &name] {
        let (found, said) = explain(&sim, name);
        assert!(found && said.starts_with(&format!("pod {}", json["namespace"].as_str().unwrap())), "{said}");
        assert!(said.contains("stalled/cpu") && said.contains("waits within the process"), "{said}");
    }
    println!("{}", explain(&sim, uid).1);
    let (_, idle) = explain(&sim, "idler");
    assert!(idle.contains("idle/no_process: no process of it has the device open"), "{idle}");
    let (found, said) = explain(&sim, "nobody");
    assert!(!found && said.contains("no pod nobody"), "{said}");
    assert_eq!(daemon.ask("/status/pods/nobody").unwrap().status, 404);
}

#[test]
fn a_stall_is_traced_from_process_to_process_down_to_the_one_that_waited_for_the_network() {
    if !can_probe() {
        return;
    }
    let Some(mut cgroups) = Cgroups::new() else { return tool::skip("no cgroup can be made here") };
    let mut sim = Sim::new("[[gpu]]\nmodel = \"H100\"");
    sim.probes = "true";
    let sim = sim;
    let place = cgroups.systemd();
    let gpu = sim.gpus[0].uuid.as_str();
    let pods = sim.pods(&cgroup::pods(&[("trainer", &place, gpu)]));
    let daemon = Daemon::start(&sim, &pods);
    let [made, passed] = ["made", "passed"].map(|name| sim.path(name));
    for pipe in [&made, &passed] {
        mkfifoat(CWD, pipe, Mode::RUSR | Mode::WUSR).unwrap();
    }
    let [made, passed] = [&made, &passed].map(|pipe| pipe.display());
    let address = http::free_address();
    let _feeder = Program::start_without(&format!("feeder --listen {address} --delay-us 40000"));
    wait::until("the feeder", || TcpStream::connect(address).ok());
    let beside = |words: &str| Program::start_beside(&place.procs, words);
    let maker = beside(&format!("relay --wait network --connect {address} --read-kib 64 --to {made}"));
    let passer = beside(&format!("relay --wait pipe --file {made} --to {passed}"));
    let words = format!("waiter --kernels 2 --kernel-us 2000 --wait pipe --file {passed}");
    let trainer = Program::start(&sim, gpu, Some(&place.procs), &words);
    daemon.when("some seconds", |metrics| elapsed(metrics, gpu) >= 10.0);

    let (found, said) = explain(&sim, "trainer");
    println!("{said}");
    assert!(found, "{said}");
    let chain = said.lines().skip_while(|line| !line.starts_with("  behind the stalled/network"));
    let chain: Vec<&str> = chain.take(3).collect();
    let [pass, make, last] = chain.as_slice() else { panic!("{said}") };
    let named = |program: &Program| format!("node ({})", program.pid);
    let [trainer_is, passer_is, maker_is] = [&trainer, &passer, &maker].map(named);
    assert!(pass.contains(&format!(": {trainer_is} waited for {passer_is} ")), "{said}");
    assert!(make.starts_with(&format!("    {passer_is} waited for {maker_is} ")), "{said}");
    assert_eq!(*last, format!("    {maker_is} itself waited for the network"), "{said}");

    let answer = daemon.ask(&format!("/status/pods/{}", place.pod_uid)).unwrap();
    let json: Value = serde_json::from_str(answer.text()).unwrap();
    let chain = &json["devices"][0]["chain"];
    assert_eq!(pids(chain), [&trainer, &passer, &maker].map(|program| u64::from(program.pid)), "{chain}");
    assert_eq!((&chain["end"], &chain["last"]["pid"]), (&"itself".into(), &maker.pid.into()), "{chain}");
}
