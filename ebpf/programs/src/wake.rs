//! Wake-ups: a thread that waited for another is held up by what held up that one. Its wait is divided by what the
//! thread that wakes it did meanwhile, whose own waits were divided so before: chains resolve a step at a time.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_current_task};
use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};
use core::ptr::read_volatile;
use warpmeter_ebpf_common::{Task, WakeKey, WakeSum, doing, run};

use crate::classify::{self, Awaited, DI, ORIG_AX, read};
use crate::globals::{STACK_REGS, TASK_PID, TASK_STACK};
use crate::history;
use crate::maps::{MIX, MOMENT, TASKS, WAKES, forget, ran, tracked};
use crate::switch::{member, registers};
use crate::{atomic, tasks, timeouts};

static NO_WAKES: WakeSum = WakeSum { count: 0, doings: [0; doing::COUNT] };

/// Waits longer than this are not divided: the arithmetic has no room for them. Two hours.
const LONGEST: u64 = 1 << 43;

#[inline(always)]
fn woken<const BTF: bool>(sleeper: *const u8, context: *const core::ffi::c_void) {
    let tid: u32 = member::<_, BTF>(sleeper, TASK_PID.load());
    if !tracked(tid) {
        return;
    }
    let Some(task) = TASKS.get_ptr_mut(&tid) else { return };
    // SAFETY: a value of the map. The thread sleeps, and the kernel lets one waker at a time at it.
    let task = unsafe { &mut *task };
    // SAFETY: a word of the value, which is written last when a thread falls asleep.
    let waits = unsafe { read_volatile(&raw const task.doing) };
    if task.call != 0 || (waits != doing::LOCK && waits != doing::POLL) {
        return;
    }
    let waker = bpf_get_current_pid_tgid() as u32;
    if waker == tid {
        return;
    }
    ran(run::WAKES);
    let now = tasks::now();
    let began = cut(task, now);
    let by_thread = is_thread::<BTF>(context);
    let regs = registers::<BTF>(sleeper);
    let number = read::<u64>(regs, ORIG_AX) as i64;
    let first: u64 = read(regs, DI);
    // Of idle CPUs and threads of the kernel the registers say nothing.
    let handed = by_thread || tracked(waker) && delivers::<BTF>(classify::awaited(sleeper, number, first));
    let known = if handed && tracked(waker) { TASKS.get_ptr_mut(&waker) } else { None };
    match known {
        Some(known) => {
            // SAFETY: a value of the map, of the thread that runs.
            let known = unsafe { &mut *known };
            if classify::is_futex(number) {
                // It may be a lock: what its holder did before it had that held nobody up.
                known.begun = 0;
            } else if waits == doing::POLL {
                timeouts::owe(task, classify::set(number, first), known.begun, began);
            }
            pass_on(task, known, waker, began, now);
            known.begun = now;
        }
        None if waits == doing::POLL => {
            let class = classify::awaited(sleeper, number, first).class();
            timeouts::ended(task, classify::set(number, first), class, began, now);
        }
        None if by_thread => {
            // What timeouts cut was for the same.
            let owed = task.owed;
            task.sums[doing::POLL as usize] = task.sums[doing::POLL as usize].saturating_sub(owed);
            tasks::add(task, doing::LOCK, now.saturating_sub(began) + owed);
        }
        None if classify::awaited(sleeper, number, first).is_local() => {
            // Of a thread that nobody watches: all that is known is how it came.
            let class = classify::awaited(sleeper, number, first).class();
            tasks::add(task, class, now.saturating_sub(began));
        }
        None => {
            // A timeout.
            let length = now.saturating_sub(began);
            tasks::add(task, doing::POLL, length);
            if task.owed == 0 {
                task.owed_since = began;
            }
            task.owed += length;
        }
    }
    if handed {
        task.begun = now;
        task.owed = 0;
    }
    task.since = now;
    task.doing = doing::CPU_WAIT;
    history::note(tid, task, now);
}

/// Of a wait that was going on at the last snapshot, what came before it has been told. Gives since when it has not.
#[inline(always)]
fn cut(task: &mut Task, now: u64) -> u64 {
    // SAFETY: a value of the map.
    let moment = MOMENT.get_ptr(0).map_or(0, |moment| unsafe { read_volatile(moment) });
    if task.owed_since < moment {
        task.owed = 0;
    }
    if task.timed_out_since < moment {
        task.timed_out = 0;
    }
    if moment <= task.since || moment >= now {
        return task.since;
    }
    tasks::add(task, doing::POLL, moment - task.since);
    moment
}

