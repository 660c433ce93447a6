//! The answer of a rule to one request.

use std::{fmt, num::NonZeroU64, time::Duration};

use super::{
    charge::{Maker, Position},
    cost::Cost,
    numbers::{Deferred, Numbers, Source},
};
use crate::{quota::Quota, time::Timestamp};

/// What a [`Decision`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Go on at once.
    Allow,
    /// Go on after waiting; the cost is spent already.
    Delay(Duration),
    /// Do not go on. Nothing was spent.
    Refuse,
    /// The store could not tell; `admitted` is what its user chose for that case.
    Undecided {
        /// Whether the request goes on all the same.
        admitted: bool,
    },
}

/// The answer to "may this key spend this cost now?".
///
/// A plain `Copy` value: refusing is not failing. All durations count from
/// [`at`](Self::at), so that nobody needs to read a clock again.
///
/// | | |
/// |---|---|
/// | [`verdict`](Self::verdict) | whether the request goes on |
/// | [`limit`](Self::limit) | the greatest cost that could ever pass |
/// | [`remaining`](Self::remaining) | the greatest cost that would pass right after |
/// | [`retry_after`](Self::retry_after) | the least wait after which the same call passes if nobody else comes |
/// | [`reset_after`](Self::reset_after) | the least wait after which the key cannot be told from an unused one |
/// | [`more_after`](Self::more_after) | the least wait after which `remaining` has grown |
#[derive(Clone, Copy)]
pub struct Decision {
    pub(super) kind: Kind,
    /// In the low byte the worst class, then those under each rule, then who made it: what a [`Charge`] keeps. In the
    /// highest bit, whether others share the decision.
    pub(super) class: u64,
    pub(super) at: Timestamp,
    pub(super) cost: u64,
    pub(super) limit: Option<Limit>,
    /// How long a delay is; else when to come again.
    pub(super) wait: Option<Duration>,
    pub(super) source: Source,
}

/// A [`Verdict`] whose delay lies elsewhere: a decision is copied often, and this makes it shorter.
// A whole word, as the class is one: halves that were just written are slow to copy as a word.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Kind {
    Allow,
    Delay,
    Refuse,
    /// Undecided, and the request goes on.
    LetThrough,
    /// Undecided, and the request does not go on.
    TurnedAway,
    /// The same, for the store cannot decide such a call.
    Unsupported,
}

/// The width of a class.
pub(super) const CLASS_BITS: u32 = u8::BITS;

impl Decision {
    pub(super) const MAKER_SHIFT: u32 = CLASS_BITS + u32::BITS;
    pub(super) const MAKER: u64 = (1 << Maker::BITS) - 1;
    pub(super) const SHARED: u64 = 1 << (u64::BITS - 1);

    /// The class under each rule.
    #[inline]
    pub(super) const fn classes(&self) -> u32 {
        (self.class >> CLASS_BITS) as u32
    }

    /// What decisions of one request are told apart by: all but who may settle them.
    fn parts(&self) -> impl PartialEq + use<> {
        let class = (self.classes(), self.class());
        let when = (self.at, self.cost, self.wait);
        (self.kind, class, when, self.limit, self.source)
    }
}

impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Decision {}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) capacity: NonZeroU64,
    pub(super) quota: Quota,
}

impl Decision {
    /// A decision at `at` about spending `cost` units (0 for a look), without numbers yet.
    ///
    /// Algorithms fill it with the `with_` methods.
    #[inline]
    pub const fn new(verdict: Verdict, at: Timestamp, cost: u64) -> Self {
        let (kind, wait) = match verdict {
            Verdict::Allow => (Kind::Allow, Some(Duration::ZERO)),
            Verdict::Delay(wait) => (Kind::Delay, Some(wait)),
            Verdict::Refuse => (Kind::Refuse, None),
            Verdict::Undecided { admitted: true } => (Kind::LetThrough, None),
            Verdict::Undecided { admitted: false } => (Kind::TurnedAway, None),
        };
        Self {
            kind,
            class: 0,
            at,
            cost,
            limit: None,
            wait,
            source: Source::NONE,
        }
    }

