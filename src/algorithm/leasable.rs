//! Rules whose units can be granted ahead of their use.
//!
//! The stricter rule, and not `max_cost`, refuses calls above the rest of the burst. `max_cost` is
//! only what a rule must leave room for. So no call is refused that the store would admit.

use std::time::Duration;

use super::{
    Algorithm, All, AnyRule, Counted, FixedWindow, SlidingLog, SlidingWindow, TokenBucket,
};
#[cfg(feature = "tokio")]
use crate::time::Timestamp;
use crate::{
    decision::Decision,
    error::Error,
    quota::{Quota, Written},
};

/// A rule whose units a store can grant to a node, which spends them later: a
/// [lease](crate::store::StoreExt::leased).
///
/// Granted units may be spent for some time, the hold. The store runs a [stricter
/// rule](Self::held), so that all nodes together never exceed this one. What that costs depends on
/// the rule:
///
/// | rule | the store runs | granted units end |
/// |---|---|---|
/// | [`TokenBucket`](crate::TokenBucket) | a burst that is smaller by what is refilled during the hold | one by one, the hold after their position on the bucket's [time axis](crate::Charge::position) |
/// | [`FixedWindow`](crate::FixedWindow) | the same | with the window |
/// | [`SlidingWindow`](crate::SlidingWindow) | the same | with the slice in which they were granted |
/// | [`SlidingLog`](crate::algorithm::SlidingLog) | a window that is longer by the hold | together, after the hold |
/// | a pair of them, and an [`AnyRule`](crate::AnyRule) of them | each of the members as above | as soon as under one of the members |
///
/// No unit of a window outlives the hold either way: a node asks for what it needs during the hold.
/// Queues and warm-ups delay, and a cascade or a marker tells classes apart, so their units cannot
/// be granted ahead.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{AnyRule, TokenBucket, algorithm::Leasable};
///
/// let rule = TokenBucket::per_second(10).burst(20);
/// assert_eq!(rule.usual_hold(), Duration::from_millis(200));
/// assert_eq!(rule.held(rule.usual_hold(), 1)?, TokenBucket::per_second(10).burst(18));
///
/// let queue: AnyRule = "leaky-bucket 10/s queue=5".parse()?;
/// assert!(queue.held(Duration::from_millis(200), 1).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "units of the rule `{Self}` cannot be leased",
    note = "leases are for `TokenBucket`, `FixedWindow`, `SlidingWindow`, `SlidingLog`, pairs of them, and `AnyRule`; for another rule leave \
            `.leased(…)` out, so that the store decides each call"
)]
pub trait Leasable: Algorithm + PartialEq {
    /// Returns the hold that is used if none is set: a tenth of the time in which the whole limit
    /// is refilled.
    fn usual_hold(&self) -> Duration;

    /// Returns the rule that the store runs if units are held for `hold`, and calls cost up to
    /// `max_cost` units.
    ///
    /// # Errors
    ///
    /// When that leaves less than `max_cost` units, or units of this rule cannot be leased.
    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error>;

    /// Returns how long the units of a grant are valid. The decision is that of the [stricter
    /// rule](Self::held), which is this one.
    fn validity(&self, granted: &Decision, hold: Duration) -> Validity;

    /// Returns the rule if a pair can lease it together with others.
    ///
    /// # Errors
    ///
    /// When its validity is not known from a decision of both.
    #[doc(hidden)]
    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        self.held(hold, max_cost)
    }
}

/// The time for which the units of a grant may be spent, from the instant of the grant on.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Quota, algorithm::Validity};
///
/// // Ten units a second, the last of which is valid for a second: after half a second, five are
/// // left.
/// let validity = Validity::one_by_one(Duration::from_secs(1), Quota::per_second(10));
/// assert_eq!(validity.units_at(Duration::from_millis(500)), 5);
///
/// let validity = Validity::together(Duration::from_secs(1));
/// assert_eq!(validity.units_at(Duration::from_millis(500)), u64::MAX);
/// assert_eq!(validity.units_at(Duration::from_secs(1)), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// No unit is valid longer, in nanoseconds.
    until: u64,
    /// Units end one after the other at this rate, the last one at `until`.
    rate: Option<Quota>,
    /// All units end then, whatever their rate, in nanoseconds.
    cut: u64,
}

