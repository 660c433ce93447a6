//! Calls that wait while a batch is in flight, and the turns of the workers that send batches.
//!
//! Each lane of the queue has a number of workers, and exists only while it has one.
//! Compare-and-swap has a lane for each key with one worker, because two would race. A script has a
//! lane for each group of keys with two workers, so that the server never waits for this side. Both
//! take whatever waits as the next batch. A worker that is dropped returns its turn and drops what
//! waits: the callers get an error, and later calls get a turn of their own.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::locks::lock;

use foldhash::fast::RandomState;

/// A queue that combines calls into batches, one lane for each key or group of keys.
///
/// A call adds its work to its lane. A few workers serve a lane at once; a call that finds fewer
/// gets the [`QueueTurn`] for one more, to be spawned as a task. A worker takes whatever waits,
/// sends it as one batch, and takes again until nothing waits. So no call waits for a batch to
/// fill, and a lane exists only while it has a worker.
pub(in crate::store) struct CombiningQueue<K, W> {
    lanes: Mutex<Lanes<K, W>>,
    /// The maximum number of workers of a lane.
    workers: usize,
}

struct Lanes<K, W> {
    by_key: HashMap<K, Lane<W>, RandomState>,
    is_bypassed: bool,
}

struct Lane<W> {
    waiting: W,
    workers: usize,
}

impl<K: Hash + Eq + Clone, W: Default> CombiningQueue<K, W> {
    /// Creates a queue with this many workers for each lane at most.
    pub(in crate::store) fn new(workers: usize) -> Arc<Self> {
        let lanes = Lanes {
            by_key: HashMap::default(),
            is_bypassed: false,
        };
        Arc::new(Self {
            lanes: Mutex::new(lanes),
            workers,
        })
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<K, W>> {
        lock(&self.lanes)
    }

    /// Locks the queue, to add work to one or several lanes.
    pub(in crate::store) fn lock(self: &Arc<Self>) -> LockedQueue<'_, K, W> {
        LockedQueue {
            queue: self,
            lanes: self.lanes(),
        }
    }

    /// Changes the waiting work of a lane. Returns `None` if the lane has no worker.
    pub(in crate::store) fn waiting<Q, T>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut W) -> T,
    ) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut lanes = self.lanes();
        lanes
            .by_key
            .get_mut(key)
            .map(|lane| change(&mut lane.waiting))
    }
}

/// A locked queue.
pub(in crate::store) struct LockedQueue<'q, K, W> {
    queue: &'q Arc<CombiningQueue<K, W>>,
    lanes: MutexGuard<'q, Lanes<K, W>>,
}

impl<'q, K: Hash + Eq + Clone, W: Default> LockedQueue<'q, K, W> {
    /// Returns a guard if no other call waits or is in flight: then the caller may send its work by
    /// itself, without a task.
    ///
    /// No other call waits for such a call, because its caller may stop polling it.
    pub(in crate::store) fn bypass(&mut self) -> Option<Bypass<'q, K, W>> {
        let is_idle = self.lanes.by_key.is_empty() && !self.lanes.is_bypassed;
        self.lanes.is_bypassed |= is_idle;
        is_idle.then(|| Bypass(self.queue))
    }

    /// Adds work to a lane. Returns a turn, to be spawned, if `add` returns that the work needs a
    /// worker and the lane may have one more.
    pub(in crate::store) fn add(
        &mut self,
        key: &K,
        add: impl FnOnce(&mut W) -> bool,
    ) -> Option<QueueTurn<K, W>> {
        let lane = match self.lanes.by_key.get_mut(key) {
            Some(lane) => lane,
            None => self.lanes.by_key.entry(key.clone()).or_insert(Lane {
                waiting: W::default(),
                workers: 0,
            }),
        };
        if !add(&mut lane.waiting) || lane.workers == self.queue.workers {
            return None;
        }
        lane.workers += 1;
        Some(QueueTurn {
            queue: Arc::clone(self.queue),
            key: key.clone(),
            is_over: false,
        })
    }
}

/// A guard of a call that bypasses the queue.
pub(in crate::store) struct Bypass<'q, K: Hash + Eq + Clone, W: Default>(&'q CombiningQueue<K, W>);

impl<K: Hash + Eq + Clone, W: Default> Drop for Bypass<'_, K, W> {
    fn drop(&mut self) {
        self.0.lanes().is_bypassed = false;
    }
}

