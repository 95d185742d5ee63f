//! What threads did of late: points in time with what had been done by then, the closer the nearer they are.

use warpmeter_ebpf_common::{FINEST, History, LEVELS, POINTS, Point, Task, doing, opaque};

use crate::maps::{HISTORIES, forget};

static NO_HISTORY: History =
    History { points: [Point { at: 0, done: [0; doing::COUNT + 1] }; POINTS * LEVELS], counts: [0; LEVELS] };

/// How much of each thing a thread did, relative to one another; its time in the driver last.
pub type Mix = [u64; doing::COUNT + 1];

/// Units of a [`Point`].
#[inline(always)]
fn units(nanoseconds: u64) -> u32 {
    (nanoseconds >> 10) as u32
}

/// Notes what a thread has done up to now, where an interval of its ends, unless that was done a moment ago.
#[inline(always)]
pub fn note(tid: u32, task: &mut Task, now: u64) {
    if now.saturating_sub(task.noted) >= 1024 << FINEST {
        task.noted = now;
        add(tid, task, now);
    }
}

/// A function of its own, for the size of the programs.
#[inline(never)]
fn add(tid: u32, task: &Task, now: u64) {
    let history = match HISTORIES.get_ptr_mut(&tid) {
        Some(history) => history,
        None => {
            let _ = HISTORIES.insert(&tid, &NO_HISTORY, 1);
            let Some(history) = HISTORIES.get_ptr_mut(&tid) else { return };
            history
        }
    };
    // SAFETY: a value of the map, which one at a time writes: the CPU that the thread leaves, before it says what the thread
    // waits for; then who wakes it, of whom the kernel lets one at it, and who does nothing before that is said; then the
    // CPU that it gets, which it does not get before the waker is done.
    let history = unsafe { &mut *history };
    let at = units(now);
    for level in 0..LEVELS {
        let count = history.counts[level];
        let last = &history.points[level * POINTS + (count.wrapping_sub(1) as usize & (POINTS - 1))];
        if count != 0 && at.wrapping_sub(last.at) < 1 << (FINEST + 2 * level as u32) {
            // Those of the next level are still farther apart.
            return;
        }
        let point = &mut history.points[level * POINTS + (count as usize & (POINTS - 1))];
        point.at = at;
        for class in 0..doing::COUNT {
            point.done[class] = units(task.sums[class]);
        }
        point.done[doing::COUNT] = units(task.in_driver);
        let waited = opaque(task.waited_doing);
        if waited < doing::COUNT {
            point.done[waited] = units(task.sums[waited] + task.waited);
        }
        history.counts[level] = count + 1;
    }
}

/// What a thread that runs did within `length` up to now, into `mix`. Free of branches where it can be: the verifier
/// follows each of them.
#[inline(always)]
pub fn mix(tid: u32, task: &Task, length: u64, now: u64, mix: &mut Mix) {
    for class in 0..doing::COUNT {
        mix[class] = task.sums[class];
    }
    mix[doing::COUNT] = task.in_driver;
    let waited = opaque(task.waited_doing);
    if waited < doing::COUNT {
        mix[waited] += task.waited;
    }
    let runs = if task.call == 0 { doing::CPU as usize } else { doing::COUNT };
    mix[runs] += now.saturating_sub(task.since);
    // All that it did since it is followed is this if that is hardly longer, or if it has not left its CPU: no points are as
    // good, and they reach back half a second only.
    let followed = now.saturating_sub(task.made);
    if followed > length + length / 8
        && let Some(history) = HISTORIES.get_ptr(&tid)
    {
        // SAFETY: a value of the map.
        since(unsafe { &*history }, units(length), units(now), mix);
    }
}

/// Leaves in `mix` what came since `length` before `at`: from the youngest point that is old enough, `older`, of what comes
/// before the next one, `newer`, in proportion. Where nothing is old enough as far back as is known.
#[inline(always)]
fn since(history: &History, length: u32, at: u32, mix: &mut Mix) {
    // The finest level that reaches back far enough; the coarsest if none does.
    let (mut base, mut count) = (0, 0);
    for level in 0..LEVELS {
        base = (level * POINTS) as u64;
        count = history.counts[level];
        let oldest = if count < POINTS as u32 { 0 } else { count as usize & (POINTS - 1) };
        if at.wrapping_sub(history.points[level * POINTS + oldest].at) >= length {
            break;
        }
    }
    let (base, count) = (forget(base), forget(count.into()));
    let (mut older, mut newer) = (NONE, NONE);
    let (mut older_age, mut newer_age) = (0, 0);
    for back in 1..=POINTS as u64 {
        if back > count {
            break;
        }
        let index = (base + (count - back & (POINTS as u64 - 1))) as usize;
        if index >= POINTS * LEVELS {
            break;
        }
        let age = at.wrapping_sub(history.points[index].at);
        if age >= length {
            older_age = age;
            older = index as u64;
            break;
        }
        newer_age = age;
        newer = index as u64;
    }
    // In 2⁻¹⁰.
    let mut part = 0;
    if newer == NONE {
        newer = older;
    } else if older == NONE {
        older = newer;
    } else {
        part = (u64::from(length - newer_age) << 10) / u64::from(older_age - newer_age).max(1);
    }
    let (newer, older) = (forget(newer) as usize, forget(older) as usize);
    if newer >= POINTS * LEVELS || older >= POINTS * LEVELS {
        return;
    }
    for class in 0..=doing::COUNT {
        let mark = history.points[newer].done[class];
        let after = risen(mark, units(mix[class]));
        let between = risen(history.points[older].done[class], mark);
        mix[class] = (u64::from(after) << 10) + u64::from(between) * part;
    }
}

/// How much a sum has risen. It falls a little when a wait turns out to have been one for a CPU in part.
#[inline(always)]
fn risen(from: u32, to: u32) -> u32 {
    let more = to.wrapping_sub(from);
    more & !(more.cast_signed() >> 31).cast_unsigned()
}

/// No point.
const NONE: u64 = u64::MAX;
