//! A simulated node of its own for each test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use warpmeter_simgpu::{Fault, Node, Scenario};

use crate::overlap::{self, Ran};
use crate::turn::Turn;

/// A GPU of the node.
#[derive(Debug)]
pub struct Gpu {
    /// `GPU-…`
    pub uuid: String,
    /// As the driver writes it.
    pub pci_bus_id: String,
    /// `MIG-…` of each MIG device.
    pub instances: Vec<String>,
}

/// A simulated node. Dropped, its files are removed.
#[derive(Debug)]
pub struct Sim {
    directory: TempDir,
    /// Its GPUs, in the driver's order.
    pub gpus: Vec<Gpu>,
    /// Further lines of the section `[host]` of configurations.
    pub host: String,
    /// Further lines of the section `[http]`.
    pub http: String,
    /// Whether probes are attached, as the configuration writes it. Not unless a test is about them: they are the
    /// whole machine's, and a process more.
    pub probes: &'static str,
    _turn: Turn,
}

impl Sim {
    /// A node as the scenario says, for a test that shares the machine.
    pub fn new(scenario: &str) -> Self {
        Self::create(scenario, Turn::shared())
    }

    /// The same for a test that measures.
    pub fn alone(scenario: &str) -> Self {
        Self::create(scenario, Turn::alone())
    }

    fn create(scenario: &str, turn: Turn) -> Self {
        let directory = tempfile::Builder::new().prefix("warpmeter-test-").tempdir().unwrap();
        let state = directory.path().join("state");
        warpmeter_simgpu::create(&state, &Scenario::parse(scenario).unwrap()).unwrap();
        let sim = Self {
            gpus: gpus(&state),
            host: String::new(),
            http: String::new(),
            probes: "false",
            directory,
            _turn: turn,
        };
        sim.install_driver();
        sim
    }

    /// Makes the node anew in its place, with the same identities: as a MIG manager does, or a reboot of the driver.
    pub fn replace(&mut self, scenario: &str) {
        warpmeter_simgpu::create(&self.state(), &Scenario::parse(scenario).unwrap()).unwrap();
        self.gpus = gpus(&self.state());
    }

    /// Puts the driver's libraries in place.
    pub fn install_driver(&self) {
        warpmeter_simgpu::install_libraries(&built(), &self.libraries()).unwrap();
    }

    /// Puts the library in place that programs are to have injected, and gives its path.
    pub fn install_inject(&self) -> PathBuf {
        let to = self.libraries().join("libwarpmeter_inject.so");
        let from = [built(), built().join("..")].map(|place| place.join("libwarpmeter_inject.so"));
        let from =
            from.iter().find(|path| path.is_file()).expect("the injected library is built with the tests");
        // Once: programs may have it mapped.
        if !to.exists() {
            std::fs::copy(from, &to).unwrap();
        }
        to
    }

    /// Takes them away.
    pub fn remove_driver(&self) {
        std::fs::remove_dir_all(self.libraries()).unwrap();
        std::fs::create_dir(self.libraries()).unwrap();
    }

    /// A file of this test's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What `SIMGPU_STATE` is set to.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The directory of the driver's libraries.
    pub fn libraries(&self) -> PathBuf {
        self.path("lib")
    }

    /// Makes something go wrong from now on, such as `kind=lost gpu=1`.
    pub fn fault(&self, words: &str) {
        let fault = Fault::from_words(words.split_whitespace()).unwrap();
        warpmeter_simgpu::inject(&self.state(), &fault).unwrap();
    }

    /// Makes everything go right again.
    pub fn clear_faults(&self) {
        warpmeter_simgpu::clear_faults(&self.state()).unwrap();
    }

