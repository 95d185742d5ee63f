//! Threads and processes: their records, and the accounts of a thread's time.

use aya_ebpf::helpers::{
    bpf_get_current_cgroup_id, bpf_get_current_task, bpf_ktime_get_ns, bpf_probe_read_kernel,
};
use core::ptr::write_volatile;
use warpmeter_ebpf_common::calls::Call;
use warpmeter_ebpf_common::{NESTED, Process, Task, UNKNOWN_SLOT, UseKey, doing, drop, kind, process, task};

use crate::atomic;
use crate::globals::{RETURNS, SWITCHES, TASK_RUN_DELAY};
use crate::maps::{HISTORIES, PROCESSES, TASKS, USES, dropped, track};

static NO_TASK: Task = Task {
    tgid: 0,
    flags: 0,
    since: 0,
    doing: 0,
    call: 0,
    waited: 0,
    waited_doing: 0,
    slot: UNKNOWN_SLOT,
    run_delay: 0,
    sums: [0; doing::COUNT],
    in_driver: 0,
    mark: 0,
    at_mark: [0; doing::COUNT],
    call_began: 0,
    argument: 0,
    handle: 0,
    context: 0,
    stream_seq: 0,
    device_seq: 0,
    scope: 0,
    ordinal: 0,
    cookie: 0,
    contexts: [0; NESTED],
    depth: 0,
    ended_doing: 0,
    ended: 0,
    returned: 0,
    owed: 0,
    owed_since: 0,
    noted: 0,
    begun: 0,
    made: 0,
    timed_out: 0,
    timed_out_since: 0,
    timed_out_in: 0,
    timed_out_as: doing::TIMER,
    calls: [0; kind::COUNT],
};

pub static NO_PROCESS: Process = Process {
    flags: 0,
    contexts: 0,
    cgroup: 0,
    context: 0,
    seen: 0,
    ended: 0,
    callers: [0; doing::COUNT],
    others: [0; doing::COUNT],
    calls: [0; kind::COUNT],
};

/// CLOCK_MONOTONIC in nanoseconds.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: a helper without precondition.
    unsafe { bpf_ktime_get_ns() }
}

/// A process's record, made if there is none.
#[inline(always)]
pub fn process_of(tgid: u32, now: u64) -> Option<&'static mut Process> {
    if let Some(process) = PROCESSES.get_ptr_mut(&tgid) {
        // SAFETY: a value of the map.
        return Some(unsafe { &mut *process });
    }
    // What another thread made meanwhile is kept.
    let _ = PROCESSES.insert(&tgid, &NO_PROCESS, 1);
    let Some(process) = PROCESSES.get_ptr_mut(&tgid) else {
        dropped(drop::PROCESSES);
        return None;
    };
    // SAFETY: a value of the map; the helper has no precondition.
    let (process, cgroup) = unsafe { (&mut *process, bpf_get_current_cgroup_id()) };
    process.seen = now;
    process.cgroup = cgroup;
    Some(process)
}

/// Makes a thread's record. It does `doing` from now on. A function of its own, for the size of the programs.
#[inline(never)]
pub fn create(tid: u32, tgid: u32, doing: u32, run_delay: u64, now: u64) -> Option<&'static mut Task> {
    process_of(tgid, now)?;
    if TASKS.insert(&tid, &NO_TASK, 0).is_err() {
        dropped(drop::TASKS);
        track(tid, 0);
        return None;
    }
    // What another thread did that had this number, or this one when it ran another program, is not this record's past.
    let _ = HISTORIES.remove(&tid);
    let task = TASKS.get_ptr_mut(&tid)?;
    // SAFETY: a value of the map.
    let task = unsafe { &mut *task };
    task.tgid = tgid;
    task.doing = if SWITCHES.load() == 0 { doing::UNKNOWN } else { doing };
    task.since = now;
    task.mark = now;
    task.begun = now;
    task.made = now;
    task.run_delay = run_delay;
    track(tid, 1);
    Some(task)
}

