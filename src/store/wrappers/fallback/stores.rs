//! The two stores of a fallback, and its counters.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicU64, Ordering},
};

use smallvec::SmallVec;

use crate::store::{Ask, Check, Decisions, Error, FailureMode, NeverFails, OnFailure, Store};

/// A function that returns the rule under which this node may decide on its own, if any.
pub(super) type ShareOf<Rule> = dyn Fn(&Rule) -> Option<Rule> + Send + Sync;

/// A remote store and the local one that replaces it, shared by all clones of a fallback.
pub(super) struct Stores<S, L, Rule> {
    /// Counts the failures of the remote store.
    pub(super) remote: OnFailure<S>,
    pub(super) local: L,
    pub(super) share_of: Box<ShareOf<Rule>>,
    // Relaxed: the counts are for reports and order nothing.
    pub(super) decided: AtomicU64,
    pub(super) turned_away: AtomicU64,
}

/// The two operations that can fall back.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Acquire,
    Look,
}

impl Operation {
    pub(super) fn run<Rule, S: Store<Rule>>(
        self,
        store: &S,
        asks: &[Ask<'_, Rule>],
    ) -> Check<S::Answer> {
        match self {
            Self::Acquire => store.acquire(asks),
            Self::Look => store.look(asks),
        }
    }
}

impl<S, L, Rule> Stores<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
{
    /// Continues with the local store after an error of the remote one, unless that was contention or an unsupported call.
    pub(super) fn fall_back(
        &self,
        error: S::Error,
        operation: Operation,
        asks: &[Ask<'_, Rule>],
    ) -> ControlFlow<Decisions, L::Answer> {
        let policies = asks.iter().map(Ask::policy);
        if let Some(decisions) = self.remote.record(error, policies, asks.len()) {
            return ControlFlow::Break(decisions);
        }
        let shares = asks.iter().map(|ask| (self.share_of)(ask.rule()));
        let Some(shares) = shares.collect::<Option<SmallVec<[Rule; 1]>>>() else {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return ControlFlow::Break(FailureMode::Closed.decisions(asks.len()));
        };
        let asks = asks.iter().zip(&shares);
        let asks = asks.map(|(ask, rule)| Ask::new(ask.policy(), rule, *ask.key(), ask.cost()));
        match operation.run(&self.local, &asks.collect::<SmallVec<[_; 1]>>()) {
            Check::Ready(answer) => ControlFlow::Break(self.local_decisions(answer)),
            Check::Pending(answer) => ControlFlow::Continue(answer),
        }
    }

    /// Counts and marks the decisions of the local store.
    pub(super) fn local_decisions(&self, answer: Result<Decisions, L::Error>) -> Decisions {
        self.decided.fetch_add(1, Ordering::Relaxed);
        answer.unwrap_or_else(NeverFails::never).of_fallback()
    }
}
