//! Clients of an MPS server, whom the driver lists and of whose use it says nothing: real programs on one device,
//! against the simulator's own log.

use std::ffi::OsStr;
use std::path::PathBuf;

use warpmeter_tests::cgroup::{self, Cgroups, Container};
use warpmeter_tests::daemon::Daemon;
use warpmeter_tests::exposition::Exposition;
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::program::Program;
use warpmeter_tests::recording::{beginning, reached};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::tool;
use warpmeter_tests::wait::attempts;

use crate::probes::can_probe;

/// For how long is measured, in seconds.
const MEASURED: f64 = 6.0;
/// By how many points of the time that the device runs a part may be off that is inferred.
const POINTS: f64 = 5.0;

/// Always has work, of kernels that leave room for others'.
const GREEDY: &str = "hog --kernel-us 1000 --sm 40";
/// Has work for about a third of the time.
const MODEST: &str = "waiter --wait sleep --wait-us 20000 --kernels 10 --kernel-us 1000 --sm 30";

/// A pod with one process.
struct Client {
    pod: &'static str,
    words: &'static str,
    /// What its environment limits its threads to, in percent.
    threads: Option<u32>,
    /// Whether its pod wants no probes.
    refuses: bool,
}

const fn client(pod: &'static str, words: &'static str) -> Client {
    Client { pod, words, threads: None, refuses: false }
}

/// A device under an MPS server, whose clients each hold a quarter of it.
struct Served {
    daemon: Daemon,
    programs: Vec<Program>,
    clients: Vec<Client>,
    /// The container that the server is in.
    at: Container,
    _server: Program,
    recording: PathBuf,
    // After the processes that are in them.
    sim: Sim,
    _cgroups: Cgroups,
}

/// Seconds that a pod's work ran.
fn used(metrics: &Exposition, pod: &str) -> f64 {
    metrics.sum("warpmeter_pod_gpu_used_seconds_total", &[("pod", pod)])
}

/// Bytes that the driver lists a pod's processes with.
fn memory(metrics: &Exposition, pod: &str) -> f64 {
    metrics.sum("warpmeter_pod_memory_used_bytes", &[("pod", pod)])
}

fn nobodys(metrics: &Exposition) -> f64 {
    metrics.sum("warpmeter_gpu_unattributed_seconds_total", &[])
}

