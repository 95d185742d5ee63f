//! Cuts an open gap at a snapshot: never attached, run by the loader for each use of a device.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use warpmeter_ebpf_common::{UseKey, add, doing, gap, open_wait};

use crate::atomic;
use crate::gaps;
use crate::globals::WAKES_SEEN;
use crate::maps::{SCRATCH, TASKS, USES};

#[raw_tracepoint(tracepoint = "sched_switch")]
pub fn flush(ctx: RawTracePointContext) -> i32 {
    let key = UseKey { tgid: ctx.arg::<u64>(0) as u32, slot: ctx.arg::<u64>(1) as u32 };
    cut(&key, ctx.arg(2));
    0
}

#[inline(always)]
fn cut(key: &UseKey, now: u64) {
    let Some(using) = USES.get_ptr_mut(key) else { return };
    // SAFETY: a value of the map.
    let (open, began, tid) =
        unsafe { (&raw mut (*using).open, atomic::read(&raw const (*using).began), (*using).tid) };
    let old = atomic::read(open);
    if old == 0 || old >> gap::SHIFT >= now {
        return;
    }
    if !atomic::replace(open, old, now << gap::SHIFT | gap::COUNTED | old & 3) {
        // The gap ends at this moment.
        return;
    }
    let Some(seen) = SCRATCH.get_ptr_mut(0) else { return };
    // SAFETY: a value of a map, this CPU's; nothing else uses it.
    let seen = unsafe { &mut *seen };
    let task = TASKS.get_ptr_mut(&tid).filter(|task| {
        // SAFETY: a value of the map.
        unsafe { (**task).tgid == key.tgid && !(**task).has_ended() && (*using).mark < now }
    });
    let Some(task) = task else {
        seen.ended = u64::MAX;
        seen.ended_doing = doing::UNKNOWN;
        gaps::record(key, seen, old | gap::CUT, began, now);
        return;
    };
    // SAFETY: as above. The thread may run meanwhile: then some of this is a moment newer than the rest, and what does
    // not fit is unknown.
    let task = unsafe { &mut *task };
    seen.sums = task.sums;
    // SAFETY: a value of the map.
    unsafe {
        seen.mark = (*using).mark;
        seen.at_mark = (*using).at_mark;
    }
    add(&mut seen.sums, task.waited_doing, task.waited);
    seen.ended = now.saturating_sub(task.since);
    if task.call == 0 {
        seen.ended_doing = open_wait(task.doing, WAKES_SEEN.load() != 0);
        add(&mut seen.sums, seen.ended_doing, seen.ended);
    } else {
        seen.ended_doing = doing::COUNT as u32;
    }
    gaps::record(key, seen, old | gap::CUT, began, now);
    // SAFETY: as above.
    unsafe {
        (*using).mark = now;
        (*using).at_mark = seen.sums;
    }
}
