//! The greatest of the values that were noted lately.

use std::time::Duration;

use crate::time::Timestamp;

/// The greatest of the values that were noted in the current minute and in the one before, however
/// often it is read.
///
/// So a peak is seen by each of several readers that look once in a minute, and does not stay for
/// ever.
#[derive(Debug, Default)]
pub(super) struct RecentMost {
    /// The start of the current minute; each begins with a value.
    since: Timestamp,
    current: u64,
    former: u64,
}

impl RecentMost {
    const MINUTE: Duration = Duration::from_secs(60);

    pub(super) fn note(&mut self, value: u64, now: Timestamp) {
        self.pass(now);
        self.current = self.current.max(value);
    }

    pub(super) fn most(&mut self, now: Timestamp) -> u64 {
        self.pass(now);
        self.current.max(self.former)
    }

    fn pass(&mut self, now: Timestamp) {
        let since = now.saturating_since(self.since);
        if since < Self::MINUTE {
            return;
        }
        let is_next = since < Self::MINUTE * 2;
        self.former = if is_next { self.current } else { 0 };
        (self.current, self.since) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_peak_is_seen_for_a_minute_and_then_forgotten() {
        let mut most = RecentMost::default();
        most.note(3, at(1000));
        most.note(9, at(1001));
        most.note(4, at(1002));
        assert_eq!((most.most(at(1003)), most.most(at(1059))), (9, 9));
        most.note(5, at(1061));
        assert_eq!(most.most(at(1062)), 9, "in the minute before");
        assert_eq!(most.most(at(1122)), 5);
        assert_eq!(most.most(at(1300)), 0);
    }
}
