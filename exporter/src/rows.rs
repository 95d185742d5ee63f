//! The series of one family while it is being read, with label sets kept from one use to the next.
//!
//! Most families have the same label sets as another one, and each window has those of the window before. So
//! metrics are pooled by their label names, and a label's text is copied only where it differs: that leaves
//! next to no allocation in a steady state (`benches/encode.rs` has the figure).

use std::collections::BTreeMap;

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric};

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
        // Every value comes from an integer; should one ever not be finite, no series is the honest answer.
        if !value.is_finite() {
            return self.skip();
        }
        self.add(values, |kind, metric| match kind {
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
            Kind::Histogram => debug_assert!(false, "a histogram has no single value"),
        });
    }

    /// Adds a histogram: upper bounds in rising order, each with how many were not above it and above the bound before
    /// it; how many were above all; and the sum of all.
    pub(crate) fn histogram(
        &mut self,
        values: &[&str],
        below: impl Iterator<Item = (f64, u64)>,
        above: u64,
        sum: f64,
    ) {
        debug_assert!(self.kind == Kind::Histogram, "a counter or gauge has one value");
        let mut count = 0_u64;
        let bucket = |(bound, more): (f64, u64)| {
            count = count.saturating_add(more);
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(count);
            bucket
        };
        let buckets = below.map(bucket).collect();
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(count.saturating_add(above));
        histogram.set_sample_sum(sum);
        self.add(values, |_, metric| metric.set_histogram(histogram));
    }

    fn add(&mut self, values: &[&str], set: impl FnOnce(Kind, &mut Metric)) {
        debug_assert_eq!(values.len(), self.labels.len(), "one value for each of {:?}", self.labels);
        let place = self.next;
        self.skip();
        let mut metric = self.pool.metrics.get_mut(place).map(std::mem::take).unwrap_or_default();
        relabel(&mut metric, self.labels, values);
        set(self.kind, &mut metric);
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