/// The right to send the work of a lane.
///
/// It also ends on drop, such as when the runtime shuts down: then all that waits in the lane is
/// dropped, which wakes the callers, and later calls on another runtime find no worker and get a
/// turn of their own.
pub(in crate::store) struct QueueTurn<K: Hash + Eq + Clone, W: Default> {
    queue: Arc<CombiningQueue<K, W>>,
    key: K,
    is_over: bool,
}

impl<K: Hash + Eq + Clone, W: Default> QueueTurn<K, W> {
    /// Returns the key of the lane.
    pub(in crate::store) fn key(&self) -> &K {
        &self.key
    }

    /// Takes the work of the next batch. The turn is over when `take` returns that there is none.
    pub(in crate::store) fn next(&mut self, take: impl FnOnce(&mut W) -> bool) -> bool {
        let lanes = &mut *self.queue.lanes();
        let has_work = match lanes.by_key.get_mut(&self.key) {
            Some(lane) if !self.is_over => take(&mut lane.waiting),
            _ => false,
        };
        if !has_work && !self.is_over {
            self.is_over = true;
            lanes.leave(&self.key);
        }
        has_work
    }
}

impl<K: Hash + Eq + Clone, W: Default> Drop for QueueTurn<K, W> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let left = {
            let mut lanes = self.queue.lanes();
            let lane = lanes.by_key.get_mut(&self.key);
            let left = lane.map(|lane| mem::take(&mut lane.waiting));
            lanes.leave(&self.key);
            left
        };
        // Only now, unlocked: it wakes the callers.
        drop(left);
    }
}

impl<K: Hash + Eq, W> Lanes<K, W> {
    /// Takes a worker out of a lane, and removes the lane of the last one.
    fn leave(&mut self, key: &K) {
        let Some(lane) = self.by_key.get_mut(key) else {
            return;
        };
        lane.workers = lane.workers.saturating_sub(1);
        if lane.workers == 0 {
            self.by_key.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestQueue = CombiningQueue<u32, Vec<u32>>;

    fn add(queue: &Arc<TestQueue>, work: u32) -> Option<QueueTurn<u32, Vec<u32>>> {
        queue.lock().add(&7, |waiting| {
            waiting.push(work);
            true
        })
    }

    fn take(turn: &mut QueueTurn<u32, Vec<u32>>) -> Vec<u32> {
        let mut batch = Vec::new();
        turn.next(|waiting| {
            batch.append(waiting);
            !batch.is_empty()
        });
        batch
    }

    #[test]
    fn calls_that_come_meanwhile_are_the_next_batch() {
        let queue = TestQueue::new(1);
        let mut turn = add(&queue, 1).unwrap();
        assert_eq!(take(&mut turn), [1]);
        assert!(add(&queue, 2).is_none());
        assert!(add(&queue, 3).is_none());
        assert_eq!(take(&mut turn), [2, 3]);
        assert!(take(&mut turn).is_empty());
        // The turn is over, and the lane is gone.
        assert!(queue.waiting(&7, |_| ()).is_none());
        assert!(add(&queue, 4).is_some());
    }

    #[test]
    fn a_lane_has_no_more_workers_than_it_may() {
        let queue = TestQueue::new(2);
        let [mut first, second] = [1, 2].map(|work| add(&queue, work).unwrap());
        assert!(add(&queue, 3).is_none());
        assert_eq!(take(&mut first), [1, 2, 3]);
        drop(second);
        assert!(add(&queue, 4).is_some());
    }

    #[test]
    fn a_turn_that_is_dropped_drops_what_waits() {
        let queue = TestQueue::new(1);
        let turn = add(&queue, 1).unwrap();
        assert!(add(&queue, 2).is_none());
        drop(turn);
        let mut turn = add(&queue, 3).unwrap();
        assert_eq!(take(&mut turn), [3]);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn one_call_alone_bypasses_the_queue() {
        let queue = TestQueue::new(1);
        // A function of its own: a guard that is dropped locks the queue.
        let bypass = || {
            let mut locked = queue.lock();
            locked.bypass()
        };
        let alone = bypass().unwrap();
        assert!(bypass().is_none());
        let turn = add(&queue, 1);
        drop(alone);
        assert!(bypass().is_none());
        drop(turn);
        assert!(bypass().is_some());
    }
}
