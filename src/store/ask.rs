//! What is asked of a store, and what it answers.

use std::{fmt, iter, slice};

use crate::{
    algorithm::Algorithm,
    decision::{Charge, Cost, Decision},
    key::Key,
    outcome::Policy,
};

/// One question to a store: may this key spend this cost under this rule?
pub struct Ask<'a, Rule> {
    policy: &'a Policy,
    rule: &'a Rule,
    key: Key,
    cost: Cost,
}

impl<'a, Rule> Ask<'a, Rule> {
    /// Asks for `cost` of `key` under a `rule`.
    #[inline]
    pub fn new(policy: &'a Policy, rule: &'a Rule, key: Key, cost: Cost) -> Self {
        Self {
            policy,
            rule,
            key,
            cost,
        }
    }

    /// The name of the limit; with [`key`](Self::key) it is the store's key.
    #[inline]
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// The rule that decides.
    #[inline]
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Who spends.
    #[inline]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// What is to be spent.
    #[inline]
    pub fn cost(&self) -> Cost {
        self.cost
    }
}

impl<Rule: Algorithm> Ask<'_, Rule> {
    /// The rule as this key meets it, where that is [another one](Algorithm::for_key).
    #[inline]
    pub fn rule_for_key(&self) -> Option<Rule> {
        self.rule.for_key(&|| self.key.digest())
    }
}

impl<Rule: fmt::Debug> fmt::Debug for Ask<'_, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("policy", &self.policy)
            .field("rule", self.rule())
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish()
    }
}

/// The correction of one earlier charge.
#[derive(Debug)]
pub struct Settlement<'a, Rule> {
    /// The name of the limit.
    pub policy: &'a Policy,
    /// The rule that charged.
    pub rule: &'a Rule,
    /// Who was charged.
    pub key: Key,
    /// What was taken.
    pub charge: Charge,
    /// What it really cost, in units; 0 gives everything back.
    pub actual: u64,
}

/// One decision for each [`Ask`], in order.
#[derive(Clone, Debug)]
pub struct Decisions(List);

/// Most requests have one limit: what is read of its decision is all that need be made of it.
// No `SmallVec`: a union goes through memory.
#[derive(Clone, Debug)]
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
