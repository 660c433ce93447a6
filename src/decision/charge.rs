//! The charge of an admission, which can be settled once.
//!
//! Neither a charge nor a settlement can be cloned. A charge is taken out of its decision, or out
//! of an outcome whose clones share a flag. A decision carries 20 bits of its policy's digest, so
//! that a charge is not settled under another name.
//!
//! A failed remote settlement is not repeated, because it may have been made. It is counted
//! (`unsettled`) where it is lost, by a guard that counts on drop.
//!
//! A charge carries in two bits how many stores had failed before the one that made it, so it is
//! settled where it was made.
//!
//! Leased units are returned only from the last charge (`Charge::if_last`). The general rule for
//! token buckets refunds what lies behind the last call. With leases in use that is unsafe: the
//! refund moves the bucket's end forward, and grants that other nodes have behind it are spent
//! later than the bucket counts; random schedules exceeded the limit by it. Windows and logs refund
//! exactly.

use std::{num::NonZeroU64, time::Duration};

use super::{Decision, VerdictKind};
use crate::time::Timestamp;

/// The charge of an admitted [`Decision`](super::Decision), for one later
/// [settlement](crate::store::driver::Settlement).
///
/// A charge is settled at most once: it is [taken out of its
/// decision](super::Decision::take_charge), or out of the [outcome](crate::Outcome::take_charge) of
/// a request, and a settlement consumes it.
///
/// # Examples
///
/// ```
/// use tollgate::{Charge, Cost, Policy, TokenBucket, store::{Local, driver::Ask}};
///
/// let (store, policy, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
/// let ask = Ask::new(&policy, &rule, "alice".into(), Cost::new(40).unwrap());
/// let mut decision = store.decide(&ask);
///
/// let charge: Charge = decision.take_charge().unwrap();
/// assert_eq!(charge.cost, 40);
/// assert!(decision.take_charge().is_none());
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Charge {
    /// The instant of the charge on the store's timeline.
    pub at: Timestamp,
    /// The class of the admission; 0 is the best. If several rules were charged together, the class
    /// under each rule, in [as many bits as the rule
    /// needs](crate::algorithm::Algorithm::class_bits), the first rule in the lowest bits.
    pub class: u32,
    /// The units that were charged.
    pub cost: u64,
    /// The delay of the call. `None` if several rules were charged together; the decision then has
    /// the longest delay.
    pub delay: Option<Duration>,
    /// The position on the time axis of a [`TokenBucket`](crate::TokenBucket) or a
    /// [`WarmUpSpaced`](crate::algorithm::WarmUpSpaced). `None` for other rules, and if several
    /// rules were charged together.
    pub position: Option<Position>,
    pub(super) origin: ChargeOrigin,
}

/// The position of a charge on the time axis of its rule.
///
/// A token bucket is full again at its theoretical arrival time (ITU-T I.371). Each charge moves
/// that instant by the time that its cost takes to refill; the span of this move belongs to the
/// charge, and refill restores it from its beginning on. Under a
/// [`WarmUpSpaced`](crate::algorithm::WarmUpSpaced) each call moves the next departure by the time
/// that it takes.
///
/// # Examples
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket, store::{Local, driver::Ask}};
///
/// let (store, policy, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
/// let charge = store.decide(&Ask::new(&policy, &rule, "alice".into(), Cost::ONE)).take_charge();
/// assert!(charge.unwrap().position.is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    end: NonZeroU64,
    // The highest bits are flags. With a field of their own, a position takes 24 bytes instead of
    // 16, a charge 64 instead of 56, and each decision 152 instead of 144: that of a lease computes
    // its position from two words, and would need a third one. A decision in memory would take as
    // many instructions as now, 269.
    refunded: u64,
}

impl Position {
    /// Creates the position of a charge that ends at `end`, in nanoseconds, when `refunded`
    /// nanoseconds had been refunded to its key, modulo [`SUM`](Self::SUM) + 1.
    pub(crate) const fn new(end: u64, refunded: u64) -> Self {
        let end = match NonZeroU64::new(end) {
            Some(end) => end,
            None => NonZeroU64::MIN,
        };
        let refunded = refunded & Self::SUM;
        Self { end, refunded }
    }

    /// The bits of the sum that was refunded: it begins again at 0 after refunds of 36 years of
    /// refill. If that happens while a charge is open, its own refund is made in full at most.
    pub(crate) const SUM: u64 = (1 << 60) - 1;

    /// Returns the instant at which, right after the charge, the bucket is full again or the next
    /// call departs, in nanoseconds rounded down.
    pub(crate) fn end(self) -> u64 {
        self.end.get()
    }

    /// Returns the nanoseconds that had been refunded to the key before.
    pub(crate) fn refunded(self) -> u64 {
        self.refunded & !Self::IF_LAST
    }

    /// Above the [sum](Self::SUM).
    const IF_LAST: u64 = 1 << (u64::BITS - 2);