impl Validity {
    /// All units are valid for the same time.
    pub fn together(time: Duration) -> Self {
        let time = nanos(time);
        Self {
            until: time,
            rate: None,
            cut: time,
        }
    }

    /// The units end one after the other at a rate, the last interval of which is over after
    /// `last`.
    pub fn one_by_one(last: Duration, rate: Quota) -> Self {
        Self {
            until: nanos(last),
            rate: Some(rate),
            cut: u64::MAX,
        }
    }

    /// Returns the validity of units that two rules have granted: each ends as soon as under
    /// either.
    ///
    /// If both end one by one, both must count from the instant of the grant.
    #[must_use]
    fn and(self, other: Self) -> Self {
        let cut = self.cut.min(other.cut);
        let sooner = match (self.rate, other.rate) {
            (Some(_), None) => self,
            (None, Some(_)) => other,
            // If the last units end together, those before end sooner at the lower rate.
            (Some(own), Some(others)) if self.until == other.until => Self {
                rate: Some(own.slower(others)),
                ..self
            },
            _ if self.until <= other.until => self,
            _ => other,
        };
        Self { cut, ..sooner }
    }

    /// Returns the same validity, shorter by a thousandth for a clock that is slow.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub(crate) fn shortened(self) -> Self {
        let shorter = |nanos: u64| nanos.saturating_sub(nanos / 1000 + 1);
        Self {
            until: shorter(self.until),
            cut: shorter(self.cut),
            ..self
        }
    }

    /// Returns how many of the last units are valid after some time: [`u64::MAX`] for all.
    pub fn units_at(&self, after: Duration) -> u64 {
        let after = nanos(after);
        if after >= self.cut {
            return 0;
        }
        let left = self.until.saturating_sub(after);
        match self.rate {
            None if left == 0 => 0,
            None => u64::MAX,
            Some(rate) => {
                let units =
                    u128::from(left) * u128::from(rate.amount()) / u128::from(rate.period_nanos());
                u64::try_from(units).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the end of all units that were granted at an instant.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn ends_at(&self, granted: Timestamp) -> Timestamp {
        let end = granted.as_nanos().saturating_add(self.until.min(self.cut));
        Timestamp::from_nanos(end)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn rate(&self) -> Option<Quota> {
        self.rate
    }

    /// Returns the validity without the last units, which take so many nanoseconds to end.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub(crate) fn without_last(self, nanos: u64) -> Self {
        Self {
            until: self.until.saturating_sub(nanos),
            ..self
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A tenth of the time in which `units` are refilled.
fn tenth(quota: Quota, units: u64) -> Duration {
    let nanos = quota.time_of(units) / 10;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Checks that a limit admits calls of up to `max_cost` units.
fn affords(quota: Quota, max_cost: u64) -> Result<(), Error> {
    let limit = quota.amount();
    if limit >= max_cost {
        return Ok(());
    }
    Err(Error::new(format!(
        "calls of up to {max_cost} units under a limit of {limit}: expected at most the limit; choose a smaller `max_cost` or a larger limit"
    )))
}

impl Leasable for TokenBucket {
    fn usual_hold(&self) -> Duration {
        tenth(self.quota(), self.capacity())
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let burst = self.capacity();
        let refilled = self.refilled_within(hold);
        let left = burst.saturating_sub(refilled);
        if left < max_cost.max(1) {
            return Err(Error::new(format!(
                "`{self}` with leases of {}: expected at least {max_cost} of its burst of {burst} to be left, but {refilled} are refilled \
                 during that time, and the burst pays for them; choose shorter leases, a larger burst or a smaller `max_cost`",
                Written(hold)
            )));
        }
        let initial = self.initial_fill();
        self.try_burst(left)?.try_initial(if self.starts_full() {
            left
        } else {
            initial.saturating_sub(refilled)
        })
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        let charge = granted.charge();
        let from_grant = self.refill_of(charge.as_ref().map_or(0, |charge| charge.cost));
        // What leases inside have granted lies on another time axis.
        let position = charge.and_then(|charge| charge.position);
        let end = position
            .filter(|position| !position.is_of_lease())
            .map(|position| {
                let end = position.end().saturating_sub(granted.at().as_nanos());
                Duration::from_nanos(end)
            });
        Validity::one_by_one(end.unwrap_or(from_grant).saturating_add(hold), self.quota())
    }
}

impl Leasable for FixedWindow {
    fn usual_hold(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn held(&self, _: Duration, max_cost: u64) -> Result<Self, Error> {
        affords(self.quota(), max_cost).map(|()| *self)
    }

    fn validity(&self, granted: &Decision, _: Duration) -> Validity {
        // The charge counts, so the window of a first call ends when the key is reset.
        Validity::together(
            self.left_in_calendar(granted.at())
                .unwrap_or_else(|| granted.reset_after()),
        )
    }

    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        if self.is_from_first_call() {
            return Err(Error::new(format!(
                "leases of `{self}` together with another rule: expected windows of the calendar, because a decision of several rules does not \
                 say when this one's window ends; leave out the first call, or make it a limit of its own"
            )));
        }
        self.held(hold, max_cost)
    }
}

impl Leasable for SlidingWindow {
    fn usual_hold(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn held(&self, _: Duration, max_cost: u64) -> Result<Self, Error> {
        affords(self.quota(), max_cost).map(|()| *self)
    }

    fn validity(&self, granted: &Decision, _: Duration) -> Validity {
        let left = self.slicing().map_or(Duration::ZERO, |slicing| {
            let next = slicing.begin(slicing.slice(granted.at()) + 1);
            next.saturating_since(granted.at())
        });
        Validity::together(left)
    }
}

impl Leasable for SlidingLog {
    fn usual_hold(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let quota = self.quota();
        affords(quota, max_cost)?;
        Quota::try_new(quota.amount(), quota.period().saturating_add(hold)).map(Self::new)
    }

    fn validity(&self, _: &Decision, hold: Duration) -> Validity {
        Validity::together(hold)
    }
}

impl<A: Leasable, B: Leasable> Leasable for (A, B) {
    fn usual_hold(&self) -> Duration {
        self.0.usual_hold().min(self.1.usual_hold())
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let (a, b) = self;
        Ok((
            a.held_in_pair(hold, max_cost)?,
            b.held_in_pair(hold, max_cost)?,
        ))
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        let (a, b) = self;
        a.validity(granted, hold).and(b.validity(granted, hold))
    }

    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        self.held(hold, max_cost)
    }
}

/// Does something with a rule that can be leased, or gives an error.
macro_rules! leasable {
    ($any:expr, $rule:ident => $value:expr, $other:ident => $otherwise:expr) => {
        match $any {
            AnyRule::TokenBucket($rule) => $value,
            AnyRule::FixedWindow($rule) => $value,
            AnyRule::SlidingWindow($rule) => $value,
            AnyRule::SlidingLog($rule) => $value,
            AnyRule::All($rule) => $value,
            $other => $otherwise,
        }
    };
}

fn cannot_be_leased(rule: &AnyRule) -> Error {
    Error::new(format!(
        "leases of `{rule}`: expected a token bucket, fixed or sliding windows, a sliding log, or several of them; choose one of those, or \
         leave the leases out, so that the store decides each call"
    ))
}

impl Leasable for AnyRule {
    fn usual_hold(&self) -> Duration {
        leasable!(self, rule => rule.usual_hold(), _other => Duration::ZERO)
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        leasable!(self, rule => rule.held(hold, max_cost).map(Self::from), other => Err(cannot_be_leased(other)))
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        leasable!(self, rule => rule.validity(granted, hold), _other => Validity::together(Duration::ZERO))
    }

    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        leasable!(self, rule => rule.held_in_pair(hold, max_cost).map(Self::from), other => Err(cannot_be_leased(other)))
    }
}

impl Leasable for All {
    fn usual_hold(&self) -> Duration {
        let holds = self.rules().iter().map(Leasable::usual_hold);
        holds.min().unwrap_or_default()
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let held = self
            .rules()
            .iter()
            .map(|rule| rule.held_in_pair(hold, max_cost));
        held.collect::<Result<_, _>>().map(Self)
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        let each = self.rules().iter().map(|rule| rule.validity(granted, hold));
        each.reduce(Validity::and)
            .unwrap_or(Validity::together(Duration::ZERO))
    }
}
