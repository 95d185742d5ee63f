//! Identity of processes, from the kernel: `/proc` and cgroups, read without privilege where that is possible.
//!
//! [`source::HostSource`] lists the processes of a proc root once a round and reports those that can matter to a
//! GPU: [`cgroup::scope`] says whose they are. Pids are those of the proc root's PID namespace; a root that is not
//! the host's is said to be so in [`source::HostSource::health`].

pub mod cgroup;
mod clock;
mod comm;
mod devices;
pub(crate) mod directory;
mod health;
mod known;
mod lookup;
mod mps;
mod path;
mod pressure;
mod proc;
mod reader;
pub mod source;
mod stat;

pub use lookup::Lookup;
pub(crate) use path::is_workload;
pub use source::{HostRoots, HostSource};
