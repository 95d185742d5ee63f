//! This node's labels, from a server that answers well and badly.

use std::time::{Duration, Instant};

use serde_json::json;
use warpmeter_core::fact::HealthState;

use super::super::{NamesOptions, NodeSource};
use super::api::{Api, Reply};
use crate::prices::{PriceOptions, PriceSource};

/// A source whose clock is turned by hand.
struct Asked {
    api: Api,
    options: NamesOptions,
    source: NodeSource,
    now: Instant,
    _directory: tempfile::TempDir,
}

impl Asked {
    /// The server gives these replies in turn.
    fn new(replies: Vec<Reply>) -> Self {
        let mut replies = replies.into_iter();
        let api = Api::start(move |_| replies.next().unwrap_or(Reply::Silence));
        let directory = tempfile::tempdir().unwrap();
        let mut options = NamesOptions::new("");
        options.server = Some(api.url());
        options.token = directory.path().join("token");
        options.ca = directory.path().join("ca.crt");
        options.deadline = Duration::from_secs(2);
        std::fs::write(&options.token, "token\n").unwrap();
        std::fs::write(&options.ca, &api.ca).unwrap();
        let source = NodeSource::new(options.clone(), "gpu-1");
        Self { options, source, api, now: Instant::now(), _directory: directory }
    }

    fn round(&mut self) -> bool {
        self.now += Duration::from_mins(10);
        self.source.poll(self.now)
    }

    fn label(&self) -> Option<&str> {
        self.source.known()?.labels.get("node.kubernetes.io/instance-type").map(String::as_str)
    }
}

fn node(name: &str, kind: &str) -> Reply {
    let node = json!({
        "kind": "Node",
        "metadata": { "name": name, "labels": { "node.kubernetes.io/instance-type": kind }, "uid": "u" },
        "spec": { "providerID": "aws:///us-east-1a/i-1" },
        "status": { "images": [] },
    });
    Reply::Answer(200, node.to_string().into_bytes())
}

#[test]
fn the_node_is_asked_for_by_its_name_and_its_labels_are_told_when_they_change() {
    let mut asked = Asked::new(vec![node("gpu-1", "a"), node("gpu-1", "a"), node("gpu-1", "b")]);
    assert!(asked.source.reason().contains("not been asked"));
    assert_eq!([asked.round(), asked.round(), asked.round()], [true, false, true]);
    assert_eq!(asked.label(), Some("b"));
    assert_eq!(asked.source.known().unwrap().provider_id, "aws:///us-east-1a/i-1");
    assert_eq!(asked.source.reason(), "");
    let asking = &asked.api.asked()[0];
    assert_eq!(asking.target, "/api/v1/nodes/gpu-1");
    assert_eq!(asking.header("authorization"), Some("Bearer token"));
    assert!(!asked.source.poll(asked.now + Duration::from_mins(4)), "not due");
    assert_eq!(asked.api.asked().len(), 3);
}

#[test]
fn a_failure_keeps_the_labels_and_says_what_would_help() {
    let mut asked = Asked::new(vec![
        node("gpu-1", "a"),
        Reply::Answer(403, Vec::new()),
        Reply::Answer(404, Vec::new()),
        node("gpu-2", "b"),
        Reply::Answer(200, b"{}".to_vec()),
        Reply::Endless,
        Reply::Stall,
        node("gpu-1", "c"),
    ]);
    assert!(asked.round());
    for reason in
        ["resources: [\"nodes\"], verbs: [\"get\"]", "no node \"gpu-1\"", "another name", "metadata"]
    {
        assert!(!asked.round());
        assert!(asked.source.reason().contains(reason), "{reason}: {}", asked.source.reason());
        assert!(asked.source.reason().contains("stay"));
        assert_eq!(asked.label(), Some("a"));
    }
    for _endless in 0..2 {
        assert!(!asked.round());
        assert_eq!(asked.label(), Some("a"));
    }
    assert!(asked.round());
    assert_eq!((asked.label(), asked.source.reason().as_str()), (Some("c"), ""));
}

#[test]
fn labels_of_the_node_decide_its_price_once_they_are_known() {
    for (reply, price, state) in [
        (node("gpu-1", "p5.48xlarge"), Some(6_880_000), HealthState::Up),
        (Reply::Answer(403, Vec::new()), None, HealthState::Down),
    ] {
        let asked = Asked::new(vec![reply]);
        let options = PriceOptions { api: Some(asked.options.clone()), ..PriceOptions::default() };
        let mut source = PriceSource::new(options, "gpu-1");
        assert!(source.prices().missing.contains("labels"), "nothing is asked before the first round");
        source.poll(&mut Vec::new());
        let rate = source.prices().of("NVIDIA H100 80GB HBM3", 8).map(|rate| rate.price.0);
        assert_eq!((rate, source.health().state), (price, state), "{}", source.health().reason);
    }
}
