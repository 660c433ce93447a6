//! Kafka, as a way by which nodes push to each other later. Modelled on `examples/kafka`.
//!
//! A node produces what it admitted to a topic. An aggregator reads the topic, adds everything up
//! by the rules, and writes the totals of the keys that have changed to a second topic, which all
//! nodes read. A node decides on the totals that it has read, and on its own changes that are not
//! in them yet. Changes have numbers, so one that is delivered twice is recognised.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate::{
    AnyRule, Policy, Timestamp,
    algorithm::Algorithm,
    future::{BoxFuture, SyncFuture},
    key::Key,
    store::{
        Backend, Store, StoreError,
        driver::{Ask, Batch, Check, Decisions, Delta, FleetStore, Pulled, Settlement, StateKey},
    },
};

use super::{transport::Transport, world::World};
use crate::{
    faults::nanos,
    owned_delta::{OwnedDelta, State},
    queue::Queue,
    timeline::{Timeline, lock},
};

/// The aggregator takes changes in together for this time, as that of the example does.
const TOGETHER: Duration = Duration::from_millis(10);

/// The topics, the aggregator, and what each node has read and produced.
pub(super) struct Topics {
    world: Arc<World>,
    /// The time that a message spends in a topic.
    in_topic: Duration,
    nodes: Vec<Mutex<Read>>,
    aggregator: Queue,
    aggregate: Mutex<Aggregate>,
    /// Numbers of changes that nodes make without the wrapper.
    numbers: AtomicU64,
}

/// The state of a key, with the number of the last change of each node that is in it.
#[derive(Clone, Default)]
struct Total {
    state: Option<State>,
    last: HashMap<u64, u64>,
}

/// A change, with the instant at which it was made.
#[derive(Clone)]
struct Change {
    delta: Arc<OwnedDelta>,
    at: Timestamp,
}

/// The totals that a node has read, and its changes that are not in them yet.
#[derive(Default)]
struct Read {
    totals: HashMap<StateKey, Arc<Total>>,
    own: HashMap<StateKey, Vec<Change>>,
}

#[derive(Default)]
struct Aggregate {
    totals: HashMap<StateKey, Arc<Total>>,
    /// Keys whose totals are to be written, each once, in order.
    changed: Vec<StateKey>,
    is_changed: HashSet<StateKey>,
}

impl Change {
    fn apply(&self, state: &mut Option<State>) {
        self.delta.add_to(state, self.at);
    }

    fn is_in(&self, total: &Total) -> bool {
        let Batch { node, number } = self.delta.batch;
        total.last.get(&node).is_some_and(|last| number <= *last)
    }
}

impl Read {
    fn read(&mut self, key: &StateKey, total: &Arc<Total>) {
        if let Some(own) = self.own.get_mut(key) {
            own.retain(|change| !change.is_in(total));
        }
        self.totals.insert(key.clone(), Arc::clone(total));
    }

    fn state(&self, key: &StateKey) -> Option<State> {
        let mut state = self.totals.get(key).and_then(|total| total.state.clone());
        for change in self.own.get(key).into_iter().flatten() {
            change.apply(&mut state);
        }
        state
    }
}

impl Aggregate {
    fn take_in(&mut self, change: &Change) {
        let key = &change.delta.key;
        let total = self.totals.entry(key.clone()).or_default();
        if change.is_in(total) {
            return;
        }
        let Batch { node, number } = change.delta.batch;
        let total = Arc::make_mut(total);
        total.last.insert(node, number);
        change.apply(&mut total.state);
        if self.is_changed.insert(key.clone()) {
            self.changed.push(key.clone());
        }
    }

    /// Takes the totals out that have changed.
    fn changes(&mut self) -> Vec<(StateKey, Arc<Total>)> {
        self.is_changed.clear();
        let changed = mem::take(&mut self.changed).into_iter();
        let total = |key: StateKey| {
            let total = self.totals.get(&key).cloned().unwrap_or_default();
            (key, total)
        };
        changed.map(total).collect()
    }
}

impl Topics {
    /// Topics of which each message takes half of the lag to be read.
    pub(super) fn new(world: &Arc<World>, lag: Duration) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            in_topic: lag / 2,
            nodes: (0..world.settings.nodes)
                .map(|_| Mutex::default())
                .collect(),
            aggregator: Queue::default(),
            aggregate: Mutex::default(),
            numbers: AtomicU64::new(1),
        })
    }

    /// Produces changes of a node as one message. Returns when the brokers have acknowledged it.
    async fn produce(self: Arc<Self>, node: usize, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let world = &self.world;
        let copies = 1 + usize::from(world.happens(world.settings.duplicates));
        world.sent(2);
        world.way().await;
        for _ in 0..copies {
            tokio::spawn(Arc::clone(&self).deliver(changes.clone()));
        }
        world.way().await;
        let mut read = lock(&self.nodes[node]);
        for change in changes {
            let key = &change.delta.key;
            let is_read = read
                .totals
                .get(key)
                .is_some_and(|total| change.is_in(total));
            if !is_read {
                read.own.entry(key.clone()).or_default().push(change);
            }
        }
    }

    /// Has the aggregator take a message in.
    async fn deliver(self: Arc<Self>, changes: Vec<Change>) {
        let world = &self.world;
        world.sent(1);
        world.time.sleep(nanos(self.in_topic)).await;
        let takes = nanos(world.settings.service).saturating_mul(changes.len() as u64);
        let done = self.aggregator.add(world.now(), takes);
        world.time.until(done).await;
        let mut aggregate = lock(&self.aggregate);
        for change in &changes {
            aggregate.take_in(change);
        }
    }

    /// Writes totals until no calls come any more.
    async fn aggregate(self: Arc<Self>) {
        let world = &self.world;
        while world.now() < nanos(world.settings.time) {
            world.time.sleep(nanos(TOGETHER)).await;
            let changes = lock(&self.aggregate).changes();
            if !changes.is_empty() {
                world.sent(1 + self.nodes.len());
                tokio::spawn(Arc::clone(&self).read(changes));
            }
        }
    }

    /// Has all nodes read totals.
    async fn read(self: Arc<Self>, totals: Vec<(StateKey, Arc<Total>)>) {
        let world = &self.world;
        world.way().await;
        world.time.sleep(nanos(self.in_topic)).await;
        for (node, read) in self.nodes.iter().enumerate() {
            world.work(node, world.settings.message);
            let mut read = lock(read);
            for (key, total) in &totals {
                read.read(key, total);
            }
        }
    }
}

