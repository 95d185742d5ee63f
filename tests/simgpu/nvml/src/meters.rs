//! What a device measures: utilisation, power, energy, temperature, clocks, links, field values.

use std::ffi::{c_int, c_uint, c_ulonglong};

use warpmeter_simgpu::clock::real;
use warpmeter_simgpu::layout::{SNAPSHOTS, Snapshot, Totals};
use warpmeter_simgpu::{FaultKind, percent};

use crate::abi::{
    Answer, BLANK_32, BLANK_64, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, code, device_calls, get, narrow,
    nvmlDevice_t, nvmlFieldValue_t, nvmlPstates_t, nvmlReturn_t, nvmlSample_t, nvmlTemperature_v1_t,
    nvmlUtilization_t, nvmlValue_t, nvmlValueType_t, put, put_at,
};
use crate::session::View;

device_calls! {
    nvmlDeviceGetUtilizationRates(utilization: *mut nvmlUtilization_t) |v| {
        if v.faulty(FaultKind::Garbage) {
            return put(utilization, nvmlUtilization_t { gpu: u32::MAX, memory: 200_000 });
        }
        if v.is_mig() {
            return Err(NOT_SUPPORTED);
        }
        let (gpu, memory) = v.engine()?.snapshot(0).map_or((0, 0), |_| utilisation(v, 0));
        put(utilization, nvmlUtilization_t { gpu, memory })
    };
    nvmlDeviceGetSamples(
        kind: c_uint,
        last_seen: c_ulonglong,
        value_type: *mut nvmlValueType_t,
        count: *mut c_uint,
        samples: *mut nvmlSample_t
    ) |v| read_samples(v, kind, last_seen, value_type, count, samples);
    nvmlDeviceGetPowerUsage(power: *mut c_uint) |v| {
        v.physical()?;
        put(power, if v.faulty(FaultKind::Garbage) { BLANK_32 } else { v.shared().power_mw(v.target.device) })
    };
    nvmlDeviceGetTotalEnergyConsumption(energy: *mut c_ulonglong) |v| {
        v.physical()?;
        put(energy, if v.faulty(FaultKind::Garbage) { BLANK_64 } else { v.shared().energy_mj(v.target.device) })
    };
    nvmlDeviceGetPowerManagementMode(mode: *mut c_uint) |v| { v.physical()?; put(mode, 1) };
    nvmlDeviceGetPowerManagementLimit(limit: *mut c_uint)
        |v| { v.physical()?; put(limit, v.device().max_w * 1000) };
    nvmlDeviceGetPowerManagementDefaultLimit(limit: *mut c_uint)
        |v| { v.physical()?; put(limit, v.device().max_w * 1000) };
    nvmlDeviceGetEnforcedPowerLimit(limit: *mut c_uint)
        |v| { v.physical()?; put(limit, v.device().max_w * 1000) };
    nvmlDeviceGetPowerManagementLimitConstraints(low: *mut c_uint, high: *mut c_uint) |v| {
        v.physical()?;
        put(low, v.device().max_w * 1000 / 4)?;
        put(high, v.device().max_w * 1000)
    };
    nvmlDeviceGetTemperature(sensor: c_uint, temperature: *mut c_uint) |v| {
        if sensor != 0 { return Err(INVALID_ARGUMENT); }
        put(temperature, heat(v)?)
    };
    nvmlDeviceGetTemperatureV(temperature: *mut nvmlTemperature_v1_t) |v| {
        let mut t = get(temperature)?;
        t.temperature = heat(v)?.cast_signed();
        put(temperature, t)
    };
    nvmlDeviceGetTemperatureThreshold(kind: c_uint, temperature: *mut c_uint) |v| {
        v.physical()?;
        match kind {
            0 => put(temperature, 92),
            1 => put(temperature, 89),
            2 => put(temperature, 95),
            3 => put(temperature, 87),
            _ => Err(NOT_SUPPORTED),
        }
    };
    nvmlDeviceGetClockInfo(kind: c_uint, clock: *mut c_uint) |v| put(clock, mhz(v, kind, false)?);
    nvmlDeviceGetMaxClockInfo(kind: c_uint, clock: *mut c_uint) |v| put(clock, mhz(v, kind, true)?);
    nvmlDeviceGetClock(kind: c_uint, id: c_uint, clock: *mut c_uint) |v| put(clock, mhz(v, kind, id != 0)?);
    nvmlDeviceGetMaxCustomerBoostClock(kind: c_uint, clock: *mut c_uint) |v| put(clock, mhz(v, kind, true)?);
    nvmlDeviceGetApplicationsClock(kind: c_uint, clock: *mut c_uint) |v| put(clock, mhz(v, kind, true)?);
    nvmlDeviceGetDefaultApplicationsClock(kind: c_uint, clock: *mut c_uint) |v| put(clock, mhz(v, kind, true)?);
    nvmlDeviceGetCurrentClocksThrottleReasons(reasons: *mut c_ulonglong) |v| put(reasons, throttle(v)?);
    nvmlDeviceGetCurrentClocksEventReasons(reasons: *mut c_ulonglong) |v| put(reasons, throttle(v)?);
    nvmlDeviceGetSupportedClocksThrottleReasons(reasons: *mut c_ulonglong) |v| { v.physical()?; put(reasons, 0x1ff) };
    nvmlDeviceGetSupportedClocksEventReasons(reasons: *mut c_ulonglong) |v| { v.physical()?; put(reasons, 0x1ff) };
    nvmlDeviceGetPerformanceState(state: *mut nvmlPstates_t) |v| put(state, if busy(v) { 0 } else { idle_state(v) });
    nvmlDeviceGetPowerState(state: *mut nvmlPstates_t) |v| put(state, if busy(v) { 0 } else { idle_state(v) });
    nvmlDeviceGetPcieThroughput(counter: c_uint, value: *mut c_uint) |v| {
        v.physical()?;
        let kib: u64 = v.engines().iter().filter_map(|e| last(e.snapshot(1), e.snapshot(0))).map(|(dt, d)| {
            let bytes = if counter == 0 { d.tx } else { d.rx };
            bytes.saturating_mul(1_000_000_000) / dt / 1024
        }).sum();
        if counter > 1 { Err(INVALID_ARGUMENT) } else { put(value, narrow(kib)) }
    };
    nvmlDeviceGetEncoderUtilization(utilization: *mut c_uint, period: *mut c_uint) |v| {
        v.engine()?;
        v.physical()?;
        put(utilization, 0)?;
        put(period, 167_000)
    };
    nvmlDeviceGetDecoderUtilization(utilization: *mut c_uint, period: *mut c_uint) |v| {
        v.engine()?;
        v.physical()?;
        put(utilization, 0)?;
        put(period, 167_000)
    };
    nvmlDeviceGetFieldValues(count: c_int, values: *mut nvmlFieldValue_t) |v| {
        for at in 0..usize::try_from(count).map_err(|_| INVALID_ARGUMENT)? {
            let slot = values.wrapping_add(at);
            let mut field = get(slot)?;
            field.timestamp = (real() / 1000).cast_signed();
            field.latencyUsec = 0;
            field.nvmlReturn = code(field_value(v, &mut field));
            put(slot, field)?;
        }
        Ok(())
    };
}

