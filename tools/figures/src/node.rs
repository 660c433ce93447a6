//! A node with the real leases.

use std::sync::Arc;

use tollgate::{
    AnyRule, Cost, Decision, Policy,
    key::Key,
    store::{
        LeaseConfig, LeaseStats, Leased, Store, StoreExt,
        driver::{Ask, Check},
    },
};

use crate::{
    network::Network,
    node_clock::NodeClock,
    record::{Call, Outcome, Record},
    remote_store::RemoteStore,
    timeline::Instant,
};

/// A node of the fleet.
pub(crate) struct Node {
    number: usize,
    policy: Policy,
    rule: AnyRule,
    store: Leased<RemoteStore, AnyRule, NodeClock>,
    network: Arc<Network>,
    record: Arc<Record>,
}

/// A call that has come to a node.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) number: u64,
    pub(crate) key: u64,
    pub(crate) came: Instant,
}

impl Node {
    pub(crate) fn new(
        rule: &AnyRule,
        config: LeaseConfig<NodeClock>,
        store: RemoteStore,
        record: &Arc<Record>,
    ) -> Self {
        Self {
            number: store.node,
            policy: Policy::new("figures"),
            rule: rule.clone(),
            network: Arc::clone(&store.network),
            store: store.leased(config),
            record: Arc::clone(record),
        }
    }

    /// Decides a call, now or in a task of its own.
    pub(crate) fn serve(self: &Arc<Self>, arrival: Arrival) {
        if self
            .network
            .faults
            .is_frozen(self.number, self.network.time.now())
        {
            let node = Arc::clone(self);
            tokio::spawn(async move {
                let network = &node.network;
                network.faults.thawed(node.number, &network.time).await;
                node.decide(arrival);
            });
        } else {
            self.decide(arrival);
        }
    }

    fn decide(self: &Arc<Self>, arrival: Arrival) {
        let key = Key::from(arrival.key);
        let ask = Ask::new(&self.policy, &self.rule, key, Cost::ONE);
        match self.store.acquire(&[ask]) {
            Check::Ready(answer) => {
                let decision = answer
                    .ok()
                    .and_then(|list| list.as_slice().first().copied());
                self.answered(arrival, decision, false);
            }
            Check::Pending(answer) => {
                let node = Arc::clone(self);
                tokio::spawn(async move {
                    let answer = answer.await;
                    let decision = answer
                        .ok()
                        .and_then(|list| list.as_slice().first().copied());
                    node.answered(arrival, decision, true);
                });
            }
        }
    }

    fn answered(&self, arrival: Arrival, decision: Option<Decision>, has_waited: bool) {
        let time = &self.network.time;
        if self.network.faults.is_dead(self.number, time.now()) {
            return;
        }
        let outcome = match decision {
            None => Outcome::Failed,
            Some(decision) if decision.is_admitted() => Outcome::Admitted,
            Some(_) => Outcome::Refused,
        };
        let counts_at = match decision {
            Some(decision) if has_waited => decision.at(),
            _ => time.clock(0, 0),
        };
        self.record.add(Call {
            number: arrival.number,
            key: arrival.key,
            node: self.number,
            outcome,
            came: arrival.came,
            answered: time.now(),
            counts_at,
        });
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        self.store.stats()
    }
}
