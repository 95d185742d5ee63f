//! Samples of threads, where probes cannot be had: what `/proc` shows of the threads of processes that use a GPU, and
//! of all others of their workloads.
//!
//! A sample shows what each thread does at one instant: that it runs, or in which system call it sleeps, and for which
//! kind of file. Nothing shows what a process asks of its GPU, so causes are apportioned, and only those are named
//! that the device cannot have worked through (`warpmeter_core::stall`). Nothing of a process is touched or stopped.

mod crowd;
mod file;
mod member;
mod socket;
mod wait;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use warpmeter_core::fact::{Fact, Health, HealthState, Sample, Source};
use warpmeter_core::time::{Interval, MonoNs, SECOND};
use warpmeter_ebpf::Order;

use crate::clock;
use crate::host::Lookup;
use crowd::Crowd;

/// Nanoseconds from one sample to the next, at least and at most: unequal, so that they do not keep step with the
/// work. 16 a second on average.
const PAUSE: (u64, u64) = (SECOND / 32, SECOND * 3 / 32);
/// Samples take no more of a core than one part in so many: longer pauses follow dearer ones.
const PART: u64 = 200;

/// What is sampled, and how often told.
#[derive(Debug)]
pub(crate) struct Options {
    /// The root of the host's process file system.
    pub proc: PathBuf,
    /// Nanoseconds between snapshots, which are taken on multiples of it.
    pub period: u64,
    /// Why probes do not do this better, if they were wanted.
    pub instead: Option<String>,
}

/// Samples until `report` breaks or nobody gives orders any more.
pub(crate) fn run(
    options: &Options,
    lookup: Lookup,
    orders: &Receiver<Order>,
    report: &mut dyn FnMut(Sample) -> ControlFlow<()>,
) {
    let mut crowd = Crowd::new(options.proc.clone(), lookup);
    let period = options.period.max(SECOND / 100);
    let mut told: Option<Health> = None;
    let mut began: Option<MonoNs> = None;
    let MonoNs(mut random) = clock::now();
    let (mut next, mut sample) = (0, u64::MAX);
    loop {
        let MonoNs(now) = clock::now();
        let due = next.min(sample);
        if now < due {
            match orders.recv_timeout(Duration::from_nanos(due - now)) {
                Ok(order) => crowd.obey(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            continue;
        }
        if now < next {
            let before = clock::spent();
            crowd.sample();
            let spent = clock::spent().saturating_sub(before).saturating_mul(PART);
            let MonoNs(after) = clock::now();
            sample = after.saturating_add(pause(&mut random).max(spent));
            continue;
        }
        next = (now / period + 1) * period;
        let mut facts = Vec::new();
        if let Some(during) = began.and_then(|began| Interval::new(began, MonoNs(now))) {
            facts.push(Fact::Probes(Box::new(crowd.account(during))));
        }
        began = Some(MonoNs(now));
        crowd.gather(now);
        let MonoNs(after) = clock::now();
        sample = after.saturating_add(pause(&mut random) / 2);
        let health = health(options, &crowd);
        if told.as_ref() != Some(&health) {
            told = Some(health.clone());
            facts.push(Fact::Health(health));
        }
        facts.push(Fact::Poll { took: after.saturating_sub(now), answered: true });
        for fact in facts {
            if report(Sample { at: MonoNs(after), source: Source::Probes, fact }).is_break() {
                return;
            }
        }
    }
}

/// The next pause. Not random to anybody who means harm, but to the work that is sampled (xorshift).
fn pause(random: &mut u64) -> u64 {
    let mut next = (*random).max(1);
    next ^= next << 13;
    next ^= next >> 7;
    next ^= next << 17;
    *random = next;
    let (least, most) = PAUSE;
    least + next % (most - least)
}

fn health(options: &Options, crowd: &Crowd) -> Health {
    let mut reasons = Vec::new();
    reasons.extend(options.instead.clone());
    if crowd.eyes.denied {
        reasons.push(
            "the kernel does not show what threads wait for: add the capability SYS_PTRACE, or run as root"
                .into(),
        );
    }
    let (some, all) = crowd.turn;
    if some < all {
        reasons.push("workloads have so many threads that they are sampled in turn".into());
    }
    let state = if reasons.is_empty() { HealthState::Up } else { HealthState::Degraded };
    reasons.insert(0, "causes are apportioned, from samples of threads 16 times a second".into());
    Health { state, reason: reasons.join("; ") }
}
