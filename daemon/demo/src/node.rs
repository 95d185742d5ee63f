//! The simulated node's files: its state, its driver libraries, and the daemon's configuration.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use warpmeter_simgpu::{Node, Scenario};

use crate::cast::{CAST, Place, SCENARIO, SHARED};

/// What the directory of a demo is called, before its process id.
const PREFIX: &str = "warpmeter-demo-";

/// Removes the directories of demos that were killed.
fn sweep() {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another user's is not ours to remove.
            fs::remove_dir_all(entry.path()).unwrap_or_default();
        }
    }
}

/// Compute slices of the simulated GPUs.
const SLICES: f64 = 7.0;

/// A simulated node. Dropped, its files are removed.
#[derive(Debug)]
pub(crate) struct SimulatedNode {
    directory: TempDir,
    /// UUID of each GPU; UUID and part of the GPU's compute slices of each of its instances.
    uuids: Vec<(String, Vec<(String, f64)>)>,
}

impl SimulatedNode {
    /// Makes the node, with the libraries that were built with this program.
    pub(crate) fn create() -> Result<Self, Box<dyn std::error::Error>> {
        sweep();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir()?;
        let state = directory.path().join("state");
        warpmeter_simgpu::create(&state, &Scenario::parse(SCENARIO)?)?;
        warpmeter_simgpu::install_libraries(&built_libraries()?, &directory.path().join("lib"))?;
        let node = Node::open(&state)?;
        let guard = node.lock();
        let uuids = (0..guard.devices)
            .zip(&guard.device)
            .map(|(index, device)| {
                let instances = guard.engine.iter().filter(|engine| engine.device == index && engine.ci == 1);
                let named = instances.filter(|engine| !engine.uuid.as_str().is_empty());
                let described =
                    named.map(|engine| (engine.uuid.as_str().to_owned(), f64::from(engine.slices) / SLICES));
                (device.uuid.as_str().to_owned(), described.collect())
            })
            .collect();
        drop(guard);
        Ok(Self { directory, uuids })
    }

    /// Where the simulator keeps its state: what `SIMGPU_STATE` is set to.
    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The simulated `libcuda.so.1`.
    pub(crate) fn cuda(&self) -> PathBuf {
        self.directory.path().join("lib/libcuda.so.1")
    }

    /// The daemon's configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.directory.path().join("warpmeter.toml")
    }

    /// Where the daemon's log goes.
    pub(crate) fn log(&self) -> PathBuf {
        self.directory.path().join("daemon.log")
    }

    /// The index of a GPU.
    pub(crate) fn index(&self, uuid: &str) -> Option<usize> {
        self.uuids.iter().position(|(gpu, _)| gpu == uuid)
    }

    /// The UUID of the device at a place, which is what `CUDA_VISIBLE_DEVICES` is set to, and how much of its GPU
    /// it is.
    pub(crate) fn device(&self, place: Place) -> (&str, f64) {
        let (index, instance) = match place {
            Place::Gpu(index) | Place::Replica(index, _) => (index, None),
            Place::Mig(index, instance) => (index, Some(instance)),
        };
        let (gpu, instances) = &self.uuids[index];
        instance.map_or((gpu, 1.0), |instance| (&instances[instance].0, instances[instance].1))
    }

    /// The id under which a device plugin would grant the device at a place.
    fn grant(&self, place: Place) -> String {
        let (device, _) = self.device(place);
        match place {
            Place::Replica(_, replica) => format!("{device}::{replica}"),
            Place::Gpu(_) | Place::Mig(..) => device.to_owned(),
        }
    }

    /// Writes the daemon's configuration. Without cgroups, pods cannot be told apart, and none are named.
    pub(crate) fn configure(&self, listen: SocketAddr, with_pods: bool) -> std::io::Result<()> {
        let home = self.directory.path();
        let mut config = format!(
            "[http]\nlisten = \"{listen}\"\n[nvidia]\nlibraries = [\"{}\"]\n[host]\ndev = \"{}\"\n[control]\nsocket = \"{}\"\n[window]\nno_work_after = \"5s\"\n[price]\nH100 = {{ price = 2.95, as_of = \"2026-11-01\", source = \"the demo\" }}\n",
            home.join("lib").display(),
            self.state().join("dev").display(),
            home.join("control.sock").display(),
        );
        if with_pods {
            config.push_str(&format!("[pods]\nfile = \"{}\"\n", home.join("pods.toml").display()));
            fs::write(home.join("pods.toml"), self.pods())?;
        }
        let mut file = fs::File::create(self.config())?;
        file.write_all(config.as_bytes())
    }

    fn pods(&self) -> String {
        let (index, replicas) = SHARED;
        let shared = &self.uuids[index].0;
        let mut text = format!("[[device]]\nid = {shared:?}\nreplicas = {replicas}\n");
        for role in &CAST {
            text.push_str(&format!(
                "[[pod]]\nuid = {:?}\nnamespace = {:?}\nname = {:?}\nlabels = {{ team = {:?} }}\n\
                 containers = [{{ name = \"main\", id = {:?}, devices = [{:?}] }}]\n",
                role.uid(),
                role.namespace,
                role.name,
                role.team,
                role.container(),
                self.grant(role.place),
            ));
        }
        text
    }
}

/// Beside this program, or where cargo puts what it builds for its dependants.
fn built_libraries() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
    let dependencies = beside.join("deps");
    Ok(if dependencies.join("libsimgpu_nvml.so").exists() { dependencies } else { beside })
}
