//! What must hold in every exposition, whatever happened.

use std::collections::BTreeSet;

use crate::exposition::{Exposition, Labels};

/// Sums of numbers printed as floats differ by no more.
const ROUNDING: f64 = 1e-6;

/// The four families that the use of a device is divided into.
const USE: [&str; 4] = [
    "warpmeter_gpu_used_seconds_total",
    "warpmeter_gpu_unattributed_seconds_total",
    "warpmeter_gpu_inactive_seconds_total",
    "warpmeter_gpu_use_unknown_seconds_total",
];

/// Seconds for which a GPU has been accounted.
pub fn elapsed(metrics: &Exposition, gpu: &str) -> f64 {
    metrics.sum("warpmeter_gpu_seconds_total", &[("gpu_uuid", gpu)])
}

/// Asserts that the owners' parts and nobody's make up all of every device, in both ledgers. For tests in which no owner
/// ended so long ago that its account was dropped.
pub fn assert_closed(metrics: &Exposition) {
    assert_conserved(metrics);
    let owners = |family: &str, labels: Labels<'_>| -> f64 {
        ["pod", "owner"]
            .iter()
            .map(|kind| metrics.sum(&format!("warpmeter_{kind}_gpu_{family}_total"), labels))
            .sum()
    };
    for series in metrics.all(USE[0], &[]) {
        let labels: Labels<'_> = &[("gpu_uuid", series.label("gpu_uuid")), ("mig", series.label("mig"))];
        let states = metrics.sum("warpmeter_gpu_seconds_total", labels);
        let free =
            metrics.sum("warpmeter_gpu_seconds_total", &[labels[0], labels[1], ("state", "unallocated")]);
        let held = owners("seconds", labels);
        assert!((held + free - states).abs() <= ROUNDING, "{labels:?}: {held} held, {free} free of {states}");
        let used = owners("used_seconds", labels);
        assert!((used - series.value).abs() <= ROUNDING, "{labels:?}: {used} of {} used", series.value);
    }
}

/// Asserts that both ledgers of every device add up, and that every pod's time is in its device's.
pub fn assert_conserved(metrics: &Exposition) {
    let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING;
    assert_eq!(metrics.get("warpmeter_conservation_error_seconds", &[]), Some(0.0));
    let devices: BTreeSet<(&str, &str)> = metrics
        .all("warpmeter_gpu_used_seconds_total", &[])
        .map(|series| (series.label("gpu_uuid"), series.label("mig")))
        .collect();
    for (gpu, mig) in &devices {
        let labels: Labels<'_> = &[("gpu_uuid", gpu), ("mig", mig)];
        let states = metrics.sum("warpmeter_gpu_seconds_total", labels);
        let used: f64 = USE.iter().map(|family| metrics.sum(family, labels)).sum();
        assert!(near(states, used), "{gpu} {mig}: states add up to {states}, use to {used}");

        let owned = metrics.sum("warpmeter_pod_gpu_seconds_total", labels)
            + metrics.sum("warpmeter_owner_gpu_seconds_total", labels);
        let free =
            metrics.sum("warpmeter_gpu_seconds_total", &[labels[0], labels[1], ("state", "unallocated")]);
        assert!(owned + free <= states + ROUNDING, "{gpu} {mig}: {owned} owned and {free} free of {states}");

        let users = metrics.sum("warpmeter_pod_gpu_used_seconds_total", labels)
            + metrics.sum("warpmeter_owner_gpu_used_seconds_total", labels);
        let known = metrics.sum(USE[0], labels);
        assert!(users <= known + ROUNDING, "{gpu} {mig}: owners used {users} of {known}");
    }
}
