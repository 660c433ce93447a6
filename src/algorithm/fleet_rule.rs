//! The functions of a rule by which nodes decide without asking the store each time.
//!
//! [`FleetRule`] has the functions. A marker for each use ([`Leasable`], [`Syncable`],
//! [`Shareable`]) is what `.leased(…)`, `.synced(…)` and `.share(…)` require, so that other rules
//! do not compile there. An [`AnyRule`] is known at run time only: it answers for its rule, or with
//! an error.

use std::{fmt, time::Duration};

use super::{
    Algorithm, All, AnyRule, Counted, FixedWindow, SlidingLog, SlidingWindow, TokenBucket,
    Validity, any::Own, packed::InMemory,
};
use crate::{
    decision::Decision,
    error::Error,
    quota::{Quota, Written},
    time::Timestamp,
};

/// A rule by which the nodes of a fleet can decide, each for some of its units.
///
/// | use | functions | marker |
/// |---|---|---|
/// | [leases](crate::store::StoreExt::leased): the store grants units ahead of their use | [`default_lease_duration`](Self::default_lease_duration), [`tightened`](Self::tightened), [`validity`](Self::validity) | [`Leasable`] |
/// | [background synchronisation](crate::store::StoreExt::synced): a node pushes units to the store after it admitted them | [`check_sync`](Self::check_sync), [`can_merge`](Self::can_merge), [`has_expired`](Self::has_expired), [`node_share`](Self::node_share), [`used_of_share`](Self::used_of_share) | [`Syncable`] |
/// | [fallback](crate::store::FallbackBuilder::share): a node decides alone in an outage | [`node_share`](Self::node_share) | [`Shareable`] |
///
/// A rule of your own implements the functions and the marker of each use that it supports. The
/// others have defaults: nothing is leased, merged or divided.
///
/// # Leases
///
/// Granted units may be spent for some time, the lease duration. The store runs a [tightened
/// rule](Self::tightened), so that all nodes together never exceed this one. What that costs
/// depends on the rule:
///
/// | rule | the store runs | granted units end |
/// |---|---|---|
/// | [`TokenBucket`] | a burst that is smaller by what is refilled during the lease | one by one, the lease duration after their position on the bucket's [time axis](crate::Charge::position) |
/// | [`FixedWindow`] | the same rule | with the window |
/// | [`SlidingWindow`] | the same rule | with the slice in which they were granted |
/// | [`SlidingLog`] | a window that is longer by the lease | together, after the lease |
/// | a pair of them, and an [`AnyRule`] of them | each of the members as above | as soon as under one of the members |
///
/// No unit of a window outlives the lease either way: a node asks for what it needs during the
/// lease.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{AnyRule, TokenBucket, algorithm::FleetRule};
///
/// let rule = TokenBucket::per_second(10).burst(20);
/// let lease = rule.default_lease_duration();
/// assert_eq!(lease, Duration::from_millis(200));
/// assert_eq!(rule.tightened(lease, 1)?, TokenBucket::per_second(10).burst(18));
///
/// let queue: AnyRule = "leaky-bucket 10/s queue=5".parse()?;
/// assert!(queue.tightened(lease, 1).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # Background synchronisation
///
/// Several units are pushed to the store as one [`Delta`](crate::store::driver::Delta), as if all
/// had been spent with the first of them. A bucket loses nothing by that, because it refills at the
/// same rate whatever the instants. Units of two windows, or of two slices of a window, are pushed
/// separately.
///
/// ```
/// use tollgate::{AnyRule, FixedWindow, Timestamp, TokenBucket, algorithm::FleetRule};
///
/// let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
/// assert!(TokenBucket::per_minute(100).can_merge(at(0), at(600)));
/// assert!(FixedWindow::per_minute(100).can_merge(at(0), at(59)));
/// assert!(!FixedWindow::per_minute(100).can_merge(at(0), at(60)));
/// assert_eq!(FixedWindow::per_minute(100).node_share(1, 3)?, FixedWindow::per_minute(33));
///
/// let queue: AnyRule = "leaky-bucket 10/s queue=5".parse()?;
/// assert!(queue.check_sync().is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the nodes of a fleet cannot decide by the rule `{Self}`",
    note = "a fleet has `TokenBucket`, `FixedWindow`, `SlidingWindow`, `SlidingLog`, pairs of them, and `AnyRule`; for another \
            rule leave `.leased(…)`, `.synced(…)` and `.share(…)` out, so that the store decides each call"
)]
#[expect(unused_variables, reason = "their names are documentation")]
pub trait FleetRule: Algorithm + PartialEq {
    /// Returns the lease duration that is used if none is set: a tenth of the time in which the
    /// whole limit is refilled. Zero, the default, is for no leases.
    fn default_lease_duration(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the rule that the store runs if units are leased for some time, and calls cost up to
    /// `max_cost` units.
    ///
    /// The tightened rule, and not `max_cost`, refuses calls above the rest of the burst. So no
    /// call is refused that the store would admit: `max_cost` is only what a rule must leave room
    /// for.
    ///
    /// # Errors
    ///
    /// When that leaves less than `max_cost` units, or units of this rule cannot be leased.
    fn tightened(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        Err(cannot_be_leased(&format_args!("{self:?}")))
    }

    /// Returns how long the units of a grant are valid. The decision is that of the [tightened
    /// rule](Self::tightened), which is this one.
    fn validity(&self, granted: &Decision, lease: Duration) -> Validity {
        Validity::together(Duration::ZERO)
    }

    /// Returns the tightened rule if a pair can lease it together with others.
    ///
    /// # Errors
    ///
    /// When its validity is not known from a decision of both.
    #[doc(hidden)]
    fn tightened_in_pair(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        self.tightened(lease, max_cost)
    }

    /// Checks that a node may decide by this rule and push its units later.
    ///
    /// # Errors
    ///
    /// When units of this rule cannot be merged.
    fn check_sync(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns `true` if units of both instants may be pushed to the store as if all had been spent
    /// at the first. By default, if they are equal.
    fn can_merge(&self, first: Timestamp, later: Timestamp) -> bool {
        first == later
    }

    /// Returns `true` if units of both rules are the same: a delta and a share go on when calls
    /// under them take turns.
    #[doc(hidden)]
    fn has_units_of(&self, other: &Self) -> bool {
        self.is_same_bucket(other)
    }

    /// Returns `true` if nothing of a key is used at an instant, under any of the rules of which
    /// this one consists. A unit that is spent then is pushed separately from earlier ones: a
    /// bucket that was full did not refill meanwhile.
    fn has_expired(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        state.is_none_or(|state| self.forgettable_at(state) <= at)
    }

    /// Returns `numerator / denominator` of this rule, rounded so that all shares together admit no
    /// more than the rule. With n nodes, the share of one of them is 1/n.
    ///
    /// # Errors
    ///
    /// When one of the numbers is 0, when there is no such share, for example of a burst of one
    /// token, or when the rule cannot be divided.
    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        Err(cannot_be_divided(&format_args!("{self:?}")))
    }

    /// Returns the units that are used of the [share](Self::node_share) of one of so many nodes
    /// when it begins to decide by it, so that it has an equal part of what remains of a key; the
    /// most of the rules of which this one consists.
    fn used_of_share(&self, state: Option<&Self::State>, at: Timestamp, nodes: u64) -> u64 {
        let nodes = nodes.max(1);
        let remains = |rule: &Self, state| rule.look(state, at).remaining().unwrap_or(0);
        // Without a share nothing is left of it.
        self.node_share(1, nodes).map_or(u64::MAX, |share| {
            remains(&share, None).saturating_sub(remains(self, state) / nodes)
        })
    }
}

/// A rule whose units a store can grant to a node, which spends them later: a
/// [lease](crate::store::StoreExt::leased).
///
/// Queues and warm-ups delay, and a cascade or a marker has classes, so their units cannot be
/// granted ahead.
#[diagnostic::on_unimplemented(
    message = "units of the rule `{Self}` cannot be leased",
    note = "leases are for `TokenBucket`, `FixedWindow`, `SlidingWindow`, `SlidingLog`, pairs of them, and `AnyRule`; for another rule leave \
            `.leased(…)` out, so that the store decides each call"
)]
pub trait Leasable: FleetRule {}