impl Transport for Topics {
    type Store = Kafka;

    const IS_CURRENT: bool = false;

    fn store(self: &Arc<Self>, node: usize) -> Kafka {
        Kafka {
            node,
            topics: Arc::clone(self),
        }
    }

    fn start(self: Arc<Self>) {
        tokio::spawn(self.aggregate());
    }
}

/// The topics as a node sees them.
pub(super) struct Kafka {
    node: usize,
    topics: Arc<Topics>,
}

impl Kafka {
    fn now(&self) -> Timestamp {
        Timeline::timestamp(self.topics.world.now())
    }

    /// A change of one call, under a number of this node.
    fn change(&self, ask: &Ask<'_, AnyRule>) -> Change {
        let delta = OwnedDelta {
            key: ask.state_key(),
            rule: ask.rule_for_key().unwrap_or_else(|| ask.rule().clone()),
            batch: Batch {
                node: self.node as u64,
                number: self.topics.numbers.fetch_add(1, Ordering::Relaxed),
            },
            age: Duration::ZERO,
            units: ask.cost().get(),
        };
        Change {
            delta: Arc::new(delta),
            at: self.now(),
        }
    }
}

impl Backend for Kafka {
    type Error = StoreError;
}

/// The simulation corrects no charges and resets no keys.
fn not_simulated() -> StoreError {
    StoreError::unsupported(
        "a correction or a reset through Kafka: expected calls alone; model it here",
    )
}

impl Store<AnyRule> for Kafka {
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    /// Decides by what the node knows, and produces what was admitted.
    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let (now, node) = (self.now(), self.node);
        let read = lock(&self.topics.nodes[node]);
        let (mut decisions, mut changes) = (Vec::new(), Vec::new());
        for ask in asks {
            let change = self.change(ask);
            let mut state = read.state(&change.delta.key);
            let step = change.delta.rule.step(&mut state, now, ask.cost());
            decisions.push(ask.charged(step.decision()));
            changes.push(change);
        }
        if !decisions.iter().all(|decision| decision.is_admitted()) {
            return Check::Ready(Ok(decisions.into_iter().collect()));
        }
        let topics = Arc::clone(&self.topics);
        Check::Pending(Box::pin(async move {
            topics.produce(node, changes).await;
            Ok(decisions.into_iter().collect())
        }))
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let read = lock(&self.topics.nodes[self.node]);
        let look = |ask: &Ask<'_, AnyRule>| {
            let state = read.state(&ask.state_key());
            ask.rule().look(state.as_ref(), self.now())
        };
        Check::Ready(Ok(asks.iter().map(look).collect()))
    }

    fn settle(&self, _settlements: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
        Check::Ready(Err(not_simulated()))
    }

    fn reset(&self, _policy: &Policy, _key: &Key) -> Check<Self::Done> {
        Check::Ready(Err(not_simulated()))
    }

    fn fleet(&self) -> Option<&dyn FleetStore<AnyRule, Error = Self::Error>> {
        Some(self)
    }
}

impl FleetStore<AnyRule> for Kafka {
    /// Produces the deltas, and returns the last totals with what this node has produced since.
    fn sync(&self, deltas: &[Delta<'_, AnyRule>]) -> Option<SyncFuture<AnyRule, StoreError>> {
        let now = self.now();
        let change = |delta: &Delta<'_, AnyRule>| Change {
            delta: Arc::new(OwnedDelta::new(delta)),
            at: now,
        };
        let asked: Vec<_> = deltas.iter().map(change).collect();
        let pushed = asked.iter().filter(|change| change.delta.units > 0);
        let pushed: Vec<_> = pushed.cloned().collect();
        let (topics, node) = (Arc::clone(&self.topics), self.node);
        Some(Box::pin(async move {
            Arc::clone(&topics).produce(node, pushed).await;
            let (read, at) = (
                lock(&topics.nodes[node]),
                Timeline::timestamp(topics.world.now()),
            );
            let pulled = asked.iter().map(|change| {
                let state = read.state(&change.delta.key);
                Ok(Pulled { at, state })
            });
            Ok(pulled.collect())
        }))
    }
}
