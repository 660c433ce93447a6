//! Comparison and combination of the decisions of several rules.

use std::{cmp::Ordering, iter, slice, time::Duration};

use super::{
    CLASS_BITS, Decision, VerdictKind,
    charge::Position,
    numbers::{Numbers, NumbersSource},
};
use crate::time::Timestamp;

impl Decision {
    /// Returns `true` if this decision leaves less than `other`, as a share of the capacity of
    /// each.
    ///
    /// A refusal leaves less than any admission. An undecided answer that admits the request leaves
    /// most.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    /// use tollgate::{Decision, Quota, Timestamp, Verdict};
    ///
    /// let decision = |capacity, remaining| {
    ///     Decision::new(Verdict::Allow, Timestamp::default(), 1)
    ///         .with_limit(NonZeroU64::new(capacity).unwrap(), Quota::per_minute(capacity))
    ///         .with_remaining(remaining)
    /// };
    /// assert!(decision(1000, 100).leaves_less_than(&decision(10, 5)));
    /// ```
    pub fn leaves_less_than(&self, other: &Self) -> bool {
        self.nearness(other).is_lt()
    }

    /// Orders decisions by the share of the capacity that they leave, the smallest first.
    pub(crate) fn nearness(&self, other: &Self) -> Ordering {
        let remaining = |decision: &Self| decision.source.remaining();
        self.nearness_with(remaining(self), other, remaining(other))
    }

    /// Orders decisions for formats that report one of them, the one to report first: of refusals
    /// that which ends last, then the [nearest](Self::nearness), then that with the later reset.
    ///
    /// A client that waits for the reset of another refusal would be refused again.
    pub(crate) fn report_order(&self, other: &Self) -> Ordering {
        let refused_for = |decision: &Self| {
            let wait = decision.retry_after();
            // Never is longer than any wait.
            (decision.kind == VerdictKind::Refuse).then_some((wait.is_none(), wait))
        };
        refused_for(other)
            .cmp(&refused_for(self))
            .then_with(|| self.nearness(other))
            .then_with(|| other.full_after().cmp(&self.full_after()))
    }

    /// Returns [`nearness`](Self::nearness), given the remaining units of both.
    fn nearness_with(&self, ours: u64, other: &Self, theirs: u64) -> Ordering {
        let rank = |decision: &Self| match decision.kind {
            VerdictKind::Refuse => 0,
            VerdictKind::FailedClosed | VerdictKind::Unsupported => 1,
            VerdictKind::Allow | VerdictKind::Delay => 2,
            VerdictKind::FailedOpen => 3,
            // Without effect on the request, so further than any other.
            VerdictKind::DryRunRefuse | VerdictKind::DryRunAllow | VerdictKind::DryRunDelay => 4,
        };
        let share = |remaining: u64, that: &Self| {
            u128::from(remaining) * u128::from(that.limit().unwrap_or(1))
        };
        rank(self)
            .cmp(&rank(other))
            .then_with(|| share(ours, other).cmp(&share(theirs, self)))
    }

    /// Combines the decisions of two limits that are charged together or not at all.
    ///
    /// The capacity and the remaining units are the smaller ones; every wait is the longer one. The
    /// slower rule [is announced](RuleLimit::and). The classes of the first one take `class_bits`.
    pub(crate) fn and(self, other: Self, class_bits: u32) -> Self {
        let above = u64::from(other.classes()).checked_shl(class_bits);
        let classes = u64::from(self.classes()) | above.unwrap_or(0) & u64::from(u32::MAX);
        let class = self.class().max(other.class());
        let position = |decision: &Self| decision.source.position(decision.at);
        let position = Position::of_both(position(&self), position(&other));
        let (ours, theirs) = (self.source.numbers(), other.source.numbers());
        let order = self.nearness_with(ours.remaining, &other, theirs.remaining);
        let (near, a, far, b) = match order {
            Ordering::Greater => (other, theirs, self, ours),
            _ => (self, ours, other, theirs),
        };
        // An admission without a delay has a wait of zero, so the longer wait is the delay of both.
        let kind = match (near.kind, far.kind) {
            (VerdictKind::Allow, VerdictKind::Delay) => VerdictKind::Delay,
            (kind, _) => kind,
        };
        // If one refuses, the delay of the other does not postpone the retry.
        let wait = |decision: &Self| match kind {
            VerdictKind::Delay => decision.wait,
            _ => decision.retry_after(),
        };
        let more_after = match a.remaining.cmp(&b.remaining) {
            Ordering::Less => a.more_after,
            Ordering::Greater => b.more_after,
            // Both must grow, and a full one cannot.
            Ordering::Equal if a.more_after.is_zero() || b.more_after.is_zero() => Duration::ZERO,
            Ordering::Equal => a.more_after.max(b.more_after),
        };
        let full_after = self.source.full_after(ours.reset_after);
        let full_after = full_after.max(other.source.full_after(theirs.reset_after));
        let both = Self {
            kind,
            class: classes << CLASS_BITS | u64::from(class),
            at: near.at.max(far.at),
            cost: near.cost,
            limit: match (self.limit, other.limit) {
                (Some(a), Some(b)) => Some(a.and(b)),
                _ => None,
            },
            wait: match (wait(&near), wait(&far)) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            },
            source: NumbersSource::Stored(
                Numbers {
                    remaining: a.remaining.min(b.remaining),
                    reset_after: a.reset_after.max(b.reset_after),
                    more_after,
                },
                position,
            ),
        };
        both.with_full_after(full_after)
    }

    /// Clears the waits of a combined decision after which a rule that shrinks when idle would
    /// refuse.
    ///
    /// While a key is idle, such a rule lets a cost pass only until some instant, and any rule lets
    /// it pass from some instant on. So if the cost does not pass at the end of the longest wait,
    /// it never does.
    pub(crate) fn without_lapsed_waits(self, asked: u64, look: impl Fn(Timestamp) -> Self) -> Self {
        let passes_after = |wait: Duration, cost: u64| {
            let at = u64::try_from(wait.as_nanos()).ok();
            let at = at.and_then(|wait| self.at.as_nanos().checked_add(wait));
            // An instant above the maximum is not checked.
            at.is_none_or(|at| {
                let remaining = look(Timestamp::from_nanos(at)).remaining();
                remaining.is_some_and(|units| units >= cost)
            })
        };
        let retry_after = self.retry_after().filter(|wait| passes_after(*wait, asked));
        let numbers = self.numbers();
        let grows = passes_after(numbers.more_after, numbers.remaining.saturating_add(1));
        let more_after = if grows {
            numbers.more_after
        } else {
            Duration::ZERO
        };
        let mut decision = self.with_retry_after(retry_after);
        decision.source = self.source.with(
            Numbers {
                more_after,
                ..numbers
            },
            self.source.position(self.at),
        );
        decision
    }
}

