//! Probes from end to end: programs on a simulated GPU, and what the daemon records of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;
use warpmeter_tests::cgroup::{self, Cgroups};
use warpmeter_tests::program::Program;
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{daemon, http, tool, wait};

use crate::containers::Runtime;

/// Classes by their places in a record.
const DOINGS: [&str; 11] = [
    "cpu",
    "cpu_wait",
    "disk_read",
    "disk_write",
    "network",
    "request",
    "memory",
    "lock",
    "poll",
    "timer",
    "unknown",
];

/// A daemon that records. Dropped, it is killed.
struct Recording<'a> {
    sim: &'a Sim,
    child: Child,
    name: String,
}

/// What was recorded of one process and device.
#[derive(Debug, Default, Clone)]
struct Seen {
    launches: u64,
    enqueued: u64,
    graph_launches: u64,
    to_device: u64,
    sync_wait: u64,
    copy_wait: u64,
    from_start: bool,
    /// By kind: how many, nanoseconds, and nanoseconds by class.
    gaps: BTreeMap<String, (u64, u64, [u64; 11])>,
}

impl<'a> Recording<'a> {
    fn start(sim: &'a Sim, name: &str, more: &str) -> Self {
        let config = sim.configure(http::free_address(), more);
        let log = std::fs::File::create(sim.path(&format!("{name}.log"))).unwrap();
        let file = sim.path(&format!("{name}.jsonl"));
        let child = daemon::command(sim, ["record", "--config"])
            .arg(config)
            .arg(file)
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let recording = Self { sim, child, name: name.to_owned() };
        wait::until("the probes to be up", || {
            let log = recording.log();
            let up = log.contains("source=\"probes\" state=\"up\"");
            assert!(!log.contains("source=\"probes\" state=\"off\""), "{log}");
            up.then_some(())
        });
        recording
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.sim.path(&format!("{}.log", self.name))).unwrap_or_default()
    }

    /// Its processes that probe.
    fn probers(&self) -> Vec<u32> {
        let children = tool::children(self.child.id());
        let probes = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"bpf")
        };
        children.into_iter().filter(probes).collect()
    }

    /// Ends it and gives all its facts.
    fn end(mut self) -> Vec<Value> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = wait::until("the daemon to end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{}", self.log());
        let text = std::fs::read_to_string(self.sim.path(&format!("{}.jsonl", self.name))).unwrap();
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            self.child.wait().unwrap();
        }
        if std::thread::panicking() {
            println!("{}", self.log());
        }
    }
}

/// Whether programs can be loaded here; says so if not.
fn can_probe() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !can {
        tool::skip("probes need root and a kernel that shows its types");
    }
    can
}

fn probes(facts: &[Value]) -> impl Iterator<Item = &Value> {
    facts.iter().filter_map(|fact| fact["fact"].get("probes"))
}

/// What was seen, by pid and device.
fn seen(facts: &[Value]) -> BTreeMap<(u64, String), Seen> {
    let mut all: BTreeMap<(u64, String), Seen> = BTreeMap::new();
    for calls in probes(facts).flat_map(|probes| probes["calls"].as_array().unwrap()) {
        let device = calls["device"]["gpu"].as_str().unwrap_or("?").to_owned();
        let seen = all.entry((calls["process"]["pid"].as_u64().unwrap(), device)).or_default();
        let number = |key: &str| calls[key].as_u64().unwrap();
        seen.launches += number("launches");
        seen.graph_launches += number("graph_launches");
        seen.to_device += number("bytes_to_device");
        seen.sync_wait += number("sync_wait");
        seen.copy_wait += number("copy_wait");
        seen.enqueued = number("enqueued");
        seen.from_start = calls["from_start"].as_bool().unwrap();
        for gap in calls["gaps"].as_array().unwrap() {
            let sum = seen.gaps.entry(gap["kind"].as_str().unwrap().to_owned()).or_default();
            sum.0 += gap["count"].as_u64().unwrap();
            let total = gap["total"].as_u64().unwrap();
            sum.1 += total;
            let doings = gap["doings"].as_array().unwrap();
            let doings: Vec<u64> = doings.iter().map(|nanos| nanos.as_u64().unwrap()).collect();
            assert_eq!(doings.iter().sum::<u64>(), total, "{gap}");
            for (sum, more) in sum.2.iter_mut().zip(doings) {
                *sum += more;
            }
        }
    }
    all
}

/// Runs a program to its end; gives its pid and its own account.
fn run(sim: &Sim, device: &str, words: &str, name: &str) -> (u64, Value) {
    let report = sim.path(name);
    let mut program = Program::start(sim, device, None, &format!("{words} --report {}", report.display()));
    let pid = u64::from(program.pid);
    program.finish();
    (pid, serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap())
}

fn near(what: &str, seen: u64, truth_s: f64) {
    let seen = Duration::from_nanos(seen).as_secs_f64();
    assert!((seen - truth_s).abs() <= 0.1 * truth_s + 0.1, "{what}: {seen:.3} s of {truth_s:.3} s in truth");
}

