//! Calls that change what later calls mean: contexts, streams, events, captures.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user};
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use warpmeter_ebpf_common::calls::Call;
use warpmeter_ebpf_common::{
    Event, Handle, PER_THREAD, SLOTS, Stream, StreamKey, Task, UNKNOWN_SLOT, UseKey, UuidKey, drop, kind,
    run, scope,
};

use crate::call::{self, Entry, class, is, user};
use crate::enqueue::use_of;
use crate::maps::{CONTEXTS, EVENTS, PROCESSES, STREAMS, TASKS, USES, UUIDS, dropped, ran};
use crate::{atomic, block, drained, tasks};

#[uprobe]
pub fn state(ctx: ProbeContext) -> u32 {
    let entry = Entry::of(&ctx);
    let now = tasks::now();
    ran(run::STATES);
    let class = class(entry.cookie);
    if let Some(task) = tasks::caller(entry.id, class, now) {
        task.calls[kind::STATE] += 1;
        block::infer(task, entry.id as u32, now);
        begin(&entry, class, task, now);
    }
    0
}

#[inline(always)]
fn begin(entry: &Entry, class: u32, task: &mut Task, now: u64) {
    if let Some(using) = USES.get_ptr_mut(&UseKey { tgid: task.tgid, slot: task.slot }) {
        // SAFETY: a value of the map.
        atomic::write(unsafe { &raw mut (*using).last_call }, now);
    }
    if is(class, Call::EventRecord) {
        record(entry, task);
    } else if is(class, Call::StreamWait) {
        wait(entry, task);
    } else if is(class, Call::EventDestroy) {
        let _ = EVENTS.remove(&Handle { handle: entry.handle(), tgid: task.tgid, reserved: 0 });
    } else if is(class, Call::StreamDestroy) {
        let _ = STREAMS.remove(&entry.stream(task));
    } else if is(class, Call::CaptureEnd) {
        if let Some(stream) = STREAMS.get_ptr_mut(&entry.stream(task)) {
            // SAFETY: a value of the map.
            unsafe { (*stream).capture = 0 };
        }
    } else if is(class, Call::ContextSet) {
        call::set_context(task, entry.handle());
    } else if is(class, Call::ContextPush) {
        call::push_context(task, entry.handle());
    } else if is(class, Call::ContextPop) {
        call::pop_context(task);
    } else if is(class, Call::ContextDestroy) {
        destroy_context(task, entry.handle());
    } else if !is(class, Call::Init) {
        expect(entry, class, task, now);
    }
}

/// The call's result matters.
#[inline(always)]
fn expect(entry: &Entry, class: u32, task: &mut Task, now: u64) {
    tasks::advance(task, now);
    task.call = class;
    task.cookie = entry.cookie;
    task.call_began = now;
    if is(class, Call::CaptureBegin) {
        let key = entry.stream(task);
        task.handle = key.stream;
        task.context = key.context;
    } else {
        task.argument = entry.handle();
        task.ordinal = entry.second() as u32;
    }
}

#[inline(always)]
fn record(entry: &Entry, task: &mut Task) {
    if task.slot == UNKNOWN_SLOT {
        call::adopt_context(task);
    }
    let key = entry.stream(task);
    let mut event = Event {
        context: key.context,
        stream: key.stream,
        stream_seq: 0,
        device_seq: 0,
        capture: 0,
        origin: 0,
        slot: task.slot,
        scope: if key.stream == 0 { scope::BLOCKING } else { scope::STREAM },
    };
    if let Some(stream) = STREAMS.get_ptr_mut(&key) {
        if drained::is_captured(&key, stream) {
            // SAFETY: a value of the map.
            unsafe {
                event.capture = (*stream).capture;
                event.origin = (*stream).origin;
            }
            event.scope = scope::NONE;
        }
        event.stream_seq = drained::stream_seq(stream);
    }
    if let Some(using) = USES.get_ptr(&UseKey { tgid: task.tgid, slot: task.slot }) {
        event.device_seq = drained::device_seq(using);
    }
    let at = Handle { handle: entry.second(), tgid: task.tgid, reserved: 0 };
    if EVENTS.insert(&at, &event, 0).is_err() {
        dropped(drop::EVENTS);
    }
}

#[inline(always)]
fn wait(entry: &Entry, task: &Task) {
    let Some(event) = EVENTS.get_ptr(&Handle { handle: entry.second(), tgid: task.tgid, reserved: 0 }) else {
        return;
    };
    // SAFETY: a value of the map.
    let event = unsafe { &*event };
    let key = entry.stream(task);
    let Some(stream) = drained::stream_of(&key) else { return };
    // SAFETY: a value of the map.
    let stream = unsafe { &mut *stream };
    if event.capture != 0 {
        // It joins the capture.
        if drained::is_capture(&key, event.origin, event.capture) && stream.capture == 0 {
            stream.capture = event.capture;
            stream.origin = event.origin;
        }
        return;
    }
    if event.scope == scope::STREAM && event.stream & PER_THREAD == 0 && event.stream != key.stream {
        stream.waits_stream = event.stream;
        stream.waits_seq = event.stream_seq;
    }
}

