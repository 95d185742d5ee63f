//! Families of devices: a whole GPU, or each MIG instance of one.

use warpmeter_core::identity::{DeviceId, MigId};
use warpmeter_core::price::Money;
use warpmeter_core::state::DeviceState;
use warpmeter_core::view::{DeviceView, Evidence, GpuView, Residue, View};

use super::{Family, Group, Level, Unit, counter, gauge};
use crate::rows::Rows;
use crate::units;

const DEVICE: &[&str] = &["gpu_uuid", "mig"];

pub(super) const GROUP: Group = Group {
    title: "Devices",
    about: "A device is a whole GPU (`mig=\"\"`) or, on a GPU in MIG mode, each of its instances. All \
            device time is in seconds of the physical GPU: an instance with 2 of 7 slices gets 2/7 of a \
            second each second. For each `gpu_uuid`, `warpmeter_gpu_seconds_total` sums to the time for \
            which the GPU was watched: slices of a GPU in MIG mode that belong to no instance are there \
            with `mig=\"\"`. For each device, the four families of use (used, unattributed, inactive, use \
            unknown) sum to the same time as its states. Activity is a ratio integrated over time: divide \
            its rate by that of `warpmeter_gpu_profiled_seconds_total`.",
    families: FAMILIES,
};

const FAMILIES: &[Family] = &[
    gauge(
        "warpmeter_gpu_info",
        Unit::Info,
        Level::Minimal,
        &["gpu_uuid", "mig", "index", "minor", "model", "pci_bus_id", "mig_profile", "sharing"],
        "A GPU, or a MIG instance that exists now; sharing is none, mig or replicas.",
        info,
    ),
    counter(
        "warpmeter_gpu_seconds_total",
        Unit::GpuSeconds,
        Level::Minimal,
        &["gpu_uuid", "mig", "state"],
        "GPU time by state: active, stalled, idle, unknown (allocated), unallocated, unallocatable.",
        |view, rows| {
            for gpu in &view.gpus {
                states(
                    gpu,
                    |device| Some(device.states.map(u128::from)),
                    |rest| [Some(u128::from(rest.unallocated)), Some(u128::from(rest.unallocatable))],
                    |mig, state, nanos| {
                        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
                        rows.push(&[gpu.gpu.id.as_str(), mig, state.label()], units::seconds(nanos));
                    },
                );
            }
        },
    ),
    counter(
        "warpmeter_gpu_cost_total",
        Unit::Currency,
        Level::Minimal,
        &["gpu_uuid", "mig", "currency", "state"],
        "Cost of GPU time by what became of it; no series while the price is not known.",
        |view, rows| {
            for gpu in &view.gpus {
                states(
                    gpu,
                    |device| device.costs.map(|costs| costs.map(|cost| cost.0)),
                    |rest| {
                        [rest.unallocated_cost.map(|cost| cost.0), rest.unallocatable_cost.map(|cost| cost.0)]
                    },
                    |mig, state, amount| {
                        let labels = [gpu.gpu.id.as_str(), mig, &view.currency, state.label()];
                        rows.push(&labels, units::money(Money(amount)));
                    },
                );
            }
        },
    ),
    counter(
        "warpmeter_gpu_used_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "GPU time in which work of known owners ran, borrowed time included.",
        |view, rows| each(view, rows, |device| Some(units::seconds(device.usage.used))),
    ),
    counter(
        "warpmeter_gpu_unattributed_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "GPU time in which work ran and nobody knows whose.",
        |view, rows| each(view, rows, |device| Some(units::seconds(device.usage.unattributed))),
    ),
    counter(
        "warpmeter_gpu_inactive_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "GPU time in which nothing ran.",
        |view, rows| each(view, rows, |device| Some(units::seconds(device.usage.inactive))),
    ),
    counter(
        "warpmeter_gpu_use_unknown_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "GPU time of which it is not known whether anything ran.",
        |view, rows| each(view, rows, |device| Some(units::seconds(device.usage.unknown))),
    ),
    counter(
        "warpmeter_evidence_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        &["gpu_uuid", "mig", "ledger", "evidence"],
        "GPU time by how its amounts in a ledger (allocation, use) are known: measured, apportioned, inferred, assumed.",
        evidence,
    ),
    counter(
        "warpmeter_gpu_profiled_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "GPU time with valid counters: the denominator of activity.",
        |view, rows| each(view, rows, |device| Some(units::seconds(device.profiled))),
    ),
    counter(
        "warpmeter_gpu_engine_active_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "GPU time in which a kernel of whatever kind was executing.",
        |view, rows| each(view, rows, |device| device.activity.engine.map(units::seconds)),
    ),
    counter(
        "warpmeter_gpu_sm_active_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "Share of SMs with a warp resident, over time.",
        |view, rows| each(view, rows, |device| device.activity.sm_active.map(units::seconds)),
    ),
    counter(
        "warpmeter_gpu_sm_occupied_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "Warps resident as a share of the most there can be, over time.",
        |view, rows| each(view, rows, |device| device.activity.sm_occupied.map(units::seconds)),
    ),
    counter(
        "warpmeter_gpu_tensor_active_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "Share of tensor pipes active, over time.",
        |view, rows| each(view, rows, |device| device.activity.tensor.map(units::seconds)),
    ),
    counter(
        "warpmeter_gpu_dram_bandwidth_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        DEVICE,
        "Device memory bandwidth used as a share of its peak, over time.",
        |view, rows| each(view, rows, |device| device.activity.dram.map(units::seconds)),
    ),
    gauge(
        "warpmeter_gpu_memory_used_bytes",
        Unit::Bytes,
        Level::Standard,
        DEVICE,
        "Device memory in use.",
        |view, rows| {
            each_present(view, rows, |gpu, device| {
                let board = if device.id.mig.is_none() { gpu.board.memory_used } else { None };
                device.memory_used.or(board).filter(|_| gpu.up).map(units::count)
            });
        },
    ),
    gauge(
        "warpmeter_gpu_memory_capacity_bytes",
        Unit::Bytes,
        Level::Standard,
        DEVICE,
        "Device memory that there is.",
        |view, rows| {
            each_present(view, rows, |gpu, device| {
                let bytes = match (&device.id.mig, &device.instance) {
                    (None, _) => gpu.board.memory_total.or(gpu.gpu.memory_bytes),
                    (Some(_), instance) => instance.as_ref().and_then(|instance| instance.memory_bytes),
                };
                bytes.map(units::count)
            });
        },
    ),
];

