//! Which prices hold from when, and what the node costs beside its GPUs.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Fold, GpuState};
use crate::fact::{Discard, Source};
use crate::price::{Money, Price, Prices, Quote};
use crate::time::{Interval, MonoNs};

/// Prices, and over how many GPUs a node's price is divided.
#[derive(Debug, Default)]
pub(super) struct Tariff {
    pub(super) prices: Prices,
    /// The most GPUs that the driver has shown at once: one that is lost does not change the price of the others.
    pub(super) gpus: u32,
}

/// The tariffs, each with the moment from which it holds, and the host's account.
#[derive(Debug)]
pub(super) struct Tariffs {
    history: VecDeque<(MonoNs, Arc<Tariff>)>,
    /// Up to when the host's time is posted; none before there is a GPU.
    host_until: Option<MonoNs>,
    pub(super) host_cost: Option<Money>,
}

impl Tariff {
    /// The price of a GPU.
    pub(super) fn price(&self, model: &str) -> Option<Price> {
        self.prices.of(model, self.gpus).map(|rate| rate.price)
    }

    /// The figure that a GPU's price is, with that price.
    pub(super) fn quote(&self, model: &str) -> Option<Quote> {
        self.prices.of(model, self.gpus).map(|rate| rate.quote.at(rate.price))
    }

    /// The price of the node beside its GPUs, if a GPU's price is a part of the node's.
    fn host<'g>(&self, mut gpus: impl Iterator<Item = &'g GpuState>) -> Option<Price> {
        let node = self.prices.node.as_ref()?;
        let part =
            |state: &GpuState| self.prices.of(&state.gpu.model, self.gpus).is_some_and(|rate| rate.of_node);
        gpus.any(part).then(|| node.host(self.gpus))
    }
}

impl Tariffs {
    pub(super) fn new(prices: Prices) -> Self {
        let first = (MonoNs(0), Arc::new(Tariff { prices, gpus: 0 }));
        Self { history: VecDeque::from([first]), host_until: None, host_cost: None }
    }

    /// The one in force now.
    pub(super) fn last(&self) -> Arc<Tariff> {
        self.history.back().map(|(_, tariff)| Arc::clone(tariff)).unwrap_or_default()
    }

    /// The one in force at `at`. A window has that of its start, so that a change is for later windows only.
    pub(super) fn at(&self, at: MonoNs) -> Arc<Tariff> {
        let found = self.history.iter().rev().find(|(since, _)| *since <= at);
        found.or(self.history.front()).map(|(_, tariff)| Arc::clone(tariff)).unwrap_or_default()
    }

    /// Notes that `tariff` holds from `at` on.
    fn set(&mut self, at: MonoNs, tariff: Tariff) {
        // Facts are learnt in order of time; of one moment the last counts.
        while self.history.back().is_some_and(|(since, _)| *since >= at) {
            self.history.pop_back();
        }
        self.history.push_back((at, Arc::new(tariff)));
    }

    /// The tariffs of `during`, each with its piece, in order.
    fn pieces(&self, during: Interval) -> Vec<(Interval, Arc<Tariff>)> {
        let ends = self.history.iter().skip(1).map(|(since, _)| *since).chain([during.end()]);
        let held = self.history.iter().zip(ends);
        held.filter_map(|((since, tariff), end)| {
            Some((Interval::new(*since, end)?.overlap(during)?, Arc::clone(tariff)))
        })
        .collect()
    }

    /// Forgets tariffs that no window from `open` on can need.
    pub(super) fn forget(&mut self, open: MonoNs) {
        let open = self.host_until.map_or(open, |until| until.min(open));
        while self.history.len() > 1 && self.history[1].0 <= open {
            self.history.pop_front();
        }
    }
}

impl Fold {
    /// Takes prices that hold from `at` on.
    pub(super) fn prices(&mut self, prices: &Prices, at: MonoNs) {
        let last = self.tariffs.last();
        // Money of two currencies must not be added up.
        if !last.prices.currency.is_empty() && last.prices.currency != prices.currency {
            self.sources.discard(Source::Prices, Discard::Garbage, 1);
        } else if last.prices != *prices {
            self.tariffs.set(at, Tariff { prices: prices.clone(), gpus: last.gpus });
        }
    }

    /// Takes note of how many GPUs there are.
    pub(super) fn count_gpus(&mut self, gpus: usize, at: MonoNs) {
        let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
        let last = self.tariffs.last();
        if gpus <= last.gpus {
            return;
        }
        if last.gpus == 0 {
            // The first GPUs were there before they were seen: what is known of prices was meant for them.
            let history = std::mem::take(&mut self.tariffs.history);
            let counted = |tariff: Arc<Tariff>| Arc::new(Tariff { prices: tariff.prices.clone(), gpus });
            self.tariffs.history =
                history.into_iter().map(|(since, tariff)| (since, counted(tariff))).collect();
            self.tariffs.host_until = Some(at);
        } else {
            self.tariffs.set(at, Tariff { prices: last.prices.clone(), gpus });
        }
    }

    /// Posts the host's time up to the watermark: the node's clock.
    pub(super) fn charge_host(&mut self) {
        let Some(from) = self.tariffs.host_until else { return };
        let Some(during) = Interval::new(from, self.watermark) else { return };
        for (piece, tariff) in self.tariffs.pieces(during) {
            if let Some(price) = tariff.host(self.gpus.values()) {
                let cost = self.tariffs.host_cost.get_or_insert_default();
                cost.add(Money::of(price, piece.nanos()));
            }
        }
        self.tariffs.host_until = Some(during.end());
    }
}
