//! The passing of time on one engine: who runs, for how long, and what that adds up to.
//!
//! [`Shared::advance`] moves an engine from event to event: an operation completes, a turn ends, a counter's
//! period ends. Between two events nothing changes, so integrals are exact. Cost: one step per event, each
//! proportional to the streams of the engine; an idle engine takes a bounded number of steps.

use crate::layout::{
    Client, Engine, Load, NONE, Op, QUEUE_DEPTH, SNAPSHOTS, Shared, Snapshot, Stream, Totals, index, kind,
};
use crate::turn::Running;
use crate::{oracle, sample};

impl Shared {
    /// Advances every engine of a device.
    pub fn advance_device(&mut self, device: usize, to: u64) {
        let Some(d) = self.device.get(device) else { return };
        let first = d.engine as usize;
        for engine in first..first + d.engines as usize {
            self.advance(engine, to);
        }
    }

    /// Advances every engine.
    pub fn advance_all(&mut self, to: u64) {
        for engine in 0..self.engines as usize {
            self.advance(engine, to);
        }
    }

    /// Advances one engine to `to`. A time in its past changes nothing.
    pub fn advance(&mut self, engine: usize, to: u64) {
        loop {
            if self.engine[engine].pending == 0 {
                self.pass_idle(engine, to);
                return;
            }
            self.settle(engine);
            let now = self.engine[engine].now;
            if now >= to {
                return;
            }
            let running = self.choose(engine, now);
            let until = self.next_event(engine, &running, to);
            self.run(engine, &running, now, until);
            self.engine[engine].now = until;
            sample::boundaries(self, engine);
        }
    }

    /// An engine without work only takes its samples, and of a long time only the latest.
    fn pass_idle(&mut self, engine: usize, to: u64) {
        let periods = self.device[self.engine[engine].device as usize].period;
        if self.engine[engine].now >= to {
            return;
        }
        let keep = SNAPSHOTS as u64 + 1;
        let mut first = true;
        loop {
            let monitored = self.monitor_due(engine);
            let e = &mut self.engine[engine];
            let until = e.next.iter().copied().fold(to.min(monitored), u64::min);
            e.now = until;
            sample::boundaries(self, engine);
            if until >= to {
                return;
            }
            let e = &mut self.engine[engine];
            if first {
                first = false;
                for (next, period) in e.next.iter_mut().zip(periods) {
                    let behind = to.saturating_sub(*next) / period;
                    *next += behind.saturating_sub(keep) * period;
                }
            }
        }
    }

    /// Completes what takes no time: event records, satisfied waits, finished host functions.
    fn settle(&mut self, engine: usize) {
        loop {
            let mut popped = false;
            let mut blocked = false;
            for c in 0..self.engine[engine].clients as usize {
                let client = self.engine[engine].client[c] as usize;
                if self.client[client].pending == 0 {
                    continue;
                }
                for s in 0..self.client[client].streams as usize {
                    let stream = self.client[client].stream[s] as usize;
                    while let Some(op) = self.stream[stream].first().copied() {
                        match op.kind {
                            kind::EVENT => self.stamp(engine, &op),
                            kind::WAIT if self.reached(op.target, op.generation, op.seq) => {}
                            kind::HOST if op.remaining == 0 => {}
                            other => {
                                blocked |= other == kind::WAIT;
                                break;
                            }
                        }
                        self.pop(stream);
                        popped = true;
                    }
                }
            }
            if !(popped && blocked) {
                return;
            }
        }
    }

    fn stamp(&mut self, engine: usize, op: &Op) {
        let now = self.engine[engine].now;
        if let Some(event) = self.event.get_mut(op.target as usize)
            && event.record == op.generation
        {
            event.at = now;
        }
    }

    /// Whether a stream has completed its operation `seq`; a stream that is gone has.
    pub fn reached(&self, stream: u32, generation: u32, seq: u64) -> bool {
        self.stream
            .get(stream as usize)
            .is_none_or(|s| s.used == 0 || s.generation != generation || s.head >= seq)
    }

    fn pop(&mut self, stream: usize) {
        let s = &mut self.stream[stream];
        s.head += 1;
        let client = &mut self.client[s.client as usize];
        client.pending = client.pending.saturating_sub(1);
        let engine = &mut self.engine[client.engine as usize];
        engine.pending = engine.pending.saturating_sub(1);
    }

    fn next_event(&self, engine: usize, running: &Running, to: u64) -> u64 {
        let e = &self.engine[engine];
        let mut until = e.next.iter().copied().fold(to.min(self.monitor_due(engine)), u64::min);
        for &(_, stream) in running.kernels() {
            until = until.min(e.now + self.stream[stream as usize].remaining());
        }
        for stream in running.copies.iter().flatten() {
            until = until.min(e.now + self.stream[*stream as usize].remaining());
        }
        if !running.kernels().is_empty() && e.turn_end > e.now && self.device[e.device as usize].mps == 0 {
            until = until.min(e.turn_end);
        }
        until.max(e.now)
    }

