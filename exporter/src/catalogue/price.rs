//! Families of prices.

use super::{Family, Group, Level, Unit, gauge};
use crate::units;

pub(super) const GROUP: Group = Group {
    title: "Prices",
    about: "Costs are frozen when they accrue; multiply seconds by these prices to price history anew.",
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
                rows.maybe(&labels, gpu.price.map(units::price));
            }
        },
    ),
    gauge(
        "warpmeter_price_info",
        Unit::Info,
        Level::Minimal,
        &["source"],
        "Where prices come from, if there are any.",
        |view, rows| {
            if view.gpus.iter().any(|gpu| gpu.price.is_some()) {
                rows.push(&["configuration"], 1.0);
            }
        },
    ),
];
