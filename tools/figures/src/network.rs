//! The way from the nodes to the store.

use std::{sync::Mutex, time::Duration};

use crate::{
    faults::{Faults, nanos},
    queue::Queue,
    random::{Millionths, Random},
    timeline::{Instant, Timeline, lock},
};

/// The way of messages between a node and the store.
#[derive(Clone, Debug)]
pub struct Link {
    /// The least time of one way.
    pub delay: Duration,
    /// The most that is added to it. With more than the time between two messages, they overtake
    /// each other.
    pub jitter: Duration,
    pub lost_requests: Millionths,
    pub lost_answers: Millionths,
    /// Requests that arrive twice.
    pub duplicated: Millionths,
    /// The time that a node waits for an answer.
    pub deadline: Duration,
    /// The time that the store works for a request. Requests wait for each other.
    pub service: Duration,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(500),
            jitter: Duration::from_micros(200),
            lost_requests: 0,
            lost_answers: 0,
            duplicated: 0,
            deadline: Duration::from_millis(50),
            service: Duration::ZERO,
        }
    }
}

/// The network of a fleet.
pub(crate) struct Network {
    pub(crate) time: Timeline,
    pub(crate) link: Link,
    pub(crate) faults: Faults,
    random: Mutex<Random>,
    store: Queue,
    /// The instants at which each node called the store.
    calls: Mutex<Vec<Vec<Instant>>>,
}

impl Network {
    pub(crate) fn new(
        time: &Timeline,
        link: &Link,
        faults: &Faults,
        nodes: usize,
        seed: u64,
    ) -> Self {
        Self {
            time: time.clone(),
            link: link.clone(),
            faults: faults.clone(),
            random: Mutex::new(Random::new(seed, "network")),
            store: Queue::default(),
            calls: Mutex::new(vec![Vec::new(); nodes]),
        }
    }

    /// Notes a call of a node. Returns how often its request is sent.
    pub(crate) fn called(&self, node: usize) -> usize {
        lock(&self.calls)[node].push(self.time.now());
        1 + usize::from(lock(&self.random).happens(self.link.duplicated))
    }

    /// Returns how long a request travels; `None` if it is lost.
    pub(crate) fn way_to_store(&self, node: usize) -> Option<u64> {
        self.way(node, self.link.lost_requests)
    }

    /// Returns how long an answer travels; `None` if it is lost.
    pub(crate) fn way_back(&self, node: usize) -> Option<u64> {
        self.way(node, self.link.lost_answers)
    }

    /// Waits until the store has worked for a request that has arrived.
    pub(crate) async fn served(&self) {
        let done = self.store.add(self.time.now(), nanos(self.link.service));
        self.time.until(done).await;
    }

    fn way(&self, node: usize, lost: Millionths) -> Option<u64> {
        let mut random = lock(&self.random);
        // Drawn in any case, so that a loss changes no other message.
        let jitter = random.below(nanos(self.link.jitter).saturating_add(1));
        let is_lost = random.happens(lost) || self.faults.is_cut_off(node, self.time.now());
        (!is_lost).then(|| nanos(self.link.delay) + jitter)
    }

    /// Returns the calls of each node.
    pub(crate) fn calls(&self) -> Vec<Vec<Instant>> {
        lock(&self.calls).clone()
    }
}
