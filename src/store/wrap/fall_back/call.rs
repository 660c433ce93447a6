//! The way of one call: to the remote store, or to the local one.

use std::sync::{Arc, atomic::Ordering};

use smallvec::SmallVec;

use super::{
    answer::{Beside, FallBackFuture, State},
    batch::Batch,
    debts::Own,
    shared::{Owned, Shared, count},
};
use crate::store::{Ask, Check, Decisions, Error, NeverFails, Store, Undecided};

/// What is asked of both stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Acquire,
    Look,
}

/// Where a call goes on.
// The larger variant is moved into a future of its size.
#[allow(clippy::large_enum_variant)]
pub(super) enum Next<S, L, Rule>
where
    S: Store<Rule>,
    L: Store<Rule>,
{
    Answer(Decisions),
    Wait(State<S, L, Rule>),
}

pub(super) struct Call<S, L, Rule> {
    pub(super) shared: Arc<Shared<S, L, Rule>>,
    asks: SmallVec<[Owned<Rule>; 1]>,
    what: What,
}

/// Asks the remote store, or the local one where that fails.
pub(super) fn ask<S, L, Rule>(
    shared: &Arc<Shared<S, L, Rule>>,
    asks: &[Ask<'_, Rule>],
    what: What,
) -> Check<FallBackFuture<S, L, Rule>>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    let owned = asks.iter().map(|ask| Owned {
        policy: ask.policy().clone(),
        rule: ask.rule().clone(),
        key: *ask.key(),
        cost: ask.cost(),
    });
    let call = Call {
        shared: Arc::clone(shared),
        asks: owned.collect(),
        what,
    };
    match call.begin() {
        Next::Answer(decisions) => Check::Ready(Ok(decisions)),
        Next::Wait(state) => Check::Pending(FallBackFuture::new(state, call)),
    }
}

impl<S, L, Rule> Call<S, L, Rule>
where
    S: Store<Rule, Error: Into<Error>>,
    L: Store<Rule, Error: NeverFails>,
    Rule: Clone,
{
    fn asks(&self) -> SmallVec<[Ask<'_, Rule>; 1]> {
        self.asks.iter().map(Owned::ask).collect()
    }

    fn begin(&self) -> Next<S, L, Rule> {
        let Shared { remote, debts, .. } = &*self.shared;
        if self.what == What::Look || debts.len() == 0 {
            return self.ask(Beside::nothing);
        }
        let mut due = match debts.take_own(&self.asks()) {
            Own::Free => return self.ask(|| self.settle_others()),
            Own::Blocked => return self.fall_back(false),
            Own::Due(due) => due,
        };
        self.shared.cut(&mut due);
        if due.is_empty() {
            return self.ask(Beside::nothing);
        }
        match remote.look(&self.asks()) {
            Check::Ready(result) => self.looked(result, due),
            Check::Pending(look) => {
                let due = Some(due);
                Next::Wait(State::Looking { look, due })
            }
        }
    }

    /// The remote store is there, or not: settles what is due, and others' debts with it.
    pub(super) fn looked(
        &self,
        look: Result<Decisions, S::Error>,
        mut due: Batch<Rule>,
    ) -> Next<S, L, Rule> {
        let Shared {
            remote,
            debts,
            per_call,
            ..
        } = &*self.shared;
        if let Err(error) = look {
            drop(due);
            return self.failed(error);
        }
        self.shared.answered();
        due.gather(debts.take_others(per_call.saturating_sub(due.len())));
        self.shared.cut(&mut due);
        if due.is_empty() {
            return self.ask(Beside::nothing);
        }
        let done = remote.settle(due.settlements());
        match done {
            Check::Ready(result) => self.settled(result, due),
            Check::Pending(done) => {
                let due = Some(due);
                Next::Wait(State::Settling { done, due })
            }
        }
    }

    pub(super) fn settled(&self, done: Result<(), S::Error>, due: Batch<Rule>) -> Next<S, L, Rule> {
        if let Err(error) = done {
            drop(due);
            return self.failed(error);
        }
        due.settled();
        self.ask(Beside::nothing)
    }

    /// Asks the remote store, with something beside if that takes time.
    fn ask(&self, beside: impl FnOnce() -> Beside<S::Done, Rule>) -> Next<S, L, Rule> {
        let remote = &self.shared.remote;
        let answer = match self.what {
            What::Acquire => remote.acquire(&self.asks()),
            What::Look => remote.look(&self.asks()),
        };
        match answer {
            // At once: no sign that the store itself is there.
            Check::Ready(Ok(decisions)) => Next::Answer(decisions),
            Check::Ready(Err(error)) => self.failed(error),
            Check::Pending(answer) => Next::Wait(State::Asking {
                answer,
                told: None,
                beside: beside(),
            }),
        }
    }

    /// Settles some debts of any keys, where the store answered before.
    fn settle_others(&self) -> Beside<S::Done, Rule> {
        let shared = &*self.shared;
        if !shared.answering.load(Ordering::Relaxed) {
            return Beside::nothing();
        }
        let mut batch = shared.debts.take_others(shared.per_call);
        shared.cut(&mut batch);
        if batch.is_empty() {
            return Beside::nothing();
        }
        let done = shared.remote.settle(batch.settlements());
        match done {
            Check::Ready(Ok(())) => batch.settled(),
            Check::Ready(Err(error)) => {
                shared.failed(error, batch.policies());
            }
            Check::Pending(done) => return Beside::new(done, batch),
        }
        Beside::nothing()
    }

    /// Asks the local store; but where the remote one is there, and only lost its races, nothing passes beside it.
    pub(super) fn failed(&self, error: S::Error) -> Next<S, L, Rule> {
        let policies = self.asks.iter().map(|ask| &ask.policy);
        if self.shared.failed(error, policies) {
            return Next::Answer(self.shared.contended.decisions(self.asks.len()));
        }
        self.fall_back(true)
    }

    /// Asks the local store. What it admits is due if the remote store has failed.
    fn fall_back(&self, is_due: bool) -> Next<S, L, Rule> {
        let Shared {
            local,
            share_of,
            turned_away,
            ..
        } = &*self.shared;
        let rules: SmallVec<[Option<Rule>; 1]> =
            self.asks.iter().map(|ask| share_of(&ask.rule)).collect();
        let asks: SmallVec<[Ask<'_, Rule>; 1]> = self
            .asks
            .iter()
            .zip(&rules)
            .filter_map(|(ask, rule)| {
                Some(Ask::new(&ask.policy, rule.as_ref()?, ask.key, ask.cost))
            })
            .collect();
        if asks.len() < self.asks.len() {
            count(turned_away);
            return Next::Answer(Undecided::Closed.decisions(self.asks.len()));
        }
        let answer = match self.what {
            What::Acquire => local.acquire(&asks),
            What::Look => local.look(&asks),
        };
        match answer {
            Check::Ready(answer) => self.decided(answer.unwrap_or_else(NeverFails::never), is_due),
            Check::Pending(answer) => Next::Wait(State::Local { answer, is_due }),
        }
    }

    pub(super) fn decided(&self, decisions: Decisions, is_due: bool) -> Next<S, L, Rule> {
        if self.what == What::Acquire {
            self.shared.note(&self.asks, &decisions, is_due);
        }
        Next::Answer(decisions)
    }
}
