//! What the loader knows and the programs do not: never attached, run by the loader. What it wrote itself to a record
//! that it read before would undo what happened in between.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use warpmeter_ebpf_common::UseKey;

use crate::atomic;
use crate::maps::{PROCESSES, USES};
use crate::tasks::NO_PROCESS;

#[raw_tracepoint(tracepoint = "sched_switch")]
pub fn mark(ctx: RawTracePointContext) -> i32 {
    let (tgid, set, clear) = (ctx.arg::<u64>(0) as u32, ctx.arg::<u64>(1) as u32, ctx.arg::<u64>(2) as u32);
    if set != 0 {
        // What is there stays.
        let _ = PROCESSES.insert(&tgid, &NO_PROCESS, 1);
    }
    if let Some(process) = PROCESSES.get_ptr_mut(&tgid) {
        // SAFETY: a value of the map.
        unsafe { (*process).flags = ((*process).flags | set) & !clear };
    }
    0
}

#[raw_tracepoint(tracepoint = "sched_switch")]
pub fn forget(ctx: RawTracePointContext) -> i32 {
    let key = UseKey { tgid: ctx.arg::<u64>(0) as u32, slot: ctx.arg::<u64>(1) as u32 };
    if let Some(using) = USES.get_ptr_mut(&key) {
        // SAFETY: a value of the map; no bit is set but by what is seen from now on.
        unsafe {
            (*using).flags = 0;
            atomic::swap(&raw mut (*using).open, 0);
        }
    }
    0
}
