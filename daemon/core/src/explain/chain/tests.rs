//! Whom a chain leads to.

use super::*;
use crate::explain::{Ground, Who, Why};
use crate::identity::{DeviceId, GpuId, HostPid, Owner, PodUid};
use crate::stall::Causes;
use crate::time::{Interval, MonoNs, SECOND};
use crate::view::Evidence;

const MS: u64 = SECOND / 1000;

/// The process that drives the device.
const LOOP: u32 = 10;
/// Of another pod.
const STRANGER: u32 = 99;

fn process(pid: u32) -> ProcessId {
    ProcessId { pid: HostPid(pid), start: MonoNs(2) }
}

fn who(process: ProcessId) -> Who {
    Who { name: None, own: process != self::process(STRANGER) }
}

/// Waits of so many milliseconds in which wakers read from disks, and of some in which they computed.
fn waits(sleeper: u32, waker: u32, read: u64, computed: u64) -> Waits {
    let mut doings = [0; Doing::COUNT];
    doings[Doing::DiskRead as usize] = read * MS;
    doings[Doing::Cpu as usize] = computed * MS;
    Waits { sleeper: process(sleeper), waker: process(waker), count: 4, doings }
}

fn caller(pid: u32, doing: Doing, ms: u64) -> Caller {
    let mut caller = Caller::new(process(pid));
    caller.between[doing as usize] = ms * MS;
    caller
}

/// A second with a stall, and those who called the driver in it.
fn window(state: State, rule: Rule, callers: Vec<Caller>) -> Why {
    let amount = 900 * MS;
    Why {
        owner: Owner::Pod { uid: PodUid::new("p"), container: "main".into() },
        device: DeviceId { gpu: GpuId::new("GPU-a"), mig: None },
        during: Interval::new(MonoNs(0), MonoNs(SECOND)).unwrap(),
        states: vec![(State::Active, 100 * MS), (state, amount)],
        used: Some(100 * MS),
        use_evidence: Evidence::Measured,
        allocation_evidence: Evidence::Measured,
        ground: Ground::Causes,
        rules: Some(Causes {
            amounts: [(state, amount)].into(),
            rules: [((state, rule), amount)].into(),
            contradicted: false,
        }),
        still: None,
        roofline: None,
        callers,
        followed: true,
    }
}

fn found(why: Why, all: &[Waits]) -> Option<Chain> {
    let mut explanation = Explanation::default();
    explanation.note(why, who);
    explanation.note_waits(MonoNs(SECOND), all.to_vec(), who);
    explanation.chain(&explanation.recent()[0])
}

fn chain(why: Why, all: &[Waits]) -> Chain {
    found(why, all).unwrap()
}

/// The chain behind half a second between the calls of [`LOOP`] that were reads from disks: its processes, and its end.
fn behind_reads(all: &[Waits]) -> (Vec<u32>, End) {
    let why = window(State::StalledDiskRead, Rule::Drained, vec![caller(LOOP, Doing::DiskRead, 500)]);
    let chain = chain(why, all);
    assert_eq!((chain.state, chain.doing), (State::StalledDiskRead, Some(Doing::DiskRead)));
    let steps = chain.links.iter().map(|link| link.waits.waker.pid.0);
    (std::iter::once(chain.driver.pid.0).chain(steps).collect(), chain.end)
}

#[test]
fn one_link_leads_to_the_process_that_was_waited_for() {
    assert_eq!(behind_reads(&[waits(LOOP, 11, 400, 50)]), (vec![LOOP, 11], End::Itself));
}

#[test]
fn two_links_lead_to_the_process_behind_the_one_that_was_waited_for() {
    let all = [waits(11, 12, 390, 0), waits(LOOP, 11, 400, 50)];
    assert_eq!(behind_reads(&all), (vec![LOOP, 11, 12], End::Itself));
}

#[test]
fn a_step_within_a_process_comes_before_the_one_that_leads_on() {
    let pinned = [waits(LOOP, LOOP, 400, 0), waits(LOOP, 11, 400, 0)];
    assert_eq!(behind_reads(&pinned), (vec![LOOP, LOOP, 11], End::Itself));
    assert_eq!(behind_reads(&pinned[..1]), (vec![LOOP, LOOP], End::Itself));
}

#[test]
fn threads_of_a_process_that_wait_for_one_another_do_not_hide_the_process_that_they_wait_for() {
    let all = [waits(LOOP, LOOP, 16 * 400, 0), waits(LOOP, 11, 400, 0)];
    assert_eq!(behind_reads(&all), (vec![LOOP, LOOP, 11], End::Itself));
}

#[test]
fn a_cycle_ends_where_it_closes_and_says_for_whom_was_waited_in_turn() {
    let all = [waits(LOOP, 11, 400, 0), waits(11, 12, 380, 0), waits(12, LOOP, 390, 0)];
    assert_eq!(behind_reads(&all), (vec![LOOP, 11, 12], End::InTurn(process(LOOP))));
    let pair = [waits(LOOP, 11, 400, 0), waits(11, 12, 380, 0), waits(12, 11, 390, 0)];
    assert_eq!(behind_reads(&pair), (vec![LOOP, 11, 12], End::InTurn(process(11))));
}