/// One decision for each [`Ask`](crate::store::driver::Ask), in order.
///
/// # Examples
///
/// ```
/// use tollgate::{Decision, Timestamp, Verdict, store::driver::Decisions};
///
/// let decision = |verdict| Decision::new(verdict, Timestamp::default(), 1);
/// let decisions: Decisions = [Verdict::Allow, Verdict::Refuse]
///     .map(decision)
///     .into_iter()
///     .collect();
/// assert_eq!(decisions.as_slice().len(), 2);
/// assert!(!decisions.is_admitted());
/// ```
#[derive(Clone, Debug)]
pub struct Decisions(DecisionList);

/// A list that stores a single decision inline, because most requests have one limit.
// Not a `SmallVec`: its union would pass through memory.
#[derive(Clone, Debug)]
enum DecisionList {
    One(Decision),
    Several(Vec<Decision>),
}

impl Decisions {
    /// Creates a list of `count` copies of a decision.
    pub fn repeat(decision: Decision, count: usize) -> Self {
        iter::repeat_n(decision, count).collect()
    }

    /// Creates a list of two decisions.
    #[inline]
    pub(crate) fn two(first: &Decision, second: &Decision) -> Self {
        Self(DecisionList::Several(vec![*first, *second]))
    }

    /// Returns the decisions as a slice.
    #[inline]
    pub fn as_slice(&self) -> &[Decision] {
        match &self.0 {
            DecisionList::One(decision) => slice::from_ref(decision),
            DecisionList::Several(decisions) => decisions,
        }
    }

    /// Returns the decision if it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Decision> {
        match &self.0 {
            DecisionList::One(decision) => Some(decision),
            DecisionList::Several(_) => None,
        }
    }

    /// Makes them as many as a store was asked for. A store that answers too few asks is wrong, and
    /// opens no gate: it does not support the others.
    #[inline(always)]
    pub(crate) fn complete(&mut self, asks: usize) {
        if self.as_slice().len() != asks {
            self.resize(asks);
        }
    }

    #[cold]
    fn resize(&mut self, asks: usize) {
        let unanswered = Decision::unsupported(Timestamp::default());
        let answered = self.as_slice().iter().copied();
        *self = answered
            .chain(iter::repeat(unanswered))
            .take(asks)
            .collect();
    }

    /// Records the policy of each decision, by the digest of its name.
    #[inline]
    pub(crate) fn of_policies(mut self, digests: impl IntoIterator<Item = u64>) -> Self {
        for (decision, digest) in self.as_mut_slice().iter_mut().zip(digests) {
            *decision = decision.of_policy(digest);
        }
        self
    }

    /// Marks each decision as one of a fallback store.
    pub(crate) fn of_fallback(mut self) -> Self {
        for decision in self.as_mut_slice() {
            *decision = decision.of_fallback();
        }
        self
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Decision] {
        match &mut self.0 {
            DecisionList::One(decision) => slice::from_mut(decision),
            DecisionList::Several(decisions) => decisions,
        }
    }

    /// Returns `true` if all of them admit the request.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.as_slice().iter().all(Decision::is_admitted)
    }
}

impl PartialEq for Decisions {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Decisions {}

impl Default for Decisions {
    /// Creates an empty list.
    fn default() -> Self {
        Self(DecisionList::Several(Vec::new()))
    }
}

impl From<Decision> for Decisions {
    #[inline]
    fn from(decision: Decision) -> Self {
        Self(DecisionList::One(decision))
    }
}

impl From<Vec<Decision>> for Decisions {
    fn from(decisions: Vec<Decision>) -> Self {
        match &*decisions {
            [only] => (*only).into(),
            _ => Self(DecisionList::Several(decisions)),
        }
    }
}

impl FromIterator<Decision> for Decisions {
    fn from_iter<I: IntoIterator<Item = Decision>>(decisions: I) -> Self {
        let mut decisions = decisions.into_iter();
        let Some(first) = decisions.next() else {
            return Self::default();
        };
        match decisions.next() {
            None => first.into(),
            Some(second) => {
                let all = [first, second].into_iter().chain(decisions);
                Self(DecisionList::Several(all.collect()))
            }
        }
    }
}
