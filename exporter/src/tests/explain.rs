//! An explanation in words and in JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use warpmeter_core::explain::{Caller, Explanation, Ground, Who, Why};
use warpmeter_core::identity::{DeviceId, GpuId, HostPid, PodUid, ProcessId};
use warpmeter_core::probe::{Doing, Waits};
use warpmeter_core::stall::{Causes, Rule};
use warpmeter_core::state::State;
use warpmeter_core::time::{Interval, MonoNs, SECOND};
use warpmeter_core::view::{Evidence, PodView, View};

use super::sample;

const MS: u64 = SECOND / 1000;

fn process(pid: u32) -> ProcessId {
    ProcessId { pid: HostPid(pid), start: MonoNs(2) }
}

/// Only 12 and 21 have no name, and only 21 is of another pod.
fn who(process: ProcessId) -> Who {
    let name = match process.pid.0 {
        10 => Some("python"),
        11 => Some("pt_data_worker"),
        _ => None,
    };
    Who { name: name.map(Into::into), own: process.pid.0 != 21 }
}

fn waits(sleeper: u32, waker: u32, count: u64, doings: &[(Doing, u64)]) -> Waits {
    let mut waits =
        Waits { sleeper: process(sleeper), waker: process(waker), count, doings: [0; Doing::COUNT] };
    for (doing, ms) in doings {
        waits.doings[*doing as usize] = ms * MS;
    }
    waits
}

/// A second of a pod whose device ran for a tenth of it, and was held up by `state` for the rest but for four states of half
/// a percent; its process 10 was in that for half a second between its calls.
fn pod(state: State, rule: Rule, doing: Doing, followed: bool, all: Vec<Waits>) -> PodView {
    let small = [State::StalledLaunch, State::StalledSync, State::StalledLock, State::IdleNoWork];
    let mut states = vec![(State::Active, 100 * MS), (state, 880 * MS)];
    states.extend(small.map(|state| (state, 5 * MS)));
    let held_up = states.iter().filter(|(state, _)| *state != State::Active);
    let rules: BTreeMap<(State, Rule), u64> =
        held_up.clone().map(|(state, amount)| ((*state, rule), *amount)).collect();
    let amounts = held_up.copied().collect();
    let mut caller = Caller::new(process(10));
    caller.between[doing as usize] = 500 * MS;
    let why = Why {
        owner: sample::pod_owner("uid-9", "main"),
        device: DeviceId { gpu: GpuId::new("GPU-a"), mig: None },
        during: Interval::new(MonoNs(0), MonoNs(SECOND)).unwrap(),
        states,
        used: Some(100 * MS),
        use_evidence: Evidence::Measured,
        allocation_evidence: Evidence::Measured,
        ground: Ground::Causes,
        rules: Some(Causes { amounts, rules, contradicted: false }),
        still: None,
        roofline: None,
        callers: vec![caller],
        followed,
    };
    let mut explanation = Explanation::default();
    explanation.note(why, who);
    explanation.note_waits(MonoNs(SECOND), all, who);
    PodView { explanation: Arc::new(explanation), ..sample::pod("uid-9") }
}

fn view() -> View {
    View { at: MonoNs(2 * SECOND), ..sample::view() }
}

fn said(pod: &PodView) -> Vec<String> {
    crate::explain::words(&view(), pod)
}

/// What is said of the chain.
fn chain(pod: &PodView) -> Vec<String> {
    said(pod).into_iter().skip_while(|line| !line.starts_with("  behind")).collect()
}

fn disk(all: Vec<Waits>) -> PodView {
    pod(State::StalledDiskRead, Rule::Drained, Doing::DiskRead, true, all)
}

