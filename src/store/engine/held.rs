//! Answers about calls in flight, whose callers may be gone when they come.

#[cfg(feature = "tokio")]
use tokio::runtime::Handle;

#[cfg(feature = "tokio")]
use super::runtime_gone;
#[cfg(feature = "tokio")]
use crate::{
    algorithm::Algorithm,
    decision::Decisions,
    store::{BoxFuture, OwnedAsks, StoreError},
    time::{Clock, LeaseClock},
};
use crate::{
    decision::Decision,
    store::{Ask, Store},
};

/// Gives back what calls hold by these decisions, which nobody takes. Remote stores do that in the
/// background.
pub(crate) fn give_back<'a, Rule: 'a, S: Store<Rule>>(
    store: &S,
    decided: impl Iterator<Item = (Ask<'a, Rule>, Decision)>,
) {
    for (ask, decision) in decided {
        if let Some(charge) = decision.held_charge() {
            drop(store.settle_one(ask.settlement(charge, 0)));
        }
    }
}

/// Waits for an answer in a task of its own if the call would hold units. If the caller is dropped
/// meanwhile, such as that of a client that hangs up, these are given back.
///
/// So they are if the answer is later than a third of the lease, as that of a process that was
/// frozen: the units may be over, and renewals count from the instant of the charge.
#[cfg(feature = "tokio")]
pub(in crate::store) fn given_back<Rule, S>(
    store: &S,
    runtime: Handle,
    asks: &[Ask<'_, Rule>],
    answer: BoxFuture<Result<Decisions, StoreError>>,
) -> BoxFuture<Result<Decisions, StoreError>>
where
    Rule: Algorithm,
    S: Store<Rule> + Clone + Send + Sync + 'static,
{
    let leases = asks
        .iter()
        .filter_map(|ask| Some(ask.rule().renewal()?.lease));
    let Some(lease) = leases.min() else {
        return answer;
    };
    let (store, asks) = (store.clone(), OwnedAsks::new(asks));
    Box::pin(async move {
        let begun = LeaseClock.now();
        let spawner = runtime.clone();
        let task = spawner.spawn(async move {
            let decisions = answer.await?;
            Ok(HeldAnswer {
                store,
                asks,
                decisions,
                runtime,
            })
        });
        let mut answer = task.await.unwrap_or_else(|_| Err(runtime_gone()))?;
        match LeaseClock.now().saturating_since(begun) > lease / 3 {
            true => Err(StoreError::timeout()),
            false => Ok(std::mem::take(&mut answer.decisions)),
        }
    })
}

/// Decisions on the way to their caller. Dropped, it gives back what they hold.
#[cfg(feature = "tokio")]
struct HeldAnswer<Rule: Algorithm, S: Store<Rule>> {
    store: S,
    asks: OwnedAsks<Rule>,
    decisions: Decisions,
    runtime: Handle,
}

#[cfg(feature = "tokio")]
impl<Rule: Algorithm, S: Store<Rule>> Drop for HeldAnswer<Rule, S> {
    fn drop(&mut self) {
        // Wherever it is dropped.
        let _entered = self.runtime.enter();
        let decisions = self.decisions.as_slice().iter().copied();
        give_back(&self.store, self.asks.iter().zip(decisions));
    }
}