/// A rule whose units a node may admit by itself, and push to the store later: [background
/// synchronisation](crate::store::StoreExt::synced).
///
/// Queues and warm-ups delay, a cascade or a marker has classes, and a log needs the instant of
/// each call, so their units cannot be pushed as one. Windows that begin with the first call cannot
/// either: the store does not know any more which call that was. They are an error of
/// [`check_sync`](FleetRule::check_sync).
#[diagnostic::on_unimplemented(
    message = "units of the rule `{Self}` cannot be pushed to the store later",
    note = "background synchronisation is for `TokenBucket`, `FixedWindow`, `SlidingWindow`, pairs of them, and `AnyRule`; for another rule leave \
            `.synced(…)` out, so that the store decides each call"
)]
pub trait Syncable: FleetRule {}

/// A rule that can be divided among nodes, as
/// [`FallbackBuilder::share`](crate::store::FallbackBuilder::share) requires.
///
/// For other rules, pass a function to
/// [`FallbackBuilder::rule`](crate::store::FallbackBuilder::rule).
///
/// ```
/// use tollgate::{TokenBucket, algorithm::FleetRule};
///
/// let third = TokenBucket::per_minute(90).node_share(1, 3)?;
/// assert_eq!(third, TokenBucket::per_minute(30));
/// assert!(TokenBucket::per_minute(2).node_share(1, 3).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the rule `{Self}` cannot be divided among nodes",
    note = "shares are of `TokenBucket`, `FixedWindow`, `SlidingWindow`, `SlidingLog`, pairs of them, and `AnyRule`; for another \
            rule return the rule of one node from `.rule(|rule| …)` instead of `.share(…)`"
)]
pub trait Shareable: FleetRule {}