#[test]
fn a_chain_is_told_link_by_link_down_to_whose_doing_it_was() {
    let read: &[(Doing, u64)] = &[(Doing::DiskRead, 400), (Doing::Cpu, 100)];
    let pod = disk(vec![
        waits(10, 10, 9, read),
        waits(10, 11, 9, read),
        waits(10, 13, 2, &[(Doing::DiskRead, 100)]),
        waits(10, 14, 2, &[(Doing::DiskRead, 100), (Doing::Timer, 700)]),
        waits(11, 12, 7, &[(Doing::DiskRead, 300)]),
        waits(14, 10, 7, &[(Doing::Network, 300)]),
    ]);
    let expected = [
        "  behind the stalled/disk_read: python (10): 9 waits within the process, 0.5 s, of which 80 % reads from disks",
        "    python (10) waited for pt_data_worker (11) 9 times, 0.5 s, of which 80 % reads from disks; 0.2 s of the same \
         for 2 more",
        "    pt_data_worker (11) waited for process 12 7 times, 0.3 s, of which 100 % reads from disks",
        "    process 12 itself read from disks",
    ];
    assert_eq!(chain(&pod), expected);

    let json: Value = serde_json::from_str(&crate::explain::json(&view(), &pod).unwrap()).unwrap();
    let chain = &json["devices"][0]["chain"];
    assert_eq!(chain["behind"], "stalled/disk_read");
    assert_eq!(chain["driver"], serde_json::json!({ "pid": 10, "name": "python" }));
    let links = chain["links"].as_array().unwrap();
    let pids: Vec<_> = links.iter().map(|link| (&link["sleeper"]["pid"], &link["waker"]["pid"])).collect();
    let [own, worker, server] = [10, 11, 12].map(Value::from);
    assert_eq!(pids, [(&own, &own), (&own, &worker), (&worker, &server)]);
    let second = serde_json::json!({
        "sleeper": { "pid": 10, "name": "python" },
        "waker": { "pid": 11, "name": "pt_data_worker" },
        "count": 9,
        "seconds": 0.5,
        "seconds_concerned": 0.4,
        "beside": 2,
        "seconds_concerned_beside": 0.2,
    });
    assert_eq!(links[1], second);
    assert_eq!((&chain["last"]["pid"], &chain["end"]), (&server, &"itself".into()));
    assert!(chain["last"]["name"].is_null() && chain.get("in_turn").is_none(), "{chain}");
    assert_eq!(json["waits"].as_array().unwrap().len(), 6);
}

#[test]
fn a_stall_without_waits_of_its_class_is_the_drivers_own() {
    let pod = disk(vec![waits(10, 11, 9, &[(Doing::Cpu, 500)])]);
    assert_eq!(chain(&pod), ["  behind the stalled/disk_read: python (10) itself read from disks"]);
    let json: Value = serde_json::from_str(&crate::explain::json(&view(), &pod).unwrap()).unwrap();
    let chain = &json["devices"][0]["chain"];
    assert_eq!((&chain["links"], &chain["end"]), (&Value::Array(Vec::new()), &"itself".into()));
}

#[test]
fn who_waits_in_turn_and_who_is_not_the_pods_are_told_so() {
    let read = |sleeper, waker| waits(sleeper, waker, 9, &[(Doing::DiskRead, 500)]);
    let turn =
        "    pt_data_worker (11) itself read from disks, as far as it did not wait for python (10) in turn";
    assert_eq!(chain(&disk(vec![read(10, 11), read(11, 10)])).last().unwrap(), turn);
    let stranger = "    process 21 is not known to be of this pod: whom it waited for is not told here";
    assert_eq!(chain(&disk(vec![read(10, 21), read(21, 11)])).last().unwrap(), stranger);
}

#[test]
fn what_is_not_known_of_a_driver_is_not_called_its_own_doing() {
    let of = |rule, doing, followed| {
        chain(&pod(State::StalledDiskRead, rule, doing, followed, Vec::new())).concat()
    };
    assert!(of(Rule::Samples, Doing::DiskRead, false).contains("wake-ups are not followed"));
    assert!(of(Rule::Feeders, Doing::Poll, true).contains("still waited when the seconds ended"));
    assert!(of(Rule::Habit, Doing::Cpu, true).contains("were not seen"));
    let copies = pod(State::StalledTransfer, Rule::Waiting, Doing::Cpu, true, Vec::new());
    assert_eq!(chain(&copies), ["  behind the stalled/transfer: python (10) itself, in its own copies"]);
}

#[test]
fn the_shares_that_are_told_sum_to_the_whole() {
    let lines = said(&disk(Vec::new()));
    let shares = lines.iter().filter_map(|line| line.trim_start().split_once(" % "));
    let shares: Vec<u64> = shares.filter_map(|(share, _)| share.parse().ok()).collect();
    assert_eq!(shares, [88, 10, 2], "{lines:?}");
    assert!(lines.iter().any(|line| line == "    2 % in states of less than 1 % each"), "{lines:?}");
}

