use super::{Corroboration, Pressure, PressureTotals, Pressures, Resource, States, Throttled};
use crate::identity::{ContainerId, PodUid};
use crate::state::State;
use crate::time::{MonoNs, SECOND};

fn pod() -> PodUid {
    PodUid::new("p")
}

fn at(seconds: u64) -> MonoNs {
    MonoNs(seconds * SECOND)
}

fn read(waited: [Option<u64>; 3], throttled: &[(&str, u64)]) -> Pressure {
    let one = |(name, nanos): &(&str, u64)| Throttled {
        container: (!name.is_empty()).then(|| ContainerId::new(*name)),
        nanos: *nanos,
    };
    Pressure { pod: pod(), waited, throttled: throttled.iter().map(one).collect() }
}

fn states(amounts: &[(State, u64)]) -> States {
    let mut states = [0; State::COUNT];
    for (state, amount) in amounts {
        states[state.index()] = *amount;
    }
    states
}

#[test]
fn totals_begin_at_the_first_reading_and_a_cgroup_that_was_made_anew_takes_nothing_back() {
    let mut pressures = Pressures::default();
    let none = states(&[]);
    assert_eq!(pressures.totals(&pod()), None);
    pressures.take(&read([Some(500), None, Some(7)], &[("", 40), ("a", 900)]), at(1), none);
    let begun = PressureTotals { waited: [Some(0), None, Some(0)], throttled: Some(0) };
    assert_eq!(pressures.totals(&pod()), Some(begun));
    pressures.take(&read([Some(530), None, Some(7)], &[("", 41), ("a", 1000)]), at(6), none);
    // The container came back under another id, and then the kernel counts from 0.
    pressures.take(&read([Some(540), None, Some(7)], &[("", 41), ("b", 20)]), at(11), none);
    pressures.take(&read([Some(3), None, Some(9)], &[("", 45), ("b", 25)]), at(16), none);
    let sums = PressureTotals { waited: [Some(40), None, Some(2)], throttled: Some(101 + 4 + 5) };
    assert_eq!(pressures.totals(&pod()), Some(sums));
    pressures.take(&read([None; 3], &[]), at(21), none);
    assert_eq!(pressures.totals(&pod()), Some(sums), "what was known stays known");
}

#[test]
fn only_the_resource_of_the_leading_cause_corroborates_it() {
    let all = [Some(0), Some(0), Some(0)];
    let later = [Some(10 * SECOND), Some(20 * SECOND), Some(30 * SECOND)];
    let cases = [
        (State::StalledCpuWait, Some(10 * SECOND), Some(8 * SECOND), Some(true)),
        (State::StalledDiskRead, Some(20 * SECOND), None, Some(true)),
        (State::StalledDiskWrite, Some(20 * SECOND), None, Some(true)),
        (State::StalledMemory, Some(30 * SECOND), None, Some(true)),
        (State::StalledCpu, None, None, None),
        (State::StalledNetwork, None, None, None),
        (State::StalledSync, None, None, None),
    ];
    for (leading, waited, throttled, confirmed) in cases {
        let mut pressures = Pressures::default();
        pressures.take(&read(all, &[("a", 0)]), at(5), states(&[]));
        let grown = states(&[(leading, 9 * SECOND), (State::StalledLaunch, 4), (State::Active, 90 * SECOND)]);
        pressures.take(&read(later, &[("a", 8 * SECOND)]), at(45), grown);
        let found = pressures.corroboration(&pod(), at(46)).unwrap();
        let stalled = 9 * SECOND;
        assert_eq!(found, Corroboration { leading, stalled, during: 40 * SECOND, waited, throttled });
        assert_eq!(found.confirmed(), confirmed, "{leading:?}");
    }
}

#[test]
fn a_signal_that_shows_nothing_contradicts_and_one_that_cannot_is_silent() {
    let of = |waited, throttled| {
        let leading = State::StalledCpuWait;
        Corroboration { leading, stalled: SECOND, during: 60 * SECOND, waited, throttled }.confirmed()
    };
    assert_eq!(of(Some(SECOND / 2), Some(0)), Some(false));
    assert_eq!(of(Some(SECOND / 2), Some(SECOND)), Some(true));
    assert_eq!(of(Some(2 * SECOND), None), Some(true));
    assert_eq!(of(None, Some(0)), None, "without a limit threads wait for CPUs too");
    assert_eq!(of(None, Some(SECOND)), Some(true));
    assert_eq!(of(None, None), None);
}

#[test]
fn corroboration_is_of_the_last_minute_and_of_nothing_where_nothing_stalled() {
    let mut pressures = Pressures::default();
    let cause = |seconds| states(&[(State::StalledMemory, seconds * SECOND)]);
    for second in (0..=200).step_by(5) {
        let waited = [None, None, Some(second * SECOND / 2)];
        pressures.take(&read(waited, &[]), at(second), cause(second.min(100)));
        let found = pressures.corroboration(&pod(), at(second));
        assert!(found.is_none_or(|found| found.during <= 60 * SECOND), "{found:?}");
        match second {
            0 => assert_eq!(found, None, "one reading is no stretch"),
            5..160 => {
                let found = found.unwrap();
                assert_eq!(found.waited, Some(found.during / 2));
                assert!(found.stalled <= found.during);
            }
            160.. => assert_eq!(found, None, "no stall since 100 s"),
            _ => {}
        }
    }
    pressures.take(&read([None; 3], &[]), at(205), cause(101));
    assert!(pressures.corroboration(&pod(), at(264)).is_some());
    assert_eq!(pressures.corroboration(&pod(), at(265)), None, "its cgroups are no longer read");
    pressures.retain(|_| false);
    assert_eq!(pressures.totals(&pod()), None);
}

#[test]
fn every_resource_has_the_name_of_its_file() {
    assert_eq!(Resource::ALL.map(Resource::label), ["cpu", "io", "memory"]);
}
