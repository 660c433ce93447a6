//! A store whose answers take some turns of the runtime, so that calls can be dropped before and
//! after it has decided.

use std::sync::{Arc, Mutex};

use support::Random;
use tollgate::{
    Policy,
    algorithm::Leasable,
    future::BoxFuture,
    key::Key,
    store::{
        Backend, Store, StoreError,
        driver::{Ask, Check, Decisions, OwnedAsks, Settlement},
    },
};

use crate::leases::shared::Server;

/// The most turns before and after a decision.
pub(crate) const MOST_TURNS: u64 = 3;

pub(crate) struct Slow<R: Leasable> {
    server: Server<R>,
    random: Arc<Mutex<Random>>,
}

impl<R: Leasable> Slow<R> {
    pub(crate) fn new(server: Server<R>, seed: u64) -> Self {
        Self {
            server,
            random: Arc::new(Mutex::new(Random::new(seed))),
        }
    }

    /// Returns the turns before and after the store does something.
    fn some_turns(&self) -> [u64; 2] {
        let mut random = self.random.lock().unwrap();
        [(); 2].map(|()| random.below(MOST_TURNS + 1))
    }
}

impl<R: Leasable> Backend for Slow<R> {
    type Error = StoreError;
}

impl<R> Store<R> for Slow<R>
where
    R: Leasable,
{
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, R>]) -> Check<Self::Answer> {
        let (server, asks) = (self.server.clone(), OwnedAsks::new(asks));
        let [before, after] = self.some_turns();
        Check::Pending(Box::pin(async move {
            turns(before).await;
            let answer = server.acquire(&asks.to_vec()).await;
            turns(after).await;
            answer
        }))
    }

    fn look(&self, asks: &[Ask<'_, R>]) -> Check<Self::Answer> {
        let (server, asks) = (self.server.clone(), OwnedAsks::new(asks));
        Check::Pending(Box::pin(async move { server.look(&asks.to_vec()).await }))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, R>>) -> Check<Self::Done> {
        let done = self.server.settle(settlements);
        Check::Pending(Box::pin(async move { done.await }))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let (server, owner) = (self.server.clone(), (policy.clone(), *key));
        let [before, after] = self.some_turns();
        Check::Pending(Box::pin(async move {
            turns(before).await;
            let done = Store::<R>::reset(&server, &owner.0, &owner.1).await;
            turns(after).await;
            done
        }))
    }
}

async fn turns(count: u64) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}
