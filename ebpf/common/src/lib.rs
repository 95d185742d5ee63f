//! What Warpmeter's kernel programs and their loader agree on: records of maps, names, classes, cookies.
//!
//! Sums are nanoseconds or counts since a record was made; they never fall (but see [`Task::at`]). Records that
//! several threads write at once ([`Use`], [`Stream`], [`GapSum`], [`Process`]) change by atomic operations only.
//!
//! # Who writes what
//!
//! | map | key → value | made by | removed by |
//! |---|---|---|---|
//! | `TRACKED` | array of pages of [`PAGE`] bytes, one byte per thread id: 1 if its switches count; user space maps it | loader, fork, exec, first CUDA call | its last switch, loader |
//! | `TASKS` | thread id → [`Task`] | the thread's first switch-out or CUDA call | its last switch, exec, loader |
//! | `PROCESSES` | process id → [`Process`] | loader (before it attaches), fork, first task | loader |
//! | `USES` | [`UseKey`] → [`Use`] | first enqueue or synchronisation | loader |
//! | `GAPS` | [`GapKey`] → [`GapSum`] | first such gap | loader |
//! | `STREAMS` | [`StreamKey`] → [`Stream`] | creation or first use | destruction, age (LRU) |
//! | `EVENTS` | [`Handle`] → [`Event`] | record | destruction, age (LRU) |
//! | `CONTEXTS` | [`Handle`] of a context → device ordinal (u32) | creation or retaining | destruction, loader |
//! | `UUIDS` | [`UuidKey`] → 16 bytes | `cuDeviceGetUuid` | loader |
//! | `HISTORIES` | thread id → [`History`] | the thread's switches and wakers | its last switch, exec, age (LRU) |
//! | `WAKES` | [`WakeKey`] → [`WakeSum`] | wake-ups | loader, age (LRU) |
//! | `MOMENT` | array of one u64: the time of the last snapshot | loader, before it cuts gaps | |
//! | `DROPS` | per-CPU array of u64 by [`mod@drop`] | | |
//! | `RUNS` | per-CPU array of u64 by [`run`] | | |
//!
//! # A snapshot
//!
//! 1. `m` = CLOCK_MONOTONIC now, written to `MOMENT`: waits that go on then are told as far as they are known, and who
//!    ends them explains the rest. For every key of `USES` run the program [`program::FLUSH`] once
//!    (`BPF_PROG_TEST_RUN`, context of three u64: process, slot, `m`): the open gap's part up to `m` goes to `GAPS`.
//! 2. Read `GAPS` and `USES`, then `TASKS` and `PROCESSES`; [`Task::at`] gives a thread's sums at `m`, and for a
//!    thread in a call `m − call_began` is the part of its wait so far. One that [`Task::has_ended`] is left out: what it
//!    did is in `PROCESSES`.
//! 3. Subtract the snapshot before. What comes out negative (a call or a wait that ended between two reads) is 0, and
//!    the deficit is taken from what comes next.
#![no_std]
#![allow(
    clippy::inline_always,
    reason = "kernel programs pass at most five arguments to a call, and none by value"
)]

pub mod calls;
pub mod copies;
pub mod kernel;
mod records;

pub use records::*;

/// Bytes of a page of `TRACKED`.
pub const PAGE: usize = 4096;
/// Pages of `TRACKED`: enough for the largest thread id that Linux gives (4,194,303).
pub const PAGES: u32 = 1024;

