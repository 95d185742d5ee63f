//! The source against a server in this process.

mod allotments;
mod answers;
mod api;
mod arbitrary;
mod connections;
mod node;
mod pods;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warpmeter_core::fact::{Fact, Health, PodNames};

use super::{NamesOptions, NamesSource};
use api::Api;

/// A source whose clock is turned by hand.
struct Asked {
    source: NamesSource,
    now: Instant,
    _directory: tempfile::TempDir,
}

impl Asked {
    fn new(api: &Api) -> Self {
        Self::with(api, |_| {})
    }

    fn with(api: &Api, change: impl FnOnce(&mut NamesOptions)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = NamesOptions::new("gpu-1");
        options.server = Some(api.url());
        options.token = directory.path().join("token");
        options.ca = directory.path().join("ca.crt");
        std::fs::write(&options.token, "first\n").unwrap();
        std::fs::write(&options.ca, &api.ca).unwrap();
        change(&mut options);
        Self { source: NamesSource::new(options), now: Instant::now(), _directory: directory }
    }

    /// The facts of a round, some time later, without that it took place.
    fn round(&mut self) -> Vec<Fact> {
        self.now += Duration::from_mins(10);
        let mut facts = Vec::new();
        self.source.poll_at(self.now, &mut facts);
        assert!(matches!(facts.pop(), Some(Fact::Poll { .. })), "a round ends with its time");
        facts
    }

    /// The names of a round that must give some.
    fn names(&mut self) -> Vec<PodNames> {
        match &mut self.round()[..] {
            [Fact::Names(names)] => std::mem::take(names),
            facts => panic!("{facts:?}, {:?}", self.health()),
        }
    }

    fn health(&self) -> Health {
        self.source.health_at(self.now)
    }
}

/// A pod as small as they come.
fn pod(name: &str) -> Value {
    json!({
        "metadata": { "uid": format!("uid-{name}"), "namespace": "ns", "name": name },
        "spec": { "nodeName": "gpu-1" },
    })
}

/// A page of a list.
fn page(pods: impl IntoIterator<Item = Value>, next: &str) -> Vec<u8> {
    let items: Vec<Value> = pods.into_iter().collect();
    let list =
        json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "continue": next }, "items": items });
    list.to_string().into_bytes()
}
