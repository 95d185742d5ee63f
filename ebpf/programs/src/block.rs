//! Calls that wait for the device or may do so, or ask whether it is done.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use warpmeter_ebpf_common::calls::{Call, direction};
use warpmeter_ebpf_common::{
    Handle, StreamKey, Task, UNKNOWN_SLOT, Use, UseKey, copies, drop, gap, kind, run, scope, task,
};

use crate::call::{self, Entry, class, is};
use crate::drained::Proof;
use crate::enqueue::{enqueued, use_of};
use crate::globals::RETURNS;
use crate::maps::{EVENTS, STREAMS, TASKS, USES, dropped, ran};
use crate::{atomic, drained, gaps, state, tasks};

/// From how long on a copy that is only enqueued has held its thread up, in nanoseconds: enqueueing takes some µs, as a
/// launch does, and the gaps that are launches' end at as much.
const HELD: u64 = 50_000;

#[uprobe]
pub fn block(ctx: ProbeContext) -> u32 {
    let entry = Entry::of(&ctx);
    let now = tasks::now();
    ran(run::BLOCKS);
    let class = class(entry.cookie);
    if let Some(task) = tasks::caller(entry.id, class, now) {
        task.calls[if is_query(class) { kind::QUERY } else { kind::WAIT }] += 1;
        infer(task, entry.id as u32, now);
        begin(&entry, class, task, now);
    }
    0
}

#[inline(always)]
fn is_query(class: u32) -> bool {
    is(class, Call::StreamQuery) || is(class, Call::EventQuery)
}

#[inline(always)]
fn begin(entry: &Entry, class: u32, task: &mut Task, now: u64) {
    task.scope = scope::NONE;
    let using = if is(class, Call::BlockingCopy) || is(class, Call::Copy) {
        task.argument = entry.bytes().0;
        // One that blocks is in the legacy default stream, or the thread's own.
        let Some((using, key)) = enqueued(entry, class, task, now) else { return };
        if is(class, Call::Copy) {
            // Only its return tells whether it waits.
            if RETURNS.load() == 0 {
                return;
            }
        } else if entry.bytes().1 == direction::TO_HOST {
            // To the host the copy has ended when it returns; to the device it may still be on its way.
            of_stream(task, using, &key);
        }
        using
    } else {
        if task.slot == UNKNOWN_SLOT {
            call::adopt_context(task);
        }
        let key = UseKey { tgid: task.tgid, slot: task.slot };
        let Some(using) = use_of(&key) else { return };
        if is(class, Call::ContextSync) {
            task.scope = scope::CONTEXT;
            task.device_seq = drained::device_seq(using);
        } else if is(class, Call::EventSync) || is(class, Call::EventQuery) {
            of_event(task, entry.handle());
        } else {
            of_stream(task, using, &entry.stream(task));
        }
        using
    };
    tasks::advance(task, now);
    task.call = class;
    task.cookie = entry.cookie;
    task.call_began = now;
    if !is_query(class) {
        task.flags |= task::WAITING;
        // SAFETY: a value of the map.
        atomic::add32(unsafe { &raw mut (*using).waiting }, 1);
        gaps::becomes_sync(using);
    }
}

/// Success will prove a stream complete.
#[inline(always)]
fn of_stream(task: &mut Task, using: *const Use, key: &StreamKey) {
    task.scope = if key.stream == 0 { scope::BLOCKING } else { scope::STREAM };
    task.handle = key.stream;
    task.context = key.context;
    task.device_seq = drained::device_seq(using);
    task.stream_seq = STREAMS.get_ptr(key).map_or(0, |stream| drained::stream_seq(stream));
}

/// Success will prove what an event captured complete.
#[inline(always)]
fn of_event(task: &mut Task, event: u64) {
    let key = Handle { handle: event, tgid: task.tgid, reserved: 0 };
    let Some(event) = EVENTS.get_ptr(&key) else { return };
    // SAFETY: a value of the map.
    let event = unsafe { &*event };
    if event.slot != task.slot {
        return;
    }
    task.scope = event.scope;
    task.handle = event.stream;
    task.context = event.context;
    task.device_seq = event.device_seq;
    task.stream_seq = event.stream_seq;
}

#[uretprobe]
pub fn block_return(ctx: RetProbeContext) -> u32 {
    let now = tasks::now();
    // SAFETY: registers of the context.
    let succeeded = unsafe { (*ctx.regs).rax } as u32 == 0;
    let tid = bpf_get_current_pid_tgid() as u32;
    match TASKS.get_ptr_mut(&tid) {
        // SAFETY: a value of the map, of the thread that runs.
        Some(task) if unsafe { (*task).call } != 0 => end(unsafe { &mut *task }, tid, now, succeeded),
        Some(_) => dropped(drop::UNPAIRED),
        None => {}
    }
    0
}

