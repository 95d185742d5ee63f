//! What each chip's performance monitor can count, and how much of it in one pass.
//!
//! Names, and which of them fit together, as CUPTI 12.8's own host library has them for these chips, but for two: AD102,
//! which has both forms of the tensor metric, is without the older, so that the newer is seen to be asked for; and TU117,
//! which has no tensor pipes, is without any, so that a chip lacks one (really, GB100 has no PCIe bytes).

use warpmeter_simgpu::layout::{Device, MonitorSample};

/// The chips.
pub(crate) const CHIPS: [&str; 5] = ["GH100", "GA100", "TU104", "AD102", "TU117"];

/// The chip of a device.
pub(crate) fn of(device: &Device) -> &'static str {
    device.preset().chip
}

/// Whether a chip exists.
pub(crate) fn exists(chip: &str) -> bool {
    CHIPS.contains(&chip)
}

/// Whether the chip's monitor can be triggered by time; the others only by their own clock.
pub(crate) fn has_time_trigger(chip: &str) -> bool {
    matches!(chip, "GH100" | "AD102")
}

fn is_turing(chip: &str) -> bool {
    chip.starts_with("TU")
}

/// The metrics, by the number that stands for them in images.
const METRICS: [&str; 10] = [
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum.pct_of_peak_sustained_elapsed",
    "dram__bytes_write.sum.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "pcie__read_bytes.sum",
    "pcie__write_bytes.sum",
    "sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_elapsed",
];

/// The number of a metric, if the chip has such a one.
pub(crate) fn metric(chip: &str, name: &str) -> Option<u8> {
    let at = METRICS.iter().position(|known| *known == name)?;
    let has = match at {
        2 => !matches!(chip, "AD102" | "TU117"),
        9 => chip == "AD102",
        _ => true,
    };
    u8::try_from(at).ok().filter(|_| has)
}

/// How many passes a set of metrics takes.
pub(crate) fn passes(chip: &str, metrics: &[u8]) -> usize {
    // Turing counts the memory's cycles and its bytes in different passes.
    if is_turing(chip) && metrics.iter().any(|metric| matches!(metric, 3 | 4)) { 2 } else { 1 }
}

/// Whether a full buffer can lose its oldest samples instead of the newest.
pub(crate) fn can_keep_latest(chip: &str) -> bool {
    !is_turing(chip)
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
        2 | 9 => percent(sample.used.tensor),
        3 => dram * read,
        4 => dram * written,
        5 => bytes * read,
        6 => bytes * written,
        7 => sample.used.rx as f64,
        8 => sample.used.tx as f64,
        _ => return None,
    })
}

/// Bytes per second: two transfers a cycle over the whole bus.
fn peak(device: &Device) -> f64 {
    let preset = device.preset();
    2.0 * f64::from(preset.mem_clock_mhz) * 1e6 * f64::from(preset.memory_bits) / 8.0
}