#[test]
fn windows_that_ended_a_while_ago_are_told_to_have() {
    let pod = disk(Vec::new());
    assert!(said(&pod)[1].contains("last 1 s: 1.0 GPU seconds"), "{:?}", said(&pod));
    let later = View { at: MonoNs(21 * SECOND), ..sample::view() };
    let said = crate::explain::words(&later, &pod);
    assert!(said[1].contains("last 1 s, until 20 s ago: 1.0 GPU seconds"), "{said:?}");
}

/// A pod called `namespace/db-0`. `last`: the second in which its last window ended, if it has one.
fn named(uid: &str, namespace: &str, ended: bool, last: Option<u64>) -> PodView {
    let mut explanation = Explanation::default();
    if let Some(second) = last {
        let during = Interval::new(MonoNs((second - 1) * SECOND), MonoNs(second * SECOND)).unwrap();
        let why = (**disk(Vec::new()).explanation.windows.back().unwrap()).clone();
        explanation.note(Why { during, ..why }, who);
    }
    PodView {
        uid: PodUid::new(uid),
        name: Some((namespace.into(), "db-0".into())),
        ended,
        explanation: Arc::new(explanation),
        ..sample::pod(uid)
    }
}

/// The UID of the pod that `name` means, or what is said of why none is.
fn meant(pods: &[PodView], name: &str) -> Result<String, String> {
    let view = View { pods: pods.to_vec(), ..sample::view() };
    crate::explain::find(&view, name).map(|pod| pod.uid.as_str().to_owned())
}

#[test]
fn a_pod_that_was_made_anew_is_meant_and_not_the_ended_one_of_its_name() {
    let ended = named("uid-1", "shop", true, Some(9));
    let alive = named("uid-2", "shop", false, None);
    for (alive, ended) in [(&alive, &ended), (&named("uid-0", "shop", false, None), &ended)] {
        let pods = [ended.clone(), alive.clone()];
        for name in ["shop/db-0", "db-0"] {
            assert_eq!(meant(&pods, name).as_deref(), Ok(alive.uid.as_str()), "{name}");
        }
        assert_eq!(meant(&pods, "uid-1").as_deref(), Ok("uid-1"), "a UID means its own pod, ended or not");
    }
    // What lives in one namespace is meant rather than what ended in another.
    let pods = [named("uid-1", "bar", true, Some(9)), alive];
    assert_eq!(meant(&pods, "db-0").as_deref(), Ok("uid-2"));
}

#[test]
fn of_pods_of_one_name_that_have_all_ended_the_one_that_ended_last_is_meant() {
    let pods = [
        named("uid-1", "shop", true, Some(5)),
        named("uid-2", "shop", true, Some(8)),
        named("uid-3", "shop", true, None),
        named("uid-4", "shop", true, Some(7)),
    ];
    for name in ["shop/db-0", "db-0"] {
        assert_eq!(meant(&pods, name).as_deref(), Ok("uid-2"), "{name}");
    }
}

#[test]
fn where_it_is_not_known_which_pod_is_meant_all_that_may_be_are_listed() {
    let of = |namespace, ended, last| {
        [("uid-1", "shop"), ("uid-2", namespace)].map(|(uid, namespace)| named(uid, namespace, ended, last))
    };
    for (pods, name, words) in [
        (of("shop", false, Some(9)), "shop/db-0", "several pods are called shop/db-0: "),
        (of("shop", false, Some(9)), "db-0", "several pods are called db-0: "),
        (of("bar", false, Some(9)), "db-0", "several pods are called db-0: "),
        (of("bar", true, Some(9)), "db-0", "several pods are called db-0: "),
        (of("shop", true, None), "shop/db-0", "which of them ended last is not known"),
        (of("shop", true, Some(9)), "db-0", "which of them ended last is not known"),
    ] {
        let said = meant(&pods, name).unwrap_err();
        let second = pods[1].name.as_ref().map(|(namespace, _)| format!("uid-2 ({namespace}/db-0)")).unwrap();
        assert!(
            said.contains(words) && said.contains("uid-1 (shop/db-0)") && said.contains(&second),
            "{said}"
        );
    }
}
