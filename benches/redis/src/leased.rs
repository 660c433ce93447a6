//! The store with leases, and the pace of tasks that do not call all the time.

use std::time::Duration;

use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{Ask, LeaseConfig, LeaseStats, Leased, Redis, Store, StoreExt},
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
            store: store.leased(LeaseConfig::new().hold(hold)),
            policy: Policy::new(name),
            rule: TokenBucket::per_second(rate).burst(10 * rate),
        }
    }

    pub fn stats(&self) -> LeaseStats {
        self.store.stats()
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