    /// Writes a configuration that fits this node and listens on `listen`, followed by `more`.
    pub fn configure(&self, listen: std::net::SocketAddr, more: &str) -> PathBuf {
        let mut text = String::new();
        writeln!(text, "[http]\nlisten = \"{listen}\"").unwrap();
        text.push_str(&self.http);
        writeln!(text, "[nvidia]\nlibraries = [\"{}\"]", self.libraries().display()).unwrap();
        writeln!(text, "[host]\nnode = \"node-1\"\ndev = \"{}\"", self.state().join("dev").display())
            .unwrap();
        text.push_str(&self.host);
        writeln!(text, "[bpf]\nenabled = {}", self.probes).unwrap();
        writeln!(text, "[control]\nsocket = \"{}\"", self.path("control.sock").display()).unwrap();
        text.push_str(more);
        let path = self.path("warpmeter.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Writes a file of pods, and gives the section of the configuration that names it.
    pub fn pods(&self, text: &str) -> String {
        let path = self.path("pods.toml");
        std::fs::write(&path, text).unwrap();
        format!("[pods]\nfile = \"{}\"\n", path.display())
    }

    /// Busy seconds by process over its life, from the simulator's own log.
    pub fn busy(&self) -> BTreeMap<u32, f64> {
        self.busy_within(0..u64::MAX)
    }

    /// The same within a stretch of the monotonic clock.
    pub fn busy_within(&self, stretch: Range<u64>) -> BTreeMap<u32, f64> {
        let mut busy: BTreeMap<u32, f64> = BTreeMap::new();
        for (pid, start, end, nanos) in self.records() {
            let inside = end.min(stretch.end).saturating_sub(start.max(stretch.start));
            let part = seconds(inside) / seconds(end - start);
            *busy.entry(pid).or_default() += seconds(nanos) * part;
        }
        busy
    }

    /// Seconds of a node's only device by process within a stretch of the monotonic clock: time in which several ran is
    /// divided among them by their weights. Takes a scenario whose log merges no gaps.
    pub fn parts_within(&self, stretch: Range<u64>, weight: impl Fn(u32) -> u32) -> BTreeMap<u32, f64> {
        let clip = |(pid, start, end, nanos): (u32, u64, u64, u64)| -> Ran {
            assert_eq!(nanos, end - start, "a log that merges no gaps");
            (pid, start.max(stretch.start), end.min(stretch.end))
        };
        let ran: BTreeSet<Ran> =
            self.records().into_iter().map(clip).filter(|(_, start, end)| start < end).collect();
        let parts = overlap::divided(&ran, weight);
        parts.into_iter().map(|(pid, nanos)| (pid, nanos / 1e9)).collect()
    }

    /// The simulator's own log up to now: whose work ran, from when, until when, for how long of that.
    fn records(&self) -> Vec<(u32, u64, u64, u64)> {
        warpmeter_simgpu::flush(&self.state()).unwrap();
        let text = std::fs::read_to_string(self.state().join("oracle.jsonl")).unwrap();
        let record = |line| {
            let record: Value = serde_json::from_str(line).unwrap();
            let number = |key: &str| record[key].as_u64().unwrap();
            let pid = u32::try_from(number("pid")).unwrap();
            (pid, number("start_ns"), number("end_ns"), number("busy_ns"))
        };
        text.lines().map(record).collect()
    }
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

fn gpus(state: &Path) -> Vec<Gpu> {
    let node = Node::open(state).unwrap();
    let guard = node.lock();
    (0..guard.devices)
        .zip(&guard.device)
        .map(|(index, device)| {
            let engines = guard.engine.iter().take(guard.engines as usize);
            let uuids = engines.filter(|engine| engine.device == index).map(|engine| engine.uuid.as_str());
            Gpu {
                uuid: device.uuid.as_str().to_owned(),
                pci_bus_id: device.pci_bus.as_str().to_owned(),
                instances: uuids.filter(|uuid| !uuid.is_empty()).map(str::to_owned).collect(),
            }
        })
        .collect()
}

/// Where cargo puts what it builds: beside the test's own program.
pub(crate) fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}
