//! Which changes of a source's health are worth a line of the log.
//!
//! Every change of its state is. While the state stays, a reason may vary without end (a message of another program, a
//! count), and then only some of the changes are: `/status` has the reason of now.

use std::collections::BTreeMap;

use warpmeter_core::fact::{Health, HealthState, Source};
use warpmeter_core::time::{MonoNs, SECOND};

/// How many changes of its reason a source may have logged one after another.
const BURST: u64 = 4;
/// How long until it may have one more.
const EARN: u64 = 600 * SECOND;

/// What has been logged of each source.
#[derive(Debug, Default)]
pub(crate) struct Told {
    sources: BTreeMap<Source, Last>,
}

#[derive(Debug)]
struct Last {
    state: HealthState,
    reason: String,
    /// Changes of its reason that may still be logged, as of an instant.
    left: u64,
    as_of: MonoNs,
}

impl Told {
    /// Whether `health` is to be logged, which is then taken as done.
    pub(crate) fn is_news(&mut self, source: Source, health: &Health, now: MonoNs) -> bool {
        let Some(last) = self.sources.get_mut(&source) else {
            let last = Last { state: health.state, reason: health.reason.clone(), left: BURST, as_of: now };
            self.sources.insert(source, last);
            return true;
        };
        if last.state == health.state {
            let earned = now.since(last.as_of) / EARN;
            last.left = last.left.saturating_add(earned).min(BURST);
            last.as_of = last.as_of.plus(earned * EARN);
            if last.reason == health.reason || last.left == 0 {
                return false;
            }
            last.left -= 1;
        }
        last.state = health.state;
        last.reason.clone_from(&health.reason);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(changes: impl Iterator<Item = (u64, HealthState, String)>) -> Vec<u64> {
        let mut told = Told::default();
        let mut news = |(second, state, reason): (u64, HealthState, String)| {
            let health = Health { state, reason };
            told.is_news(Source::Pods, &health, MonoNs(second * SECOND)).then_some(second)
        };
        changes.filter_map(&mut news).collect()
    }

    #[test]
    fn a_reason_that_varies_without_end_gives_some_lines_and_then_one_every_ten_minutes() {
        let varying = (0..3600).map(|second| (second, HealthState::Down, format!("attempt {second}")));
        assert_eq!(lines(varying), [0, 1, 2, 3, 4, 600, 1200, 1800, 2400, 3000]);
    }

    #[test]
    fn a_change_of_state_is_always_told_and_what_stays_never_again() {
        let states = [HealthState::Up, HealthState::Degraded, HealthState::Down];
        let states = states.iter().cycle().flat_map(|state| [*state; 10]);
        let changing = (0..300).zip(states).map(|(second, state)| (second, state, String::new()));
        assert_eq!(lines(changing), (0..30).map(|turn| turn * 10).collect::<Vec<_>>());
    }

    #[test]
    fn one_source_takes_nothing_from_another() {
        let mut told = Told::default();
        for second in 0..100 {
            let health = Health { state: HealthState::Down, reason: second.to_string() };
            told.is_news(Source::Pods, &health, MonoNs(second));
        }
        let health = Health { state: HealthState::Down, reason: "x".into() };
        assert!(told.is_news(Source::Names, &health, MonoNs(100)));
    }
}