/// The thread's call has ended. A function of its own, for the size of the programs.
#[inline(never)]
fn end(task: &mut Task, tid: u32, now: u64, succeeded: bool) {
    let class = class(task.cookie);
    if is(class, Call::Copy) && now.saturating_sub(task.call_began) < HELD {
        only_enqueued(task, now);
        return;
    }
    tasks::advance(task, now);
    task.call = 0;
    task.cookie = 0;
    let key = UseKey { tgid: task.tgid, slot: task.slot };
    let Some(using) = USES.get_ptr_mut(&key) else { return };
    let waits = task.flags & task::WAITING != 0;
    task.flags &= !task::WAITING;
    // SAFETY: a value of the map, here and below.
    unsafe {
        atomic::write(&raw mut (*using).last_call, now);
        if waits {
            atomic::add32(&raw mut (*using).waiting, u32::MAX);
            let spent = now.saturating_sub(task.call_began);
            let sum = if is(class, Call::BlockingCopy) || is(class, Call::Copy) {
                atomic::add(&raw mut (*using).copies_most, copies::most(spent, task.argument));
                atomic::add(&raw mut (*using).copies_least, copies::least(spent, task.argument));
                &raw mut (*using).copy_wait
            } else {
                &raw mut (*using).sync_wait
            };
            atomic::add(sum, spent);
        }
    }
    if succeeded {
        let proof = Proof {
            scope: task.scope,
            key: StreamKey { context: task.context, stream: task.handle, tgid: task.tgid, reserved: 0 },
            stream_seq: task.stream_seq,
            device_seq: task.device_seq,
        };
        drained::proved(using, &proof);
    }
    if gaps::open_kind(using) == gap::DRAINED {
        // It goes on, and with it the thread's account of it.
        return;
    }
    let next = if drained::is_drained(using) {
        gap::DRAINED
    } else if !waits {
        return;
    // SAFETY: as above.
    } else if atomic::read32(unsafe { &raw const (*using).waiting }) == 0 {
        gap::ENQUEUE
    } else {
        gap::SYNC
    };
    // SAFETY: as above.
    if atomic::read(unsafe { &raw const (*using).open }) == 0 {
        return;
    }
    gaps::turn(&key, using, task, tid, now, next);
    gaps::mark(using, task, tid, now);
}

/// The thread's copy did not hold it up: it was like a launch.
#[inline(always)]
fn only_enqueued(task: &mut Task, now: u64) {
    task.call = 0;
    task.cookie = 0;
    tasks::advance(task, now);
    let waits = task.flags & task::WAITING != 0;
    task.flags &= !task::WAITING;
    let Some(using) = USES.get_ptr_mut(&UseKey { tgid: task.tgid, slot: task.slot }) else { return };
    if waits {
        // SAFETY: a value of the map.
        let waiting = unsafe { &raw mut (*using).waiting };
        atomic::add32(waiting, u32::MAX);
        if atomic::read32(waiting) == 0 {
            gaps::becomes_enqueue(using);
        }
    }
}

/// A call that has no end yet has ended by the thread's next one. Without return probes that is the rule. With them its
/// return was missed.
#[inline(always)]
pub fn infer(task: &mut Task, tid: u32, now: u64) {
    if task.cookie == 0 {
        return;
    }
    let class = class(task.cookie);
    let lost = RETURNS.load() != 0;
    if lost {
        dropped(drop::UNPAIRED);
    }
    if class >= Call::EventRecord as u32 {
        if !lost {
            state::end(task, class);
        }
        tasks::advance(task, now);
        task.call = 0;
        task.cookie = 0;
        return;
    }
    if is(class, Call::Copy) {
        // How long it took is not known.
        only_enqueued(task, now);
        return;
    }
    // Whether it succeeded is not known: of a call that waits it is believed where nothing better is to be had.
    let succeeded = !lost && !is_query(class);
    let returned = task.returned;
    if returned == 0 {
        end(task, tid, now, succeeded);
    } else {
        task.returned = 0;
        let (mark, at_mark) = (task.mark, task.at_mark);
        end(task, tid, returned, succeeded);
        task.mark = mark;
        task.at_mark = at_mark;
        if let Some(using) = USES.get_ptr_mut(&UseKey { tgid: task.tgid, slot: task.slot }) {
            gaps::mark_use(using, task, tid);
        }
    }
}
