//! The stall function: one case a branch, and what holds whatever the probes say.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, reason = "a test that cannot build its input has failed")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use warpmeter_core::habit::Habit;
use warpmeter_core::probe::{Doing, Doings, Gap, GapKind};
use warpmeter_core::stall::{Causes, Host, LAUNCH_GAP, Still, causes};
use warpmeter_core::state::State;
use warpmeter_core::time::MonoNs;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn doings(of: &[(Doing, u64)]) -> Doings {
    let mut sums = [0; Doing::COUNT];
    for (doing, amount) in of {
        sums[*doing as usize] += amount;
    }
    sums
}

/// `count` gaps of together `total`, in which the thread did `doing`.
fn gap(kind: GapKind, count: u64, total: u64, doing: Doing) -> Gap {
    let log2 = u8::try_from((total / count.max(1)).max(1).ilog2()).unwrap();
    Gap { kind, log2, count, total, ended: count, lasted: total, doings: doings(&[(doing, total)]) }
}

/// How long the gaps' one process waited in synchronising calls.
fn waited(gaps: &[Gap]) -> u64 {
    gaps.iter().filter(|gap| gap.kind == GapKind::Sync).map(|gap| gap.total).sum()
}

fn host(gaps: &[Gap]) -> Host {
    Host { gaps: gaps.to_vec(), alone: true, waited: waited(gaps), ..Host::default() }
}

fn still(used: u64, others: u64) -> Still {
    Still { whole: SECOND, used, others }
}

fn amounts(causes: &Causes) -> Vec<(State, u64)> {
    causes.amounts.iter().map(|(state, amount)| (*state, *amount)).collect()
}

fn found(still: Still, host: &Host) -> Vec<(State, u64)> {
    amounts(&causes(still, host))
}

#[test]
fn without_a_gap_nothing_is_known() {
    assert_eq!(found(still(400 * MS, 0), &host(&[])), [(State::UnknownNoEvidence, 600 * MS)]);
    assert_eq!(found(still(SECOND, 0), &host(&[])), []);
}

#[test]
fn a_drained_device_stands_still_for_what_the_thread_did_meanwhile() {
    let cases = [
        (Doing::Cpu, State::StalledCpu),
        (Doing::CpuWait, State::StalledCpuWait),
        (Doing::DiskRead, State::StalledDiskRead),
        (Doing::DiskWrite, State::StalledDiskWrite),
        (Doing::Network, State::StalledNetwork),
        (Doing::Memory, State::StalledMemory),
        (Doing::Lock, State::StalledLock),
        (Doing::Request, State::IdleNoWork),
        (Doing::Timer, State::IdleNoWork),
        (Doing::Poll, State::UnknownNoEvidence),
        (Doing::Unknown, State::UnknownNoEvidence),
    ];
    for (doing, state) in cases {
        let seen = host(&[gap(GapKind::Drained, 10, 600 * MS, doing)]);
        assert_eq!(found(still(400 * MS, 0), &seen), [(state, 600 * MS)], "{doing:?}");
    }
}

#[test]
fn a_gap_is_divided_by_what_the_thread_did_in_it() {
    let mixed = Gap {
        doings: doings(&[(Doing::DiskRead, 300 * MS), (Doing::Cpu, 100 * MS)]),
        ..gap(GapKind::Drained, 4, 400 * MS, Doing::Cpu)
    };
    let expected = [(State::StalledDiskRead, 300 * MS), (State::StalledCpu, 100 * MS)];
    assert_eq!(found(still(600 * MS, 0), &host(&[mixed])), expected);
}

#[test]
fn many_short_gaps_are_the_cost_of_launching() {
    let count = 400 * MS / (LAUNCH_GAP - 1);
    let seen = host(&[gap(GapKind::Drained, count, count * (LAUNCH_GAP - 1), Doing::Cpu)]);
    let short = found(Still { whole: count * (LAUNCH_GAP - 1), used: 0, others: 0 }, &seen);
    assert_eq!(short, [(State::StalledLaunch, count * (LAUNCH_GAP - 1))]);
    let long = host(&[gap(GapKind::Drained, 10, 10 * LAUNCH_GAP, Doing::Cpu)]);
    let still = Still { whole: 10 * LAUNCH_GAP, used: 0, others: 0 };
    assert_eq!(found(still, &long), [(State::StalledCpu, 10 * LAUNCH_GAP)]);
}

#[test]
fn the_later_part_of_a_gap_is_not_short() {
    let rest = host(&[gap(GapKind::Drained, 0, LAUNCH_GAP / 2, Doing::Network)]);
    let still = Still { whole: LAUNCH_GAP / 2, used: 0, others: 0 };
    assert_eq!(found(still, &rest), [(State::StalledNetwork, LAUNCH_GAP / 2)]);
}

