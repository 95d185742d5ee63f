//! How well the kubelet can be asked: what is lost, since when, and what mends it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use tonic::Code;
use warpmeter_core::fact::{Health, HealthState};

use super::client::AskError;

/// How many refreshes after its last answer a kubelet counts as down: a minute by default. A kubelet that restarts, or
/// is busy with images, is back sooner; on a busy node most of what is known has changed when it takes longer.
const FRESH: u32 = 6;

/// An instant on both clocks: one to count with, one to show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// To count with.
    pub mono: Instant,
    /// To show.
    pub wall: SystemTime,
}

impl Now {
    /// This instant.
    pub(super) fn read() -> Self {
        Self { mono: Instant::now(), wall: SystemTime::now() }
    }
}

/// How the last question went, and what the answers lack.
#[derive(Debug, Default)]
pub(super) struct Condition {
    /// Why there is no answer, and since when.
    failing: Option<(Now, String)>,
    /// When the last answer came.
    answered: Option<Now>,
    /// What is missing in what there is, each with its remedy.
    pub missing: Vec<String>,
}

impl Condition {
    /// An answer came.
    pub(super) fn answered(&mut self, now: Now) {
        self.answered = Some(now);
        self.failing = None;
    }

    /// None came, for a reason that may have changed.
    pub(super) fn fails(&mut self, now: Now, reason: String) {
        let since = self.failing.take().map_or(now, |(since, _)| since);
        self.failing = Some((since, reason));
    }

    /// The state at `now` of a source that asks every `refresh`.
    pub(super) fn health(&self, now: Instant, refresh: Duration) -> Health {
        let (state, first) = match (&self.failing, self.answered) {
            (None, None) => (HealthState::Down, Some("the kubelet has not been asked yet".to_owned())),
            (None, Some(_)) if self.missing.is_empty() => (HealthState::Up, None),
            (None, Some(_)) => (HealthState::Degraded, None),
            (Some((since, reason)), answered) => {
                let mut text = format!("since {} the kubelet gives no answer: {reason}", shown(since.wall));
                let age = answered.map(|answered| now.saturating_duration_since(answered.mono));
                // Instants and no ages: a reason that changes while nothing else does is told again and again.
                match answered {
                    Some(answered) => {
                        let stays = format!(
                            "; the pods and grants of {} stay, later ones are missing",
                            shown(answered.wall)
                        );
                        text.push_str(&stays);
                    }
                    None => text.push_str("; no pod has a name, and no device counts as granted"),
                }
                let fresh = age.is_some_and(|age| age < refresh * FRESH);
                (if fresh { HealthState::Degraded } else { HealthState::Down }, Some(text))
            }
        };
        let reasons: Vec<&str> =
            first.iter().map(String::as_str).chain(self.missing.iter().map(String::as_str)).collect();
        Health { state, reason: reasons.join("; ") }
    }
}

/// Why the socket cannot be looked at, and what to do.
pub(super) fn no_socket(socket: &Path, error: &std::io::Error) -> String {
    let mut reason = format!("{}: {error}", socket.display());
    let remedy = if error.kind() == std::io::ErrorKind::PermissionDenied {
        " (run as root)".to_owned()
    } else {
        format!(
            " (see whether the kubelet runs; mount its directory {} by hostPath, not the socket, which is made anew)",
            directory(socket)
        )
    };
    reason.push_str(&remedy);
    reason
}

