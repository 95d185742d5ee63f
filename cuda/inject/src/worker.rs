//! The library's own thread: asks for records when they are wanted, sums them, and hands the sums over once a second.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use warpmeter_inject_page::{Reason, State, WORDS};

use crate::entry::{Everything, failed};
use crate::plan::Plan;
use crate::process::{calling, without_signals};
use crate::shared::Shared;
use crate::sums::{Sums, Told};
use crate::sys::{self, Off};

/// Nanoseconds between two hand-overs.
const PERIOD: u64 = 1_000_000_000;

static THREAD: OnceLock<Thread> = OnceLock::new();

/// Wakes the thread, if it has begun: a buffer is full, or something has failed. Does not wait for it.
pub(crate) fn wake() {
    if let Some(thread) = THREAD.get() {
        thread.unpark();
    }
}

/// A clock's time in nanoseconds.
pub(crate) fn clock(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs())
}

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct Worker {
    all: &'static Everything,
    page: &'static Shared,
    plan: Plan,
    begun: Instant,
    /// Since when records are asked for, if they are.
    since: Option<u64>,
    /// For how long they were before that.
    sampled: u64,
    dropped: u64,
    sums: Sums,
    words: Vec<u64>,
}

/// Why the thread ends.
enum End {
    /// The process does.
    Process,
    /// Nothing more can be had.
    Off(Off),
}

impl Worker {
    /// One that began at `begun`, when records were asked for if `enabled`.
    pub(crate) fn new(
        all: &'static Everything,
        page: &'static Shared,
        plan: Plan,
        begun: Instant,
        enabled: bool,
    ) -> Self {
        Self {
            all,
            page,
            plan,
            begun,
            since: enabled.then_some(0),
            sampled: 0,
            dropped: 0,
            sums: Sums::default(),
            words: vec![0; WORDS],
        }
    }

    /// Starts the thread.
    pub(crate) fn spawn(self) -> Result<(), Off> {
        let thread = std::thread::Builder::new().name("warpmeter".to_owned());
        let started = without_signals(|| thread.spawn(move || self.work()));
        let started = started.map_err(|_refused| (Reason::Thread, 0))?;
        THREAD.get_or_init(|| started.thread().clone());
        Ok(())
    }

    fn work(mut self) {
        let end = catch_unwind(AssertUnwindSafe(|| self.run())).unwrap_or(End::Off((Reason::Failed, 0)));
        if let End::Off((reason, detail)) = end {
            calling(|| self.all.cupti.give_back());
            self.page.off(reason, detail);
        }
    }

    fn run(&mut self) -> End {
        // So that it is seen at once what the library does.
        self.publish();
        let mut next = PERIOD;
        loop {
            let Some(()) = self.drain() else { return End::Process };
            if failed() {
                return End::Off((Reason::Failed, 0));
            }
            let now = self.elapsed();
            let (wanted, until) = self.plan.at(now);
            if wanted != self.since.is_some() {
                match self.switch(wanted, now) {
                    Some(Ok(())) => {}
                    Some(Err(off)) => return End::Off(off),
                    None => return End::Process,
                }
            }
            if now >= next {
                next = now - now % PERIOD + PERIOD;
                let Some(()) = self.hand_over() else { return End::Process };
            }
            std::thread::park_timeout(Duration::from_nanos(until.min(next).saturating_sub(self.elapsed())));
        }
    }

    /// Begins or ceases to ask for records.
    fn switch(&mut self, wanted: bool, now: u64) -> Option<Result<(), Off>> {
        if wanted {
            let enabled = calling(|| self.all.cupti.enable())?;
            self.since = Some(now);
            return Some(enabled);
        }
        calling(|| self.all.cupti.disable())?;
        self.sampled += now - self.since.take().unwrap_or(now);
        Some(Ok(()))
    }

    /// Hands over all that is finished by now.
    fn hand_over(&mut self) -> Option<()> {
        calling(|| self.all.cupti.flush())?;
        self.drain()?;
        self.dropped = self.dropped.saturating_add(calling(|| self.all.cupti.dropped())?);
        for ordinal in self.sums.nameless().collect::<Vec<_>>() {
            if let Some(name) = calling(|| sys::name(ordinal))? {
                self.sums.name(ordinal, name);
            }
        }
        self.publish();
        Some(())
    }

    /// Sums the records of all buffers that are full; none if the process ends.
    fn drain(&mut self) -> Option<()> {
        let Self { all, sums, .. } = self;
        while let Some(full) = all.pool.take() {
            if !calling(|| all.cupti.records(full.memory, full.valid, |record| sums.add(&record)))? {
                sums.spoilt();
            }
        }
        Some(())
    }

    fn publish(&mut self) {
        let elapsed = self.elapsed();
        let told = Told {
            pid: std::process::id(),
            state: State::Sampling,
            reason: Reason::None,
            detail: 0,
            elapsed,
            sampled: self.sampled + self.since.map_or(0, |since| elapsed - since),
            dropped: self.dropped,
            cpu: clock(ClockId::ThreadCPUTime),
            written: clock(ClockId::Monotonic),
        };
        self.sums.write(&told, &mut self.words);
        self.page.publish(&self.words);
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
