//! The construction of decisions.

use std::{num::NonZeroU64, time::Duration};

use super::{
    charge::Position,
    decision::{CLASS_BITS, Decision},
    limit::RuleLimit,
    numbers::{Deferred, Numbers, NumbersSource},
    verdict::{Verdict, VerdictKind},
};
use crate::{quota::Quota, time::Timestamp};

impl Decision {
    /// Creates a decision at `at` about `cost` units (0 for a look), without numbers.
    ///
    /// Algorithms set the numbers with the `with_` methods.
    #[inline]
    pub const fn new(verdict: Verdict, at: Timestamp, cost: u64) -> Self {
        let (kind, wait) = match verdict {
            Verdict::Allow => (VerdictKind::Allow, Some(Duration::ZERO)),
            Verdict::Delay(wait) => (VerdictKind::Delay, Some(wait)),
            Verdict::Refuse => (VerdictKind::Refuse, None),
            Verdict::Undecided { admitted: true } => (VerdictKind::FailedOpen, None),
            Verdict::Undecided { admitted: false } => (VerdictKind::FailedClosed, None),
            Verdict::DryRun { admitted: true } => (VerdictKind::DryRunAllow, Some(Duration::ZERO)),
            Verdict::DryRun { admitted: false } => (VerdictKind::DryRunRefuse, None),
        };
        Self {
            kind,
            class: 0,
            at,
            cost,
            limit: None,
            wait,
            source: NumbersSource::NONE,
        }
    }

    /// Creates the decision of a store that could not decide. It has no limit and no remaining units.
    ///
    /// `retry_after` is the wait until the store will try again, if known.
    pub const fn undecided(admitted: bool, at: Timestamp, retry_after: Option<Duration>) -> Self {
        let mut decision = Self::new(Verdict::Undecided { admitted }, at, 0);
        decision.wait = retry_after;
        decision
    }

    /// Creates the decision of a store that [does not support](crate::store::Error::unsupported) the call: undecided, and
    /// refused as the server's fault.
    pub const fn unsupported(at: Timestamp) -> Self {
        let mut decision = Self::undecided(false, at, None);
        decision.kind = VerdictKind::Unsupported;
        decision
    }

    /// Sets the capacity in units, and the sustained rate of the rule.
    #[inline]
    #[must_use]
    pub const fn with_limit(mut self, capacity: NonZeroU64, quota: Quota) -> Self {
        self.limit = Some(RuleLimit::new(capacity, quota));
        self
    }

    /// Returns the limit, for [another decision](Self::with_rule_limit).
    #[inline]
    pub(crate) const fn rule_limit(&self) -> Option<RuleLimit> {
        self.limit
    }

    /// Sets the limit of one or several rules, if there is one.
    #[inline]
    #[must_use]
    pub(crate) const fn with_rule_limit(mut self, limit: Option<RuleLimit>) -> Self {
        if limit.is_some() {
            self.limit = limit;
        }
        self
    }

    /// Sets the limit as it is written, for the decision of a stricter rule in the store.
    ///
    /// The refusal of a cost that the stricter rule never admits keeps the capacity of that rule.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub(crate) fn with_limit_as_written(self, written: Option<RuleLimit>) -> Self {
        let own = self.limit.filter(|_| self.is_oversized());
        self.with_rule_limit(written.map(|written| RuleLimit {
            capacity: own.map_or(written.capacity, |own| own.capacity.min(written.capacity)),
            ..written
        }))
    }

    /// Sets the greatest cost in units that would pass right after.
    #[inline]
    #[must_use]
    pub fn with_remaining(self, units: u64) -> Self {
        let numbers = self.numbers();
        self.with_numbers(Numbers {
            remaining: units,
            ..numbers
        })
    }

    /// Sets the least wait after which the same call passes; `None` for never.
    ///
    /// For refusals and undecided answers; ignored for admissions.
    #[inline]
    #[must_use]
    pub const fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        if !self.is_spent() {
            self.wait = wait;
        }
        self
    }

    /// Sets the least wait after which the key is equal to an unused one.
    #[inline]
    #[must_use]
    pub fn with_reset_after(self, wait: Duration) -> Self {
        let numbers = self.numbers();
        self.with_numbers(Numbers {
            reset_after: wait,
            ..numbers
        })
    }

    /// Sets the least wait after which `remaining` has grown.
    #[inline]
    #[must_use]
    pub fn with_more_after(self, wait: Duration) -> Self {
        let numbers = self.numbers();
        self.with_numbers(Numbers {
            more_after: wait,
            ..numbers
        })
    }

    /// Sets all [`Numbers`] at once. The charge keeps its position.
    #[inline]
    #[must_use]
    pub(crate) fn with_numbers(mut self, numbers: Numbers) -> Self {
        self.source = NumbersSource::Stored(numbers, self.source.position(self.at));
        self
    }

    /// Sets numbers that are computed when they are read.
    #[inline]
    #[must_use]
    pub(crate) fn with_deferred(mut self, deferred: Deferred) -> Self {
        self.source = NumbersSource::Deferred(deferred);
        self
    }

    /// Sets the position of the charge on the time axis of its rule.
    #[inline]
    #[must_use]
    pub(crate) fn with_position(mut self, position: Position) -> Self {
        self.source = NumbersSource::Stored(self.numbers(), Some(position));
        self
    }

    /// Sets the class of the admission.
    #[inline]
    #[must_use]
    pub const fn with_class(mut self, class: u8) -> Self {
        self.class = (class as u64) << CLASS_BITS | class as u64;
        self
    }
}
