//! Families of Kubernetes namespaces: totals that outlive their pods.

use warpmeter_core::state::Class;

use super::{Family, Group, Level, Unit, counter};
use crate::units;

pub(super) const GROUP: Group = Group {
    title: "Namespaces",
    about: "Totals over all pods of a namespace on this node, those that are gone included. Pods whose \
            name is not known are under `namespace=\"\"`.",
    families: FAMILIES,
};

const FAMILIES: &[Family] = &[
    counter(
        "warpmeter_namespace_gpu_seconds_total",
        Unit::GpuSeconds,
        Level::Minimal,
        &["namespace", "state"],
        "GPU time allocated to pods of the namespace, by state.",
        |view, rows| {
            for namespace in &view.namespaces {
                for (class, nanos) in Class::ALL.into_iter().zip(namespace.states) {
                    rows.push(&[&namespace.name, class.label()], units::seconds(nanos));
                }
            }
        },
    ),
    counter(
        "warpmeter_namespace_cost_total",
        Unit::Currency,
        Level::Minimal,
        &["namespace", "currency", "state"],
        "Cost of GPU time allocated to pods of the namespace, by state, as far as prices are known.",
        |view, rows| {
            for namespace in &view.namespaces {
                for (class, cost) in Class::ALL.into_iter().zip(namespace.costs.into_iter().flatten()) {
                    rows.push(&[&namespace.name, &view.currency, class.label()], units::money(cost));
                }
            }
        },
    ),
    counter(
        "warpmeter_namespace_energy_cost_total",
        Unit::Currency,
        Level::Standard,
        &["namespace", "currency"],
        "Cost of the energy of the namespace's pods, as far as the price of energy is known.",
        |view, rows| {
            for namespace in &view.namespaces {
                let labels = [&*namespace.name, &view.currency];
                rows.maybe(&labels, namespace.energy_cost.map(units::money));
            }
        },
    ),
];
