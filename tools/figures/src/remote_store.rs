//! The node's end of the way to the store.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tollgate::{
    AnyRule, Policy,
    future::{BoxFuture, SyncFuture},
    key::Key,
    store::{
        Backend, Store, StoreError,
        driver::{Ask, Check, Decisions, Delta, FleetStore, OwnedAsks, Settlement},
    },
};

use crate::{
    faults::nanos,
    network::Network,
    owned_delta::OwnedDelta,
    server::{Operation, OwnedSettlement, Server},
    timeline::lock,
};

type Answer<T> = BoxFuture<Result<T, StoreError>>;

/// A store behind the network, as one node sees it.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    pub(crate) node: usize,
    pub(crate) server: Arc<Server>,
    pub(crate) network: Arc<Network>,
}

type Reply<T> = Mutex<Option<oneshot::Sender<T>>>;

impl RemoteStore {
    fn call(&self, operation: Operation) -> Answer<Decisions> {
        self.ask(move |server| server.run(&operation))
    }

    /// Has the store do something, once for each copy of the request that arrives.
    fn ask<T: Send + 'static>(
        &self,
        request: impl Fn(&Server) -> T + Send + Sync + 'static,
    ) -> Answer<T> {
        let this = self.clone();
        Box::pin(async move {
            let network = &this.network;
            let deadline = network.time.now() + nanos(network.link.deadline);
            let (reply, answer) = oneshot::channel();
            let (reply, request) = (Arc::new(Mutex::new(Some(reply))), Arc::new(request));
            for _ in 0..network.called(this.node) {
                let (this, reply, request) =
                    (this.clone(), Arc::clone(&reply), Arc::clone(&request));
                tokio::spawn(async move { this.deliver(&*request, &reply).await });
            }
            drop(reply);
            let answer = tokio::select! {
                biased;
                Ok(answer) = answer => Ok(answer),
                () = network.time.until(deadline) => Err(StoreError::timeout()),
            };
            network.faults.thawed(this.node, &network.time).await;
            answer
        })
    }

    /// Carries one copy of a request to the store, and its answer back.
    async fn deliver<T>(&self, request: &(impl Fn(&Server) -> T + Sync), reply: &Reply<T>) {
        let network = &self.network;
        let Some(delay) = network.way_to_store(self.node) else {
            return;
        };
        network.time.sleep(delay).await;
        if network.faults.is_out(network.time.now()) {
            return;
        }
        network.served().await;
        let answer = request(&self.server);
        let Some(delay) = network.way_back(self.node) else {
            return;
        };
        network.time.sleep(delay).await;
        // The first answer counts, if it comes in time.
        if let Some(reply) = lock(reply).take() {
            let _ = reply.send(answer);
        }
    }

    fn done(&self, operation: Operation) -> Check<Answer<()>> {
        let answer = self.call(operation);
        Check::Pending(Box::pin(async move { answer.await.map(drop) }))
    }
}

impl Backend for RemoteStore {
    type Error = StoreError;
}

impl Store<AnyRule> for RemoteStore {
    type Answer = Answer<Decisions>;
    type Done = Answer<()>;

    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        Check::Pending(self.call(Operation::Acquire(OwnedAsks::new(asks))))
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        Check::Pending(self.call(Operation::Look(OwnedAsks::new(asks))))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
        let owned = |settlement: Settlement<'_, AnyRule>| OwnedSettlement {
            policy: settlement.policy().clone(),
            rule: settlement.rule().clone(),
            key: *settlement.key(),
            actual: settlement.actual(),
            charge: settlement.into_charge(),
        };
        let list = settlements.into_iter().map(owned).collect();
        self.done(Operation::Settle(Mutex::new(list)))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.done(Operation::Reset(policy.clone(), *key))
    }

    fn fleet(&self) -> Option<&dyn FleetStore<AnyRule, Error = Self::Error>> {
        Some(self)
    }
}

impl FleetStore<AnyRule> for RemoteStore {
    fn sync(&self, deltas: &[Delta<'_, AnyRule>]) -> Option<SyncFuture<AnyRule, StoreError>> {
        let deltas: Vec<_> = deltas.iter().map(OwnedDelta::new).collect();
        Some(self.ask(move |server| server.sync(&deltas)))
    }
}
