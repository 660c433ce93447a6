//! The most frequent keys, and an observer that finds the keys that are refused most.

use std::{
    cmp::Reverse,
    fmt,
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use foldhash::quality::RandomState;

use super::{Event, Observer};
use crate::{decision::Decision, key::Key, locks::lock};

/// Finds the most frequent keys, in memory that does not grow with the number of keys.
///
/// It keeps `capacity` keys, each with a count and the most by which the count can be too high. Let
/// N be the sum of all that was recorded. Then, whatever the order of the keys:
///
/// - `count - error` ≤ true count ≤ `count`.
/// - No error is above N / capacity.
/// - Every key whose true count is above N / capacity is kept.
/// - Up to `capacity` distinct keys, all counts are exact.
///
/// So a flood of keys that each occur once does not hide a frequent key, and is recognized by its
/// large errors. For example, with a capacity of 1,000, every key that causes more than one refusal
/// in a thousand is found.
///
/// ```
/// use tollgate::observe::TopKeys;
///
/// let keys = TopKeys::new(100).labelled_by(|key| format!("{key:?}"));
/// for request in 0..1_000_u64 {
///     // Every second request is of one client.
///     let client = if request % 2 == 0 { 0 } else { request };
///     keys.record(&client.into());
/// }
/// let top = keys.top(1);
/// assert_eq!(top[0].key(), &0.into());
/// assert!(top[0].count() >= 500 && top[0].count() - top[0].error() <= 500);
/// ```
///
/// # Labels
///
/// Keys often identify persons, so a key is shown by its [digest](Key::digest) in hexadecimal
/// digits unless [`labelled_by`](Self::labelled_by) names another function. A digest is equal on
/// every node. It is not a secret: anybody who tries all addresses finds the one behind it.
///
/// # Cost
///
/// [`record`](Self::record) takes one lock and O(log capacity) steps, and allocates nothing. It is
/// meant for events that are not the usual case, such as refusals: threads that record at the same
/// moment wait for each other. The memory, up to 100 bytes for each key of the capacity, is
/// allocated by [`new`](Self::new). The hash table inside has a random seed, so clients cannot
/// choose keys that make it slow. The method is Space-Saving (Metwally, Agrawal and El Abbadi,
/// 2005) with a heap.
#[doc(alias = "heavy hitters")]
pub struct TopKeys {
    counts: Mutex<SpaceSaving>,
    hasher: RandomState,
    label: Arc<KeyLabel>,
}

/// A function that returns the text of a key for people.
type KeyLabel = dyn Fn(&Key) -> String + Send + Sync;

impl TopKeys {
    /// The greatest capacity.
    pub const MAX_CAPACITY: usize = 1 << 16;

    /// Creates a list that keeps up to `capacity` keys, at most
    /// [`MAX_CAPACITY`](Self::MAX_CAPACITY). With 0 it keeps none.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(Self::MAX_CAPACITY);
        Self {
            counts: Mutex::new(SpaceSaving::new(capacity)),
            hasher: RandomState::default(),
            label: Arc::new(|key| format!("{:016x}", key.digest())),
        }
    }

    /// Sets the function that returns the text of a key for people; the digest by default.
    ///
    /// It is called by [`top`](Self::top), once for each key, without a lock.
    #[must_use]
    pub fn labelled_by(self, label: impl Fn(&Key) -> String + Send + Sync + 'static) -> Self {
        self.with_label(Arc::new(label))
    }

    fn with_label(self, label: Arc<KeyLabel>) -> Self {
        Self { label, ..self }
    }

    /// Adds 1 to the count of a key.
    #[inline]
    pub fn record(&self, key: &Key) {
        self.record_many(key, 1);
    }

    /// Adds `count` to the count of a key, for example the cost of a request. Counts saturate; 0
    /// adds nothing.
    pub fn record_many(&self, key: &Key, count: u64) {
        if count > 0 {
            let hash = self.hasher.hash_one(key);
            self.counts().record(key, hash, count);
        }
    }

    /// Returns the `n` keys with the greatest counts, greatest first. Of equal counts, those with
    /// the smaller error come first.
    ///
    /// Holds the lock only to copy the counters, which are 80 bytes for each key. It sorts and
    /// labels the copy.
    pub fn top(&self, n: usize) -> Vec<TopKey> {
        let capacity = self.capacity();
        let mut counters = Vec::with_capacity(capacity);
        counters.extend_from_slice(&self.counts().counters);
        counters.sort_by_key(|counter| (Reverse(counter.count), counter.error));
        let top = counters.iter().take(n).map(|counter| TopKey {
            key: counter.key,
            label: (self.label)(&counter.key),
            count: counter.count,
            error: counter.error,
        });
        top.collect()
    }

    /// Returns the sum of all that was recorded since the last [`clear`](Self::clear).
    pub fn total(&self) -> u64 {
        self.counts().total
    }

    /// Returns the number of keys that can be kept.
    pub fn capacity(&self) -> usize {
        self.counts().capacity
    }

    /// Forgets all keys, for example at the start of each hour.
    pub fn clear(&self) {
        self.counts().clear();
    }

    fn counts(&self) -> MutexGuard<'_, SpaceSaving> {
        lock(&self.counts)
    }
}

