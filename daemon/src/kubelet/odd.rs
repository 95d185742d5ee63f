//! Says that a kubelet lists what cannot be understood, once and not with every new instance of it.

use std::time::{Duration, Instant};

/// How long everything must have been understood for that to be over.
const QUIET: Duration = Duration::from_mins(10);

/// Whether there is something that cannot be understood.
#[derive(Debug, Default)]
pub(super) struct Odd {
    /// When it was seen last, if it is not over.
    last: Option<Instant>,
}

impl Odd {
    /// Notes an answer of `now`, and logs if that begins or ends something. How much there is, metrics count.
    pub(super) fn seen(&mut self, now: Instant, odd: bool, example: Option<&str>) {
        match self.change(now, odd) {
            Some(true) => tracing::warn!(
                example,
                "the kubelet lists what cannot be understood; more of it is counted by \
                 warpmeter_source_values_discarded_total and not logged"
            ),
            Some(false) => tracing::info!("all that the kubelet lists is understood again"),
            None => {}
        }
    }

    /// Whether it begins (true) or is over (false).
    fn change(&mut self, now: Instant, odd: bool) -> Option<bool> {
        match self.last {
            None if odd => {
                self.last = Some(now);
                Some(true)
            }
            Some(_) if odd => {
                self.last = Some(now);
                None
            }
            Some(last) if now.saturating_duration_since(last) >= QUIET => {
                self.last = None;
                Some(false)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_once_and_is_over_once_however_often_it_comes_and_goes() {
        let start = Instant::now();
        let mut odd = Odd::default();
        let mut changes = Vec::new();
        for second in 0..3000 {
            // Every other second for a while.
            let seen = second < 2000 && second % 2 == 0;
            if let Some(begins) = odd.change(start + Duration::from_secs(second), seen) {
                changes.push((second, begins));
            }
        }
        assert_eq!(changes, [(0, true), (2598, false)]);
    }
}
