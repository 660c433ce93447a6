//! The log of a store's failures, at a bounded rate.

use std::{
    error::Error as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::Error;
use crate::{
    policy::Policy,
    time::{Clock, SystemClock, Timestamp},
};

/// How long one line stands for all like it.
const INTERVAL: Duration = Duration::from_secs(60);

/// How many lines are told apart: a bound on memory, and with [`INTERVAL`] on the rate.
const MOST: usize = 32;

#[derive(Debug)]
pub(super) struct FailureLog {
    address: Option<Box<str>>,
    consequence: &'static str,
    lines: Mutex<Vec<Line>>,
}

/// What was logged of one cause under the policies of one call.
#[derive(Debug)]
struct Line {
    policies: String,
    cause: String,
    /// When it may be logged again.
    due: Timestamp,
    /// How many like it were not logged since.
    unlogged: u64,
}

impl FailureLog {
    pub(super) fn new(address: Option<&str>, consequence: &'static str) -> Self {
        Self {
            address: address.map(Into::into),
            consequence,
            lines: Mutex::default(),
        }
    }

    /// Logs a failure, unless one like it was logged within the last minute.
    #[cold]
    pub(super) fn tell<'a>(
        &self,
        error: &Error,
        policies: impl IntoIterator<Item = &'a Policy>,
        failures: u64,
    ) {
        let (policies, cause) = (names(policies), cause(error));
        let now = SystemClock::default().now();
        if let Some(unlogged) = self.due(&policies, &cause, now) {
            tracing::error!(
                policy = policies,
                cause,
                address = self.address.as_deref(),
                failures,
                unlogged,
                "a rate limit store failed: {} (logged once a minute for each policy and cause; `failures` counts all)",
                self.consequence
            );
        }
    }

    /// Logs an error of one call alone, once for each policy and cause.
    #[cold]
    pub(super) fn tell_unsupported<'a>(
        &self,
        error: &Error,
        policies: impl IntoIterator<Item = &'a Policy>,
    ) {
        let address = self.address.as_deref();
        crate::log::unsupported(&names(policies), cause(error), address);
    }

    /// How many failures like this one were not logged before it; `None` if it is not to be logged either.
    fn due(&self, policies: &str, cause: &str, now: Timestamp) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |line: &Line| line.policies == policies && line.cause == cause;
        let line = match lines.iter().position(known) {
            Some(at) => &mut lines[at],
            None => {
                // The room of one that nothing like it came after for a minute.
                let free = lines.len() >= MOST;
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

/// The names of the policies of one call.
fn names<'a>(policies: impl IntoIterator<Item = &'a Policy>) -> String {
    let mut names: Vec<&str> = policies.into_iter().map(Policy::name).collect();
    names.dedup();
    names.join(", ")
}

/// All that an error says: of itself, and of its sources where it does not repeat them.
fn cause(error: &Error) -> String {
    /// Errors may hold what a server sent, of any length.
    const LONGEST: usize = 1024;
    let mut cause = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !cause.contains(&text) {
            cause = format!("{cause}: {text}");
        }
        source = error.source();
    }
    if let Some((end, _)) = cause.char_indices().nth(LONGEST) {
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
    fn causes_without_end_neither_fill_memory_nor_the_log() {
        let log = FailureLog::new(None, "");
        let lines = |second| {
            let causes = (0..10_000).map(|number| format!("{second} {number}"));
            let due = causes.filter(|cause| log.due("a", cause, at(second)).is_some());
            due.count()
        };
        assert_eq!([0, 1, 59].map(lines), [MOST, 0, 0]);
        assert_eq!([60, 61].map(lines), [MOST, 0]);
        assert_eq!(log.lines.lock().unwrap().len(), MOST);
    }

    #[test]
    fn a_cause_says_each_thing_once() {
        let cause = cause(&Error::unavailable("connection refused"));
        assert_eq!(cause.matches("connection refused").count(), 1, "{cause}");
    }
}
