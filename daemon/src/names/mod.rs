//! Names, containers and labels of this node's pods, from the Kubernetes API server. Off unless asked for.
//!
//! Who holds which device is the kubelet's to say, and its socket needs no permission in the cluster; but it names
//! no UIDs, labels or owners. [`NamesSource`] lists the node's pods for these: one small list every 30 s, with
//! `list` on `pods` as the only permission. It does not watch: a watch has to be resumed, restarted when its
//! version is gone, and kept alive through proxies, and would gain seconds on names that hold for a pod's life.
//!
//! ```text
//! server   which API server, and how to reach it     list      pages of pods → names, one pod in memory at a time
//! client   one connection: TLS, deadline, bounds      pod       one pod → its names
//! fault    what can go wrong, and what fixes it       workload  one pod → the workload that it is part of
//! node     this node's own labels, for its price      allotment one pod → what a scheduler gave it of GPUs
//! ```

mod allotment;
mod body;
mod client;
mod created;
mod fault;
mod list;
mod node;
mod options;
mod pod;
mod server;
mod source;
mod text;
mod workload;

#[cfg(test)]
mod tests;

pub use list::parse;
pub use node::{NodeAnswer, NodeSource};
pub use options::{LabelKeys, NamesOptions};
pub use source::NamesSource;
