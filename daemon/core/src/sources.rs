//! What is known of the sources themselves.

use std::collections::BTreeMap;

use crate::fact::{Discard, Fact, Health, Own, Sample, Source};
use crate::time::MonoNs;
use crate::view::SourceView;

#[derive(Debug, Clone, Default)]
struct Account {
    health: Option<(Health, MonoNs)>,
    last_fact: Option<MonoNs>,
    last_answer: Option<MonoNs>,
    facts: u64,
    lost: u64,
    polls: u64,
    poll_nanos: u64,
    discarded: [u64; Discard::ALL.len()],
    own: Option<Own>,
}

/// The state and the totals of every source.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    accounts: BTreeMap<Source, Account>,
}

impl Sources {
    /// Counts a fact, and takes note of those that concern its source.
    pub fn note(&mut self, sample: &Sample) {
        let account = self.accounts.entry(sample.source).or_default();
        account.facts += 1;
        account.last_fact = account.last_fact.max(Some(sample.at));
        match &sample.fact {
            Fact::Health(health) => {
                let since = match &account.health {
                    Some((before, since)) if before.state == health.state => *since,
                    _ => sample.at,
                };
                account.health = Some((health.clone(), since));
            }
            Fact::Poll { took, answered } => {
                if *answered {
                    account.last_answer = account.last_answer.max(Some(sample.at));
                }
                account.polls += 1;
                account.poll_nanos = account.poll_nanos.saturating_add(*took);
            }
            Fact::Discarded { reason, count } => self.discard(sample.source, *reason, *count),
            Fact::Lost { count } => account.lost = account.lost.saturating_add(*count),
            Fact::Own(own) => account.own = Some(*own),
            _ => {}
        }
    }

    /// Counts values of a source that were left out.
    pub fn discard(&mut self, source: Source, reason: Discard, count: u64) {
        let discarded = &mut self.accounts.entry(source).or_default().discarded[reason as usize];
        *discarded = discarded.saturating_add(count);
    }

    /// A source's state, once it has told one.
    pub fn health(&self, source: Source) -> Option<&Health> {
        self.accounts.get(&source)?.health.as_ref().map(|(health, _)| health)
    }

    /// All of it, in the order of [`Source::ALL`].
    pub fn view(&self) -> Vec<SourceView> {
        let view = |source: Source| {
            let account = self.accounts.get(&source).cloned().unwrap_or_default();
            let (state, reason, since) = match account.health {
                Some((health, since)) => (Some(health.state), health.reason, since),
                None => (None, String::new(), MonoNs(0)),
            };
            SourceView {
                source,
                state,
                reason,
                since,
                last_fact: account.last_fact,
                last_answer: account.last_answer,
                facts: account.facts,
                lost: account.lost,
                polls: account.polls,
                poll_nanos: account.poll_nanos,
                discarded: account.discarded,
                own: account.own,
            }
        };
        Source::ALL.map(view).into()
    }
}
