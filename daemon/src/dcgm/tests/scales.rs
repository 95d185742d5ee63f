//! Whether a page's ratios are ratios, or percentages that somebody has made of them.

use proptest::prelude::*;
use warpmeter_core::ratio::Ppb;

use super::*;

/// How the device of a page is shown: its place, and whether the driver's utilisation is beside it.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// An A100, with its utilisation.
    Whole,
    /// An instance of one.
    Instance,
}

impl Kind {
    fn gpus(self) -> [Gpu; 1] {
        match self {
            Self::Whole => [gpu(A100, Some(Counter::Dcgm))],
            Self::Instance => [mig(MIG, &[(1, 0)])],
        }
    }

    /// A page that has this for the device's activity, and `utilisation` for what the driver says of it.
    fn page(self, active: &str, utilisation: u32) -> String {
        let (labels, utilised) = match self {
            Self::Whole => (format!("UUID=\"{A100}\""), true),
            Self::Instance => (format!("UUID=\"{MIG}\",GPU_I_ID=\"1\""), false),
        };
        let mut page = String::new();
        let mut line =
            |field: &str, value: &str| page.push_str(&format!("DCGM_FI_{field}{{{labels}}} {value}\n"));
        line("PROF_GR_ENGINE_ACTIVE", active);
        line("PROF_SM_ACTIVE", active);
        line("DEV_TOTAL_ENERGY_CONSUMPTION", &format!("{}1", active.replace('.', "")));
        if utilised {
            line("DEV_GPU_UTIL", &utilisation.to_string());
        }
        page
    }
}

/// Looks every 5 s at an exporter that collects these, one in 30 s, beginning at `start` seconds.
fn watch(desk: &mut Desk, kind: Kind, start: u64, collected: &[(&str, u32)]) {
    for (number, (active, utilisation)) in (0..).zip(collected) {
        for look in 0..6 {
            let second = start + number * 30 + look * 5;
            desk.look(&kind.page(active, *utilisation), second * SECOND);
        }
    }
}

fn found(desk: &mut Desk) -> Vec<u32> {
    desk.averages().iter().filter_map(|it| it.means.sm_active.map(Ppb::parts)).collect()
}

const SMALL: [(&str, u32); 6] = [("0.4", 0), ("0.31", 0), ("0.52", 1), ("0.4", 0), ("0.33", 0), ("0.6", 1)];

#[test]
fn small_percentages_of_an_instance_are_unknown_and_not_a_hundred_times_as_much() {
    for kind in [Kind::Instance, Kind::Whole] {
        let mut desk = Desk::unknown(&kind.gpus());
        watch(&mut desk, kind, 1000, &SMALL);
        assert_eq!(found(&mut desk), [0; 0], "{kind:?}");
        assert_says(&desk.health(), HealthState::Degraded, &["nothing has shown yet", "[dcgm] scale"]);
    }
}

#[test]
fn a_page_that_was_in_percent_stays_so_until_a_reading_fails_and_is_not_believed_even_then() {
    let mut desk = Desk::new(&Kind::Instance.gpus(), 30 * SECOND, 5 * SECOND);
    watch(&mut desk, Kind::Instance, 1000, &[("87.4", 0)]);
    // An hour: small ones all the time.
    for round in 0..20 {
        watch(&mut desk, Kind::Instance, 1030 + round * 180, &SMALL);
    }
    assert_eq!(found(&mut desk), [0; 0]);
    assert_says(&desk.health(), HealthState::Degraded, &["percentages", "started anew"]);
    let mut desk = Desk::unknown(&Kind::Instance.gpus());
    watch(&mut desk, Kind::Instance, 1000, &[("87.4", 0), ("0.4", 0)]);
    desk.fail(1060 * SECOND);
    watch(&mut desk, Kind::Instance, 1065, &SMALL);
    assert_eq!(found(&mut desk), [0; 0]);
    assert_says(&desk.health(), HealthState::Degraded, &["nothing has shown yet"]);
}

