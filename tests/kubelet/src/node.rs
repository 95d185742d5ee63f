//! A node's kubelet as a test holds it.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::server::{Calls, Manner, Server, Shared, State};
use crate::v1::{ContainerDevices, ContainerResources, PodResources};

/// A kubelet: its socket, what it serves there, and its directories. All of it is gone when this is dropped.
#[derive(Debug)]
pub struct Kubelet {
    root: TempDir,
    state: Shared,
    server: Option<Server>,
}

impl Kubelet {
    /// A kubelet that has not started: there is no socket yet.
    pub fn new() -> Result<Self> {
        let root = tempfile::tempdir()?;
        for directory in ["pod-resources", "pods", "containers"] {
            std::fs::create_dir(root.path().join(directory))?;
        }
        let state = State {
            pods: Vec::new(),
            allocatable: Vec::new(),
            manner: Manner::Answers,
            calls: Calls::default(),
        };
        Ok(Self { root, state: Shared(Arc::new(Mutex::new(state))), server: None })
    }

    /// Starts, or restarts: ends its connections and makes its socket anew.
    pub fn start(&mut self) -> Result<()> {
        self.stop()?;
        self.server = Some(Server::start(&self.socket(), self.state.clone())?);
        Ok(())
    }

    /// Ends. The socket goes with it.
    pub fn stop(&mut self) -> Result<()> {
        self.server = None;
        match std::fs::remove_file(self.socket()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends as if killed: the socket stays, and nobody listens.
    pub fn crash(&mut self) {
        self.server = None;
    }

    /// The path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.root.path().join("pod-resources/kubelet.sock")
    }

    /// Its `/var/log/pods`.
    pub fn pod_logs(&self) -> PathBuf {
        self.root.path().join("pods")
    }

    /// Its `/var/log/containers`.
    pub fn container_logs(&self) -> PathBuf {
        self.root.path().join("containers")
    }

    /// Lists these pods from now on.
    pub fn list(&self, pods: Vec<PodResources>) {
        self.state.lock().pods = pods;
    }

    /// What it lists at present.
    pub fn listed(&self) -> Vec<PodResources> {
        self.state.lock().pods.clone()
    }

    /// Offers these devices from now on.
    pub fn offer(&self, devices: Vec<ContainerDevices>) {
        self.state.lock().allocatable = devices;
    }

    /// Behaves so from now on.
    pub fn behave(&self, manner: Manner) {
        self.state.lock().manner = manner;
    }

    /// How often it was called so far.
    pub fn calls(&self) -> Calls {
        self.state.lock().calls
    }

    /// Makes the directory of a pod's logs, and the link of each of its containers, given by name and identifier.
    pub fn log(&self, namespace: &str, pod: &str, uid: &str, containers: &[(&str, &str)]) -> Result<()> {
        let directory = format!("{namespace}_{pod}_{uid}");
        std::fs::create_dir_all(self.pod_logs().join(&directory))?;
        for (container, id) in containers {
            let target = Path::new("/var/log/pods").join(&directory).join(container).join("0.log");
            let link = format!("{pod}_{namespace}_{container}-{id}.log");
            std::os::unix::fs::symlink(target, self.container_logs().join(link))?;
        }
        Ok(())
    }

    /// Removes the directory of a pod's logs, as for a pod that was deleted.
    pub fn remove_logs(&self, namespace: &str, pod: &str, uid: &str) -> Result<()> {
        std::fs::remove_dir_all(self.pod_logs().join(format!("{namespace}_{pod}_{uid}")))
    }
}

/// A pod and its containers.
pub fn pod(namespace: &str, name: &str, containers: Vec<ContainerResources>) -> PodResources {
    PodResources { name: name.into(), namespace: namespace.into(), containers }
}

/// A container and its devices.
pub fn container(name: &str, devices: Vec<ContainerDevices>) -> ContainerResources {
    ContainerResources { name: name.into(), devices, ..ContainerResources::default() }
}

/// Devices of a resource.
pub fn devices<I: AsRef<[u8]>>(resource: &str, ids: &[I]) -> ContainerDevices {
    ContainerDevices {
        resource_name: resource.into(),
        device_ids: ids.iter().map(|id| id.as_ref().to_vec()).collect(),
        topology: None,
    }
}
