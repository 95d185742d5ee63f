//! The source: what is read, and the prices that come of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use warpmeter_core::fact::{Discard, Fact, Health, HealthState};
use warpmeter_core::price::{NodeFacts, Prices};

use super::file::{self, PriceFile};
use super::watched::Watched;
use super::{PriceOptions, labels};
use crate::names::NodeSource;

/// How often what has not changed is told all the same: it may have been lost on its way.
const AGAIN: Duration = Duration::from_mins(1);

/// Prices of this node, from everything that the configuration names.
#[derive(Debug)]
pub struct PriceSource {
    options: PriceOptions,
    node: String,
    file: Option<Watched<PriceFile>>,
    labels: Option<Watched<BTreeMap<String, String>>>,
    api: Option<NodeSource>,
    /// The prices that hold: those last told, or of the start.
    prices: Prices,
    /// Whether the first poll is still to come.
    first: bool,
    /// When they were last told without a change.
    told: Instant,
}

impl PriceSource {
    /// Reads the files, so that the first prices are there at once. The API server is asked by [`Self::poll`] only.
    pub fn new(options: PriceOptions, node: &str) -> Self {
        let mut source = Self {
            file: options.file.clone().map(Watched::new),
            labels: options.node_labels.clone().map(Watched::new),
            api: options.api.clone().map(|api| NodeSource::new(api, node)),
            node: node.to_owned(),
            prices: Prices::default(),
            options,
            first: true,
            told: Instant::now(),
        };
        source.look();
        source.prices = source.resolve();
        source
    }

    /// The same source where `prices` hold so far: only others are told.
    #[must_use]
    pub fn holding(self, prices: Prices) -> Self {
        Self { prices, ..self }
    }

    /// The prices that hold.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// Looks at the files, and asks the API server if that is due. Appends the prices if they have changed.
    ///
    /// To be called about once a second, from a thread that runs no async code.
    pub fn poll(&mut self, out: &mut Vec<Fact>) {
        let began = Instant::now();
        let mut changed = self.look();
        changed |= self.api.as_mut().is_some_and(|api| api.poll(began));
        if std::mem::take(&mut self.first) || changed {
            self.tell(out);
        }
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if began.saturating_duration_since(self.told) >= AGAIN {
            self.told = began;
            out.push(Fact::Prices(Box::new(self.prices.clone())));
        }
        out.push(Fact::Poll { took, answered: self.health().state == HealthState::Up });
    }

    /// Everything that is wrong with the files: which file, and what.
    pub fn problems(&self) -> Vec<(String, String)> {
        let of_file = self.file.iter().map(|file| (file.path(), &file.problems));
        let of_labels = self.labels.iter().map(|labels| (labels.path(), &labels.problems));
        let each = of_file.chain(of_labels).flat_map(|(path, problems)| {
            problems.iter().map(|problem| (path.display().to_string(), problem.clone()))
        });
        each.collect()
    }

    /// How well the last round went.
    pub fn health(&self) -> Health {
        let mut reasons = Vec::new();
        let mut never = false;
        if let Some(file) = &self.file {
            never |= file.value.is_none();
            reasons.push(file.reason());
        }
        if let Some(labels) = &self.labels {
            never |= labels.value.is_none();
            reasons.push(labels.reason());
        }
        if let Some(api) = &self.api {
            never |= api.known().is_none();
            reasons.push(api.reason());
        }
        reasons.retain(|reason| !reason.is_empty());
        let state = match (reasons.is_empty(), never) {
            (_, true) => HealthState::Down,
            (false, false) => HealthState::Degraded,
            (true, false) => HealthState::Up,
        };
        Health { state, reason: reasons.join("; ") }
    }

    fn look(&mut self) -> bool {
        let currency = &self.options.book.currency;
        let file = self.file.as_mut().is_some_and(|file| file.look(|bytes| file::parse(bytes, currency)));
        let labels = self.labels.as_mut().is_some_and(|labels| {
            labels.look(|bytes| {
                let text = std::str::from_utf8(bytes).map_err(|error| vec![error.to_string()])?;
                labels::parse(text)
            })
        });
        file | labels
    }

    fn tell(&mut self, out: &mut Vec<Fact>) {
        let problems = self.problems();
        for (path, problem) in &problems {
            tracing::warn!(%path, %problem, "prices");
        }
        if !problems.is_empty() {
            let count = problems.len().try_into().unwrap_or(u64::MAX);
            out.push(Fact::Discarded { reason: Discard::Garbage, count });
        }
        let prices = self.resolve();
        if prices != self.prices {
            tracing::info!(missing = %prices.missing, "prices have changed");
            self.prices = prices.clone();
            out.push(Fact::Prices(Box::new(prices)));
        }
    }

    fn resolve(&self) -> Prices {
        let rows = match &self.file {
            None => Some(Vec::new()),
            Some(file) => file.value.as_ref().map(|file| file.rows.clone()),
        };
        let (labels, provider_id) = match (&self.labels, &self.api) {
            (Some(labels), _) => (labels.value.clone(), String::new()),
            (None, Some(api)) => match api.known() {
                Some(node) => (Some(node.labels.clone()), node.provider_id.clone()),
                None => (None, String::new()),
            },
            (None, None) => (Some(BTreeMap::new()), String::new()),
        };
        let mut book = self.options.book.clone();
        book.rows = rows;
        book.resolve(&NodeFacts {
            name: self.node.clone(),
            provider_id,
            labels,
            instance_type: self.options.instance_type.clone(),
            capacity: self.options.capacity,
        })
    }
}
