//! The kubelet's API in Rust: generated from `proto/podresources.proto` by `tests/kubelet`, which checks that it is
//! current. Committed, so that a build needs neither a protobuf compiler nor the crates that replace one.

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    reason = "generated"
)]
#[rustfmt::skip]
mod v1;

pub(super) use v1::pod_resources_lister_client::PodResourcesListerClient;
pub(super) use v1::{
    AllocatableResourcesRequest, ClaimResource, ContainerDevices, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources,
};

#[cfg(test)]
pub(super) use v1::{CdiDevice, ContainerResources, DynamicResource};
