//! Whose work ran on a device: the best evidence that there is, and what it is worth.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocate::Held;
use crate::demand::Demands;
use crate::identity::Owner;
use crate::split::Split;
use crate::view::Evidence;

/// Who had a context on a device during a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Participants {
    /// Those who are known.
    pub owners: BTreeSet<Owner>,
    /// Whether there were processes that nobody could identify.
    pub strangers: bool,
    /// Whether an MPS server was among them, or what may be one: then the driver does not name all who used the
    /// device, and the owners are those of processes that were seen to ask for something on it too.
    pub served: bool,
    /// Whether somebody may have used it whom nobody saw: then nobody is known to be the only one.
    pub unseen: bool,
}

/// What per-process samples say of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessTimes {
    /// Nanoseconds by owner; none: processes that nobody could identify.
    pub by_owner: BTreeMap<Option<Owner>, u64>,
    /// How many processes had samples.
    pub processes: u64,
    /// Whether a process with a context had no sample.
    pub silent: bool,
    /// The longest sampling period among the samples, in nanoseconds.
    pub period: u64,
}

/// What a shared device's engine time can be divided by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weights {
    /// What per-process samples say.
    pub times: Option<ProcessTimes>,
    /// What the probes saw of processes.
    pub demands: Option<Demands>,
}

impl Weights {
    /// For how long each owner had work outstanding, of `whole` nanoseconds in which the device ran for `engine`, as far
    /// as anything says.
    pub fn outstanding(&self, engine: u64, whole: u64) -> BTreeMap<Owner, u64> {
        self.demands.as_ref().map(|demands| demands.by_owner(engine, whole)).unwrap_or_default()
    }
}

/// A device's engine time, divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// Nanoseconds by owner, in order of owner.
    pub shares: Vec<(Owner, u64)>,
    /// Nanoseconds of nobody knows whom.
    pub unattributed: u64,
    /// What the division rests on.
    pub evidence: Evidence,
}

impl Used {
    fn all_to(owner: &Owner, engine: u64, evidence: Evidence) -> Self {
        Self { shares: vec![(owner.clone(), engine)], unattributed: 0, evidence }
    }

    /// Sums parts by owner; those of nobody are unattributed.
    fn gathered(parts: Vec<(Option<Owner>, u64)>, evidence: Evidence) -> Self {
        let mut shares: BTreeMap<Owner, u64> = BTreeMap::new();
        let mut unattributed = 0;
        for (owner, amount) in parts {
            match owner {
                Some(owner) => *shares.entry(owner).or_default() += amount,
                None => unattributed += amount,
            }
        }
        Self { shares: shares.into_iter().collect(), unattributed, evidence }
    }

    fn nobody(engine: u64) -> Self {
        Self { shares: Vec::new(), unattributed: engine, evidence: Evidence::Measured }
    }

    /// What `owner` used.
    pub fn of(&self, owner: &Owner) -> u64 {
        self.shares.iter().find(|(user, _)| user == owner).map_or(0, |(_, amount)| *amount)
    }
}

/// Divides `engine` nanoseconds of a device in a stretch of `whole` nanoseconds; the amounts add up to `engine`.
///
/// In order: the only owner with a context (measured; inferred if MPS hides who has one); the only holder of a device
/// on which no one was seen (measured) or only processes too short to be identified (assumed); per-process samples
/// (apportioned); what processes were seen to ask for (inferred); equal parts if that is configured (assumed);
/// otherwise unattributed. Where somebody may have used it unseen, nobody counts as the only one.
pub fn attribute(
    engine: u64,
    whole: u64,
    who: &Participants,
    held: &Held,
    by: &Weights,
    equal_split: bool,
) -> Used {
    if engine == 0 {
        return Used { shares: Vec::new(), unattributed: 0, evidence: Evidence::Measured };
    }
    let mut owners = who.owners.iter();
    let sole_holder = match held.holders.as_slice() {
        [(owner, _)] if held.free == 0 => Some(owner),
        _ => None,
    };
    match (owners.next(), owners.next(), sole_holder) {
        _ if who.unseen => {}
        (Some(owner), None, _) if !who.strangers => {
            let evidence = if who.served { Evidence::Inferred } else { Evidence::Measured };
            return Used::all_to(owner, engine, evidence);
        }
        (Some(owner), None, Some(holder)) if owner == holder => {
            return Used::all_to(owner, engine, Evidence::Assumed);
        }
        (None, _, Some(holder)) => {
            let evidence = if who.strangers { Evidence::Assumed } else { Evidence::Measured };
            return Used::all_to(holder, engine, evidence);
        }
        _ => {}
    }
    if let Some(times) = &by.times
        && times.by_owner.values().any(|time| *time > 0)
    {
        return by_process(engine, whole, times);
    }
    if let Some(split) = by.demands.as_ref().and_then(|demands| demands.divide(engine, whole)) {
        return Used::gathered(split.into_parts(), Evidence::Inferred);
    }
    if equal_split && !who.owners.is_empty() {
        let owners = who.owners.iter().map(|owner| (Some(owner.clone()), 1));
        let unseen = who.unseen.then_some((None, 1));
        if let Some(split) = Split::by_weight(engine, owners.chain(unseen).collect()) {
            return Used::gathered(split.into_parts(), Evidence::Assumed);
        }
    }
    Used::nobody(engine)
}

