//! Logs that a circuit has opened or closed, at a bounded rate.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::circuit::{CallOutcome, Change};
use crate::time::Timestamp;

/// Interval between two openings that are logged. A closing is logged if its opening was.
const INTERVAL: Duration = Duration::from_secs(60);

/// The last lines of one circuit.
#[derive(Debug, Default)]
pub(super) struct CircuitLog(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    /// The earliest time of the next opening that is logged.
    due: Timestamp,
    /// The last line is an opening.
    is_open: bool,
}

impl Lines {
    /// Returns `true` if a change is logged.
    fn record(&mut self, change: Change, outcome: CallOutcome) -> bool {
        match (change, outcome) {
            (Change::Opened, CallOutcome::Failed(now)) if now >= self.due => {
                self.due = now.saturating_add(INTERVAL);
                self.is_open = true;
                true
            }
            (Change::Closed, _) => std::mem::take(&mut self.is_open),
            _ => false,
        }
    }
}

impl CircuitLog {
    #[inline]
    pub(super) fn log(&self, change: Change, outcome: CallOutcome, address: Option<&str>) {
        if !matches!(change, Change::None) {
            self.log_change(change, outcome, address);
        }
    }

    #[cold]
    fn log_change(&self, change: Change, outcome: CallOutcome, address: Option<&str>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_logged = lines.record(change, outcome);
        // A subscriber may be slow.
        drop(lines);
        if !is_logged {
            return;
        }
        if change == Change::Closed {
            tracing::warn!(
                address,
                "the circuit breaker of the rate limit store is closed: the store answers again"
            );
        } else {
            tracing::error!(
                address,
                "the circuit breaker of the rate limit store is open after several failures in a row: calls fail at once until a probe is \
                 answered (logged once a minute for each shard)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_are_logged_once_a_minute_and_closings_with_them() {
        let mut lines = Lines::default();
        let failed = |second: u64| {
            CallOutcome::Failed(Timestamp::from_nanos((100 + second) * 1_000_000_000))
        };
        for (change, outcome, is_logged) in [
            (Change::Closed, CallOutcome::Answered, false),
            (Change::Opened, failed(0), true),
            (Change::Reopened, failed(1), false),
            (Change::Closed, CallOutcome::Answered, true),
            (Change::Opened, failed(59), false),
            (Change::Closed, CallOutcome::Answered, false),
            (Change::Opened, failed(60), true),
            // A clock that steps back brings no line sooner.
            (Change::Opened, failed(0), false),
            (Change::Closed, CallOutcome::Answered, true),
            (Change::Closed, CallOutcome::Answered, false),
        ] {
            assert_eq!(
                lines.record(change, outcome),
                is_logged,
                "{change:?} {outcome:?}"
            );
        }
    }
}
