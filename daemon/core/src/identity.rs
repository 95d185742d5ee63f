//! Names of things. Never a position, never reusable: a GPU index or a bare pid is a display detail.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::MonoNs;

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as its source wrote it.
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A physical GPU: its driver UUID, `GPU-…`.
    GpuId
}
name! {
    /// A MIG instance: the driver UUID `MIG-…`; `gi-N` for a GPU instance without a compute instance, which has none.
    MigId
}
name! {
    /// A pod's UID with dashes, as the API server writes it; a static pod's configuration hash.
    PodUid
}
name! {
    /// A container's full identifier as its runtime writes it (usually 64 hex digits).
    ContainerId
}

impl PodUid {
    /// Stands for the UID of a pod whose UID is not known: `unknown:NAMESPACE/NAME`, which no UID looks like.
    pub fn unknown(namespace: &str, name: &str) -> Self {
        Self::new(format!("unknown:{namespace}/{name}"))
    }

    /// Whether it only stands for one.
    pub fn is_unknown(&self) -> bool {
        self.0.starts_with("unknown:")
    }
}

/// A device: what can be granted and divided. A whole GPU, or one MIG instance of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId {
    /// The physical GPU.
    pub gpu: GpuId,
    /// The instance, on a GPU in MIG mode.
    pub mig: Option<MigId>,
}

/// A process id of the host's PID namespace, as a source reported it. Means nothing without a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostPid(pub u32);

/// A process: pid and start time, which survives pid reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid in the host's namespace.
    pub pid: HostPid,
    /// When it started, on `CLOCK_MONOTONIC` (converted from `/proc/PID/stat`, in clock ticks: 10 ms steps).
    pub start: MonoNs,
}

/// Whom device time belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A container of a Kubernetes pod.
    Pod {
        /// The pod.
        uid: PodUid,
        /// The container's name; empty while it is not known.
        container: Arc<str>,
    },
    /// A container outside Kubernetes.
    Container(ContainerId),
    /// A Slurm job, by its number.
    SlurmJob(Arc<str>),
    /// A systemd unit.
    Unit(Arc<str>),
    /// Processes of the host that are in no unit of their own.
    Host,
}

impl Owner {
    /// The owner's kind as a label value.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Pod { .. } => "pod",
            Self::Container(_) => "container",
            Self::SlurmJob(_) => "slurm_job",
            Self::Unit(_) => "systemd_unit",
            Self::Host => "host",
        }
    }

    /// The owner's own name as a label value; for a pod its UID.
    pub fn name(&self) -> &str {
        match self {
            Self::Pod { uid, .. } => uid.as_str(),
            Self::Container(id) => id.as_str(),
            Self::SlurmJob(name) | Self::Unit(name) => name,
            Self::Host => "host",
        }
    }
}

/// The cgroup that a process runs in, as far as it names an owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A pod's cgroup, or that of one of its containers.
    Pod {
        /// The pod.
        uid: PodUid,
        /// The container, unless the process is in the pod's own cgroup.
        container: Option<ContainerId>,
    },
    /// A container outside Kubernetes.
    Container(ContainerId),
    /// A job of Slurm.
    SlurmJob(Arc<str>),
    /// A systemd service or scope.
    Unit(Arc<str>),
    /// None of these.
    Host,
}
