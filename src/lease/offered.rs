//! How much a key was asked for lately.

use std::time::Duration;

use crate::time::Timestamp;

/// The units that calls asked for during the last span of some length, whether they were admitted or not.
///
/// Not those that were admitted: a node that is refused would ask for less and less, and others would get its share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offered {
    /// The beginning of the current span.
    since: Timestamp,
    current: u64,
    before: u64,
}

impl Offered {
    pub(super) fn add(&mut self, now: Timestamp, units: u64, span: Duration) {
        self.advance(now, span);
        self.current = self.current.saturating_add(units);
    }

    /// Returns the units of the last span. Those of the span before the current one count in part.
    pub(super) fn during(&mut self, now: Timestamp, span: Duration) -> u64 {
        self.advance(now, span);
        let rest = span.saturating_sub(now.saturating_since(self.since));
        let before = u128::from(self.before) * rest.as_nanos() / span.as_nanos().max(1);
        self.current.saturating_add(before as u64)
    }

    /// Returns at least what [`during`](Self::during) returns, without a division.
    #[inline]
    pub(super) fn at_most(&self) -> u64 {
        self.current.saturating_add(self.before)
    }

    /// Returns the last instant of which something is counted.
    pub(super) fn ends_at(&self, span: Duration) -> Timestamp {
        self.since.saturating_add(span.saturating_mul(2))
    }

    fn advance(&mut self, now: Timestamp, span: Duration) {
        let elapsed = now.saturating_since(self.since);
        if elapsed < span {
            return;
        }
        if elapsed < span.saturating_mul(2) {
            self.since = self.since.saturating_add(span);
            self.before = self.current;
        } else {
            self.since = now;
            self.before = 0;
        }
        self.current = 0;
    }
}
