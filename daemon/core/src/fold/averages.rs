//! Averages that come when their windows are closed already: another exporter's.
//!
//! They are counted in the time that they cover, divided by what the windows of that time said of its use. So nothing
//! is carried into a later window, and no window waits for them.

use std::collections::{BTreeMap, VecDeque};

use super::Fold;
use crate::fact::{Averages, Discard, Means, Source};
use crate::identity::{DeviceId, Owner};
use crate::inventory::Counter;
use crate::ledger::Posting;
use crate::posting::{low_intensities, share_activity};
use crate::ratio::Ppb;
use crate::time::{Interval, MonoNs, SECOND};
use crate::view::{Activity, BoardTotals};

/// How long closed windows are remembered for averages that are still to come: an exporter's longest interval, five times.
const REMEMBERED: u64 = 600 * SECOND;

/// Averages of a GPU that may wait for their windows to close: those of a minute of seven instances, each second.
const WAITING: usize = 512;

/// A closed window of one device: what averages over it are divided by.
#[derive(Debug)]
struct Past {
    during: Interval,
    /// The device's part of it, in nanoseconds of GPU time.
    budget: u64,
    /// Engine active, as long as that is known.
    engine: Option<u64>,
    /// What each owner concerned used. Nothing is an amount too.
    used: Vec<(Owner, u64)>,
    /// What was used by nobody knows whom, or not known to be used.
    nobodys: u64,
}

/// What one GPU's averages need.
#[derive(Debug, Default)]
pub(super) struct Late {
    past: BTreeMap<DeviceId, VecDeque<Past>>,
    waiting: VecDeque<Averages>,
    /// Up to when each device's averages are counted.
    counted: BTreeMap<DeviceId, MonoNs>,
}

impl Late {
    /// Remembers a closed window of a device of which averages are to be expected.
    pub(super) fn remember(&mut self, posting: &Posting, during: Interval) {
        let concerned = || posting.owner_activity.iter().map(|(owner, _)| owner);
        let (used, nobodys) = if posting.profiled {
            let used_by = |owner: &Owner| {
                posting.used.iter().find(|(user, _)| user == owner).map_or(0, |(_, amount)| *amount)
            };
            (concerned().map(|owner| (owner.clone(), used_by(owner))).collect(), posting.usage.unattributed)
        } else {
            // Unknown use may be anybody's, unless there is only one who can have had any.
            let mut owners = concerned();
            match (owners.next(), owners.next()) {
                (Some(owner), None) if posting.unallocated + posting.unheard == 0 => {
                    (vec![(owner.clone(), posting.elapsed)], 0)
                }
                _ => (concerned().map(|owner| (owner.clone(), 0)).collect(), posting.elapsed),
            }
        };
        let engine = posting.activity.engine;
        let past = self.past.entry(posting.device.clone()).or_default();
        past.push_back(Past { during, budget: posting.elapsed, engine, used, nobodys });
        let old = during.end().minus(REMEMBERED);
        while past.front().is_some_and(|oldest| oldest.during.end() <= old) {
            past.pop_front();
        }
    }

    /// Up to when averages of all devices that have any are counted.
    pub(super) fn until(&self) -> Option<MonoNs> {
        self.counted.values().min().copied()
    }

    /// Forgets devices that have had no window for long.
    fn forget(&mut self, open: MonoNs) {
        let lately =
            |past: &VecDeque<Past>| past.back().is_some_and(|last| last.during.end().plus(REMEMBERED) > open);
        self.past.retain(|_, past| lately(past));
        self.counted.retain(|device, _| self.past.contains_key(device));
    }

    /// Takes the time that averages cover, as far as it is not counted already, and forgets what is before it.
    fn take(&mut self, averages: &Averages) -> Option<Total> {
        let counted = self.counted.get(&averages.device).copied().unwrap_or_default();
        let during = Interval::new(averages.during.start().max(counted), averages.during.end())?;
        self.counted.insert(averages.device.clone(), during.end());
        let past = self.past.get_mut(&averages.device)?;
        let mut total = Total { engine: Some(0), ..Total::default() };
        for window in past.iter() {
            total.add(window, during);
        }
        while past.len() > 1 && past.front().is_some_and(|oldest| oldest.during.end() <= during.end()) {
            past.pop_front();
        }
        (total.budget > 0).then_some(total)
    }
}

