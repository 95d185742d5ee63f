//! Processes to watch.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

// Named so that their shared libraries are built.
use simgpu_cuda as _;
use simgpu_nvml as _;
use tempfile::TempDir;
use warpmeter_ebpf_tests::{Flavour, Probes, now};
use warpmeter_simgpu::{Model, Scenario};

/// A simulated node with one GPU, whose driver library is probed.
pub(crate) struct Node {
    pub(crate) directory: TempDir,
    pub(crate) probes: Probes,
}

impl Node {
    fn new(flavour: Flavour, returns: bool) -> Self {
        let mut node = Self::unprobed(flavour, returns);
        let library = node.path("lib/libcuda.so.1");
        let count = node.probes.attach(&library, |_| true);
        assert!(count > 60, "{count} probes");
        node
    }

    fn unprobed(flavour: Flavour, returns: bool) -> Self {
        Self::with(flavour, returns, false)
    }

    fn with(flavour: Flavour, returns: bool, wakes: bool) -> Self {
        let directory = TempDir::new().unwrap();
        warpmeter_simgpu::create(directory.path(), &Scenario::of(Model::H100, 1)).unwrap();
        let program = std::env::current_exe().unwrap();
        warpmeter_simgpu::install_libraries(program.parent().unwrap(), &directory.path().join("lib"))
            .unwrap();
        Self { directory, probes: Probes::load(flavour, returns, wakes) }
    }

    pub(crate) fn start(&self, words: &[&str]) -> Watched {
        let mut child = Command::new(env!("CARGO_BIN_EXE_probed"))
            .args(words)
            .env("SIMGPU_STATE", self.directory.path())
            .env("LD_LIBRARY_PATH", self.directory.path().join("lib"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Watched { child, output, read: BTreeMap::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// The node with everything attached. Detaching takes seconds, so all tests share it, one at a time.
pub(crate) fn node() -> MutexGuard<'static, Node> {
    static NODE: LazyLock<Mutex<Node>> = LazyLock::new(|| Mutex::new(Node::new(Flavour::Fast, true)));
    NODE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A node without return probes, and with the other flavour of scheduler programs.
pub(crate) fn poorer_node() -> Node {
    Node::new(Flavour::Stack, false)
}

/// A node with nothing but the scheduler programs of old kernels.
pub(crate) fn old_node() -> Node {
    Node::unprobed(Flavour::Stack, false)
}

/// A node that follows wake-ups; with the scheduler programs of old kernels or those of new ones.
pub(crate) fn following_node(fast: bool) -> Node {
    Node::with(if fast { Flavour::Fast } else { Flavour::Stack }, false, true)
}

/// A process that begins when it is let.
pub(crate) struct Watched {
    child: Child,
    output: BufReader<ChildStdout>,
    read: BTreeMap<String, u64>,
}

impl Watched {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }

    /// Reads names and numbers until one of this name came.
    pub(crate) fn until(&mut self, name: &str) -> u64 {
        loop {
            if let Some(value) = self.read.get(name) {
                return *value;
            }
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "ended before it said {name}");
            if let Some((name, value)) = line.trim().split_once(' ') {
                let value = value.parse().unwrap_or_else(|_| u64::from_str_radix(&value[..16], 16).unwrap());
                self.read.insert(name.to_owned(), value);
            }
        }
    }

    /// Lets it end; what else it said.
    pub(crate) fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let patience = now() + ms(10_000);
    while !is() {
        assert!(now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether `a` is within `tolerance` of `b`.
pub(crate) fn near(a: u64, b: u64, tolerance: u64) -> bool {
    a.abs_diff(b) <= tolerance
}

/// Milliseconds in nanoseconds, as long as the machine needs for them: `SLOWNESS` times, under emulation.
pub(crate) fn ms(count: u64) -> u64 {
    let slowness: u64 = std::env::var("SLOWNESS").map_or(1, |text| text.parse().unwrap());
    count * slowness * 1_000_000
}

/// How often what depends on times is tried: the machine may stop a program for a while, or its CPUs. What is wrong is so
/// each time.
const ATTEMPTS: usize = 3;

/// Tries until something holds once.
pub(crate) fn attempts(mut holds: impl FnMut() -> Result<(), String>) {
    let mut wrong = Vec::new();
    while wrong.len() < ATTEMPTS
        && let Err(how) = holds()
    {
        wrong.push(how);
    }
    assert!(wrong.len() < ATTEMPTS, "{wrong:#?}");
}
