//! What an admission took, to be settled once.

use std::{num::NonZeroU64, time::Duration};

use super::Decision;
use crate::time::Timestamp;

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
    maker: Maker,
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

/// Who made a charge: its policy, by some bits of the digest of its name, 0 where nobody said; and its store, by how many
/// others had failed before that one was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Maker(u32);

impl Maker {
    pub(super) const BITS: u32 = 23;
    /// One store that had failed; three at most are told, above the policy.
    const FALLBACK: u32 = 1 << (Self::BITS - 2);
    const POLICY: u32 = Self::FALLBACK - 1;
    const KNOWN: u32 = Self::FALLBACK >> 1;

    #[inline]
    const fn of_policy(self, digest: u64) -> Self {
        let policy = (digest >> (u64::BITS - Self::POLICY.count_ones())) as u32 | Self::KNOWN;
        Self(self.0 & !Self::POLICY | policy)
    }

    const fn of_fallback(self) -> Self {
        match self.0 / Self::FALLBACK {
            3.. => self,
            _ => Self(self.0 + Self::FALLBACK),
        }
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
            maker: Maker(0),
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
        let policy = self.maker.0 & Maker::POLICY;
        policy == 0 || policy == Maker::default().of_policy(policy_digest).0
    }

    /// The charge as a store knows it that another one fell back to; `None` where that other one made it.
    pub(crate) fn in_fallback(&self) -> Option<Self> {
        let maker = Maker(self.maker.0.checked_sub(Maker::FALLBACK)?);
        Some(Self { maker, ..*self })
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
    pub fn take_charge(&mut self) -> Option<Charge> {
        if self.class & Self::SHARED != 0 {
            return None;
        }
        let charge = self.charge();
        self.cost = 0;
        charge
    }

    /// What was charged, which stays with the decision.
    pub(crate) fn charge(&self) -> Option<Charge> {
        if !self.is_spent() || self.cost == 0 {
            return None;
        }
        let position = match self.source.position(self.at) {
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
            maker: self.maker(),
        })
    }

    /// The decision of a limit whose policy's name has this digest.
    #[inline]
    #[must_use]
    pub(crate) const fn of_policy(self, policy_digest: u64) -> Self {
        self.with_maker(self.maker().of_policy(policy_digest))
    }

    /// The decision of a store that another one fell back to: its charge is settled there.
    #[must_use]
    pub(crate) const fn of_fallback(self) -> Self {
        self.with_maker(self.maker().of_fallback())
    }

    #[inline]
    const fn maker(&self) -> Maker {
        Maker((self.class >> Self::MAKER_SHIFT & Self::MAKER) as u32)
    }

    #[inline]
    const fn with_maker(mut self, maker: Maker) -> Self {
        self.class = self.class & !(Self::MAKER << Self::MAKER_SHIFT)
            | (maker.0 as u64) << Self::MAKER_SHIFT;
        self
    }

    /// The decision as others than its owner see it: its charge cannot be taken from here.
    pub(crate) const fn shared(mut self) -> Self {
        self.class |= Self::SHARED;
        self
    }
}
