//! The roofline class of a pod's work on a device, for people.

use serde::Serialize;
use warpmeter_core::explain::Recent;
use warpmeter_core::peak::Peak;
use warpmeter_core::ratio::Ppb;
use warpmeter_core::roofline::{Blind, Bound, Loads, Roofline};
use warpmeter_core::view::View;

use crate::units;

/// Classes of less than this share of the work are not worth words.
const SMALL: f64 = 0.05;

/// Shares of peaks while the device was active.
#[derive(Serialize)]
pub(super) struct WhileActive {
    dram: Option<f64>,
    tensor: Option<f64>,
    /// The busiest of the SMs' other pipes.
    other_pipes: Option<f64>,
    sm_active: Option<f64>,
    sm_occupied: Option<f64>,
}

impl WhileActive {
    pub(super) fn of(found: &Roofline) -> Option<Self> {
        if found.found == Err(Blind::Shared) {
            return None;
        }
        let share = |load| found.loads.while_active(load).map(units::ratio);
        let Loads { dram, tensor, vector, sm_active, sm_occupied, .. } = found.loads;
        Some(Self {
            dram: share(dram),
            tensor: share(tensor),
            other_pipes: share(vector),
            sm_active: share(sm_active),
            sm_occupied: share(sm_occupied),
        })
    }
}

/// What bounded the work, by which counters, and what that calls for.
pub(super) fn words(view: &View, recent: &Recent<'_>, lines: &mut Vec<String>) {
    let bounds = recent.bounds();
    let whole: u64 =
        bounds.iter().map(|(_, amount)| amount).fold(0, |sum, amount| sum.saturating_add(*amount));
    if whole == 0 {
        return;
    }
    let shown = bounds.iter().filter(|(_, amount)| units::share(*amount, whole) >= SMALL);
    let parts: Vec<String> = shown
        .map(|(found, amount)| {
            let label = found.unwrap_or(Bound::Unknown).label();
            format!("{label} {:.0} %", units::share(*amount, whole) * 100.0)
        })
        .collect();
    lines.push(format!("  of the time that it ran: {}", parts.join(", ")));
    if let Some(loads) = recent.loads() {
        let peak = view.gpu(&recent.device.gpu).and_then(|gpu| gpu.dram_peak);
        // The peak is the whole GPU's, and shares of an instance are of the instance.
        let peak = peak.filter(|_| recent.device.mig.is_none());
        lines.push(format!("    while the device was active: {}", shares(&loads, peak)));
    }
    if let Some((found, _)) = bounds.first() {
        lines.push(format!("    {}", meaning(*found)));
    }
}

fn shares(loads: &Loads, peak: Option<Peak>) -> String {
    let percent = |load| match loads.while_active(load) {
        Some(share) => format!("{:.0} %", units::ratio(share) * 100.0),
        None => "not counted".to_owned(),
    };
    let bytes = peak
        .zip(loads.while_active(loads.dram))
        .map_or_else(String::new, |(peak, share)| in_bytes(peak, share));
    format!(
        "DRAM {}{bytes}, tensor pipes {}, busiest other pipe {}, SMs with a warp {}, warps resident {}",
        percent(loads.dram),
        percent(loads.tensor),
        percent(loads.vector),
        percent(loads.sm_active),
        percent(loads.sm_occupied),
    )
}

fn in_bytes(peak: Peak, share: Ppb) -> String {
    let whole = units::gigabytes(peak.rate);
    let document =
        if peak.origin.document().is_empty() { peak.origin.label() } else { peak.origin.document() };
    format!(" ({:.0} of {whole:.0} GB/s, {document})", units::ratio(share) * whole)
}

/// What a class means for who wants the work to be faster.
const fn meaning(found: Result<Bound, Blind>) -> &'static str {
    match found {
        Ok(Bound::Bandwidth) => {
            "memory is the nearer roof: move fewer bytes (fused kernels, narrower types, larger batches over the same weights)"
        }
        Ok(Bound::Compute) => {
            "the pipes are the nearer roof: narrower types, tensor pipes where others do the work, less work"
        }
        Ok(Bound::Latency) => {
            "neither roof is near: more work at a time (batches, blocks, occupancy: `warpmeter occupancy`), fewer steps that \
             wait for one another"
        }
        Ok(Bound::LowIntensity) => {
            "next to nothing is moved or computed: waits within kernels (collectives), tiny kernels, or too few blocks"
        }
        Ok(Bound::Unknown) | Err(Blind::Uncounted) => {
            "counters are missing that would tell what bounds it (docs/roofline.md)"
        }
        Err(Blind::Shared) => {
            "others used the device, or may have: its counters do not tell whose work bounded it"
        }
        Err(Blind::Brief) => "the device was active for too short a time to say",
    }
}