impl Served {
    /// Nothing where no cgroups can be made.
    fn start(clients: Vec<Client>, probes: &'static str, more: &str) -> Option<Self> {
        let Some(mut cgroups) = Cgroups::new() else {
            tool::skip("no cgroup can be made here");
            return None;
        };
        let counters = format!("[oracle]\nmerge_gap_us = 0\n[[gpu]]\nmodel = \"H100\"\nmps = true\n{more}");
        let mut sim = Sim::alone(&counters);
        sim.probes = probes;
        let gpu = sim.gpus[0].uuid.clone();
        let at = cgroups.systemd();
        let places: Vec<Container> = clients.iter().map(|_| cgroups.systemd()).collect();
        let grants: Vec<String> = (0..clients.len()).map(|number| format!("{gpu}::{number}")).collect();
        let held = clients.iter().zip(&places).zip(&grants);
        let entries: Vec<_> = held.map(|((client, place), grant)| (client.pod, place, &**grant)).collect();
        let mut text = format!("[[device]]\nid = {gpu:?}\nreplicas = 4\n{}", cgroup::pods(&entries));
        for client in clients.iter().filter(|client| client.refuses) {
            let name = format!("name = {:?}\n", client.pod);
            text = text.replacen(&name, &format!("{name}probes = false\n"), 1);
        }
        let pods = sim.pods(&text);
        let server = Program::start(&sim, &gpu, Some(&at.procs), "mps-server");
        let recording = sim.path("run.jsonl");
        let daemon = Daemon::start_with(&sim, &pods, &[OsStr::new("--record"), recording.as_os_str()]);
        daemon.when("the sources", |metrics| {
            let up = metrics.sum("warpmeter_source_up", &[("source", "probes")]) > 0.5;
            elapsed(metrics, &gpu) >= 1.0 && (up || probes == "false")
        });
        let programs = clients.iter().zip(&places).map(|(client, place)| {
            let limit = client.threads.map(|threads| threads.to_string());
            let environment = limit.as_ref().map(|limit| ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", &**limit));
            let environment: Vec<_> = environment.into_iter().collect();
            Program::start_with(&sim, &gpu, Some(&place.procs), client.words, &environment)
        });
        let programs = programs.collect();
        Some(Self { daemon, programs, clients, at, _server: server, recording, sim, _cgroups: cgroups })
    }

    fn gpu(&self) -> &str {
        &self.sim.gpus[0].uuid
    }

    /// Waits for as much more time of the device to be accounted.
    fn pass(&self, seconds: f64) -> Exposition {
        let end = elapsed(&self.daemon.scrape(), self.gpu()) + seconds;
        let metrics = self.daemon.when("later accounts", |metrics| elapsed(metrics, self.gpu()) >= end);
        assert_conserved(&metrics);
        metrics
    }

    /// Waits until these pods' work is seen.
    fn at_work(&self, pods: &[&str]) {
        self.daemon.when("all at work", |metrics| pods.iter().all(|pod| used(metrics, pod) > 0.4));
    }

    /// Each client's seconds of the device in truth, and of all of them, in what the accounts gained from `before` to
    /// `after`. Moments in which several ran are divided by their limits of threads.
    fn truth(&self, before: &Exposition, after: &Exposition) -> (Vec<f64>, f64) {
        let beginning = beginning(&self.recording, self.gpu());
        let [from, to] = [before, after].map(|metrics| reached(metrics, self.gpu(), beginning));
        let number = |pid: u32| self.programs.iter().position(|program| program.pid == pid);
        let weight = |pid: u32| number(pid).and_then(|at| self.clients[at].threads).unwrap_or(100);
        let parts = self.sim.parts_within(from..to, weight);
        let part = |program: &Program| parts.get(&program.pid).copied().unwrap_or(0.0);
        (self.programs.iter().map(part).collect(), parts.values().sum())
    }

    /// Whether what each client gained is its part in truth. Asserts that nothing is the server's owner's.
    fn right(&self, before: &Exposition, after: &Exposition) -> Result<(), String> {
        let (truth, ran) = self.truth(before, after);
        for (client, truth) in self.clients.iter().zip(truth) {
            let counted = used(after, client.pod) - used(before, client.pod);
            let points = (counted - truth) / ran * 100.0;
            println!(
                "{}: {counted:.3} s counted, {truth:.3} of {ran:.3} s in truth: {points:+.2} points",
                client.pod
            );
            if points.abs() > POINTS {
                return Err(format!("{}: {points:+.2} points of {ran} s", client.pod));
            }
        }
        let lost = (nobodys(after) - nobodys(before)) / ran * 100.0;
        println!("nobody's: {lost:.2} points");
        if lost > 2.0 {
            return Err(format!("{lost:.2} points of {ran} s are nobody's"));
        }
        self.assert_nobodys_server(after);
        Ok(())
    }

    /// Asserts that the server's owner holds nothing and uses nothing.
    fn assert_nobodys_server(&self, metrics: &Exposition) {
        let pod = [("pod_uid", &*self.at.pod_uid)];
        for family in ["warpmeter_pod_gpu_used_seconds_total", "warpmeter_pod_gpu_seconds_total"] {
            assert!(metrics.sum(family, &pod) < 1e-9, "the pod of the MPS server in {family}");
        }
        let owners = metrics.sum("warpmeter_owner_gpu_used_seconds_total", &[]);
        assert!(owners < 1e-9, "{owners} s of owners that are not pods");
    }
}

/// What of the device's use rests on this evidence, in seconds.
fn evidence(metrics: &Exposition, evidence: &str) -> f64 {
    metrics.sum("warpmeter_evidence_seconds_total", &[("ledger", "use"), ("evidence", evidence)])
}

#[test]
fn clients_of_an_mps_server_have_their_parts_by_what_they_asked_for_and_the_server_has_none() {
    if !can_probe() {
        return;
    }
    attempts(|| {
        let clients = vec![client("greedy", GREEDY), client("modest", MODEST), client("silent", "holder")];
        let Some(served) = Served::start(clients, "true", "") else { return Ok(()) };
        served.at_work(&["greedy", "modest"]);
        let before = served.pass(2.0);
        let after = served.pass(MEASURED);
        served.right(&before, &after)?;
        let inferred = evidence(&after, "inferred") - evidence(&before, "inferred");
        let gained = |family: &str| after.sum(family, &[]) - before.sum(family, &[]);
        let all = gained("warpmeter_gpu_used_seconds_total");
        assert!(inferred > 0.99 * all, "{inferred} of {all} s are inferred");
        // Under MPS kernels run beside others' and do not wait for them.
        let contended = [("state", "stalled"), ("cause", "contended")];
        let waited = after.sum("warpmeter_pod_gpu_seconds_total", &contended);
        assert!(waited < 0.02 * elapsed(&after, served.gpu()), "{waited} s contended");
        assert!(memory(&after, "greedy") > 1e6, "the driver lists it");
        for client in &served.clients {
            let held = after.sum("warpmeter_pod_gpu_seconds_total", &[("pod", client.pod)]);
            let quarter = elapsed(&after, served.gpu()) / 4.0;
            assert!((held - quarter).abs() < 0.3, "{} holds {held} of {quarter} s", client.pod);
        }
        Ok(())
    });
}

/// The driver does not list clients of an MPS server.
fn unlisted() -> String {
    let unlisted = ["", "_v2", "_v3"].map(|version| {
        let function = format!("nvmlDeviceGetMPSComputeRunningProcesses{version}");
        format!("[[fault]]\nkind = \"not_supported\"\nfunction = \"{function}\"\n")
    });
    unlisted.concat()
}

#[test]
#[ignore = "takes its turn for a quarter of a minute: `just mps`"]
fn what_a_client_that_refuses_probes_ran_is_nobodys_and_not_its_neighbours() {
    if !can_probe() {
        return;
    }
    for listing in [String::new(), unlisted()] {
        attempts(|| {
            let refuses = Client { refuses: true, ..client("shy", GREEDY) };
            let clients = vec![refuses, client("modest", MODEST)];
            let Some(served) = Served::start(clients, "true", &listing) else { return Ok(()) };
            served.at_work(&["modest"]);
            let before = served.pass(2.0);
            let after = served.pass(MEASURED);
            let (truth, ran) = served.truth(&before, &after);
            let gained = |pod| used(&after, pod) - used(&before, pod);
            let (shy, modest) = (gained("shy"), gained("modest"));
            let lost = nobodys(&after) - nobodys(&before);
            println!("modest: {modest:.3} s of {:.3} in truth; nobody's: {lost:.3} of {ran:.3} s", truth[1]);
            assert!(shy < 1e-9, "{shy} s of a pod of which nothing was seen");
            if modest > truth[1] + POINTS / 100.0 * ran {
                return Err(format!("modest: {modest} s, and {} in truth", truth[1]));
            }
            assert!(modest > 0.1, "what is seen of it is its own: {modest} s");
            served.assert_nobodys_server(&after);
            Ok(())
        });
    }
}

#[test]
#[ignore = "takes its turn for a quarter of a minute: `just mps`"]
fn clients_that_the_driver_does_not_list_are_known_by_what_they_ask_for() {
    if !can_probe() {
        return;
    }
    attempts(|| {
        let clients = vec![client("greedy", GREEDY), client("modest", MODEST)];
        let Some(served) = Served::start(clients, "true", &unlisted()) else { return Ok(()) };
        served.at_work(&["greedy", "modest"]);
        let before = served.pass(2.0);
        let after = served.pass(6.0);
        served.right(&before, &after)?;
        assert!(memory(&after, "greedy") < 0.5, "the list is what tells of memory");
        Ok(())
    });
}

#[test]
#[ignore = "takes its turn for a quarter of a minute: `just mps`"]
fn the_percentage_of_threads_in_a_clients_environment_divides_what_ran_at_once() {
    if !can_probe() {
        return;
    }
    attempts(|| {
        let limited = |pod, words, threads| Client { threads: Some(threads), ..client(pod, words) };
        let narrow = limited("narrow", "hog --kernel-us 1000 --sm 25", 25);
        let wide = limited("wide", "hog --duty 0.6 --kernel-us 1000 --sm 75", 75);
        let Some(served) = Served::start(vec![narrow, wide], "true", "") else { return Ok(()) };
        served.at_work(&["narrow", "wide"]);
        let before = served.pass(2.0);
        let after = served.pass(MEASURED);
        served.right(&before, &after)?;
        Ok(())
    });
}

#[test]
fn a_client_of_an_mps_server_that_is_killed_keeps_what_it_used_and_the_rest_is_the_others() {
    if !can_probe() {
        return;
    }
    attempts(|| {
        let clients = vec![client("greedy", GREEDY), client("victim", MODEST)];
        let Some(mut served) = Served::start(clients, "true", "") else { return Ok(()) };
        served.at_work(&["greedy", "victim"]);
        let before = served.pass(1.0);
        served.pass(4.0);
        served.programs[1].kill();
        let after = served.pass(6.0);
        served.right(&before, &after)?;
        let later = served.pass(4.0);
        let gained = |pod| used(&later, pod) - used(&after, pod);
        assert!(gained("victim") < 1e-9, "{} s of work of a dead process", gained("victim"));
        served.right(&after, &later)?;
        Ok(())
    });
}

#[test]
fn without_probes_what_runs_under_an_mps_server_is_nobodys_whether_the_server_has_samples_or_not() {
    for samples in [true, false] {
        let clients = vec![client("greedy", GREEDY), client("modest", MODEST)];
        let counters = format!("[gpu.counters]\nmps_server_samples = {samples}");
        let Some(served) = Served::start(clients, "false", &counters) else { return };
        let ran = |metrics: &Exposition| nobodys(metrics) > 3.0;
        let metrics = served.daemon.when("the device to be seen at work", ran);
        assert_conserved(&metrics);
        for client in &served.clients {
            assert!(used(&metrics, client.pod) < 1e-9, "{} s of {}", used(&metrics, client.pod), client.pod);
        }
        served.assert_nobodys_server(&metrics);
    }
}
