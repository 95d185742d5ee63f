//! Gauges and counters of a board, each asked only of devices that answer.

use warpmeter_core::fact::{Board, Throttle, Volume};
use warpmeter_core::time::MonoNs;

use crate::gpm::Links;
use crate::nvml::sys::{Clock, Device};
use crate::processes::MEMORY_LIMIT;
use crate::sieve::Sieve;
use crate::support::{Ask, Support};

/// 10 kW, in mW: several times what any board takes.
const POWER_LIMIT: u64 = 10_000_000;
/// That for thirty years, in mJ.
const ENERGY_LIMIT: u64 = 10_000_000_000_000_000;
/// 10 GHz, in MHz.
const CLOCK_LIMIT: u64 = 10_000;
/// More errors, replays and rows than a board survives.
const COUNT_LIMIT: u64 = 1 << 48;
/// NVLink in KiB: 4 TB/s for ten years.
const NVLINK_KIB_LIMIT: u64 = 1 << 60;

/// Reads the board. `links` is what GPM said of its traffic.
///
/// `nvmlDeviceGetPcieThroughput` is never used for what GPM does not give: each call blocks for 20 ms.
pub(crate) fn read(
    device: &Device,
    links: Links,
    support: &mut Support,
    now: MonoNs,
    sieve: &mut Sieve,
) -> Board {
    let power = support.ask(Ask::Power, now, || device.power()).said();
    let limit = support.ask(Ask::PowerLimit, now, || device.power_limit()).said();
    let energy = support.ask(Ask::Energy, now, || device.energy()).said();
    let temperature = support.ask(Ask::Temperature, now, || device.temperature()).said();
    let memory_temperature = support.ask(Ask::MemoryTemperature, now, || device.memory_temperature()).said();
    let sm_clock = support.ask(Ask::SmClock, now, || device.clock(Clock::Sm)).said();
    let memory_clock = support.ask(Ask::MemoryClock, now, || device.clock(Clock::Memory)).said();
    let throttle = support.ask(Ask::Throttle, now, || device.throttle()).said();
    let replays = support.ask(Ask::PcieReplays, now, || device.pcie_replays()).said();
    let ecc = support.ask(Ask::Ecc, now, || device.ecc_errors()).said();
    let remapped = support.ask(Ask::Remapped, now, || device.remapped()).said();
    let (memory_used, memory_total) = memory(device, support, now, sieve);
    let (nvlink_receive, nvlink_transmit) = nvlink(device, links, support, now, sieve);
    let mut count = |value: u32| sieve.word(value, 0..=COUNT_LIMIT);
    let pcie_replays = replays.and_then(&mut count);
    let remapped_correctable = remapped.and_then(|rows| count(rows.correctable));
    let remapped_uncorrectable = remapped.and_then(|rows| count(rows.uncorrectable));
    Board {
        power_mw: power.and_then(|power| sieve.word(power, 0..=POWER_LIMIT)),
        energy_mj: energy.and_then(|energy| sieve.long(energy, 0..=ENERGY_LIMIT)),
        power_limit_mw: limit.and_then(|limit| sieve.word(limit, 1..=POWER_LIMIT)),
        temperature_c: temperature.and_then(|celsius| sieve.celsius(celsius)),
        memory_temperature_c: memory_temperature
            .and_then(|celsius| sieve.celsius(u32::try_from(celsius).unwrap_or(u32::MAX))),
        sm_clock_mhz: sm_clock.and_then(|clock| sieve.word(clock, 0..=CLOCK_LIMIT)),
        memory_clock_mhz: memory_clock.and_then(|clock| sieve.word(clock, 0..=CLOCK_LIMIT)),
        throttle: throttle.map(reasons),
        memory_used,
        memory_total,
        pcie_receive: links.pcie_receive,
        pcie_transmit: links.pcie_transmit,
        nvlink_receive,
        nvlink_transmit,
        pcie_replays,
        ecc_corrected: ecc.and_then(|(corrected, _)| sieve.long(corrected, 0..=COUNT_LIMIT)),
        ecc_uncorrected: ecc.and_then(|(_, uncorrected)| sieve.long(uncorrected, 0..=COUNT_LIMIT)),
        remapped_correctable,
        remapped_uncorrectable,
        remap_pending: remapped.map(|rows| rows.pending),
        remap_failed: remapped.map(|rows| rows.failed),
    }
}

/// Memory in use and in total, in bytes; never more in use than there is.
pub(crate) fn memory(
    device: &Device,
    support: &mut Support,
    now: MonoNs,
    sieve: &mut Sieve,
) -> (Option<u64>, Option<u64>) {
    let Some((used, total)) = support.ask(Ask::Memory, now, || device.memory()).said() else {
        return (None, None);
    };
    let total = sieve.long(total, 1..=MEMORY_LIMIT);
    (sieve.long(used, 0..=total.unwrap_or(MEMORY_LIMIT)), total)
}

/// NVLink from GPM where that gives it, otherwise from the driver's counters of payload.
fn nvlink(
    device: &Device,
    links: Links,
    support: &mut Support,
    now: MonoNs,
    sieve: &mut Sieve,
) -> (Option<Volume>, Option<Volume>) {
    if links.nvlink_receive.is_some() || links.nvlink_transmit.is_some() {
        return (links.nvlink_receive, links.nvlink_transmit);
    }
    let Some((transmitted, received)) = support.ask(Ask::Nvlink, now, || device.nvlink_kib()).said() else {
        return (None, None);
    };
    let mut total =
        |kib| sieve.long(kib, 0..=NVLINK_KIB_LIMIT).map(|kib| Volume::Total(kib.saturating_mul(1024)));
    (total(received), total(transmitted))
}

/// Bit 0 means idle and is no reason; bits that have no name here are left out.
fn reasons(bits: u64) -> Vec<Throttle> {
    let reason = |throttle| match throttle {
        Throttle::ApplicationClocks => 0x2,
        Throttle::SwPowerCap => 0x4,
        Throttle::HwSlowdown => 0x8,
        Throttle::SyncBoost => 0x10,
        Throttle::SwThermal => 0x20,
        Throttle::HwThermal => 0x40,
        Throttle::HwPowerBrake => 0x80,
        Throttle::Display => 0x100,
    };
    Throttle::ALL.into_iter().filter(|throttle| bits & reason(*throttle) != 0).collect()
}

#[cfg(test)]
mod tests {
    use nvml_wrapper::bitmasks::device::ThrottleReasons;

    use super::*;

    #[test]
    fn an_idle_gpu_is_not_throttled() {
        assert_eq!(reasons(1), []);
        assert_eq!(reasons(0), []);
        assert_eq!(reasons(1 << 40), [], "bits without a name");
    }

    #[test]
    fn bits_are_those_of_the_library() {
        let bits =
            ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::GPU_IDLE;
        assert_eq!(reasons(bits.bits()), [Throttle::SwPowerCap, Throttle::HwThermal]);
        assert_eq!(reasons(ThrottleReasons::all().bits()), Throttle::ALL);
    }
}
