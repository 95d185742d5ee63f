//! What the fold needs to know beside the facts. Written at the head of a recording.

use serde::{Deserialize, Serialize};

use crate::peak::Peaks;
use crate::price::Prices;
use crate::time::SECOND;

/// Settings of the fold. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// How often counters are sampled: the length of a window.
    pub window: u64,
    /// How late a fact may arrive and still be put in its place.
    pub lateness: u64,
    /// How long a shared device's window waits for per-process samples.
    pub process_lateness: u64,
    /// For how long an ended owner's counters stay.
    pub retain: u64,
    /// From how long without work on a device on its owner counts as having none.
    pub no_work_after: u64,
    /// Whether devices without any grant belong to those who have them open. Only without a source of grants.
    pub infer_allocation: bool,
    /// Whether that ends for good once a source of grants speaks: there is none so far, but one may come.
    #[serde(default)]
    pub infer_until_heard: bool,
    /// Whether there is a source of grants: until it has spoken, nobody knows who holds what.
    #[serde(default)]
    pub grants_expected: bool,
    /// Whether a shared device's use is split equally where nothing says more.
    pub equal_split: bool,
    /// Whether replicas that nobody holds are divided among those who hold one.
    pub redistribute: bool,
    /// Prices.
    pub prices: Prices,
    /// Peaks of GPUs by words of their product names.
    #[serde(default, skip_serializing_if = "Peaks::is_empty")]
    pub peaks: Peaks,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node: String::new(),
            window: SECOND,
            lateness: SECOND / 4,
            process_lateness: 3 * SECOND,
            retain: 300 * SECOND,
            no_work_after: 300 * SECOND,
            infer_allocation: true,
            infer_until_heard: false,
            grants_expected: false,
            equal_split: false,
            redistribute: false,
            prices: Prices::default(),
            peaks: Peaks::default(),
        }
    }
}
