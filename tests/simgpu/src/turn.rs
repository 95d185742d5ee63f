//! Whose turn it is on an engine, and what runs until the next event.

use crate::layout::{Op, Shared, kind};

/// Kernels that run at the same time.
const CONCURRENT: usize = 32;
/// Streams considered for that.
const HEADS: usize = 64;

/// What runs on an engine until the next event.
pub(crate) struct Running {
    kernels: [(u32, u32); CONCURRENT],
    kernel_count: usize,
    /// Streams whose head is being copied: host to device, device to host.
    pub(crate) copies: [Option<u32>; 2],
}

impl Shared {
    /// Gives the turn, and takes from the heads of the streams what fits.
    pub(crate) fn choose(&mut self, engine: usize, now: u64) -> Running {
        let turn = if self.device[self.engine[engine].device as usize].mps == 1 {
            None
        } else {
            self.take_turn(engine, now);
            Some(self.engine[engine].turn)
        };
        let mut running = Running { kernels: [(0, 0); CONCURRENT], kernel_count: 0, copies: [None; 2] };
        let mut heads = Heads { items: [(0, 0, 0, 0, 0); HEADS], count: 0 };
        let mut best: [(u32, u64); 2] = [(0, u64::MAX); 2];
        for &client in self.engine[engine].listed() {
            let c = &self.client[client as usize];
            if c.pending == 0 {
                continue;
            }
            for &stream in c.listed() {
                let Some(op) = self.stream[stream as usize].first() else { continue };
                match op.kind {
                    kind::KERNEL if turn.is_none_or(|t| t == client) => heads.add(op, client, stream),
                    kind::H2D | kind::D2H => {
                        let side = usize::from(op.kind == kind::D2H);
                        let rank = (1 - op.started.min(1), op.order);
                        if running.copies[side].is_none() || rank < best[side] {
                            best[side] = rank;
                            running.copies[side] = Some(stream);
                        }
                    }
                    _ => {}
                }
            }
        }
        let mut free = 1000;
        for &(_, _, sm, client, stream) in heads.sorted() {
            if running.kernel_count > 0 && sm > free || running.kernel_count == CONCURRENT {
                break;
            }
            free = free.saturating_sub(sm);
            running.kernels[running.kernel_count] = (client, stream);
            running.kernel_count += 1;
        }
        if let Some(kernels) = running.kernels.get_mut(..running.kernel_count) {
            kernels.sort_unstable();
        }
        running
    }

    /// Gives the turn to the next process with a kernel when the present one has none, or when its time is up.
    fn take_turn(&mut self, engine: usize, now: u64) {
        let e = &self.engine[engine];
        let ready = |client: u32| {
            let c = &self.client[client as usize];
            c.pending > 0
                && c.listed()
                    .iter()
                    .any(|&s| self.stream[s as usize].first().is_some_and(|op| op.kind == kind::KERNEL))
        };
        let clients = e.listed();
        let place = clients.iter().position(|&c| c == e.turn);
        let holds = place.is_some() && ready(e.turn);
        if holds && now < e.turn_end {
            return;
        }
        let start = place.map_or(0, |p| p + 1);
        let others = clients.iter().cycle().skip(start).take(clients.len());
        let next = others.copied().find(|&c| c != e.turn && ready(c));
        let quantum = self.device[e.device as usize].quantum;
        let e = &mut self.engine[engine];
        if let Some(next) = next {
            e.turn = next;
            e.totals.switches += 1;
            e.turn_end = now + quantum;
        } else if holds {
            e.turn_end = now + quantum;
        }
    }
}

impl Running {
    /// Client and stream of each kernel, by client.
    pub(crate) fn kernels(&self) -> &[(u32, u32)] {
        self.kernels.get(..self.kernel_count).unwrap_or_default()
    }
}

/// Kernels at the heads of streams: (not yet started, order, SM share, client, stream).
struct Heads {
    items: [(u32, u64, u32, u32, u32); HEADS],
    count: usize,
}

impl Heads {
    fn add(&mut self, op: &Op, client: u32, stream: u32) {
        if let Some(slot) = self.items.get_mut(self.count) {
            *slot = (1 - op.started.min(1), op.order, op.load.sm.max(1), client, stream);
            self.count += 1;
        }
    }

    fn sorted(&mut self) -> &[(u32, u64, u32, u32, u32)] {
        let items = self.items.get_mut(..self.count).unwrap_or_default();
        items.sort_unstable();
        items
    }
}