/// Scales per-process times U to the device's engine time E.
///
/// U ≥ E: down to E, since kernels of one process counted in two samples cannot exceed the device. U < E: up,
/// as far as the samples' own coarseness explains it: whole percents (1 % per process), and one sampling period
/// of misalignment if every process with a context had a sample. Beyond that somebody ran who is not in the
/// samples, and the rest is unattributed.
fn by_process(engine: u64, whole: u64, times: &ProcessTimes) -> Used {
    let sum: u64 = times.by_owner.values().copied().fold(0, u64::saturating_add);
    let rounding = (whole / 100).saturating_mul(times.processes);
    let misalignment = if times.silent { 0 } else { times.period };
    let explained = sum.saturating_add(rounding).saturating_add(misalignment).min(engine);
    let weights = times.by_owner.iter().map(|(owner, time)| (owner.clone(), *time)).collect();
    let Some(split) = Split::by_weight(explained, weights) else {
        return Used::nobody(engine);
    };
    let mut used =
        Used { shares: Vec::new(), unattributed: engine - explained, evidence: Evidence::Apportioned };
    for (owner, amount) in split.into_parts() {
        match owner {
            Some(owner) => used.shares.push((owner, amount)),
            None => used.unattributed += amount,
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str) -> Owner {
        Owner::Unit(name.into())
    }

    fn who(names: &[&str], strangers: bool) -> Participants {
        Participants {
            owners: names.iter().map(|name| unit(name)).collect(),
            strangers,
            ..Participants::default()
        }
    }

    fn held(names: &[&str]) -> Held {
        Held { holders: names.iter().map(|name| (unit(name), 1)).collect(), ..Held::free() }
    }

    fn sole(name: &str) -> Held {
        Held { free: 0, ..held(&[name]) }
    }

    fn times(entries: &[(Option<&str>, u64)], silent: bool) -> ProcessTimes {
        ProcessTimes {
            by_owner: entries.iter().map(|(name, time)| (name.map(unit), *time)).collect(),
            processes: entries.len() as u64,
            silent,
            period: 100,
        }
    }

    fn by(times: ProcessTimes) -> Weights {
        Weights { times: Some(times), demands: None }
    }

    #[test]
    fn the_only_owner_with_a_context_used_all_of_it() {
        let used = attribute(700, 1000, &who(&["a"], false), &sole("b"), &Weights::default(), false);
        assert_eq!(
            used,
            Used { shares: vec![(unit("a"), 700)], unattributed: 0, evidence: Evidence::Measured }
        );
    }

    #[test]
    fn work_without_any_process_is_the_sole_holders() {
        let used = attribute(700, 1000, &who(&[], false), &sole("a"), &Weights::default(), false);
        assert_eq!((used.of(&unit("a")), used.evidence), (700, Evidence::Measured));
        let used = attribute(700, 1000, &who(&[], true), &sole("a"), &Weights::default(), false);
        assert_eq!((used.of(&unit("a")), used.evidence), (700, Evidence::Assumed));
    }

    #[test]
    fn work_that_nobody_can_claim_is_unattributed() {
        for (who, held) in [
            (who(&[], false), Held::free()),
            (who(&[], true), Held::free()),
            (who(&["a"], true), Held::free()),
            (who(&["a", "b"], false), held(&["a", "b"])),
        ] {
            let used = attribute(700, 1000, &who, &held, &Weights::default(), false);
            assert_eq!((used.shares.len(), used.unattributed), (0, 700), "{who:?}");
        }
    }

    #[test]
    fn nobody_is_the_only_one_where_somebody_may_have_used_it_unseen() {
        for (owners, held) in [(&["a"][..], sole("a")), (&["a"][..], held(&["a", "b"])), (&[][..], sole("a"))]
        {
            let who = Participants { unseen: true, ..who(owners, false) };
            let used = attribute(700, 1000, &who, &held, &Weights::default(), false);
            assert_eq!((used.shares.len(), used.unattributed), (0, 700), "{owners:?} {held:?}");
            let used = attribute(700, 1000, &who, &held, &Weights::default(), true);
            let part = if owners.is_empty() { 0 } else { 350 };
            assert_eq!(
                (used.of(&unit("a")), used.unattributed),
                (part, 700 - part),
                "who is unseen has a part"
            );
        }
    }

    #[test]
    fn process_times_above_the_devices_are_scaled_down() {
        let used = attribute(
            600,
            1000,
            &who(&["a", "b"], false),
            &held(&["a", "b"]),
            &by(times(&[(Some("a"), 800), (Some("b"), 400)], false)),
            false,
        );
        assert_eq!((used.of(&unit("a")), used.of(&unit("b")), used.unattributed), (400, 200, 0));
        assert_eq!(used.evidence, Evidence::Apportioned);
    }

    #[test]
    fn process_times_below_the_devices_are_scaled_up_as_far_as_their_coarseness_explains() {
        let shared = |engine, silent| {
            attribute(
                engine,
                1000,
                &who(&["a", "b"], false),
                &held(&["a", "b"]),
                &by(times(&[(Some("a"), 300), (Some("b"), 300)], silent)),
                false,
            )
        };
        assert_eq!(shared(720, false).unattributed, 0, "1 % of each of two processes, and one period of 100");
        assert_eq!(shared(800, false).unattributed, 80);
        assert_eq!(shared(800, true).unattributed, 180, "a silent process may have run the rest");
    }

    #[test]
    fn the_time_of_strangers_is_unattributed() {
        let by = by(times(&[(Some("a"), 300), (None, 300)], false));
        let used = attribute(600, 1000, &who(&["a"], true), &held(&["a", "b"]), &by, false);
        assert_eq!((used.of(&unit("a")), used.unattributed), (300, 300));
    }

    #[test]
    fn an_equal_split_is_only_made_when_configured_and_says_that_it_is_assumed() {
        let used =
            attribute(701, 1000, &who(&["a", "b"], false), &held(&["a", "b"]), &Weights::default(), true);
        assert_eq!(used.evidence, Evidence::Assumed);
        assert_eq!((used.of(&unit("a")), used.of(&unit("b"))), (351, 350));
    }
}
