//! A device's performance monitor: it has one owner, and samples at the ends of its periods into a buffer.
//!
//! A full buffer keeps what it has; what finds no room is lost, and the next reader is told so.

use crate::Process;
use crate::layout::{MONITOR_SAMPLES, MonitorSample, NONE, Shared, Snapshot, Totals};

impl Shared {
    /// Takes a device's monitor for a process; false if another living one has it. The dead own nothing.
    pub fn own_monitor(&mut self, device: usize, process: Process) -> bool {
        let m = &self.device[device].monitor;
        let owner = Process { pid: m.owner, start: m.owner_start };
        if m.owner != 0 && owner.alive() {
            return false;
        }
        let m = &mut self.device[device].monitor;
        (m.owner, m.owner_start, m.running) = (process.pid, process.start, 0);
        true
    }

    /// Gives it back, if this process has it.
    pub fn free_monitor(&mut self, device: usize, process: Process) {
        if self.owns_monitor(device, process) {
            let m = &mut self.device[device].monitor;
            (m.owner, m.owner_start, m.running) = (0, 0, 0);
        }
    }

    /// Whether this process has it.
    pub fn owns_monitor(&self, device: usize, process: Process) -> bool {
        let m = &self.device[device].monitor;
        (m.owner, m.owner_start) == (process.pid, process.start)
    }

    /// Starts sampling at `now`, every `period` nanoseconds, into a buffer for `room` samples.
    pub fn start_monitor(&mut self, device: usize, period: u64, room: u64, now: u64) {
        let engine = self.device[device].engine as usize;
        self.advance(engine, now);
        let totals = self.engine[engine].totals;
        let m = &mut self.device[device].monitor;
        m.running = 1;
        m.period = period.max(1);
        m.room = room.min(MONITOR_SAMPLES as u64);
        (m.taken, m.given, m.overflow) = (0, 0, 0);
        m.last = Snapshot { at: now, totals };
        m.next = now + m.period;
    }

    /// Stops sampling; what is in the buffer is gone.
    pub fn stop_monitor(&mut self, device: usize) {
        self.device[device].monitor.running = 0;
    }

    /// The oldest samples that nobody has taken, at most `most`, and whether any was lost since the last call.
    pub fn take_samples(&mut self, device: usize, most: usize, now: u64) -> (Vec<MonitorSample>, bool) {
        self.advance_device(device, now);
        let m = &mut self.device[device].monitor;
        let mut samples = Vec::new();
        while samples.len() < most && m.given < m.taken {
            let at = usize::try_from(m.given % MONITOR_SAMPLES as u64).unwrap_or(0);
            samples.push(m.ring[at]);
            m.given += 1;
        }
        (samples, std::mem::take(&mut m.overflow) != 0)
    }

    /// When an engine's device samples next.
    pub(crate) fn monitor_due(&self, engine: usize) -> u64 {
        let e = &self.engine[engine];
        let m = &self.device[e.device as usize].monitor;
        // In MIG mode there is none.
        if m.running == 1 && e.gi == NONE { m.next } else { u64::MAX }
    }

    /// Takes the sample whose period ends now.
    pub(crate) fn monitor(&mut self, engine: usize) {
        if self.monitor_due(engine) > self.engine[engine].now {
            return;
        }
        let e = &self.engine[engine];
        let (now, totals) = (e.now, e.totals);
        let m = &mut self.device[e.device as usize].monitor;
        let sample = MonitorSample { start: m.last.at, end: now, used: totals.since(&m.last.totals) };
        if m.taken - m.given < m.room {
            let at = usize::try_from(m.taken % MONITOR_SAMPLES as u64).unwrap_or(0);
            m.ring[at] = sample;
            m.taken += 1;
        } else {
            m.overflow = 1;
        }
        m.last = Snapshot { at: now, totals };
        m.next = now + m.period;
    }
}

impl Totals {
    /// What was added since `before`.
    fn since(&self, before: &Self) -> Self {
        Self {
            active: self.active - before.active,
            sm: self.sm - before.sm,
            occupied: self.occupied - before.occupied,
            tensor: self.tensor - before.tensor,
            dram: self.dram - before.dram,
            power: self.power - before.power,
            rx: self.rx - before.rx,
            tx: self.tx - before.tx,
            switches: self.switches - before.switches,
        }
    }
}