    fn run(&mut self, engine: usize, running: &Running, from: u64, until: u64) {
        let dt = until - from;
        let mut whole = Load::default();
        let mut client_load: Option<(u32, Load)> = None;
        for &(client, stream) in running.kernels() {
            let load = self.spend(stream as usize, from, until);
            add(&mut whole, load);
            match &mut client_load {
                Some((c, sum)) if *c == client => add(sum, load),
                other => {
                    if let Some((c, sum)) = other.replace((client, load)) {
                        self.client[c as usize].totals.add(&sum, dt);
                        oracle::busy(self, c, from, until);
                    }
                }
            }
        }
        if let Some((c, sum)) = client_load {
            self.client[c as usize].totals.add(&sum, dt);
            oracle::busy(self, c, from, until);
            self.engine[engine].totals.add(&whole, dt);
        }
        for (side, stream) in running.copies.iter().enumerate() {
            if let Some(stream) = stream {
                self.copy(engine, *stream as usize, side, (from, until));
            }
        }
    }

    /// Runs the operation at the head of a stream.
    fn spend(&mut self, stream: usize, from: u64, until: u64) -> Load {
        let dt = until - from;
        let s = &mut self.stream[stream];
        s.backlog = s.backlog.saturating_sub(dt);
        let op = s.first_mut();
        if op.started == 0 {
            (op.started, op.begun) = (1, from);
        }
        op.remaining = op.remaining.saturating_sub(dt);
        let op = *op;
        if op.remaining == 0 {
            let engine = self.client[s.client as usize].engine;
            self.pop(stream);
            self.record(op, engine, until);
        }
        op.load
    }

    fn copy(&mut self, engine: usize, stream: usize, side: usize, (from, until): (u64, u64)) {
        let dt = until - from;
        let before = *self.stream[stream].first_mut();
        self.spend(stream, from, until);
        let moved = |remaining: u64| {
            let done = u128::from(before.duration - remaining);
            u64::try_from(u128::from(before.bytes) * done / u128::from(before.duration.max(1)))
                .unwrap_or(u64::MAX)
        };
        let bytes = moved(before.remaining.saturating_sub(dt)) - moved(before.remaining);
        let client = self.stream[stream].client as usize;
        for totals in [&mut self.engine[engine].totals, &mut self.client[client].totals] {
            if side == 0 {
                totals.rx += bytes;
            } else {
                totals.tx += bytes;
            }
        }
    }
}

fn add(sum: &mut Load, load: Load) {
    sum.sm = (sum.sm + load.sm.max(1)).min(1000);
    sum.occupancy = (sum.occupancy + load.sm.max(1) * load.occupancy / 1000).min(1000);
    sum.dram = (sum.dram + load.dram).min(1000);
    sum.tensor = (sum.tensor + load.tensor).min(1000);
}

impl Totals {
    /// Adds `dt` of activity. `sum` comes from [`add`]: its occupancy is already per SM of the engine.
    fn add(&mut self, sum: &Load, dt: u64) {
        self.active += dt;
        self.sm += dt * u64::from(sum.sm);
        self.occupied += dt * u64::from(sum.occupancy);
        self.tensor += dt * u64::from(sum.tensor);
        self.dram += dt * u64::from(sum.dram);
        let power = 250 + (350 * sum.sm + 250 * sum.dram + 150 * sum.tensor) / 1000;
        self.power += dt * u64::from(power);
    }
}

impl Stream {
    /// The operation at the head.
    pub fn first(&self) -> Option<&Op> {
        if self.head < self.tail { self.ring.get(slot(self.head)) } else { None }
    }

    fn first_mut(&mut self) -> &mut Op {
        &mut self.ring[slot(self.head)]
    }

    fn remaining(&self) -> u64 {
        self.first().map_or(0, |op| op.remaining)
    }

    /// Places that are free.
    pub fn room(&self) -> usize {
        let depth = QUEUE_DEPTH as u64;
        usize::try_from(depth.saturating_sub(self.tail - self.head)).unwrap_or(0)
    }
}

/// The place of operation number `n` (from 0) in the ring.
pub(crate) const fn slot(n: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below QUEUE_DEPTH")]
    let at = (n % QUEUE_DEPTH as u64) as usize;
    at
}

impl Engine {
    /// Its clients.
    pub fn listed(&self) -> &[u32] {
        self.client.get(..self.clients as usize).unwrap_or_default()
    }

    /// The snapshot taken `back` boundaries before the latest.
    pub fn snapshot(&self, back: u64) -> Option<&Snapshot> {
        let n = self.snapshots.checked_sub(back + 1)?;
        if back >= SNAPSHOTS as u64 {
            return None;
        }
        self.ring.get(usize::try_from(n % SNAPSHOTS as u64).ok()?)
    }
}

impl Client {
    /// Its streams.
    pub fn listed(&self) -> &[u32] {
        self.stream.get(..self.streams as usize).unwrap_or_default()
    }

    /// A client of nobody.
    pub(crate) fn vacate(&mut self) {
        self.used = 0;
        self.streams = 0;
        self.contexts = 0;
        self.memory = 0;
        self.pending = 0;
        self.open = [0; 3];
    }
}

/// Removes one index from a counted list.
pub(crate) fn unlist(list: &mut [u32], count: &mut u32, gone: usize) {
    let len = (*count as usize).min(list.len());
    if let Some(at) = list.iter().take(len).position(|&i| i == index(gone)) {
        list.copy_within(at + 1..len, at);
        if let Some(last) = list.get_mut(len - 1) {
            *last = NONE;
        }
        *count -= 1;
    }
}
