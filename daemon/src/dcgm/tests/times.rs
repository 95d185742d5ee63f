//! Which time a value is counted in.

use proptest::prelude::*;
use warpmeter_core::ratio::Ppb;

use super::exporter::{Exporter, Life};
use super::*;

const START: u64 = 1000 * SECOND;

/// Different at each collection, and never 0.
fn varied(round: u64) -> u64 {
    1 + (round * 377_123) % 900_000
}

fn resting(_: u64) -> u64 {
    0
}

fn steady(_: u64) -> u64 {
    500_000
}

fn exporter(active: fn(u64) -> u64) -> Exporter {
    Exporter { interval: 30 * SECOND, first: 7 * SECOND, life: Life::Well, active, energy: true }
}

fn desk() -> Desk {
    Desk::new(&[gpu(A100, Some(Counter::Dcgm))], 30 * SECOND, 5 * SECOND)
}

/// Looks at an exporter every 5 s for so many seconds.
fn watch(desk: &mut Desk, exporter: &Exporter, seconds: u64) {
    for at in (START..START + seconds * SECOND).step_by(5_000_000_000) {
        desk.look(&exporter.page(at), at);
    }
}

proptest! {
    #[test]
    fn each_value_is_counted_in_its_own_interval_to_within_half_the_time_between_looks(
        phase in 0..30 * SECOND,
        interval in 3 * SECOND..40 * SECOND,
        part in 3..12_u64,
        late in prop::collection::vec(0..200_u64, 120),
    ) {
        let exporter = Exporter { interval, first: phase, ..exporter(varied) };
        let period = interval / part;
        let mut desk = Desk::new(&[gpu(A100, Some(Counter::Dcgm))], interval, period);
        let mut at = START;
        for late in late {
            desk.look(&exporter.page(at), at);
            // Looks are late by up to a fifth of a period.
            at += period + period * late / 1000;
        }
        let averages = desk.averages();
        prop_assert!(averages.len() as u64 >= (at - START) / interval - 3, "{}", averages.len());
        for pair in averages.windows(2) {
            prop_assert_eq!(pair[0].during.end(), pair[1].during.start(), "intervals touch");
        }
        for found in &averages {
            let off = period * 3 / 5 + 1;
            let round = exporter.round(found.during.end().0 + off);
            let (start, end) = (exporter.collected(round - 1), exporter.collected(round));
            prop_assert!(found.during.end().0.abs_diff(end) <= off);
            prop_assert!(found.during.start().0.abs_diff(start) <= off);
            let active = Ppb::new(u32::try_from(varied(round) * 1000).unwrap());
            prop_assert_eq!(found.means.sm_active, active, "the value that was collected at its end");
        }
    }

    #[test]
    fn an_exporter_that_dies_has_nothing_counted_after_its_last_collection(died in 0..200_u64, seconds in 300..900_u64) {
        let exporter = Exporter { life: Life::Dead(START + died * SECOND), ..exporter(varied) };
        let mut desk = desk();
        watch(&mut desk, &exporter, seconds);
        let last = exporter.collected(exporter.round(u64::MAX / 2));
        for averages in desk.averages() {
            prop_assert!(averages.during.end().0 <= last + 3 * SECOND);
        }
        assert_says(&desk.health(), HealthState::Degraded, &[A100, "taken for stale", "--collect-interval"]);
    }
}

#[test]
fn a_device_at_rest_is_counted_as_such_while_something_on_the_page_moves() {
    let mut desk = desk();
    watch(&mut desk, &exporter(resting), 600);
    let averages = desk.averages();
    let nanos: u64 = averages.iter().map(|it| it.during.nanos()).sum();
    assert!(averages.iter().all(|it| it.means.sm_active == Some(Ppb::ZERO)));
    assert!((500..=600).contains(&(nanos / SECOND)), "{nanos}");
    assert_says(&desk.health(), HealthState::Up, &[]);
}

