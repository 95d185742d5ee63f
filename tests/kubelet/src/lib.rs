//! A kubelet for tests: it serves PodResources v1 on a Unix socket, keeps the directories of logs from whose names
//! UIDs are read, and misbehaves as told.
#![forbid(unsafe_code)]

mod node;
mod server;

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    reason = "generated"
)]
#[rustfmt::skip]
mod v1;

pub use node::{Kubelet, container, devices, pod};
pub use server::{Calls, Manner};
pub use v1::{
    CdiDevice, ClaimResource, ContainerDevices, ContainerResources, DynamicResource, PodResources,
    TopologyInfo,
};
