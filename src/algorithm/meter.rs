//! Rules whose states are packed states.

use super::{
    fixed_window::FixedWindow,
    leaky_bucket::LeakyBucket,
    packed_kind::PackedKind,
    packed_state::{PackedState, StoreTime},
    sliding_window::SlidingWindow,
    token_bucket::TokenBucket,
};
use crate::decision::{Cost, Decision};

/// A rule whose states are [`PackedState`]s. The page of [`Local`](crate::store::Local#memory) lists such rules.
// One type for all, so that a store has no more of them than rules of any kind: for a rule whose kind is
// known to the compiler, nothing is left of the choice.
#[derive(Clone, Copy, Debug)]
pub struct Meter<'a>(Kind<'a>);

/// The rule of a [`Meter`], by its algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    Bucket(&'a TokenBucket),
    Queue(&'a LeakyBucket),
    Window(&'a FixedWindow),
    Slices(&'a SlidingWindow),
}

/// A rule that counts in packed states.
pub(crate) trait Metering {
    /// The greatest distance of its packed states ahead of the time, in ticks.
    const AHEAD: u64;

    /// See [`Meter::packed_kind`].
    fn packed_kind(&self) -> PackedKind;

    /// Returns `true` if packed states of this kind mean the same to the rule as its own.
    #[inline(always)]
    fn reads(&self, packed_kind: PackedKind) -> bool {
        self.packed_kind() == packed_kind
    }

    /// Returns `true` if its packed states matter no longer than those of a kind that it [reads](Self::reads).
    #[inline(always)]
    fn keeps_to(&self, packed_kind: PackedKind) -> bool {
        let _ = packed_kind;
        true
    }

    /// Steps on a packed state of a kind that it [reads](Self::reads); see [`Meter::step`].
    fn step_packed(
        &self,
        packed: PackedState,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision);

    /// See [`Meter::step`].
    fn step_debt(
        &self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision);

    /// See [`Meter::floor`].
    fn floor(&self, now: StoreTime) -> PackedState;
}

impl<'a> Meter<'a> {
    /// Returns the rule by its algorithm, so that a fast path can choose once.
    #[inline(always)]
    pub(crate) fn kind(self) -> Kind<'a> {
        self.0
    }

    #[inline]
    pub(super) fn of_bucket(rule: &'a TokenBucket) -> Self {
        Self(Kind::Bucket(rule))
    }

    #[inline]
    pub(super) fn of_queue(rule: &'a LeakyBucket) -> Self {
        Self(Kind::Queue(rule))
    }

    /// Creates the meter of a rule that has one.
    #[inline]
    pub(super) fn of_window(rule: &'a FixedWindow) -> Self {
        Self(Kind::Window(rule))
    }

    #[inline]
    pub(super) fn of_slices(rule: &'a SlidingWindow) -> Self {
        Self(Kind::Slices(rule))
    }

    /// Returns the kind of the rule's packed states, and the time for which they matter.
    #[inline]
    pub fn packed_kind(self) -> PackedKind {
        match self.0 {
            Kind::Bucket(rule) => rule.packed_kind(),
            Kind::Queue(rule) => rule.packed_kind(),
            Kind::Window(rule) => rule.packed_kind(),
            Kind::Slices(rule) => rule.packed_kind(),
        }
    }

    /// Spends `cost` if the rule allows it. Returns the new packed state, which is above the former one, if so; and the decision.
    ///
    /// `None` is a key that is new or forgotten. A packed state may have any kind: it is read as a
    /// [debt](PackedKind::DEBT).
    #[inline]
    pub fn step(
        self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        match self.0 {
            Kind::Bucket(rule) => rule.step_debt(debt, now, cost),
            Kind::Queue(rule) => rule.step_debt(debt, now, cost),
            Kind::Window(rule) => rule.step_debt(debt, now, cost),
            Kind::Slices(rule) => rule.step_debt(debt, now, cost),
        }
    }

    /// Returns a packed state below all those that this rule makes for new keys.
    pub(crate) fn floor(self, now: StoreTime) -> PackedState {
        match self.0 {
            Kind::Bucket(rule) => rule.floor(now),
            Kind::Queue(rule) => rule.floor(now),
            Kind::Window(rule) => rule.floor(now),
            Kind::Slices(rule) => rule.floor(now),
        }
    }
}
