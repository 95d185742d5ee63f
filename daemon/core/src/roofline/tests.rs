use proptest::prelude::*;

use super::*;

/// Percent of a second.
fn loads(engine: u64, [dram, tensor, vector]: [Option<u64>; 3]) -> Loads {
    let part = |percent: u64| percent * 10_000_000;
    Loads {
        whole: part(100),
        engine: part(engine),
        dram: dram.map(part),
        tensor: tensor.map(part),
        vector: vector.map(part),
        ..Loads::default()
    }
}

fn bound(engine: u64, dram: u64, tensor: u64, vector: u64) -> Result<Bound, Blind> {
    loads(engine, [dram, tensor, vector].map(Some)).bound()
}

#[test]
fn kernels_that_are_known_are_called_what_they_are() {
    let cases = [
        ("a copy within the device", (100, 90, 0, 5), Bound::Bandwidth),
        ("decoding of a language model", (95, 70, 8, 12), Bound::Bandwidth),
        ("a large matrix product", (100, 25, 85, 20), Bound::Compute),
        ("n bodies, without tensor pipes", (100, 2, 0, 80), Bound::Compute),
        ("products and elementwise kernels in turns", (100, 40, 35, 20), Bound::Bandwidth),
        ("pointers chased", (100, 15, 0, 8), Bound::Latency),
        ("one SM that spins", (100, 0, 0, 1), Bound::LowIntensity),
        ("a collective that waits", (100, 4, 0, 3), Bound::LowIntensity),
    ];
    for (what, (engine, dram, tensor, vector), wanted) in cases {
        assert_eq!(bound(engine, dram, tensor, vector), Ok(wanted), "{what}");
    }
}

#[test]
fn the_bound_is_of_the_time_in_which_the_device_was_active() {
    assert_eq!(bound(40, 30, 5, 5), Ok(Bound::Bandwidth), "30 % of the time is 75 % of the active time");
    assert_eq!(bound(100, 30, 5, 5), Ok(Bound::Latency));
    assert_eq!(bound(9, 9, 0, 0), Err(Blind::Brief));
    assert_eq!(bound(0, 0, 0, 0), Err(Blind::Brief));
    assert_eq!(Loads::default().bound(), Err(Blind::Uncounted), "no time at all");
}

#[test]
fn a_roof_that_is_reached_needs_no_other_counter_and_all_are_needed_to_say_that_none_is() {
    let of = |counted| loads(100, counted).bound();
    assert_eq!(of([Some(70), None, None]), Ok(Bound::Bandwidth));
    assert_eq!(of([Some(20), Some(80), None]), Ok(Bound::Compute));
    assert_eq!(of([None, None, Some(80)]), Ok(Bound::Compute));
    for counted in [[Some(20), Some(20), None], [None, Some(0), Some(0)], [Some(0), None, Some(0)], [None; 3]]
    {
        assert_eq!(of(counted), Err(Blind::Uncounted), "{counted:?}");
    }
}

#[test]
fn work_on_a_shared_device_has_no_bound_of_its_own() {
    let loads = loads(100, [Some(90), Some(0), Some(0)]);
    assert_eq!(Roofline::of(loads, false).found, Err(Blind::Shared));
    assert_eq!(Roofline::of(loads, false).bound(), Bound::Unknown);
    assert_eq!(Roofline::of(loads, true).bound(), Bound::Bandwidth);
}

#[test]
fn what_one_stretch_does_not_count_is_not_counted_of_both() {
    let (counted, not) = (loads(50, [Some(40), Some(1), Some(2)]), loads(50, [Some(40), Some(1), None]));
    let both = counted + not;
    assert_eq!((both.dram, both.tensor, both.vector), (Some(800_000_000), Some(20_000_000), None));
    assert_eq!(both.while_active(both.dram), Ppb::percent(80));
    assert_eq!(both.while_active(both.vector), None);
}

#[test]
fn every_bound_has_its_place_and_its_own_label() {
    let mut labels: Vec<&str> = Bound::ALL.iter().map(|bound| bound.label()).collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), Bound::COUNT);
    assert!(Bound::ALL.iter().enumerate().all(|(place, bound)| bound.index() == place));
}

fn maybe() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(0..=100_u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_bound_is_the_same_at_every_scale(
        engine in 0..=100_u64, dram in maybe(), tensor in maybe(), vector in maybe(), by in 1..=1_000_000_u64,
    ) {
        let small = loads(engine, [dram, tensor, vector]);
        let scaled = |load: Option<u64>| load.map(|load| load * by);
        let large = Loads {
            whole: small.whole * by,
            engine: small.engine * by,
            dram: scaled(small.dram),
            tensor: scaled(small.tensor),
            vector: scaled(small.vector),
            ..small
        };
        prop_assert_eq!(small.bound(), large.bound());
    }

    #[test]
    fn idle_time_beside_it_changes_nothing_until_too_little_is_left(
        engine in 10..=100_u64, dram in maybe(), tensor in maybe(), vector in maybe(), idle in 0..10_u64,
    ) {
        let busy = loads(engine, [dram, tensor, vector]);
        let beside = Loads { whole: busy.whole + idle * busy.whole, ..busy };
        let found = beside.bound();
        prop_assert!(found == busy.bound() || found == Err(Blind::Brief));
    }

    #[test]
    fn what_is_not_counted_is_never_taken_for_nothing(
        engine in 10..=100_u64, known in [maybe(), maybe(), maybe()], missing in [0..=100_u64, 0..=100, 0..=100],
    ) {
        let found = loads(engine, known).bound();
        let all = [0, 1, 2].map(|place| known[place].or(Some(missing[place])));
        let truth = loads(engine, all).bound();
        let at_a_roof = |found| matches!(found, Ok(Bound::Bandwidth | Bound::Compute));
        if known.contains(&None) {
            prop_assert!(found == Err(Blind::Uncounted) || at_a_roof(found));
            prop_assert!(!at_a_roof(found) || at_a_roof(truth), "{:?} {:?}", found, truth);
        } else {
            prop_assert_eq!(found, truth);
        }
    }

    #[test]
    fn more_of_a_load_never_leads_away_from_its_roof(
        engine in 10..=100_u64, dram in 0..=100_u64, tensor in 0..=100_u64, vector in 0..=100_u64, more in 0..=100_u64,
    ) {
        let before = bound(engine, dram, tensor, vector);
        if before == Ok(Bound::Bandwidth) {
            prop_assert_eq!(bound(engine, dram + more, tensor, vector), before);
        }
        if before == Ok(Bound::Compute) {
            prop_assert_eq!(bound(engine, dram, tensor + more, vector), before);
            prop_assert_eq!(bound(engine, dram, tensor, vector + more), before);
        }
        let rank = |found: Result<Bound, Blind>| match found {
            Ok(Bound::LowIntensity) => 0,
            Ok(Bound::Latency) => 1,
            _ => 2,
        };
        prop_assert!(rank(bound(engine, dram + more, tensor, vector)) >= rank(before));
    }
}
