//! What probes on the CUDA driver library would have seen of a program: its gaps, by kind and length.

use std::collections::BTreeMap;

use warpmeter_core::probe::{Doing, Gap, GapKind};

/// What a program's last call left behind, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has not called yet.
    Fresh,
    /// Nothing is outstanding.
    Drained(u64),
    /// Work is.
    Enqueued(u64),
}

/// The gaps of one program on one device.
#[derive(Debug)]
pub struct Gaps {
    state: State,
    in_sync: bool,
    /// Up to where the gap that goes on has been reported.
    reported: u64,
    begun: bool,
    sums: BTreeMap<(GapKind, u8), (u64, u64)>,
    /// Launches since the last snapshot, and ever.
    pub launches: u64,
    /// All of them.
    pub enqueued: u64,
    /// When the last call was.
    pub last_call: Option<u64>,
}

impl Default for Gaps {
    fn default() -> Self {
        Self {
            state: State::Fresh,
            in_sync: false,
            reported: 0,
            begun: false,
            sums: BTreeMap::new(),
            launches: 0,
            enqueued: 0,
            last_call: None,
        }
    }
}

impl Gaps {
    /// A launch.
    pub fn launch(&mut self, now: u64) {
        self.pass(now);
        self.enter(State::Enqueued(now), now);
        self.launches += 1;
        self.enqueued += 1;
        self.last_call = Some(now);
    }

    /// A synchronising call begins.
    pub fn sync(&mut self) {
        self.in_sync = true;
    }

    /// It returns, and nothing is outstanding.
    pub fn drained(&mut self, now: u64) {
        self.pass(now);
        self.in_sync = false;
        self.enter(State::Drained(now), now);
        self.last_call = Some(now);
    }

    fn enter(&mut self, state: State, now: u64) {
        self.state = state;
        self.reported = now;
        self.begun = false;
    }

    /// Adds what of the present gap is not reported yet.
    fn pass(&mut self, now: u64) {
        let (kind, since) = match self.state {
            State::Fresh => return,
            State::Drained(since) => (GapKind::Drained, since),
            State::Enqueued(since) if self.in_sync => (GapKind::Sync, since),
            State::Enqueued(since) => (GapKind::Enqueue, since),
        };
        let log2 = u8::try_from((now - since).max(1).ilog2()).unwrap();
        let (count, total) = self.sums.entry((kind, log2)).or_default();
        *count += u64::from(!self.begun);
        *total += now - self.reported;
        self.begun = true;
        self.reported = now;
    }

    /// What was seen since the last snapshot, up to `now`.
    pub fn snapshot(&mut self, now: u64) -> (u64, Vec<Gap>) {
        self.pass(now);
        let gaps = std::mem::take(&mut self.sums).into_iter().map(|((kind, log2), (count, total))| {
            let doing = if kind == GapKind::Drained { Doing::DiskRead } else { Doing::Unknown };
            let mut doings = [0; Doing::COUNT];
            doings[doing as usize] = total;
            Gap { kind, log2, count, total, ended: count, lasted: total, doings }
        });
        (std::mem::take(&mut self.launches), gaps.filter(|gap| gap.total > 0).collect())
    }
}
