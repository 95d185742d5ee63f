//! What cannot be seen, and what would help.

use std::path::Path;

use warpmeter_core::fact::{Health, HealthState};

use super::devices::FILES;
use super::proc::View;

/// What a round could not see.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Why it saw nothing at all.
    pub all: Option<String>,
    /// Whose processes the root shows; none before the first round.
    pub view: Option<View>,
    /// Processes that exist but cannot be looked at.
    pub processes: usize,
    /// Processes of workloads whose open files cannot be looked at.
    pub files: usize,
    /// Processes of workloads with more open files than are looked at.
    pub cut: usize,
    /// Processes that the driver names but the root does not show.
    pub absent: usize,
}

impl Missing {
    /// The state of the source, whose root is `proc`. Its reason names counts as powers of two, so that it changes
    /// only when something does.
    pub(super) fn health(&self, proc: &Path) -> Health {
        if let Some(reason) = &self.all {
            return Health { state: HealthState::Down, reason: reason.clone() };
        }
        let proc = proc.display();
        let mut reasons = Vec::new();
        match self.view {
            None | Some(View::Host) => {}
            Some(View::Namespace) => reasons.push(format!(
                "{proc} shows only the processes of a PID namespace below the host's: run with hostPID, or mount the \
                 host's /proc and set `[host] proc`"
            )),
            Some(View::Own) => reasons.push(format!(
                "{proc} hides other users' processes (hidepid): run as root, or in the group that its mount option \
                 gid names"
            )),
        }
        if let Some(count) = at_least(self.processes) {
            reasons.push(format!("{count} cannot be looked at: run as root, or mount /proc without hidepid"));
        }
        if let Some(count) = at_least(self.files) {
            reasons.push(format!(
                "open files of {count} cannot be read, so it is not known which GPUs they have open: run as root or \
                 with CAP_SYS_PTRACE"
            ));
        }
        if let Some(count) = at_least(self.cut) {
            reasons.push(format!(
                "{count} have more than {FILES} open files, of which the rest is not looked at"
            ));
        }
        if let Some(count) = at_least(self.absent) {
            reasons.push(format!(
                "{count} that the driver names are not in {proc}: run in the host's PID namespace (hostPID)"
            ));
        }
        let state = if reasons.is_empty() { HealthState::Up } else { HealthState::Degraded };
        Health { state, reason: reasons.join("; ") }
    }
}

/// `count` processes, in words that seldom change; nothing for none.
fn at_least(count: usize) -> Option<String> {
    let power = count.checked_ilog2()?;
    Some(if count == 1 { "1 process".to_owned() } else { format!("{} or more processes", 1_u64 << power) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_misses_nothing_is_up_and_gives_no_reason() {
        let health = Missing { view: Some(View::Host), ..Missing::default() }.health(Path::new("/proc"));
        assert_eq!((health.state, health.reason.as_str()), (HealthState::Up, ""));
    }

    #[test]
    fn every_part_that_is_missing_is_named_with_its_remedy() {
        let missing =
            Missing { all: None, view: Some(View::Namespace), processes: 1, files: 37, cut: 2, absent: 3 };
        let health = missing.health(Path::new("/host/proc"));
        assert_eq!(health.state, HealthState::Degraded);
        for words in
            ["/host/proc", "hostPID", "1 process cannot", "32 or more processes", "CAP_SYS_PTRACE", "4096"]
        {
            assert!(health.reason.contains(words), "{words:?} in {}", health.reason);
        }
    }

    #[test]
    fn a_root_that_cannot_be_read_is_down_whatever_else_is_missing() {
        let missing = Missing { all: Some("cannot list /nowhere".into()), files: 1, ..Missing::default() };
        assert_eq!(missing.health(Path::new("/nowhere")).state, HealthState::Down);
    }
}
