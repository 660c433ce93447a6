//! Answers about calls in flight, whose callers may be gone when they come.

use std::mem;

use super::runtime_gone;
use crate::{
    algorithm::Algorithm,
    decision::Decisions,
    store::{Ask, BoxFuture, OwnedAsks, Settlement, Store, StoreError},
};

/// Waits for an answer in a task of its own if the call would hold units. If the caller is dropped
/// meanwhile, such as that of a client that hangs up, these are given back.
pub(in crate::store) fn given_back<Rule, S>(
    store: &S,
    asks: &[Ask<'_, Rule>],
    answer: BoxFuture<Result<Decisions, StoreError>>,
) -> BoxFuture<Result<Decisions, StoreError>>
where
    Rule: Algorithm,
    S: Store<Rule> + Clone + Send + Sync + 'static,
{
    if asks.iter().all(|ask| ask.rule().renewal().is_none()) {
        return answer;
    }
    let (store, asks) = (store.clone(), OwnedAsks::new(asks));
    Box::pin(async move {
        let task = tokio::spawn(async move {
            let decisions = answer.await?;
            Ok(HeldAnswer {
                store,
                asks,
                decisions,
            })
        });
        let answer = task.await.unwrap_or_else(|_| Err(runtime_gone()));
        answer.map(HeldAnswer::take)
    })
}

/// Decisions on the way to their caller. Dropped, it gives back what they hold.
struct HeldAnswer<Rule: Algorithm, S: Store<Rule>> {
    store: S,
    asks: OwnedAsks<Rule>,
    decisions: Decisions,
}

impl<Rule: Algorithm, S: Store<Rule>> HeldAnswer<Rule, S> {
    fn take(mut self) -> Decisions {
        mem::take(&mut self.decisions)
    }
}

impl<Rule: Algorithm, S: Store<Rule>> Drop for HeldAnswer<Rule, S> {
    fn drop(&mut self) {
        for (ask, decision) in self.asks.iter().zip(self.decisions.as_slice()) {
            let charge = decision.is_held().then(|| decision.charge()).flatten();
            if let Some(charge) = charge {
                let settlement = Settlement {
                    policy: ask.policy(),
                    rule: ask.rule(),
                    key: *ask.key(),
                    charge,
                    actual: 0,
                    is_grant: false,
                };
                // It is made in the background.
                drop(self.store.settle(vec![settlement]));
            }
        }
    }
}
