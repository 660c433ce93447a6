//! Costs, and the numbers of a decision: stored, or computed when they are read.
//!
//! Most numbers are never read, and each takes a division, so they are computed when they are read.
//! A decision holds a few words and a reference to the functions that turn them into numbers, so it
//! knows nothing of buckets.
//!
//! `more_after` is the wait until `remaining` grows. The `t` of a RateLimit field needs it, and a
//! second look-up could contradict the decision.
//!
//! Keys, decisions and policies consist of whole words. Words that are read right after they were
//! written as bytes wait for memory; that cost more than the arithmetic. For the same reason a
//! single decision is not a list.

use std::{cmp::Ordering, fmt, num::NonZeroU64, time::Duration};

use super::{CLASS_BITS, Decision, Verdict, VerdictKind, charge::Position};
use crate::{quota::Quota, time::Timestamp};

/// The remaining units, and the waits until there are more and until the key is like an unused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) remaining: u64,
    pub(crate) reset_after: Duration,
    pub(crate) more_after: Duration,
}

impl Numbers {
    pub(super) const NONE: Self = Self {
        remaining: 0,
        reset_after: Duration::ZERO,
        more_after: Duration::ZERO,
    };
}

/// Numbers that the algorithm computes when they are read.
///
/// Most decisions are never read, and each number takes a division.
#[derive(Clone, Copy)]
pub(crate) struct Deferred {
    /// The position of the last charge, and the state after it, in a format that `compute` defines.
    pub(crate) state: DeferredState,
    pub(crate) compute: &'static Compute,
}

/// The state from which numbers are computed.
pub(crate) type DeferredState = [u64; 6];

/// The functions of an algorithm that compute [`Deferred`] numbers.
// One for each number: most readers need one or two.
pub(crate) struct Compute {
    pub(crate) remaining: fn(&DeferredState) -> u64,
    pub(crate) reset_after: fn(&DeferredState) -> Duration,
    /// The second argument is the remaining units.
    pub(crate) more_after: fn(&DeferredState, u64) -> Duration,
    /// The position of a charge at an instant.
    pub(crate) position: fn(&DeferredState, Timestamp) -> Option<Position>,
}

/// The numbers of a decision, or the means to compute them.
#[derive(Clone, Copy)]
pub(super) enum NumbersSource {
    Stored(Numbers, Option<Position>),
    /// Those of a key that has its full quota before it is equal to an unused one, in seconds
    /// rounded up.
    // As a duration the wait would make each decision longer.
    FullIn(u32, Numbers, Option<Position>),
    Deferred(Deferred),
}

impl NumbersSource {
    pub(super) const NONE: Self = Self::Stored(Numbers::NONE, None);

    pub(super) fn numbers(&self) -> Numbers {
        match self {
            Self::Stored(numbers, _) | Self::FullIn(_, numbers, _) => *numbers,
            Self::Deferred(Deferred { state, compute }) => {
                let remaining = (compute.remaining)(state);
                Numbers {
                    remaining,
                    reset_after: (compute.reset_after)(state),
                    more_after: (compute.more_after)(state, remaining),
                }
            }
        }
    }

    #[inline]
    pub(super) fn remaining(&self) -> u64 {
        match self {
            Self::Stored(numbers, _) | Self::FullIn(_, numbers, _) => numbers.remaining,
            Self::Deferred(Deferred { state, compute }) => (compute.remaining)(state),
        }
    }

    #[inline]
    pub(super) fn reset_after(&self) -> Duration {
        match self {
            Self::Stored(numbers, _) | Self::FullIn(_, numbers, _) => numbers.reset_after,
            Self::Deferred(Deferred { state, compute }) => (compute.reset_after)(state),
        }
    }

    /// Returns the wait until there are more than the `remaining` units.
    #[inline]
    pub(super) fn more_after(&self, remaining: u64) -> Duration {
        match self {
            Self::Stored(numbers, _) | Self::FullIn(_, numbers, _) => numbers.more_after,
            Self::Deferred(Deferred { state, compute }) => (compute.more_after)(state, remaining),
        }
    }

    /// Returns the wait until the key has its full quota, given the wait until it is equal to an
    /// unused one.
    #[inline]
    pub(super) fn full_after(&self, reset_after: Duration) -> Duration {
        match self {
            Self::FullIn(seconds, ..) => Duration::from_secs((*seconds).into()).min(reset_after),
            _ => reset_after,
        }
    }

    /// Returns other numbers and another position of a key that has its full quota at the same
    /// instant.
    pub(super) fn with(&self, numbers: Numbers, position: Option<Position>) -> Self {
        match self {
            Self::FullIn(seconds, ..) => Self::FullIn(*seconds, numbers, position),
            _ => Self::Stored(numbers, position),
        }
    }

    /// Returns the position of the charge of a decision at an instant.
    #[inline]
    pub(super) fn position(&self, at: Timestamp) -> Option<Position> {
        match self {
            Self::Stored(_, position) | Self::FullIn(_, _, position) => *position,
            Self::Deferred(deferred) => (deferred.compute.position)(&deferred.state, at),
        }
    }
}

