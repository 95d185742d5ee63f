//! Streams, events and what is put into them.

use crate::layout::{Event, Load, MAX_CLIENT_STREAMS, NONE, Op, QUEUE_DEPTH, Shared, index, kind};
use crate::{Refused, model};

/// Bandwidth between pinned host memory and a device, bytes per second, over 16 lanes of a generation of PCI Express: what
/// tools measure, about eight tenths of what the specification says.
pub fn pinned_bandwidth(generation: u32) -> u64 {
    match generation {
        0..=3 => 12_500_000_000,
        4 => 25_000_000_000,
        _ => 50_000_000_000,
    }
}
/// Bandwidth from or to pageable host memory.
pub const PAGEABLE_BANDWIDTH: u64 = 10_000_000_000;
/// Time that any copy takes.
const COPY_LATENCY: u64 = 4_000;

/// A stream, and the generation that tells it from a later one in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRef {
    /// Slot.
    pub at: u32,
    /// Generation of the slot.
    pub generation: u32,
}

impl Op {
    /// A kernel.
    pub fn kernel(duration: u64, load: Load) -> Self {
        let duration = duration.max(1);
        Self { kind: kind::KERNEL, duration, remaining: duration, load, ..Self::default() }
    }

    /// A copy; `kind` is [`kind::H2D`] or [`kind::D2H`].
    pub fn copy(kind: u32, bytes: u64, bandwidth: u64) -> Self {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1));
        let duration = COPY_LATENCY + u64::try_from(nanos).unwrap_or(u64::MAX / 2);
        Self { kind, duration, remaining: duration, bytes, ..Self::default() }
    }

    /// A host function, known by a token.
    pub fn host(token: u64) -> Self {
        Self { kind: kind::HOST, remaining: 1, seq: token, ..Self::default() }
    }
}

impl Shared {
    /// Opens a stream.
    pub fn open_stream(
        &mut self,
        client: usize,
        context: u32,
        legacy: bool,
        non_blocking: bool,
    ) -> Result<StreamRef, Refused> {
        if self.client[client].streams as usize >= MAX_CLIENT_STREAMS {
            return Err(Refused::Table);
        }
        let at = self.stream.iter().position(|s| s.used == 0).ok_or(Refused::Table)?;
        let s = &mut self.stream[at];
        s.generation = s.generation.wrapping_add(1);
        s.client = index(client);
        s.legacy = u32::from(legacy);
        s.non_blocking = u32::from(non_blocking);
        s.context = context;
        (s.head, s.tail, s.backlog, s.waits_legacy) = (0, 0, 0, 0);
        s.used = 1;
        let generation = s.generation;
        let c = &mut self.client[client];
        c.stream[c.streams as usize] = index(at);
        c.streams += 1;
        Ok(StreamRef { at: index(at), generation })
    }

    /// Closes a stream; what it holds vanishes.
    pub fn close_stream(&mut self, stream: usize) {
        let s = &mut self.stream[stream];
        if s.used == 0 {
            return;
        }
        s.used = 0;
        let waiting = s.tail - s.head;
        s.head = s.tail;
        let client = &mut self.client[s.client as usize];
        client.pending = client.pending.saturating_sub(waiting);
        model::unlist(&mut client.stream, &mut client.streams, stream);
        let engine = &mut self.engine[client.engine as usize];
        engine.pending = engine.pending.saturating_sub(waiting);
    }

    /// The slot of a stream that is alive.
    pub fn stream_slot(&self, stream: StreamRef) -> Result<usize, Refused> {
        let at = stream.at as usize;
        match self.stream.get(at) {
            Some(s) if s.used == 1 && s.generation == stream.generation => Ok(at),
            _ => Err(Refused::Handle),
        }
    }

    /// Enqueues an operation at `now` and returns its sequence number in the stream.
    ///
    /// Legacy default stream: its operations wait for those already in the context's blocking streams, and later
    /// ones in these wait for it.
    pub fn enqueue(&mut self, stream: StreamRef, op: Op, now: u64) -> Result<u64, Refused> {
        let at = self.stream_slot(stream)?;
        let client = self.stream[at].client as usize;
        self.advance(self.client[client].engine as usize, now);
        if self.stream[at].room() < MAX_CLIENT_STREAMS.min(self.client[client].streams as usize) {
            return Err(Refused::QueueFull);
        }
        if self.stream[at].non_blocking == 0 {
            self.order_with_legacy(at, client);
        }
        self.push(at, op);
        Ok(self.stream[at].tail)
    }

    fn order_with_legacy(&mut self, at: usize, client: usize) {
        let context = self.stream[at].context;
        let legacy = self.stream[at].legacy == 1;
        for i in 0..self.client[client].streams as usize {
            let other = self.client[client].stream[i] as usize;
            let o = &self.stream[other];
            let related = other != at && o.context == context && o.non_blocking == 0;
            if !related || o.head == o.tail || (!legacy && o.legacy == 0) {
                continue;
            }
            let (generation, seq) = (o.generation, o.tail);
            if !legacy && self.stream[at].waits_legacy == seq {
                continue;
            }
            self.stream[at].waits_legacy = if legacy { 0 } else { seq };
            let wait = Op { kind: kind::WAIT, target: index(other), generation, seq, ..Op::default() };
            self.push(at, wait);
        }
    }

