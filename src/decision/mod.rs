//! Decisions: the answer to one request, its numbers for clients, and its charge.

mod charge;
mod combine;
mod numbers;

use std::{fmt, time::Duration};

use self::{charge::ChargeOrigin, numbers::NumbersSource};
use crate::{quota::Quota, time::Timestamp};

pub(crate) use self::numbers::{Compute, Deferred, DeferredState, Numbers, RuleLimit};
pub use self::{
    charge::{Charge, Position},
    combine::Decisions,
    numbers::Cost,
};

/// The verdict of a [`Decision`](crate::Decision).
///
/// # Examples
///
/// ```
/// use tollgate::Verdict;
///
/// fn log(verdict: Verdict) -> String {
///     match verdict {
///         Verdict::Allow => "allowed".to_owned(),
///         Verdict::Delay(wait) => format!("allowed in {wait:?}"),
///         Verdict::Refuse => "refused".to_owned(),
///         other => format!("{other:?}"),
///     }
/// }
///
/// assert_eq!(log(Verdict::Undecided { admitted: true }), "Undecided { admitted: true }");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The request proceeds at once.
    Allow,
    /// The request proceeds after a wait. Its cost is spent already.
    Delay(Duration),
    /// The request is refused. Nothing was spent.
    Refuse,
    /// The store could not decide.
    Undecided {
        /// Set if the application chose to let such requests proceed.
        admitted: bool,
    },
    /// No effect on the request, because the limit is on a [dry run](crate::Limit::dry_run).
    DryRun {
        /// Set if the limit would have admitted the request, at once or after a delay. Then its
        /// cost is spent.
        admitted: bool,
    },
}

/// A [`Verdict`] without its delay, which keeps the often copied decision small.
// A whole word, as the class is: it is slow to copy halves as a word right after they were written.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum VerdictKind {
    // Those that admit the request come first, so that one comparison finds them.
    Allow,
    Delay,
    /// Undecided, and the request proceeds.
    FailedOpen,
    /// `Allow` on a dry run.
    DryRunAllow,
    /// `Delay` on a dry run.
    DryRunDelay,
    /// `Refuse` on a dry run.
    DryRunRefuse,
    Refuse,
    /// Undecided, and the request is refused.
    FailedClosed,
    /// Undecided and refused, because the store does not support the call.
    Unsupported,
}

/// The answer to "may this key spend this cost now?".
///
/// A plain `Copy` value, since a refusal is not an error. All durations count from
/// [`at`](Self::at).
///
/// | | |
/// |---|---|
/// | [`verdict`](Self::verdict) | allow, delay, refuse, or undecided |
/// | [`limit`](Self::limit) | the capacity: the greatest cost that can ever pass |
/// | [`announced_limit`](Self::announced_limit), [`quota`](Self::quota) | the capacity and the sustained rate of the rule that is announced |
/// | [`remaining`](Self::remaining) | the greatest cost that would pass right after |
/// | [`retry_after`](Self::retry_after) | the least wait after which the same call passes if nobody else spends |
/// | [`reset_after`](Self::reset_after) | the least wait after which the key is equal to an unused one |
/// | [`more_after`](Self::more_after) | the least wait after which `remaining` has grown |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Policy, TokenBucket, Verdict, store::{Local, driver::Ask}};
///
/// let store = Local::new();
/// let (policy, rule) = (Policy::new("api"), TokenBucket::per_minute(60));
/// let ask = |units| Ask::new(&policy, &rule, "alice".into(), Cost::new(units).unwrap());
///
/// let decision = store.decide(&ask(50));
/// assert_eq!(decision.verdict(), Verdict::Allow);
/// assert_eq!((decision.limit(), decision.remaining()), (Some(60), Some(10)));
///
/// let refused = store.decide(&ask(15));
/// assert_eq!(refused.verdict(), Verdict::Refuse);
/// assert!(refused.retry_after() <= Some(Duration::from_secs(5)));
/// ```
#[derive(Clone, Copy)]
pub struct Decision {
    kind: VerdictKind,
    /// From the lowest bit: the worst class in a byte, the classes under each rule, the origin of
    /// the charge. The highest bit is set if the decision is shared.
    // As a field each, in the same 144 bytes, a decision in memory takes 327 instructions instead
    // of 310, and the word is put together at each copy.
    class: u64,
    at: Timestamp,
    cost: u64,
    limit: Option<RuleLimit>,
    /// The wait of a delay, or the wait before a retry.
    wait: Option<Duration>,
    source: NumbersSource,
}