#[test]
fn a_page_is_believed_once_its_engine_agrees_with_the_driver_or_does_not_rest_or_the_configuration_says_so() {
    let works = [("0.41", 44), ("0.38", 35), ("0.45", 51), ("0.4", 38), ("0.2", 0), ("0.3", 25)];
    let mut desk = Desk::unknown(&Kind::Whole.gpus());
    watch(&mut desk, Kind::Whole, 1000, &works);
    assert_eq!(found(&mut desk), [450_000_000, 400_000_000, 200_000_000, 300_000_000]);
    assert_says(&desk.health(), HealthState::Up, &[]);
    let full = [("0.999", 0), ("1.0", 0), ("0.998", 0), ("0.4", 0), ("0.2", 0)];
    let mut desk = Desk::unknown(&Kind::Instance.gpus());
    watch(&mut desk, Kind::Instance, 1000, &full);
    assert_eq!(found(&mut desk), [998_000_000, 400_000_000, 200_000_000]);
    let mut desk = Desk::new(&Kind::Instance.gpus(), 30 * SECOND, 5 * SECOND);
    watch(&mut desk, Kind::Instance, 1000, &SMALL);
    assert_eq!(found(&mut desk).len(), 4, "of the first two it is not known where they begin");
}

#[test]
fn what_another_gpu_of_the_page_has_shown_holds_for_an_instance() {
    let gpus = [Kind::Instance.gpus(), Kind::Whole.gpus()].concat();
    let mut desk = Desk::unknown(&gpus);
    for (number, (active, utilisation)) in (0..).zip([("0.41", 44), ("0.38", 35), ("0.45", 51), ("0.3", 30)])
    {
        for look in 0..6 {
            let whole = Kind::Whole.page(active, utilisation);
            let instance = Kind::Instance.page(&format!("0.00{number}1"), 0);
            desk.look(&format!("{whole}{instance}"), (1000 + number * 30 + look * 5) * SECOND);
        }
    }
    let of_instance = desk.averages().into_iter().filter(|it| it.device.mig.is_some());
    let found: Vec<_> = of_instance.map(|it| it.means.sm_active.map(Ppb::parts)).collect();
    assert_eq!(found, [Some(2_100_000), Some(3_100_000)]);
}

proptest! {
    #[test]
    fn of_a_page_that_nothing_is_known_of_only_zeros_are_taken(
        collected in prop::collection::vec(prop_oneof![Just(0), 1..994_999_u32], 1..40),
        failures in prop::collection::vec(0..40_usize, 0..4),
    ) {
        let mut desk = Desk::unknown(&Kind::Instance.gpus());
        for (number, active) in collected.iter().enumerate() {
            let active = format!("0.{active:06}");
            let start = 1000 + number as u64 * 30;
            watch(&mut desk, Kind::Instance, start, &[(active.as_str(), 0)]);
            if failures.contains(&number) {
                desk.fail((start + 28) * SECOND);
            }
        }
        prop_assert!(found(&mut desk).iter().all(|parts| *parts == 0));
    }

    #[test]
    fn nothing_is_taken_of_a_page_that_has_shown_a_percentage(
        before in prop::collection::vec(0..1_000_000_u32, 0..10),
        percent in 2_000..100_000_u32,
        after in prop::collection::vec((0..1_000_000_u32, 0..100_u32), 1..30),
    ) {
        let mut desk = Desk::unknown(&Kind::Whole.gpus());
        let all = before.iter().map(|active| (format!("0.{active:06}"), 0));
        let all = all.chain([(format!("{}.{:03}", percent / 1000, percent % 1000), 0)]);
        let pages: Vec<(String, u32)> = all.collect();
        let pages: Vec<(&str, u32)> = pages.iter().map(|(active, used)| (&**active, *used)).collect();
        watch(&mut desk, Kind::Whole, 1000, &pages);
        desk.averages();
        let start = 1000 + pages.len() as u64 * 30;
        let pages: Vec<(String, u32)> =
            after.iter().map(|(active, used)| (format!("0.{active:06}"), *used)).collect();
        let pages: Vec<(&str, u32)> = pages.iter().map(|(active, used)| (&**active, *used)).collect();
        watch(&mut desk, Kind::Whole, start, &pages);
        prop_assert_eq!(desk.averages(), []);
    }
}
