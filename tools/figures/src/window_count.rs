//! Counts the events of the last window, exactly.

use tollgate::{Cost, Quota, SlidingLog, Timestamp, algorithm::Algorithm};

/// A sliding log that never refuses. Events come in the order of their times.
pub(crate) struct WindowCount {
    log: SlidingLog,
    state: Option<<SlidingLog as Algorithm>::State>,
}

impl WindowCount {
    /// Counts the windows of a limit. They are half open: an event that is a window old no longer
    /// counts.
    ///
    /// # Errors
    ///
    /// When the period of the limit is below a second.
    pub(crate) fn new(limit: Quota) -> Result<Self, String> {
        Ok(Self {
            log: SlidingLog::new(endless(limit)?),
            state: None,
        })
    }

    /// Adds an event. Returns the count with it.
    pub(crate) fn add(&mut self, now: Timestamp) -> u64 {
        let decision = self.log.step(&mut self.state, now, Cost::ONE).decision();
        used(decision.limit(), decision.remaining())
    }

    /// Returns the count.
    pub(crate) fn at(&self, now: Timestamp) -> u64 {
        let look = self.log.look(self.state.as_ref(), now);
        used(look.limit(), look.remaining())
    }
}

/// Returns the quota of a limit's period that is never exhausted.
///
/// # Errors
///
/// When the period of the limit is below a second.
pub(crate) fn endless(limit: Quota) -> Result<Quota, String> {
    Quota::try_new(Quota::MAX_AMOUNT, limit.period()).map_err(|_| {
        format!("\"{limit}\" has a period below 1s: expected a longer one, as in 100/60s")
    })
}

/// Returns the units that a decision has counted.
pub(crate) fn used(limit: Option<u64>, remaining: Option<u64>) -> u64 {
    limit.unwrap_or(0).saturating_sub(remaining.unwrap_or(0))
}