/// Why the kubelet does not answer, and what to do.
pub(super) fn no_answer(socket: &Path, error: &AskError) -> String {
    let mut reason = format!("{}: {error}", socket.display());
    let directory = directory(socket);
    let remedy = match error {
        AskError::Prepare(_) => " (see the limits of open files and memory of this process)".to_owned(),
        AskError::Connect(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            " (run as root, and allow the socket in the SELinux or AppArmor profile)".to_owned()
        }
        // A Unix socket refuses so while its queue is full, and only if somebody listens.
        AskError::Connect(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            " (the kubelet's queue of connections is full: see its log and its load, and which other clients ask)"
                .to_owned()
        }
        AskError::Connect(_) => format!(
            " (see whether the kubelet runs; if it does, this is the socket of an earlier one: mount the directory \
             {directory}, not the socket)"
        ),
        AskError::Deadline(_) => " (see the kubelet's log and its load)".to_owned(),
        AskError::TooLarge | AskError::TooMany => {
            " (see which device plugin lists so many devices)".to_owned()
        }
        AskError::Refused { code: Code::Unimplemented, .. } => {
            " (PodResources v1 needs a kubelet of Kubernetes 1.20 or later)".to_owned()
        }
        AskError::Refused { code: Code::ResourceExhausted, .. } => {
            " (other clients of the socket ask too often)".to_owned()
        }
        AskError::Refused { .. } => " (see the kubelet's log)".to_owned(),
        AskError::Broken(_) | AskError::Malformed(_) => {
            " (see whether it is the kubelet that listens there)".to_owned()
        }
    };
    reason.push_str(&remedy);
    reason
}

fn directory(socket: &Path) -> String {
    socket.parent().unwrap_or(socket).display().to_string()
}

fn shown(time: SystemTime) -> String {
    let mut text = String::new();
    // Unlike `to_string`, this survives a clock that is set beyond what the format can show.
    match write!(text, "{}", humantime::format_rfc3339_seconds(time.max(SystemTime::UNIX_EPOCH))) {
        Ok(()) => text,
        Err(_) => "an unknown time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Now {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let after = Duration::from_secs(seconds);
        let wall = SystemTime::UNIX_EPOCH + after;
        Now { mono: *START.get_or_init(Instant::now) + after, wall }
    }

    #[test]
    fn a_kubelet_that_fails_is_first_degraded_and_then_down_until_it_answers() {
        let mut condition = Condition::default();
        assert_eq!(condition.health(at(0).mono, REFRESH).state, HealthState::Down);
        condition.answered(at(10));
        assert_eq!(
            condition.health(at(10).mono, REFRESH),
            Health { state: HealthState::Up, reason: String::new() }
        );
        condition.fails(at(20), "it hangs".into());
        let soon = condition.health(at(21).mono, REFRESH);
        assert_eq!(soon.state, HealthState::Degraded);
        assert_eq!(
            soon.reason,
            "since 1970-01-01T00:00:20Z the kubelet gives no answer: it hangs; the pods and grants of \
             1970-01-01T00:00:10Z stay, later ones are missing"
        );
        assert_eq!(condition.health(at(69).mono, REFRESH), soon, "its reason does not change with time");
        condition.fails(at(40), "it refuses".into());
        let late = condition.health(at(140).mono, REFRESH);
        assert_eq!(late.state, HealthState::Down);
        assert!(late.reason.starts_with("since 1970-01-01T00:00:20Z"), "{}", late.reason);
        assert!(late.reason.contains("it refuses"), "{}", late.reason);
        condition.answered(at(150));
        assert_eq!(condition.health(at(150).mono, REFRESH).state, HealthState::Up);
    }

    #[test]
    fn a_kubelet_that_never_answered_is_down_and_what_is_missing_degrades() {
        let mut condition = Condition::default();
        condition.fails(at(1), "x".into());
        let health = condition.health(at(2).mono, REFRESH);
        assert_eq!(health.state, HealthState::Down);
        assert!(health.reason.contains("no device counts as granted"));
        condition.answered(at(3));
        condition.missing = vec!["a".into(), "b".into()];
        let health = condition.health(at(3).mono, REFRESH);
        assert_eq!((health.state, health.reason.as_str()), (HealthState::Degraded, "a; b"));
    }

    #[test]
    fn every_failure_names_a_remedy() {
        let socket = Path::new("/run/pod-resources/kubelet.sock");
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let reason = no_answer(socket, &AskError::Connect(refused));
        assert!(reason.contains("mount the directory /run/pod-resources, not the socket"), "{reason}");
        let full = std::io::Error::from(std::io::ErrorKind::WouldBlock);
        let reason = no_answer(socket, &AskError::Connect(full));
        assert!(reason.contains("queue") && !reason.contains("mount"), "{reason}");
        let old = AskError::Refused { code: Code::Unimplemented, message: "unknown service".into() };
        assert!(no_answer(socket, &old).contains("1.20"));
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert!(no_socket(socket, &missing).contains("hostPath"));
    }
}
