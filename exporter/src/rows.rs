//! The series of one family while it is being read, with label sets kept from one use to the next.
//!
//! Most families have the same label sets as another one, and each window has those of the window before. So
//! metrics are pooled by their label names, and a label's text is copied only where it differs: that leaves
//! next to no allocation in a steady state (`benches/encode.rs` has the figure).

use std::collections::BTreeMap;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric};

use crate::catalogue::Kind;

/// Metrics of all label sets seen lately.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    by_labels: BTreeMap<&'static [&'static str], Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    metrics: Vec<Metric>,
    /// The most places that a family has taken since the last [`Pools::trim`].
    reach: usize,
}

impl Pools {
    /// Starts a family.
    pub(crate) fn rows(&mut self, labels: &'static [&'static str], kind: Kind) -> Rows<'_> {
        let pool = self.by_labels.entry(labels).or_default();
        Rows { pool, labels, kind, next: 0, taken: Vec::new(), series: Vec::new() }
    }

    /// Forgets label sets that no family has used since the last call.
    pub(crate) fn trim(&mut self) {
        for pool in self.by_labels.values_mut() {
            pool.metrics.truncate(pool.reach);
            pool.reach = 0;
        }
    }
}

/// Collects the series of one family.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pool: &'a mut Pool,
    labels: &'static [&'static str],
    kind: Kind,
    next: usize,
    /// For each series, its place in the pool.
    taken: Vec<usize>,
    series: Vec<Metric>,
}

impl Rows<'_> {
    /// Adds a series; its label values are in the order of the family's labels.
    pub(crate) fn push(&mut self, values: &[&str], value: f64) {
        debug_assert_eq!(values.len(), self.labels.len(), "one value for each of {:?}", self.labels);
        // Every value comes from an integer; should one ever not be finite, no series is the honest answer.
        if !value.is_finite() {
            return self.skip();
        }
        let place = self.next;
        self.skip();
        let mut metric = self.pool.metrics.get_mut(place).map(std::mem::take).unwrap_or_default();
        relabel(&mut metric, self.labels, values);
        match self.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Kind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        self.taken.push(place);
        self.series.push(metric);
    }

    /// Adds a series if its value is known. An unknown one keeps its place in the pool, so that the label sets
    /// after it stay where they are.
    pub(crate) fn maybe(&mut self, values: &[&str], value: Option<f64>) {
        match value {
            Some(value) => self.push(values, value),
            None => self.skip(),
        }
    }

    fn skip(&mut self) {
        self.next += 1;
        if self.pool.metrics.len() < self.next {
            self.pool.metrics.push(Metric::default());
        }
        self.pool.reach = self.pool.reach.max(self.next);
    }

    /// The series, to be given back with [`Rows::restore`].
    pub(crate) fn take(&mut self) -> Vec<Metric> {
        std::mem::take(&mut self.series)
    }

    /// Puts metrics back into the pool.
    pub(crate) fn restore(self, series: Vec<Metric>) {
        for (place, metric) in self.taken.into_iter().zip(series) {
            if let Some(slot) = self.pool.metrics.get_mut(place) {
                *slot = metric;
            }
        }
    }
}

/// Gives `metric` the labels `names` with `values`, copying only the values that differ.
fn relabel(metric: &mut Metric, names: &[&str], values: &[&str]) {
    if metric.get_label().len() != names.len() {
        metric.set_label(names.iter().map(|name| named(name)).collect());
    }
    for (pair, value) in metric.mut_label().iter_mut().zip(values) {
        if pair.value() != *value {
            pair.set_value((*value).to_owned());
        }
    }
}

fn named(name: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair
}