impl PartialEq for NumbersSource {
    fn eq(&self, other: &Self) -> bool {
        self.numbers() == other.numbers()
    }
}

impl Eq for NumbersSource {}

impl fmt::Debug for NumbersSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.numbers().fmt(f)
    }
}

/// The greatest cost that a rule admits, and its capacity and rate as clients see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleLimit {
    /// The greatest cost that can ever pass.
    pub(crate) capacity: NonZeroU64,
    /// The capacity of the rule that has the quota.
    pub(crate) announced: NonZeroU64,
    /// The sustained rate; `None` if the units are [calls in flight](Decision::is_in_flight).
    pub(crate) quota: Option<Quota>,
}

impl RuleLimit {
    /// The limit of one rule.
    #[inline]
    pub(crate) const fn new(capacity: NonZeroU64, quota: Quota) -> Self {
        Self {
            capacity,
            announced: capacity,
            quota: Some(quota),
        }
    }

    /// Returns the limit of two rules that are charged together.
    ///
    /// It announces the slower rule, and of equally fast ones that with the smaller capacity. The
    /// choice does not depend on the state, so that a policy has the same header in all responses.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        let rates = match (self.quota, other.quota) {
            (Some(a), Some(b)) => a.compare_rates(b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        let tightest = match rates.then(self.announced.cmp(&other.announced)) {
            Ordering::Less | Ordering::Equal => self,
            Ordering::Greater => other,
        };
        Self {
            capacity: self.capacity.min(other.capacity),
            ..tightest
        }
    }
}

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

    /// Creates the decision of a store that could not decide. It has no limit and no remaining
    /// units.
    ///
    /// `retry_after` is the wait until the store will try again, if known.
    pub const fn undecided(admitted: bool, at: Timestamp, retry_after: Option<Duration>) -> Self {
        let mut decision = Self::new(Verdict::Undecided { admitted }, at, 0);
        decision.wait = retry_after;
        decision
    }

    /// Creates the decision of a store that [does not
    /// support](crate::store::StoreError::unsupported) the call: undecided, and refused as the
    /// server's fault.
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

    /// Sets the capacity in units of a rule that counts [calls in flight](Self::is_in_flight), so
    /// that it has no rate.
    #[inline]
    #[must_use]
    pub(crate) const fn with_limit_in_flight(mut self, capacity: NonZeroU64) -> Self {
        self.limit = Some(RuleLimit {
            capacity,
            announced: capacity,
            quota: None,
        });
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

    /// Sets the wait until the key has its full quota, in whole seconds rounded up, if that is
    /// before it is equal to an unused one.
    #[must_use]
    pub(crate) fn with_full_after(mut self, wait: Duration) -> Self {
        let seconds = wait
            .as_secs()
            .saturating_add(u64::from(wait.subsec_nanos() > 0));
        let numbers = self.numbers();
        if let Ok(seconds) = u32::try_from(seconds)
            && wait < numbers.reset_after
        {
            self.source = NumbersSource::FullIn(seconds, numbers, self.source.position(self.at));
        }
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
        self.source = self.source.with(self.numbers(), Some(position));
        self
    }

    /// Takes the position from the charge, because the store knows nothing of it.
    #[cfg(feature = "tokio")]
    pub(crate) fn without_position(mut self) -> Self {
        let position = self.source.position(self.at);
        let several = position.filter(|position| *position == Position::SEVERAL);
        self.source = self.source.with(self.numbers(), several);
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

/// The units that a request spends: at least 1.
///
/// To look without spending, use `look`; there is no cost of 0. A cost above a rule's capacity is
/// always refused.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, Timestamp, TokenBucket, pace::Pacer};
///
/// // An upload costs a unit for each started kilobyte.
/// let cost = |bytes: u64| Cost::new(bytes.div_ceil(1000)).unwrap_or(Cost::ONE);
/// let pacer = Pacer::new(TokenBucket::per_minute(100));
/// let decision = pacer.spend(Timestamp::default(), cost(39_500)).unwrap();
/// assert_eq!(decision.remaining(), Some(60));
/// ```
#[doc(alias("weight", "tokens", "quantity"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(NonZeroU64);

impl Cost {
    /// One unit: the default.
    pub const ONE: Self = Self(NonZeroU64::MIN);

    /// Creates a cost of `units` units; `None` for 0.
    pub const fn new(units: u64) -> Option<Self> {
        match NonZeroU64::new(units) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// Returns the number of units.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl Default for Cost {
    /// One unit.
    fn default() -> Self {
        Self::ONE
    }
}

impl From<NonZeroU64> for Cost {
    fn from(units: NonZeroU64) -> Self {
        Self(units)
    }
}

impl From<Cost> for NonZeroU64 {
    fn from(cost: Cost) -> Self {
        cost.0
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