    fn push(&mut self, at: usize, mut op: Op) {
        let trace = if self.traces > 0 { self.traced(self.stream[at].client as usize, &op) } else { 0 };
        let s = &mut self.stream[at];
        let client = &mut self.client[s.client as usize];
        let engine = &mut self.engine[client.engine as usize];
        engine.arrivals += 1;
        op.order = engine.arrivals;
        op.started = 0;
        op.trace = trace;
        if op.kind <= kind::D2H {
            s.backlog += op.remaining;
        }
        s.ring[model::slot(s.tail)] = op;
        s.tail += 1;
        client.pending += 1;
        engine.pending += 1;
    }

    /// A lower bound on the time until operation `seq` of a stream completes; `None` when it has.
    pub fn due(&mut self, stream: StreamRef, seq: u64, now: u64) -> Option<u64> {
        let at = self.stream_slot(stream).ok()?;
        let client = self.stream[at].client as usize;
        let engine = self.client[client].engine as usize;
        self.advance(engine, now);
        if let Some(op) = self.stream[at].first()
            && op.kind == kind::WAIT
            && let Some(other) = self.stream.get(op.target as usize).filter(|s| s.used == 1)
        {
            // The other stream may be another device's: it advances too, and this one sees it the next time.
            self.advance(self.client[other.client as usize].engine as usize, now);
        }
        let s = &self.stream[at];
        if s.head >= seq {
            return None;
        }
        let behind: u64 = if seq == s.tail {
            s.backlog
        } else {
            let after = seq.saturating_sub(s.head).min(QUEUE_DEPTH as u64);
            (0..after)
                .filter_map(|n| s.ring.get(model::slot(s.head + n)))
                .filter(|op| op.kind <= kind::D2H)
                .map(|op| op.remaining)
                .sum()
        };
        Some(behind)
    }

    /// Makes an event of a process.
    pub fn new_event(&mut self, pid: u32) -> Result<u32, Refused> {
        let at = self.event.iter().position(|e| e.used == 0).ok_or(Refused::Table)?;
        let record = self.event[at].record.wrapping_add(1);
        self.event[at] = Event { used: 1, pid, stream: NONE, record, ..Event::default() };
        Ok(index(at))
    }

    /// Records an event in a stream.
    pub fn record_event(&mut self, event: u32, stream: StreamRef, now: u64) -> Result<(), Refused> {
        let at = event as usize;
        if self.event.get(at).is_none_or(|e| e.used == 0) {
            return Err(Refused::Handle);
        }
        let generation = self.event[at].record.wrapping_add(1);
        let op = Op { kind: kind::EVENT, target: event, generation, ..Op::default() };
        let seq = self.enqueue(stream, op, now)?;
        let e = &mut self.event[at];
        (e.record, e.stream, e.generation, e.seq, e.at) = (generation, stream.at, stream.generation, seq, 0);
        Ok(())
    }

    /// What an event waits for: the stream and sequence number of its last record; `None` if never recorded.
    pub fn event_target(&self, event: u32) -> Option<(StreamRef, u64)> {
        let e = self.event.get(event as usize).filter(|e| e.used == 1 && e.stream != NONE)?;
        Some((StreamRef { at: e.stream, generation: e.generation }, e.seq))
    }

    /// The operation that makes later work of a stream wait for an event's last record; `None` if never recorded.
    pub fn wait_op(&self, event: u32) -> Option<Op> {
        let (target, seq) = self.event_target(event)?;
        Some(Op { kind: kind::WAIT, target: target.at, generation: target.generation, seq, ..Op::default() })
    }

    /// Host functions of a process at the head of their streams: the slot and the token of each.
    pub fn due_host_functions(&self, pid: u32) -> Vec<(usize, u64)> {
        let mut due = Vec::new();
        for c in self.client.iter().take(self.client_slots as usize) {
            if c.used == 0 || c.pid != pid || c.pending == 0 {
                continue;
            }
            for &s in c.listed() {
                if let Some(op) = self.stream[s as usize].first()
                    && op.kind == kind::HOST
                    && op.remaining > 0
                {
                    due.push((s as usize, op.seq));
                }
            }
        }
        due
    }

    /// Marks the host function at a stream's head as run.
    pub fn host_function_done(&mut self, stream: usize, token: u64) {
        let s = &mut self.stream[stream];
        let at = model::slot(s.head);
        if s.head < s.tail && s.ring[at].kind == kind::HOST && s.ring[at].seq == token {
            s.ring[at].remaining = 0;
        }
    }
}
