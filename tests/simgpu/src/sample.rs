//! Counters as a driver shows them: sampled at the ends of periods, quantised, late, and sometimes missing.

use crate::clock::MILLI;
use crate::layout::{Device, PROCESS_SAMPLES, ProcessSample, SNAPSHOTS, Shared, Snapshot};

/// Index of the utilisation period in `Engine::next` and `Device::period`.
const UTILISATION: usize = 0;
/// Index of the per-process period.
const PROCESS: usize = 1;
/// Index of the GPM refresh period.
const GPM: usize = 2;

/// Takes the samples whose period ends now.
pub(crate) fn boundaries(s: &mut Shared, engine: usize) {
    s.monitor(engine);
    let device = s.engine[engine].device as usize;
    let period = s.device[device].period;
    let e = &mut s.engine[engine];
    let now = e.now;
    let snapshot = Snapshot { at: now, totals: e.totals };
    if e.next[UTILISATION] <= now {
        e.next[UTILISATION] = now + period[UTILISATION];
        let at = usize::try_from(e.snapshots % SNAPSHOTS as u64).unwrap_or(0);
        e.ring[at] = snapshot;
        e.snapshots += 1;
    }
    if e.next[GPM] <= now {
        e.next[GPM] = now + period[GPM];
        e.gpm = snapshot;
    }
    if e.next[PROCESS] <= now {
        e.next[PROCESS] = now + period[PROCESS];
        processes(s, engine, device);
    }
}

/// One sample per process that used the engine in the period that ends now; under MPS one of all, the server's.
fn processes(s: &mut Shared, engine: usize, device: usize) {
    let now = s.engine[engine].now;
    let whole = s.engine[engine].totals;
    let (mps, sampled) = (s.device[device].mps == 1, s.device[device].mps_samples == 1);
    for i in 0..s.engine[engine].clients as usize {
        let client = s.engine[engine].client[i] as usize;
        let c = &mut s.client[client];
        let totals = if c.server == 1 { whole } else { c.totals };
        let active = totals.active - c.sampled.active;
        let dram = totals.dram - c.sampled.dram;
        c.sampled = totals;
        let shown = !mps || c.server == 1 && sampled;
        let pid = c.pid;
        let d = &mut s.device[device];
        let period = d.period[PROCESS];
        let dropped = draw(s.seed ^ u64::from(pid).rotate_left(32) ^ now) < d.process_drop;
        if active == 0 || dropped || !shown {
            continue;
        }
        let sample = ProcessSample {
            at: now,
            real_us: (now + s.real_offset) / 1000,
            pid,
            sm: quantise(percent(active, period), d.process_step),
            memory: percent(dram / 1000, period),
            period_ms: u32::try_from(period / MILLI).unwrap_or(u32::MAX),
        };
        let at = usize::try_from(d.samples % PROCESS_SAMPLES as u64).unwrap_or(0);
        d.sample[at] = sample;
        d.samples += 1;
    }
}

/// `part` of `whole` in percent, rounded to nearest.
pub fn percent(part: u64, whole: u64) -> u32 {
    let whole = u128::from(whole.max(1));
    let value = (u128::from(part) * 100 + whole / 2) / whole;
    u32::try_from(value.min(100)).unwrap_or(100)
}

fn quantise(value: u32, step: u32) -> u32 {
    let step = step.max(1);
    (value + step / 2) / step * step
}

/// A number below 1000 drawn from `seed`.
fn draw(seed: u64) -> u32 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    u32::try_from((x ^ (x >> 31)) % 1000).unwrap_or(0)
}

impl Device {
    /// The per-process samples visible at `now`, oldest first.
    pub fn visible(&self, now: u64) -> impl Iterator<Item = &ProcessSample> {
        let last = self.samples;
        let first = last.saturating_sub(PROCESS_SAMPLES as u64);
        let until = now.saturating_sub(self.process_lag);
        (first..last)
            .filter_map(|n| self.sample.get(usize::try_from(n % PROCESS_SAMPLES as u64).ok()?))
            .filter(move |sample| sample.at <= until)
    }
}

impl Shared {
    /// Energy that a device has used since the node's creation, in millijoules.
    pub fn energy_mj(&self, device: usize) -> u64 {
        let Some(d) = self.device.get(device) else { return 0 };
        let first = d.engine as usize;
        let engines = self.engine.get(first..first + d.engines as usize).unwrap_or_default();
        let now = engines.first().map_or(self.epoch, |e| e.now);
        let idle = u128::from(d.idle_w) * u128::from(now.saturating_sub(self.epoch));
        let range = u128::from(d.max_w.saturating_sub(d.idle_w));
        let busy: u128 = engines
            .iter()
            .map(|e| u128::from(e.totals.power) * range * u128::from(e.slices) / 7 / 1000)
            .sum();
        u64::try_from((idle + busy) / 1_000_000).unwrap_or(u64::MAX)
    }

    /// Power of a device over its last sample period, in milliwatts.
    pub fn power_mw(&self, device: usize) -> u32 {
        let Some(d) = self.device.get(device) else { return 0 };
        let range = u64::from(d.max_w.saturating_sub(d.idle_w));
        let first = d.engine as usize;
        let engines = self.engine.get(first..first + d.engines as usize).unwrap_or_default();
        let mut mw = u64::from(d.idle_w) * 1000;
        for e in engines {
            if let (Some(a), Some(b)) = (e.snapshot(1), e.snapshot(0)) {
                let dt = (b.at - a.at).max(1);
                mw += (b.totals.power - a.totals.power) / 1000 * range * u64::from(e.slices) / 7 * 1000 / dt;
            }
        }
        u32::try_from(mw).unwrap_or(u32::MAX)
    }
}
