//! How well the probes do, in words.

use warpmeter_core::fact::{Health, HealthState};

use super::Watch;
use crate::libraries::Wish;
use crate::people::Host;
use crate::programs::{Attach, Flavour};

/// The most problems that are named.
const NAMED: usize = 3;

/// What is said of processes that cost too much, by what is left of them.
const SHED: [(Wish, &str); 3] = [
    (
        Wish::Few,
        "processes launch so often that probes would take more than 1 % of their threads' time; their calls are probed \
         for a few seconds now and then, which stand for the rest",
    ),
    (
        Wish::NoQuestions,
        "processes ask so often whether work is complete that probes would take more than 1 % of their threads' \
         time; these questions are not probed for a while",
    ),
    (
        Wish::Nothing,
        "processes synchronise or record events so often that probes would take more than 1 % of their threads' time; \
         they are probed for a few seconds now and then, which stand for the rest",
    ),
];

impl<H: Host> Watch<H> {
    pub(super) fn health(&mut self, now: u64) -> Health {
        let mut reasons = Vec::new();
        let mut blind = false;
        match &self.programs.calls {
            Ok(Attach::Multi | Attach::Single) => {}
            Err(why) => {
                blind = true;
                reasons.push(format!("CUDA calls are not probed: {why}"));
            }
        }
        match &self.programs.switches {
            Ok(Flavour::Fast | Flavour::Stack) => {}
            Err(why) => {
                reasons.push(format!("switches are not followed, so causes of gaps are unknown: {why}"));
            }
        }
        if let (Ok(_), Err(why)) = (&self.programs.switches, &self.programs.wakes) {
            reasons.push(format!(
                "wake-ups are not followed, so waits for other threads are divided by what all of them did: {why}"
            ));
        }
        if let Err(why) = &self.programs.flush {
            reasons.push(format!("gaps that go on are reported when they end: {why}"));
        }
        reasons.extend(self.no_returns.clone());
        let mut problems = self.shares.problems();
        problems.extend(self.hidden.iter().map(|process| {
            format!("{process} uses a GPU but maps no file by the name of a driver: its calls are not probed")
        }));
        problems.extend(self.libraries.problems());
        let more = problems.len().saturating_sub(NAMED);
        reasons.extend(problems.into_iter().take(NAMED));
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        for (wish, what) in SHED {
            let count = self.sheds.values().filter(|shed| shed.until > now && shed.wish == wish).count();
            if count > 0 {
                reasons.push(format!("{count} {what}"));
            }
        }
        let names = self.lately.note(now, &self.tables.drops());
        if !names.is_empty() {
            let names = names.join(", ");
            reasons.push(format!(
                "full or contended within the last minute, so that something was left out: {names}"
            ));
        }
        reasons.extend(self.failed.clone());
        let state = match (blind, reasons.is_empty()) {
            (true, _) => HealthState::Down,
            (false, true) => HealthState::Up,
            (false, false) => HealthState::Degraded,
        };
        Health { state, reason: reasons.join("; ") }
    }
}
