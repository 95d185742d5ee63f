//! Loops that wait for several files and have something to do now and then, whether any file is ready or not: a wait that its
//! timeout ended goes on with the next one for the same files, and who ends that says what all of it was for. A loop that
//! nothing but timeouts ever wakes is a timer.
//!
//! A snapshot tells what was cut so far, before that is known. It is told as not known if the last wait that timeouts cut
//! turned out to be for a thread or for the network: this one may be, too.

use warpmeter_ebpf_common::{Task, doing, opaque};

use crate::tasks;

/// A wait for the files of `set` (0 for those that cannot be told by one number) is over, of which this is the `class`.
#[inline(always)]
pub fn ended(task: &mut Task, set: u32, class: u32, began: u64, now: u64) {
    let length = now.saturating_sub(began);
    let same = task.timed_out_in == set;
    if class == doing::TIMER {
        if task.timed_out == 0 || !same {
            task.timed_out = 0;
            task.timed_out_since = began;
            task.timed_out_in = set;
        }
        task.timed_out += length;
        tasks::add(task, task.timed_out_as, length);
        return;
    }
    tasks::add(task, class, length);
    let cut = task.timed_out;
    if same && cut != 0 {
        take_back(task, cut);
        tasks::add(task, class, cut);
        task.timed_out_as = if class == doing::REQUEST { doing::TIMER } else { doing::POLL };
    }
}

/// A watched thread ends a wait for the files of `set` that began at `began`: of what timeouts cut before, it says for as
/// much as it was at what it hands over, since `begun`. Before that nobody waited for it, and the loop slept.
#[inline(always)]
pub fn owe(task: &mut Task, set: u32, begun: u64, began: u64) {
    let whole = task.timed_out;
    if whole == 0 || task.timed_out_in != set {
        return;
    }
    let since = if begun > task.timed_out_since { begun } else { task.timed_out_since };
    let cut = part(whole, began.saturating_sub(since), began.saturating_sub(task.timed_out_since));
    take_back(task, whole);
    tasks::add(task, doing::TIMER, whole - cut);
    tasks::add(task, doing::POLL, cut);
    task.timed_out_as = if cut > whole / 2 { doing::POLL } else { doing::TIMER };
    if task.owed == 0 {
        task.owed_since = since;
    }
    task.owed += cut;
}

/// As much of `whole`, which is no more than `span`, as `since` is of that; nothing of more than two hours, for which the
/// arithmetic has no room.
#[inline(always)]
fn part(whole: u64, since: u64, span: u64) -> u64 {
    if span == 0 || span >= 1 << 43 { 0 } else { (whole * ((since << 20) / span)) >> 20 }
}

#[inline(always)]
fn take_back(task: &mut Task, cut: u64) {
    task.timed_out = 0;
    let at = opaque(task.timed_out_as);
    if let Some(sum) = task.sums.get_mut(at) {
        *sum = sum.saturating_sub(cut);
    }
}
