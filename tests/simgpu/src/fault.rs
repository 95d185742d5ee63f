//! Faults: a table of what is wrong, where, and from when to when.

use std::time::Duration;

use crate::Error;
use crate::layout::{FaultRecord, MAX_FAULTS, NONE, Shared, index};
use crate::scenario::{Fault, FaultKind};

impl Shared {
    /// The first fault of a kind on a device at `now`.
    pub fn faulty(&self, kind: FaultKind, device: Option<usize>, now: u64) -> Option<&FaultRecord> {
        self.fault_where(kind, device, now, |_| true)
    }

    /// Whether a fault of a kind applies to a function or metric.
    pub fn faulty_for(&self, kind: FaultKind, device: Option<usize>, arg: u64, now: u64) -> bool {
        self.fault_where(kind, device, now, |f| f.arg == arg).is_some()
    }

    fn fault_where(
        &self,
        kind: FaultKind,
        device: Option<usize>,
        now: u64,
        fits: impl Fn(&FaultRecord) -> bool,
    ) -> Option<&FaultRecord> {
        self.listed_faults().iter().find(|f| {
            f.kind == kind.code()
                && (f.gpu == NONE || device.is_some_and(|d| f.gpu == index(d)))
                && f.from <= now
                && now < f.until
                && fits(f)
        })
    }

    /// All faults, past and future.
    pub fn listed_faults(&self) -> &[FaultRecord] {
        self.fault.get(..self.faults as usize).unwrap_or_default()
    }

    /// How often the driver was reloaded up to `now`.
    pub fn reloads(&self, now: u64) -> u64 {
        let code = FaultKind::Reload.code();
        self.listed_faults().iter().filter(|f| f.kind == code && f.from <= now).count() as u64
    }

    /// Adds a fault; its times count from `zero`.
    pub(crate) fn add_fault(&mut self, fault: &Fault, zero: u64) -> Result<(), Error> {
        let record = record(fault, zero)?;
        if fault.gpu.is_some_and(|gpu| gpu >= self.devices) {
            return Err(Error::Invalid(format!("fault on gpu {}: there is no such device", record.gpu)));
        }
        if self.faults as usize >= MAX_FAULTS {
            return Err(Error::FaultsFull);
        }
        self.fault[self.faults as usize] = record;
        self.faults += 1;
        Ok(())
    }
}

fn record(fault: &Fault, zero: u64) -> Result<FaultRecord, Error> {
    let from = zero.saturating_add(nanos(fault.at_s)?);
    let until = match (fault.until_s, fault.for_s) {
        (None, None) => u64::MAX,
        (Some(until), None) => zero.saturating_add(nanos(until)?),
        (None, Some(length)) => from.saturating_add(nanos(length)?),
        (Some(_), Some(_)) => {
            return Err(Error::Invalid("fault: give until_s or for_s, not both".to_owned()));
        }
    };
    let missing = |what| Error::Invalid(format!("fault {:?}: `{what}` is missing", fault.kind));
    let name = || fault.function.as_deref().map(hash).ok_or_else(|| missing("function"));
    let arg = match fault.kind {
        FaultKind::Xid | FaultKind::CudaError | FaultKind::CuptiError | FaultKind::CuptiVersion => {
            fault.code.map(u64::from).ok_or_else(|| missing("code"))?
        }
        FaultKind::CuptiOverflow => fault.code.map_or(0, u64::from),
        FaultKind::GpmMetricError => fault.metric.map(u64::from).ok_or_else(|| missing("metric"))?,
        FaultKind::NotSupported | FaultKind::MissingSymbol => name()?,
        FaultKind::Lost
        | FaultKind::Hang
        | FaultKind::Crash
        | FaultKind::Garbage
        | FaultKind::StuckZero
        | FaultKind::Reload
        | FaultKind::Late
        | FaultKind::CuptiHang
        | FaultKind::CuptiCrash => 0,
    };
    let allowed = |present: bool, kinds: &[FaultKind], key: &str| {
        if present && !kinds.contains(&fault.kind) {
            return Err(Error::Invalid(format!("fault {:?}: `{key}` does not apply", fault.kind)));
        }
        Ok(())
    };
    let coded = [
        FaultKind::Xid,
        FaultKind::CudaError,
        FaultKind::CuptiError,
        FaultKind::CuptiOverflow,
        FaultKind::CuptiVersion,
    ];
    allowed(fault.code.is_some(), &coded, "code")?;
    allowed(fault.count.is_some(), &[FaultKind::Xid], "count")?;
    allowed(fault.metric.is_some(), &[FaultKind::GpmMetricError], "metric")?;
    allowed(fault.function.is_some(), &[FaultKind::NotSupported, FaultKind::MissingSymbol], "function")?;
    let count = u64::from(fault.count.unwrap_or(1));
    Ok(FaultRecord { kind: fault.kind.code(), gpu: fault.gpu.unwrap_or(NONE), from, until, arg, count })
}

fn nanos(seconds: f64) -> Result<u64, Error> {
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|e| Error::Invalid(format!("fault: {seconds} is no time in seconds: {e}")))?;
    Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// FNV-1a, to keep function names out of shared memory.
pub const fn hash(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut value = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        value = (value ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    value
}
