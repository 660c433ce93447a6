//! Charges after the response, or after the end of a request that has none.
//!
//! A request without a response is charged, also under look-then-charge: its client may have hung
//! up on purpose. The charge is an ordinary one at the instant at which the request ends. A
//! correction of a charge of 0 units would not do, because it does not reach out of the window of
//! that charge.
//!
//! A late charge is refused like any other; then the response is replaced. The alternative was to
//! let concurrent requests wait for each other's responses: exact in the number of requests
//! handled, too, but only in one process.

use std::sync::Arc;

use super::{config::Config, limits::Sealed};
use crate::{
    charging::SettleCharges,
    decision::Charge,
    observe::Observer,
    store::{BoxFuture, Check, Decisions, NeverFails, OwnedAsks, Settlement, Store},
    time::Timestamp,
};

/// The answer of a store to a charge after the response.
#[expect(clippy::large_enum_variant, reason = "it is read at once")]
pub(super) enum Late<Rule> {
    Decided(Charged<Rule>),
    Pending(BoxFuture<Charged<Rule>>),
}

/// The asks of a charge, and their decisions.
pub(super) type Charged<Rule> = (OwnedAsks<Rule>, Decisions);

/// Charges keys now, if the limits admit it, and reports it.
pub(super) fn charge<L, S, R, O, Rule>(
    config: &Arc<Config<L, S, R, O>>,
    asks: OwnedAsks<Rule>,
) -> Late<Rule>
where
    L: Sealed<AnyRule = Rule>,
    S: Store<Rule, Answer: Send + 'static, Error: NeverFails>,
    O: Observer,
    Rule: Send + 'static,
    Config<L, S, R, O>: SettleCharges + 'static,
{
    let check = config.store.acquire(&asks.to_list());
    match check {
        Check::Ready(Ok(decisions)) => {
            report(&config.observer, &asks, &decisions);
            Late::Decided((asks, decisions))
        }
        Check::Ready(Err(error)) => error.never(),
        Check::Pending(answer) => {
            let config = Arc::clone(config);
            Late::Pending(Box::pin(async move {
                let decisions = answer.await.unwrap_or_else(NeverFails::never);
                report(&config.observer, &asks, &decisions);
                (asks, decisions)
            }))
        }
    }
}

/// Charges keys whose request ended without a response, each by itself: an exhausted one must not
/// spare the others.
///
/// `looked_at` is the instant of the looks.
pub(super) fn charge_without_response<L, S, R, O, Rule>(
    config: &Arc<Config<L, S, R, O>>,
    asks: &OwnedAsks<Rule>,
    looked_at: Timestamp,
) where
    L: Sealed<AnyRule = Rule>,
    S: Store<Rule, Answer: Send + 'static, Error: NeverFails>,
    O: Observer,
    Rule: Clone + Send + 'static,
    Config<L, S, R, O>: SettleCharges + 'static,
{
    for ask in asks.iter() {
        let ask = OwnedAsks::new(&[ask]);
        if let Late::Pending(work) = charge(config, ask.clone())
            && finish_in_background(work).is_err()
        {
            charge_by_force(config, &ask, looked_at);
        }
    }
}

/// Makes a charge in the background.
///
/// # Errors
///
/// The charge, where no runtime of tokio can make it.
#[cfg(feature = "tokio")]
pub(super) fn finish_in_background<T: Send + 'static>(
    work: BoxFuture<T>,
) -> Result<(), BoxFuture<T>> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            drop(runtime.spawn(work));
            Ok(())
        }
        Err(_) => Err(work),
    }
}

#[cfg(not(feature = "tokio"))]
pub(super) fn finish_in_background<T>(work: BoxFuture<T>) -> Result<(), BoxFuture<T>> {
    Err(work)
}

/// Charges keys at the instant of their looks, even into debt: a settlement needs no runtime.
fn charge_by_force<L, S, R, O, Rule>(
    config: &Config<L, S, R, O>,
    asks: &OwnedAsks<Rule>,
    looked_at: Timestamp,
) where
    S: Store<Rule>,
    O: Observer,
{
    let asks = asks.to_list();
    let settlements = asks.iter().map(|ask| {
        let units = ask.cost().get();
        config.observer.settled(ask.policy(), ask.key(), 0, units);
        Settlement {
            policy: ask.policy(),
            rule: ask.rule(),
            key: *ask.key(),
            charge: Charge::new(looked_at, 0),
            actual: units,
            is_grant: false,
        }
    });
    // Nobody is left to await it: remote stores make settlements in the background.
    drop(config.store.settle(settlements.collect()));
}

/// Reports charges that were made.
fn report<Rule>(observer: &impl Observer, asks: &OwnedAsks<Rule>, decisions: &Decisions) {
    if !decisions.is_admitted() {
        return;
    }
    for ((policy, key, _), decision) in asks.parts().zip(decisions.as_slice()) {
        if let Some(charge) = decision.charge() {
            observer.settled(policy, key, 0, charge.cost);
        }
    }
}
