//! The end of a `settle` or `reset`.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use smallvec::SmallVec;

use super::shared::{Correction, Shared};
use crate::{
    key::Key,
    outcome::Policy,
    store::{Check, Error, NeverFails, Settlement, Store},
};

pin_project! {
    /// The future end of a [`FallBackTo`](super::FallBackTo) store's `settle` or `reset`.
    pub struct FallBackDone<S, L, Rule>
    where
        S: Store<Rule>,
        L: Store<Rule>,
    {
        #[pin]
        remote: Option<S::Done>,
        #[pin]
        local: Option<L::Done>,
        // What the local store is told if the remote one fails; nothing by a `reset`.
        corrections: SmallVec<[Correction<Rule>; 1]>,
        // Of a `reset`.
        policy: Option<Policy>,
        shared: Arc<Shared<S, L, Rule>>,
    }
}

/// Corrects charges on the remote store, or on the local one where that fails.
pub(super) fn settle<S, L, Rule>(
    shared: &Arc<Shared<S, L, Rule>>,
    settlements: Vec<Settlement<'_, Rule>>,
) -> Check<FallBackDone<S, L, Rule>>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    let corrections: SmallVec<[_; 1]> = settlements.iter().map(Correction::of).collect();
    let remote = shared.remote.settle(settlements);
    match remote {
        Check::Ready(Ok(())) => Check::Ready(Ok(())),
        Check::Ready(Err(error)) => {
            shared.failed(error, policies(&corrections));
            let local = shared.correct(&corrections);
            FallBackDone::new(shared, None, pending(local), SmallVec::new(), None)
        }
        Check::Pending(remote) => FallBackDone::new(shared, Some(remote), None, corrections, None),
    }
}

/// Forgets a key in both stores, and what it owes.
pub(super) fn reset<S, L, Rule>(
    shared: &Arc<Shared<S, L, Rule>>,
    policy: &Policy,
    key: &Key,
) -> Check<FallBackDone<S, L, Rule>>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    shared.debts.forget(policy, key);
    let local = pending(shared.local.reset(policy, key));
    let remote = match shared.remote.reset(policy, key) {
        Check::Ready(result) => {
            if let Err(error) = result {
                shared.failed(error, [policy]);
            }
            None
        }
        Check::Pending(remote) => Some(remote),
    };
    let policy = Some(policy.clone());
    FallBackDone::new(shared, remote, local, SmallVec::new(), policy)
}

fn policies<Rule>(corrections: &[Correction<Rule>]) -> impl Iterator<Item = &Policy> {
    corrections.iter().map(|correction| &correction.policy)
}

/// What is not done at once.
fn pending<F: Future>(check: Check<F>) -> Option<F> {
    match check {
        Check::Ready(_) => None,
        Check::Pending(done) => Some(done),
    }
}

impl<S, L, Rule> FallBackDone<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    fn new(
        shared: &Arc<Shared<S, L, Rule>>,
        remote: Option<S::Done>,
        local: Option<L::Done>,
        corrections: SmallVec<[Correction<Rule>; 1]>,
        policy: Option<Policy>,
    ) -> Check<Self> {
        if remote.is_none() && local.is_none() {
            return Check::Ready(Ok(()));
        }
        let shared = Arc::clone(shared);
        Check::Pending(Self {
            remote,
            local,
            corrections,
            policy,
            shared,
        })
    }
}

impl<S, L, Rule> fmt::Debug for FallBackDone<S, L, Rule>
where
    S: Store<Rule>,
    L: Store<Rule>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallBackDone").finish_non_exhaustive()
    }
}

impl<S, L, Rule> Future for FallBackDone<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    type Output = Result<(), Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(remote) = this.remote.as_mut().as_pin_mut() {
            let result = ready!(remote.poll(cx));
            this.remote.set(None);
            if let Err(error) = result {
                let policies = policies(this.corrections).chain(this.policy.as_ref());
                this.shared.failed(error, policies);
                if !this.corrections.is_empty() {
                    let local = this.shared.correct(this.corrections);
                    this.local.set(pending(local));
                }
            }
        }
        if let Some(local) = this.local.as_mut().as_pin_mut() {
            let result = ready!(local.poll(cx));
            this.local.set(None);
            result.unwrap_or_else(NeverFails::never);
        }
        Poll::Ready(Ok(()))
    }
}