/// What a thread does outside the CUDA driver, as an index of [`Doings`].
pub mod doing {
    /// On a CPU.
    pub const CPU: u32 = 0;
    /// Runnable without a CPU.
    pub const CPU_WAIT: u32 = 1;
    /// Waiting for block reads.
    pub const DISK_READ: u32 = 2;
    /// Waiting for block writes.
    pub const DISK_WRITE: u32 = 3;
    /// Waiting for the network: outbound connections, network file systems.
    pub const NETWORK: u32 = 4;
    /// Waiting for requests: inbound connections, and accepting them.
    pub const REQUEST: u32 = 5;
    /// Reclaim, swap, fault service.
    pub const MEMORY: u32 = 6;
    /// Locks, pipes, local sockets, other processes.
    pub const LOCK: u32 = 7;
    /// Waiting for any of several files (`poll` and its kin, `io_uring_enter`).
    pub const POLL: u32 = 8;
    /// Asleep until a time that it chose.
    pub const TIMER: u32 = 9;
    /// Anything else, or not known.
    pub const UNKNOWN: u32 = 10;
    /// How many there are.
    pub const COUNT: usize = 11;
}

/// Nanoseconds by [`doing`].
pub type Doings = [u64; doing::COUNT];

/// Kinds of gaps: [`GapKey::kind`], and the low two bits of [`Use::open`].
pub mod gap {
    /// From the return of a call that left nothing outstanding to the next enqueue.
    pub const DRAINED: u64 = 0;
    /// From an enqueue to the next, with an unknown backlog in between.
    pub const ENQUEUE: u64 = 1;
    /// Like `ENQUEUE`, but a thread came to wait for outstanding work; ends with that wait.
    pub const SYNC: u64 = 2;
    /// Bit of [`Use::open`](crate::Use::open): the gap was counted already, at a snapshot.
    pub const COUNTED: u64 = 4;
    /// With a gap that goes on at a snapshot. Never in [`Use::open`](crate::Use::open), whose times end below it.
    pub const CUT: u64 = 1 << 63;
    /// [`Use::open`](crate::Use::open) is a time in nanoseconds, shifted left by this, with the bits above.
    pub const SHIFT: u32 = 3;
}

/// Why something was left out: indexes of `DROPS`.
pub mod drop {
    /// `TASKS` was full; the thread is not followed.
    pub const TASKS: u32 = 0;
    /// `PROCESSES` was full.
    pub const PROCESSES: u32 = 1;
    /// `USES` was full; the call is not counted.
    pub const USES: u32 = 2;
    /// `GAPS` was full; the gap is not counted.
    pub const GAPS: u32 = 3;
    /// `STREAMS` refused a stream; the process is not known to be drained any more.
    pub const STREAMS: u32 = 4;
    /// `EVENTS` refused an event.
    pub const EVENTS: u32 = 5;
    /// `CONTEXTS` was full; the context's device is unknown.
    pub const CONTEXTS: u32 = 6;
    /// `UUIDS` was full.
    pub const UUIDS: u32 = 7;
    /// Too many threads at one gap at once: the enqueue is counted, its gap goes on.
    pub const CONTENDED: u32 = 8;
    /// A batch of copies with more than [`calls::BATCH`](crate::calls::BATCH) sizes: bytes of the first ones only.
    pub const BATCH: u32 = 9;
    /// A return without the entry before it, or an entry whose return was not seen.
    pub const UNPAIRED: u32 = 10;
    /// How many there are.
    pub const COUNT: u32 = 11;
    /// Their names, by index.
    pub const NAMES: [&str; COUNT as usize] = [
        "tasks",
        "processes",
        "uses",
        "gaps",
        "streams",
        "events",
        "contexts",
        "uuids",
        "contended",
        "batch",
        "unpaired",
    ];
}

/// Kinds of calls by what their probes cost: indexes of [`Task::calls`] and [`Process::calls`].
pub mod kind {
    /// Enqueues that return at once.
    pub const ENQUEUE: usize = 0;
    /// Calls that wait, blocking copies too.
    pub const WAIT: usize = 1;
    /// Questions whether something is complete.
    pub const QUERY: usize = 2;
    /// All others.
    pub const STATE: usize = 3;
    /// How many there are.
    pub const COUNT: usize = 4;
}

