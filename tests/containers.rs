//! Real containers of runc in cgroups like a kubelet's, with a kubelet that answers for them, from end to end.
//!
//! Each has mount, UTS, IPC, network and cgroup namespaces of its own. It shares the host's PID namespace, because the
//! simulated driver names processes as they see themselves, as the real one names them as the host does.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use warpmeter_simkubelet::{ContainerResources, Kubelet, container, devices, pod};
use warpmeter_tests::cgroup::{Cgroups, Container};
use warpmeter_tests::daemon::{Daemon, program};
use warpmeter_tests::exposition::{Exposition, Labels};
use warpmeter_tests::ledger::{assert_conserved, elapsed};
use warpmeter_tests::sim::Sim;
use warpmeter_tests::{kubelet, tool, wait};

/// Capabilities that container runtimes give by default.
const CAPABILITIES: [&str; 4] = ["CAP_CHOWN", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETUID"];

/// What runs in containers, and keeps its state.
pub(crate) struct Runtime<'a> {
    runc: PathBuf,
    sim: &'a Sim,
    cgroups: Cgroups,
    /// Where `cgroupsPath` begins: the tree of this test, below every hierarchy.
    top: String,
}

/// A running container. Dropped, it is killed and deleted.
pub(crate) struct Running<'a> {
    runtime: &'a Runtime<'a>,
    child: Child,
    place: Container,
    pid: u32,
}

impl<'a> Runtime<'a> {
    pub(crate) fn new(sim: &'a Sim) -> Option<Self> {
        let Some(runc) = tool::find("runc") else {
            tool::skip("runc is not installed");
            return None;
        };
        if !rustix::process::geteuid().is_root() {
            tool::skip("containers need root");
            return None;
        }
        let Some(cgroups) = Cgroups::new() else {
            tool::skip("no cgroup can be made here");
            return None;
        };
        let top = cgroups.top().file_name().unwrap().to_string_lossy().into_owned();
        Some(Self { runc, sim, cgroups, top })
    }

    fn call(&self, arguments: &[&str]) -> Output {
        Command::new(&self.runc).arg("--root").arg(self.sim.path("runc")).args(arguments).output().unwrap()
    }

    /// A place for a container of a pod.
    pub(crate) fn place(&mut self, pod_uid: &str) -> Container {
        self.cgroups.container_of(pod_uid)
    }

    /// Runs a workload in a container of its own.
    fn start(&'a self, place: &Container, device: &str, words: &str) -> Running<'a> {
        self.start_with(place, device, words, "/driver/libcuda.so.1")
    }

    /// The same with a copy of the driver's library that the container brings along.
    pub(crate) fn start_with_own_library(
        &'a self,
        place: &Container,
        device: &str,
        words: &str,
    ) -> Running<'a> {
        let own = self.sim.path(&place.id).join("root/opt");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::copy(self.sim.libraries().join("libcuda.so.1"), own.join("libcuda.so.1")).unwrap();
        self.start_with(place, device, words, "/opt/libcuda.so.1")
    }

    fn start_with(&'a self, place: &Container, device: &str, words: &str, library: &str) -> Running<'a> {
        let bundle = self.sim.path(&place.id);
        let root = bundle.join("root");
        for directory in ["proc", "dev", "sys", "tmp", "usr", "lib", "lib64", "bin", "sbin", "etc"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(bundle.join("config.json"), self.config(place, device, words, library).to_string())
            .unwrap();
        let child = Command::new(&self.runc)
            .arg("--root")
            .arg(self.sim.path("runc"))
            .args(["run", "--bundle"])
            .arg(&bundle)
            .arg(&place.id)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = wait::until("the container to run", || {
            let state: Value = serde_json::from_slice(&self.call(&["state", &place.id]).stdout).ok()?;
            (state["status"] == "running").then(|| u32::try_from(state["pid"].as_u64().unwrap()).unwrap())
        });
        Running { runtime: self, child, place: place.clone(), pid }
    }

    fn config(&self, place: &Container, device: &str, words: &str, library: &str) -> Value {
        let program = program();
        let bind = |path: &Path, to: &str, how: &str| json!({ "destination": to, "type": "bind", "source": path, "options": ["rbind", how, "nosuid"] });
        let mut mounts = vec![
            json!({ "destination": "/proc", "type": "proc", "source": "proc" }),
            json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] }),
            bind(program.parent().unwrap(), "/program", "ro"),
            // The library and the device files, as a container toolkit brings them in.
            bind(&self.sim.libraries(), "/driver", "ro"),
            bind(&self.sim.state(), &self.sim.state().to_string_lossy(), "rw"),
        ];
        for directory in ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc"] {
            if Path::new(directory).is_dir() {
                mounts.push(bind(Path::new(directory), directory, "ro"));
            }
        }
        let mut args = vec!["/program/node".to_owned(), "as-workload".into(), "-".into()];
        args.extend(words.split(' ').map(str::to_owned));
        args.extend(["--library", library, "--blocking-sync"].map(str::to_owned));
        let own = place.procs.parent().unwrap().strip_prefix(self.cgroups.top()).unwrap();
        let capabilities = json!(CAPABILITIES);
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": { "uid": 0, "gid": 0 },
                "args": args,
                "env": [
                    "PATH=/usr/bin:/bin",
                    format!("SIMGPU_STATE={}", self.sim.state().display()),
                    format!("CUDA_VISIBLE_DEVICES={device}"),
                ],
                "cwd": "/",
                "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
                "noNewPrivileges": true,
            },
            "root": { "path": "root", "readonly": false },
            "hostname": &place.pod_uid[..8],
            "mounts": mounts,
            "linux": {
                "cgroupsPath": format!("/{}/{}", self.top, own.display()),
                "namespaces": [
                    { "type": "mount" }, { "type": "uts" }, { "type": "ipc" }, { "type": "network" },
                    { "type": "cgroup" },
                ],
                "maskedPaths": ["/proc/kcore", "/proc/keys"],
                "readonlyPaths": ["/proc/sys"],
            },
        })
    }
}

