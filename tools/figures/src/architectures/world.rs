//! The parts that all architectures share: time, the network, machines, counts, and the record of
//! the calls.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{settings::FleetSettings, states::States};
use crate::{
    faults::nanos,
    node::Arrival,
    queue::Queue,
    random::Random,
    record::{Call, Outcome, Record},
    timeline::{Instant, Timeline, lock},
};

pub(super) struct World {
    pub(super) settings: FleetSettings,
    pub(super) time: Timeline,
    pub(super) record: Arc<Record>,
    /// The work of the store.
    store: Queue,
    /// The work of each node; of one more, which may be added.
    nodes: Vec<Queue>,
    random: Mutex<Random>,
    messages: AtomicU64,
    store_calls: AtomicU64,
}

impl World {
    pub(super) fn new(settings: &FleetSettings) -> Self {
        Self {
            settings: settings.clone(),
            time: Timeline::default(),
            record: Arc::default(),
            store: Queue::default(),
            nodes: (0..=settings.nodes).map(|_| Queue::default()).collect(),
            random: Mutex::new(Random::new(settings.seed, "ways")),
            messages: AtomicU64::new(0),
            store_calls: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.time.now()
    }

    pub(super) fn states(&self) -> Mutex<States> {
        Mutex::new(States::new(&self.settings.rule, self.settings.keys()))
    }

    /// Counts messages that are sent now.
    pub(super) fn sent(&self, messages: usize) {
        if self.is_measured(self.now()) {
            self.messages.fetch_add(messages as u64, Ordering::Relaxed);
        }
    }

    /// Counts what a simulation of its own has counted.
    pub(super) fn count(&self, store_calls: u64, messages: u64) {
        self.store_calls.fetch_add(store_calls, Ordering::Relaxed);
        self.messages.fetch_add(messages, Ordering::Relaxed);
    }

    /// Waits as long as a message travels.
    pub(super) async fn way(&self) {
        let jitter = lock(&self.random).below(nanos(self.settings.jitter) + 1);
        self.time.sleep(nanos(self.settings.delay) + jitter).await;
    }

    /// Sends a request to the store, and waits until the store has worked for it.
    pub(super) async fn ask_store(&self) {
        self.sent(1);
        self.way().await;
        if self.is_measured(self.now()) {
            self.store_calls.fetch_add(1, Ordering::Relaxed);
        }
        let done = self.store.add(self.now(), nanos(self.settings.service));
        self.time.until(done).await;
    }

    /// Sends an answer of the store, and waits until it arrives.
    pub(super) async fn answered_by_store(&self) {
        self.sent(1);
        self.way().await;
    }

    /// Lets a node work. Returns when it is done.
    pub(super) fn work(&self, node: usize, takes: Duration) -> Instant {
        self.nodes[node].add(self.now(), nanos(takes))
    }

    pub(super) fn happens(&self, part: u32) -> bool {
        lock(&self.random).happens(part)
    }

    pub(super) fn deadline(&self, arrival: Arrival) -> Instant {
        arrival.came + nanos(self.settings.deadline)
    }

    /// Records the answer of a machine that has decided by what it knows, now.
    pub(super) fn decided_here(&self, node: usize, arrival: Arrival, is_admitted: bool) {
        let answered = self.work(node, self.settings.decision);
        self.answered(node, arrival, is_admitted, self.now(), answered);
    }

    /// Records an answer. If it came too late, the call has failed.
    pub(super) fn answered(
        &self,
        node: usize,
        arrival: Arrival,
        is_admitted: bool,
        decided: Instant,
        answered: Instant,
    ) {
        let deadline = self.deadline(arrival);
        let outcome = match is_admitted {
            _ if answered > deadline => Outcome::Failed,
            true => Outcome::Admitted,
            false => Outcome::Refused,
        };
        self.record.add(Call {
            number: arrival.number,
            key: arrival.key,
            node,
            outcome,
            came: arrival.came,
            answered: answered.min(deadline),
            counts_at: Timeline::timestamp(decided.min(deadline)),
        });
    }

    pub(super) fn is_measured(&self, at: Instant) -> bool {
        (nanos(self.settings.warm_up)..nanos(self.settings.time)).contains(&at)
    }

    /// Returns the calls to the store, and all messages.
    pub(super) fn traffic(&self) -> (u64, u64) {
        let [store, messages] = [&self.store_calls, &self.messages];
        (
            store.load(Ordering::Relaxed),
            messages.load(Ordering::Relaxed),
        )
    }
}