    /// Returns `true` if nothing may be refunded once another charge lies behind this one.
    pub(crate) fn is_if_last(self) -> bool {
        self.refunded & Self::IF_LAST != 0
    }

    /// The position of a charge that a lease paid for: before the last `behind` units of a grant,
    /// whose last one is valid until `end` by the clock of this node.
    #[cfg(feature = "tokio")]
    pub(crate) const fn of_lease(end: Timestamp, behind: u64) -> Self {
        // The last instant marks the position of a charge to several rules.
        let end = end.as_nanos();
        let end = if end == u64::MAX { end - 1 } else { end };
        Self {
            refunded: Self::LEASE | behind,
            ..Self::new(end, 0)
        }
    }

    /// Returns the position as two words, the first of which is not 0.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn to_words(self) -> [u64; 2] {
        [self.end.get(), self.refunded]
    }

    /// Returns the position of two words; `None` if the first is 0.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn of_words([end, refunded]: [u64; 2]) -> Option<Self> {
        NonZeroU64::new(end).map(|end| Self { end, refunded })
    }

    /// Above the [sum](Self::SUM).
    #[cfg(feature = "tokio")]
    const LEASE: u64 = 1 << (u64::BITS - 1);

    /// With [`LEASE`](Self::LEASE): the store has decided the call.
    #[cfg(feature = "tokio")]
    const BY_STORE: u64 = 1 << (u64::BITS - 3);

    /// Marks the position of a charge that the store made. Its units are refunded as if a lease had
    /// paid.
    #[cfg(feature = "tokio")]
    pub(crate) const fn by_store(self) -> Self {
        Self {
            refunded: self.refunded | Self::BY_STORE,
            ..self
        }
    }

    /// Returns `true` if units paid that were there before the call.
    #[cfg(feature = "tokio")]
    pub(crate) const fn is_by_lease(self) -> bool {
        self.refunded & (Self::LEASE | Self::BY_STORE) == Self::LEASE
    }

    /// Returns the end of the grant, and the number of its units behind the charge, if a refund of
    /// it returns to a lease.
    #[cfg(feature = "tokio")]
    pub(crate) fn of_grant(self) -> Option<(Timestamp, u64)> {
        let is_lease = self.refunded & Self::LEASE != 0;
        is_lease.then(|| {
            (
                Timestamp::from_nanos(self.end()),
                self.refunded & !(Self::LEASE | Self::BY_STORE),
            )
        })
    }

    /// Returns `true` if a refund of the charge returns to a lease.
    pub(crate) fn is_of_lease(self) -> bool {
        #[cfg(feature = "tokio")]
        {
            self.of_grant().is_some()
        }
        #[cfg(not(feature = "tokio"))]
        false
    }

    /// The position of a charge to several rules, which have no common position.
    pub(crate) const SEVERAL: Self = Self {
        end: NonZeroU64::MAX,
        refunded: 0,
    };

    /// Returns the position of a charge to two rules.
    pub(super) const fn of_both(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (None, position) | (position, None) => position,
            (Some(_), Some(_)) => Some(Self::SEVERAL),
        }
    }
}

/// The policy and the store of a charge.
///
/// The policy is some bits of the digest of its name, or 0 if unknown. The store is the number of
/// stores that had failed before it was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ChargeOrigin(pub(super) u32);

impl ChargeOrigin {
    pub(super) const BITS: u32 = 23;
    /// One store that had failed, in the bits above the policy. At most three are counted.
    const FALLBACK: u32 = 1 << (Self::BITS - 2);
    const POLICY: u32 = Self::FALLBACK - 1;
    const KNOWN: u32 = Self::FALLBACK >> 1;

    #[inline]
    pub(super) const fn of_policy(self, digest: u64) -> Self {
        let policy = (digest >> (u64::BITS - Self::POLICY.count_ones())) as u32 | Self::KNOWN;
        Self(self.0 & !Self::POLICY | policy)
    }

    pub(super) const fn is_of_fallback(self) -> bool {
        self.0 >= Self::FALLBACK
    }

    pub(super) const fn of_fallback(self) -> Self {
        match self.0 / Self::FALLBACK {
            3.. => self,
            _ => Self(self.0 + Self::FALLBACK),
        }
    }
}

impl Charge {
    /// Creates a charge of `cost` units at `at`, in the best class, without a delay or a position.
    ///
    /// For tests of rules. Elsewhere, charges come from decisions.
    pub const fn new(at: Timestamp, cost: u64) -> Self {
        Self {
            at,
            class: 0,
            cost,
            delay: Some(Duration::ZERO),
            position: None,
            origin: ChargeOrigin(0),
        }
    }

    /// Sets the class.
    #[must_use]
    pub fn with_class(self, class: u32) -> Self {
        Self { class, ..self }
    }

    /// Sets the delay; `None` if several rules were charged.
    #[must_use]
    pub fn with_delay(self, delay: Option<Duration>) -> Self {
        Self { delay, ..self }
    }

