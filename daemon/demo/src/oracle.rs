//! The simulator's own account: who kept which device busy, from its log.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Record {
    gpu: String,
    mig: Option<String>,
    pid: u32,
    busy_ns: u64,
}

/// Busy nanoseconds by device (GPU, and MIG instance or empty) and process.
pub(crate) type Busy = BTreeMap<(String, String, u32), u64>;

/// Completes the log of the node in `state`, and reads it.
pub(crate) fn read(state: &Path) -> Result<Busy, Box<dyn std::error::Error>> {
    warpmeter_simgpu::flush(state)?;
    let mut busy = Busy::new();
    for line in std::fs::read_to_string(state.join("oracle.jsonl"))?.lines() {
        let record: Record = serde_json::from_str(line)?;
        *busy.entry((record.gpu, record.mig.unwrap_or_default(), record.pid)).or_default() += record.busy_ns;
    }
    Ok(busy)
}
