//! What is missing in what an answer of the kubelet tells, each with its remedy.

use warpmeter_core::fact::Discard;

use super::answer::{Offer, Reading};
use super::bounds;
use super::client::AskError;
use super::mapping::Mapping;

/// What an answer lacks, of which `mapping` was made.
pub(super) fn of_answer(reading: &Reading, mapping: &Mapping) -> Vec<String> {
    let mut lacking = Vec::new();
    let guessed = "how many replicas a shared GPU has is taken from the highest number that is held";
    match &reading.offer {
        Offer::Known => {}
        Offer::Unserved if !mapping.lacks_replicas() => {}
        Offer::Unserved => lacking.push(format!(
            "{guessed}: this kubelet does not tell what is allocatable (Kubernetes 1.23 or later does)"
        )),
        Offer::Failed(error) if mapping.lacks_replicas() => {
            lacking.push(format!("{guessed}: GetAllocatableResources: {error}"));
        }
        Offer::Failed(error) => lacking.push(stale_offer(error)),
    }
    if reading.loose_units {
        lacking.push(
            "units of GPU memory are granted on a node with several GPUs, and the kubelet does not know whose: such \
             pods hold nothing here, and their use counts as not granted"
                .to_owned(),
        );
    }
    if reading.holders_left_out > 0 {
        lacking.push(format!(
            "{} pods that hold GPUs are left out, and their use counts as not granted: of all pods the first {} in \
             order of name are taken, with no more than {} containers, {} devices and {} parts of devices together \
             (see what makes so many)",
            reading.holders_left_out,
            bounds::PODS,
            bounds::CONTAINERS,
            bounds::PLACES,
            bounds::GRANTS
        ));
    }
    if reading.others_left_out > 0 {
        lacking.push(format!(
            "{} pods without GPUs are left out, and have no name if they use one all the same: only the first {} in \
             order of name are taken, with {} containers",
            reading.others_left_out,
            bounds::PODS,
            bounds::CONTAINERS
        ));
    }
    let (ids, names) = (reading.count(Discard::DeviceId), reading.count(Discard::Garbage));
    if let Some(example) = &reading.example {
        lacking.push(format!(
            "{ids} device ids cannot be understood, such as {example}: such a device is nobody's, and its use counts \
             as not granted (leave the resource out of `[kubelet] resources` if it is no GPU; else report this form of \
             id)"
        ));
    }
    if names > 0 {
        lacking.push(format!(
            "{names} pods are left out, or containers of them, because they have names that Kubernetes does not allow \
             (see whether it is the kubelet that listens there)"
        ));
    }
    if reading.more_discarded {
        lacking.push(format!(
            "more than {} ids and names cannot be understood, of which only so many are counted",
            bounds::ODD
        ));
    }
    lacking
}

fn stale_offer(error: &AskError) -> String {
    format!(
        "changes of what is allocatable are missed: GetAllocatableResources: {error} (see the kubelet's log)"
    )
}