/// What ran how often: indexes of `RUNS`. What [`program::ENQUEUE`] did is in [`Use::enqueued`].
pub mod run {
    /// Switches of tracked threads, counted once for each that left a CPU.
    pub const SWITCHES: u32 = 0;
    /// Entries of blocking calls.
    pub const BLOCKS: u32 = 1;
    /// Entries of all other calls than enqueues.
    pub const STATES: u32 = 2;
    /// Wake-ups of tracked threads that waited for a lock or for any of several files.
    pub const WAKES: u32 = 3;
    /// How many there are.
    pub const COUNT: u32 = 4;
}

/// Names of maps.
pub mod map {
    /// See the table in the crate's documentation, as for all of these.
    pub const TRACKED: &str = "TRACKED";
    /// Threads.
    pub const TASKS: &str = "TASKS";
    /// Processes.
    pub const PROCESSES: &str = "PROCESSES";
    /// A process's use of a device.
    pub const USES: &str = "USES";
    /// Sums of gaps.
    pub const GAPS: &str = "GAPS";
    /// CUDA streams.
    pub const STREAMS: &str = "STREAMS";
    /// CUDA events.
    pub const EVENTS: &str = "EVENTS";
    /// Devices of contexts.
    pub const CONTEXTS: &str = "CONTEXTS";
    /// Identities of devices.
    pub const UUIDS: &str = "UUIDS";
    /// What threads did of late.
    pub const HISTORIES: &str = "HISTORIES";
    /// Who waited for whom.
    pub const WAKES: &str = "WAKES";
    /// The time of the last snapshot.
    pub const MOMENT: &str = "MOMENT";
    /// What was left out.
    pub const DROPS: &str = "DROPS";
    /// How often programs ran.
    pub const RUNS: &str = "RUNS";
}

/// Names of programs.
pub mod program {
    /// `tp_btf/sched_switch`; needs `bpf_task_pt_regs` (Linux 5.15). Attach the fork and exit programs first.
    pub const SWITCH_FAST: &str = "switch_fast";
    /// `tp_btf/sched_process_fork`.
    pub const FORK_FAST: &str = "fork_fast";
    /// `tp_btf/sched_process_exit`.
    pub const EXIT_FAST: &str = "exit_fast";
    /// `tp_btf/sched_process_exec`.
    pub const EXEC_FAST: &str = "exec_fast";
    /// Raw tracepoint `sched_switch`; finds the registers by [`kernel::STACK_REGS`](crate::kernel::STACK_REGS).
    pub const SWITCH_STACK: &str = "switch_stack";
    /// Raw tracepoint `sched_process_fork`.
    pub const FORK_STACK: &str = "fork_stack";
    /// Raw tracepoint `sched_process_exit`.
    pub const EXIT_STACK: &str = "exit_stack";
    /// Raw tracepoint `sched_process_exec`.
    pub const EXEC_STACK: &str = "exec_stack";
    /// `tp_btf/sched_waking`.
    pub const WAKE_FAST: &str = "wake_fast";
    /// Raw tracepoint `sched_waking`.
    pub const WAKE_STACK: &str = "wake_stack";
    /// Uprobe of calls that enqueue work and return at once.
    pub const ENQUEUE: &str = "enqueue";
    /// Uprobe of calls that wait for the device or ask whether it is done.
    pub const BLOCK: &str = "block";
    /// Their return.
    pub const BLOCK_RETURN: &str = "block_return";
    /// Uprobe of calls that change contexts, streams, events, captures.
    pub const STATE: &str = "state";
    /// Their return.
    pub const STATE_RETURN: &str = "state_return";
    /// Raw tracepoint program that is never attached: see the crate's documentation.
    pub const FLUSH: &str = "flush";
    /// Raw tracepoint program that is never attached; context of three u64: process, bits of [`crate::process`] to set
    /// (then it makes the record if there is none), bits to clear.
    pub const MARK: &str = "mark";
    /// Raw tracepoint program that is never attached; context of two u64: process, slot. Calls of the process went
    /// unseen: no gap of the use is open any more, and what is outstanding is not known.
    pub const FORGET: &str = "forget";
}