/// The width of a class.
const CLASS_BITS: u32 = u8::BITS;

impl Decision {
    const ORIGIN_SHIFT: u32 = CLASS_BITS + u32::BITS;
    const ORIGIN: u64 = (1 << ChargeOrigin::BITS) - 1;
    const SHARED: u64 = 1 << (u64::BITS - 1);

    /// The class under each rule.
    #[inline]
    const fn classes(&self) -> u32 {
        (self.class >> CLASS_BITS) as u32
    }

    /// Returns the parts that are compared: all except the origin of the charge, and if the
    /// decision is shared.
    fn parts(&self) -> impl PartialEq + use<> {
        // Whatever refuses, it is the same refusal.
        let classes = if self.is_of_block() {
            0
        } else {
            self.classes()
        };
        let class = (classes, self.class());
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

impl Decision {
    /// Returns the verdict: allow, delay, refuse, or undecided.
    #[inline]
    pub const fn verdict(&self) -> Verdict {
        match (self.kind, self.wait) {
            (VerdictKind::Allow, _) | (VerdictKind::Delay, None) => Verdict::Allow,
            (VerdictKind::Delay, Some(wait)) => Verdict::Delay(wait),
            (VerdictKind::Refuse, _) => Verdict::Refuse,
            (VerdictKind::FailedOpen, _) => Verdict::Undecided { admitted: true },
            (VerdictKind::FailedClosed | VerdictKind::Unsupported, _) => {
                Verdict::Undecided { admitted: false }
            }
            (VerdictKind::DryRunAllow | VerdictKind::DryRunDelay, _) => {
                Verdict::DryRun { admitted: true }
            }
            (VerdictKind::DryRunRefuse, _) => Verdict::DryRun { admitted: false },
        }
    }

    /// Returns `true` if the request proceeds as far as this limit decides, at once or after a
    /// delay.
    ///
    /// A limit on a [dry run](crate::Limit::dry_run) lets every request proceed; its
    /// [verdict](Self::verdict) has what it would have decided.
    #[inline]
    pub const fn is_admitted(&self) -> bool {
        !matches!(
            self.kind,
            VerdictKind::Refuse | VerdictKind::FailedClosed | VerdictKind::Unsupported
        )
    }

    /// Returns `true` if the rule admitted the request, and so was charged.
    #[inline]
    const fn is_spent(&self) -> bool {
        matches!(
            self.kind,
            VerdictKind::Allow
                | VerdictKind::Delay
                | VerdictKind::DryRunAllow
                | VerdictKind::DryRunDelay
        )
    }

    /// Returns `true` if the limit is on a [dry run](crate::Limit::dry_run), so that the decision
    /// has no effect on the request.
    ///
    /// Returns `false` if the store could not decide.
    #[inline]
    pub const fn is_dry_run(&self) -> bool {
        matches!(
            self.kind,
            VerdictKind::DryRunAllow | VerdictKind::DryRunDelay | VerdictKind::DryRunRefuse
        )
    }

    /// Returns `true` if the limit is on a dry run, and would have delayed the request.
    #[inline]
    pub(crate) const fn would_delay(&self) -> bool {
        matches!(self.kind, VerdictKind::DryRunDelay)
    }

    /// Returns the decision that the limit would have made without its dry run.
    #[must_use]
    pub(crate) const fn if_enforced(mut self) -> Self {
        self.kind = match self.kind {
            VerdictKind::DryRunAllow => VerdictKind::Allow,
            VerdictKind::DryRunDelay => VerdictKind::Delay,
            VerdictKind::DryRunRefuse => VerdictKind::Refuse,
            kind => kind,
        };
        self
    }

    /// Takes the effect from the decision. An undecided one admits the request.
    #[inline]
    pub(crate) const fn make_dry_run(&mut self) {
        self.kind = match self.kind {
            VerdictKind::Allow | VerdictKind::DryRunAllow => VerdictKind::DryRunAllow,
            VerdictKind::Delay | VerdictKind::DryRunDelay => VerdictKind::DryRunDelay,
            VerdictKind::Refuse | VerdictKind::DryRunRefuse => VerdictKind::DryRunRefuse,
            VerdictKind::FailedOpen | VerdictKind::FailedClosed | VerdictKind::Unsupported => {
                VerdictKind::FailedOpen
            }
        };
    }

    /// Returns the decision [without effect](Self::make_dry_run).
    #[inline]
    #[must_use]
    pub(crate) const fn as_dry_run(mut self) -> Self {
        self.make_dry_run();
        self
    }

    /// The classes of a refusal by a block, which no rules give together.
    const OF_BLOCK: u64 = (u32::MAX as u64) << CLASS_BITS;

    /// Marks a refusal as that of a block.
    pub(crate) const fn of_block(mut self) -> Self {
        if matches!(self.kind, VerdictKind::Refuse) {
            self.class |= Self::OF_BLOCK;
        }
        self
    }

    /// Returns `true` for the refusal of a blocked key.
    pub(crate) const fn is_of_block(&self) -> bool {
        matches!(self.kind, VerdictKind::Refuse) && self.class & Self::OF_BLOCK == Self::OF_BLOCK
    }

    /// Returns the wait before a delayed request proceeds.
    #[inline]
    pub(crate) const fn delay(&self) -> Option<Duration> {
        match self.kind {
            VerdictKind::Delay => self.wait,
            _ => None,
        }
    }

    /// Returns `true` if the store could not decide.
    #[inline]
    pub const fn is_undecided(&self) -> bool {
        matches!(
            self.kind,
            VerdictKind::FailedOpen | VerdictKind::FailedClosed | VerdictKind::Unsupported
        )
    }

    /// Returns `true` if the store could not decide because it [does not
    /// support](crate::store::StoreError::unsupported) the call.
    #[inline]
    pub const fn is_unsupported(&self) -> bool {
        matches!(self.kind, VerdictKind::Unsupported)
    }

    /// Returns the capacity in units: the greatest cost that can ever pass. `None` if undecided.
    ///
    /// Of several rules on one key, it is the smallest capacity.
    #[inline]
    pub const fn limit(&self) -> Option<u64> {
        match self.limit {
            Some(limit) => Some(limit.capacity.get()),
            None => None,
        }
    }

    /// Returns the capacity in units of the rule whose rate is [`quota`](Self::quota). `None` if
    /// undecided.
    ///
    /// Header fields announce both. It is [`limit`](Self::limit), except for several rules on one
    /// key: then both are of the slowest rule, as it was written, and another rule may have a
    /// smaller capacity.
    ///
    /// ```
    /// use tollgate::{FixedWindow, Quota, Timestamp, TokenBucket, algorithm::Algorithm};
    ///
    /// let rule = (FixedWindow::per_hour(10), TokenBucket::per_second(1).burst(5));
    /// let look = rule.look(None, Timestamp::default());
    /// assert_eq!((look.announced_limit(), look.quota()), (Some(10), Some(Quota::per_hour(10))));
    /// assert_eq!((look.limit(), look.remaining()), (Some(5), Some(5)));
    /// ```
    #[inline]
    pub const fn announced_limit(&self) -> Option<u64> {
        match self.limit {
            Some(limit) => Some(limit.announced.get()),
            None => None,
        }
    }

    /// Returns the sustained rate of the rule; of several rules on one key, that of the slowest.
    /// `None` if undecided, and if the units are [calls in flight](Self::is_in_flight).
    #[inline]
    pub const fn quota(&self) -> Option<Quota> {
        match self.limit {
            Some(limit) => limit.quota,
            None => None,
        }
    }

    /// Returns `true` if the rule counts calls in flight, as [`InFlight`](crate::InFlight) does:
    /// its units are held while a call lasts, and then given back.
    ///
    /// ```
    /// use tollgate::{InFlight, Timestamp, algorithm::Algorithm};
    ///
    /// let look = InFlight::at_most(8).look(None, Timestamp::default());
    /// assert!(look.is_in_flight());
    /// assert_eq!((look.limit(), look.quota()), (Some(8), None));
    /// ```
    #[inline]
    pub const fn is_in_flight(&self) -> bool {
        matches!(self.limit, Some(RuleLimit { quota: None, .. }))
    }

    /// Returns `true` if the call holds units of a rule that counts calls in flight.
    #[inline]
    pub(crate) const fn is_held(&self) -> bool {
        self.is_in_flight() && self.is_spent() && self.cost > 0
    }

    /// Returns the greatest cost in units that would pass at the same instant, right after. `None`
    /// if undecided.
    ///
    /// If a lease paid for the admission, it is [an estimate](Self::is_remaining_estimated).
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        self.limit.map(|_| self.source.remaining())
    }

    /// Returns `true` if [`remaining`](Self::remaining) is an estimate, because a lease paid for
    /// the admission (`Leased`, feature `tokio`).
    ///
    /// It is then what this node holds, and what the store had left when it was asked last. Other
    /// nodes may have spent some of it since, and units that they hold are not in it. Refusals and
    /// admissions by a store are exact.
    ///
    /// ```
    /// use tollgate::{Cost, Policy, TokenBucket, store::{Local, driver::Ask}};
    ///
    /// let (store, policy, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
    /// let decision = store.decide(&Ask::new(&policy, &rule, "alice".into(), Cost::ONE));
    /// assert!(!decision.is_remaining_estimated());
    /// ```
    pub fn is_remaining_estimated(&self) -> bool {
        #[cfg(feature = "tokio")]
        {
            let position = self.source.position(self.at);
            position.is_some_and(Position::is_by_lease)
        }
        #[cfg(not(feature = "tokio"))]
        false
    }

    /// Returns the least wait after which the same call would pass if nobody else spends.
    ///
    /// It is zero for an admission, and `None` if the call [can never pass](Self::is_oversized) or
    /// no wait is known. For a look it is the wait for one unit. Saturates at [`Duration::MAX`]. A
    /// guess for calls [in flight](Self::is_in_flight), as the other waits are.
    #[inline]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            VerdictKind::Delay | VerdictKind::DryRunDelay => Some(Duration::ZERO),
            _ => self.wait,
        }
    }

    /// Returns `true` for the refusal of a cost above the [limit](Self::limit), which can never
    /// pass.
    ///
    /// It has no [wait](Self::retry_after). Other refusals without one are not oversized: the cost
    /// fits, but the rule will refuse it for as long as the key is idle, as a warm-up that cools
    /// may. Neither are undecided answers, nor refusals of a [fallback](crate::store::Fallback),
    /// whose limit ends with the outage.
    ///
    /// ```
    /// use tollgate::{Cost, Timestamp, TokenBucket, algorithm::Algorithm};
    ///
    /// let (rule, mut state) = (TokenBucket::per_minute(10), None);
    /// let mut call = |units| {
    ///     rule.step(&mut state, Timestamp::default(), Cost::new(units).unwrap())
    ///         .decision()
    /// };
    /// assert!(call(11).is_oversized());
    /// assert!(!call(10).is_oversized());
    /// assert!(!call(10).is_oversized(), "refused, but passes after a minute");
    /// ```
    #[inline]
    pub const fn is_oversized(&self) -> bool {
        match (self.kind, self.wait, self.limit()) {
            (VerdictKind::Refuse, None, Some(limit)) => self.cost > limit && !self.is_of_fallback(),
            _ => false,
        }
    }

    /// Returns the least wait after which the key is equal to an unused one.
    ///
    /// Saturates at [`Duration::MAX`].
    #[inline]
    pub fn reset_after(&self) -> Duration {
        self.source.reset_after()
    }

    /// Returns the wait after which the key has its full quota: as much as it gets while nobody
    /// spends.
    ///
    /// Earlier than [`reset_after`](Self::reset_after) for a bucket that does not start full, and
    /// for a warm-up, which is warm long after its last call. Then it is rounded up to seconds.
    pub(crate) fn full_after(&self) -> Duration {
        self.source.full_after(self.reset_after())
    }

    /// Returns the least wait after which [`remaining`](Self::remaining) has grown; zero if it
    /// cannot grow.
    pub fn more_after(&self) -> Duration {
        self.more_after_units(self.source.remaining())
    }

    /// Returns [`more_after`](Self::more_after) of a decision whose remaining units are known.
    #[inline]
    pub(crate) fn more_after_units(&self, remaining: u64) -> Duration {
        self.source.more_after(remaining)
    }

    /// Returns the remaining units and both waits, computed together.
    #[inline]
    pub(crate) fn numbers(&self) -> Numbers {
        self.source.numbers()
    }

    /// Returns the class of the admission: 0 is the best, higher ones were demoted.
    pub const fn class(&self) -> u8 {
        self.class as u8
    }

    /// Returns the instant of the decision on the store's timeline.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns `true` if `cost` would pass after this look, by the definition of `remaining`.
    pub(crate) fn would_admit(&self, cost: Cost) -> bool {
        self.remaining().is_some_and(|units| units >= cost.get())
    }

    /// Returns the decision about a call of `cost` units that is charged later, from this look.
    ///
    /// The wait of a look is for one unit. For other costs a refusal has the wait until the key has
    /// its full quota, which may be longer than necessary; `None` if the cost exceeds the limit.
    #[must_use]
    pub(crate) fn for_cost(mut self, cost: Cost) -> Self {
        if self.is_undecided() {
            return self;
        }
        (self.kind, self.wait) = if self.would_admit(cost) {
            (VerdictKind::Allow, Some(Duration::ZERO))
        } else if cost == Cost::ONE {
            (VerdictKind::Refuse, self.retry_after())
        } else {
            let can_pass = self.limit().is_some_and(|limit| cost.get() <= limit);
            (VerdictKind::Refuse, can_pass.then(|| self.full_after()))
        };
        // A look charges nothing.
        self.cost = if self.is_spent() { 0 } else { cost.get() };
        self
    }

    /// Rounds every wait up to whole microseconds, the resolution of the store's clock.
    ///
    /// Delays are not rounded, because a settlement identifies its call by its delay.
    #[cfg(feature = "redis")]
    pub(crate) fn in_micros(mut self) -> Self {
        let up = |wait: Duration| {
            let nanos = wait.subsec_nanos().next_multiple_of(1000);
            Duration::from_secs(wait.as_secs()).saturating_add(Duration::from_nanos(nanos.into()))
        };
        let (numbers, position) = (self.numbers(), self.source.position(self.at));
        if self.kind != VerdictKind::Delay {
            self.wait = self.wait.map(up);
        }
        let numbers = Numbers {
            remaining: numbers.remaining,
            reset_after: up(numbers.reset_after),
            more_after: up(numbers.more_after),
        };
        self.source = self.source.with(numbers, position);
        self
    }

    /// Converts a delay into a refusal with the delay as its wait, for callers that cannot wait.
    pub(crate) fn without_delay(mut self) -> Self {
        if self.kind == VerdictKind::Delay {
            self.kind = VerdictKind::Refuse;
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
