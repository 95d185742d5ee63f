//! The table of names: kinds, units and scales are DCGM's.

use warpmeter_core::fact::Board;
use warpmeter_core::split::Split;
use warpmeter_core::view::Activity;

use super::series::Series;
use super::window::{Device, Gpu};
use crate::catalogue::Kind;
use crate::units;

/// One metric family.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    /// Adds a GPU's series.
    pub(super) read: fn(&Gpu<'_>, &mut Series<'_>),
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Gpu<'_>, &mut Series<'_>)) -> Family {
    Family { name, help, kind: Kind::Gauge, read }
}

const fn counter(name: &'static str, help: &'static str, read: fn(&Gpu<'_>, &mut Series<'_>)) -> Family {
    Family { name, help, kind: Kind::Counter, read }
}

pub(super) const FAMILIES: &[Family] = &[
    gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", |gpu, series| {
        whole(gpu, series, gpu.view.board.sm_clock_mhz.map(units::count));
    }),
    gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", |gpu, series| {
        whole(gpu, series, gpu.view.board.memory_clock_mhz.map(units::count));
    }),
    gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", |gpu, series| {
        whole(gpu, series, gpu.view.board.temperature_c.map(units::celsius));
    }),
    gauge("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", |gpu, series| {
        whole(gpu, series, gpu.view.board.memory_temperature_c.map(units::celsius));
    }),
    gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W), divided as energy is.", power),
    counter(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Energy consumption since the daemon's start (in mJ), divided by use.",
        energy,
    ),
    counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", |gpu, series| {
        whole(gpu, series, gpu.view.board.pcie_replays.map(units::count));
    }),
    gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %), divided by use.", |gpu, series| {
        // The driver has no such value for MIG instances, so DCGM has none either.
        for device in gpu.devices.iter().filter(|device| device.view.id.mig.is_none()) {
            activity(gpu, device, series, 100.0, |activity| activity.engine);
        }
    }),
    gauge(
        "DCGM_FI_DEV_XID_ERRORS",
        "Number of the last XID error; 0: none since the daemon's start.",
        |gpu, series| {
            whole(gpu, series, Some(units::count(gpu.xid)));
        },
    ),
    gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", |gpu, series| {
        for device in &gpu.devices {
            let free = capacity(gpu, device).zip(memory_used(gpu, device));
            let free = free.and_then(|(capacity, used)| capacity.checked_sub(used));
            series.undivided(gpu, device, free.map(units::mebibytes));
        }
    }),
    gauge(
        "DCGM_FI_DEV_FB_USED",
        "Framebuffer memory used (in MiB), by its owners' processes.",
        |gpu, series| {
            for device in &gpu.devices {
                let total = memory_used(gpu, device);
                series.divided(gpu, device, total, |pod| pod.view.memory_used, units::mebibytes);
            }
        },
    ),
    counter(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors.",
        |gpu, series| whole(gpu, series, board(gpu).remapped_uncorrectable.map(units::count)),
    ),
    counter(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for correctable errors.",
        |gpu, series| whole(gpu, series, board(gpu).remapped_correctable.map(units::count)),
    ),
    gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.", |gpu, series| {
        whole(gpu, series, board(gpu).remap_failed.map(units::flag));
    }),
    gauge(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active, divided by use.",
        |gpu, series| each(gpu, series, |activity| activity.engine),
    ),
    gauge(
        "DCGM_FI_PROF_SM_ACTIVE",
        "Ratio of cycles an SM has at least 1 warp assigned, divided by use.",
        |gpu, series| each(gpu, series, |activity| activity.sm_active),
    ),
    gauge(
        "DCGM_FI_PROF_SM_OCCUPANCY",
        "Ratio of warps resident on an SM to their maximum, divided by use.",
        |gpu, series| each(gpu, series, |activity| activity.sm_occupied),
    ),
    gauge(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor pipes are active, divided by use.",
        |gpu, series| each(gpu, series, |activity| activity.tensor),
    ),
    gauge(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of device memory bandwidth used to its peak, divided by use.",
        |gpu, series| each(gpu, series, |activity| activity.dram),
    ),
    gauge("DCGM_FI_PROF_PCIE_TX_BYTES", "Bytes a second transmitted over PCIe.", |gpu, series| {
        whole(gpu, series, gpu.pcie_transmit.and_then(|bytes| units::per_second(bytes, gpu.window)));
    }),
    gauge("DCGM_FI_PROF_PCIE_RX_BYTES", "Bytes a second received over PCIe.", |gpu, series| {
        whole(gpu, series, gpu.pcie_receive.and_then(|bytes| units::per_second(bytes, gpu.window)));
    }),
];