/// The record of the thread that makes a call; none if its process is not to be looked at.
#[inline(always)]
pub fn caller(id: u64, call: u32, now: u64) -> Option<&'static mut Task> {
    let (tgid, tid) = ((id >> 32) as u32, id as u32);
    let found = TASKS.get_ptr_mut(&tid);
    if let Some(task) = found {
        // SAFETY: a value of the map, of the thread that runs.
        let task = unsafe { &mut *task };
        if task.flags & task::CALLER != 0 && call != Call::Init as u32 {
            return Some(task);
        }
    }
    let owner = process_of(tgid, now)?;
    if owner.flags & process::IGNORED != 0 {
        return None;
    }
    if call == Call::Init as u32 && owner.flags & (process::CALLER | process::LATE) == 0 {
        owner.flags |= process::FROM_START;
    }
    owner.flags |= process::CALLER;
    let task = match found {
        // SAFETY: as above.
        Some(task) => unsafe { &mut *task },
        None => create(tid, tgid, doing::CPU, 0, now)?,
    };
    task.flags |= task::CALLER;
    Some(task)
}

/// The last wait becomes part of the sums: what of it was waiting for a CPU is known now. Gives how long the rest was.
#[inline(always)]
pub fn settle(task: &mut Task, run_delay: u64) -> u64 {
    let waited = task.waited;
    if waited == 0 {
        return 0;
    }
    task.waited = 0;
    let mut delayed = 0;
    if TASK_RUN_DELAY.load() != 0 && task.waited_doing != doing::CPU_WAIT {
        delayed = run_delay.wrapping_sub(task.run_delay);
        if delayed > waited {
            delayed = waited;
        }
        task.sums[doing::CPU_WAIT as usize] += delayed;
    }
    task.run_delay = run_delay;
    add(task, task.waited_doing, waited - delayed);
    waited - delayed
}

/// Adds to a class.
#[inline(always)]
pub fn add(task: &mut Task, doing: u32, nanoseconds: u64) {
    warpmeter_ebpf_common::add(&mut task.sums, doing, nanoseconds);
}

/// Closes the running interval of the thread that runs. One that began after `now`, the end of a call that is seen later,
/// goes on.
#[inline(always)]
pub fn advance(task: &mut Task, now: u64) {
    if task.waited != 0 {
        let delay = if TASK_RUN_DELAY.load() == 0 { 0 } else { current_run_delay() };
        settle(task, delay);
    }
    let length = now.saturating_sub(task.since);
    task.since += length;
    task.ended = length;
    if task.call == 0 {
        task.ended_doing = task.doing;
        add(task, task.doing, length);
    } else {
        task.ended_doing = doing::COUNT as u32;
        task.in_driver += length;
    }
}

#[inline(always)]
fn current_run_delay() -> u64 {
    // SAFETY: helpers; a wrong address gives an error.
    unsafe {
        let task = bpf_get_current_task() as *const u8;
        bpf_probe_read_kernel(task.add(TASK_RUN_DELAY.load() as usize).cast::<u64>()).unwrap_or(0)
    }
}

/// Time on a CPU between two waits for the same input or output is part of that if it is no longer than this, nor than the
/// first of them: a packet is taken in, a page is mapped, and what comes next was awaited all along.
const PIECE: u64 = 100_000;

/// The thread leaves its CPU to do `doing`, which [`does`] says of it when all else is written.
#[inline(always)]
pub fn leave(task: &mut Task, doing: u32, run_delay: u64, now: u64) {
    let length = now.saturating_sub(task.since);
    let waited = settle(task, run_delay);
    let piece = doing == task.waited_doing
        && matches!(doing, doing::DISK_READ | doing::DISK_WRITE | doing::NETWORK | doing::MEMORY)
        && length <= PIECE
        && length <= waited;
    if task.call == 0 {
        add(task, if piece { doing } else { task.doing }, length);
    } else {
        task.in_driver += length;
        if RETURNS.load() == 0
            && matches!(
                doing,
                doing::DISK_READ | doing::DISK_WRITE | doing::NETWORK | doing::REQUEST | doing::TIMER
            )
        {
            // The driver waits in none of these ways: the call is over.
            task.call = 0;
            task.returned = now;
            task.mark = now;
            task.at_mark = task.sums;
        }
    }
    task.since = now;
    task.run_delay = run_delay;
}

