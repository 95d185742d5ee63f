//! Folds a run's facts, and compares every owner's part with the truth.

use std::collections::BTreeMap;

use warpmeter_core::fact::{Fact, Sample, Source};
use warpmeter_core::fold::Fold;
use warpmeter_core::settings::Settings;
use warpmeter_core::state::State;
use warpmeter_core::time::MonoNs;
use warpmeter_core::view::{AccountView, Evidence, View};

use crate::SECOND;
use crate::case::{Case, Whose};
use crate::run::{BEGIN, Run, SECONDS, owner};
use crate::truth::{Truth, truth};

/// What the daemon is given to divide a device by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Given {
    /// The driver's values of processes, and the probes.
    Driver,
    /// The probes alone.
    Probes,
    /// Neither, and the setting to divide equally.
    Nothing,
}

/// One owner's part of a device against the truth, in nanoseconds of the GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// As the daemon counts it, and in truth.
    pub used: (u64, u64),
    /// What of it is beyond the owner's own part of the device.
    pub borrowed: (u64, u64),
    /// Of its own part, time in which it waited for others.
    pub contended: (u64, u64),
    /// Its own part.
    pub allocated: u64,
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// By device's number and owner.
    pub parts: BTreeMap<(usize, Whose), Part>,
    /// By device: its GPU time in which it ran, as the driver counts it.
    pub ran: Vec<u64>,
    /// By device: what of that is nobody's.
    pub nobodys: Vec<u64>,
    /// By device: what the use rests on, in the order of [`Evidence::ALL`].
    pub evidence: Vec<[u64; Evidence::COUNT]>,
    /// The view itself.
    pub view: View,
}

impl Given {
    /// The facts of `run` that a daemon would have.
    fn facts(self, run: &Run) -> Vec<Sample> {
        let known = |sample: &&Sample| match sample.fact {
            Fact::ProcessUse(_) => self == Self::Driver,
            Fact::Probes(_) => self != Self::Nothing,
            _ => true,
        };
        let mut facts: Vec<Sample> = run.facts.iter().filter(known).cloned().collect();
        for sample in &mut facts {
            if let Fact::Inventory(inventory) = &mut sample.fact
                && self != Self::Driver
            {
                for gpu in &mut inventory.gpus {
                    gpu.authority.processes = None;
                }
            }
        }
        facts
    }
}

/// Folds what `given` leaves of the facts, and compares. `arrive` may change the order of the facts that arrive between
/// two ticks.
pub fn outcome(case: &Case, run: &Run, given: Given, arrive: impl FnMut(&mut [Sample])) -> Outcome {
    let view = fold(&given.facts(run), given, arrive);
    let truth = truth(case, &run.busy);
    let mut outcome = Outcome {
        parts: BTreeMap::new(),
        ran: Vec::new(),
        nobodys: Vec::new(),
        evidence: Vec::new(),
        view: View::default(),
    };
    for (number, (device, _)) in run.devices.iter().enumerate() {
        let gpu = view.gpu(&device.gpu).unwrap();
        let seen = gpu.devices.iter().find(|seen| seen.id == *device).unwrap();
        outcome.ran.push(seen.activity.engine.unwrap_or(0));
        outcome.nobodys.push(seen.usage.unattributed);
        outcome.evidence.push(seen.use_evidence);
        let accounts = view.accounts.iter().filter(|account| account.device == *device);
        let by_owner: BTreeMap<_, &AccountView> =
            accounts.map(|account| (account.owner.clone(), account)).collect();
        for whose in everyone(case, number) {
            let account = by_owner.get(&owner(whose)).copied();
            let allocated = account.map_or(0, |account| account.states.iter().sum());
            let mut part = Part { allocated, ..Part::default() };
            if let Some(account) = account {
                part.used.0 = account.used;
                part.borrowed.0 = account.borrowed;
                part.contended.0 = account.states[State::StalledContended.index()];
            }
            let (slices, of) = run.devices[number].1;
            add_truth(&mut part, &truth, number, whose, |nanos| nanos * slices / of);
            outcome.parts.insert((number, whose), part);
        }
    }
    Outcome { view, ..outcome }
}

/// Whoever holds a device or has a process on it.
fn everyone(case: &Case, device: usize) -> Vec<Whose> {
    let holders = case.grants.iter().filter(|grant| grant.device == device);
    let mut all: Vec<Whose> = holders.map(|grant| Whose::Pod(grant.to.0, grant.to.1)).collect();
    let on = |process: &&crate::case::Process| process.programs.iter().any(|(on, _)| *on == device);
    all.extend(case.processes.iter().filter(on).map(|process| process.whose));
    all.sort_unstable();
    all.dedup();
    all
}

fn add_truth(part: &mut Part, truth: &Truth, device: usize, whose: Whose, scaled: impl Fn(u64) -> u64) {
    let allocated = part.allocated / SECONDS;
    for second in truth[device].get(&whose).into_iter().flatten() {
        let used = scaled(second.used);
        part.used.1 += used;
        part.borrowed.1 += used.saturating_sub(allocated);
        // Of the time that it held and did not use, as much as of all time that it did not use.
        let left = allocated.saturating_sub(used);
        let (contended, rest) = (scaled(second.contended), scaled(SECOND).saturating_sub(used));
        let product = u128::from(left) * u128::from(contended);
        part.contended.1 +=
            u64::try_from(product.checked_div(u128::from(rest)).unwrap_or(0)).unwrap_or(u64::MAX);
    }
}

/// The view after all facts.
fn fold(facts: &[Sample], given: Given, mut arrive: impl FnMut(&mut [Sample])) -> View {
    let settings = Settings {
        infer_allocation: false,
        equal_split: given == Given::Nothing,
        retain: 1000 * SECOND,
        ..Settings::default()
    };
    let mut fold = Fold::new(settings);
    let mut facts = facts.to_vec();
    let mut rest = facts.as_mut_slice();
    let mut now = BEGIN;
    let end = BEGIN + SECONDS * SECOND;
    while now < end + 5 * SECOND {
        now += SECOND / 4;
        // What comes after the last window is not looked at.
        let ready = rest.iter().take_while(|sample| sample.at.0 <= now).count();
        let (batch, later) = rest.split_at_mut(ready);
        arrive(batch);
        for sample in batch {
            fold.apply(sample.clone());
        }
        fold.apply(Sample { at: MonoNs(now), source: Source::Daemon, fact: Fact::Tick { wall: now } });
        rest = later;
        let view = fold.view();
        let done = view.gpus.iter().all(|gpu| gpu.elapsed >= SECONDS * SECOND);
        if done && now > end {
            return view;
        }
    }
    fold.view()
}