/// The difference between two snapshots, and the time between them.
fn last(a: Option<&Snapshot>, b: Option<&Snapshot>) -> Option<(u64, Totals)> {
    let (a, b) = (a?, b?);
    let totals = Totals {
        active: b.totals.active - a.totals.active,
        dram: b.totals.dram - a.totals.dram,
        power: b.totals.power - a.totals.power,
        rx: b.totals.rx - a.totals.rx,
        tx: b.totals.tx - a.totals.tx,
        ..Totals::default()
    };
    Some(((b.at - a.at).max(1), totals))
}

/// Percent of the sample period `back` periods ago with a kernel running, and with the memory in use.
fn utilisation(v: &View<'_>, back: u64) -> (u32, u32) {
    v.engine()
        .ok()
        .and_then(|e| last(e.snapshot(back + 1), e.snapshot(back)))
        .map_or((0, 0), |(dt, d)| (percent(d.active, dt), percent(d.dram / 1000, dt)))
}

fn read_samples(
    v: &View<'_>,
    kind: u32,
    last_seen: u64,
    value_type: *mut nvmlValueType_t,
    count: *mut c_uint,
    out: *mut nvmlSample_t,
) -> Answer {
    v.physical()?;
    if !matches!(kind, 0..=2) {
        return Err(NOT_SUPPORTED);
    }
    let engine = v.engine()?;
    put(value_type, 1)?;
    let kept = SNAPSHOTS as u64 - 1;
    if out.is_null() {
        return put(count, narrow(kept));
    }
    let room = u64::from(get(count)?);
    let range = u64::from(v.device().max_w - v.device().idle_w) * 1000;
    let mut written = 0;
    for back in (0..kept.min(engine.snapshots.saturating_sub(1))).rev() {
        let Some((dt, d)) = last(engine.snapshot(back + 1), engine.snapshot(back)) else { continue };
        let at = engine.snapshot(back).map_or(0, |s| s.at);
        let timeStamp = (at + v.shared().real_offset) / 1000;
        if timeStamp <= last_seen || written >= room {
            continue;
        }
        let value = match kind {
            0 => v.device().idle_w * 1000 + narrow(d.power / 1000 * range / dt),
            1 => percent(d.active, dt),
            _ => percent(d.dram / 1000, dt),
        };
        let value = if v.faulty(FaultKind::Garbage) { u32::MAX } else { value };
        put_at(
            out,
            usize::try_from(written).unwrap_or(0),
            nvmlSample_t { timeStamp, sampleValue: nvmlValue_t { uiVal: value } },
        )?;
        written += 1;
    }
    put(count, narrow(written))?;
    if written == 0 { Err(NOT_FOUND) } else { Ok(()) }
}