#[test]
fn of_several_wakers_the_one_that_accounts_for_most_of_the_stall_is_followed() {
    let all = [
        waits(LOOP, 11, 100, 5000),
        waits(LOOP, 12, 150, 0),
        waits(LOOP, 13, 120, 0),
        waits(12, 14, 140, 0),
        waits(11, 15, 100, 0),
    ];
    assert_eq!(behind_reads(&all), (vec![LOOP, 12, 14], End::Itself));
    let why = window(State::StalledDiskRead, Rule::Drained, vec![caller(LOOP, Doing::DiskRead, 500)]);
    let link = &chain(why, &all).links[0];
    assert_eq!((link.concerned, link.beside, link.concerned_beside), (150 * MS, 2, 220 * MS));
}

#[test]
fn a_wait_that_is_beside_the_point_is_no_link() {
    // It reads itself, and waits for a neighbour's lock for a moment.
    let all = [waits(LOOP, 11, 400, 0), waits(11, 12, 10, 0)];
    assert_eq!(behind_reads(&all), (vec![LOOP, 11], End::Itself));
    assert_eq!(behind_reads(&[waits(LOOP, 11, 10, 0)]), (vec![LOOP], End::Itself));
}

#[test]
fn without_waits_in_the_class_of_the_stall_the_driver_did_it_itself() {
    assert_eq!(behind_reads(&[]), (vec![LOOP], End::Itself));
    assert_eq!(behind_reads(&[waits(LOOP, 11, 0, 900), waits(12, 11, 900, 0)]), (vec![LOOP], End::Itself));
}

#[test]
fn what_a_process_of_another_pod_waited_for_is_not_known() {
    let all = [waits(LOOP, STRANGER, 400, 0), waits(STRANGER, 11, 400, 0)];
    assert_eq!(behind_reads(&all), (vec![LOOP, STRANGER], End::Stranger));
}

#[test]
fn the_driver_is_the_process_whose_calls_left_most_of_the_stall_between_them() {
    let callers = vec![caller(20, Doing::Cpu, 900), caller(LOOP, Doing::DiskRead, 300)];
    let all = [waits(20, 21, 300, 0), waits(LOOP, 11, 300, 0)];
    let found = chain(window(State::StalledDiskRead, Rule::Open, callers.clone()), &all);
    assert_eq!((found.driver, found.last()), (process(LOOP), process(11)));
    let found = chain(window(State::StalledCpu, Rule::Open, callers), &all);
    assert_eq!((found.driver, found.last(), found.end), (process(20), process(20), End::Itself));
}

#[test]
fn what_nothing_shows_is_not_called_its_own_doing() {
    let alone = |rule, doing, followed| {
        let callers = vec![caller(LOOP, doing, 500)];
        chain(Why { followed, ..window(State::StalledDiskRead, rule, callers) }, &[]).end
    };
    assert_eq!(alone(Rule::Drained, Doing::DiskRead, true), End::Itself);
    assert_eq!(alone(Rule::Samples, Doing::DiskRead, false), End::Unfollowed);
    assert_eq!(alone(Rule::Alike, Doing::Poll, true), End::Waiting);
    assert_eq!(alone(Rule::Habit, Doing::Cpu, true), End::Unseen);
    // Waits are seen even so.
    let unseen = window(State::StalledDiskRead, Rule::Habit, vec![Caller::new(process(LOOP))]);
    let found = chain(unseen, &[waits(LOOP, 11, 400, 0)]);
    assert_eq!((found.last(), found.end), (process(11), End::Itself));
}

#[test]
fn a_stall_that_calls_alone_make_has_no_waits_behind_it() {
    for state in [State::StalledTransfer, State::StalledSync, State::StalledLaunch, State::StalledContended] {
        let why = window(state, Rule::Waiting, vec![caller(LOOP, Doing::DiskRead, 500)]);
        let found = chain(why, &[waits(LOOP, 11, 400, 0)]);
        assert_eq!((found.doing, found.links.len(), found.end), (None, 0, End::Calls), "{state:?}");
    }
}

#[test]
fn there_is_no_chain_without_a_stall_or_without_calls() {
    let chain = |why: Why| {
        let mut explanation = Explanation::default();
        explanation.note(why, who);
        explanation.chain(&explanation.recent()[0])
    };
    assert_eq!(chain(window(State::IdleNoWork, Rule::Drained, vec![caller(LOOP, Doing::Timer, 900)])), None);
    assert_eq!(chain(window(State::StalledCpu, Rule::Drained, Vec::new())), None);
}

#[test]
fn of_more_pairs_than_are_kept_those_that_can_have_held_up_work_are() {
    let mut idle = waits(0, LOOP, 0, 0);
    idle.doings[Doing::Timer as usize] = SECOND;
    let mut all: Vec<Waits> = (100..300).map(|pid| Waits { sleeper: process(pid), ..idle.clone() }).collect();
    all.push(waits(LOOP, 11, 400, 0));
    assert_eq!(behind_reads(&all), (vec![LOOP, 11], End::Itself));
}

#[test]
fn of_a_stall_that_boundaries_of_windows_explain_no_chain_is_told() {
    for (stalled, told) in [(19, false), (20, true)] {
        let callers = vec![caller(LOOP, Doing::DiskRead, 500)];
        let states = vec![(State::Active, (1000 - stalled) * MS), (State::StalledDiskRead, stalled * MS)];
        let why = Why { states, ..window(State::StalledDiskRead, Rule::Drained, callers) };
        assert_eq!(found(why, &[]).is_some(), told, "{stalled} of 1000 ms");
    }
}
