//! Families of owners that are not pods: containers, Slurm jobs, systemd units, processes of the host.

use warpmeter_core::identity::{MigId, Owner};
use warpmeter_core::state::{Class, State};
use warpmeter_core::view::{AccountView, View};

use super::{Family, Group, Level, Unit, counter, gauge};
use crate::units;

pub(super) const GROUP: Group = Group {
    title: "Other owners",
    about: "Owners that are not Kubernetes pods: `owner_kind` is `container`, `slurm_job`, `systemd_unit` \
            or `host`, and `owner` is the container's identifier, the job's number, the unit's name, or \
            `host`.",
    families: FAMILIES,
};

const FAMILIES: &[Family] = &[
    counter(
        "warpmeter_owner_gpu_seconds_total",
        Unit::GpuSeconds,
        Level::Minimal,
        &["owner_kind", "owner", "gpu_uuid", "mig", "state", "cause"],
        "GPU time allocated to the owner, by state and by what caused it.",
        |view, rows| {
            for (account, [kind, owner, gpu, mig]) in accounts(view) {
                for (state, nanos) in State::ALL.into_iter().zip(account.states) {
                    let labels = [kind, owner, gpu, mig, state.class().label(), state.cause()];
                    rows.push(&labels, units::seconds(nanos));
                }
            }
        },
    ),
    counter(
        "warpmeter_owner_cost_total",
        Unit::Currency,
        Level::Minimal,
        &["owner_kind", "owner", "gpu_uuid", "mig", "currency", "state"],
        "Cost of GPU time allocated to the owner, by state; no series while the price is not known.",
        |view, rows| {
            for (account, [kind, owner, gpu, mig]) in accounts(view) {
                for (class, cost) in Class::ALL.into_iter().zip(account.costs.into_iter().flatten()) {
                    rows.push(&[kind, owner, gpu, mig, &view.currency, class.label()], units::money(cost));
                }
            }
        },
    ),
    counter(
        "warpmeter_owner_gpu_used_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        &["owner_kind", "owner", "gpu_uuid", "mig"],
        "GPU time in which the owner's work ran, borrowed time included.",
        |view, rows| {
            for (account, labels) in accounts(view) {
                rows.push(&labels, units::seconds(account.used));
            }
        },
    ),
    gauge(
        "warpmeter_owner_memory_used_bytes",
        Unit::Bytes,
        Level::Standard,
        &["owner_kind", "owner", "gpu_uuid", "mig"],
        "Device memory in use by the owner.",
        |view, rows| {
            for (account, labels) in accounts(view) {
                rows.maybe(&labels, account.memory_used.filter(|_| !account.ended).map(units::count));
            }
        },
    ),
];

fn accounts(view: &View) -> impl Iterator<Item = (&AccountView, [&str; 4])> {
    view.accounts.iter().filter(|account| !matches!(account.owner, Owner::Pod { .. })).map(|account| {
        let mig = account.device.mig.as_ref().map_or("", MigId::as_str);
        let owner = &account.owner;
        (account, [owner.kind(), owner.name(), account.device.gpu.as_str(), mig])
    })
}
