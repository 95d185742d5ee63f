//! What those who take part in a run are called in its facts.

use warpmeter_core::identity::{ContainerId, Owner, PodUid};

use crate::case::Whose;

/// The MPS server's pid.
pub(super) const SERVER: u32 = 900;
/// The pid of the first process.
const FIRST: u32 = 1000;

/// The owner in the daemon's terms.
pub fn owner(whose: Whose) -> Owner {
    match whose {
        Whose::Pod(pod, container) => {
            Owner::Pod { uid: uid(pod), container: container_name(container).into() }
        }
        Whose::Host => Owner::Host,
    }
}

pub(super) fn uid(pod: u32) -> PodUid {
    PodUid::new(format!("pod-{pod:02}"))
}

pub(super) fn container_name(container: u32) -> String {
    format!("c{container}")
}

pub(super) fn container_id(pod: u32, container: u32) -> ContainerId {
    ContainerId::new(format!("{pod:032}{container:032}"))
}

/// The pid of a process, by its number.
pub(super) fn pid(process: usize) -> u32 {
    FIRST + u32::try_from(process).unwrap()
}

/// The number of the process that has this pid.
pub(super) fn number(pid: u32) -> usize {
    usize::try_from(pid - FIRST).unwrap()
}