/// Share of the power range over the last period, in thousandths.
fn load(v: &View<'_>) -> u64 {
    let d = v.device();
    let range = u64::from((d.max_w - d.idle_w).max(1)) * 1000;
    let above = u64::from(v.shared().power_mw(v.target.device)).saturating_sub(u64::from(d.idle_w) * 1000);
    above * 1000 / range
}

fn heat(v: &View<'_>) -> Result<u32, nvmlReturn_t> {
    v.physical()?;
    Ok(if v.faulty(FaultKind::Garbage) { BLANK_32 } else { 31 + narrow(load(v) * 42 / 1000) })
}

fn busy(v: &View<'_>) -> bool {
    v.engines().iter().any(|e| e.clients > 0)
}

fn idle_state(v: &View<'_>) -> nvmlPstates_t {
    if v.device().preset().mig { 0 } else { 8 }
}

fn mhz(v: &View<'_>, kind: u32, max: bool) -> Result<u32, nvmlReturn_t> {
    v.physical()?;
    let p = v.device().preset();
    match kind {
        0 | 1 if max || busy(v) => Ok(p.sm_clock_mhz),
        0 | 1 => Ok(345),
        2 => Ok(p.mem_clock_mhz),
        3 => Ok(p.sm_clock_mhz * 9 / 10),
        _ => Err(INVALID_ARGUMENT),
    }
}

fn throttle(v: &View<'_>) -> Result<u64, nvmlReturn_t> {
    v.physical()?;
    Ok(match load(v) {
        0 if !busy(v) => 1,
        950.. => 4,
        _ => 0,
    })
}

fn field_value(v: &View<'_>, field: &mut nvmlFieldValue_t) -> Answer {
    const UNSIGNED: nvmlValueType_t = 1;
    const WIDE: nvmlValueType_t = 3;
    let p = v.device().preset();
    let wide = match field.fieldId {
        83 if !v.is_mig() => Some(v.shared().energy_mj(v.target.device)),
        138..=141 if p.nvlinks > 0 => Some(0),
        3..=6 | 94 | 95 | 173..=183 => Some(0),
        _ => None,
    };
    if let Some(value) = wide {
        let value = if v.faulty(FaultKind::Garbage) { BLANK_64 } else { value };
        field.valueType = WIDE;
        field.value = nvmlValue_t { ullVal: value };
        return Ok(());
    }
    v.physical()?;
    let limit = v.device().max_w * 1000;
    let value = match field.fieldId {
        1 | 2 => 1,
        82 if p.mig => heat(v)? + 8,
        90 if p.nvlinks > 0 => 26_562,
        91 if p.nvlinks > 0 => p.nvlinks,
        142..=145 if p.mig => 0,
        185 | 186 => v.shared().power_mw(v.target.device),
        187 => limit / 4,
        188..=190 | 192 => limit,
        _ => return Err(NOT_SUPPORTED),
    };
    field.valueType = UNSIGNED;
    field.value = nvmlValue_t { uiVal: value };
    Ok(())
}
