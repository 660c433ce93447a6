//! The end of a key's block, and the decisions that follow from it.

use std::{num::NonZeroU64, time::Duration};

use super::Block;
use crate::{
    algorithm::{Algorithm, StateKind, Step, packed::BuiltIn},
    decision::{Charge, Cost, Decision, Numbers, Verdict},
    quota::Quota,
    time::Timestamp,
};

/// The state of a blocked key.
// `packed(4)` like the states of rules: 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct BlockState {
    /// The instant from which on the key is not blocked.
    pub(super) until: Timestamp,
    /// Reserved for penalties that grow: 0 today.
    pub(super) level: u8,
}

/// The limit that decisions report: a key that is not blocked takes one charge, as under a limit
/// of 1.
const LIMIT: (NonZeroU64, Quota) = (NonZeroU64::MIN, Quota::new(1, Duration::from_millis(1)));

/// Returns the decision about a key that is blocked for another `left`.
fn decision(verdict: Verdict, now: Timestamp, cost: u64, left: Duration) -> Decision {
    Decision::new(verdict, now, cost)
        .with_limit(LIMIT.0, LIMIT.1)
        .with_numbers(Numbers {
            remaining: u64::from(left.is_zero()),
            reset_after: left,
            more_after: left,
        })
}

impl Algorithm for Block {
    type State = BlockState;

    /// If the clock steps back, the end of an earlier block stays as it is.
    fn step(&self, state: &mut Option<BlockState>, now: Timestamp, cost: Cost) -> Step {
        let before = state.filter(|state| { state.until } > now);
        let until = now.saturating_add(self.duration());
        if let Some(BlockState { until: end, .. }) = before
            && (!self.extends || end >= until)
        {
            let left = end.saturating_since(now);
            let wait = match self.extends {
                true => end
                    .saturating_since(until)
                    .saturating_add(Duration::from_nanos(1)),
                false => left,
            };
            let refusal = decision(Verdict::Refuse, now, cost.get(), left);
            return Step::Kept(refusal.with_retry_after(Some(wait)));
        }
        let level = before.map_or(0, |state| state.level);
        *state = Some(BlockState { until, level });
        let left = until.saturating_since(now);
        Step::Wrote(decision(Verdict::Allow, now, cost.get(), left))
    }

    /// Refuses while the key is blocked. The rule's own duration does not matter.
    fn look(&self, state: Option<&BlockState>, now: Timestamp) -> Decision {
        let left = state.map_or(Duration::ZERO, |state| {
            { state.until }.saturating_since(now)
        });
        let verdict = match left.is_zero() {
            true => Verdict::Allow,
            false => Verdict::Refuse,
        };
        decision(verdict, now, 0, left).with_retry_after(Some(left))
    }

    /// Does nothing: a block is removed or extended, but never corrected.
    fn settle(&self, _: &mut Option<BlockState>, _: &Charge, _: Timestamp, _: u64) {}

    fn forgettable_at(&self, state: &BlockState) -> Timestamp {
        state.until
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    /// `None`, because charges are never refunded.
    fn grant_slack(&self) -> Option<u64> {
        None
    }

    fn built_in(&self) -> BuiltIn<'_, BlockState> {
        BuiltIn::of_block(self)
    }
}