impl Running<'_> {
    /// Its first process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.runtime.call(&["kill", &self.place.id, "KILL"]);
        // It may have ended already.
        drop(self.child.wait());
        self.runtime.call(&["delete", "--force", &self.place.id]);
    }
}

fn main_of(ids: &[&str]) -> Vec<ContainerResources> {
    vec![container("main", vec![devices("nvidia.com/gpu", ids)])]
}

fn used(metrics: &Exposition, labels: Labels<'_>) -> f64 {
    metrics.sum("warpmeter_pod_gpu_used_seconds_total", labels)
}

fn near(what: &str, counted: f64, truth: f64, tolerance: f64) {
    assert!((counted - truth).abs() <= tolerance * truth + 0.3, "{what}: {counted} s of {truth} s in truth");
}

const UIDS: [&str; 4] = [
    "3fbb5c1e-0a1d-4c1e-9c44-9f6d2f8f0001",
    "3fbb5c1e-0a1d-4c1e-9c44-9f6d2f8f0002",
    "3fbb5c1e-0a1d-4c1e-9c44-9f6d2f8f0003",
    "f1d2d2f924e986ac86fdf7b36c94bcdf",
];

#[test]
fn containers_of_a_real_runtime_are_their_pods_by_cgroup_and_kubelet_from_start_to_end() {
    let sim = Sim::new("[[gpu]]\nmodel = \"H100\"\ncount = 3");
    let Some(mut runtime) = Runtime::new(&sim) else { return };
    let places = UIDS.map(|uid| runtime.place(uid));
    let runtime = runtime;
    let [alone, shared, last] = [0, 1, 2].map(|n| sim.gpus[n].uuid.as_str());
    let replicas = [0, 1].map(|n| format!("{shared}::{n}"));
    let mut node = Kubelet::new().unwrap();
    node.offer(vec![devices("nvidia.com/gpu", &replicas)]);
    let log = |node: &Kubelet, name: &str, place: &Container| {
        node.log("ml", name, &place.pod_uid, &[("main", &place.id)]).unwrap();
    };
    let first = [
        pod("ml", "alone", main_of(&[alone])),
        pod("ml", "one", main_of(&[&replicas[0]])),
        pod("ml", "static-node-1", main_of(&[&replicas[1]])),
    ];
    node.list(first.to_vec());
    for (name, place) in [("alone", &places[0]), ("one", &places[1]), ("static-node-1", &places[3])] {
        log(&node, name, place);
    }
    node.start().unwrap();
    let daemon = Daemon::start(&sim, &kubelet::section(&node));
    daemon.until_ready_is(200, "ready");

    let words = "hog --duty 0.4 --kernel-us 1000";
    let one = runtime.start(&places[0], alone, words);
    let two = runtime.start(&places[1], shared, words);
    let three = runtime.start(&places[3], shared, "hog --duty 0.2 --kernel-us 1000");
    assert_ne!(one.pid, two.pid);
    let start = elapsed(&daemon.scrape(), alone);
    daemon.when("eight seconds", |metrics| elapsed(metrics, alone) > start + 8.0);
    let pids = [one.pid, two.pid, three.pid];
    // The pod `alone` ends, and is replaced by another of its name on another GPU.
    drop((one, two, three));
    node.remove_logs("ml", "alone", UIDS[0]).unwrap();
    log(&node, "alone", &places[2]);
    node.list(vec![pod("ml", "alone", main_of(&[last]))]);
    let replaced = runtime.start(&places[2], last, words);
    let now = elapsed(&daemon.scrape(), last);
    daemon.when("five seconds", |metrics| elapsed(metrics, last) > now + 5.0);
    let new_pid = replaced.pid;
    drop(replaced);
    let now = elapsed(&daemon.scrape(), last);
    let metrics = daemon.when("all accounts", |metrics| elapsed(metrics, last) > now + 4.0);
    assert_conserved(&metrics);

    let busy = sim.busy();
    for (name, uid, pid) in [
        ("alone", UIDS[0], pids[0]),
        ("one", UIDS[1], pids[1]),
        ("static-node-1", UIDS[3], pids[2]),
        ("alone", UIDS[2], new_pid),
    ] {
        let labels = [("namespace", "ml"), ("pod", name), ("pod_uid", uid), ("container", "main")];
        let own = used(&metrics, &labels);
        println!("{name} {uid}: {own:.2} s counted, {:.2} s in truth", busy[&pid]);
        near(name, own, busy[&pid], 0.05);
        near("whatever its names", used(&metrics, &[("pod_uid", uid)]), busy[&pid], 0.05);
    }
    // The one that was replaced keeps what it had, and holds nothing any more.
    assert_eq!(metrics.all("warpmeter_pod_allocated_gpus", &[("pod_uid", UIDS[0])]).count(), 0);
    assert_eq!(metrics.all("warpmeter_pod_allocated_gpus", &[("pod_uid", UIDS[2])]).count(), 1);
    assert!(metrics.sum("warpmeter_owner_gpu_used_seconds_total", &[]) < 1e-9, "nothing is the host's");
    let free = [("gpu_uuid", shared), ("state", "unallocated")];
    assert!(metrics.sum("warpmeter_gpu_seconds_total", &free) > 2.0, "what has ended is free");
}