/// What the thread does from now on. Who wakes it looks at this first: its record and its history are the waker's then.
#[inline(always)]
pub fn does(task: &mut Task, doing: u32) {
    // SAFETY: a word of the value.
    unsafe { write_volatile(&raw mut task.doing, doing) };
}

/// The thread gets a CPU.
#[inline(always)]
pub fn enter(task: &mut Task, now: u64) {
    let length = now.saturating_sub(task.since);
    if task.call == 0 {
        task.waited = length;
        task.waited_doing = task.doing;
    } else {
        task.in_driver += length;
    }
    task.since = now;
    task.doing = doing::CPU;
}

/// Whether no more threads of a process are followed.
#[inline(always)]
pub fn is_crowded(tgid: u32) -> bool {
    // SAFETY: a value of the map.
    PROCESSES.get_ptr(&tgid).is_some_and(|owner| unsafe { (*owner).flags } & process::CROWDED != 0)
}

/// A thread has replaced its process's program, and with it all other threads; its own number was `old` before.
#[inline(always)]
pub fn replaced(tid: u32, old: u32, tgid: u32, now: u64) {
    end(old, false, now);
    bury(old);
    if let Some(owner) = PROCESSES.get_ptr_mut(&tgid) {
        // SAFETY: a value of the map, of the process that runs.
        unsafe {
            (*owner).flags &= process::IGNORED | process::CROWDED;
            (*owner).contexts = 0;
        }
    }
    for slot in 0..REPLACED {
        forget_contexts(tgid, slot);
    }
    forget_contexts(tgid, UNKNOWN_SLOT);
    create(tid, tgid, doing::CPU, 0, now);
}

/// Devices of a process whose contexts are forgotten when it replaces its program: no node has more.
const REPLACED: u32 = 16;

#[inline(always)]
fn forget_contexts(tgid: u32, slot: u32) {
    if let Some(using) = USES.get_ptr_mut(&UseKey { tgid, slot }) {
        // SAFETY: a value of the map.
        unsafe {
            (*using).contexts = 0;
            (*using).flags = 0;
        }
    }
}

/// The thread ends: what it did becomes its process's. `last`: its process ends with it. Its record stays until its last
/// switch: the kernel wakes those that wait for its end in between, and what they waited for is what it did.
#[inline(always)]
pub fn end(tid: u32, last: bool, now: u64) {
    let Some(task) = TASKS.get_ptr_mut(&tid) else {
        track(tid, 0);
        return;
    };
    // SAFETY: a value of the map, of the thread that runs.
    let task = unsafe { &mut *task };
    let process = PROCESSES.get_ptr_mut(&task.tgid);
    // What a thread did that ended, and whose number this one has taken, is its process's already.
    if !task.has_ended() {
        advance(task, now);
        task.call = 0;
        if let Some(process) = process {
            hand_over(task, process);
        }
        // Last: who reads the thread's record and then its process's finds what it did in one of them at least.
        // SAFETY: a word of the value.
        unsafe { write_volatile(&raw mut task.flags, task.flags | task::ENDED) };
    }
    if last && let Some(process) = process {
        // SAFETY: a value of the map.
        unsafe { (*process).ended = now };
    }
}

#[inline(always)]
fn hand_over(task: &Task, process: *mut Process) {
    for at in 0..doing::COUNT {
        let spent = task.sums[at];
        if spent == 0 {
            continue;
        }
        // SAFETY: a value of the map.
        let sum = unsafe {
            if task.flags & task::CALLER == 0 {
                &raw mut (*process).others[at]
            } else {
                &raw mut (*process).callers[at]
            }
        };
        atomic::add(sum, spent);
    }
    for at in 0..kind::COUNT {
        // SAFETY: as above.
        atomic::add(unsafe { &raw mut (*process).calls[at] }, task.calls[at]);
    }
}

/// A thread that has ended runs no more. Not if it has got the number of one that took its own to replace the program: then
/// the record is that one's, which goes on.
#[inline(always)]
pub fn bury(tid: u32) {
    // SAFETY: a value of the map.
    if TASKS.get_ptr(&tid).is_some_and(|task| unsafe { !(*task).has_ended() }) {
        return;
    }
    track(tid, 0);
    let _ = TASKS.remove(&tid);
    let _ = HISTORIES.remove(&tid);
}
