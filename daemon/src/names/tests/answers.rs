//! What the server answers, good and bad.

use std::time::{Duration, Instant};

use serde_json::json;
use warpmeter_core::fact::{Discard, Fact, HealthState};

use super::api::{Api, Reply};
use super::{Asked, page, pod};

fn refusal(message: &str) -> Vec<u8> {
    json!({ "kind": "Status", "status": "Failure", "message": message }).to_string().into_bytes()
}

/// A source whose server gives these replies in turn, and the last one for ever.
fn asked(replies: Vec<Reply>) -> (Api, Asked) {
    let mut replies = replies.into_iter().peekable();
    let api = Api::start(move |_| match replies.next() {
        Some(reply) => reply,
        None => Reply::Answer(200, page([pod("a")], "")),
    });
    let asked = Asked::new(&api);
    (api, asked)
}

fn names(asked: &mut Asked) -> Vec<String> {
    asked.names().iter().map(|pod| pod.name.to_string()).collect()
}

#[test]
fn pages_are_followed_to_the_last() {
    let (api, mut asked) = asked(vec![
        Reply::Answer(200, page([pod("b"), pod("c")], "to/ken+=&x")),
        Reply::Answer(200, page([pod("a")], "second")),
        Reply::Answer(200, page([pod("d"), pod("c")], "")),
    ]);
    assert_eq!(names(&mut asked), ["a", "b", "c", "d"]);
    assert_eq!((asked.health().state, asked.health().reason.as_str()), (HealthState::Up, ""));
    let targets: Vec<String> = api.asked().into_iter().map(|asking| asking.target).collect();
    let first = "/api/v1/pods?fieldSelector=spec.nodeName%3Dgpu-1&limit=250";
    assert_eq!(
        targets,
        [
            format!("{first}&resourceVersion=0"),
            format!("{first}&continue=to%2Fken%2B%3D%26x"),
            format!("{first}&continue=second")
        ]
    );
}

#[test]
fn names_are_told_when_they_are_the_first_and_when_they_change() {
    let (_api, mut asked) = asked(vec![
        Reply::Answer(200, page([], "")),
        Reply::Answer(200, page([], "")),
        Reply::Answer(200, page([pod("a"), pod("b")], "")),
        Reply::Answer(200, page([pod("b"), pod("a")], "")),
    ]);
    assert_eq!(names(&mut asked), [""; 0]);
    assert_eq!(asked.round(), []);
    assert_eq!(names(&mut asked), ["a", "b"]);
    assert_eq!(asked.round(), [], "their order is not a change");
    assert_eq!(names(&mut asked), ["a"]);
}

#[test]
fn a_node_that_the_server_knows_no_pod_of_is_asked_after_with_what_helps() {
    let (_api, mut asked) = asked(vec![
        Reply::Answer(200, page([], "")),
        Reply::Answer(200, page([pod("a")], "")),
        Reply::Answer(200, page([], "")),
    ]);
    asked.round();
    for _ in 0..2 {
        let health = asked.health();
        assert_eq!(health.state, HealthState::Degraded);
        for words in ["no pod on node \"gpu-1\"", "NODE_NAME", "spec.nodeName", "[host] node"] {
            assert!(health.reason.contains(words), "{words:?} in {}", health.reason);
        }
        assert_eq!(names(&mut asked), ["a"]);
        assert_eq!(asked.health().state, HealthState::Up);
        // All pods are gone at once, as for a node that was renamed.
        asked.round();
    }
}

#[test]
fn pods_of_other_nodes_are_left_out_and_told_and_take_no_room() {
    let on = |name: String, node: serde_json::Value| {
        let mut pod = pod(&name);
        pod["spec"]["nodeName"] = node;
        pod
    };
    let others = (0..5000).map(|number| on(format!("other-{number}"), "gpu-2".into()));
    let unscheduled = [on("waits".into(), "".into()), on("null".into(), json!(null)), json!({})];
    let all: Vec<_> = others.chain(unscheduled).chain([pod("a")]).collect();
    let (_api, mut asked) =
        asked(vec![Reply::Answer(200, page(all, "")), Reply::Answer(200, page([pod("a"), pod("b")], ""))]);
    assert_eq!(names(&mut asked), ["a"]);
    let health = asked.health();
    assert_eq!(health.state, HealthState::Degraded);
    for words in ["5003 pods of the answer are not of node \"gpu-1\"", "fieldSelector", "proxy"] {
        assert!(health.reason.contains(words), "{words:?} in {}", health.reason);
    }
    assert!(!health.reason.contains("more"), "none of them is beyond the bound: {}", health.reason);
    assert_eq!(names(&mut asked), ["a", "b"]);
    assert_eq!(asked.health().state, HealthState::Up);
}

