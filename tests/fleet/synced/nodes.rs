//! Nodes of one store in memory, which takes its time.

use std::time::Duration;

use tollgate::{
    Cost, Decision, Policy, TokenBucket,
    algorithm::{Codec, Syncable},
    key::Key,
    store::{
        Store, StoreError, StoreExt, SyncConfig, Synced,
        driver::{Ask, CasStore, CasStoreBuilder, Check},
    },
    testing::{Faults, Faulty},
    time::{ManualClock, TokioClock},
};

use crate::synced::memory::{Memory, Ways};

pub(crate) type Server<R> = Faulty<CasStore<Memory, R>>;
pub(crate) type Node<R> = Synced<Server<R>, R, TokioClock>;

/// The time of an answer.
pub(crate) const DELAY: Duration = Duration::from_millis(5);
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// A store, by tokio's time.
pub(crate) struct Fleet {
    memory: Memory,
    pub(crate) clock: TokioClock,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let ways = Ways {
            delay: Some(DELAY),
            ..Ways::default()
        };
        Self {
            memory: Memory::new(ManualClock::default(), ways),
            clock: crate::clock(),
        }
    }

    /// Returns the store as one node sees it.
    pub(crate) fn server<R>(&self) -> Server<R>
    where
        R: Syncable<State: Codec>,
    {
        Faulty::new(self.reliable())
    }

    /// Returns the store without faults, which also counts nodes.
    pub(crate) fn reliable<R>(&self) -> CasStore<Memory, R>
    where
        R: Syncable<State: Codec>,
    {
        let driver = CasStoreBuilder::new(self.memory.node(7)).clock(self.clock);
        driver.seed(1).build()
    }

    /// Returns a node, and the switch of its link to the store.
    pub(crate) fn node<R>(&self, config: SyncConfig) -> (Node<R>, Faults)
    where
        R: Syncable<State: Codec>,
    {
        let server = self.server();
        let faults = server.faults();
        (
            server.synced(config.period(PERIOD).clock(self.clock)),
            faults,
        )
    }
}

pub(crate) fn units(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

/// Waits for a decision.
pub(crate) async fn acquire<R, S>(
    store: &S,
    rule: &R,
    key: &str,
    cost: u64,
) -> Result<Decision, StoreError>
where
    S: Store<R, Error = StoreError>,
{
    let policy = Policy::new("api");
    let ask = Ask::new(&policy, rule, Key::from(key), units(cost));
    let decisions = store.acquire(&[ask]).await?;
    Ok(decisions.as_slice()[0])
}

/// Waits for a decision, and returns `true` if it admits.
pub(crate) async fn admits<R, S>(store: &S, rule: &R, key: &str, cost: u64) -> bool
where
    S: Store<R, Error = StoreError>,
{
    let decision = acquire(store, rule, key, cost).await.unwrap();
    decision.is_admitted()
}

/// Returns the decision if it is made without the store.
pub(crate) fn at_once<R, S>(store: &S, rule: &R, key: &str, cost: u64) -> Option<Decision>
where
    S: Store<R, Error = StoreError>,
{
    let policy = Policy::new("api");
    match store.acquire(&[Ask::new(&policy, rule, Key::from(key), units(cost))]) {
        Check::Ready(Ok(decisions)) => Some(decisions.as_slice()[0]),
        Check::Ready(Err(error)) => panic!("{error}"),
        Check::Pending(_) => None,
    }
}

/// Returns what the store has spent of a key.
pub(crate) async fn spent<R, S>(store: &S, rule: &R, key: &str) -> u64
where
    S: Store<R, Error = StoreError>,
{
    let policy = Policy::new("api");
    let ask = Ask::new(&policy, rule, Key::from(key), Cost::ONE);
    let looked = store.look(&[ask]).await.unwrap();
    let decision = looked.as_slice()[0];
    decision.limit().unwrap() - decision.remaining().unwrap()
}

/// A bucket that refills next to nothing during a test.
pub(crate) fn bucket(limit: u64) -> TokenBucket {
    TokenBucket::per_day(limit)
}
