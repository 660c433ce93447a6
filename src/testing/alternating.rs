//! Two nodes behind one store.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    algorithm::Algorithm,
    error::Error,
    key::Key,
    policy::Policy,
    store::{Backend, BoxFuture, Delta, FleetStore, NodeCounts, Store, SyncFuture, delegate},
};

/// A store that alternates between two stores: two nodes, or two connections to one server.
///
/// Give it to the [conformance suite](super::conformance) if the store combines calls of one
/// process, as [`CasStore`](crate::store::driver::CompareAndSwap) does: calls through one
/// connection then never race in the storage. Clones take turns with each other.
///
/// # Examples
///
/// This table never compares versions. One connection passes the law `race`, and two do not:
///
#[cfg_attr(feature = "tokio", doc = "```")]
#[cfg_attr(not(feature = "tokio"), doc = "```ignore")]
/// use std::{collections::HashMap, sync::{Arc, Mutex}};
/// use tollgate::{AnyRule, time::ManualClock};
/// use tollgate::store::StoreError;
/// use tollgate::store::driver::{CasStore, CompareAndSwap, Loaded, Swap, Swapped};
/// use tollgate::testing::{Alternating, conformance::{Law, Suite}};
///
/// #[derive(Clone, Default)]
/// struct Careless(Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>);
///
/// impl CompareAndSwap for Careless {
///     type Version = ();
///
///     async fn load(&self, key: &[u8]) -> Result<Loaded<()>, StoreError> {
///         let value = self.0.lock().unwrap().get(key).cloned();
///         // The way back from a server.
///         tokio::task::yield_now().await;
///         Ok(Loaded { value: value.map(|value| ((), value)), now: None })
///     }
///
///     async fn swap(&self, key: &[u8], swap: Swap<'_, ()>) -> Result<Swapped<()>, StoreError> {
///         let mut table = self.0.lock().unwrap();
///         match swap.value {
///             Some(value) => table.insert(key.to_vec(), value.to_vec()),
///             None => table.remove(key),
///         };
///         Ok(Swapped::Done(None))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let clock = ManualClock::default();
/// let table = Careless::default();
/// let connect = || {
///     CasStore::<_, AnyRule>::builder_on(table.clone())
///         .clock(clock.clone())
///         .build()
/// };
///
/// let one = Suite::new(connect()).settling_back().spawn(tokio::spawn).only(Law::Race);
/// one.run().await.unwrap();
/// let two = Suite::new(Alternating::new(connect(), connect()))
///     .settling_back()
///     .spawn(tokio::spawn)
///     .only(Law::Race);
/// let broken = two.run().await.unwrap_err();
/// assert!(broken.laws().eq([Law::Race]));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Alternating<S> {
    stores: [S; 2],
    calls: Arc<AtomicUsize>,
}

impl<S> Alternating<S> {
    /// Alternates between two stores, beginning with the first.
    pub fn new(one: S, other: S) -> Self {
        Self {
            stores: [one, other],
            calls: Arc::default(),
        }
    }

    fn next(&self) -> &S {
        let [one, other] = &self.stores;
        match self.calls.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => one,
            _ => other,
        }
    }
}

impl<S: Backend> Backend for Alternating<S> {
    type Error = S::Error;

    /// Returns the address of the first store.
    fn address(&self) -> Option<&str> {
        self.stores[0].address()
    }

    /// Returns the sum of both stores.
    fn unsettled(&self) -> Option<u64> {
        let [one, other] = self.stores.each_ref().map(Backend::unsettled);
        Some(one?.saturating_add(other?))
    }

    fn shard(&self, policy: &Policy, key: &Key) -> u32 {
        self.stores[0].shard(policy, key)
    }

    fn refuses_beyond_rules(&self) -> bool {
        self.stores.iter().any(Backend::refuses_beyond_rules)
    }

    fn note_refusal(&self, policy: &Policy, key: &Key) -> bool {
        self.next().note_refusal(policy, key)
    }
}

impl<Rule, S: Store<Rule>> Store<Rule> for Alternating<S> {
    type Answer = S::Answer;
    type Done = S::Done;

    fn fits(&self, rule: &Rule) -> Result<(), Error> {
        let [one, other] = &self.stores;
        one.fits(rule).and_then(|()| other.fits(rule))
    }

    delegate!(Store<Rule>, self => *self.next(); calls);

    fn fleet(&self) -> Option<&dyn FleetStore<Rule, Error = Self::Error>>
    where
        Rule: Algorithm,
    {
        Some(self)
    }
}

impl<Rule: Algorithm, S: Store<Rule>> FleetStore<Rule> for Alternating<S> {
    fn count_node(
        &self,
        policy: &Policy,
        period: u64,
    ) -> Option<BoxFuture<Result<NodeCounts, Self::Error>>> {
        self.next().fleet()?.count_node(policy, period)
    }

    fn sync(&self, deltas: &[Delta<'_, Rule>]) -> Option<SyncFuture<Rule, Self::Error>> {
        self.next().fleet()?.sync(deltas)
    }
}
