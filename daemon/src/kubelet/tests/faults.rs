//! Kubelets that fail, and how the source gets over it.

use tonic::Code;

use super::*;

const GPU: &str = "GPU-5a5a7118-e550-79a1-597e-7631e126c57a";

/// A source that knows of one pod, asking as often as it may.
fn informed() -> (Kubelet, KubeletSource) {
    let (kubelet, mut source) = start(Duration::from_millis(1));
    kubelet.list(vec![holder("p", &[GPU])]);
    kubelet.log("research", "p", UID, &[("main", ID)]).unwrap();
    assert!(last_pods(&look(&mut source)).is_some());
    assert_eq!(state(&source), HealthState::Up);
    (kubelet, source)
}

#[track_caller]
fn fails_with(manner: Manner, words: &[&str]) {
    let (kubelet, mut source) = informed();
    kubelet.behave(manner);
    let facts = look_until(&mut source, |source, _| state(source) != HealthState::Up);
    assert_eq!(last_pods(&facts), None, "the last mapping stays");
    let reason = source.health().reason;
    for word in words {
        assert!(reason.contains(word), "{word:?} in {reason:?}");
    }
    assert!(reason.contains("since 2") && reason.contains("stay"), "{reason}");
    assert!(facts.iter().all(|fact| !matches!(fact, Fact::Poll { answered: true, .. })), "{facts:?}");
    kubelet.behave(Manner::Answers);
    look_until(&mut source, |source, _| state(source) == HealthState::Up);
    assert_eq!(source.health().reason, "");
}

/// Each by a kubelet of its own, since every question waits a second for the one before.
fn fail_with(cases: &[(Manner, &[&str])]) {
    std::thread::scope(|scope| {
        for (manner, words) in cases {
            scope.spawn(|| fails_with(manner.clone(), words));
        }
    });
}

#[test]
fn t32_an_error_is_told_and_the_mapping_stays() {
    let refuses = |code, message: &str| Manner::Refuses(code, message.into());
    fail_with(&[
        (refuses(Code::Internal, "\u{1b}[31m out of order"), &["Internal", "\\u{1b}", "the kubelet's log"]),
        (refuses(Code::ResourceExhausted, "rejected by rate limit"), &["other clients"]),
        (refuses(Code::Unimplemented, "unknown service"), &["1.20"]),
    ]);
}

#[test]
fn t32_a_hanging_kubelet_takes_no_longer_than_the_deadline() {
    let (kubelet, mut source) = informed();
    for manner in [Manner::Hangs, Manner::HangsWhenAskedMore] {
        kubelet.behave(manner);
        std::thread::sleep(Duration::from_millis(1100));
        source.hasten();
        let began = Instant::now();
        let facts = look(&mut source);
        let took = began.elapsed();
        assert_eq!(polls(&facts), 1);
        assert!(took >= Duration::from_millis(1950), "{took:?}");
        assert!(took < Duration::from_millis(4000), "{took:?}");
        assert!(source.health().reason.contains("within 2s"), "{:?}", source.health());
        assert_ne!(state(&source), HealthState::Up);
    }
}

#[test]
fn t32_twenty_mebibytes_are_refused_and_less_than_sixteen_read() {
    let (kubelet, mut source) = informed();
    let id = "x".repeat(1 << 20);
    let ids = |mebibytes: usize| vec![id.as_str(); mebibytes];
    kubelet.list(vec![holder("p", &ids(20))]);
    look_until(&mut source, |source, _| state(source) != HealthState::Up);
    assert!(source.health().reason.contains("larger than 16 MiB"), "{:?}", source.health());
    let mut large = ids(15);
    large.push(GPU);
    kubelet.list(vec![holder("q", &large)]);
    let facts = look_until(&mut source, |_, facts| last_pods(facts).is_some());
    assert_eq!(last_pods(&facts).unwrap().pods[0].grants.len(), 1);
    assert_eq!(unparsed(&facts), 1);
}

#[test]
fn garbage_on_the_socket_is_no_answer() {
    let words: &[&str] = &["breaks off", "the kubelet that listens there"];
    let sent = [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 300], b"", &[0; 40]];
    fail_with(&sent.map(|bytes| (Manner::Sends(bytes.to_vec()), words)));
}

#[test]
fn a_kubelet_that_only_lists_is_enough_until_replicas_are_to_be_counted() {
    let (kubelet, mut source) = informed();
    for manner in [Manner::OnlyLists, Manner::Answers] {
        kubelet.behave(manner);
        let facts = look_until(&mut source, |_, facts| polls(facts) > 0);
        assert_eq!((last_pods(&facts), state(&source)), (None, HealthState::Up));
    }
    kubelet.behave(Manner::OnlyLists);
    kubelet.list(vec![holder("p", &[&format!("{GPU}::1")])]);
    let facts = look_until(&mut source, |_, facts| last_pods(facts).is_some());
    assert_eq!(last_pods(&facts).unwrap().replicas, []);
    assert!(source.health().reason.contains("highest number"), "{:?}", source.health());
}

