//! Families of physical GPUs: what a board has once, however it is divided.

use warpmeter_core::fact::{Board, Throttle};
use warpmeter_core::peak::Peak;
use warpmeter_core::view::{BoardTotals, GpuView, View};

use super::{Family, Group, Level, Unit, counter, gauge};
use crate::rows::Rows;
use crate::units;

const GPU: &[&str] = &["gpu_uuid"];

pub(super) const GROUP: Group = Group {
    title: "Boards",
    about: "Once for each physical GPU, and never repeated for MIG instances. While the GPU cannot be \
            read, gauges other than `warpmeter_gpu_up` and the time of the last reading are absent. \
            Counts of replays, ECC errors and remapped rows are the device's own: they do not start at 0 \
            with the daemon.",
    families: FAMILIES,
};

const FAMILIES: &[Family] = &[
    gauge(
        "warpmeter_gpu_up",
        Unit::Flag,
        Level::Minimal,
        GPU,
        "Whether the GPU can be read.",
        |view, rows| {
            for gpu in &view.gpus {
                rows.push(&[gpu.gpu.id.as_str()], units::flag(gpu.up));
            }
        },
    ),
    gauge(
        "warpmeter_gpu_last_reading_timestamp_seconds",
        Unit::Timestamp,
        Level::Standard,
        GPU,
        "When the last reading of the GPU's counters ended.",
        |view, rows| {
            for gpu in &view.gpus {
                let wall = gpu.last_reading.and_then(|at| units::wall(view, at));
                rows.maybe(&[gpu.gpu.id.as_str()], wall.map(units::timestamp));
            }
        },
    ),
    gauge(
        "warpmeter_gpu_peak_dram_bandwidth_bytes_per_second",
        Unit::BytesPerSecond,
        Level::Standard,
        GPU,
        "Peak bandwidth of the GPU's memory: shares of bandwidth times this are bytes; no series for a model of which it is \
         not known.",
        |view, rows| peak(view, rows, |gpu| gpu.dram_peak),
    ),
    gauge(
        "warpmeter_gpu_peak_tensor_flops_per_second",
        Unit::FlopsPerSecond,
        Level::Standard,
        GPU,
        "Peak rate of the GPU's tensor pipes with dense FP16; no series for a model of which it is not known.",
        |view, rows| peak(view, rows, |gpu| gpu.tensor_peak),
    ),
    gauge(
        "warpmeter_gpu_peak_info",
        Unit::Info,
        Level::Standard,
        &["gpu_uuid", "peak", "origin", "source"],
        "Who says what a peak (dram, tensor) is: the configuration, the table that is built_in (written after the data sheet in source), or the driver.",
        |view, rows| {
            for gpu in view.gpus.iter().filter(|gpu| gpu.up) {
                for (name, peak) in [("dram", gpu.dram_peak), ("tensor", gpu.tensor_peak)] {
                    let Some(Peak { origin, .. }) = peak else { continue };
                    rows.push(&[gpu.gpu.id.as_str(), name, origin.label(), origin.document()], 1.0);
                }
            }
        },
    ),
    gauge(
        "warpmeter_gpu_sm_counted_until_timestamp_seconds",
        Unit::Timestamp,
        Level::Standard,
        GPU,
        "Up to when SM activity, occupancy, tensor, DRAM and PCIe are counted, where they come from a neighbouring DCGM \
         exporter: those of later time are still to come, or lost.",
        |view, rows| {
            for gpu in &view.gpus {
                let wall = gpu.averaged_until.and_then(|at| units::wall(view, at));
                rows.maybe(&[gpu.gpu.id.as_str()], wall.map(units::timestamp));
            }
        },
    ),
    counter(
        "warpmeter_gpu_energy_joules_total",
        Unit::Joules,
        Level::Standard,
        GPU,
        "Energy that the board has taken.",
        |view, rows| totals(view, rows, |totals| totals.energy_uj.map(units::joules)),
    ),
    counter(
        "warpmeter_gpu_idle_energy_joules_total",
        Unit::Joules,
        Level::Standard,
        GPU,
        "Of that, what the board draws without work: the least that it was seen to, over time; no series until then.",
        |view, rows| totals(view, rows, |totals| totals.idle_energy_uj.map(units::joules)),
    ),
    counter(
        "warpmeter_gpu_energy_cost_total",
        Unit::Currency,
        Level::Standard,
        &["gpu_uuid", "currency"],
        "Cost of that energy; no series while the price of energy is not known.",
        |view, rows| {
            for gpu in &view.gpus {
                let labels = [gpu.gpu.id.as_str(), &view.currency];
                rows.maybe(&labels, gpu.totals.energy_cost.map(units::money));
            }
        },
    ),
    counter(
        "warpmeter_gpu_pcie_receive_bytes_total",
        Unit::Bytes,
        Level::Standard,
        GPU,
        "Bytes received over PCIe, from host to device.",
        |view, rows| totals(view, rows, |totals| totals.pcie_receive.map(units::large)),
    ),
    counter(
        "warpmeter_gpu_pcie_transmit_bytes_total",
        Unit::Bytes,
        Level::Standard,
        GPU,
        "Bytes transmitted over PCIe, from device to host.",
        |view, rows| totals(view, rows, |totals| totals.pcie_transmit.map(units::large)),
    ),
    counter(
        "warpmeter_gpu_nvlink_receive_bytes_total",
        Unit::Bytes,
        Level::Standard,
        GPU,
        "Bytes received over NVLink.",
        |view, rows| totals(view, rows, |totals| totals.nvlink_receive.map(units::large)),
    ),
    counter(
        "warpmeter_gpu_nvlink_transmit_bytes_total",
        Unit::Bytes,
        Level::Standard,
        GPU,
        "Bytes transmitted over NVLink.",
        |view, rows| totals(view, rows, |totals| totals.nvlink_transmit.map(units::large)),
    ),
    counter(
        "warpmeter_gpu_throttled_seconds_total",
        Unit::Seconds,
        Level::Standard,
        &["gpu_uuid", "reason"],
        "Time in which clocks were held down, by reason; reasons overlap.",
        |view, rows| {
            for gpu in &view.gpus {
                for (place, reason) in Throttle::ALL.into_iter().enumerate() {
                    let nanos = gpu.totals.throttle.as_ref().and_then(|nanos| nanos.get(place).copied());
                    rows.maybe(&[gpu.gpu.id.as_str(), reason.label()], nanos.map(units::seconds));
                }
            }
        },
    ),
    gauge("warpmeter_gpu_power_watts", Unit::Watts, Level::Standard, GPU, "Power now.", |view, rows| {
        board(view, rows, |board| board.power_mw.map(units::watts));
    }),
    gauge(
        "warpmeter_gpu_power_limit_watts",
        Unit::Watts,
        Level::Standard,
        GPU,
        "Power limit in force.",
        |view, rows| board(view, rows, |board| board.power_limit_mw.map(units::watts)),
    ),
    gauge(
        "warpmeter_gpu_temperature_celsius",
        Unit::Celsius,
        Level::Standard,
        GPU,
        "Temperature of the GPU core.",
        |view, rows| board(view, rows, |board| board.temperature_c.map(units::celsius)),
    ),
    gauge(
        "warpmeter_gpu_memory_temperature_celsius",
        Unit::Celsius,
        Level::Standard,
        GPU,
        "Temperature of device memory.",
        |view, rows| board(view, rows, |board| board.memory_temperature_c.map(units::celsius)),
    ),
    gauge(
        "warpmeter_gpu_sm_clock_hertz",
        Unit::Hertz,
        Level::Standard,
        GPU,
        "Clock of the SMs.",
        |view, rows| board(view, rows, |board| board.sm_clock_mhz.map(units::hertz)),
    ),
    gauge(
        "warpmeter_gpu_memory_clock_hertz",
        Unit::Hertz,
        Level::Standard,
        GPU,
        "Clock of device memory.",
        |view, rows| board(view, rows, |board| board.memory_clock_mhz.map(units::hertz)),
    ),
    counter(
        "warpmeter_gpu_xid_errors_total",
        Unit::Count,
        Level::Standard,
        &["gpu_uuid", "xid"],
        "Faults that the driver reported, by NVIDIA's number; a number appears with its first fault.",
        |view, rows| {
            for gpu in &view.gpus {
                for (xid, times) in &gpu.xids {
                    rows.push(&[gpu.gpu.id.as_str(), &xid.to_string()], units::count(*times));
                }
            }
        },
    ),
    counter(
        "warpmeter_gpu_pcie_replays_total",
        Unit::Count,
        Level::Standard,
        GPU,
        "PCIe replays since the driver was loaded.",
        |view, rows| board(view, rows, |board| board.pcie_replays.map(units::count)),
    ),
    counter(
        "warpmeter_gpu_ecc_corrected_errors_total",
        Unit::Count,
        Level::Standard,
        GPU,
        "Corrected ECC errors since the driver was loaded.",
        |view, rows| board(view, rows, |board| board.ecc_corrected.map(units::count)),
    ),
    counter(
        "warpmeter_gpu_ecc_uncorrected_errors_total",
        Unit::Count,
        Level::Standard,
        GPU,
        "Uncorrected ECC errors since the driver was loaded.",
        |view, rows| board(view, rows, |board| board.ecc_uncorrected.map(units::count)),
    ),
    counter(
        "warpmeter_gpu_remapped_rows_total",
        Unit::Count,
        Level::Standard,
        &["gpu_uuid", "cause"],
        "Rows of device memory remapped in the board's life, by the kind of error that caused it.",
        |view, rows| {
            for gpu in &view.gpus {
                let causes = [
                    ("correctable", gpu.board.remapped_correctable),
                    ("uncorrectable", gpu.board.remapped_uncorrectable),
                ];
                for (cause, count) in causes {
                    rows.maybe(&[gpu.gpu.id.as_str(), cause], count.map(units::count));
                }
            }
        },
    ),
    gauge(
        "warpmeter_gpu_row_remap_pending",
        Unit::Flag,
        Level::Standard,
        GPU,
        "Whether a row remapping waits for a reset of the GPU.",
        |view, rows| board(view, rows, |board| board.remap_pending.map(units::flag)),
    ),
    gauge(
        "warpmeter_gpu_row_remap_failed",
        Unit::Flag,
        Level::Standard,
        GPU,
        "Whether a row remapping has failed: the board needs replacing.",
        |view, rows| board(view, rows, |board| board.remap_failed.map(units::flag)),
    ),
];

fn board(view: &View, rows: &mut Rows<'_>, read: impl Fn(&Board) -> Option<f64>) {
    for gpu in &view.gpus {
        rows.maybe(&[gpu.gpu.id.as_str()], read(&gpu.board));
    }
}

fn peak(view: &View, rows: &mut Rows<'_>, read: impl Fn(&GpuView) -> Option<Peak>) {
    for gpu in &view.gpus {
        let known = if gpu.up { read(gpu) } else { None };
        rows.maybe(&[gpu.gpu.id.as_str()], known.map(|peak| units::count(peak.rate)));
    }
}

fn totals(view: &View, rows: &mut Rows<'_>, read: impl Fn(&BoardTotals) -> Option<f64>) {
    for gpu in &view.gpus {
        rows.maybe(&[gpu.gpu.id.as_str()], read(&gpu.totals));
    }
}
