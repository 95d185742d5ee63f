//! Pods from a file: who they are, and what they hold.
//!
//! ```toml
//! [[device]]                      # only devices that are shared
//! id = "GPU-…"                    # any form that a device plugin writes
//! replicas = 4
//!
//! [[pod]]
//! uid = "0e1f…"
//! namespace = "research"
//! name = "trainer-0"
//! labels = { team = "vision", idle_ok = false }
//! probes = false                  # its processes are not probed
//! containers = [{ name = "main", id = "<64 hex digits, optional>", devices = ["GPU-…::0"] }]
//! ```

mod format;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use warpmeter_core::fact::{Discard, Fact, Health, HealthState, Pods, Source};

use crate::config::Problem;
use crate::refusals::Refusals;

pub use format::parse;

/// Problems of a file that its source's health names.
const SHOWN: usize = 10;

/// How often what has not changed is sent all the same: it may have been lost on its way.
const AGAIN: Duration = Duration::from_mins(1);

/// Reads the file again whenever it changes. A file with problems changes nothing but this source's health.
#[derive(Debug)]
pub struct PodsFile {
    path: PathBuf,
    read: Option<SystemTime>,
    /// What was sent last, and when.
    sent: Option<(Pods, Instant)>,
    health: Health,
    /// Where pods that want no probes are named.
    refusals: Refusals,
}

impl PodsFile {
    /// A source over `path`, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            read: None,
            sent: None,
            health: Health { state: HealthState::Down, reason: "not read yet".into() },
            refusals: Refusals::default(),
        }
    }

    /// The same, which names the pods that want no probes to `refusals`.
    #[must_use]
    pub fn telling(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// Appends what has changed, once a minute all of it, and a [`Fact::Poll`] that says whether the file holds.
    pub fn poll(&mut self, out: &mut Vec<Fact>) {
        self.poll_at(Instant::now(), out);
    }

    fn poll_at(&mut self, now: Instant, out: &mut Vec<Fact>) {
        let began = Instant::now();
        self.look(now, out);
        if let Some((pods, at)) = &mut self.sent
            && now.saturating_duration_since(*at) >= AGAIN
        {
            *at = now;
            out.push(Fact::Pods(pods.clone()));
        }
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        out.push(Fact::Poll { took, answered: self.health.state == HealthState::Up });
    }

    fn look(&mut self, now: Instant, out: &mut Vec<Fact>) {
        let health = match std::fs::metadata(&self.path).and_then(|metadata| metadata.modified()) {
            Ok(modified) if self.read == Some(modified) => return,
            Ok(modified) => {
                self.read = Some(modified);
                match std::fs::read_to_string(&self.path) {
                    Ok(text) => match format::read(&text) {
                        Ok((pods, refusals)) => {
                            self.refusals.set(Source::Pods, refusals);
                            out.push(Fact::Pods(pods.clone()));
                            self.sent = Some((pods, now));
                            Health { state: HealthState::Up, reason: String::new() }
                        }
                        Err(problems) => {
                            let count = problems.len().try_into().unwrap_or(u64::MAX);
                            out.push(Fact::Discarded { reason: Discard::Garbage, count });
                            let reason = format!("the pods named last stay: {}", list(&self.path, &problems));
                            Health { state: HealthState::Degraded, reason }
                        }
                    },
                    Err(error) => {
                        // A file that is made readable has not changed, and is wanted all the same.
                        self.read = None;
                        self.unreadable(&error)
                    }
                }
            }
            Err(error) => {
                self.read = None;
                self.unreadable(&error)
            }
        };
        self.health = health;
    }

    /// How well the last reading went.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    fn unreadable(&self, error: &std::io::Error) -> Health {
        let reason = format!("read {}: {error}; the pods named last stay", self.path.display());
        Health { state: HealthState::Down, reason }
    }
}

/// The first problems, each with its place.
fn list(path: &Path, problems: &[Problem]) -> String {
    let shown = problems.iter().take(SHOWN).map(|problem| format!("{}:{problem}", path.display()));
    let more = problems.len().checked_sub(SHOWN + 1).map(|rest| format!("and {} more", rest + 1));
    shown.chain(more).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use warpmeter_core::fact::Pods;

    use std::collections::BTreeSet;

    use warpmeter_core::identity::PodUid;

    use super::*;

    #[test]
    fn a_broken_change_keeps_the_pods_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pods.toml");
        let mut source = PodsFile::new(&path);
        let start = Instant::now();
        let mut poll_after = |seconds| {
            let mut facts = Vec::new();
            source.poll_at(start + Duration::from_secs(seconds), &mut facts);
            let Some(Fact::Poll { answered, .. }) = facts.pop() else { panic!("no end of a round") };
            (facts, answered, source.health().state)
        };
        assert_eq!(poll_after(0), (Vec::new(), false, HealthState::Down));
        std::fs::write(&path, "").unwrap();
        assert_eq!(poll_after(1), (vec![Fact::Pods(Pods::default())], true, HealthState::Up));
        assert_eq!(poll_after(2), (Vec::new(), true, HealthState::Up));
        let again = (vec![Fact::Pods(Pods::default())], true, HealthState::Up);
        assert_eq!(poll_after(61), again, "it may have been lost");
        assert_eq!(poll_after(62), (Vec::new(), true, HealthState::Up));
        std::fs::write(&path, "nonsense").unwrap();
        let later = SystemTime::now() + Duration::from_secs(5);
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
        let (facts, answered, state) = poll_after(63);
        assert!(matches!(&facts[..], [Fact::Discarded { .. }]));
        assert_eq!((answered, state), (false, HealthState::Degraded));
        assert_eq!(poll_after(64), (Vec::new(), false, HealthState::Degraded), "told once");
        let reason = source.health().reason;
        assert!(reason.contains(&format!("{}:1:", path.display())), "{reason}");
    }

    #[test]
    fn a_file_with_very_many_problems_names_the_first_and_counts_the_rest() {
        let problems: Vec<_> =
            (1..=SHOWN + 3).map(|line| Problem { line, column: 1, message: "x".into() }).collect();
        let text = list(Path::new("/p"), &problems);
        assert!(text.starts_with("/p:1:1: x; /p:2:1: x; "), "{text}");
        assert!(text.ends_with("; and 3 more"), "{text}");
        assert!(!list(Path::new("/p"), &problems[..SHOWN]).contains("more"));
    }

    #[test]
    fn a_pod_of_the_file_may_refuse_probes() {
        let text = "[[pod]]\nuid = \"u1\"\nnamespace = \"n\"\nname = \"a\"\nprobes = false\n\
                    [[pod]]\nuid = \"u2\"\nnamespace = \"n\"\nname = \"b\"\n";
        let (pods, refusals) = format::read(text).unwrap();
        assert_eq!((pods.pods.len(), refusals), (2, BTreeSet::from([PodUid::new("u1")])));
    }
}