#[inline(always)]
fn destroy_context(task: &mut Task, context: u64) {
    let key = Handle { handle: context, tgid: task.tgid, reserved: 0 };
    let Some(slot) = CONTEXTS.get_ptr(&key) else { return };
    // SAFETY: a value of the map.
    let slot = unsafe { *slot };
    let _ = CONTEXTS.remove(&key);
    // SAFETY: values of maps, here and below.
    unsafe {
        if let Some(owner) = PROCESSES.get_ptr_mut(&task.tgid) {
            atomic::add32(&raw mut (*owner).contexts, u32::MAX);
        }
        if let Some(using) = USES.get_ptr_mut(&UseKey { tgid: task.tgid, slot }) {
            atomic::add32(&raw mut (*using).contexts, u32::MAX);
        }
    }
    if call::context(task) == context {
        call::pop_context(task);
    }
}

#[uretprobe]
pub fn state_return(ctx: RetProbeContext) -> u32 {
    let now = tasks::now();
    let tid = bpf_get_current_pid_tgid() as u32;
    let Some(task) = TASKS.get_ptr_mut(&tid) else { return 0 };
    // SAFETY: a value of the map, of the thread that runs.
    let task = unsafe { &mut *task };
    let class = class(task.cookie);
    if task.call == 0 || class < Call::EventRecord as u32 {
        dropped(drop::UNPAIRED);
        return 0;
    }
    tasks::advance(task, now);
    task.call = 0;
    task.cookie = 0;
    // SAFETY: registers of the context.
    if unsafe { (*ctx.regs).rax } as u32 == 0 {
        end(task, class);
    }
    0
}

/// A call that gave something has ended well. A function of its own, for the size of the programs.
#[inline(never)]
pub fn end(task: &mut Task, class: u32) {
    if is(class, Call::CaptureBegin) {
        begin_capture(task);
    } else if is(class, Call::StreamCreate) {
        create_stream(task);
    } else if is(class, Call::ContextRetain) || is(class, Call::ContextCreate) {
        let context: u64 = user(task.argument);
        know_context(task, context, task.ordinal);
        if is(class, Call::ContextCreate) {
            call::push_context(task, context);
        }
    } else if is(class, Call::ContextGet) {
        let context: u64 = user(task.argument);
        if context != 0 && context != call::context(task) {
            call::set_context(task, context);
        }
    } else if is(class, Call::ContextDevice) {
        let ordinal: u32 = user(task.argument);
        let context = call::context(task);
        if context != 0 {
            know_context(task, context, ordinal);
            call::find_slot(task);
        } else if ordinal < SLOTS {
            task.slot = ordinal;
        }
    } else if is(class, Call::Uuid) {
        identify(task);
    }
}

#[inline(always)]
fn begin_capture(task: &Task) {
    let key = StreamKey { context: task.context, stream: task.handle, tgid: task.tgid, reserved: 0 };
    let Some(stream) = drained::stream_of(&key) else { return };
    // SAFETY: a value of the map.
    let stream = unsafe { &mut *stream };
    stream.origin = key.stream;
    // A number that no other capture of the process has.
    stream.capture = task.call_began | 1;
}

#[inline(always)]
fn create_stream(task: &Task) {
    const NON_BLOCKING: u32 = 1;
    let handle: u64 = user(task.argument);
    if handle == 0 {
        return;
    }
    let key = StreamKey { context: 0, stream: handle & !PER_THREAD, tgid: task.tgid, reserved: 0 };
    let stream = Stream {
        state: 0,
        capture: 0,
        origin: 0,
        waits_stream: 0,
        waits_seq: 0,
        blocking: u32::from(task.ordinal & NON_BLOCKING == 0),
        reserved: 0,
    };
    if STREAMS.insert(&key, &stream, 0).is_err() {
        dropped(drop::STREAMS);
    }
}

/// A context and its device.
#[inline(always)]
fn know_context(task: &Task, context: u64, ordinal: u32) {
    if context == 0 || ordinal >= SLOTS {
        return;
    }
    let key = Handle { handle: context, tgid: task.tgid, reserved: 0 };
    if CONTEXTS.get_ptr(&key).is_some() {
        return;
    }
    if CONTEXTS.insert(&key, &ordinal, 0).is_err() {
        dropped(drop::CONTEXTS);
        return;
    }
    // SAFETY: values of maps, here and below.
    unsafe {
        if let Some(owner) = PROCESSES.get_ptr_mut(&task.tgid) {
            atomic::add32(&raw mut (*owner).contexts, 1);
            atomic::write(&raw mut (*owner).context, context);
        }
        if let Some(using) = use_of(&UseKey { tgid: task.tgid, slot: ordinal }) {
            atomic::add32(&raw mut (*using).contexts, 1);
        }
    }
}

#[inline(always)]
fn identify(task: &Task) {
    if task.ordinal >= SLOTS {
        return;
    }
    // SAFETY: the helper checks the address.
    let Ok(uuid) = (unsafe { bpf_probe_read_user(task.argument as *const [u8; 16]) }) else { return };
    let key = UuidKey { tgid: task.tgid, ordinal: task.ordinal };
    if UUIDS.insert(&key, &uuid, 0).is_err() {
        dropped(drop::UUIDS);
    }
}

const _: () = assert!((Call::EventQuery as u32) < Call::EventRecord as u32);
