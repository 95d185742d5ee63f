//! Families of prices, and of what no GPU's time pays for.

use std::collections::BTreeSet;

use warpmeter_core::price::{Date, Price, Quote};
use warpmeter_core::view::View;

use super::{Family, Group, Level, Unit, counter, gauge};
use crate::units;

pub(super) const GROUP: Group = Group {
    title: "Prices",
    about: "Costs are frozen when they accrue; multiply seconds by these prices to price history anew. Where \
            the price of the whole node is known, the costs of its GPUs' time and of its host sum to it. The \
            cost of energy is counted apart from that of time, and what a GPU costs in all is their sum.",
    families: FAMILIES,
};

const FAMILIES: &[Family] = &[
    gauge(
        "warpmeter_gpu_price_per_hour",
        Unit::Currency,
        Level::Standard,
        &["gpu_uuid", "mig", "currency"],
        "Price of the whole GPU per hour.",
        |view, rows| {
            for gpu in &view.gpus {
                let labels = [gpu.gpu.id.as_str(), "", &view.currency];
                rows.maybe(&labels, gpu.price().map(units::price));
            }
        },
    ),
    gauge(
        "warpmeter_price_info",
        Unit::Info,
        Level::Minimal,
        &["priced", "origin", "source", "as_of", "capacity_type"],
        "Each figure in use: for gpu time or energy, from configuration, owned, file or built_in, and who says so.",
        |view, rows| {
            for (priced, quote) in quotes(view) {
                let as_of = quote.as_of.map(|date| date.to_string()).unwrap_or_default();
                let capacity = quote.capacity.map_or("", |capacity| capacity.label());
                rows.push(&[priced, quote.origin.label(), &quote.source, &as_of, capacity], 1.0);
            }
        },
    ),
    gauge(
        "warpmeter_price_table_timestamp_seconds",
        Unit::Timestamp,
        Level::Minimal,
        &[],
        "The day of the oldest figure in use, of those that have one.",
        |view, rows| {
            let oldest = quotes(view).into_iter().filter_map(|(_, quote)| quote.as_of).min();
            rows.maybe(&[], oldest.map(Date::days).map(units::day));
        },
    ),
    counter(
        "warpmeter_node_host_cost_total",
        Unit::Currency,
        Level::Minimal,
        &["currency"],
        "Cost of the node beside its GPUs: what their parts leave of the price of the whole node.",
        |view, rows| rows.maybe(&[&view.currency], view.host_cost.map(units::money)),
    ),
];

/// The figures in use, each once: for what, and where it is from.
fn quotes(view: &View) -> BTreeSet<(&'static str, Quote)> {
    let gpus = view.gpus.iter().filter_map(|gpu| gpu.quote.as_ref()).map(|quote| ("gpu", quote));
    let energy = view.energy.as_ref().map(|quote| ("energy", quote));
    // The same figure may give GPUs of different sizes different prices.
    gpus.chain(energy).map(|(priced, quote)| (priced, quote.at(Price::default()))).collect()
}
