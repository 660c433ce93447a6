//! Logs failed look-ups, once a minute.

use std::{
    error::Error,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::settings::Settings;
use crate::time::Timestamp;

#[derive(Default)]
pub(super) struct FailureLog(Mutex<LogState>);

#[derive(Default)]
struct LogState {
    /// The earliest time of the next line.
    due: Option<Timestamp>,
    /// Number of failures since the last line.
    unlogged: u64,
}

impl FailureLog {
    /// Logs a failure, unless another one was logged within the last minute.
    pub(super) fn write(
        &self,
        error: &(dyn Error + 'static),
        token: &str,
        failures: u64,
        settings: &Settings,
    ) {
        let now = settings.clock.now();
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.due.is_some_and(|due| now < due) {
            log.unlogged += 1;
            return;
        }
        log.due = Some(now.saturating_add(Duration::from_secs(60)));
        let unlogged = std::mem::take(&mut log.unlogged);
        // A subscriber may be slow.
        drop(log);
        let consequence = match settings.fails_open {
            true => "pass without a subject, as `fail_open` asks",
            false => "are refused with 503",
        };
        tracing::error!(
            cause = cause(error, token),
            failures,
            unlogged,
            "a token could not be looked up; such requests {consequence} (logged once a minute; `failures` counts all)"
        );
    }
}

/// Returns the text of an error and of its sources, without the token.
fn cause(error: &(dyn Error + 'static), token: &str) -> String {
    /// Limit in characters.
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
    // Empty if the cause cannot contain it.
    if !token.is_empty() {
        cause = cause.replace(token, "<token>");
    }
    cause.chars().take(MAX_CAUSE).collect()
}