#[test]
fn a_device_that_ran_while_it_was_drained_is_a_contradiction() {
    let seen = host(&[gap(GapKind::Drained, 1, 800 * MS, Doing::Cpu)]);
    let causes = causes(still(400 * MS, 0), &seen);
    assert!(causes.contradicted);
    assert_eq!(amounts(&causes), [(State::StalledCpu, 600 * MS)], "gaps are scaled to what stood still");
    let near = host(&[gap(GapKind::Drained, 1, 610 * MS, Doing::Cpu)]);
    let near = self::causes(still(400 * MS, 0), &near);
    assert!(!near.contradicted, "a boundary apart");
    assert_eq!(amounts(&near), [(State::StalledCpu, 600 * MS)]);
}

#[test]
fn what_one_of_several_processes_drained_may_hide_a_backlog_of_the_others() {
    let gaps = [gap(GapKind::Drained, 10, 800 * MS, Doing::Cpu)];
    let several = Host { alone: false, ..host(&gaps) };
    let causes = causes(still(600 * MS, 0), &several);
    assert!(!causes.contradicted);
    assert_eq!(amounts(&causes), [(State::StalledCpu, 400 * MS)]);
}

#[test]
fn in_a_synchronising_call_the_device_is_others_then_copies_then_nobodys() {
    let waits = gap(GapKind::Sync, 10, 900 * MS, Doing::Unknown);
    let seen = Host { copies: 150 * MS, ..host(&[waits]) };
    let expected = [
        (State::StalledTransfer, 150 * MS),
        (State::StalledSync, 250 * MS),
        (State::StalledContended, 300 * MS),
        (State::UnknownNoEvidence, 100 * MS),
    ];
    assert_eq!(found(still(200 * MS, 300 * MS), &seen), expected);
}

#[test]
fn a_copy_that_kernels_ran_before_is_transfer_and_not_what_the_thread_did_while_they_ran() {
    // Ten times: kernels of 50 ms while the thread computes, and then a copy of 45 ms.
    let gaps =
        [gap(GapKind::Enqueue, 10, 550 * MS, Doing::Cpu), gap(GapKind::Sync, 10, 450 * MS, Doing::Unknown)];
    let seen = Host { copies: 450 * MS, copying: 450 * MS, ..host(&gaps) };
    let expected = [(State::StalledCpu, 50 * MS), (State::StalledTransfer, 450 * MS)];
    assert_eq!(found(still(500 * MS, 0), &seen), expected);
    // Most of the wait was for the kernels, which began late: little was copied.
    let seen = Host { copying: 20 * MS, ..seen };
    let expected = [(State::StalledCpu, 480 * MS), (State::StalledTransfer, 20 * MS)];
    assert_eq!(found(still(500 * MS, 0), &seen), expected);
    // Another process's kernels may run while this one's copy does.
    let several = Host { alone: false, copying: 450 * MS, ..seen };
    assert_eq!(found(still(500 * MS, 0), &several), [(State::StalledCpu, 500 * MS)]);
}

#[test]
fn waiting_for_ones_own_work_is_no_stall() {
    let seen = host(&[gap(GapKind::Sync, 10, 950 * MS, Doing::Unknown)]);
    assert_eq!(found(still(950 * MS, 0), &seen), [(State::UnknownNoEvidence, 50 * MS)]);
}

#[test]
fn gaps_between_enqueues_that_fit_are_believed() {
    let seen = host(&[gap(GapKind::Enqueue, 10, 500 * MS, Doing::DiskRead)]);
    let expected = [(State::StalledDiskRead, 500 * MS), (State::UnknownNoEvidence, 100 * MS)];
    assert_eq!(found(still(400 * MS, 0), &seen), expected);
}

#[test]
fn a_backlog_is_the_same_for_every_gap() {
    // 10 gaps of 50 ms and 100 of 5 ms in 1 s; the device ran for 700 ms. With a backlog of 20 ms a gap, the short
    // ones hide nothing and the long ones 300 ms in all.
    let seen = host(&[
        gap(GapKind::Enqueue, 100, 500 * MS, Doing::Cpu),
        gap(GapKind::Enqueue, 10, 500 * MS, Doing::Network),
    ]);
    assert_eq!(found(still(700 * MS, 0), &seen), [(State::StalledNetwork, 300 * MS)]);
}

#[test]
fn processes_that_wait_while_anothers_work_runs_do_not_add_up_to_a_wait_in_which_nothing_runs() {
    // Two, each for its own 200 ms of work and for the other's, and 600 ms of reading.
    let gaps = [
        gap(GapKind::Sync, 20, 800 * MS, Doing::Unknown),
        gap(GapKind::Enqueue, 20, 1200 * MS, Doing::DiskRead),
    ];
    let seen = Host { alone: false, waited: 400 * MS, ..host(&gaps) };
    assert_eq!(found(still(400 * MS, 0), &seen), [(State::StalledDiskRead, 600 * MS)]);
}

