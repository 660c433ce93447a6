//! Decisions of several rules: which is the nearest to exhaustion, and what they are as one.

use std::{cmp::Ordering, time::Duration};

use super::{
    charge::Position,
    decision::{CLASS_BITS, Decision, Kind, Limit},
    numbers::{Numbers, Source},
};
use crate::time::Timestamp;

impl Decision {
    /// Whether this one leaves less than `other`, as a share of what each allows at most.
    ///
    /// A refusal comes before every admission, and an undecided answer last.
    pub fn is_nearer_exhaustion_than(&self, other: &Self) -> bool {
        self.nearness(other).is_lt()
    }

    /// Orders decisions by how near to exhaustion they are, the nearest first.
    pub(crate) fn nearness(&self, other: &Self) -> Ordering {
        let rank = |decision: &Self| match decision.kind {
            Kind::Refuse => 0,
            Kind::TurnedAway | Kind::Unsupported => 1,
            Kind::Allow | Kind::Delay => 2,
            Kind::LetThrough => 3,
        };
        let share = |this: &Self, that: &Self| {
            u128::from(this.source.numbers().remaining) * u128::from(that.limit().unwrap_or(1))
        };
        rank(self)
            .cmp(&rank(other))
            .then_with(|| share(self, other).cmp(&share(other, self)))
    }

    /// One decision for two limits that are spent together or not at all.
    ///
    /// The capacity, what remains and the rate are the smaller ones; every wait is the longer. The classes
    /// of the first one take `class_bits`.
    pub(crate) fn and(self, other: Self, class_bits: u32) -> Self {
        let above = u64::from(other.classes()).checked_shl(class_bits);
        let classes = u64::from(self.classes()) | above.unwrap_or(0) & u64::from(u32::MAX);
        let class = self.class().max(other.class());
        let position = |decision: &Self| decision.source.position(decision.at);
        let position = Position::of_both(position(&self), position(&other));
        let (near, far) = if other.is_nearer_exhaustion_than(&self) {
            (other, self)
        } else {
            (self, other)
        };
        // An allowed one waits for nothing, so the longer wait is the delay of both.
        let kind = match (near.kind, far.kind) {
            (Kind::Allow, Kind::Delay) => Kind::Delay,
            (kind, _) => kind,
        };
        // Where one refuses, what the other would have waited is no reason to come later.
        let wait = |decision: &Self| match kind {
            Kind::Delay => decision.wait,
            _ => decision.retry_after(),
        };
        let (a, b) = (near.source.numbers(), far.source.numbers());
        let more_after = match a.remaining.cmp(&b.remaining) {
            Ordering::Less => a.more_after,
            Ordering::Greater => b.more_after,
            // Both must grow, and one that is full cannot.
            Ordering::Equal if a.more_after.is_zero() || b.more_after.is_zero() => Duration::ZERO,
            Ordering::Equal => a.more_after.max(b.more_after),
        };
        Self {
            kind,
            class: classes << CLASS_BITS | u64::from(class),
            at: near.at.max(far.at),
            cost: near.cost,
            limit: match (near.limit, far.limit) {
                (Some(a), Some(b)) => Some(Limit {
                    capacity: a.capacity.min(b.capacity),
                    quota: a.quota.slower(b.quota),
                }),
                _ => None,
            },
            wait: match (wait(&near), wait(&far)) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            },
            source: Source::Given(
                Numbers {
                    remaining: a.remaining.min(b.remaining),
                    reset_after: a.reset_after.max(b.reset_after),
                    more_after,
                },
                position,
            ),
        }
    }

    /// Clears `retry_after` and `more_after` when one of several rules will have become too strict by then.
    ///
    /// While a key is idle, each rule admits a cost from some instant on, and a rule that
    /// [may shrink](crate::algorithm::Algorithm::may_shrink_when_idle) admits it up to some instant. So if they do not all admit it
    /// at the longest of their waits, they never will.
    pub(crate) fn without_lapsed_waits(self, asked: u64, look: impl Fn(Timestamp) -> Self) -> Self {
        let at_last = |wait: Duration, cost: u64| {
            let at = u64::try_from(wait.as_nanos()).ok();
            let at = at.and_then(|wait| self.at.as_nanos().checked_add(wait));
            // What lies beyond all instants is not looked at.
            at.is_none_or(|at| {
                let remaining = look(Timestamp::from_nanos(at)).remaining();
                remaining.is_some_and(|units| units >= cost)
            })
        };
        let retry_after = self.retry_after().filter(|wait| at_last(*wait, asked));
        let numbers = self.numbers();
        let grows = at_last(numbers.more_after, numbers.remaining.saturating_add(1));
        let more_after = if grows {
            numbers.more_after
        } else {
            Duration::ZERO
        };
        let mut lasting = self.with_retry_after(retry_after);
        lasting.source = Source::Given(
            Numbers {
                more_after,
                ..numbers
            },
            self.source.position(self.at),
        );
        lasting
    }
}
