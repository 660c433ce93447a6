//! Rules whose states are marks.

use super::{
    fixed_window::FixedWindow,
    leaky_bucket::LeakyBucket,
    packed_kind::PackedKind,
    packed_state::{PackedState, StoreTime},
    token_bucket::TokenBucket,
};
use crate::decision::{Cost, Decision};

/// A rule whose states are [`PackedState`]s. The page of [`Local`](crate::store::Local#memory) lists such rules.
// One type for all, so that a store has no more of them than rules of any kind: for a rule whose kind is
// known to the compiler, nothing is left of the choice.
#[derive(Clone, Copy, Debug)]
pub struct Meter<'a>(Kind<'a>);

/// A [`Meter`] by what it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    Bucket(&'a TokenBucket),
    Queue(&'a LeakyBucket),
    Window(&'a FixedWindow),
}

/// What counts in marks.
pub(crate) trait Metering {
    /// How far its marks can be ahead of the time, in ticks.
    const AHEAD: u64;

    /// As [`Meter::shape`].
    fn shape(&self) -> PackedKind;

    /// Whether marks of this shape say to the rule what its own say.
    #[inline(always)]
    fn reads(&self, shape: PackedKind) -> bool {
        self.shape() == shape
    }

    /// Whether its marks matter no longer than those of a shape that it [reads](Self::reads).
    #[inline(always)]
    fn keeps_to(&self, shape: PackedKind) -> bool {
        let _ = shape;
        true
    }

    /// As [`Meter::step`], where the mark is of a shape that it [reads](Self::reads).
    fn step_mark(
        &self,
        mark: PackedState,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision);

    /// As [`Meter::step`].
    fn step_debt(
        &self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision);

    /// As [`Meter::floor`].
    fn floor(&self, now: StoreTime) -> PackedState;
}

impl<'a> Meter<'a> {
    /// By what it counts: for whoever is in a hurry, and chooses once.
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

    /// Of a rule that has one.
    #[inline]
    pub(super) fn of_window(rule: &'a FixedWindow) -> Self {
        Self(Kind::Window(rule))
    }

    /// What the marks of this rule say, and for how long.
    #[inline]
    pub fn shape(self) -> PackedKind {
        match self.0 {
            Kind::Bucket(rule) => rule.shape(),
            Kind::Queue(rule) => rule.shape(),
            Kind::Window(rule) => rule.shape(),
        }
    }

    /// Spends `cost` if the rule allows it: the new mark if so, which is above the former one, and the decision.
    ///
    /// `None` is a key that was never seen, or is forgotten. A mark may be one of any shape: it is read as a
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
        }
    }

    /// What all marks lie above that this rule makes of keys which were never seen.
    pub(crate) fn floor(self, now: StoreTime) -> PackedState {
        match self.0 {
            Kind::Bucket(rule) => rule.floor(now),
            Kind::Queue(rule) => rule.floor(now),
            Kind::Window(rule) => rule.floor(now),
        }
    }
}