#[test]
fn who_waits_for_a_busy_feeder_is_held_up_by_what_holds_up_that_one() {
    let waits = host(&[gap(GapKind::Drained, 10, 600 * MS, Doing::Lock)]);
    let feeders = doings(&[
        (Doing::DiskRead, 300 * MS),
        (Doing::Cpu, 100 * MS),
        (Doing::Timer, 5 * SECOND),
        (Doing::Lock, 5 * SECOND),
    ]);
    let expected =
        [(State::StalledDiskRead, 300 * MS), (State::StalledCpu, 100 * MS), (State::StalledLock, 200 * MS)];
    let expected: BTreeMap<State, u64> = expected.into();
    assert_eq!(causes(still(400 * MS, 0), &Host { feeders, ..waits.clone() }).amounts, expected);
    let busy = doings(&[(Doing::Network, 4 * SECOND)]);
    let seen = Host { feeders: busy, ..waits };
    assert_eq!(found(still(400 * MS, 0), &seen), [(State::StalledNetwork, 600 * MS)]);
}

#[test]
fn a_feeder_explains_no_more_than_it_was_busy() {
    let gaps =
        [gap(GapKind::Drained, 1, 300 * MS, Doing::Lock), gap(GapKind::Drained, 10, 300 * MS, Doing::Poll)];
    let feeders = doings(&[(Doing::DiskWrite, 400 * MS)]);
    let expected = [(State::StalledDiskWrite, 400 * MS), (State::UnknownNoEvidence, 200 * MS)];
    assert_eq!(found(still(400 * MS, 0), &Host { feeders, ..host(&gaps) }), expected);
}

#[test]
fn where_wake_ups_are_followed_a_lock_is_one_and_only_what_is_not_known_yet_is_passed_on() {
    let gaps =
        [gap(GapKind::Drained, 1, 300 * MS, Doing::Lock), gap(GapKind::Drained, 10, 300 * MS, Doing::Poll)];
    let feeders = doings(&[(Doing::DiskWrite, 400 * MS)]);
    let expected = [(State::StalledDiskWrite, 300 * MS), (State::StalledLock, 300 * MS)];
    assert_eq!(found(still(400 * MS, 0), &Host { feeders, followed: true, ..host(&gaps) }), expected);
}

#[test]
fn a_wait_that_goes_on_is_like_those_that_ended_as_far_as_they_go() {
    let mut waits = gap(GapKind::Drained, 10, 500 * MS, Doing::Network);
    waits.total += 150 * MS;
    waits.doings[Doing::Cpu as usize] = 50 * MS;
    waits.doings[Doing::Poll as usize] = 100 * MS;
    // Of what the process computed, a fifth was for others that waited; what else it waited for is of other threads.
    let passed = doings(&[(Doing::Network, 490 * MS), (Doing::Cpu, 10 * MS), (Doing::DiskRead, 400 * MS)]);
    let feeders = doings(&[(Doing::DiskWrite, SECOND)]);
    let seen = Host { passed, feeders, followed: true, ..host(&[waits]) };
    let expected = [(State::StalledNetwork, 598 * MS), (State::StalledCpu, 52 * MS)];
    assert_eq!(found(still(350 * MS, 0), &seen), expected);
    // One that is longer than all that ended together.
    let long = Host { passed: doings(&[(Doing::Network, 30 * MS)]), ..seen };
    let expected =
        [(State::StalledDiskWrite, 70 * MS), (State::StalledNetwork, 530 * MS), (State::StalledCpu, 50 * MS)];
    assert_eq!(found(still(350 * MS, 0), &long), expected);
}

fn any_gap() -> impl Strategy<Value = Gap> {
    let kind = prop_oneof![Just(GapKind::Drained), Just(GapKind::Enqueue), Just(GapKind::Sync)];
    let doings = prop::array::uniform11(0..=SECOND);
    (kind, 0..5000_u64, doings).prop_map(|(kind, count, doings)| {
        let total: u64 = doings.iter().sum();
        Gap { kind, log2: 0, count, total, ended: count, lasted: total, doings }
    })
}

