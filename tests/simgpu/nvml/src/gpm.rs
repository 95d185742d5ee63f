//! GPM: counters of Hopper and later, as differences between two samples.
//!
//! A sample holds the integrals at the last refresh (100 ms), so two samples taken within one period are equal, and
//! ratios between them are NaN. Ratios are averages over the time between the samples, in percent of elapsed time.

use std::ffi::{CStr, c_char, c_uint};

use warpmeter_simgpu::FaultKind;
use warpmeter_simgpu::layout::{Snapshot, Totals};

use crate::abi::{
    Answer, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS, VERSION_MISMATCH, device_calls, get,
    nvmlDevice_t, nvmlGpmMetric_t, nvmlGpmMetric_t__bindgen_ty_1, nvmlGpmMetricsGet_t, nvmlGpmSample_t,
    nvmlGpmSupport_t, nvmlReturn_t, put,
};
use crate::session::{View, on_node};

/// Marks a live sample.
const MARK: u64 = 0x6770_6d5f_7361_6d70;

/// What an `nvmlGpmSample_t` points to.
#[derive(Clone, Copy)]
struct Sample {
    mark: u64,
    device: usize,
    epoch: u64,
    sms: u32,
    mhz: u32,
    nvlinks: u32,
    at: Snapshot,
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    on_node("nvmlGpmSampleAlloc", |_guard| {
        let empty = Sample {
            mark: MARK,
            device: usize::MAX,
            epoch: 0,
            sms: 0,
            mhz: 0,
            nvlinks: 0,
            at: Snapshot::default(),
        };
        let pointer = Box::into_raw(Box::new(empty));
        let given = put(sample, pointer.cast());
        if given.is_err() {
            // SAFETY: `pointer` was made from a box above and went nowhere.
            drop(unsafe { Box::from_raw(pointer) });
        }
        given
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let pointer: *mut Sample = sample.cast();
    match get(pointer) {
        Ok(held) if held.mark == MARK => {
            // SAFETY: the mark shows a live sample made by `nvmlGpmSampleAlloc`; NVML's contract is to free it once.
            let mut sample = unsafe { Box::from_raw(pointer) };
            sample.mark = 0;
            SUCCESS
        }
        _ => INVALID_ARGUMENT,
    }
}

device_calls! {
    nvmlGpmSampleGet(sample: nvmlGpmSample_t) |v| take(v, sample);
    nvmlGpmMigSampleGet(instance: c_uint, sample: nvmlGpmSample_t) |v| {
        supported(v)?;
        v.physical()?;
        let first = v.device().engine as usize;
        let at = v.engines().iter().position(|e| e.gi == instance).ok_or(INVALID_ARGUMENT)?;
        v.target.part = Some(first + at);
        take(v, sample)
    };
    nvmlGpmQueryDeviceSupport(support: *mut nvmlGpmSupport_t) |v| {
        let mut answer = get(support)?;
        if answer.version != 1 { return Err(VERSION_MISMATCH); }
        answer.isSupportedDevice = u32::from(v.device().preset().gpm);
        put(support, answer)
    };
    nvmlGpmQueryIfStreamingEnabled(state: *mut c_uint) |v| { supported(v)?; put(state, 1) };
    nvmlGpmSetStreamingEnabled(state: c_uint) |v| {
        supported(v)?;
        if state > 1 { Err(INVALID_ARGUMENT) } else { Ok(()) }
    };
}

fn supported(v: &View<'_>) -> Answer {
    if v.device().preset().gpm { Ok(()) } else { Err(NOT_SUPPORTED) }
}

fn take(v: &View<'_>, out: nvmlGpmSample_t) -> Answer {
    supported(v)?;
    let pointer: *mut Sample = out.cast();
    if get(pointer)?.mark != MARK {
        return Err(INVALID_ARGUMENT);
    }
    let preset = v.device().preset();
    let sms = if v.is_mig() { v.engine()?.sms } else { v.device().sms };
    let mut at = combined(v);
    if v.faulty(FaultKind::StuckZero) {
        at.totals = Totals::default();
    }
    put(
        pointer,
        Sample {
            mark: MARK,
            device: v.target.device,
            epoch: v.shared().epoch,
            sms,
            mhz: preset.sm_clock_mhz,
            nvlinks: preset.nvlinks,
            at,
        },
    )
}

/// The last refresh of an engine; of a divided device, its instances by their shares.
fn combined(v: &View<'_>) -> Snapshot {
    if let [engine] = v.engines()
        && !v.divided()
    {
        return engine.gpm;
    }
    let mut sum = Snapshot::default();
    for e in v.engines() {
        let part = |x: u64| x / 7 * u64::from(e.slices);
        let t = e.gpm.totals;
        sum.at = e.gpm.at;
        sum.totals.active = sum.totals.active.max(t.active);
        sum.totals.sm += part(t.sm);
        sum.totals.occupied += part(t.occupied);
        sum.totals.tensor += part(t.tensor);
        sum.totals.dram += part(t.dram);
        sum.totals.rx += t.rx;
        sum.totals.tx += t.tx;
        sum.totals.switches += t.switches;
    }
    sum
}

/// What precedes the metrics in `nvmlGpmMetricsGet_t`, whose array's length differs between versions of the header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    version: c_uint,
    count: c_uint,
    sample1: nvmlGpmSample_t,
    sample2: nvmlGpmSample_t,
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    on_node("nvmlGpmMetricsGet", |guard| {
        let Head { version, count, sample1, sample2 } = get(request.cast::<Head>())?;
        if version != 1 {
            return Err(VERSION_MISMATCH);
        }
        let metrics = request.cast::<Head>().wrapping_add(1).cast::<nvmlGpmMetric_t>();
        let a: Sample = get(sample1.cast())?;
        let b: Sample = get(sample2.cast())?;
        if a.mark != MARK
            || b.mark != MARK
            || a.device == usize::MAX
            || a.device != b.device
            || a.at.at > b.at.at
        {
            return Err(INVALID_ARGUMENT);
        }
        for at in 0..count as usize {
            let slot = metrics.wrapping_add(at);
            let mut metric = get(slot)?;
            let id = metric.metricId;
            let failed =
                guard.faulty_for(FaultKind::GpmMetricError, Some(a.device), u64::from(id), guard.now);
            let garbage = guard.faulty(FaultKind::Garbage, Some(a.device), guard.now).is_some();
            match evaluate(id, &a, &b) {
                _ if failed => metric.nvmlReturn = NOT_FOUND,
                Some((value, name, unit)) => {
                    metric.nvmlReturn = SUCCESS;
                    metric.value = if garbage { f64::NAN } else { value };
                    metric.metricInfo = info(name, unit);
                }
                None => metric.nvmlReturn = NOT_SUPPORTED,
            }
            put(slot, metric)?;
        }
        Ok(())
    })
}

fn info(name: &'static CStr, unit: &'static CStr) -> nvmlGpmMetric_t__bindgen_ty_1 {
    let pointer = |text: &'static CStr| text.as_ptr().cast::<c_char>().cast_mut();
    nvmlGpmMetric_t__bindgen_ty_1 { shortName: pointer(name), longName: pointer(name), unit: pointer(unit) }
}

/// A metric's value, name and unit; `None` if this device lacks it.
fn evaluate(id: u32, a: &Sample, b: &Sample) -> Option<(f64, &'static CStr, &'static CStr)> {
    let elapsed = (b.at.at - a.at.at) as f64;
    let (x, y) = (&a.at.totals, &b.at.totals);
    let milli = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1000.0;
    let percent = |nanos: f64| 100.0 * nanos / elapsed;
    let mib = |from: u64, to: u64| to.saturating_sub(from) as f64 / elapsed * 1e9 / 1_048_576.0;
    let cycles = |nanos: f64| nanos * f64::from(b.mhz) / 1000.0;
    let all_sms = |nanos: f64| cycles(nanos) * f64::from(b.sms);
    let busy = percent(y.active.saturating_sub(x.active) as f64);
    let sm = percent(milli(x.sm, y.sm));
    let tensor = percent(milli(x.tensor, y.tensor));
    let vector = (sm - tensor).max(0.0);
    let value = match id {
        1 => (busy, c"GRAPHICS_UTIL", c"%"),
        2 => (sm, c"SM_UTIL", c"%"),
        3 => (percent(milli(x.occupied, y.occupied)), c"SM_OCCUPANCY", c"%"),
        4 => (vector * 0.25, c"INTEGER_UTIL", c"%"),
        5 => (tensor, c"ANY_TENSOR_UTIL", c"%"),
        6 | 8 | 9 => (0.0, c"TENSOR_UTIL", c"%"),
        7 => (tensor, c"HMMA_TENSOR_UTIL", c"%"),
        10 => (percent(milli(x.dram, y.dram)), c"DRAM_BW_UTIL", c"%"),
        11 => (0.0, c"FP64_UTIL", c"%"),
        12 => (vector * 0.5, c"FP32_UTIL", c"%"),
        13 => (vector * 0.125, c"FP16_UTIL", c"%"),
        20 => (mib(x.tx, y.tx), c"PCIE_TX_PER_SEC", c"MiB/s"),
        21 => (mib(x.rx, y.rx), c"PCIE_RX_PER_SEC", c"MiB/s"),
        60 | 61 if b.nvlinks > 0 => (0.0, c"NVLINK_TOTAL_PER_SEC", c"MiB/s"),
        62..=97 if b.nvlinks > (id - 62) / 2 => (0.0, c"NVLINK_PER_SEC", c"MiB/s"),
        170 => (cycles(elapsed), c"GR0_CTXSW_CYCLES_ELAPSED", c""),
        171 => (cycles(y.active.saturating_sub(x.active) as f64), c"GR0_CTXSW_CYCLES_ACTIVE", c""),
        172 => (y.switches.saturating_sub(x.switches) as f64, c"GR0_CTXSW_REQUESTS", c""),
        173 => (0.0, c"GR0_CTXSW_CYCLES_PER_REQ", c""),
        174 => (busy, c"GR0_CTXSW_ACTIVE_PCT", c"%"),
        248 => (all_sms((b.at.at - b.epoch) as f64), c"SM_CYCLES_ELAPSED", c""),
        249 => (all_sms(milli(0, y.sm)), c"SM_CYCLES_ACTIVE", c""),
        250 | 252 => (all_sms(milli(0, y.tensor)), c"MMA_CYCLES_ACTIVE", c""),
        251 | 253 | 254 => (0.0, c"MMA_CYCLES_ACTIVE", c""),
        255 => (y.tx as f64, c"PCIE_TX", c"B"),
        256 => (y.rx as f64, c"PCIE_RX", c"B"),
        _ => return None,
    };
    Some(value)
}
