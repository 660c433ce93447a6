//! The store with leases, and the store that is pushed to later.

use std::time::Duration;

use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{
        LeaseConfig, LeaseStats, Leased, Redis, Store, StoreExt, SyncConfig, SyncStats, Synced,
        driver::Ask,
    },
};

use crate::contender::{Decide, PATIENCE};

/// A limit that nobody reaches, whose bucket takes as long to fill as is usual.
#[derive(Clone)]
pub struct WithLeases {
    store: Leased<Redis<TokenBucket>, TokenBucket>,
    policy: Policy,
    rule: TokenBucket,
}

impl WithLeases {
    /// Connects with leases of this time, under a rule of `rate` a second and ten seconds' burst.
    pub async fn connect(url: &str, name: &str, rate: u64, hold: Duration) -> Self {
        let store = Redis::<TokenBucket>::builder(url).response_timeout(PATIENCE);
        let store = store.connect().await.expect("a server");
        Self {
            store: store.leased(LeaseConfig::new().duration(hold)),
            policy: Policy::new(name),
            rule: TokenBucket::per_second(rate).burst(10 * rate),
        }
    }

    pub fn stats(&self) -> LeaseStats {
        self.store.stats()
    }
}

/// A limit on a node that pushes to the store later. Eight nodes together may exceed the
/// limit by five percent.
#[derive(Clone)]
pub struct PushedLater {
    store: Synced<Redis<TokenBucket>, TokenBucket>,
    policy: Policy,
    rule: TokenBucket,
}

impl PushedLater {
    pub async fn connect(url: &str, name: &str, rate: u64) -> Self {
        let store = Redis::<TokenBucket>::builder(url).response_timeout(PATIENCE);
        let store = store.connect().await.expect("a server");
        Self {
            store: store.synced(SyncConfig::new().nodes(8).keys(1_000_000)),
            policy: Policy::new(name),
            rule: TokenBucket::per_second(rate).burst(10 * rate),
        }
    }

    pub fn stats(&self) -> SyncStats {
        self.store.stats()
    }
}

impl Decide for PushedLater {
    async fn decide(&self, client: usize) -> bool {
        let key = Key::from(client as u64);
        let ask = Ask::new(&self.policy, &self.rule, key, Cost::ONE);
        let decisions = self.store.acquire(&[ask]).await;
        decisions.expect("a decision").is_admitted()
    }
}

impl Decide for WithLeases {
    async fn decide(&self, client: usize) -> bool {
        let key = Key::from(client as u64);
        let ask = Ask::new(&self.policy, &self.rule, key, Cost::ONE);
        let decisions = self.store.acquire(&[ask]).await;
        decisions.expect("a decision").is_admitted()
    }
}