    /// Lets a token bucket refund units only if no other charge lies behind this one. Other rules
    /// refund as usual.
    ///
    /// With leases in use, what was granted behind this charge is still to be spent, by its
    /// position on the time axis.
    #[doc(hidden)]
    #[must_use]
    pub fn if_last(self) -> Self {
        // Without a position a charge is never known to be the last.
        let Position { end, refunded } = self.position.unwrap_or(Position::new(0, 0));
        let refunded = refunded | Position::IF_LAST;
        Self {
            position: Some(Position { end, refunded }),
            ..self
        }
    }

    /// Returns `false` if the charge is certainly not one of the policy with this digest of its
    /// name.
    pub(crate) fn may_be_of(&self, policy_digest: u64) -> bool {
        let policy = self.origin.0 & ChargeOrigin::POLICY;
        policy == 0 || policy == ChargeOrigin::default().of_policy(policy_digest).0
    }

    /// Returns the charge for the fallback store; `None` if the first store made it.
    pub(crate) fn in_fallback(&self) -> Option<Self> {
        let origin = ChargeOrigin(self.origin.0.checked_sub(ChargeOrigin::FALLBACK)?);
        Some(Self { origin, ..*self })
    }

    /// Returns `true` if a refund of the charge returns to a lease.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_of_lease(&self) -> bool {
        self.position.is_some_and(Position::is_of_lease)
    }

    /// Returns the instant of the call's departure, after its delay.
    pub(crate) fn departs(&self) -> Timestamp {
        self.at.saturating_add(self.delay.unwrap_or_default())
    }

    /// Copies the charge, for a store or a wrapper that settles it in one of two places.
    pub(crate) fn duplicate(&self) -> Self {
        Self { ..*self }
    }
}

impl Decision {
    /// Takes the charge out, to settle it once; `None` if nothing was charged, or it was taken
    /// before.
    ///
    /// An earlier copy of the decision still has its charge. Decisions in an
    /// [`Outcome`](crate::Outcome) have none: use
    /// [`Outcome::take_charge`](crate::Outcome::take_charge).
    pub fn take_charge(&mut self) -> Option<Charge> {
        if self.class & Self::SHARED != 0 {
            return None;
        }
        let charge = self.charge();
        *self = self.without_charge();
        charge
    }

    /// Returns the charge, which stays in the decision too.
    #[inline]
    pub(crate) fn charge(&self) -> Option<Charge> {
        if !self.is_spent() || self.cost == 0 {
            return None;
        }
        let position = match self.source.position(self.at) {
            Some(position) if position.end() == Position::SEVERAL.end() => None,
            position => position,
        };
        Some(Charge {
            at: self.at,
            class: self.classes(),
            cost: self.cost,
            delay: Some(match (self.kind, self.wait) {
                (VerdictKind::Delay | VerdictKind::DryRunDelay, Some(wait)) => wait,
                _ => Duration::ZERO,
            }),
            position,
            origin: self.origin(),
        })
    }

    /// Removes the charge, which somebody else settles.
    #[must_use]
    pub(crate) const fn without_charge(mut self) -> Self {
        // A refusal charged nothing, and its cost tells if it can ever pass.
        if self.is_spent() {
            self.cost = 0;
        }
        self
    }

    /// Removes the charge of a call in flight, which a permit gives back.
    #[inline]
    #[must_use]
    pub(crate) const fn without_held_charge(self) -> Self {
        if self.is_held() {
            return self.without_charge();
        }
        self
    }

    /// Returns the charge of a call in flight, which stays in the decision too.
    #[inline]
    pub(crate) fn held_charge(&self) -> Option<Charge> {
        if !self.is_held() {
            return None;
        }
        self.charge()
    }

    /// Records the policy of the decision, by the digest of its name.
    #[inline]
    #[must_use]
    pub(crate) const fn of_policy(self, policy_digest: u64) -> Self {
        self.with_origin(self.origin().of_policy(policy_digest))
    }

    /// Marks the decision as one of a fallback store, where its charge is settled.
    #[must_use]
    pub(crate) const fn of_fallback(self) -> Self {
        self.with_origin(self.origin().of_fallback())
    }

    /// Returns `true` for the decision of a fallback store, or of the share of a node that cannot
    /// reach its store.
    pub(crate) const fn is_of_fallback(&self) -> bool {
        self.origin().is_of_fallback()
    }

    #[inline]
    const fn origin(&self) -> ChargeOrigin {
        ChargeOrigin((self.class >> Self::ORIGIN_SHIFT & Self::ORIGIN) as u32)
    }

    #[inline]
    const fn with_origin(mut self, origin: ChargeOrigin) -> Self {
        self.class = self.class & !(Self::ORIGIN << Self::ORIGIN_SHIFT)
            | (origin.0 as u64) << Self::ORIGIN_SHIFT;
        self
    }

    /// Marks the decision as shared, so that its charge cannot be taken from it.
    pub(crate) const fn shared(mut self) -> Self {
        self.class |= Self::SHARED;
        self
    }
}
