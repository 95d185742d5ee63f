//! How a process ends.

use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Its status, if it ends within a fifth of a second.
pub(super) fn wait_briefly(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..20 {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// How it ended, as what follows its name in a sentence.
pub(super) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with status {code}"),
        (None, None) => "ended".into(),
    }
}
