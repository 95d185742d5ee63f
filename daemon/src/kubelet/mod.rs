//! Who holds which GPU, from the kubelet's PodResources API.
//!
//! [`KubeletSource`] asks the kubelet over its socket which devices it gave to which container, and finds the UIDs and
//! container identifiers, which that API does not tell, in the names of the kubelet's log directories. It never asks
//! the API server. Device ids are read by [`warpmeter_core::device_id`]; what an id of an unknown form stands for is
//! nobody's, and counted.
//!
//! Asked are `List` and `GetAllocatableResources` of version v1, which kubelets serve since 1.20 and 1.23; v1alpha1
//! had neither topology nor sidecars and is not spoken. `Get` tells nothing that `List` does not, and wants a name.
//!
//! What this source cannot tell, and the fold has to settle with what the host shows:
//!
//! * Kubelets before 1.34 list pods that have ended. They come with their UID and container identifiers, so that a pod
//!   without processes can give way to one that has some.
//! * A claim with administrator's access (DRA) looks like one that allocates.
//! * Plugins that ignore which id the kubelet chose (HAMi, and gpushare unless the node has one GPU) decide themselves
//!   which GPU a container gets. Such containers are told ([`warpmeter_core::fact::Pod::deferred`]), and the API
//!   server's annotations correct their grants where they are read.

mod answer;
mod bounds;
mod client;
mod dra;
mod example;
mod gaps;
mod health;
mod id;
mod logs;
mod mapping;
mod naming;
mod odd;
mod options;
mod schedule;
mod settling;
mod source;
mod wire;

pub use answer::grants;
pub use options::KubeletOptions;
pub use source::KubeletSource;

#[cfg(test)]
mod tests;