macro_rules! marked {
    ($($Marker:ident: $($Rule:ty),+;)+) => {
        $(
            $(impl $Marker for $Rule {})+
            impl<A: $Marker, B: $Marker> $Marker for (A, B) {}
        )+
    };
}

marked! {
    Leasable: TokenBucket, FixedWindow, SlidingWindow, SlidingLog, All, AnyRule;
    Syncable: TokenBucket, FixedWindow, SlidingWindow, All, AnyRule;
    Shareable: TokenBucket, FixedWindow, SlidingWindow, SlidingLog, All, AnyRule;
}

/// Does something with a rule of a fleet, or something else with another one.
macro_rules! of_fleet {
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

fn cannot_be_leased(rule: &dyn fmt::Display) -> Error {
    Error::new(format!(
        "leases of `{rule}`: expected a token bucket, fixed or sliding windows, a sliding log, or several of them; choose one of those, or \
         leave the leases out, so that the store decides each call"
    ))
}

fn cannot_be_synced(rule: &dyn fmt::Display) -> Error {
    Error::new(format!(
        "`{rule}` with background synchronisation: expected a token bucket, fixed or sliding windows, or several of them; choose one of those, or \
         leave the synchronisation out, so that the store decides each call"
    ))
}

fn cannot_be_divided(rule: &dyn fmt::Display) -> Error {
    Error::new(format!(
        "`{rule}` cannot be divided among nodes: expected a token bucket, fixed or sliding windows, a sliding log, or several of them; return \
         the rule of one node from `.rule(|rule| …)` instead of `.share(…)`"
    ))
}

/// Returns `numerator / denominator` of some units, rounded down.
///
/// # Errors
///
/// When one of the numbers is 0, or less than a unit is left.
pub(super) fn share_of(
    (what, units): (&str, u64),
    numerator: u64,
    denominator: u64,
) -> Result<u64, Error> {
    if numerator == 0 || denominator == 0 {
        return Err(Error::new(format!(
            "a share of {numerator}/{denominator}: expected both numbers to be at least 1, as in 1/3"
        )));
    }
    let share = u128::from(units) * u128::from(numerator) / u128::from(denominator);
    if share == 0 {
        return Err(Error::new(format!(
            "a share of {numerator}/{denominator} of a {what} of {units}: expected at least one whole unit; choose a larger {what} or a \
             larger share"
        )));
    }
    Ok(u64::try_from(share).unwrap_or(u64::MAX))
}

/// Returns the same period with a share of the amount.
fn share_of_quota(quota: Quota, numerator: u64, denominator: u64) -> Result<Quota, Error> {
    let amount = share_of(("limit", quota.amount()), numerator, denominator)?;
    Quota::try_new(amount, quota.period())
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

/// Returns `true` if both instants are in the same slice. A rule without slices of the calendar
/// separates all instants.
fn is_in_one_slice(rule: &impl Counted, a: Timestamp, b: Timestamp) -> bool {
    rule.slicing()
        .map_or(a == b, |slicing| slicing.slice(a) == slicing.slice(b))
}

impl FleetRule for TokenBucket {
    fn default_lease_duration(&self) -> Duration {
        tenth(self.quota(), self.capacity())
    }

    fn tightened(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        let (burst, kept) = (self.capacity(), self.kept_free());
        let refilled = self.refilled_within(lease);
        let left = burst.saturating_sub(refilled);
        if left.saturating_sub(kept) < max_cost.max(1) {
            let burst = match kept {
                0 => format!("its burst of {burst}"),
                _ => format!(
                    "the {} of its burst that it does not keep free",
                    burst - kept
                ),
            };
            return Err(Error::new(format!(
                "`{self}` with leases of {}: expected at least {max_cost} of {burst} to be left, but {refilled} are refilled \
                 during that time, and the burst pays for them; choose shorter leases, a larger burst or a smaller `max_cost`",
                Written(lease)
            )));
        }
        self.try_burst(left)?.try_initial(if self.starts_full() {
            left
        } else {
            self.initial.saturating_sub(refilled)
        })
    }

    fn validity(&self, granted: &Decision, lease: Duration) -> Validity {
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
        Validity::one_by_one(
            end.unwrap_or(from_grant).saturating_add(lease),
            self.quota(),
        )
    }

    fn can_merge(&self, _: Timestamp, _: Timestamp) -> bool {
        true
    }

    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        self.try_scaled(numerator, denominator)
    }

    /// Those of the whole bucket: calls under other rules spend from the same share.
    fn used_of_share(&self, state: Option<&Self::State>, at: Timestamp, nodes: u64) -> u64 {
        let (whole, nodes) = (self.whole(), nodes.max(1));
        let left = |rule: &Self, state| rule.look(state, at).remaining().unwrap_or(0);
        whole.node_share(1, nodes).map_or(u64::MAX, |share| {
            left(&share, None).saturating_sub(left(&whole, state) / nodes)
        })
    }
}

impl FleetRule for FixedWindow {
    fn default_lease_duration(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn tightened(&self, _: Duration, max_cost: u64) -> Result<Self, Error> {
        affords(self.quota(), max_cost).map(|()| *self)
    }

    fn validity(&self, granted: &Decision, _: Duration) -> Validity {
        // The charge counts, so the window of a first call ends when the key is reset.
        Validity::together(
            self.left_in_calendar(granted.at())
                .unwrap_or_else(|| granted.reset_after()),
        )
    }

    fn tightened_in_pair(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        if self.is_from_first_call() {
            return Err(Error::new(format!(
                "leases of `{self}` together with another rule: expected windows of the calendar, because a decision of several rules does not \
                 say when this one's window ends; leave out the first call, or make it a limit of its own"
            )));
        }
        self.tightened(lease, max_cost)
    }

    fn check_sync(&self) -> Result<(), Error> {
        if self.is_from_first_call() {
            return Err(Error::new(format!(
                "`{self}` with background synchronisation: expected windows of the calendar, because the store does not know which call began a \
                 window; leave out the first call, or the synchronisation"
            )));
        }
        Ok(())
    }

    fn can_merge(&self, first: Timestamp, later: Timestamp) -> bool {
        is_in_one_slice(self, first, later)
    }

    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        share_of_quota(self.quota(), numerator, denominator).map(|quota| self.with_quota(quota))
    }
}

impl FleetRule for SlidingWindow {
    fn default_lease_duration(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn tightened(&self, _: Duration, max_cost: u64) -> Result<Self, Error> {
        affords(self.quota(), max_cost).map(|()| *self)
    }

    fn validity(&self, granted: &Decision, _: Duration) -> Validity {
        let left = self.slicing().map_or(Duration::ZERO, |slicing| {
            let next = slicing.begin(slicing.slice(granted.at()) + 1);
            next.saturating_since(granted.at())
        });
        Validity::together(left)
    }

    fn can_merge(&self, first: Timestamp, later: Timestamp) -> bool {
        is_in_one_slice(self, first, later)
    }

    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        let quota = share_of_quota(self.quota(), numerator, denominator)?;
        Self::new(quota).try_slices(self.slice_count())
    }
}

impl FleetRule for SlidingLog {
    fn default_lease_duration(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn tightened(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        let quota = self.quota();
        affords(quota, max_cost)?;
        Quota::try_new(quota.amount(), quota.period().saturating_add(lease)).map(Self::new)
    }

    fn validity(&self, _: &Decision, lease: Duration) -> Validity {
        Validity::together(lease)
    }

    fn check_sync(&self) -> Result<(), Error> {
        Err(cannot_be_synced(self))
    }

    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        share_of_quota(self.quota(), numerator, denominator).map(Self::new)
    }
}

impl<A: FleetRule, B: FleetRule> FleetRule for (A, B) {
    fn default_lease_duration(&self) -> Duration {
        self.0
            .default_lease_duration()
            .min(self.1.default_lease_duration())
    }

    fn tightened(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        let (a, b) = self;
        Ok((
            a.tightened_in_pair(lease, max_cost)?,
            b.tightened_in_pair(lease, max_cost)?,
        ))
    }

    fn validity(&self, granted: &Decision, lease: Duration) -> Validity {
        let (a, b) = self;
        a.validity(granted, lease).and(b.validity(granted, lease))
    }

    fn check_sync(&self) -> Result<(), Error> {
        self.0.check_sync().and_then(|()| self.1.check_sync())
    }

    fn can_merge(&self, first: Timestamp, later: Timestamp) -> bool {
        self.0.can_merge(first, later) && self.1.can_merge(first, later)
    }

    fn has_expired(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        let (a, b) = of_each(state);
        self.0.has_expired(a, at) || self.1.has_expired(b, at)
    }

    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        let first = self.0.node_share(numerator, denominator)?;
        Ok((first, self.1.node_share(numerator, denominator)?))
    }

    fn used_of_share(&self, state: Option<&Self::State>, at: Timestamp, nodes: u64) -> u64 {
        let (a, b) = of_each(state);
        let first = self.0.used_of_share(a, at, nodes);
        first.max(self.1.used_of_share(b, at, nodes))
    }
}

