//! Calls that enqueue work and return at once: launches, copies, fills, host functions.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use warpmeter_ebpf_common::calls::{Call, direction};
use warpmeter_ebpf_common::{
    StreamKey, Task, UNKNOWN_SLOT, Use, UseKey, doing, drop, gap, kind, process, uses,
};

use crate::call::{self, Entry, class, is};
use crate::maps::{PROCESSES, USES, dropped};
use crate::{atomic, block, drained, gaps, tasks};

static NO_USE: Use = Use {
    enqueued: 0,
    launches: 0,
    graph_launches: 0,
    bytes_to_device: 0,
    bytes_to_host: 0,
    bytes_other: 0,
    copy_wait: 0,
    copies_most: 0,
    copies_least: 0,
    sync_wait: 0,
    last_call: 0,
    open: 0,
    began: 0,
    outstanding: 0,
    complete: 0,
    complete_blocking: 0,
    tid: 0,
    waiting: 0,
    flags: 0,
    contexts: 0,
    mark: 0,
    at_mark: [0; doing::COUNT],
};

/// A process's use of a device, made if there is none.
#[inline(always)]
pub fn use_of(key: &UseKey) -> Option<*mut Use> {
    if let Some(using) = USES.get_ptr_mut(key) {
        return Some(using);
    }
    let _ = USES.insert(key, &NO_USE, 1);
    let Some(using) = USES.get_ptr_mut(key) else {
        dropped(drop::USES);
        return None;
    };
    if let Some(owner) = PROCESSES.get_ptr(&key.tgid) {
        // SAFETY: values of maps.
        unsafe {
            if (*owner).flags & process::FROM_START != 0 {
                (*using).flags |= uses::KNOWN;
            }
        }
    }
    Some(using)
}

#[uprobe]
pub fn enqueue(ctx: ProbeContext) -> u32 {
    let entry = Entry::of(&ctx);
    let now = tasks::now();
    let class = class(entry.cookie);
    if let Some(task) = tasks::caller(entry.id, class, now) {
        task.calls[kind::ENQUEUE] += 1;
        block::infer(task, entry.id as u32, now);
        enqueued(&entry, class, task, now);
    }
    0
}

/// An enqueue, as far as it is the same for all kinds. Gives the use, the stream and its key; none if it was only
/// recorded by a capture.
#[inline(always)]
pub fn enqueued(entry: &Entry, class: u32, task: &mut Task, now: u64) -> Option<(*mut Use, StreamKey)> {
    if task.slot == UNKNOWN_SLOT {
        call::adopt_context(task);
    }
    let key = UseKey { tgid: task.tgid, slot: task.slot };
    let using = use_of(&key)?;
    // SAFETY: a value of the map, here and below.
    atomic::write(unsafe { &raw mut (*using).last_call }, now);
    let stream_key = entry.stream(task);
    match drained::stream_of(&stream_key) {
        Some(stream) => {
            if drained::is_captured(&stream_key, stream) {
                return None;
            }
            drained::enqueued(using, stream);
        }
        // From now on something may be outstanding that nobody knows of.
        None => unsafe { (*using).flags = 0 },
    }
    // SAFETY: words of the value that change by atomic operations only.
    unsafe {
        atomic::add(&raw mut (*using).enqueued, 1);
        if is(class, Call::Launch) {
            atomic::add(&raw mut (*using).launches, 1);
        } else if is(class, Call::GraphLaunch) {
            atomic::add(&raw mut (*using).graph_launches, 1);
        } else if is(class, Call::Copy) || is(class, Call::BlockingCopy) {
            let (bytes, way) = entry.bytes();
            let sum = match way {
                direction::TO_DEVICE => &raw mut (*using).bytes_to_device,
                direction::TO_HOST => &raw mut (*using).bytes_to_host,
                _ => &raw mut (*using).bytes_other,
            };
            atomic::add(sum, bytes);
        }
    }
    tasks::advance(task, now);
    // SAFETY: as above.
    let waiting = atomic::read32(unsafe { &raw const (*using).waiting });
    let next = if waiting == 0 { gap::ENQUEUE } else { gap::SYNC };
    gaps::turn(&key, using, task, entry.id as u32, now, next);
    gaps::mark(using, task, entry.id as u32, now);
    Some((using, stream_key))
}

const _: () = assert!(doing::COUNT == 11);