    /// What a store that could not tell answers: no limit, no remaining.
    ///
    /// `retry_after` is when it will try again, where it knows.
    pub const fn undecided(admitted: bool, at: Timestamp, retry_after: Option<Duration>) -> Self {
        let mut decision = Self::new(Verdict::Undecided { admitted }, at, 0);
        decision.wait = retry_after;
        decision
    }

    /// What is answered where a store [does not support](crate::store::Error::unsupported) the call: undecided, and refused as
    /// the server's fault.
    pub const fn unsupported(at: Timestamp) -> Self {
        let mut decision = Self::undecided(false, at, None);
        decision.kind = Kind::Unsupported;
        decision
    }

    /// With the capacity, in units, and the sustained rate of the rule.
    #[inline]
    #[must_use]
    pub const fn with_limit(mut self, capacity: NonZeroU64, quota: Quota) -> Self {
        self.limit = Some(Limit { capacity, quota });
        self
    }

    /// With the greatest cost, in units, that would pass right after.
    #[inline]
    #[must_use]
    pub fn with_remaining(self, units: u64) -> Self {
        let numbers = self.numbers();
        self.with_numbers(Numbers {
            remaining: units,
            ..numbers
        })
    }

    /// With the least wait after which the same call passes; `None` is never.
    ///
    /// For what is refused; an admission has no wait, and a delay its own.
    #[inline]
    #[must_use]
    pub const fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        if !self.is_spent() {
            self.wait = wait;
        }
        self
    }

    /// With the least wait after which the key cannot be told from an unused one.
    #[inline]
    #[must_use]
    pub fn with_reset_after(self, wait: Duration) -> Self {
        let numbers = self.numbers();
        self.with_numbers(Numbers {
            reset_after: wait,
            ..numbers
        })
    }

    /// With the least wait after which `remaining` has grown.
    #[inline]
    #[must_use]
    pub fn with_more_after(self, wait: Duration) -> Self {
        let numbers = self.numbers();
        self.with_numbers(Numbers {
            more_after: wait,
            ..numbers
        })
    }

    /// Sets all [`Numbers`] at once.
    #[inline]
    #[must_use]
    pub(crate) fn with_numbers(mut self, numbers: Numbers) -> Self {
        self.source = Source::Given(numbers, None);
        self
    }

    /// Sets numbers that are computed when they are read.
    #[inline]
    #[must_use]
    pub(crate) fn with_deferred(mut self, deferred: Deferred) -> Self {
        self.source = Source::Deferred(deferred);
        self
    }

    /// Sets the position of the charge on the time axis of its bucket; after all other numbers.
    #[inline]
    #[must_use]
    pub(crate) fn with_position(mut self, position: Position) -> Self {
        self.source = Source::Given(self.numbers(), Some(position));
        self
    }

    /// With the class the call was admitted in.
    #[inline]
    #[must_use]
    pub const fn with_class(mut self, class: u8) -> Self {
        self.class = (class as u64) << CLASS_BITS | class as u64;
        self
    }

    /// Allow, delay, refuse, or undecided.
    #[inline]
    pub const fn verdict(&self) -> Verdict {
        match (self.kind, self.wait) {
            (Kind::Allow, _) | (Kind::Delay, None) => Verdict::Allow,
            (Kind::Delay, Some(wait)) => Verdict::Delay(wait),
            (Kind::Refuse, _) => Verdict::Refuse,
            (Kind::LetThrough, _) => Verdict::Undecided { admitted: true },
            (Kind::TurnedAway | Kind::Unsupported, _) => Verdict::Undecided { admitted: false },
        }
    }

    /// Whether the request goes on, at once or after a delay.
    #[inline]
    pub const fn is_admitted(&self) -> bool {
        matches!(self.kind, Kind::Allow | Kind::Delay | Kind::LetThrough)
    }

    /// Whether the rule let it pass, and so was charged.
    #[inline]
    pub(super) const fn is_spent(&self) -> bool {
        matches!(self.kind, Kind::Allow | Kind::Delay)
    }

    /// How long the request has to wait before it goes on.
    #[inline]
    pub(crate) const fn delay(&self) -> Option<Duration> {
        match self.kind {
            Kind::Delay => self.wait,
            _ => None,
        }
    }

    /// Whether the store could not tell.
    #[inline]
    pub const fn is_undecided(&self) -> bool {
        matches!(
            self.kind,
            Kind::LetThrough | Kind::TurnedAway | Kind::Unsupported
        )
    }

    /// Whether the store could not tell because it [does not support](crate::store::Error::unsupported) the call.
    #[inline]
    pub const fn is_unsupported(&self) -> bool {
        matches!(self.kind, Kind::Unsupported)
    }

    /// The capacity in units: the greatest cost that could ever pass. `None` when undecided.
    #[inline]
    pub const fn limit(&self) -> Option<u64> {
        match self.limit {
            Some(limit) => Some(limit.capacity.get()),
            None => None,
        }
    }

    /// The rate that the rule sustains. `None` when undecided.
    #[inline]
    pub const fn quota(&self) -> Option<Quota> {
        match self.limit {
            Some(limit) => Some(limit.quota),
            None => None,
        }
    }

    /// The greatest cost in units that would pass at the same instant, right after.
    /// `None` when undecided.
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        self.limit.map(|_| self.source.remaining())
    }

    /// The least wait after which the same call would pass if nothing else happened.
    ///
    /// Zero for what was admitted; `None` when it could never pass. For a look it is
    /// the wait for one unit. A wait above 2⁶⁴ s is cut to [`Duration::MAX`].
    #[doc(alias("cooldown", "wait"))]
    #[inline]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            Kind::Delay => Some(Duration::ZERO),
            _ => self.wait,
        }
    }

    /// The least wait after which the key cannot be told from an unused one.
    ///
    /// Cut to [`Duration::MAX`] above it.
    #[inline]
    pub fn reset_after(&self) -> Duration {
        self.source.reset_after()
    }

    /// The least wait after which [`remaining`](Self::remaining) has grown; zero when it cannot.
    pub fn more_after(&self) -> Duration {
        self.source.numbers().more_after
    }

    /// Returns the remaining units and both waits, computed together.
    #[inline]
    pub(crate) fn numbers(&self) -> Numbers {
        self.source.numbers()
    }

    /// The class of the admission: 0 is the best, higher ones were demoted.
    pub const fn class(&self) -> u8 {
        self.class as u8
    }

    /// The instant of the decision on the store's timeline.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether `cost` would pass after this look: by the definition of `remaining`.
    pub(crate) fn would_admit(&self, cost: Cost) -> bool {
        self.remaining().is_some_and(|units| units >= cost.get())
    }

    /// The same decision by a clock that tells microseconds: every wait is rounded up to whole ones.
    ///
    /// But for a delay: by that a settlement recognises its call.
    #[cfg(feature = "redis")]
    pub(crate) fn in_micros(mut self) -> Self {
        let up = |wait: Duration| {
            let nanos = wait.subsec_nanos().next_multiple_of(1000);
            Duration::from_secs(wait.as_secs()).saturating_add(Duration::from_nanos(nanos.into()))
        };
        let (numbers, position) = (self.numbers(), self.source.position(self.at));
        if self.kind != Kind::Delay {
            self.wait = self.wait.map(up);
        }
        let numbers = Numbers {
            remaining: numbers.remaining,
            reset_after: up(numbers.reset_after),
            more_after: up(numbers.more_after),
        };
        self.source = Source::Given(numbers, position);
        self
    }

    /// The refusal that stands for a delay where nothing can wait: its retry time is the delay.
    pub(crate) fn without_delay(mut self) -> Self {
        if self.kind == Kind::Delay {
            self.kind = Kind::Refuse;
        }
        self
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("verdict", &self.verdict())
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .field("class", &self.class())
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
