//! A kubelet for tests: it serves PodResources v1 on a Unix socket, keeps the directories of logs from whose names
//! UIDs are read, and misbehaves as told.
//!
//! The API's code is generated from `podresources.proto`, committed, and used by tests alone: the product reads the wire
//! format itself.
#![forbid(unsafe_code)]

mod node;
mod raw;
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

pub use hyper::body::Bytes;
pub use node::{Kubelet, container, devices, pod};
pub use server::{Calls, Manner};
pub use v1::{
    AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices, ContainerResources,
    DynamicResource, ListPodResourcesResponse, PodResources, TopologyInfo,
};