#[test]
fn an_annotation_that_does_not_tell_whose_gpu_is_whose_degrades() {
    let mut odd = pod("odd");
    odd["metadata"]["annotations"] = json!({ "hami.io/vgpu-devices-allocated": "GPU-x,NVIDIA,1,1:;" });
    let (_api, mut asked) = asked(vec![Reply::Answer(200, page([odd, pod("a")], ""))]);
    assert_eq!(names(&mut asked), ["a", "odd"]);
    let reason = asked.health().reason;
    assert!(reason.contains("1 pods have an annotation of HAMi"), "{reason}");
}

#[test]
fn every_refusal_is_told_with_what_helps() {
    for (status, words) in [
        (401, "token is not valid"),
        (403, "resources: [\"pods\"], verbs: [\"list\"]"),
        (404, "is it the API server's"),
        (429, "asked again later"),
        (500, "the server fails"),
        (503, "the server fails"),
        (301, "redirections are not followed"),
        (204, "not an answer to a list"),
    ] {
        let body = if status == 204 { Vec::new() } else { refusal("pods is\u{7} forbidden: User \"x\"") };
        let (_api, mut asked) = asked(vec![Reply::Answer(status, body)]);
        assert_eq!(asked.round(), []);
        let health = asked.health();
        assert_eq!(health.state, HealthState::Down);
        assert!(health.reason.contains(&status.to_string()), "{}", health.reason);
        assert!(health.reason.contains(words), "{}", health.reason);
        assert!(status == 204 || health.reason.contains("pods is� forbidden: User"), "{}", health.reason);
        // It recovers.
        assert_eq!(names(&mut asked), ["a"]);
        assert_eq!(asked.health().state, HealthState::Up);
    }
}

#[test]
fn a_refusal_keeps_the_names_and_tells_their_age() {
    let replies = (0..3).map(|_| Reply::Answer(503, b"<html>busy</html>".to_vec()));
    let ok = Reply::Answer(200, page([pod("a")], ""));
    let (_api, mut asked) = asked(std::iter::once(ok).chain(replies).collect());
    assert_eq!(names(&mut asked), ["a"]);
    assert_eq!(asked.round(), []);
    let health = asked.health();
    assert_eq!(health.state, HealthState::Degraded);
    assert!(health.reason.ends_with("; the names of 8 min or more ago stay"), "{}", health.reason);
    asked.now += Duration::from_mins(5);
    assert_eq!(asked.health(), health, "a reason does not change with every minute");
}

#[test]
fn a_list_that_the_server_forgot_is_begun_again_once() {
    let gone = || Reply::Answer(410, refusal("The provided continue parameter is too old"));
    let half = || Reply::Answer(200, page([pod("gone")], "next"));
    let whole = Reply::Answer(200, page([pod("b")], ""));
    let (api, mut asked) = asked(vec![half(), gone(), whole, half(), gone(), half(), gone()]);
    assert_eq!(names(&mut asked), ["b"]);
    assert_eq!(api.asked().len(), 3);
    assert_eq!(asked.round(), []);
    assert!(asked.health().reason.contains("410"), "{}", asked.health().reason);
    assert_eq!(api.asked().len(), 7);
}

#[test]
fn a_busy_server_is_left_alone_as_long_as_it_asks() {
    let busy = |lines| Reply::With(429, lines, refusal("too many requests"));
    let (api, mut asked) = asked(vec![
        busy("retry-after: 100\r\n"),
        busy("retry-after: 86400\r\n"),
        busy("retry-after: soon\r\n"),
        busy(""),
    ]);
    let mut count = 0;
    // The fourth failure in a row waits two periods.
    for wait in [100, 300, 30, 60] {
        count += 1;
        asked.round();
        assert_eq!(api.asked().len(), count);
        let mut facts = Vec::new();
        asked.source.poll_at(asked.now + Duration::from_secs(wait * 85 / 100), &mut facts);
        assert!(facts.is_empty() && api.asked().len() == count, "{facts:?} after {wait} s");
    }
}

