//! What a recording of a run tells of its times.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::exposition::Exposition;
use crate::ledger::elapsed;

/// When the accounts of a GPU begin on the monotonic clock: with its first reading in the recording of the run.
pub fn beginning(recording: &Path, gpu: &str) -> u64 {
    let text = std::fs::read_to_string(recording).unwrap();
    let facts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut readings = facts.filter(|fact| fact["fact"]["reading"]["gpu"] == gpu);
    readings.next().unwrap()["fact"]["reading"]["during"][0].as_u64().unwrap()
}

/// Up to when on that clock a GPU's accounts reach that begin at `beginning`.
pub fn reached(metrics: &Exposition, gpu: &str, beginning: u64) -> u64 {
    beginning + u64::try_from(Duration::from_secs_f64(elapsed(metrics, gpu)).as_nanos()).unwrap()
}
