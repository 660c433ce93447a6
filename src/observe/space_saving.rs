//! The most frequent keys, counted in bounded memory.

use super::key_index::KeyIndex;
use crate::key::Key;

/// Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005).
///
/// Each kept key has a counter. A key without one takes over the counter with the least count.
pub(super) struct SpaceSaving {
    capacity: usize,
    counters: Vec<Counter>,
    /// A binary heap of indexes of counters, with the least count first.
    heap: Vec<u32>,
    index: KeyIndex,
    total: u64,
}

/// The count of a key, which is too high by at most the error.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    pub(super) key: Key,
    pub(super) count: u64,
    pub(super) error: u64,
    hash: u64,
    /// The position in the heap.
    position: u32,
}

impl SpaceSaving {
    /// Allocates all memory that it will need. The capacity is below 2³¹.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            counters: Vec::with_capacity(capacity),
            heap: Vec::with_capacity(capacity),
            index: KeyIndex::new(capacity),
            total: 0,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Adds to the count of a key, whose hash is the same for each call. Counts saturate.
    pub(super) fn record(&mut self, key: &Key, hash: u64, count: u64) {
        self.total = self.total.saturating_add(count);
        let is_match = |index: usize| {
            let counter = &self.counters[index];
            counter.hash == hash && counter.key == *key
        };
        if let Some(index) = self.index.find(hash, is_match) {
            let counter = &mut self.counters[index];
            counter.count = counter.count.saturating_add(count);
            let position = counter.position as usize;
            self.sift_down(position);
        } else if self.counters.len() < self.capacity {
            let position = self.counters.len();
            self.index.insert(hash, position);
            self.heap.push(position as u32);
            self.counters.push(Counter {
                key: *key,
                count,
                error: 0,
                hash,
                position: position as u32,
            });
            self.sift_up(position);
        } else if let Some(least) = self.heap.first() {
            let index = *least as usize;
            let hash_of = |index: usize| self.counters[index].hash;
            self.index.remove(index, hash_of);
            self.index.insert(hash, index);
            let counter = &mut self.counters[index];
            *counter = Counter {
                key: *key,
                count: counter.count.saturating_add(count),
                error: counter.count,
                hash,
                position: 0,
            };
            self.sift_down(0);
        }
    }

    pub(super) fn clear(&mut self) {
        self.counters.clear();
        self.heap.clear();
        self.index.clear();
        self.total = 0;
    }

    fn sift_up(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.count_at(parent) <= self.count_at(position) {
                return;
            }
            self.swap(parent, position);
            position = parent;
        }
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let children = 2 * position + 1..self.heap.len().min(2 * position + 3);
            let Some(child) = children.min_by_key(|child| self.count_at(*child)) else {
                return;
            };
            if self.count_at(position) <= self.count_at(child) {
                return;
            }
            self.swap(position, child);
            position = child;
        }
    }

    fn count_at(&self, position: usize) -> u64 {
        self.counters[self.heap[position] as usize].count
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for position in [a, b] {
            self.counters[self.heap[position] as usize].position = position as u32;
        }
    }
}