/// Whether the thread that runs brings what the sleeper waits for, through a connection within this machine: the kernel does
/// that at the end of what it sends, as an interrupt would.
#[inline(always)]
fn delivers<const BTF: bool>(awaited: Awaited) -> bool {
    let does = read::<u64>(registers::<BTF>(current::<BTF>()), ORIG_AX) as i64;
    classify::moves(does) && awaited.is_local()
}

#[inline(always)]
fn current<const BTF: bool>() -> *const u8 {
    // SAFETY: a helper without precondition.
    let current = unsafe { if BTF { bpf_get_current_task_btf() as u64 } else { bpf_get_current_task() } };
    current as *const u8
}

/// Whether the thread that runs does this itself. Interrupts have a stack of their own unless they come while user code
/// runs; then the saved registers are of no system call.
#[inline(always)]
fn is_thread<const BTF: bool>(context: *const core::ffi::c_void) -> bool {
    let current = current::<BTF>();
    let stack: u64 = read(current, TASK_STACK.load());
    if forget(context as u64).wrapping_sub(stack) >= u64::from(STACK_REGS.load()) {
        return false;
    }
    let number: u64 = read(registers::<BTF>(current), ORIG_AX);
    number as i64 >= 0
}

/// Divides a wait by what its waker did meanwhile, or since it began with what it hands over through a pipe or a socket, if
/// that was earlier: the end of its work alone would not be like the whole. A function of its own, for the size of the programs.
#[inline(never)]
fn pass_on(task: &mut Task, waker: &Task, waker_tid: u32, began: u64, now: u64) {
    let mut began = began;
    let mut length = now.saturating_sub(began);
    let by_clock = task.doing == doing::POLL && task.owed != 0;
    if task.owed != 0 {
        began = task.owed_since;
        length += task.owed;
        task.sums[doing::POLL as usize] = task.sums[doing::POLL as usize].saturating_sub(task.owed);
        task.owed = 0;
    }
    let Some(mix) = MIX.get_ptr_mut(0) else { return };
    // SAFETY: a value of a map, this CPU's; nothing else uses it.
    let mix = unsafe { &mut *mix };
    if waker.begun != 0 && waker.begun < began {
        began = waker.begun;
    }
    let span = now.saturating_sub(began).min(LONGEST);
    history::mix(waker_tid, waker, span, now, mix);
    // Who waits for a thread that sleeps by the clock waits for that thread: nobody knows of any work to come. Unless it
    // sleeps by the clock itself meanwhile.
    if !by_clock {
        mix[doing::LOCK as usize] += mix[doing::TIMER as usize];
        mix[doing::TIMER as usize] = 0;
    }
    let mut total = 0;
    for weight in mix.iter() {
        total += *weight;
    }
    if by_clock && mix[doing::TIMER as usize] > total / 2 {
        task.timed_out_as = doing::TIMER;
    }
    let key = WakeKey { sleeper: task.tgid, waker: waker.tgid };
    let sum = match WAKES.get_ptr_mut(&key) {
        Some(sum) => Some(sum),
        None => {
            let _ = WAKES.insert(&key, &NO_WAKES, 1);
            WAKES.get_ptr_mut(&key)
        }
    };
    let mut left = length;
    if total != 0 && length < LONGEST {
        for class in 0..doing::COUNT {
            let weight = mix[class];
            if weight == 0 {
                continue;
            }
            // Weights are below 2⁴⁴, and the share, in 2⁻²⁰, is at most about 1.
            let mut part = (length * ((weight << 10) / (total >> 10).max(1))) >> 20;
            if part > left {
                part = left;
            }
            left -= part;
            task.sums[class] += part;
            if let Some(sum) = sum {
                // SAFETY: a value of the map, within the array.
                atomic::add(unsafe { &raw mut (*sum).doings[class] }, part);
            }
        }
    }
    // What is left of rounding, and what the waker did in the driver.
    task.sums[doing::LOCK as usize] += left;
    if let Some(sum) = sum {
        // SAFETY: a value of the map.
        unsafe {
            atomic::add(&raw mut (*sum).doings[doing::LOCK as usize], left);
            atomic::add(&raw mut (*sum).count, 1);
        }
    }
}

#[btf_tracepoint(function = "sched_waking")]
pub fn wake_fast(ctx: BtfTracePointContext) -> i32 {
    woken::<true>(ctx.arg(0), ctx.as_ptr());
    0
}

#[raw_tracepoint(tracepoint = "sched_waking")]
pub fn wake_stack(ctx: RawTracePointContext) -> i32 {
    woken::<false>(ctx.arg(0), ctx.as_ptr());
    0
}
