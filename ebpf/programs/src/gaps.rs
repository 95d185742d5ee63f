//! A process's time on a device, cut into gaps: each nanosecond from its first enqueue on is in exactly one.

use warpmeter_ebpf_common::{GapKey, GapSum, Task, Use, UseKey, doing, drop, gap, opaque};

use crate::atomic;
use crate::maps::{GAPS, dropped};

static NO_GAPS: GapSum = GapSum { count: 0, total: 0, ended: 0, lasted: 0, doings: [0; doing::COUNT] };

/// Ends the open gap at `now` and begins one of kind `next`.
#[inline(always)]
pub fn turn(key: &UseKey, using: *mut Use, task: &mut Task, tid: u32, now: u64, next: u64) {
    // SAFETY: a value of the map.
    let (open, began, last) =
        unsafe { (&raw mut (*using).open, &raw mut (*using).began, &raw mut (*using).tid) };
    let start = atomic::read(began);
    let mut ended = None;
    for _ in 0..4 {
        let old = atomic::read(open);
        if old >> gap::SHIFT >= now {
            // Another thread was later.
            return;
        }
        if atomic::replace(open, old, now << gap::SHIFT | next) {
            ended = Some(old);
            break;
        }
    }
    let Some(old) = ended else {
        dropped(drop::CONTENDED);
        return;
    };
    atomic::write(began, now);
    // SAFETY: as above.
    unsafe {
        if *last == tid {
            // Meanwhile it may have called other devices: what it did since its last call of this one counts.
            task.mark = (*using).mark;
            task.at_mark = (*using).at_mark;
        }
        *last = tid;
    }
    if old != 0 {
        record(key, task, old, start, now);
    }
}

/// The open gap becomes one that ends with a wait for outstanding work.
#[inline(always)]
pub fn becomes_sync(using: *mut Use) {
    becomes(using, gap::ENQUEUE, gap::SYNC);
}

/// The open gap was taken for one that ends with a wait, and is none.
#[inline(always)]
pub fn becomes_enqueue(using: *mut Use) {
    becomes(using, gap::SYNC, gap::ENQUEUE);
}

#[inline(always)]
fn becomes(using: *mut Use, from: u64, to: u64) {
    // SAFETY: a value of the map.
    let open = unsafe { &raw mut (*using).open };
    for _ in 0..4 {
        let old = atomic::read(open);
        if old == 0 || old & 3 != from {
            return;
        }
        if atomic::replace(open, old, old ^ from ^ to) {
            return;
        }
    }
}

/// The kind of the open gap; `ENQUEUE` if there is none.
#[inline(always)]
pub fn open_kind(using: *const Use) -> u64 {
    // SAFETY: a value of the map.
    let open = atomic::read(unsafe { &raw const (*using).open });
    if open == 0 { gap::ENQUEUE } else { open & 3 }
}

/// Adds a gap, or the part of it since the last snapshot, that was packed in `old` and ends `now`; with [`gap::CUT`] in
/// `old`, one that goes on.
/// `task` says what the thread did up to now, its last interval ended. It must be a value of a map: kernels before 6.8
/// lose track of constants that a caller leaves on its stack, and drop branches that are alive.
///
/// A function of its own, for the size of the programs.
#[inline(never)]
pub fn record(key: &UseKey, task: &Task, old: u64, began: u64, now: u64) {
    let since = (old & !gap::CUT) >> gap::SHIFT;
    let length = now.saturating_sub(since);
    // Another thread may have written `began` already.
    let whole = if began <= since { now.saturating_sub(began) } else { length };
    let at = GapKey {
        tgid: key.tgid,
        slot: key.slot as u8,
        kind: (old & 3) as u8,
        log2: log2(whole),
        reserved: 0,
    };
    let sum = match GAPS.get_ptr_mut(&at) {
        Some(sum) => sum,
        None => {
            let _ = GAPS.insert(&at, &NO_GAPS, 1);
            let Some(sum) = GAPS.get_ptr_mut(&at) else {
                dropped(drop::GAPS);
                return;
            };
            sum
        }
    };
    // SAFETY: a value of the map, here and below.
    unsafe {
        if old & gap::COUNTED == 0 {
            atomic::add(&raw mut (*sum).count, 1);
        }
        atomic::add(&raw mut (*sum).total, length);
        if old & gap::CUT == 0 {
            atomic::add(&raw mut (*sum).ended, 1);
            atomic::add(&raw mut (*sum).lasted, whole);
        }
    }
    let mut left = length;
    if task.ended >= length {
        // It did one thing all the while.
        let at = opaque(task.ended_doing);
        if at < doing::COUNT {
            // SAFETY: within the array.
            atomic::add(unsafe { (&raw mut (*sum).doings).cast::<u64>().add(at) }, left);
            left = 0;
        }
    } else {
        let span = now.saturating_sub(task.mark);
        // Its own account begins before the gap: a share of it, in 2⁻²⁰.
        const LONGEST: u64 = 1 << 43;
        let share = if span <= length {
            1 << 20
        } else if length < LONGEST {
            (length << 20) / span
        } else {
            0
        };
        for class in 0..doing::COUNT {
            let mut spent = task.sums[class].saturating_sub(task.at_mark[class]);
            if spent == 0 {
                continue;
            }
            if share != 1 << 20 {
                spent = if spent < LONGEST { (spent * share) >> 20 } else { 0 };
            }
            if spent > left {
                spent = left;
            }
            left -= spent;
            atomic::add(unsafe { &raw mut (*sum).doings[class] }, spent);
        }
    }
    if left != 0 {
        atomic::add(unsafe { &raw mut (*sum).doings[doing::UNKNOWN as usize] }, left);
    }
}

/// The thread's account begins anew.
#[inline(always)]
pub fn mark(using: *mut Use, task: &mut Task, tid: u32, now: u64) {
    task.mark = now;
    task.at_mark = task.sums;
    task.owed = 0;
    task.timed_out = 0;
    mark_use(using, task, tid);
}

/// The same for one device, if the thread was the last that called it.
#[inline(always)]
pub fn mark_use(using: *mut Use, task: &Task, tid: u32) {
    // SAFETY: a value of the map. Another thread that calls at this moment takes `tid`, and with it the account.
    unsafe {
        if (*using).tid == tid {
            (*using).mark = task.mark;
            (*using).at_mark = task.at_mark;
        }
    }
}

/// ⌊log₂⌋; 0 of 0.
#[inline(always)]
pub fn log2(value: u64) -> u8 {
    let (mut value, mut log) = (value, 0);
    if value >> 32 != 0 {
        value >>= 32;
        log += 32;
    }
    if value >> 16 != 0 {
        value >>= 16;
        log += 16;
    }
    if value >> 8 != 0 {
        value >>= 8;
        log += 8;
    }
    if value >> 4 != 0 {
        value >>= 4;
        log += 4;
    }
    if value >> 2 != 0 {
        value >>= 2;
        log += 2;
    }
    log + u8::from(value >> 1 != 0)
}