impl fmt::Debug for TopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        f.debug_struct("TopKeys")
            .field("capacity", &counts.capacity)
            .field("keys", &counts.counters.len())
            .field("total", &counts.total)
            .finish_non_exhaustive()
    }
}

/// A key with its estimated count, from [`TopKeys::top`](TopKeys::top).
///
/// ```
/// use tollgate::observe::TopKeys;
///
/// let keys = TopKeys::new(100).labelled_by(|key| format!("{key:?}"));
/// keys.record_many(&"alice".into(), 3);
///
/// let top = &keys.top(1)[0];
/// assert_eq!((top.label(), top.count(), top.error()), ("Key(text)", 3, 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopKey {
    key: Key,
    label: String,
    count: u64,
    error: u64,
}

impl TopKey {
    /// Returns the key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the text for people: the [user's](TopKeys::labelled_by), or the key's digest in
    /// hexadecimal digits.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the estimated count. It is never below the true one.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the most by which the count can be too high. The true count is at least
    /// `count() - error()`.
    pub fn error(&self) -> u64 {
        self.error
    }
}

/// Finds the keys that are refused most, and those that are nearly refused most.
///
/// A request is nearly refused if a limit admits or delays it and less than a
/// [share](Self::nearly_below) of that limit remains, 10 % by default. Such clients are about to be
/// refused, or use nearly all of their quota.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::observe::{Event, Observer, TopRefused};
/// use tollgate::store::{Local, driver::Ask};
///
/// let top = TopRefused::new(1_000).labelled_by(|key| format!("{key:?}"));
/// // A layer makes these calls.
/// let (store, policy, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_hour(20));
/// for _ in 0..50 {
///     let key = "alice".into();
///     let decision = store.decide(&Ask::new(&policy, &rule, key, Cost::ONE));
///     let event = Event::new(&policy, &key, &decision);
///     if decision.is_admitted() { top.admitted(&event) } else { top.refused(&event) }
/// }
///
/// assert_eq!(top.most_refused().top(10)[0].count(), 30);
/// // 1 and 0 of 20 requests remained.
/// assert_eq!(top.most_nearly_refused().top(10)[0].count(), 2);
/// ```
///
/// # Several limits
///
/// The keys of all limits that it observes are in one list. To tell limits apart, give each layer
/// an observer of its own, or forward the events of one [policy](Event::policy). Limits on a dry
/// run refuse nobody, so their decisions are not recorded. Undecided requests, and those without a
/// key, are not recorded either.
///
/// # Cost
///
/// Refused and nearly refused requests cost one [record](TopKeys#cost) each. All others compute
/// `remaining`, which takes a division for most rules, and no lock.
#[doc(alias("abusers", "heavy hitters"))]
#[derive(Debug)]
pub struct TopRefused {
    refused: TopKeys,
    nearly: TopKeys,
    percent: u8,
}

impl TopRefused {
    /// Creates an observer that keeps up to `capacity` keys of each kind, at most
    /// [`TopKeys::MAX_CAPACITY`].
    pub fn new(capacity: usize) -> Self {
        Self {
            refused: TopKeys::new(capacity),
            nearly: TopKeys::new(capacity),
            percent: 10,
        }
    }

    /// Sets the share of a limit, in per cent, below which an admitted request is nearly refused;
    /// 10 by default.
    ///
    /// With 0 none is.
    #[must_use]
    pub fn nearly_below(self, percent: u8) -> Self {
        Self { percent, ..self }
    }

    /// Sets the function that returns the [text of a key](TopKeys#labels) for people; the digest by
    /// default.
    #[must_use]
    pub fn labelled_by(self, label: impl Fn(&Key) -> String + Send + Sync + 'static) -> Self {
        let label: Arc<KeyLabel> = Arc::new(label);
        Self {
            refused: self.refused.with_label(Arc::clone(&label)),
            nearly: self.nearly.with_label(label),
            ..self
        }
    }

    /// Returns the keys of refused requests, counted by request.
    pub fn most_refused(&self) -> &TopKeys {
        &self.refused
    }

    /// Returns the keys of nearly refused requests, counted by request.
    pub fn most_nearly_refused(&self) -> &TopKeys {
        &self.nearly
    }