fn sim(scenario: &str) -> Sim {
    let mut sim = Sim::alone(scenario);
    sim.probes = "true";
    sim
}

#[test]
fn every_launch_and_synchronisation_of_a_program_is_seen_on_its_device_from_its_start() {
    if !can_probe() {
        return;
    }
    let sim = sim("[[gpu]]\nmodel = \"H100\"\ncount = 2");
    // Before the probes, so that the library is known when the trainer maps it.
    let _holder = Program::start(&sim, &sim.gpus[0].uuid, None, "holder");
    let recording = Recording::start(&sim, "trainer", "");
    std::thread::sleep(Duration::from_secs(2));
    let words = "trainer --kernels 8 --kernel-us 2000 --host-us 5000 --seconds 4";
    let device = sim.gpus[1].uuid.clone();
    let (pid, account) = run(&sim, &device, words, "trainer.json");
    std::thread::sleep(Duration::from_millis(2500));
    let facts = recording.end();
    let mut all = seen(&facts);
    all.retain(|(of, _), _| *of == pid);
    let seen = all.get(&(pid, device)).unwrap_or_else(|| panic!("{pid} in {all:?}"));
    println!("{account} {all:?}");
    assert_eq!(seen.launches, account["kernels"].as_u64().unwrap());
    assert!(seen.from_start, "it was watched from its first call");
    near("synchronising", seen.sync_wait, account["sync_s"].as_f64().unwrap());
    let (count, total, doings) = seen.gaps["drained"];
    let steps = account["kernels"].as_u64().unwrap() / 8;
    assert!(count.abs_diff(steps) <= 2, "{count} gaps of {steps} steps");
    let cpu = doings[0] + doings[1];
    println!("drained {count} {total} {:?}", DOINGS.iter().zip(doings).collect::<Vec<_>>());
    assert!(cpu * 10 >= total * 9, "the host computes in the gaps: {cpu} of {total} ns");
}

#[test]
fn what_a_program_waits_for_between_its_steps_is_what_its_gaps_are_made_of() {
    if !can_probe() {
        return;
    }
    let sim = sim("[[gpu]]\nmodel = \"H100\"");
    let device = sim.gpus[0].uuid.clone();
    let _holder = Program::start(&sim, &device, None, "holder");
    let recording = Recording::start(&sim, "waiter", "");
    std::thread::sleep(Duration::from_secs(2));
    let data = sim.path("data");
    std::fs::write(&data, vec![7_u8; 8 << 20]).unwrap();
    let cases = [
        ("cpu", vec!["cpu", "cpu_wait"]),
        ("sleep", vec!["timer", "cpu_wait"]),
        // The thread behind the lock computes.
        ("lock", vec!["cpu", "cpu_wait"]),
    ];
    let mut ran = Vec::new();
    for (wait, causes) in cases {
        let words = format!(
            "waiter --kernels 2 --kernel-us 2000 --wait {wait} --wait-us 20000 --file {} --seconds 3",
            data.display()
        );
        ran.push((run(&sim, &device, &words, wait).0, wait, causes));
    }
    std::thread::sleep(Duration::from_millis(2500));
    let all = seen(&recording.end());
    for (pid, wait, causes) in ran {
        let seen = &all[&(pid, device.clone())];
        let (_, total, doings) = seen.gaps["drained"];
        let of: u64 =
            DOINGS.iter().zip(doings).filter(|(name, _)| causes.contains(name)).map(|(_, nanos)| nanos).sum();
        println!("{wait}: {:?}", DOINGS.iter().zip(doings).collect::<Vec<_>>());
        assert!(of * 10 >= total * 9, "{wait}: {of} of {total} ns of gaps are {causes:?}");
    }
}

#[test]
fn a_process_that_ran_before_the_probes_is_seen_but_not_from_its_start() {
    if !can_probe() {
        return;
    }
    let sim = sim("[[gpu]]\nmodel = \"H100\"");
    let device = sim.gpus[0].uuid.clone();
    let mut cgroups = Cgroups::new();
    let place = cgroups.as_mut().map(Cgroups::systemd);
    let cgroup = place.as_ref().map(|place| place.procs.as_path());
    let words = "trainer --kernels 4 --kernel-us 1000 --host-us 2000";
    let program = Program::start(&sim, &device, cgroup, words);
    wait::until("the program to run", || (!sim.busy().is_empty()).then_some(()));
    let recording = Recording::start(&sim, "late", "");
    std::thread::sleep(Duration::from_secs(4));
    let facts = recording.end();
    let all = seen(&facts);
    let seen =
        all.get(&(u64::from(program.pid), device)).unwrap_or_else(|| panic!("{} in {all:?}", program.pid));
    assert!(!seen.from_start && seen.launches > 100, "{seen:?}");
    if let Some(place) = place {
        let pod = |threads: &&Value| threads["scope"]["pod"]["uid"] == place.pod_uid.as_str();
        let threads = probes(&facts).flat_map(|probes| probes["threads"].as_array().unwrap());
        assert!(threads.filter(pod).count() > 0, "its threads are its pod's");
    }
}

