//! A program's own account of what it did.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Sums over the life of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// Steps, bursts or requests.
    pub(crate) steps: u64,
    /// Kernels launched.
    pub(crate) kernels: u64,
    /// Device time that they ask for.
    pub(crate) kernel: Duration,
    /// Time in launch calls.
    pub(crate) launching: Duration,
    /// Time in synchronising calls.
    pub(crate) synchronizing: Duration,
    /// Time waiting for data or requests, or idle on purpose.
    pub(crate) waiting: Duration,
    /// Bytes copied to the device.
    pub(crate) uploaded: u64,
}

impl Account {
    /// Adds another thread's account.
    pub(crate) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.kernels += other.kernels;
        self.kernel += other.kernel;
        self.launching += other.launching;
        self.synchronizing += other.synchronizing;
        self.waiting += other.waiting;
        self.uploaded += other.uploaded;
    }

    /// Writes the account as one JSON object.
    pub(crate) fn write(&self, path: &Path, program: &str, start_ns: u64) -> std::io::Result<()> {
        let end_ns = monotonic_ns();
        let pid = std::process::id();
        let text = format!(
            concat!(
                "{{\"program\":\"{}\",\"pid\":{},\"start_ns\":{},\"end_ns\":{},\"steps\":{},\"kernels\":{},",
                "\"kernel_s\":{:.6},\"launch_s\":{:.6},\"sync_s\":{:.6},\"wait_s\":{:.6},\"upload_bytes\":{}}}\n"
            ),
            program,
            pid,
            start_ns,
            end_ns,
            self.steps,
            self.kernels,
            self.kernel.as_secs_f64(),
            self.launching.as_secs_f64(),
            self.synchronizing.as_secs_f64(),
            self.waiting.as_secs_f64(),
            self.uploaded
        );
        std::fs::write(path, text)
    }
}

/// `CLOCK_MONOTONIC`, which the oracle's log uses too.
pub(crate) fn monotonic_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}