fn labels(device: &DeviceId) -> [&str; 2] {
    [device.gpu.as_str(), device.mig.as_ref().map_or("", MigId::as_str)]
}

fn each(view: &View, rows: &mut Rows<'_>, read: impl Fn(&DeviceView) -> Option<f64>) {
    for device in view.gpus.iter().flat_map(|gpu| &gpu.devices) {
        rows.maybe(&labels(&device.id), read(device));
    }
}

fn each_present(view: &View, rows: &mut Rows<'_>, read: impl Fn(&GpuView, &DeviceView) -> Option<f64>) {
    for gpu in &view.gpus {
        for device in &gpu.devices {
            let value = if device.present { read(gpu, device) } else { None };
            rows.maybe(&labels(&device.id), value);
        }
    }
}

/// Reads the states of a GPU's devices and of its slices outside any instance.
///
/// A GPU whose MIG mode was switched on while it was watched has both a past as a whole device and a residue:
/// both are `mig=""`, so they make one series. A device itself never has unallocatable time.
fn states(
    gpu: &GpuView,
    of_device: impl Fn(&DeviceView) -> Option<[u128; DeviceState::COUNT]>,
    of_residue: impl Fn(&Residue) -> [Option<u128>; 2],
    mut push: impl FnMut(&str, DeviceState, u128),
) {
    let mut residue = gpu.residue.as_ref().map(of_residue);
    for device in &gpu.devices {
        let mut amounts = of_device(device).map_or([None; DeviceState::COUNT], |amounts| amounts.map(Some));
        let unallocatable = &mut amounts[DeviceState::Unallocatable.index()];
        *unallocatable = unallocatable.filter(|amount| *amount > 0);
        if device.id.mig.is_none() {
            for (state, extra) in RESIDUAL.into_iter().zip(residue.take().into_iter().flatten()) {
                let amount = &mut amounts[state.index()];
                *amount = sum(*amount, extra);
            }
        }
        for (state, amount) in DeviceState::ALL.into_iter().zip(amounts) {
            if let Some(amount) = amount {
                push(labels(&device.id)[1], state, amount);
            }
        }
    }
    for (state, amount) in RESIDUAL.into_iter().zip(residue.into_iter().flatten()) {
        if let Some(amount) = amount {
            push("", state, amount);
        }
    }
}

const RESIDUAL: [DeviceState; 2] = [DeviceState::Unallocated, DeviceState::Unallocatable];

fn sum(a: Option<u128>, b: Option<u128>) -> Option<u128> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

fn evidence(view: &View, rows: &mut Rows<'_>) {
    for device in view.gpus.iter().flat_map(|gpu| &gpu.devices) {
        let [gpu, mig] = labels(&device.id);
        for (ledger, amounts) in [("allocation", device.allocation_evidence), ("use", device.use_evidence)] {
            for (evidence, nanos) in Evidence::ALL.into_iter().zip(amounts) {
                rows.push(&[gpu, mig, ledger, evidence.label()], units::seconds(nanos));
            }
        }
    }
}

fn info(view: &View, rows: &mut Rows<'_>) {
    for GpuView { gpu, sharing, devices, .. } in &view.gpus {
        let [index, minor] =
            [gpu.index, gpu.minor].map(|number| number.map(|n| n.to_string()).unwrap_or_default());
        let mut push = |mig: &str, profile: &str| {
            let labels =
                [gpu.id.as_str(), mig, &index, &minor, &gpu.model, &gpu.pci_bus_id, profile, sharing];
            rows.push(&labels, 1.0);
        };
        push("", "");
        for instance in
            devices.iter().filter(|device| device.present).filter_map(|device| device.instance.as_ref())
        {
            push(instance.id.as_str(), &instance.profile);
        }
    }
}