#[test]
fn a_killed_daemon_leaves_nothing_attached_and_a_killed_prober_is_replaced() {
    if !can_probe() {
        return;
    }
    let sim = sim("[[gpu]]\nmodel = \"H100\"");
    let mut program = Program::start(&sim, &sim.gpus[0].uuid, None, "hog --duty 0.2");
    let mut recording = Recording::start(&sim, "killed", "");
    let prober = recording.probers()[0];
    let pid = |pid: u32| rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid(prober), rustix::process::Signal::KILL).unwrap();
    let next = wait::until("another prober", || recording.probers().into_iter().find(|next| *next != prober));
    wait::until("it to be up", || {
        (recording.log().matches("source=\"probes\" state=\"up\"").count() >= 2).then_some(())
    });
    recording.child.kill().unwrap();
    recording.child.wait().unwrap();
    wait::until("the prober to end", || (!tool::runs(next)).then_some(()));
    assert!(!program.ended(), "the program goes on");
    program.end();
}

#[test]
fn the_process_that_probes_holds_three_capabilities_and_a_filter_and_the_others_hold_none_of_probes() {
    if !can_probe() {
        return;
    }
    let sim = sim("[[gpu]]\nmodel = \"H100\"");
    let recording = Recording::start(&sim, "confined", "");
    let status = |pid: u32, key: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
        u64::from_str_radix(&value, 16).unwrap()
    };
    let prober = recording.probers()[0];
    let (ptrace, probing) = (1_u64 << 19, 1_u64 << 38 | 1 << 39);
    assert_eq!(status(prober, "CapEff:"), ptrace | probing);
    assert_eq!(status(prober, "CapPrm:"), ptrace | probing);
    assert_eq!(status(prober, "Seccomp:"), 2);
    let others = tool::children(recording.child.id()).into_iter().filter(|pid| *pid != prober);
    for other in others.chain([recording.child.id()]) {
        assert_eq!(status(other, "CapEff:") & probing, 0, "{other}");
    }
    assert!(tool::runs(prober));
}

#[test]
fn a_container_with_its_own_root_and_library_is_probed_as_its_pod() {
    if !can_probe() {
        return;
    }
    let sim = sim("[[gpu]]\nmodel = \"H100\"");
    let Some(mut runtime) = Runtime::new(&sim) else { return };
    let place = runtime.place("3fbb5c1e-0a1d-4c1e-9c44-9f6d2f8f00aa");
    let recording = Recording::start(&sim, "container", "");
    let words = "trainer --kernels 4 --kernel-us 1000 --host-us 2000";
    let container = runtime.start_with_own_library(&place, &sim.gpus[0].uuid, words);
    let pid = container.pid();
    std::thread::sleep(Duration::from_secs(7));
    drop(container);
    std::thread::sleep(Duration::from_secs(2));
    let facts = recording.end();
    let all = seen(&facts);
    let seen = all.get(&(u64::from(pid), sim.gpus[0].uuid.clone()));
    assert!(seen.is_some_and(|seen| seen.launches > 100), "{pid} in {all:?}");
    let pod = |threads: &&Value| threads["scope"]["pod"]["uid"] == place.pod_uid.as_str();
    let threads = probes(&facts).flat_map(|probes| probes["threads"].as_array().unwrap());
    assert!(threads.filter(pod).count() > 0, "its threads are its pod's");
}

#[test]
fn a_pod_that_refuses_probes_is_left_alone_and_its_neighbour_on_the_same_library_is_not() {
    if !can_probe() {
        return;
    }
    let sim = sim("[[gpu]]\nmodel = \"H100\"\ncount = 2");
    let Some(mut cgroups) = Cgroups::new() else {
        tool::skip("no cgroup can be made here");
        return;
    };
    let places = [cgroups.systemd(), cgroups.systemd()];
    let gpus = [0, 1].map(|n| sim.gpus[n].uuid.clone());
    let text = cgroup::pods(&[("shy", &places[0], &gpus[0]), ("open", &places[1], &gpus[1])]);
    let text = text.replacen("name = \"shy\"\n", "name = \"shy\"\nprobes = false\n", 1);
    let recording = Recording::start(&sim, "refusal", &sim.pods(&text));
    let words = "trainer --kernels 4 --kernel-us 1000 --host-us 2000";
    let programs = [0, 1].map(|n| Program::start(&sim, &gpus[n], Some(&places[n].procs), words));
    std::thread::sleep(Duration::from_secs(8));
    let facts = recording.end();
    let late = facts.iter().rev().take(facts.len() / 4).rev().cloned().collect::<Vec<_>>();
    let all = seen(&late);
    let of =
        |n: usize| all.get(&(u64::from(programs[n].pid), gpus[n].clone())).map_or(0, |seen| seen.launches);
    assert!(of(1) > 50, "the neighbour is seen: {all:?}");
    assert_eq!(of(0), 0, "nothing is asked of the one that refuses: {all:?}");
}
