//! Scheduler programs, in two flavours: `fast` (BTF tracepoints: direct loads) and `stack` (raw tracepoints: reads,
//! and registers found on the kernel stack).

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::generated::bpf_task_pt_regs;
use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};
use warpmeter_ebpf_common::{doing, run};

use crate::classify::{self, DI, ORIG_AX, SI, read};
use crate::globals::{
    HAS_PREV_STATE, SIGNAL_LIVE, STACK_REGS, TASK_PID, TASK_RUN_DELAY, TASK_SIGNAL, TASK_STACK, TASK_STATE,
    TASK_TGID, WAKES_SEEN,
};
use crate::maps::{TASKS, ran, track, tracked};
use crate::{history, swap, tasks};

/// A member of a task: a load that the verifier follows, or a read.
#[inline(always)]
pub fn member<T: Default + Copy, const BTF: bool>(task: *const u8, offset: u32) -> T {
    if BTF {
        // SAFETY: the verifier knows the task's type and the offset, a constant to it.
        unsafe { *task.add(offset as usize).cast::<T>() }
    } else {
        read(task, offset)
    }
}

/// TASK_DEAD: the task runs no more.
const DEAD: u32 = 0x80;

#[inline(always)]
fn switched<const BTF: bool>(
    ctx: &impl EbpfContext,
    prev: *const u8,
    next: *const u8,
    preempted: bool,
    state: impl Fn() -> u32,
) {
    let prev_tid: u32 = member::<_, BTF>(prev, TASK_PID.load());
    let next_tid: u32 = member::<_, BTF>(next, TASK_PID.load());
    let (leaves, enters) = (tracked(prev_tid), tracked(next_tid));
    if !leaves && !enters {
        return;
    }
    let now = tasks::now();
    let state = if leaves && !preempted { state() } else { 0 };
    if state & DEAD != 0 {
        tasks::bury(prev_tid);
    } else if leaves {
        ran(run::SWITCHES);
        let doing = if state == 0 { doing::CPU_WAIT } else { waits::<BTF>(ctx, prev, state) };
        let delay =
            if TASK_RUN_DELAY.load() == 0 { 0 } else { member::<u64, BTF>(prev, TASK_RUN_DELAY.load()) };
        if let Some(task) = TASKS.get_ptr_mut(&prev_tid) {
            // SAFETY: a value of the map, of the thread that is being switched.
            let task = unsafe { &mut *task };
            tasks::leave(task, doing, delay, now);
            if WAKES_SEEN.load() != 0 {
                history::note(prev_tid, task, now);
            }
            tasks::does(task, doing);
        } else {
            let tgid: u32 = member::<_, BTF>(prev, TASK_TGID.load());
            if tasks::is_crowded(tgid) {
                track(prev_tid, 0);
            } else {
                tasks::create(prev_tid, tgid, doing, delay, now);
            }
        }
    }
    if enters && let Some(task) = TASKS.get_ptr_mut(&next_tid) {
        // SAFETY: as above.
        let task = unsafe { &mut *task };
        tasks::enter(task, now);
        if WAKES_SEEN.load() != 0 {
            history::note(next_tid, task, now);
        }
    }
}

#[inline(always)]
fn waits<const BTF: bool>(ctx: &impl EbpfContext, prev: *const u8, state: u32) -> u32 {
    let regs = registers::<BTF>(prev);
    let number: u64 = read(regs, ORIG_AX);
    let swapped = || swap::is_awaited(ctx);
    classify::wait(prev, state, number as i64, read(regs, DI), read(regs, SI), swapped)
}

/// Where a task's user registers are saved.
#[inline(always)]
pub fn registers<const BTF: bool>(task: *const u8) -> *const u8 {
    if BTF {
        // SAFETY: a task that the verifier knows.
        unsafe { bpf_task_pt_regs(task as *mut task_struct) as *const u8 }
    } else {
        (read::<u64>(task, TASK_STACK.load()) as *const u8).wrapping_add(STACK_REGS.load() as usize)
    }
}

#[inline(always)]
fn forked<const BTF: bool>(parent: *const u8, child: *const u8) {
    let parent_tid: u32 = member::<_, BTF>(parent, TASK_PID.load());
    if !tracked(parent_tid) || tasks::is_crowded(member::<_, BTF>(parent, TASK_TGID.load())) {
        return;
    }
    let tid: u32 = member::<_, BTF>(child, TASK_PID.load());
    let tgid: u32 = member::<_, BTF>(child, TASK_TGID.load());
    track(tid, 1);
    tasks::create(tid, tgid, doing::CPU_WAIT, 0, tasks::now());
}

#[inline(always)]
fn exited<const BTF: bool>(task: *const u8) {
    let tid: u32 = member::<_, BTF>(task, TASK_PID.load());
    if tracked(tid) {
        // The kernel has taken it off before it says so. The first thread may end long before the others.
        let signal: u64 = member::<_, BTF>(task, TASK_SIGNAL.load());
        let live: u32 = read(signal as *const u8, SIGNAL_LIVE.load());
        tasks::end(tid, live == 0, tasks::now());
    }
}

/// The first thread has ended by now, and whoever replaces the program has its number.
#[inline(always)]
fn execed<const BTF: bool>(task: *const u8, old: u32) {
    if tracked(old) {
        let tid: u32 = member::<_, BTF>(task, TASK_PID.load());
        let tgid: u32 = member::<_, BTF>(task, TASK_TGID.load());
        tasks::replaced(tid, old, tgid, tasks::now());
    }
}

#[btf_tracepoint(function = "sched_switch")]
pub fn switch_fast(ctx: BtfTracePointContext) -> i32 {
    let prev: *const u8 = ctx.arg(1);
    let state = || {
        if HAS_PREV_STATE.load() == 0 {
            member::<u32, true>(prev, TASK_STATE.load())
        } else {
            ctx.arg::<u64>(3) as u32
        }
    };
    switched::<true>(&ctx, prev, ctx.arg(2), ctx.arg::<u64>(0) & 1 != 0, state);
    0
}

#[btf_tracepoint(function = "sched_process_fork")]
pub fn fork_fast(ctx: BtfTracePointContext) -> i32 {
    forked::<true>(ctx.arg(0), ctx.arg(1));
    0
}

#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit_fast(ctx: BtfTracePointContext) -> i32 {
    exited::<true>(ctx.arg(0));
    0
}

#[btf_tracepoint(function = "sched_process_exec")]
pub fn exec_fast(ctx: BtfTracePointContext) -> i32 {
    execed::<true>(ctx.arg(0), ctx.arg::<u64>(1) as u32);
    0
}

#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn exec_stack(ctx: RawTracePointContext) -> i32 {
    execed::<false>(ctx.arg(0), ctx.arg::<u64>(1) as u32);
    0
}

#[raw_tracepoint(tracepoint = "sched_switch")]
pub fn switch_stack(ctx: RawTracePointContext) -> i32 {
    let prev: *const u8 = ctx.arg(1);
    let state =
        || if HAS_PREV_STATE.load() == 0 { read(prev, TASK_STATE.load()) } else { ctx.arg::<u64>(3) as u32 };
    switched::<false>(&ctx, prev, ctx.arg(2), ctx.arg::<u64>(0) & 1 != 0, state);
    0
}

#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn fork_stack(ctx: RawTracePointContext) -> i32 {
    forked::<false>(ctx.arg(0), ctx.arg(1));
    0
}

#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn exit_stack(ctx: RawTracePointContext) -> i32 {
    exited::<false>(ctx.arg(0));
    0
}
