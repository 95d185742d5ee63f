//! The source against a kubelet on a socket.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use warpmeter_core::fact::{Fact, Grant, GrantPart, HealthState, Pod, Pods};
use warpmeter_simkubelet::{Kubelet, Manner, container, devices, pod};

use super::{KubeletOptions, KubeletSource};

mod alike;
mod bounds;
mod faults;
mod formats;
mod interop;
mod properties;
mod restarts;
mod rules;

const UUID: &str = "5a5a7118-e550-79a1-597e-7631e126c57a";
const UID: &str = "0b7fdcf5-7e3c-4a3c-9d39-0a4e52f8d001";
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A started kubelet and a source that asks it every `refresh`.
fn start(refresh: Duration) -> (Kubelet, KubeletSource) {
    let mut kubelet = Kubelet::new().unwrap();
    let source = KubeletSource::new(options(&kubelet, refresh));
    kubelet.start().unwrap();
    (kubelet, source)
}

fn options(kubelet: &Kubelet, refresh: Duration) -> KubeletOptions {
    KubeletOptions {
        socket: kubelet.socket(),
        pod_logs: kubelet.pod_logs(),
        container_logs: kubelet.container_logs(),
        deadline: Duration::from_secs(2),
        refresh,
        ..KubeletOptions::default()
    }
}

/// One look at the kubelet.
fn look(source: &mut KubeletSource) -> Vec<Fact> {
    let mut facts = Vec::new();
    source.poll(&mut facts);
    facts
}

/// Looks until `enough`, five times as often as in use.
fn look_until(
    source: &mut KubeletSource,
    mut enough: impl FnMut(&KubeletSource, &[Fact]) -> bool,
) -> Vec<Fact> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut facts = Vec::new();
    while Instant::now() < end {
        facts.extend(look(source));
        if enough(source, &facts) {
            return facts;
        }
        std::thread::sleep(Duration::from_millis(40));
    }
    panic!("not in time: {facts:?}; {:?}", source.health());
}

/// The last mapping among `facts`.
fn last_pods(facts: &[Fact]) -> Option<Pods> {
    facts.iter().rev().find_map(|fact| match fact {
        Fact::Pods(pods) => Some(pods.clone()),
        _ => None,
    })
}

/// What the kubelet's present answer gives, asked afresh.
fn ask(kubelet: &mut Kubelet) -> (Pods, Vec<Fact>, KubeletSource) {
    ask_with(kubelet, |_| {})
}

fn ask_with(kubelet: &mut Kubelet, change: impl Fn(&mut KubeletOptions)) -> (Pods, Vec<Fact>, KubeletSource) {
    kubelet.start().unwrap();
    let mut options = options(kubelet, Duration::from_secs(10));
    change(&mut options);
    let mut source = KubeletSource::new(options);
    let facts = look(&mut source);
    let pods = last_pods(&facts).unwrap_or_else(|| panic!("no pods: {:?}", source.health()));
    (pods, facts, source)
}

fn state(source: &KubeletSource) -> HealthState {
    source.health().state
}

fn polls(facts: &[Fact]) -> usize {
    facts.iter().filter(|fact| matches!(fact, Fact::Poll { .. })).count()
}

/// How many ids were told as of no known form.
fn unparsed(facts: &[Fact]) -> u64 {
    let counts = facts.iter().map(|fact| match fact {
        Fact::Discarded { reason: warpmeter_core::fact::Discard::DeviceId, count } => *count,
        _ => 0,
    });
    counts.sum()
}

/// A pod with one container, `main`, that holds `ids`.
fn holder(name: &str, ids: &[&str]) -> warpmeter_simkubelet::PodResources {
    pod("research", name, vec![container("main", vec![devices("nvidia.com/gpu", ids)])])
}
