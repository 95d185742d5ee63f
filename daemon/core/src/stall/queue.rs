//! Work that waits for its turn without anybody waiting for it.

use super::{Causes, Rule};
use crate::split::Split;
use crate::state::State;

impl Causes {
    /// Claims up to `most` nanoseconds in all as spent behind others' work. What synchronising calls show of it is
    /// claimed already; the rest is taken, in proportion, from gaps between enqueues and from what no gap explains,
    /// since a launch returns before its kernel has its turn.
    pub fn queue(&mut self, most: u64) {
        let claimed = self.amounts.get(&State::StalledContended).copied().unwrap_or(0);
        let hidden: Vec<((State, Rule), u64)> = self
            .rules
            .iter()
            .filter(|((state, rule), _)| {
                matches!(rule, Rule::Open | Rule::Rest) && *state != State::StalledContended
            })
            .map(|(found, amount)| (*found, *amount))
            .collect();
        let room: u64 = hidden.iter().map(|(_, amount)| *amount).sum();
        let queued = most.saturating_sub(claimed).min(room);
        let Some(split) = Split::by_weight(queued, hidden).filter(|_| queued > 0) else { return };
        for ((state, rule), amount) in split.into_parts() {
            for sum in
                [self.amounts.get_mut(&state), self.rules.get_mut(&(state, rule))].into_iter().flatten()
            {
                *sum -= amount;
            }
        }
        self.amounts.retain(|_, amount| *amount > 0);
        self.rules.retain(|_, amount| *amount > 0);
        self.add(Rule::Open, State::StalledContended, queued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(parts: &[(State, Rule, u64)]) -> Causes {
        let mut causes = Causes {
            amounts: std::collections::BTreeMap::new(),
            rules: std::collections::BTreeMap::new(),
            contradicted: false,
        };
        for (state, rule, amount) in parts {
            causes.add(*rule, *state, *amount);
        }
        causes
    }

    #[test]
    fn a_queue_takes_from_what_launches_hide_and_from_nothing_else() {
        let parts = [
            (State::StalledCpu, Rule::Open, 300),
            (State::StalledDiskRead, Rule::Drained, 400),
            (State::StalledContended, Rule::Waiting, 50),
            (State::UnknownNoEvidence, Rule::Rest, 100),
        ];
        let mut causes = found(&parts);
        causes.queue(250);
        let amounts: Vec<_> = causes.amounts.into_iter().collect();
        assert_eq!(
            amounts,
            [
                (State::StalledDiskRead, 400),
                (State::StalledCpu, 150),
                (State::StalledContended, 250),
                (State::UnknownNoEvidence, 50),
            ]
        );
        let mut causes = found(&parts);
        causes.queue(10_000);
        assert_eq!(causes.amounts[&State::StalledContended], 450);
        assert_eq!(causes.amounts.values().sum::<u64>(), 850);
        assert_eq!(causes.rules.values().sum::<u64>(), 850);
        let mut causes = found(&parts);
        causes.queue(50);
        assert_eq!(causes, found(&parts), "claimed already");
    }
}
