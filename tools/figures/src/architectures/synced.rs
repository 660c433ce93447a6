//! Nodes that decide by the real background synchronisation, and push what they admitted later.

use std::{sync::Arc, time::Duration};

use tollgate::{
    AnyRule, Cost, Decision, Policy,
    key::Key,
    store::{
        Store, StoreError, StoreExt, SyncConfig, Synced,
        driver::{Ask, Check, Decisions},
    },
};

use super::{architecture::Architecture, transport::Transport, world::World};
use crate::{node::Arrival, node_clock::NodeClock, random::Random, timeline::Timeline};

pub(super) struct SyncedNodes<T: Transport> {
    world: Arc<World>,
    policy: Policy,
    nodes: Vec<Synced<T::Store, AnyRule, NodeClock>>,
    transport: Arc<T>,
}

impl<T: Transport> SyncedNodes<T> {
    /// Nodes that push usually once in a period.
    pub(super) fn new(world: &Arc<World>, period: Duration, transport: Arc<T>) -> Self {
        let settings = &world.settings;
        let mut random = Random::new(settings.seed, "nodes");
        let node = |node| {
            let config = SyncConfig::new()
                .max_unsynced(settings.max_unsynced)
                .period(period)
                .nodes(settings.nodes as u64)
                .seed(random.next())
                .clock(NodeClock::exact(&world.time));
            transport.store(node).synced(config)
        };
        Self {
            world: Arc::clone(world),
            policy: Policy::new("figures"),
            nodes: (0..settings.nodes).map(node).collect(),
            transport,
        }
    }

    /// Records a decision at the instant by which the rule made it: by the clock of the store, as
    /// the node knows it.
    fn answered(&self, (node, arrival): (usize, Arrival), decision: Decision, answered: u64) {
        let decided = Timeline::instant(decision.at());
        let world = &self.world;
        world.answered(node, arrival, decision.is_admitted(), decided, answered);
    }

    /// Waits for an answer until the deadline. A call that is dropped then has taken nothing.
    async fn wait(
        self: Arc<Self>,
        call: (usize, Arrival),
        answer: impl Future<Output = Result<Decisions, StoreError>>,
    ) {
        let (node, arrival) = call;
        let world = &self.world;
        let deadline = world.deadline(arrival);
        let answer = tokio::select! {
            biased;
            answer = answer => only(answer),
            () = world.time.until(deadline) => None,
        };
        match answer {
            Some(decision) => self.answered(call, decision, world.now()),
            None => world.answered(node, arrival, false, world.now(), deadline + 1),
        }
    }
}

fn only(answer: Result<Decisions, StoreError>) -> Option<Decision> {
    answer.ok()?.as_slice().first().copied()
}

impl<T: Transport> Architecture for SyncedNodes<T> {
    fn start(self: Arc<Self>) {
        Arc::clone(&self.transport).start();
    }

    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        let answer = {
            let key = Key::from(arrival.key);
            let ask = Ask::new(&self.policy, &self.world.settings.rule, key, Cost::ONE);
            self.nodes[node].acquire(&[ask])
        };
        let call = (node, arrival);
        match answer {
            Check::Ready(answer) => match only(answer) {
                Some(decision) => {
                    let answered = self.world.work(node, self.world.settings.decision);
                    self.answered(call, decision, answered);
                }
                None => {
                    let (now, late) = (self.world.now(), self.world.deadline(arrival) + 1);
                    self.world.answered(node, arrival, false, now, late);
                }
            },
            Check::Pending(answer) => {
                tokio::spawn(self.wait(call, answer));
            }
        }
    }

    fn needs_timers(&self) -> bool {
        true
    }

    fn finish(&self) {
        self.transport.finish(&self.world);
    }

    fn overshoot_bound(&self) -> Option<u64> {
        let bound = self.nodes.first()?;
        let bound = bound.overshoot_bound(&self.world.settings.rule)?;
        T::IS_CURRENT.then_some(bound)
    }
}
