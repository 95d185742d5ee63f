//! When to ask: every so often, sooner if something happened, later while it fails.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The least time from one answer to the next question, whatever happens.
pub(super) const SPACING: Duration = Duration::from_secs(1);
/// How many times as long as usual it waits at most while the kubelet fails.
const LONGEST_WAIT: u32 = 6;
/// How many times sooner it asks a kubelet that fails if something happens: it may be well again.
const HASTE: u32 = 4;
/// But not sooner than so, unless it is due anyway.
const RESPITE: Duration = Duration::from_secs(5);

/// A file as it is now: another stamp, another file or another content. Inode numbers alone are soon used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: (u64, u64),
    modified: (i64, i64),
}

impl Stamp {
    /// The stamp of the file that `path` leads to.
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        let file = std::fs::metadata(path)?;
        Ok(Self { inode: (file.dev(), file.ino()), modified: (file.mtime(), file.mtime_nsec()) })
    }
}

/// When to ask.
#[derive(Debug)]
pub(super) struct Schedule {
    refresh: Duration,
    socket: Option<Stamp>,
    /// When the last answer came, or failed to.
    asked: Option<Instant>,
    failures: u32,
    early: bool,
}

impl Schedule {
    pub(super) fn new(refresh: Duration) -> Self {
        Self { refresh, socket: None, asked: None, failures: 0, early: false }
    }

    /// Something happened that the kubelet knows of.
    pub(super) fn hasten(&mut self) {
        self.early = true;
    }

    /// Notes the socket as it is now, and whether a kubelet has just made it. Then the failures were another's.
    pub(super) fn sees(&mut self, socket: Option<Stamp>) -> bool {
        let new = socket.is_some() && socket != self.socket;
        self.socket = socket;
        if new {
            self.failures = 0;
            self.early = true;
        }
        new
    }

    /// Whether to ask now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let Some(asked) = self.asked else { return true };
        let waited = now.saturating_duration_since(asked);
        let wait = match self.failures {
            0 if self.early => SPACING,
            0 => self.refresh,
            failures => {
                let patient =
                    self.refresh.saturating_mul(2_u32.saturating_pow(failures - 1).min(LONGEST_WAIT));
                if self.early { (patient / HASTE).max(RESPITE).min(patient) } else { patient }
            }
        };
        waited >= wait.max(SPACING)
    }

    /// Notes that an answer came at `at`, or failed to.
    pub(super) fn asked(&mut self, at: Instant, answered: bool) {
        self.asked = Some(at);
        self.early = false;
        self.failures = if answered { 0 } else { self.failures.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH: Duration = Duration::from_secs(10);

    /// Looks five times a second for `seconds`; how often it asked.
    fn watch(
        schedule: &mut Schedule,
        start: Instant,
        seconds: u32,
        answered: bool,
        before: impl Fn(&mut Schedule),
    ) -> u32 {
        let mut asked = 0;
        for look in 0..seconds * 5 {
            let now = start + Duration::from_millis(200) * look;
            before(schedule);
            if schedule.is_due(now) {
                schedule.asked(now, answered);
                asked += 1;
            }
        }
        asked
    }

    #[test]
    fn it_asks_once_a_refresh_and_more_seldom_while_it_fails() {
        let start = Instant::now();
        assert_eq!(watch(&mut Schedule::new(REFRESH), start, 100, true, |_| {}), 10);
        let mut failing = Schedule::new(REFRESH);
        // After 0, 10, 30, 70 seconds, and then once a minute.
        assert_eq!(watch(&mut failing, start, 240, false, |_| {}), 6);
    }

    #[test]
    fn hastened_it_asks_a_kubelet_that_fails_sooner_but_not_without_end() {
        let start = Instant::now();
        let mut once = Schedule::new(REFRESH);
        once.asked(start, false);
        once.hasten();
        assert!(!once.is_due(start + RESPITE / 2));
        assert!(once.is_due(start + RESPITE));
        // After 0, 5, 10, 20 seconds, and then every 15.
        assert_eq!(watch(&mut Schedule::new(REFRESH), start, 240, false, Schedule::hasten), 18);
        // Never later than if nothing had happened.
        let mut quick = Schedule::new(2 * SPACING);
        quick.asked(start, false);
        quick.hasten();
        assert!(quick.is_due(start + 2 * SPACING));
    }

    #[test]
    fn hastened_it_asks_at_most_once_a_second() {
        let start = Instant::now();
        assert_eq!(watch(&mut Schedule::new(REFRESH), start, 20, true, Schedule::hasten), 20);
        let mut once = Schedule::new(REFRESH);
        once.asked(start, true);
        once.hasten();
        assert!(!once.is_due(start + SPACING / 2));
        assert!(once.is_due(start + SPACING));
    }

    #[test]
    fn a_socket_made_anew_ends_the_wait_of_failures() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let start = Instant::now();
        let mut schedule = Schedule::new(REFRESH);
        std::fs::write(&path, "").unwrap();
        let first = Stamp::of(&path).unwrap();
        assert!(schedule.sees(Some(first)));
        assert!(!schedule.sees(Some(first)));
        for _ in 0..9 {
            schedule.asked(start, false);
        }
        assert!(!schedule.is_due(start + 2 * SPACING));
        assert!(!schedule.sees(None));
        assert!(!schedule.is_due(start + 2 * SPACING));
        std::fs::File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        assert!(schedule.sees(Some(Stamp::of(&path).unwrap())));
        assert!(schedule.is_due(start + SPACING));
    }
}
