//! Processes: who holds contexts and memory on which engine, and what happens when they die.

use crate::clock::MILLI;
use crate::layout::{
    Client, MAX_CLIENT_STREAMS, MAX_CLIENTS, MAX_ENGINE_CLIENTS, MAX_STREAMS, NONE, Shared, Totals, index,
};
use crate::{Refused, model, oracle};

/// The name of an MPS server, as far as the kernel keeps it.
const MPS_SERVER: &str = "nvidia-cuda-mps";

/// A process, told apart from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its pid, as this process sees it.
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub start: u64,
}

impl Process {
    /// This process.
    pub fn current() -> Self {
        Self::of(std::process::id())
    }

    /// The process that has this pid now.
    pub fn of(pid: u32) -> Self {
        Self { pid, start: start_time(pid).unwrap_or(0) }
    }

    /// Whether it still runs. A zombie does not.
    pub fn alive(self) -> bool {
        start_time(self.pid) == Some(self.start)
    }

    /// Whether it calls itself an MPS server.
    fn serves(self) -> bool {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid));
        name.is_ok_and(|name| name.trim_end() == MPS_SERVER)
    }
}

fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

impl Shared {
    /// A context of `process` on `engine`: makes or joins its client.
    pub fn attach(&mut self, engine: usize, process: Process, now: u64) -> Result<usize, Refused> {
        self.advance(engine, now);
        let device = self.engine[engine].device as usize;
        let context = self.device[device].context;
        let found = self.engine[engine]
            .listed()
            .iter()
            .map(|&c| c as usize)
            .find(|&c| self.client[c].pid == process.pid && self.client[c].start == process.start);
        let client = match found {
            Some(client) => client,
            None => self.new_client(engine, process)?,
        };
        if let Err(refused) = self.take_memory(client, context) {
            if self.client[client].contexts == 0 {
                self.remove(client);
            }
            return Err(refused);
        }
        self.client[client].contexts += 1;
        Ok(client)
    }

    fn new_client(&mut self, engine: usize, process: Process) -> Result<usize, Refused> {
        let client = self.client.iter().position(|c| c.used == 0).ok_or(Refused::Table)?;
        if self.engine[engine].clients as usize >= MAX_ENGINE_CLIENTS {
            return Err(Refused::Table);
        }
        let server = self.device[self.engine[engine].device as usize].mps == 1 && process.serves();
        // The server's samples are the engine's.
        let sampled = if server { self.engine[engine].totals } else { Totals::default() };
        self.client[client] = Client {
            used: 1,
            pid: process.pid,
            start: process.start,
            engine: index(engine),
            server: u32::from(server),
            contexts: 0,
            memory: 0,
            pending: 0,
            totals: Totals::default(),
            sampled,
            open: [0; 3],
            streams: 0,
            stream: [NONE; MAX_CLIENT_STREAMS],
        };
        self.client_slots = self.client_slots.max(index(client) + 1);
        let e = &mut self.engine[engine];
        e.client[e.clients as usize] = index(client);
        e.clients += 1;
        Ok(client)
    }

    /// Ends one context of a client, and the client with its last.
    pub fn detach(&mut self, client: usize, now: u64) {
        let engine = self.client[client].engine as usize;
        self.advance(engine, now);
        let context = self.device[self.engine[engine].device as usize].context;
        self.return_memory(client, context);
        let c = &mut self.client[client];
        c.contexts = c.contexts.saturating_sub(1);
        if c.contexts == 0 {
            self.remove(client);
        }
    }

    /// Removes a client: its queued work and its memory vanish.
    fn remove(&mut self, client: usize) {
        oracle::close(self, client);
        let engine = self.client[client].engine as usize;
        for at in (0..self.client[client].streams as usize).rev() {
            let stream = self.client[client].stream[at] as usize;
            self.close_stream(stream);
        }
        let pid = self.client[client].pid;
        let memory = self.client[client].memory;
        let e = &mut self.engine[engine];
        e.memory_used = e.memory_used.saturating_sub(memory);
        model::unlist(&mut e.client, &mut e.clients, client);
        if e.turn == index(client) {
            e.turn = NONE;
        }
        self.client[client].vacate();
        if !self.client.iter().any(|c| c.used == 1 && c.pid == pid) {
            for event in self.event.iter_mut().filter(|e| e.used == 1 && e.pid == pid) {
                event.used = 0;
            }
        }
    }

    /// Removes every client of a process.
    pub fn remove_process(&mut self, process: Process) {
        for client in 0..self.client_slots as usize {
            let c = &self.client[client];
            if c.used == 1 && c.pid == process.pid && c.start == process.start {
                self.remove(client);
            }
        }
    }

    /// Processes with contexts.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let used = self.client.iter().take(self.client_slots as usize).filter(|c| c.used == 1);
        let mut found: Vec<Process> = used.map(|c| Process { pid: c.pid, start: c.start }).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Removes processes that no longer run, at most every 100 ms: looking costs some microseconds a process.
    pub fn bury_dead_sometimes(&mut self, now: u64) {
        if now.saturating_sub(self.buried) >= 100 * MILLI {
            self.buried = now;
            self.bury_dead();
        }
    }

    /// Removes processes that no longer run.
    pub fn bury_dead(&mut self) {
        for client in 0..self.client_slots as usize {
            let c = &self.client[client];
            if c.used == 1 && !(Process { pid: c.pid, start: c.start }).alive() {
                self.remove(client);
            }
        }
    }

    /// Takes device memory for a client.
    pub fn take_memory(&mut self, client: usize, bytes: u64) -> Result<(), Refused> {
        let engine = self.client[client].engine as usize;
        let e = &mut self.engine[engine];
        if bytes > e.memory - e.memory_used.min(e.memory) {
            return Err(Refused::Memory);
        }
        e.memory_used += bytes;
        self.client[client].memory += bytes;
        Ok(())
    }

    /// Gives device memory back.
    pub fn return_memory(&mut self, client: usize, bytes: u64) {
        let bytes = bytes.min(self.client[client].memory);
        self.client[client].memory -= bytes;
        let e = &mut self.engine[self.client[client].engine as usize];
        e.memory_used = e.memory_used.saturating_sub(bytes);
    }

    /// Derives every list and count anew from the records, after a holder of the lock died at an unknown point.
    pub(crate) fn rebuild(&mut self) {
        for e in &mut self.engine {
            (e.clients, e.pending, e.memory_used) = (0, 0, 0);
        }
        for c in &mut self.client {
            (c.streams, c.pending) = (0, 0);
        }
        for at in 0..MAX_STREAMS {
            let s = &mut self.stream[at];
            s.tail = s.tail.max(s.head);
            let waiting = s.tail - s.head;
            let client = s.client as usize;
            if s.used == 0 {
                continue;
            }
            match self.client.get_mut(client) {
                Some(c) if c.used == 1 && (c.streams as usize) < MAX_CLIENT_STREAMS => {
                    c.stream[c.streams as usize] = index(at);
                    c.streams += 1;
                    c.pending += waiting;
                }
                _ => s.used = 0,
            }
        }
        for at in 0..MAX_CLIENTS {
            let c = &self.client[at];
            if c.used == 0 {
                continue;
            }
            let (engine, pending, memory) = (c.engine as usize, c.pending, c.memory);
            let e = &mut self.engine[engine];
            if (e.clients as usize) < MAX_ENGINE_CLIENTS {
                e.client[e.clients as usize] = index(at);
                e.clients += 1;
                e.pending += pending;
                e.memory_used += memory;
            }
        }
        self.bury_dead();
    }
}
