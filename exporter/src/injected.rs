//! What injected libraries say, for people: as JSON, and in words.

use serde::Serialize;
use warpmeter_core::injected::InjectedTotals;

use crate::units;

/// An account's sums.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct InjectedStatus {
    /// Of its processes, each for itself.
    elapsed_seconds: f64,
    /// Share of that in which records were asked for.
    sampled_share: Option<f64>,
    /// With kernels that had begun and not ended; of time that was sampled.
    busy_seconds: f64,
    /// Without that for which they seem to have been interrupted.
    ran_seconds: f64,
    interrupted_kernels: u64,
    kernels: u64,
    /// Each kernel for itself.
    kernel_seconds: f64,
    late_seconds: f64,
    copied_to_device_bytes: u64,
    copied_to_host_bytes: u64,
    copied_otherwise_bytes: u64,
    copying_seconds: f64,
    set_bytes: u64,
    dropped_records: u64,
    /// Of the libraries' own threads.
    cpu_seconds: f64,
    /// Weighted by the time of the kernels for which it is known.
    theoretical_occupancy: Option<f64>,
}

impl InjectedStatus {
    /// Those of an account.
    pub(crate) fn of(told: &InjectedTotals) -> Self {
        let sums = &told.sums;
        Self {
            elapsed_seconds: units::seconds(sums.elapsed),
            sampled_share: part(sums.sampled, sums.elapsed),
            busy_seconds: units::seconds(sums.busy),
            ran_seconds: units::seconds(sums.ran),
            interrupted_kernels: sums.interrupted,
            kernels: sums.kernels,
            kernel_seconds: units::seconds(sums.kernel),
            late_seconds: units::seconds(sums.late),
            copied_to_device_bytes: sums.to_device,
            copied_to_host_bytes: sums.to_host,
            copied_otherwise_bytes: sums.other,
            copying_seconds: units::seconds(sums.copying),
            set_bytes: sums.set,
            dropped_records: sums.dropped,
            cpu_seconds: units::seconds(sums.cpu),
            theoretical_occupancy: part(told.theoretical, told.shaped),
        }
    }
}

/// An account's sums in words.
pub(crate) fn words(told: &InjectedTotals) -> String {
    let InjectedStatus { busy_seconds, ran_seconds, kernels, .. } = InjectedStatus::of(told);
    let share = part(told.sums.sampled, told.sums.elapsed).unwrap_or(0.0) * 100.0;
    let mut line = format!(
        "the library injected into it says: {kernels} kernels were there for {busy_seconds:.1} s, and ran for \
         {ran_seconds:.1} s of them, in {share:.0} % of the time, which was sampled"
    );
    if let Some(occupancy) = part(told.theoretical, told.shaped) {
        let percent = occupancy * 100.0;
        line.push_str(&format!("; their theoretical occupancy is {percent:.0} %"));
    }
    if told.sums.dropped > 0 {
        line.push_str(&format!("; {} records were dropped", told.sums.dropped));
    }
    line
}

fn part(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| units::share(part, whole))
}