/// Returns the states of both rules of a pair.
fn of_each<A, B>(state: Option<&(Option<A>, Option<B>)>) -> (Option<&A>, Option<&B>) {
    state.map_or((None, None), |(a, b)| (a.as_ref(), b.as_ref()))
}

impl FleetRule for AnyRule {
    fn default_lease_duration(&self) -> Duration {
        of_fleet!(self, rule => rule.default_lease_duration(), _other => Duration::ZERO)
    }

    fn tightened(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        of_fleet!(self, rule => rule.tightened(lease, max_cost).map(Self::from), other => Err(cannot_be_leased(other)))
    }

    fn validity(&self, granted: &Decision, lease: Duration) -> Validity {
        of_fleet!(self, rule => rule.validity(granted, lease), _other => Validity::together(Duration::ZERO))
    }

    fn tightened_in_pair(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        of_fleet!(self, rule => rule.tightened_in_pair(lease, max_cost).map(Self::from), other => Err(cannot_be_leased(other)))
    }

    fn check_sync(&self) -> Result<(), Error> {
        of_fleet!(self, rule => rule.check_sync(), other => Err(cannot_be_synced(other)))
    }

    fn can_merge(&self, first: Timestamp, later: Timestamp) -> bool {
        of_fleet!(self, rule => rule.can_merge(first, later), _other => first == later)
    }

