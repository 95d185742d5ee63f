//! The independent oracle: who kept which device busy, and when, as a log.
//!
//! `oracle.jsonl` in the state directory holds one object per line:
//!
//! ```json
//! {"gpu":"GPU-…","mig":null,"pid":123,"start_ns":1,"end_ns":9,"busy_ns":8}
//! ```
//!
//! Times are `CLOCK_MONOTONIC`. Records of one process on one device never overlap, and hold no activity of
//! another process unless it truly ran at the same time (MPS). `busy_ns` is less than `end_ns - start_ns` by gaps
//! of at most `merge_gap_us` each; with a merge gap of 0 the two are equal. A record is about 100 ms long at most.
//! Lines are in order of completion, not of time. A writer killed between writing and forgetting repeats lines.

use std::fmt::Write;

use crate::clock::MILLI;
use crate::layout::{LOG_RECORDS, LogRecord, Shared};

/// A record is closed when it reaches this length.
const LONGEST: u64 = 100 * MILLI;

/// Notes that a client was busy from `from` to `until`.
pub(crate) fn busy(s: &mut Shared, client: u32, from: u64, until: u64) {
    if from == until {
        return;
    }
    let at = client as usize;
    let engine = s.client[at].engine as usize;
    let alone = s.engine[engine].last_active == client;
    s.engine[engine].last_active = client;
    let [start, end, time] = s.client[at].open;
    let continues =
        end != 0 && (from == end || alone && from - end <= s.merge_gap) && until - start <= LONGEST;
    if continues {
        s.client[at].open = [start, until, time + (until - from)];
    } else {
        close(s, at);
        s.client[at].open = [from, until, until - from];
    }
}

/// Ends a client's open record.
pub(crate) fn close(s: &mut Shared, client: usize) {
    let c = &mut s.client[client];
    let [start, end, busy] = std::mem::take(&mut c.open);
    if end == 0 {
        return;
    }
    let record = LogRecord { engine: c.engine, pid: c.pid, start, end, busy };
    let at = s.logged as usize;
    if at < LOG_RECORDS {
        s.log[at] = record;
        s.logged += 1;
    } else {
        s.log_lost += 1;
    }
}

/// Ends records that are old, so that an idle process's last activity reaches the log.
pub(crate) fn close_old(s: &mut Shared, now: u64) {
    for client in 0..s.client_slots as usize {
        let [start, end, _] = s.client[client].open;
        if end != 0 && now - start >= LONGEST {
            close(s, client);
        }
    }
}

/// Ends every open record.
pub(crate) fn close_all(s: &mut Shared) {
    for client in 0..s.client_slots as usize {
        close(s, client);
    }
}

/// The waiting records as lines.
pub(crate) fn lines(s: &Shared) -> String {
    let mut text = String::with_capacity(s.logged as usize * 160);
    for r in s.log.iter().take(s.logged as usize) {
        let Some(engine) = s.engine.get(r.engine as usize) else { continue };
        let Some(device) = s.device.get(engine.device as usize) else { continue };
        let mig = match engine.uuid.as_str() {
            "" => "null".to_owned(),
            uuid => format!("\"{uuid}\""),
        };
        let LogRecord { pid, start, end, busy, .. } = r;
        let gpu = device.uuid.as_str();
        // Writing to a `String` does not fail.
        writeln!(
            text,
            r#"{{"gpu":"{gpu}","mig":{mig},"pid":{pid},"start_ns":{start},"end_ns":{end},"busy_ns":{busy}}}"#
        )
        .unwrap_or_default();
    }
    text
}
