//! The charge of a decision, and its origin.

use std::time::Duration;

use super::{
    charge::{Charge, ChargeOrigin, Position},
    decision::Decision,
    verdict::VerdictKind,
};

impl Decision {
    /// Takes the charge out, to settle it once; `None` if nothing was charged, or it was taken before.
    ///
    /// An earlier copy of the decision still has its charge. Decisions in an [`Outcome`](crate::Outcome) have none: use
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

    /// Returns `true` for the decision of a fallback store.
    pub(super) const fn is_of_fallback(&self) -> bool {
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