/// The windows of a stretch, together.
#[derive(Debug, Default)]
struct Total {
    budget: u64,
    engine: Option<u64>,
    used: BTreeMap<Owner, u64>,
    nobodys: u64,
}

impl Total {
    fn add(&mut self, window: &Past, during: Interval) {
        let Some(common) = window.during.overlap(during) else { return };
        let part = |amount: u64| {
            let product = u128::from(amount) * u128::from(common.nanos());
            u64::try_from(product / u128::from(window.during.nanos())).unwrap_or(amount)
        };
        self.budget += part(window.budget);
        self.engine = self.engine.zip(window.engine).map(|(sum, engine)| sum + part(engine));
        for (owner, amount) in &window.used {
            *self.used.entry(owner.clone()).or_default() += part(*amount);
        }
        self.nobodys += part(window.nobodys);
    }

    /// Whether SM activity and the driver's engine activity of the same time cannot both be right. A kernel occupies
    /// at least one SM, and no device has a thousand of them.
    fn contradicts(&self, sm_active: u64) -> bool {
        let tenth = self.budget / 10;
        self.engine.is_some_and(|engine| {
            (engine >= tenth && sm_active < engine / 1000)
                || (engine < self.budget / 1000 && sm_active >= tenth)
        })
    }
}

/// Adds what went over PCIe in `nanos` at a stretch's rates.
fn add_pcie(totals: &mut BoardTotals, means: &Means, nanos: u64) {
    for (total, rate) in
        [(&mut totals.pcie_receive, means.pcie_receive), (&mut totals.pcie_transmit, means.pcie_transmit)]
    {
        if let Some(rate) = rate {
            *total.get_or_insert(0) += u128::from(rate) * u128::from(nanos) / u128::from(SECOND);
        }
    }
}

impl Fold {
    /// Takes averages, if they are to be believed of their device.
    pub(super) fn averages(&mut self, averages: &Averages, source: Source) {
        let state = self.gpus.get_mut(&averages.device.gpu);
        let Some(state) = state.filter(|state| state.gpu.authority.sm == Some(Counter::Dcgm)) else {
            // Another counter is the authority, and two are never blended.
            self.sources.discard(source, Discard::DeviceId, 1);
            return;
        };
        if state.late.waiting.len() >= WAITING {
            state.late.waiting.pop_front();
            self.sources.discard(source, Discard::Late, 1);
        }
        state.late.waiting.push_back(averages.clone());
    }

    /// Counts averages whose windows are all closed.
    pub(super) fn count_averages(&mut self) {
        for state in self.gpus.values_mut() {
            if state.gpu.authority.sm != Some(Counter::Dcgm) {
                state.late = Late::default();
                continue;
            }
            let Some(open) = state.timeline.open_since() else { continue };
            state.late.forget(open);
            let (ripe, waiting) =
                std::mem::take(&mut state.late.waiting).into_iter().partition(|it| it.during.end() <= open);
            state.late.waiting = waiting;
            let ripe: VecDeque<Averages> = ripe;
            for averages in &ripe {
                let Some(total) = state.late.take(averages) else {
                    self.sources.discard(Source::Dcgm, Discard::Late, 1);
                    continue;
                };
                let amount = |ratio: Option<Ppb>| ratio.map(|ratio| ratio.of(total.budget));
                let activity = Activity {
                    engine: None,
                    sm_active: amount(averages.means.sm_active),
                    sm_occupied: amount(averages.means.sm_occupied),
                    tensor: amount(averages.means.tensor),
                    dram: amount(averages.means.dram),
                };
                if activity.sm_active.is_some_and(|sm_active| total.contradicts(sm_active)) {
                    self.sources.discard(Source::Dcgm, Discard::Conflict, 1);
                    continue;
                }
                let used: Vec<(Owner, u64)> = total.used.into_iter().collect();
                let owners = share_activity(&activity, &used, total.nobodys);
                let low_intensity = low_intensities(&activity, total.budget, &owners);
                self.ledger.post_late(&averages.device, &activity, &owners, &low_intensity);
                if averages.device.mig.is_none() {
                    add_pcie(&mut state.totals, &averages.means, total.budget);
                }
            }
        }
    }
}