/// A value of the board as a whole: on a GPU in MIG mode, of no instance.
fn whole(gpu: &Gpu<'_>, series: &mut Series<'_>, value: Option<f64>) {
    match gpu.devices.iter().find(|device| device.view.id.mig.is_none()) {
        Some(device) => series.undivided(gpu, device, value),
        None => {
            if let Some(value) = value {
                series.push(gpu, None, None, value);
            }
        }
    }
}

fn board<'a>(gpu: &'a Gpu<'_>) -> &'a Board {
    &gpu.view.board
}

fn each(gpu: &Gpu<'_>, series: &mut Series<'_>, pick: fn(&Activity) -> Option<u64>) {
    for device in &gpu.devices {
        activity(gpu, device, series, 1.0, pick);
    }
}

/// Activity as a share of the device's time: of a MIG instance, of the instance's.
fn activity(
    gpu: &Gpu<'_>,
    device: &Device<'_>,
    series: &mut Series<'_>,
    scale: f64,
    pick: fn(&Activity) -> Option<u64>,
) {
    let Some(total) = pick(&device.activity).filter(|_| device.profiled > 0) else { return };
    let value = |nanos| units::share(nanos, device.profiled) * scale;
    series.divided(gpu, device, Some(total), |pod| pick(&pod.activity), value);
}

fn memory_used(gpu: &Gpu<'_>, device: &Device<'_>) -> Option<u64> {
    let board = if device.view.id.mig.is_none() { gpu.view.board.memory_used } else { None };
    device.view.memory_used.or(board)
}

fn capacity(gpu: &Gpu<'_>, device: &Device<'_>) -> Option<u64> {
    match (&device.view.id.mig, &device.view.instance) {
        (None, _) => gpu.view.board.memory_total.or(gpu.view.gpu.memory_bytes),
        (Some(_), instance) => instance.as_ref().and_then(|instance| instance.memory_bytes),
    }
}

/// Power now, in proportion to the energy that each has had of the window: one value, so that the sum is the board's.
fn power(gpu: &Gpu<'_>, series: &mut Series<'_>) {
    let Some(power) = gpu.view.board.power_mw else { return };
    let live: Vec<_> =
        gpu.devices.iter().flat_map(|device| device.live().map(move |pod| (device, pod))).collect();
    let weights: Vec<_> =
        live.iter().map(|(device, pod)| (Some((*device, *pod)), pod.energy.unwrap_or(0))).collect();
    let theirs = weights.iter().map(|(_, energy)| energy).sum();
    let nobodys = gpu.energy.unwrap_or(0).saturating_sub(theirs);
    let weights = weights.into_iter().chain([(None, nobodys)]).collect();
    let split = gpu.energy.and_then(|_| Split::by_weight(power, weights));
    let Some(split) = split else {
        return whole(gpu, series, Some(units::watts(power)));
    };
    let alone = live.len() == 1;
    for (whose, part) in split.into_parts() {
        match whose {
            Some((device, pod)) => series.push(gpu, Some(device), Some(pod), units::watts(part)),
            None => series.rest(gpu, None, part, alone, units::watts),
        }
    }
}

/// Energy of each pod, ended ones included as long as they are remembered, and what went to nobody else.
fn energy(gpu: &Gpu<'_>, series: &mut Series<'_>) {
    if gpu.view.totals.energy_uj.is_none() {
        return;
    }
    for device in &gpu.devices {
        for pod in &device.pods {
            if let Some(energy) = pod.view.energy_uj {
                series.push(gpu, Some(device), Some(pod), units::millijoules(energy));
            }
        }
    }
    series.push(gpu, None, None, units::millijoules(gpu.nobodys_energy));
}
