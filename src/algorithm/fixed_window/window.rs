//! Which window it is.

use super::{Begin, FixedWindow, FixedWindowState};
use crate::clock::Timestamp;

/// The inverse of the odd part of a period, above zero, among the numbers of 64 bits.
///
/// By Newton's iteration, which doubles the bits that are right, as in Warren, Hacker's Delight, 10-16.
pub(super) const fn inverse(period: u64) -> u64 {
    let odd = period >> period.trailing_zeros();
    // Right in three bits.
    let (mut inverse, mut bits) = (odd, 3);
    while bits < u64::BITS {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
}

impl FixedWindowState {
    /// Whether the window has not ended at this instant; it may not have begun either.
    #[inline]
    pub(super) fn goes_on(&self, at: Timestamp) -> bool {
        at < self.end || self.end == Timestamp::MAX
    }
}

impl FixedWindow {
    /// The empty window that holds an instant, where one begins at `anchor`.
    #[inline]
    fn holding(&self, at: Timestamp, anchor: u64) -> FixedWindowState {
        let (at, period) = (at.as_nanos(), self.quota.period_nanos());
        let since = match at.checked_sub(anchor) {
            Some(since) => since % period,
            // Only an offset lies behind: the window at the epoch has begun before it.
            None => period - (anchor - at),
        };
        FixedWindowState {
            start: Timestamp::from_nanos(at.saturating_sub(since)),
            end: Timestamp::from_nanos(at.saturating_add(period - since)),
            count: 0,
        }
    }

    /// The empty window that holds an instant; the first call's, where windows begin with that.
    #[inline]
    pub(super) fn fresh(&self, at: Timestamp) -> FixedWindowState {
        self.holding(at, self.anchor(at))
    }

    /// An instant at which a window of this rule begins, where `start` began the one that is known.
    #[inline]
    fn anchor(&self, start: Timestamp) -> u64 {
        match self.begin {
            Begin::Offset(offset) => offset,
            Begin::Spread => 0,
            Begin::FirstCall => start.as_nanos(),
        }
    }

    /// Whether this is the window of a call at `now`, which counts in it.
    #[inline]
    pub(super) fn is_in(&self, known: &FixedWindowState, now: Timestamp) -> bool {
        known.count > 0 && known.goes_on(now) && self.owns(known)
    }

    /// The window of a call that is not [in](Self::is_in) the one that is known, and whether that one's count is carried over
    /// into it, from another rule's.
    pub(super) fn next(
        &self,
        known: Option<&FixedWindowState>,
        now: Timestamp,
    ) -> (FixedWindowState, bool) {
        let Some(known) = known else {
            return (self.fresh(now), false);
        };
        // Time has been there: no earlier window is counted again.
        let at = now.max(known.start);
        if known.count == 0 || !known.goes_on(now) {
            return (self.fresh(at), false);
        }
        let window = self.holding(at, self.anchor(known.start));
        let carried = FixedWindowState {
            start: window.start.max(known.start),
            count: known.count,
            ..window
        };
        (carried, true)
    }

    /// Whether it is one of this rule's windows, from where it counts: the window of its start ends where it does.
    #[inline]
    fn owns(&self, window: &FixedWindowState) -> bool {
        let (end, period) = (window.end, self.quota.period_nanos());
        let length = end.nanos_since(window.start);
        if length > period {
            return false;
        }
        if end == Timestamp::MAX {
            return self.holding(window.start, self.anchor(window.start)).end == end;
        }
        match self.begin {
            Begin::FirstCall => length == period,
            Begin::Offset(offset) => {
                let since = end.as_nanos().checked_sub(offset);
                since.is_some_and(|since| self.divides(since))
            }
            Begin::Spread => self.divides(end.as_nanos()),
        }
    }

    /// Whether so many nanoseconds are a number of whole windows.
    ///
    /// A division that leaves no rest is a product, many times as fast; and one whose product comes out left none.
    #[inline]
    fn divides(&self, nanos: u64) -> bool {
        let period = self.quota.period_nanos();
        let windows = (nanos >> period.trailing_zeros()).wrapping_mul(self.inverse);
        windows.checked_mul(period) == Some(nanos)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::quota::Quota;

    proptest! {
        #[test]
        fn whole_windows_are_told_from_others(
            period in prop_oneof![1..100_u64, (0..63_u32).prop_map(|bits| 1 << bits), 1..=i64::MAX as u64],
            windows: u64,
            more in prop_oneof![Just(0), 1..3_u64, any::<u64>()],
        ) {
            let rule = FixedWindow::new(Quota::new(1, Duration::from_nanos(period)));
            let whole = windows % (u64::MAX / period) * period;
            for nanos in [whole, whole.wrapping_add(more), whole.wrapping_sub(more)] {
                prop_assert_eq!(rule.divides(nanos), nanos % period == 0, "{} of {}", nanos, period);
            }
        }
    }
}
