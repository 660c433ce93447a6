//! What an admission took, to be settled once.

use std::{num::NonZeroU64, time::Duration};

use super::Decision;
use crate::clock::Timestamp;

/// What an admitted [`Decision`] took, for one later [settlement](crate::store::Settlement).
///
/// A charge settles once: it is [taken out of its decision](Decision::take_charge), or out of the
/// [outcome](crate::Outcome::take_charge) of a request, and a settlement consumes it.
///
/// ```
/// use tollgate::{Charge, Cost, Policy, TokenBucket, store::{Ask, Local}};
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
    /// When it was taken, on the store's timeline.
    pub at: Timestamp,
    /// The class it was admitted in, 0 being the best; of several rules charged together, the class
    /// under each, that of the first one lowest, in the
    /// [bits that each takes](crate::algorithm::Algorithm::class_bits).
    pub class: u32,
    /// The units taken.
    pub cost: u64,
    /// How long the call was delayed; `None` where several rules were charged together, and the decision has the
    /// longest of their delays.
    pub delay: Option<Duration>,
    /// Where the charge lies on the time axis of a [`TokenBucket`](crate::TokenBucket); `None` for other rules, and where
    /// several buckets were charged together.
    pub position: Option<Position>,
    policy: PolicyMark,
}

/// Where a charge lies on the time axis of its token bucket.
///
/// A bucket is full again at its theoretical arrival time (ITU-T I.371), and each charge moves that by what
/// its cost takes to refill. The span that it was moved by is the charge's own; refill restores it from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    end: NonZeroU64,
    given_back: u64,
}

impl Position {
    /// The position of a charge after which the bucket is full again at `end`, when `given_back` nanoseconds had been given
    /// back to its key.
    pub(crate) const fn new(end: u64, given_back: u64) -> Self {
        let end = match NonZeroU64::new(end) {
            Some(end) => end,
            None => NonZeroU64::MIN,
        };
        Self { end, given_back }
    }

    /// When the bucket would have been full again right after the charge, in nanoseconds rounded down.
    pub(crate) fn end(self) -> u64 {
        self.end.get()
    }

    /// How many nanoseconds had been given back to the key before.
    pub(crate) fn given_back(self) -> u64 {
        self.given_back
    }

    /// The position of a charge to several buckets: none that all of them share.
    const SEVERAL: Self = Self {
        end: NonZeroU64::MAX,
        given_back: 0,
    };

    /// The position of a charge that two rules share.
    pub(super) const fn of_both(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (None, position) | (position, None) => position,
            (Some(_), Some(_)) => Some(Self::SEVERAL),
        }
    }
}

/// Which policy a charge belongs to: some bits of the digest of its name, or 0 where nobody said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PolicyMark(u32);

impl PolicyMark {
    pub(super) const BITS: u32 = 23;
    const KNOWN: u64 = 1 << (Self::BITS - 1);

    #[inline]
    pub(crate) const fn new(policy_digest: u64) -> Self {
        Self((policy_digest >> (u64::BITS - Self::BITS) | Self::KNOWN) as u32)
    }

    #[inline]
    pub(super) const fn bits(self) -> u64 {
        self.0 as u64
    }

    pub(super) const fn of_bits(bits: u64) -> Self {
        Self(bits as u32)
    }
}

impl Charge {
    /// A charge of `cost` units at `at`, in the best class, without a delay or a position.
    ///
    /// For tests of a rule; stores make the charges of their decisions.
    pub const fn new(at: Timestamp, cost: u64) -> Self {
        Self {
            at,
            class: 0,
            cost,
            delay: Some(Duration::ZERO),
            position: None,
            policy: PolicyMark(0),
        }
    }

    /// The same charge, in another class.
    #[must_use]
    pub fn with_class(self, class: u32) -> Self {
        Self { class, ..self }
    }

    /// The same charge, delayed; `None` where several rules were charged.
    #[must_use]
    pub fn with_delay(self, delay: Option<Duration>) -> Self {
        Self { delay, ..self }
    }

    /// Whether a policy whose name has this digest may have made the charge.
    pub(crate) fn may_be_of(&self, policy_digest: u64) -> bool {
        self.policy == PolicyMark::default() || self.policy == PolicyMark::new(policy_digest)
    }

    /// The same charge once more: for a store or a wrapper that settles it in one of two places.
    pub(crate) fn duplicate(&self) -> Self {
        Self { ..*self }
    }
}

impl Decision {
    /// Takes out what was charged, to be settled once; `None` when nothing was, or it was taken before.
    ///
    /// A copy of the decision that was made earlier still has its charge. What an [`Outcome`](crate::Outcome) shows has none:
    /// take it from [there](crate::Outcome::take_charge).
    pub const fn take_charge(&mut self) -> Option<Charge> {
        if self.class & Self::SHARED != 0 {
            return None;
        }
        let charge = self.charge();
        self.cost = 0;
        charge
    }

    /// What was charged, which stays with the decision.
    pub(crate) const fn charge(&self) -> Option<Charge> {
        if !self.is_spent() || self.cost == 0 {
            return None;
        }
        let position = match self.standing.position(self.at) {
            Some(position) if position.end.get() == Position::SEVERAL.end.get() => None,
            position => position,
        };
        Some(Charge {
            at: self.at,
            class: self.classes(),
            cost: self.cost,
            delay: Some(match self.delay() {
                Some(wait) => wait,
                None => Duration::ZERO,
            }),
            position,
            policy: PolicyMark::of_bits(self.class >> Self::POLICY_SHIFT & Self::POLICY),
        })
    }

    /// The decision of a limit whose policy's name has this digest.
    #[inline]
    #[must_use]
    pub(crate) const fn of_policy(mut self, policy_digest: u64) -> Self {
        self.class = self.class & !(Self::POLICY << Self::POLICY_SHIFT)
            | PolicyMark::new(policy_digest).bits() << Self::POLICY_SHIFT;
        self
    }

    /// The decision as others than its owner see it: its charge cannot be taken from here.
    pub(crate) const fn shared(mut self) -> Self {
        self.class |= Self::SHARED;
        self
    }
}
