//! The recent demand for a key.

use std::time::Duration;

use crate::time::Timestamp;

/// The units that calls asked for during the last span of some length, whether they were admitted
/// or not.
///
/// Not those that were admitted: a node that is refused would ask for less and less, and others
/// would get its share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offered {
    /// The beginning of the current span.
    since: Timestamp,
    current: u64,
    before: u64,
}

impl Offered {
    /// Counts units. The span is in nanoseconds, here and below.
    #[inline]
    pub(super) fn add(&mut self, now: Timestamp, units: u64, span: u64) {
        self.advance(now, span);
        self.current = self.current.saturating_add(units);
    }

    /// Returns the units of the last span. Those of the span before the current one count in part.
    pub(super) fn during(&mut self, now: Timestamp, span: u64) -> u64 {
        self.advance(now, span);
        let rest = span.saturating_sub(now.nanos_since(self.since));
        let before = u128::from(self.before) * u128::from(rest) / u128::from(span.max(1));
        self.current.saturating_add(before as u64)
    }

    /// Returns at least what [`during`](Self::during) returns, without a division.
    #[inline]
    pub(super) fn at_most(&self) -> u64 {
        self.current.saturating_add(self.before)
    }

    /// Returns the last instant of which something is counted.
    pub(super) fn ends_at(&self, span: u64) -> Timestamp {
        let spans = Duration::from_nanos(span.saturating_mul(2));
        self.since.saturating_add(spans)
    }

    #[inline]
    fn advance(&mut self, now: Timestamp, span: u64) {
        let elapsed = now.nanos_since(self.since);
        if elapsed < span {
            return;
        }
        if elapsed < span.saturating_mul(2) {
            self.since = self.since.saturating_add(Duration::from_nanos(span));
            self.before = self.current;
        } else {
            self.since = now;
            self.before = 0;
        }
        self.current = 0;
    }
}
