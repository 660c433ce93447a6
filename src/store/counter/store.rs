//! The calls of a store.

use std::sync::Arc;

use super::{Counters, CountersFuture, Increment, known_slicings::slicing_for_keys};
use crate::{
    algorithm::Counted,
    key::Key,
    policy::Policy,
    store::{
        Ask, Backend, BoxFuture, Check, Delta, Error, NodeCounts, Settlement, Store, StoreId,
        SyncFuture,
        ask::{nodes_name, policies},
        engine::spawn_detached,
    },
    time::Clock,
};

impl<I: Increment, Rule, K> Backend for Counters<I, Rule, K> {
    type Error = Error;

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.inner))
    }

    fn address(&self) -> Option<&str> {
        self.inner.increment.address()
    }

    fn unsettled(&self) -> Option<u64> {
        Some(self.inner.unsettled.count())
    }
}

impl<I, Rule, K> Store<Rule> for Counters<I, Rule, K>
where
    I: Increment,
    Rule: Counted<State: Send> + Send + Sync + 'static,
    K: Clock + Send + Sync + 'static,
{
    type Answer = CountersFuture;
    type Done = BoxFuture<Result<(), Error>>;

    fn acquire(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let inner = Arc::clone(&self.inner);
        match inner.asked(asks) {
            Ok(asked) => {
                let policies = policies(asks);
                let work = async move {
                    let decisions = inner.acquire(&asked).await?;
                    Ok(decisions.of_policies(policies))
                };
                Check::Pending(CountersFuture::new(true, work))
            }
            Err(error) => Check::Ready(Err(Error::unsupported(error))),
        }
    }

    fn look(&self, asks: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        let inner = Arc::clone(&self.inner);
        match inner.asked(asks) {
            Ok(asked) => {
                let work = async move { inner.look(&asked).await };
                Check::Pending(CountersFuture::new(false, work))
            }
            Err(error) => Check::Ready(Err(Error::unsupported(error))),
        }
    }

    fn settle(&self, settlements: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        let inner = Arc::clone(&self.inner);
        let settling = inner.unsettled.settling(settlements.len());
        let owned = |it: Settlement<'_, Rule>| {
            let place = inner.place(it.policy, &it.key, it.rule)?;
            inner.hints.forget(inner.hints.hash(&place));
            Ok((place, it.charge, it.actual))
        };
        let owned: Result<Vec<_>, crate::Error> = settlements.into_iter().map(owned).collect();
        match owned {
            Ok(owned) => {
                settling.make_each(owned.into_iter().map(move |(place, charge, actual)| {
                    let inner = Arc::clone(&inner);
                    async move { inner.settle(&place, &charge, actual).await }
                }))
            }
            Err(error) => Check::Ready(Err(Error::unsupported(error))),
        }
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let inner = Arc::clone(&self.inner);
        let places = inner.known.each(|rule| inner.place(policy, key, rule));
        match places {
            Ok(places) => spawn_detached(async move {
                for place in &places {
                    inner.hints.forget(inner.hints.hash(place));
                }
                inner.reset(&places).await
            }),
            Err(error) => Check::Ready(Err(Error::unsupported(error))),
        }
    }

    fn fits(&self, rule: &Rule) -> Result<(), crate::Error> {
        slicing_for_keys(rule).map(drop)
    }

    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, Error>>> {
        let inner = Arc::clone(&self.inner);
        let prefix = nodes_name(&inner.prefix, policy);
        Some(Box::pin(
            async move { inner.count_node(&prefix, period).await },
        ))
    }

    /// Adds each delta once at most: one whose addition has failed is [not repeated](super::CounterStats::doubtful).
    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, Error>> {
        let inner = Arc::clone(&self.inner);
        let delta = |delta| inner.delta(delta).map_err(Error::unsupported);
        let deltas = deltas.iter().map(delta).collect();
        Some(Box::pin(async move { inner.sync(deltas).await }))
    }
}
