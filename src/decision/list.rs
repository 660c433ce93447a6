//! The decisions of a list of asks.

use std::{iter, slice};

use super::Decision;

/// One decision for each [`Ask`](crate::store::Ask), in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions(List);

/// Most requests have one limit: what is read of its decision is all that need be made of it.
// No `SmallVec`: a union goes through memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum List {
    One(Decision),
    Several(Vec<Decision>),
}

impl Decisions {
    /// The same decision for `count` asks.
    pub fn repeat(decision: Decision, count: usize) -> Self {
        iter::repeat_n(decision, count).collect()
    }

    /// The decisions.
    #[inline]
    pub fn as_slice(&self) -> &[Decision] {
        match &self.0 {
            List::One(decision) => slice::from_ref(decision),
            List::Several(decisions) => decisions,
        }
    }

    /// The decision, if it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Decision> {
        match &self.0 {
            List::One(decision) => Some(decision),
            List::Several(_) => None,
        }
    }

    /// The same decisions, each marked with the policy that asked, by the digest of its name.
    #[inline]
    pub(crate) fn of_policies(mut self, digests: impl IntoIterator<Item = u64>) -> Self {
        for (decision, digest) in self.as_mut_slice().iter_mut().zip(digests) {
            *decision = decision.of_policy(digest);
        }
        self
    }

    /// The same decisions, each marked as that of a store which another one fell back to.
    pub(crate) fn of_fallback(mut self) -> Self {
        for decision in self.as_mut_slice() {
            *decision = decision.of_fallback();
        }
        self
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [Decision] {
        match &mut self.0 {
            List::One(decision) => slice::from_mut(decision),
            List::Several(decisions) => decisions,
        }
    }

    /// Whether every one of them lets the request pass.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.as_slice().iter().all(Decision::is_admitted)
    }
}

impl Default for Decisions {
    /// None.
    fn default() -> Self {
        Self(List::Several(Vec::new()))
    }
}

impl From<Decision> for Decisions {
    #[inline]
    fn from(decision: Decision) -> Self {
        Self(List::One(decision))
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
                Self(List::Several(all.collect()))
            }
        }
    }
}
