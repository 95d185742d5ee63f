//! What is missing, in words: each thing once, with the devices that it concerns.

use std::collections::{BTreeMap, BTreeSet};

/// Devices that are named; of further ones it is said how many they are.
const NAMED: usize = 4;

/// Why a device has no figures, or fewer than it could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    Absent,
    Unlisted,
    Blank,
    Several,
    Conflict,
    Stale,
    Silent,
    Hasty,
    Divided,
    NoInstance,
}

impl Gap {
    fn sentence(self, of: &str) -> String {
        match self {
            Self::Absent => {
                format!("nothing of {of} is there: is the exporter told to leave it out (--devices)?")
            }
            Self::Unlisted => format!(
                "DCGM_FI_PROF_SM_ACTIVE of {of} is not there: add it to the exporter's counters, where it is commented \
                 out by default, with DCGM_FI_PROF_SM_OCCUPANCY; if it is among them, DCGM's profiling module has failed \
                 (see the exporter's log)"
            ),
            Self::Blank => format!(
                "no value of DCGM_FI_PROF_SM_ACTIVE of {of} can be one: another program may have the performance \
                 monitor, or DCGM be paused (dcgmi profile --resume)"
            ),
            Self::Several => format!(
                "one field of {of} has several values: only a device's own value can be read, which an exporter repeats \
                 for each pod"
            ),
            Self::Conflict => format!(
                "SM activity of {of} contradicts other fields (next to 0 while the engine works, or below occupancy): \
                 its counter is taken for dead, or DCGM takes turns between fields; restart the exporter, or watch fewer"
            ),
            Self::Stale => format!(
                "the values of {of} stay the same beyond the interval: they are taken for stale; restart the exporter, \
                 or set [dcgm] interval if its --collect-interval is longer"
            ),
            Self::Silent => format!(
                "the values of {of} stay 0 and nothing else moves: they are taken for stale; restart the exporter, or add \
                 DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION to its counters, which shows that it collects"
            ),
            Self::Hasty => format!(
                "the values of {of} differ at every look, so each covers less time than there is between two: set \
                 [dcgm] interval to the exporter's --collect-interval, or have nobody else watch these fields more often"
            ),
            Self::Divided => format!(
                "{of} has several compute instances, which DCGM counts together: their parts are not known"
            ),
            Self::NoInstance => {
                format!("{of} is not on this node: the page is of before a change of MIG instances")
            }
        }
    }
}

/// All that is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    devices: BTreeMap<Gap, BTreeSet<String>>,
    others: BTreeSet<String>,
}

impl Gaps {
    /// Something is missing of a device.
    pub(super) fn of(&mut self, gap: Gap, device: impl Into<String>) {
        self.devices.entry(gap).or_default().insert(device.into());
    }

    /// Something concerns no device in particular.
    pub(super) fn say(&mut self, sentence: impl Into<String>) {
        self.others.insert(sentence.into());
    }

    /// All of it; empty if there is nothing.
    pub(super) fn sentences(&self) -> String {
        let named = |devices: &BTreeSet<String>| {
            let mut text = devices.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            if devices.len() > NAMED {
                text.push_str(&format!(" and {} more", devices.len() - NAMED));
            }
            text
        };
        let of = self.devices.iter().map(|(gap, devices)| gap.sentence(&named(devices)));
        self.others.iter().cloned().chain(of).collect::<Vec<_>>().join("; ")
    }
}
