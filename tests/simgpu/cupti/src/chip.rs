//! What each chip's performance monitor can count, and how much of it in one pass.
//!
//! Names, and which of them fit together, as CUPTI 12.8's own host library has them for these chips.

use warpmeter_simgpu::layout::{Device, MonitorSample};

/// The chip of a device.
pub(crate) fn of(device: &Device) -> &'static str {
    match device.preset().capability {
        (9, _) => "GH100",
        (8, _) => "GA100",
        _ => "TU104",
    }
}

/// Whether a chip exists.
pub(crate) fn exists(chip: &str) -> bool {
    matches!(chip, "GH100" | "GA100" | "TU104")
}

/// Whether the chip's monitor can be triggered by time; the others only by their own clock.
pub(crate) fn has_time_trigger(chip: &str) -> bool {
    chip == "GH100"
}

/// The metrics, by the number that stands for them in images.
const METRICS: [&str; 9] = [
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum.pct_of_peak_sustained_elapsed",
    "dram__bytes_write.sum.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "pcie__read_bytes.sum",
    "pcie__write_bytes.sum",
];

/// The number of a metric, if there is such a one.
pub(crate) fn metric(name: &str) -> Option<u8> {
    METRICS.iter().position(|known| *known == name).and_then(|at| u8::try_from(at).ok())
}

/// How many passes a set of metrics takes.
pub(crate) fn passes(chip: &str, metrics: &[u8]) -> usize {
    // Turing counts the memory's cycles and its bytes in different passes.
    if chip == "TU104" && metrics.iter().any(|metric| matches!(metric, 3 | 4)) { 2 } else { 1 }
}

/// The value of a metric over a sample.
pub(crate) fn value(metric: u8, device: &Device, sample: &MonitorSample) -> Option<f64> {
    let nanos = (sample.end - sample.start).max(1) as f64;
    let percent = |milli: u64| milli as f64 / 10.0 / nanos;
    // The model does not tell reads from writes: three quarters are reads.
    let (read, written) = (0.75, 0.25);
    let dram = percent(sample.used.dram);
    let bytes = dram / 100.0 * peak(device) * nanos / 1e9;
    Some(match metric {
        0 => percent(sample.used.sm),
        1 => percent(sample.used.occupied),
        2 => percent(sample.used.tensor),
        3 => dram * read,
        4 => dram * written,
        5 => bytes * read,
        6 => bytes * written,
        7 => sample.used.rx as f64,
        8 => sample.used.tx as f64,
        _ => return None,
    })
}

/// Bytes per second: two transfers a cycle over the whole bus, whose width is the one that NVML gives.
fn peak(device: &Device) -> f64 {
    let preset = device.preset();
    let bits = if preset.mig { 5120.0 } else { 256.0 };
    2.0 * f64::from(preset.mem_clock_mhz) * 1e6 * bits / 8.0
}
