//! Windows: one GPU's time, cut on the boundaries of its counter samples.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::fact::{ProcessSample, ProcessUse, Reading};
use crate::identity::{HostPid, MigId};
use crate::inventory::Gpu;
use crate::time::{Interval, MonoNs};

/// After so many windows without a reading, the time is given up as lost.
const PATIENCE: u64 = 4;

/// A stretch of one GPU's time.
#[derive(Debug, Clone)]
pub struct Window {
    /// The stretch. The windows of a GPU touch.
    pub during: Interval,
    /// The GPU as it was then.
    pub gpu: Arc<Gpu>,
    /// Its counters; none if they were lost.
    pub reading: Option<Reading>,
    /// Processes that had a context when the window began, by device.
    pub before: BTreeMap<Option<MigId>, BTreeSet<HostPid>>,
    /// When its observation was complete.
    pub complete: MonoNs,
}

/// The windows of one GPU that are not closed yet.
#[derive(Debug, Clone)]
pub struct Timeline {
    first_seen: MonoNs,
    cursor: Option<MonoNs>,
    queue: VecDeque<Window>,
    last_processes: BTreeMap<Option<MigId>, BTreeSet<HostPid>>,
    samples: Vec<ProcessSample>,
    samples_until: MonoNs,
}

impl Timeline {
    /// A GPU that is known since `at`.
    pub fn new(at: MonoNs) -> Self {
        Self {
            first_seen: at,
            cursor: None,
            queue: VecDeque::new(),
            last_processes: BTreeMap::new(),
            samples: Vec::new(),
            samples_until: MonoNs(0),
        }
    }

    /// Queues a reading that was complete at `at`. The time since the previous one, if there is any, is lost;
    /// what an earlier window has already taken is not counted twice. False if all of it has been.
    pub fn push(&mut self, reading: Reading, at: MonoNs, gpu: &Arc<Gpu>) -> bool {
        // Nothing is known of the time before the first reading, and nothing was missed.
        let cursor = self.cursor.unwrap_or(reading.during.start());
        if let Some(gap) = Interval::new(cursor, reading.during.start()) {
            self.queue.push_back(Window {
                during: gap,
                gpu: Arc::clone(gpu),
                reading: None,
                before: self.last_processes.clone(),
                complete: at,
            });
        }
        let Some(during) = Interval::new(cursor.max(reading.during.start()), reading.during.end()) else {
            return false;
        };
        let listed = |part: &crate::fact::Part| {
            let pids = part.processes.iter().flatten().map(|holder| holder.pid).collect();
            (part.mig.clone(), pids)
        };
        let now = reading.parts.iter().map(listed).collect();
        let before = std::mem::replace(&mut self.last_processes, now);
        self.cursor = Some(during.end());
        self.queue.push_back(Window {
            during,
            gpu: Arc::clone(gpu),
            reading: Some(reading),
            before,
            complete: at,
        });
        true
    }

    /// Gives up time for which no reading has come: all but the last two windows' worth before `watermark`.
    pub fn give_up(&mut self, watermark: MonoNs, window: u64, gpu: &Arc<Gpu>) {
        let from = self.cursor.unwrap_or(self.first_seen);
        if watermark.since(from) < window.saturating_mul(PATIENCE) {
            return;
        }
        if let Some(during) = Interval::new(from, watermark.minus(window.saturating_mul(2))) {
            self.cursor = Some(during.end());
            let before = std::mem::take(&mut self.last_processes);
            self.queue.push_back(Window {
                during,
                gpu: Arc::clone(gpu),
                reading: None,
                before,
                complete: watermark,
            });
        }
    }

    /// The oldest window that is not closed.
    pub fn front(&self) -> Option<&Window> {
        self.queue.front()
    }

    /// Takes the oldest window.
    pub fn pop(&mut self) -> Option<Window> {
        self.queue.pop_front()
    }

    /// When the oldest time that is not closed yet begins.
    pub fn open_since(&self) -> Option<MonoNs> {
        self.queue.front().map(|window| window.during.start()).or(self.cursor)
    }

    /// Keeps per-process samples until their windows close.
    pub fn sampled(&mut self, used: ProcessUse) {
        self.samples_until = self.samples_until.max(used.until);
        self.samples.extend(used.samples);
    }

    /// Whether per-process samples reach to `end`.
    pub fn sampled_until(&self, end: MonoNs) -> bool {
        self.samples_until >= end
    }

    /// Per-process samples of `during`.
    pub fn samples(&self, during: Interval) -> impl Iterator<Item = (&ProcessSample, Interval)> {
        self.samples.iter().filter_map(move |sample| Some((sample, sample.during.overlap(during)?)))
    }

    /// Forgets per-process samples that no open window overlaps.
    pub fn forget(&mut self) {
        if let Some(since) = self.open_since() {
            self.samples.retain(|sample| sample.during.end() > since);
        }
    }
}