#[test]
fn zeros_on_a_page_on_which_nothing_moves_are_not_believed() {
    for dead in [
        Exporter { energy: false, ..exporter(resting) },
        Exporter { life: Life::Dead(START), ..exporter(resting) },
    ] {
        let mut desk = desk();
        watch(&mut desk, &dead, 600);
        assert_eq!(desk.averages(), []);
        assert_says(
            &desk.health(),
            HealthState::Degraded,
            &["stay 0", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"],
        );
    }
}

#[test]
fn a_value_that_stays_to_the_last_digit_is_stale_even_if_other_fields_move() {
    let mut desk = desk();
    watch(&mut desk, &exporter(steady), 600);
    assert_eq!(desk.averages(), []);
    assert_says(&desk.health(), HealthState::Degraded, &["taken for stale"]);
}

#[test]
fn an_exporter_that_is_faster_than_we_look_has_nothing_counted() {
    let mut desk = desk();
    watch(&mut desk, &Exporter { interval: SECOND, ..exporter(varied) }, 300);
    assert_eq!(desk.averages(), []);
    assert_says(&desk.health(), HealthState::Degraded, &["at every look", "[dcgm] interval"]);
}

#[test]
fn an_exporter_that_is_slower_than_it_should_be_has_no_more_counted_than_its_interval() {
    let mut desk = desk();
    watch(&mut desk, &Exporter { interval: 90 * SECOND, ..exporter(varied) }, 900);
    let averages = desk.averages();
    assert!(averages.len() >= 8);
    assert!(averages.iter().all(|it| it.during.nanos() <= 40 * SECOND));
}

#[test]
fn a_page_that_was_half_collected_is_not_taken_for_a_value() {
    let exporter = exporter(varied);
    let mut desk = desk();
    for at in (START..START + 300 * SECOND).step_by(5_000_000_000) {
        let (new, old) = (exporter.page(at), exporter.page(at - 5 * SECOND));
        // SM activity is new, occupancy is as before.
        let torn =
            new.lines().zip(old.lines()).map(|(new, old)| if new.contains("OCCUPANCY") { old } else { new });
        desk.look(&torn.collect::<Vec<_>>().join("\n"), at);
    }
    let averages = desk.averages();
    assert!(averages.len() >= 7);
    for found in averages {
        let (active, occupied) =
            (found.means.sm_active.unwrap().parts(), found.means.sm_occupied.unwrap().parts());
        assert!(active / 2 - occupied <= 1000, "{active} {occupied}");
    }
}

#[test]
fn nothing_is_counted_across_an_outage_and_all_is_after_it() {
    let exporter = exporter(varied);
    let mut desk = desk();
    let away = START + 200 * SECOND..START + 400 * SECOND;
    for at in (START..START + 700 * SECOND).step_by(5_000_000_000) {
        if !away.contains(&at) {
            desk.look(&exporter.page(at), at);
        }
    }
    let averages = desk.averages();
    let crosses = |it: &Averages| it.during.start().0 < away.end && it.during.end().0 > away.start;
    assert!(!averages.iter().any(crosses));
    let after = averages.iter().filter(|it| it.during.start().0 >= away.end).count();
    assert!((7..=10).contains(&after), "{after}");
}

#[test]
fn values_that_contradict_one_another_are_left_out() {
    let exporter = exporter(varied);
    let mut desk = desk();
    for at in (START..START + 300 * SECOND).step_by(5_000_000_000) {
        let page = exporter.page(at);
        let stuck = page.lines().map(|line| match line.split_once("} ") {
            Some((series, _)) if series.contains("PROF_SM_") => format!("{series}}} 0.000000"),
            _ => line.to_owned(),
        });
        desk.look(&stuck.collect::<Vec<_>>().join("\n"), at);
    }
    assert!(desk.discarded(Discard::Conflict) > 10);
    assert_eq!(desk.averages(), []);
    assert_says(&desk.health(), HealthState::Degraded, &["contradicts other fields"]);
}
