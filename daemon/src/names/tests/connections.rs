//! How the server is reached, and who it is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Fact, HealthState};

use super::api::{self, Api, Reply};
use super::{Asked, page, pod};
use crate::names::{NamesOptions, NamesSource};

fn list() -> Reply {
    Reply::Answer(200, page([pod("a")], ""))
}

/// Why a source under these options is down.
fn down(asked: &mut Asked) -> String {
    assert_eq!(asked.round(), []);
    let health = asked.health();
    assert_eq!(health.state, HealthState::Down);
    health.reason
}

#[test]
fn a_request_carries_the_token_and_says_who_asks() {
    let api = Api::start(|_| list());
    let mut asked = Asked::new(&api);
    assert_eq!(asked.names().len(), 1);
    let asking = api.asked().remove(0);
    assert_eq!(asking.header("authorization"), Some("Bearer first"));
    assert_eq!(asking.header("accept"), Some("application/json"));
    assert_eq!(asking.header("host"), Some(api.address.to_string().as_str()));
    assert!(asking.header("user-agent").unwrap().starts_with("warpmeter/"));
}

#[test]
fn a_token_that_is_rotated_is_read_anew() {
    let api = Api::start(|asking| match asking.header("authorization") {
        Some("Bearer second") => list(),
        _ => Reply::Answer(401, Vec::new()),
    });
    let mut token = PathBuf::new();
    let mut asked = Asked::with(&api, |options| token = options.token.clone());
    assert!(down(&mut asked).contains("401"));
    std::fs::write(&token, "second").unwrap();
    assert_eq!(asked.names().len(), 1);
}

#[test]
fn a_proxy_on_this_host_is_asked_without_tls_and_without_a_token() {
    let api = Api::plain(|_| list());
    let mut asked = Asked::with(&api, |options| options.token = "/nowhere".into());
    assert_eq!(asked.names().len(), 1);
    assert_eq!(api.asked().remove(0).header("authorization"), None);
}

#[test]
fn a_server_of_another_authority_is_not_told_the_token() {
    let (api, other) = (Api::start(|_| list()), Api::start(|_| list()));
    let mut ca = PathBuf::new();
    let mut asked = Asked::with(&api, |options| {
        ca = options.ca.clone();
        std::fs::write(&options.ca, &other.ca).unwrap();
    });
    let reason = down(&mut asked);
    assert!(reason.contains("invalid peer certificate") && reason.contains("ca.crt"), "{reason}");
    assert!(api.asked().is_empty());
    // An authority is being replaced by one of the same name: for a while the file holds both.
    std::fs::write(&ca, format!("{}{}", other.ca, api.ca)).unwrap();
    assert_eq!(asked.names().len(), 1);
}

#[test]
fn rounds_have_connections_of_their_own_and_resume_the_session() {
    let api = Api::start(|_| list());
    let mut asked = Asked::new(&api);
    for _ in 0..3 {
        asked.round();
    }
    let resumed: Vec<bool> = api.asked().iter().map(|asking| asking.resumed).collect();
    assert_eq!(resumed, [false, true, true]);
}

#[test]
fn a_server_by_another_name_is_not_told_the_token() {
    for name in ["127.0.0.2", "localhost"] {
        let api = Api::named(name, |_| list());
        let reason = down(&mut Asked::new(&api));
        assert!(reason.contains("certificate"), "{reason}");
        assert!(api.asked().is_empty());
    }
}

#[test]
fn a_server_can_be_called_by_its_name() {
    let api = Api::named("localhost", |_| list());
    let mut asked = Asked::with(&api, |options| {
        options.server = Some(format!("https://localhost:{}", api.address.port()));
    });
    assert_eq!(asked.names().len(), 1);
}

#[test]
fn a_server_without_tls_is_told_nothing() {
    let api = Api::plain(|_| list());
    let certified = Api::start(|_| list());
    let reason = down(&mut Asked::with(&api, |options| {
        std::fs::write(&options.ca, &certified.ca).unwrap();
        options.server = Some(format!("https://{}", api.address));
        options.deadline = Duration::from_millis(500);
    }));
    assert!(reason.contains("TLS"), "{reason}");
}

#[test]
fn nobody_at_the_address_points_to_network_policies() {
    let api = Api::start(|_| list());
    let reason = down(&mut Asked::with(&api, |options| {
        options.server = Some(format!("https://{}", api::nobody()));
    }));
    assert!(reason.contains("connect to") && reason.contains("NetworkPolicy"), "{reason}");
}

#[test]
fn a_server_that_never_answers_the_greeting_costs_the_deadline() {
    let (address, accepted): (SocketAddr, _) = api::mute();
    let api = Api::start(|_| list());
    let mut asked = Asked::with(&api, |options| {
        options.server = Some(format!("https://{address}"));
        options.deadline = Duration::from_millis(300);
    });
    let began = Instant::now();
    assert!(down(&mut asked).contains("NetworkPolicy"));
    assert!(began.elapsed() < Duration::from_secs(4));
    assert!(accepted.join().unwrap().is_some());
}

#[test]
fn every_missing_part_is_named_with_its_remedy() {
    let api = Api::start(|_| list());
    let reason = |change: &dyn Fn(&mut NamesOptions)| down(&mut Asked::with(&api, change));
    for (reason, words) in [
        (reason(&|options| options.node = String::new()), "NODE_NAME"),
        (reason(&|options| options.node = "gpu-1,spec.x=y".into()), "NODE_NAME"),
        (reason(&|options| options.server = Some("http://10.0.0.1".into())), "https://"),
        (reason(&|options| options.token = "/nowhere/token".into()), "read token /nowhere/token"),
        (reason(&|options| options.ca = "/nowhere/ca".into()), "automountServiceAccountToken"),
        (reason(&|options| std::fs::write(&options.ca, "").unwrap()), "no certificate"),
        (reason(&|options| std::fs::write(&options.token, " \n").unwrap()), "it is empty"),
        (reason(&|options| std::fs::write(&options.token, "a\nb").unwrap()), "hold a token"),
    ] {
        assert!(reason.contains(words), "{words:?} in {reason:?}");
    }
    assert!(api.asked().is_empty());
}

#[test]
fn a_source_that_has_asked_nothing_is_down() {
    let source = NamesSource::new(NamesOptions::new("gpu-1"));
    assert_eq!(source.health().state, HealthState::Down);
}

#[test]
fn the_clock_of_a_source_is_its_own_when_none_is_given() {
    let api = Api::start(|_| list());
    let mut asked = Asked::new(&api);
    let mut facts = Vec::new();
    asked.source.poll(&mut facts);
    asked.source.poll(&mut facts);
    assert!(matches!(&facts[..], [Fact::Names(_), Fact::Poll { .. }]), "{facts:?}");
    assert_eq!(asked.source.health().state, HealthState::Up);
}