#[test]
fn polls_between_rounds_do_nothing() {
    let (api, mut asked) = asked(Vec::new());
    asked.names();
    let mut facts = Vec::new();
    for second in 0..27 {
        asked.source.poll_at(asked.now + Duration::from_secs(second), &mut facts);
    }
    assert!(facts.is_empty());
    asked.source.poll_at(asked.now + Duration::from_secs(30), &mut facts);
    assert_eq!((facts.len(), api.asked().len()), (1, 2));
}

#[test]
fn a_server_that_hangs_costs_the_deadline_and_no_more() {
    for mut reply in [Some(Reply::Silence), Some(Reply::Stall)] {
        let api = Api::start(move |_| reply.take().unwrap_or(Reply::Answer(200, page([pod("a")], ""))));
        let mut asked = Asked::with(&api, |options| options.deadline = Duration::from_secs(1));
        let began = Instant::now();
        assert_eq!(asked.round(), []);
        let took = began.elapsed();
        assert!((Duration::from_secs(1)..Duration::from_secs(4)).contains(&took), "{took:?}");
        assert!(asked.health().reason.contains("no complete answer within 1s"), "{:?}", asked.health());
        assert_eq!(names(&mut asked), ["a"]);
    }
}

#[test]
fn an_answer_without_end_is_refused() {
    let api = Api::start(|_| Reply::Endless);
    let mut asked = Asked::with(&api, |options| options.deadline = Duration::from_secs(30));
    assert_eq!(asked.round(), []);
    assert!(asked.health().reason.contains("larger than 32 MiB"), "{:?}", asked.health());
}

#[test]
fn pages_without_end_are_refused() {
    let api = Api::start(|_| Reply::Answer(200, page([pod("a")], "again")));
    let mut asked = Asked::with(&api, |options| options.deadline = Duration::from_secs(30));
    assert_eq!(asked.round(), []);
    assert_eq!((asked.health().state, api.asked().len()), (HealthState::Down, 16));
}

#[test]
fn a_connection_that_breaks_is_a_failure_and_not_the_end_of_the_list() {
    let ok = Reply::Answer(200, page([pod("a")], ""));
    let (_api, mut asked) = asked(vec![ok, Reply::Break]);
    asked.names();
    assert_eq!(asked.round(), []);
    assert_eq!(asked.health().state, HealthState::Degraded);
    assert!(asked.health().reason.starts_with("read the answer: "), "{:?}", asked.health());
}

#[test]
fn an_answer_that_is_no_list_unnames_nobody() {
    for garbage in [
        "",
        "null",
        "{}",
        "[]",
        "<html>",
        "{\"items\":",
        "{\"items\":{}}",
        "{\"items\":[]} more",
        "{\"kind\":\"Status\",\"items\":[]}",
        "{\"kind\":\"PodList\",\"metadata\":{}}",
        "{\"items\":[],\"items\":[\"\u{0}",
    ] {
        let ok = Reply::Answer(200, page([pod("a")], ""));
        let (_api, mut asked) = asked(vec![ok, Reply::Answer(200, garbage.into())]);
        asked.names();
        assert_eq!(asked.round(), [Fact::Discarded { reason: Discard::Garbage, count: 1 }], "{garbage:?}");
        assert_eq!(asked.health().state, HealthState::Degraded);
        assert!(asked.health().reason.contains("no list of pods"), "{:?}", asked.health());
    }
}

#[test]
fn one_bad_pod_does_not_hide_the_others() {
    let bad = json!({ "metadata": { "uid": 7 } });
    let list = || Reply::Answer(200, page([pod("a"), json!({ "metadata": { "uid": 7 } }), pod("b")], ""));
    let (_api, mut asked) = asked(vec![list(), list(), Reply::Answer(200, page([bad], ""))]);
    let facts = asked.round();
    assert!(
        matches!(&facts[..], [Fact::Discarded { count: 1, .. }, Fact::Names(names)] if names.len() == 2),
        "{facts:?}"
    );
    assert_eq!(asked.health().state, HealthState::Degraded);
    assert!(asked.health().reason.starts_with("1 pods of the answer"), "{:?}", asked.health());
    assert_eq!(asked.round(), [], "what is bad in the same way is counted once");
}