#[test]
fn a_socket_that_appears_later_is_asked_at_once() {
    let mut kubelet = Kubelet::new().unwrap();
    let mut source = KubeletSource::new(options(&kubelet, Duration::from_secs(60)));
    assert!(look(&mut source).is_empty());
    assert_eq!(state(&source), HealthState::Down);
    assert!(source.health().reason.contains("hostPath, not the socket"), "{:?}", source.health());
    kubelet.start().unwrap();
    assert!(last_pods(&look(&mut source)).is_some());
    assert_eq!(state(&source), HealthState::Up);
}

#[test]
fn a_kubelet_that_restarts_is_asked_at_once_and_pods_that_it_does_not_know_yet_stay() {
    let mut kubelet = Kubelet::new().unwrap();
    kubelet.start().unwrap();
    let mut source = KubeletSource::new(options(&kubelet, Duration::from_secs(60)));
    let other = GPU.replace('5', "6");
    kubelet.list(vec![holder("p", &[GPU]), holder("q", &[&other])]);
    for name in ["p", "q"] {
        kubelet.log("research", name, &format!("uid-{name}"), &[]).unwrap();
    }
    look(&mut source);
    kubelet.stop().unwrap();
    assert!(look(&mut source).is_empty());
    assert_eq!(state(&source), HealthState::Degraded);
    // It starts with nothing but a new pod, on a device that another has given back.
    kubelet.list(vec![holder("new", &[&other])]);
    kubelet.start().unwrap();
    let facts = look_until(&mut source, |_, facts| last_pods(facts).is_some());
    let pods = last_pods(&facts).unwrap().pods;
    let held: Vec<(&str, usize)> = pods.iter().map(|pod| (&*pod.name, pod.grants.len())).collect();
    assert_eq!(held, [("p", 1), ("q", 0), ("new", 1)]);
    assert_eq!(state(&source), HealthState::Degraded);
}

#[test]
fn a_socket_that_nobody_serves_any_more_is_told_from_one_that_is_missing() {
    let (mut kubelet, mut source) = informed();
    kubelet.crash();
    look_until(&mut source, |source, _| state(source) != HealthState::Up);
    let reason = source.health().reason;
    assert!(reason.contains("Connection refused") && reason.contains("mount the directory"), "{reason}");
}

#[test]
fn t33_it_lists_once_a_refresh_however_often_it_is_looked_at() {
    let (kubelet, mut source) = start(Duration::from_secs(2));
    let end = Instant::now() + Duration::from_millis(3500);
    while Instant::now() < end {
        look(&mut source);
        std::thread::sleep(Duration::from_millis(1));
    }
    let calls = kubelet.calls();
    assert_eq!((calls.list, calls.allocatable, calls.get, calls.connections), (2, 2, 0, 2));
}

#[test]
fn t33_neither_pods_that_come_and_go_nor_a_socket_that_is_made_anew_make_it_list_more_than_once_a_second() {
    let (mut kubelet, mut source) = start(Duration::from_secs(60));
    let began = Instant::now();
    let mut number = 0;
    while began.elapsed() < Duration::from_millis(3500) {
        number += 1;
        kubelet.log("research", &format!("p-{number}"), UID, &[]).unwrap();
        source.hasten();
        if number % 10 == 0 {
            kubelet.start().unwrap();
        }
        look(&mut source);
        std::thread::sleep(Duration::from_millis(10));
    }
    let calls = kubelet.calls();
    assert!((3..=4).contains(&calls.list), "{calls:?}");
}

#[test]
fn a_pod_that_appears_is_asked_for_within_a_second() {
    let (kubelet, mut source) = start(Duration::from_secs(60));
    look(&mut source);
    kubelet.list(vec![holder("p", &[GPU])]);
    let began = Instant::now();
    kubelet.log("research", "p", UID, &[]).unwrap();
    let facts = look_until(&mut source, |_, facts| last_pods(facts).is_some());
    assert_eq!(&*last_pods(&facts).unwrap().pods[0].name, "p");
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn a_path_that_is_no_socket_or_may_not_be_seen_is_told() {
    let directory: TempDir = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let options = KubeletOptions { socket: path.clone(), ..KubeletOptions::default() };
    let mut source = KubeletSource::new(options);
    assert_eq!(polls(&look(&mut source)), 1);
    assert_eq!(state(&source), HealthState::Down);
    let beyond = KubeletOptions { socket: path.join("kubelet.sock"), ..KubeletOptions::default() };
    let mut source = KubeletSource::new(beyond);
    look(&mut source);
    assert!(source.health().reason.contains("Not a directory"), "{:?}", source.health());
}

#[test]
fn what_has_not_changed_is_confirmed_by_every_answer_and_sent_again_every_minute() {
    let (kubelet, mut source) = informed();
    let again = look_until(&mut source, |_, facts| polls(facts) > 0);
    assert_eq!(last_pods(&again), None);
    assert!(again.iter().all(|fact| matches!(fact, Fact::Poll { answered: true, .. })), "{again:?}");
    source.sent.as_mut().unwrap().1 -= Duration::from_secs(61);
    let facts = look_until(&mut source, |_, facts| polls(facts) > 0);
    let pods = last_pods(&facts).expect("it may have been lost");
    assert_eq!(pods.pods[0].name.as_ref(), kubelet.listed()[0].name);
    assert_eq!(last_pods(&look_until(&mut source, |_, facts| polls(facts) > 0)), None, "once");
}
