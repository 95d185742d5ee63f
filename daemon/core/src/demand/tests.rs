use proptest::prelude::*;

use super::*;

const S: u64 = 1_000_000_000;

fn unit(name: &str) -> Owner {
    Owner::Unit(name.into())
}

fn synchronous(name: &str, outstanding: u64) -> Demand {
    Demand { owner: Some(unit(name)), outstanding, open: Vec::new(), launches: 0, threads: None }
}

fn of(seen: Vec<Demand>) -> Demands {
    Demands { covered: S, seen, unseen: false }
}

/// Milliseconds of `name`; of nobody without a name.
fn ms(split: &Split<Option<Owner>>, name: &str) -> u64 {
    let owner = (!name.is_empty()).then(|| unit(name));
    let sum: u64 = split.parts().iter().filter(|(other, _)| *other == owner).map(|(_, amount)| amount).sum();
    (sum + 500_000) / 1_000_000
}

#[test]
fn those_who_always_have_work_share_equally() {
    let split = of(vec![synchronous("a", S), synchronous("b", S), synchronous("c", S)]).divide(S, S).unwrap();
    for name in ["a", "b", "c"] {
        assert!(ms(&split, name).abs_diff(333) <= 1, "{}", ms(&split, name));
    }
}

#[test]
fn who_waits_for_turns_has_run_for_half_of_its_wait() {
    // 1 ms of work every 10 ms beside one that never stops: outstanding for 2 ms of each 10.
    let split = of(vec![synchronous("modest", S / 5), synchronous("greedy", S)]).divide(S, S).unwrap();
    assert_eq!(ms(&split, "modest"), 100);
    assert_eq!(ms(&split, "greedy"), 900);
}

#[test]
fn who_had_nothing_outstanding_has_used_nothing() {
    let split = of(vec![synchronous("a", S / 2), synchronous("silent", 0)]).divide(S / 2, S).unwrap();
    assert_eq!((ms(&split, "a"), ms(&split, "silent")), (500, 0));
    assert_eq!(of(vec![synchronous("silent", 0)]).divide(S / 2, S), None);
}

#[test]
fn a_backlog_between_enqueues_is_as_long_as_the_device_was_busy() {
    // A launch every 10 ms without a wait, each of 3 ms; and one that is seen to wait for 20 % of the time.
    let free = Demand { open: vec![(100, S)], ..synchronous("free", 0) };
    let split = of(vec![free, synchronous("waits", S / 5)]).divide(440_000_000, S).unwrap();
    assert!(ms(&split, "free").abs_diff(270) <= 1, "{}", ms(&split, "free"));
}

#[test]
fn who_never_waits_beside_one_who_always_does_has_used_what_its_launches_come_to() {
    let free = Demand { open: vec![(100, S)], launches: 100, ..synchronous("free", 0) };
    let waits = Demand { launches: 900, ..synchronous("waits", S) };
    let split = of(vec![free, waits]).divide(S, S).unwrap();
    assert_eq!(ms(&split, "free"), 50, "a millisecond a launch, half of which another had the turn");
}

#[test]
fn what_runs_while_nobody_has_work_is_nobodys() {
    let split = of(vec![synchronous("a", S / 10), synchronous("b", S / 10)]).divide(S / 2, S).unwrap();
    // A hundredth of coincidence, and 2 % of boundaries.
    assert_eq!(ms(&split, ""), 500 - 190 - 20);
}

#[test]
fn whoever_was_not_seen_may_have_run_at_any_time_and_is_nobody() {
    let demands = Demands { unseen: true, ..of(vec![synchronous("a", S / 2)]) };
    let split = demands.divide(S / 2, S).unwrap();
    assert_eq!((ms(&split, "a"), ms(&split, "")), (250, 250));
}

#[test]
fn limited_threads_count_while_others_run() {
    let limited = |name, percent, outstanding| Demand {
        threads: Ppb::percent(percent),
        ..synchronous(name, outstanding)
    };
    let split = of(vec![limited("a", 25, S), limited("b", 75, S)]).divide(S, S).unwrap();
    assert_eq!((ms(&split, "a"), ms(&split, "b")), (250, 750));
    // Almost never at the same time.
    let split = of(vec![limited("a", 25, S / 100), limited("b", 75, S / 100)]).divide(S / 50, S).unwrap();
    assert_eq!((ms(&split, "a"), ms(&split, "b")), (10, 10));
}

#[test]
fn two_processes_of_an_owner_have_two_turns() {
    let split = of(vec![synchronous("a", S), synchronous("a", S), synchronous("b", S)]).divide(S, S).unwrap();
    assert!(ms(&split, "a").abs_diff(667) <= 1 && ms(&split, "b").abs_diff(333) <= 1);
}

fn demand() -> impl Strategy<Value = Demand> {
    let gaps = proptest::collection::vec((0..1_000_000_u64, any::<u64>()), 0..4);
    let threads = proptest::option::of((0..=100_u32).prop_map(|percent| Ppb::percent(percent).unwrap()));
    (0..6_u8, any::<u64>(), 0..64_u32, gaps, threads).prop_map(|(owner, nanos, shift, open, threads)| {
        Demand {
            owner: (owner > 0).then(|| Owner::Unit(owner.to_string().into())),
            outstanding: nanos >> shift,
            open,
            launches: nanos >> shift,
            threads,
        }
    })
}

/// Sums by owner.
fn sums(split: &Split<Option<Owner>>) -> std::collections::BTreeMap<Option<Owner>, u64> {
    let mut sums = std::collections::BTreeMap::new();
    for (owner, amount) in split.parts() {
        *sums.entry(owner.clone()).or_default() += amount;
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn parts_always_add_up_whatever_the_probes_say(
        seen in proptest::collection::vec(demand(), 0..20),
        covered in any::<u64>(),
        unseen in any::<bool>(),
        whole in 1..100 * S,
        percent in 0..=100_u64,
    ) {
        let engine = whole * percent / 100;
        if let Some(split) = (Demands { covered, seen, unseen }).divide(engine, whole) {
            let sum: u64 = split.parts().iter().map(|(_, amount)| amount).sum();
            prop_assert_eq!(sum, engine);
        }
    }

    #[test]
    fn the_order_of_processes_moves_no_more_than_a_nanosecond_each(
        seen in proptest::collection::vec(demand(), 1..12),
        percent in 1..=100_u64,
    ) {
        let turned: Vec<Demand> = seen.iter().rev().cloned().collect();
        let count = seen.len() as u64;
        let (one, other) = (of(seen).divide(S * percent / 100, S), of(turned).divide(S * percent / 100, S));
        prop_assert_eq!(one.is_some(), other.is_some());
        for ((_, a), (_, b)) in one.iter().flat_map(sums).zip(other.iter().flat_map(sums)) {
            prop_assert!(a.abs_diff(b) <= count * 64, "{a} {b}");
        }
    }

    #[test]
    fn who_has_more_work_outstanding_than_another_never_gets_less(
        amounts in proptest::collection::vec(0..=S, 2..16),
    ) {
        let seen = amounts.iter().map(|amount| synchronous("x", *amount)).collect();
        let Some(split) = of(seen).divide(S / 2, S) else { return Ok(()) };
        let mut pairs: Vec<(u64, u64)> =
            amounts.iter().zip(split.parts()).map(|(asked, (_, got))| (*asked, *got)).collect();
        pairs.sort_unstable();
        for pair in pairs.windows(2) {
            prop_assert!(pair[1].1 + 64 >= pair[0].1, "{pair:?}");
        }
    }
}
