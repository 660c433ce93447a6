//! Logs the failures of a store, at a bounded rate.

use std::{
    error::Error as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    policy::Policy,
    store::Error,
    time::{Clock, SystemClock, Timestamp},
};

/// Interval between two lines of the same policies and cause.
const INTERVAL: Duration = Duration::from_secs(60);

/// Limit of different lines: bounds the memory and, with [`INTERVAL`], the rate.
const MAX_LINES: usize = 32;

#[derive(Debug)]
pub(super) struct FailureLog {
    address: Option<Box<str>>,
    consequence: &'static str,
    lines: Mutex<Vec<Line>>,
    /// `true` if a failure was logged, and no answer of the store since.
    is_failing: AtomicBool,
}

/// The last log line of one cause and the policies of one call.
#[derive(Debug)]
struct Line {
    policies: String,
    cause: String,
    /// The earliest time of the next line.
    due: Timestamp,
    /// Number of failures since the last line.
    unlogged: u64,
}

impl FailureLog {
    pub(super) fn new(address: Option<&str>, consequence: &'static str) -> Self {
        Self {
            address: address.map(Into::into),
            consequence,
            lines: Mutex::default(),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Logs that the store answered, if the last line says that it failed. So there are no more of these lines than of those.
    #[inline]
    pub(super) fn log_answer(&self, failures: impl FnOnce() -> u64) {
        // Relaxed: a line that comes a call late is as good.
        if self.is_failing.load(Ordering::Relaxed) && self.is_failing.swap(false, Ordering::Relaxed)
        {
            tracing::warn!(
                address = self.address.as_deref(),
                failures = failures(),
                "the rate limit store answers again (`failures` counts all so far)"
            );
        }
    }

    /// Logs a failure, unless a line of the same policies and cause was logged within the last minute.
    #[cold]
    pub(super) fn log_failure<'a>(
        &self,
        error: &Error,
        policies: impl IntoIterator<Item = &'a Policy>,
        failures: u64,
    ) {
        let (policies, cause) = (names(policies), cause(error));
        let now = SystemClock::default().now();
        if let Some(unlogged) = self.due(&policies, &cause, now) {
            self.is_failing.store(true, Ordering::Relaxed);
            tracing::error!(
                policy = policies,
                cause,
                address = self.address.as_deref(),
                failures,
                unlogged,
                "the rate limit store failed; {} (logged once a minute for each policy and cause; `failures` counts all)",
                self.consequence
            );
        }
    }

    /// Logs an unsupported call, once for each policy and cause.
    #[cold]
    pub(super) fn log_unsupported<'a>(
        &self,
        error: &Error,
        policies: impl IntoIterator<Item = &'a Policy>,
    ) {
        let address = self.address.as_deref();
        crate::log::unsupported(&names(policies), cause(error), address);
    }

    /// Returns the number of unlogged failures since the last line, if a line may be logged now; otherwise counts this failure
    /// as unlogged.
    fn due(&self, policies: &str, cause: &str, now: Timestamp) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |line: &Line| line.policies == policies && line.cause == cause;
        let line = match lines.iter().position(known) {
            Some(at) => &mut lines[at],
            None => {
                // Replaces a line that is older than a minute.
                let free = lines.len() >= MAX_LINES;
                let free = free.then(|| lines.iter().position(|line| line.due <= now));
                let new = Line {
                    policies: policies.to_owned(),
                    cause: cause.to_owned(),
                    due: now,
                    unlogged: 0,
                };
                match free {
                    None => {
                        lines.push(new);
                        lines.last_mut()?
                    }
                    Some(free) => {
                        let line = &mut lines[free?];
                        *line = new;
                        line
                    }
                }
            }
        };
        if now < line.due {
            line.unlogged += 1;
            return None;
        }
        line.due = now.saturating_add(INTERVAL);
        Some(std::mem::take(&mut line.unlogged))
    }
}

/// Joins the names of policies by commas.
fn names<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> String {
    let mut names: Vec<&str> = policies.into_iter().map(Policy::name).collect();
    names.dedup();
    names.join(", ")
}

/// Returns the text of an error and of its sources, without repetitions.
fn cause(error: &Error) -> String {
    /// Limit in characters: errors may quote replies of a server, of any length.
    const MAX_CAUSE: usize = 1024;
    let mut cause = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !cause.contains(&text) {
            cause = format!("{cause}: {text}");
        }
        source = error.source();
    }
    if let Some((end, _)) = cause.char_indices().nth(MAX_CAUSE) {
        cause.truncate(end);
    }
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos((100 + seconds) * 1_000_000_000)
    }

    #[test]
    fn a_line_comes_once_a_minute_for_each_policy_and_cause_and_counts_the_others() {
        let log = FailureLog::new(None, "");
        for second in 0..180 {
            for policy in ["a", "b"] {
                for cause in ["refused", "silent"] {
                    // Each twice.
                    let due = [(); 2].map(|()| log.due(policy, cause, at(second)));
                    let expected = match second {
                        0 => Some(0),
                        60 | 120 => Some(119),
                        _ => None,
                    };
                    assert_eq!(due, [expected, None], "{second}");
                }
            }
        }
        // A clock that steps back brings no line sooner.
        assert_eq!(log.due("a", "refused", at(0)), None);
    }

    #[test]
    fn unlimited_causes_fill_neither_memory_nor_the_log() {
        let log = FailureLog::new(None, "");
        let lines = |second| {
            let causes = (0..10_000).map(|number| format!("{second} {number}"));
            let due = causes.filter(|cause| log.due("a", cause, at(second)).is_some());
            due.count()
        };
        assert_eq!([0, 1, 59].map(lines), [MAX_LINES, 0, 0]);
        assert_eq!([60, 61].map(lines), [MAX_LINES, 0]);
        assert_eq!(log.lines.lock().unwrap().len(), MAX_LINES);
    }

    #[test]
    fn a_cause_repeats_nothing() {
        let cause = cause(&Error::unavailable("connection refused"));
        assert_eq!(cause.matches("connection refused").count(), 1, "{cause}");
    }
}