    #[inline]
    fn passed(&self, event: &Event<'_>) {
        if self.is_near(event.decision()) {
            self.nearly.record(event.key());
        }
    }

    fn is_near(&self, decision: &Decision) -> bool {
        let numbers = decision.remaining().zip(decision.limit());
        self.percent > 0
            && numbers.is_some_and(|(remaining, limit)| {
                u128::from(remaining) * 100 < u128::from(limit) * u128::from(self.percent)
            })
    }
}

impl Observer for TopRefused {
    #[inline]
    fn admitted(&self, event: &Event<'_>) {
        self.passed(event);
    }

    #[inline]
    fn delayed(&self, event: &Event<'_>, _: Duration) {
        self.passed(event);
    }

    #[inline]
    fn refused(&self, event: &Event<'_>) {
        self.refused.record(event.key());
    }
}

/// Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
/// elements in data streams", 2005).
///
/// Each kept key has a counter. A key without one takes over the counter with the least count.
struct SpaceSaving {
    capacity: usize,
    counters: Vec<KeyCount>,
    /// A binary heap of indexes of counters, with the least count first.
    heap: Vec<u32>,
    index: KeyIndex,
    total: u64,
}

/// The count of a key, which is too high by at most the error.
#[derive(Clone, Copy)]
struct KeyCount {
    key: Key,
    count: u64,
    error: u64,
    hash: u64,
    /// The position in the heap.
    position: u32,
}

impl SpaceSaving {
    /// Allocates all memory that it will need. The capacity is below 2³¹.
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            counters: Vec::with_capacity(capacity),
            heap: Vec::with_capacity(capacity),
            index: KeyIndex::new(capacity),
            total: 0,
        }
    }

    /// Adds to the count of a key, whose hash is the same for each call. Counts saturate.
    fn record(&mut self, key: &Key, hash: u64, count: u64) {
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
            self.counters.push(KeyCount {
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
            *counter = KeyCount {
                key: *key,
                count: counter.count.saturating_add(count),
                error: counter.count,
                hash,
                position: 0,
            };
            self.sift_down(0);
        }
    }

    fn clear(&mut self) {
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

/// A hash table of indexes, with linear probing and a fixed size.
///
/// It stores neither keys nor hashes: the caller passes functions that compare and return them. An
/// entry is removed by moving later ones back, so the table needs no rebuilding, however many keys
/// come and go.
struct KeyIndex {
    /// An index plus one, or 0 if the slot is free. At least half of the slots are free.
    slots: Box<[u32]>,
}

impl KeyIndex {
    fn new(capacity: usize) -> Self {
        let slots = (2 * capacity).next_power_of_two().max(2);
        Self {
            slots: vec![0; slots].into(),
        }
    }

    /// Returns the index with this hash for which `is_match` is true.
    fn find(&self, hash: u64, is_match: impl Fn(usize) -> bool) -> Option<usize> {
        self.slot(hash, is_match)
            .and_then(|slot| self.index_at(slot))
    }

    /// Inserts an index. There must be fewer of them than the capacity.
    fn insert(&mut self, hash: u64, index: usize) {
        let mut slots = self.probe(self.home(hash));
        if let Some(slot) = slots.find(|slot| self.slots[*slot] == 0) {
            self.slots[slot] = index as u32 + 1;
        }
    }

    /// Removes an index, given the hash of each one.
    fn remove(&mut self, index: usize, hash_of: impl Fn(usize) -> u64) {
        let Some(mut hole) = self.slot(hash_of(index), |other| other == index) else {
            return;
        };
        for slot in self.probe(hole).skip(1) {
            let Some(index) = self.index_at(slot) else {
                break;
            };
            // A search for this entry begins at its home. It must not meet the hole before it meets
            // the entry.
            let probes = self.distance(self.home(hash_of(index)), slot);
            if probes >= self.distance(hole, slot) {
                self.slots[hole] = self.slots[slot];
                hole = slot;
            }
        }
        self.slots[hole] = 0;
    }

    fn clear(&mut self) {
        self.slots.fill(0);
    }

    fn slot(&self, hash: u64, is_match: impl Fn(usize) -> bool) -> Option<usize> {
        self.probe(self.home(hash))
            .map_while(|slot| Some((slot, self.index_at(slot)?)))
            .find_map(|(slot, index)| is_match(index).then_some(slot))
    }

    /// Returns all slots, from this one on.
    fn probe(&self, from: usize) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        (from..=from + mask).map(move |slot| slot & mask)
    }

    fn index_at(&self, slot: usize) -> Option<usize> {
        (self.slots[slot] as usize).checked_sub(1)
    }

    /// Returns the slot at which a search for a hash begins.
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    /// Returns the number of steps from one slot to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }
}
