//! The decisions about several asks.

use std::{iter, slice};

use super::Decision;

/// One decision for each [`Ask`](crate::store::Ask), in order.
///
/// # Examples
///
/// ```
/// use tollgate::{Decision, Timestamp, Verdict, store::Decisions};
///
/// let decision = |verdict| Decision::new(verdict, Timestamp::default(), 1);
/// let decisions: Decisions = [Verdict::Allow, Verdict::Refuse].map(decision).into_iter().collect();
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
