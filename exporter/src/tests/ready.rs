//! When a node is ready, and what it says when it is not.

use std::sync::Arc;

use warpmeter_core::fact::{HealthState, Source};
use warpmeter_core::time::SECOND;
use warpmeter_core::view::View;

use super::sample;
use crate::readiness::reasons;

#[test]
fn a_node_with_a_readable_gpu_and_a_closed_window_is_ready() {
    assert_eq!(
        reasons(&sample::view()),
        [""; 0],
        "a GPU that is down and a degraded source are not the node"
    );
}

#[test]
fn a_source_that_is_down_is_a_reason() {
    let mut view = sample::view();
    view.sources[1].state = Some(HealthState::Down);
    view.sources[1].reason = "/proc is not mounted".into();
    assert_eq!(reasons(&view), ["source host is down: /proc is not mounted"]);
}

#[test]
fn a_neighbours_exporter_that_is_away_is_no_reason() {
    let mut view = sample::view();
    let dcgm = view.sources.iter_mut().find(|source| source.source == Source::Dcgm).unwrap();
    (dcgm.state, dcgm.reason) = (Some(HealthState::Down), "nobody answers".into());
    assert_eq!(reasons(&view), [""; 0]);
}

#[test]
fn a_node_without_a_gpu_says_why_once() {
    let mut view = sample::view();
    view.gpus.clear();
    assert_eq!(reasons(&view), ["no GPU: the driver has shown none"]);
    view.sources[0].state = Some(HealthState::Down);
    view.sources[0].reason = "libnvidia-ml.so.1 is not there".into();
    assert_eq!(reasons(&view), ["no GPU: libnvidia-ml.so.1 is not there"]);
    assert_eq!(reasons(&View::default()).len(), 2, "nor has a window closed");
}

#[test]
fn a_node_whose_gpus_are_all_down_or_silent_is_not_ready() {
    let mut view = sample::view();
    view.at = view.at.plus(100 * SECOND);
    assert_eq!(reasons(&view), ["no GPU has been read for 100 s"]);
    view.gpus.truncate(1);
    view.gpus[0].up = false;
    Arc::make_mut(&mut view.gpus[0].gpu).down = Some("lost".into());
    assert_eq!(reasons(&view), ["no GPU can be read: GPU-a (lost)"]);
}
