//! Lagging aggregates of events.
//!
//! A node decides by the last aggregate that it has read, and by what it has admitted since then.
//! Each call is an event to the aggregator, which charges the admitted ones, recognises those that
//! come twice, and publishes the keys that have changed to all nodes from time to time. An
//! aggregate replaces what the node knew of the key.

use std::{
    collections::{BTreeSet, HashSet},
    mem,
    sync::{Arc, Mutex},
};

use super::{architecture::Architecture, states::States, world::World};
use crate::{faults::nanos, node::Arrival, queue::Queue, timeline::lock};

pub(super) struct Aggregates {
    world: Arc<World>,
    nodes: Vec<Mutex<States>>,
    aggregator: Queue,
    aggregate: Mutex<Aggregate>,
}

struct Aggregate {
    states: States,
    /// The numbers of the calls that were counted.
    known: HashSet<u64>,
    changed: BTreeSet<u64>,
}

impl Aggregates {
    pub(super) fn new(world: &Arc<World>) -> Self {
        let settings = &world.settings;
        Self {
            world: Arc::clone(world),
            nodes: (0..settings.nodes).map(|_| world.states()).collect(),
            aggregator: Queue::default(),
            aggregate: Mutex::new(Aggregate {
                states: States::new(&settings.rule, settings.keys()),
                known: HashSet::new(),
                changed: BTreeSet::new(),
            }),
        }
    }

    async fn count(self: Arc<Self>, arrival: Arrival, is_admitted: bool) {
        let world = &self.world;
        world.sent(1);
        world.way().await;
        let takes = nanos(world.settings.service);
        world
            .time
            .until(self.aggregator.add(world.now(), takes))
            .await;
        let aggregate = &mut *lock(&self.aggregate);
        if aggregate.known.insert(arrival.number) && is_admitted {
            aggregate.states.charge(arrival.key, world.now(), 1);
            aggregate.changed.insert(arrival.key);
        }
    }

    /// Publishes aggregates until no calls come any more.
    async fn publish(self: Arc<Self>) {
        let world = &self.world;
        while world.now() < nanos(world.settings.time) {
            world.time.sleep(nanos(world.settings.aggregate)).await;
            let changes: Vec<_> = {
                let aggregate = &mut *lock(&self.aggregate);
                let changed = mem::take(&mut aggregate.changed);
                let states = &aggregate.states;
                changed
                    .into_iter()
                    .map(|key| (key, states.get(key)))
                    .collect()
            };
            if changes.is_empty() {
                continue;
            }
            world.sent(self.nodes.len());
            let this = Arc::clone(&self);
            tokio::spawn(async move {
                this.world.way().await;
                for (node, states) in this.nodes.iter().enumerate() {
                    this.world.work(node, this.world.settings.message);
                    let mut states = lock(states);
                    for (key, state) in &changes {
                        states.set(*key, state.clone());
                    }
                }
            });
        }
    }
}

impl Architecture for Aggregates {
    fn start(self: Arc<Self>) {
        tokio::spawn(self.publish());
    }

    fn call(self: Arc<Self>, node: usize, arrival: Arrival) {
        let is_admitted = lock(&self.nodes[node]).decide(arrival.key, self.world.now());
        self.world.decided_here(node, arrival, is_admitted);
        let copies = 1 + usize::from(self.world.happens(self.world.settings.duplicates));
        for _ in 0..copies {
            tokio::spawn(Arc::clone(&self).count(arrival, is_admitted));
        }
    }
}
