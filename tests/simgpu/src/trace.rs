//! Activity of a process, recorded for itself.
//!
//! A record is of an operation that was enqueued while its kind was wanted, and spans from its first run to its end: on
//! a device that is shared by turns, also the turns of others in between. So does a real device's, whose time stamps
//! are those of its clock.

use crate::Process;
use crate::layout::{Activity, Op, Shared, TRACE_RECORDS, Trace, index, kind, work};

/// Bits of [`Trace::wanted`].
pub mod wants {
    /// Kernels.
    pub const KERNELS: u32 = 1;
    /// Copies.
    pub const COPIES: u32 = 2;
    /// Memory that is set.
    pub const SETS: u32 = 4;
}

impl Op {
    /// The bit of what it is; 0 if it is nothing that is recorded.
    const fn wanted(&self) -> u32 {
        match (self.kind, self.work) {
            (kind::KERNEL, work::KERNEL) => wants::KERNELS,
            (kind::KERNEL, work::SET) => wants::SETS,
            (kind::KERNEL | kind::H2D | kind::D2H, _) => wants::COPIES,
            _ => 0,
        }
    }
}

impl Shared {
    /// The trace of a process, made if there is none; none if the table is full of the living.
    pub fn trace_of(&mut self, process: Process) -> Option<usize> {
        let is = |t: &Trace| Process { pid: t.pid, start: t.start } == process;
        if let Some(at) = self.trace.iter().position(is) {
            return Some(at);
        }
        let free = |t: &Trace| t.pid == 0 || !Process { pid: t.pid, start: t.start }.alive();
        let at = self.trace.iter().position(free)?;
        let t = &mut self.trace[at];
        (t.pid, t.start, t.wanted) = (process.pid, process.start, 0);
        (t.head, t.tail, t.lost) = (0, 0, 0);
        self.traces = self.traces.max(index(at) + 1);
        Some(at)
    }

    /// Takes the oldest records of a trace, at most `most`, and how many found no room since the last call.
    pub fn take_activity(&mut self, trace: usize, most: usize) -> (Vec<Activity>, u64) {
        let t = &mut self.trace[trace];
        let mut taken = Vec::new();
        while taken.len() < most && t.head < t.tail {
            taken.push(t.ring[slot(t.head)]);
            t.head += 1;
        }
        (taken, std::mem::take(&mut t.lost))
    }

    /// The trace in which an operation of a client is to be recorded, plus one; 0 for none.
    pub(crate) fn traced(&self, client: usize, op: &Op) -> u32 {
        let c = &self.client[client];
        let wants = |t: &Trace| (t.pid, t.start) == (c.pid, c.start) && t.wanted & op.wanted() != 0;
        let traces = self.trace.iter().take(self.traces as usize);
        traces.zip(1..).find(|(t, _)| wants(t)).map_or(0, |(_, number)| number)
    }

    /// Records an operation of an engine that was done at `end`.
    pub(crate) fn record(&mut self, op: Op, engine: u32, end: u64) {
        let Some(at) = (op.trace as usize).checked_sub(1) else { return };
        let t = &mut self.trace[at];
        if t.tail - t.head < TRACE_RECORDS as u64 {
            t.ring[slot(t.tail)] = Activity { op, engine, end };
            t.tail += 1;
        } else {
            t.lost += 1;
        }
    }
}

fn slot(n: u64) -> usize {
    usize::try_from(n % TRACE_RECORDS as u64).unwrap_or(0)
}
