//! The node's end of the way to the store.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
};

use tokio::sync::oneshot;
use tollgate::{
    AnyRule, Policy,
    key::Key,
    store::{Ask, Backend, Check, Decisions, Error, OwnedAsks, Settlement, Store},
};

use crate::{
    faults::nanos,
    network::Network,
    server::{Operation, OwnedSettlement, Server},
    timeline::lock,
};

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A store behind the network, as one node sees it.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    pub(crate) node: usize,
    pub(crate) server: Arc<Server>,
    pub(crate) network: Arc<Network>,
}

type Reply = Mutex<Option<oneshot::Sender<Decisions>>>;

impl RemoteStore {
    fn call(&self, operation: Operation) -> Answer<Decisions> {
        let this = self.clone();
        Box::pin(async move {
            let network = &this.network;
            let deadline = network.time.now() + nanos(network.link.deadline);
            let (reply, answer) = oneshot::channel();
            let (reply, operation) = (Arc::new(Mutex::new(Some(reply))), Arc::new(operation));
            for _ in 0..network.called(this.node) {
                let (this, reply, operation) =
                    (this.clone(), Arc::clone(&reply), Arc::clone(&operation));
                tokio::spawn(async move { this.deliver(&operation, &reply).await });
            }
            drop(reply);
            let answer = tokio::select! {
                biased;
                Ok(decisions) = answer => Ok(decisions),
                () = network.time.until(deadline) => Err(Error::timeout()),
            };
            network.faults.thawed(this.node, &network.time).await;
            answer
        })
    }

    /// Carries one copy of a request to the store, and its answer back.
    async fn deliver(&self, operation: &Operation, reply: &Reply) {
        let network = &self.network;
        let Some(delay) = network.way_to_store(self.node) else {
            return;
        };
        network.time.sleep(delay).await;
        if network.faults.is_out(network.time.now()) {
            return;
        }
        network.served().await;
        let decisions = self.server.run(operation);
        let Some(delay) = network.way_back(self.node) else {
            return;
        };
        network.time.sleep(delay).await;
        // The first answer counts, if it comes in time.
        if let Some(reply) = lock(reply).take() {
            let _ = reply.send(decisions);
        }
    }

    fn done(&self, operation: Operation) -> Check<Answer<()>> {
        let answer = self.call(operation);
        Check::Pending(Box::pin(async move { answer.await.map(drop) }))
    }
}

impl Backend for RemoteStore {
    type Error = Error;
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
}
