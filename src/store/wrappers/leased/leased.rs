//! A store whose units are granted ahead.

use std::{fmt, sync::Arc};

use super::{
    LeaseConfig, LeaseStats,
    book::{Book, Tried},
    call::{Call, Inner},
};
use crate::{
    algorithm::Leasable,
    decision::Charge,
    key::Key,
    policy::Policy,
    store::{Ask, Backend, BoxFuture, Check, Decisions, Error, Settlement, Store},
    time::{Clock, LeaseClock},
};

/// A store that grants units ahead, so that a node decides most calls from memory, and all nodes together never exceed the limit.
///
/// Created by [`leased`](crate::store::StoreExt::leased). A node asks the store for what its callers asked for lately. The store spends these
/// units, and the node holds them as a lease until calls spend them or they end. They end by themselves: a node that dies takes
/// nothing with it.
#[must_use]
pub struct Leased<S, Rule, C = LeaseClock> {
    inner: Arc<Inner<S, Rule, C>>,
}

impl<S, Rule: Leasable, C> Leased<S, Rule, C> {
    pub(in crate::store) fn new(store: S, config: LeaseConfig<C>) -> Self {
        let inner = Inner {
            store,
            book: Book::new(config.keys, config.seed),
            config,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns counters of these leases and their clones.
    pub fn stats(&self) -> LeaseStats {
        self.inner.book.stats()
    }
}

impl<S, Rule, C> Leased<S, Rule, C> {
    /// Returns the wrapped store, for example to read its counters.
    pub fn get_ref(&self) -> &S {
        &self.inner.store
    }
}

impl<S, Rule, C> Clone for Leased<S, Rule, C> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<S, Rule, C> fmt::Debug for Leased<S, Rule, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leased").finish_non_exhaustive()
    }
}

impl<S: Backend<Error = Error>, Rule, C> Backend for Leased<S, Rule, C> {
    type Error = Error;

    fn address(&self) -> Option<&str> {
        self.inner.store.address()
    }

    fn unsettled(&self) -> Option<u64> {
        self.inner.store.unsettled()
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.inner.store.shard(policy, key)
    }
}

impl<S, Rule, C> Store<Rule> for Leased<S, Rule, C>
where
    S: Store<Rule, Answer: Send + 'static, Done: Send + 'static>
        + Backend<Error = Error>
        + Send
        + Sync
        + 'static,
    Rule: Leasable + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    type Answer = BoxFuture<Result<Decisions, Error>>;
    type Done = BoxFuture<Result<(), Error>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let inner = &self.inner;
        if inner.config.is_off() {
            return boxed(inner.store.acquire(asks));
        }
        let call = match asks {
            [ask] => match inner.try_one(ask, false) {
                Ok(Tried::Decided(decision, ahead)) => {
                    if let Some(ahead) = ahead {
                        inner.prefetch(ask, ahead);
                    }
                    return Check::Ready(Ok(ask.charged(decision).into()));
                }
                Ok(tried) => Ok(Call::of_one(inner, ask, tried)),
                Err(error) => Err(error),
            },
            _ => Call::new(inner, asks),
        };
        match call {
            Ok(call) if call.is_decided() => Check::Ready(Ok(call.finish())),
            Ok(call) => Check::Pending(Box::pin(call.decide())),
            Err(error) => Check::Ready(Err(Error::unsupported(error))),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let inner = &self.inner;
        if inner.config.is_off() {
            return boxed(inner.store.look(asks));
        }
        let held: Result<Vec<_>, _> = asks
            .iter()
            .map(|ask| inner.config.held(ask.rule()))
            .collect();
        let held = match held {
            Ok(held) => held,
            Err(error) => return Check::Ready(Err(Error::unsupported(error))),
        };
        let asks: Vec<_> = asks
            .iter()
            .zip(&held)
            .map(|(ask, held)| Ask::new(ask.policy(), held, *ask.key(), ask.cost()))
            .collect();
        boxed(inner.store.look(&asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let inner = &self.inner;
        if inner.config.is_off() {
            return boxed(inner.store.settle(settlements));
        }
        let mut in_store = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let policy = settlement.policy;
            match self.settle_here(settlement) {
                None => {}
                Some(settlement) => {
                    inner.book.forget_answers(policy, &settlement.key);
                    match inner.config.held(settlement.rule) {
                        Ok(held) => in_store.push((settlement, held)),
                        Err(error) => return Check::Ready(Err(Error::unsupported(error))),
                    }
                }
            }
        }
        if in_store.is_empty() {
            return Check::Ready(Ok(()));
        }
        let (settlements, held): (Vec<_>, Vec<_>) = in_store.into_iter().unzip();
        let settlements = settlements
            .into_iter()
            .zip(&held)
            .map(|(settlement, held)| Settlement {
                rule: held,
                ..settlement
            })
            .collect();
        boxed(inner.store.settle(settlements))
    }

    /// Drops the leases of this node, too. Other nodes may still spend theirs.
    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let inner = &self.inner;
        inner
            .book
            .drop_leases(policy, key, inner.config.clock.now());
        boxed(inner.store.reset(policy, key))
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        if self.inner.config.is_off() {
            return self.inner.store.fits(rule);
        }
        self.inner.store.fits(&self.inner.config.held(rule)?)
    }
}

impl<S, Rule: Leasable, C: Clock> Leased<S, Rule, C> {
    /// Corrects a charge that a lease paid for. Returns the settlement of what the store has to correct.
    fn settle_here<'a>(&self, settlement: Settlement<'a, Rule>) -> Option<Settlement<'a, Rule>> {
        let Settlement {
            policy,
            rule,
            key,
            charge,
            actual,
        } = settlement;
        if !charge.is_of_lease() {
            return Some(Settlement {
                policy,
                rule,
                key,
                charge,
                actual,
            });
        }
        let (book, now) = (&self.inner.book, self.inner.config.clock.now());
        let place = (policy, &key, rule);
        if let Some(less) = charge.cost.checked_sub(actual) {
            book.give_back(place, less, charge.position, now);
            return None;
        }
        // What the leases do not hold is taken from the store by force: other nodes see the debt at once.
        let lacking = book.take_by_force(place, actual - charge.cost, now);
        let forced = Charge::new(charge.at, charge.cost);
        let actual = charge.cost.saturating_add(lacking);
        (lacking > 0).then_some(Settlement {
            policy,
            rule,
            key,
            charge: forced,
            actual,
        })
    }
}

fn boxed<T>(
    check: Check<impl Future<Output = Result<T, Error>> + Send + 'static>,
) -> Check<BoxFuture<Result<T, Error>>> {
    match check {
        Check::Ready(result) => Check::Ready(result),
        Check::Pending(future) => Check::Pending(Box::pin(future)),
    }
}