fn any_host() -> impl Strategy<Value = Host> {
    let feeders = prop::array::uniform11(0..=4 * SECOND);
    let sampled = prop::array::uniform11(0..=SECOND / 4);
    let passed = prop::array::uniform11(0..=SECOND);
    let gaps = prop_oneof![Just(Vec::new()), prop::collection::vec(any_gap(), 0..12)];
    let habit = prop::collection::btree_map(prop::sample::select(State::ALL.to_vec()), 0..=SECOND, 0..4);
    (gaps, 0..=2 * SECOND, any::<[bool; 3]>(), feeders, passed, sampled, habit, 0..=SECOND).prop_map(
        |(gaps, copies, [alone, followed, shed], feeders, passed, sampled, habit, habit_used)| Host {
            waited: waited(&gaps),
            gaps,
            copies,
            copying: copies / 2,
            alone,
            feeders,
            passed,
            sampled,
            samples: 16,
            followed,
            shed,
            habit: Some(Habit::of(
                &Causes { amounts: habit.clone(), rules: BTreeMap::new(), contradicted: false },
                &Host::default(),
                habit.values().sum::<u64>() + habit_used,
                MonoNs(0),
            ))
            .filter(|_| shed),
            ..Host::default()
        },
    )
}

/// Time of a stretch, of which the owner used a part and others a part of the rest.
fn any_still() -> impl Strategy<Value = Still> {
    (1..=2 * SECOND, 0..=1000_u64, 0..=1000_u64).prop_map(|(whole, used, others)| {
        let used = whole * used / 1000;
        Still { whole, used, others: (whole - used) * others / 1000 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_causes_sum_to_what_was_not_used(still in any_still(), host in any_host()) {
        let causes = causes(still, &host);
        prop_assert_eq!(causes.amounts.values().sum::<u64>(), still.whole - still.used);
        prop_assert!(causes.amounts.values().all(|amount| *amount > 0));
    }

    #[test]
    fn no_cause_without_evidence(still in any_still(), host in any_host()) {
        let host = Host { shed: false, habit: None, ..host };
        let causes = causes(still, &host);
        let did = |doing: Doing| {
            let sampled = host.alone && host.gaps.is_empty() && host.sampled[doing as usize] > 0;
            sampled || host.gaps.iter().any(|gap| gap.doings[doing as usize] > 0)
        };
        let fed = |doing: Doing| {
            host.feeders[doing as usize] > 0 && (did(Doing::Poll) || did(Doing::Lock) && !host.followed)
        };
        let gaps = |kind: GapKind| host.gaps.iter().any(|gap| gap.kind == kind && gap.total > 0);
        for state in causes.amounts.keys() {
            let evidence = match state {
                State::StalledCpu => did(Doing::Cpu) || fed(Doing::Cpu),
                State::StalledCpuWait => did(Doing::CpuWait) || fed(Doing::CpuWait),
                State::StalledDiskRead => did(Doing::DiskRead) || fed(Doing::DiskRead),
                State::StalledDiskWrite => did(Doing::DiskWrite) || fed(Doing::DiskWrite),
                State::StalledNetwork => did(Doing::Network) || fed(Doing::Network),
                State::StalledMemory => did(Doing::Memory) || fed(Doing::Memory),
                State::StalledLock => did(Doing::Lock),
                State::StalledTransfer => gaps(GapKind::Sync) && host.copies > 0,
                State::StalledSync => gaps(GapKind::Sync),
                State::StalledContended => gaps(GapKind::Sync) && still.others > 0,
                State::StalledLaunch => gaps(GapKind::Drained) || gaps(GapKind::Enqueue),
                State::IdleNoWork => did(Doing::Request) || did(Doing::Timer),
                State::UnknownNoEvidence => true,
                _ => false,
            };
            prop_assert!(evidence, "{:?}", state);
        }
    }

    #[test]
    fn no_sampled_cause_is_more_than_the_device_cannot_have_worked_meanwhile(
        still in any_still(), host in any_host()
    ) {
        let host = Host { gaps: Vec::new(), feeders: Doings::default(), shed: false, habit: None, ..host };
        let causes = causes(still, &host);
        let certain = |doing: Doing| host.sampled[doing as usize].saturating_sub(still.used + still.others);
        for (doing, state) in [
            (Doing::Cpu, State::StalledCpu),
            (Doing::DiskRead, State::StalledDiskRead),
            (Doing::Network, State::StalledNetwork),
            (Doing::Lock, State::StalledLock),
        ] {
            prop_assert!(causes.amounts.get(&state).is_none_or(|amount| *amount <= certain(doing)));
        }
    }

    #[test]
    fn the_order_of_gaps_means_nothing_but_to_the_last_nanosecond(
        still in any_still(), host in any_host(), seed in any::<u64>()
    ) {
        let mut turned = host.clone();
        let places = turned.gaps.len().max(1);
        turned.gaps.rotate_left(usize::try_from(seed % places as u64).unwrap());
        let (one, other) = (causes(still, &host), causes(still, &turned));
        for state in State::ALL {
            let amount = |causes: &Causes| causes.amounts.get(&state).copied().unwrap_or(0);
            prop_assert!(amount(&one).abs_diff(amount(&other)) <= 200, "{:?}", state);
        }
    }
}
