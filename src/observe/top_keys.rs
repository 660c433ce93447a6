//! The most frequent keys, shared by threads.

use std::{
    cmp::Reverse,
    fmt,
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::quality::RandomState;

use super::{TopKey, space_saving::SpaceSaving};
use crate::key::Key;

/// Finds the most frequent keys, in memory that does not grow with the number of keys.
///
/// It keeps `capacity` keys, each with a count and the most by which the count can be too high. Let N be the sum of all that was
/// recorded. Then, whatever the order of the keys:
///
/// - `count - error` ≤ true count ≤ `count`.
/// - No error is above N / capacity.
/// - Every key whose true count is above N / capacity is kept.
/// - Up to `capacity` distinct keys, all counts are exact.
///
/// So a flood of keys that each come once does not hide a key that comes often, and shows by its errors. For example, with a capacity
/// of 1,000, every key that causes more than one refusal in a thousand is found.
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
/// Keys often identify persons, so a key is shown by its [digest](Key::digest) in hexadecimal digits unless
/// [`labelled_by`](Self::labelled_by) names another function. A digest is equal on every node. It is not a secret: anybody who tries all
/// addresses finds the one behind it.
///
/// # Cost
///
/// [`record`](Self::record) takes one lock and O(log capacity) steps, and allocates nothing. It is meant for events that are not the
/// usual case, such as refusals: threads that record at the same moment wait for each other. The memory, up to 100 bytes for each
/// key of the capacity, is allocated by [`new`](Self::new). The hash table inside has a random seed, so clients cannot choose keys
/// that make it slow. The method is Space-Saving (Metwally, Agrawal and El Abbadi, 2005) with a heap.
#[doc(alias = "heavy hitters")]
pub struct TopKeys {
    counts: Mutex<SpaceSaving>,
    hasher: RandomState,
    label: Arc<Label>,
}

/// Returns the text of a key for people.
pub(super) type Label = dyn Fn(&Key) -> String + Send + Sync;

impl TopKeys {
    /// The greatest capacity.
    pub const MAX_CAPACITY: usize = 1 << 16;

    /// Creates a list that keeps up to `capacity` keys, at most [`MAX_CAPACITY`](Self::MAX_CAPACITY). With 0 it keeps none.
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

    pub(super) fn with_label(self, label: Arc<Label>) -> Self {
        Self { label, ..self }
    }

    /// Adds 1 to the count of a key.
    #[inline]
    pub fn record(&self, key: &Key) {
        self.record_many(key, 1);
    }

    /// Adds `count` to the count of a key, for example the cost of a request. Counts end at `u64::MAX`; 0 adds nothing.
    pub fn record_many(&self, key: &Key, count: u64) {
        if count > 0 {
            let hash = self.hasher.hash_one(key);
            self.counts().record(key, hash, count);
        }
    }

    /// Returns the `n` keys with the greatest counts, greatest first. Of equal counts, those with the smaller error come first.
    ///
    /// Holds the lock only to copy the counters, which are 80 bytes for each key. It sorts and labels the copy.
    pub fn top(&self, n: usize) -> Vec<TopKey> {
        let capacity = self.capacity();
        let mut counters = Vec::with_capacity(capacity);
        counters.extend_from_slice(self.counts().counters());
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
        self.counts().total()
    }

    /// Returns the number of keys that can be kept.
    pub fn capacity(&self) -> usize {
        self.counts().capacity()
    }

    /// Forgets all keys, for example at the start of each hour.
    pub fn clear(&self) {
        self.counts().clear();
    }

    fn counts(&self) -> MutexGuard<'_, SpaceSaving> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        f.debug_struct("TopKeys")
            .field("capacity", &counts.capacity())
            .field("keys", &counts.counters().len())
            .field("total", &counts.total())
            .finish_non_exhaustive()
    }
}