    fn has_expired(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        of_fleet!(self, rule => rule.has_expired(state.and_then(Own::in_any), at), _other => true)
    }

    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        of_fleet!(self, rule => rule.node_share(numerator, denominator).map(Self::from), other => Err(cannot_be_divided(other)))
    }

    fn used_of_share(&self, state: Option<&Self::State>, at: Timestamp, nodes: u64) -> u64 {
        of_fleet!(self, rule => rule.used_of_share(state.and_then(Own::in_any), at, nodes), _other => u64::MAX)
    }
}

impl FleetRule for All {
    fn default_lease_duration(&self) -> Duration {
        let leases = self.rules().iter().map(FleetRule::default_lease_duration);
        leases.min().unwrap_or_default()
    }

    fn tightened(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        let rules = self.rules().iter();
        let tightened = rules.map(|rule| rule.tightened_in_pair(lease, max_cost));
        tightened.collect::<Result<_, _>>().map(Self)
    }

    fn validity(&self, granted: &Decision, lease: Duration) -> Validity {
        let rules = self.rules().iter();
        let each = rules.map(|rule| rule.validity(granted, lease));
        each.reduce(Validity::and)
            .unwrap_or(Validity::together(Duration::ZERO))
    }

    fn check_sync(&self) -> Result<(), Error> {
        self.rules().iter().try_for_each(FleetRule::check_sync)
    }

    fn can_merge(&self, first: Timestamp, later: Timestamp) -> bool {
        let mut rules = self.rules().iter();
        rules.all(|rule| rule.can_merge(first, later))
    }

    fn has_expired(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        let mut rules = self.rules().iter().enumerate();
        let state_of = |n: usize| state.and_then(|states| states.get(n)?.as_ref());
        rules.any(|(n, rule)| rule.has_expired(state_of(n), at))
    }

    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        let rules = self.rules().iter();
        let shares = rules.map(|rule| rule.node_share(numerator, denominator));
        shares.collect::<Result<_, _>>().map(Self)
    }

    fn used_of_share(&self, state: Option<&Self::State>, at: Timestamp, nodes: u64) -> u64 {
        let rules = self.rules().iter().enumerate();
        let state_of = |n: usize| state.and_then(|states| states.get(n)?.as_ref());
        let used = rules.map(|(n, rule)| rule.used_of_share(state_of(n), at, nodes));
        used.max().unwrap_or(0)
    }
}
