//! A bounded cache of refusals, each of them until its end.
//!
//! - A refusal is found only before its end, and only for its cost or a higher one of its key.
//! - It is not stored if a key of its set was forgotten since the lookup of its call, because a
//!   settlement or a reset may have made it wrong.
//! - The cache never exceeds its capacity: a full set evicts the refusal that ends first.
//!
//! Two stores use it. `RememberRefusals` refuses by what it finds, so its entries have the whole
//! key and the decision. Counters only read before they add, so their entries have neither. Leases
//! keep the refusals of a key in its own state, which is a pure machine.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::quality::RandomState;

#[cfg(feature = "tokio")]
use super::detach_on_drop;
use crate::{
    decision::Cost,
    locks,
    stats::Counter,
    store::{BoxFuture, Check},
    time::Timestamp,
};

/// Entries per set.
const WAYS: usize = 8;

/// A set-associative cache: a fixed number of sets with a lock and up to [`WAYS`] entries each.
pub(crate) struct RefusalCache<K, R> {
    sets: Box<[CacheSet<K, R>]>,
    /// Limit of entries per set.
    ways: usize,
    hasher: RandomState,
    remembered: Counter,
    evicted: Counter,
}

struct CacheSet<K, R> {
    entries: RwLock<SetEntries<K, R>>,
    /// One counter per set, so that a flood of one key does not slow others.
    hits: Counter,
}

struct SetEntries<K, R> {
    /// The hash of each entry, side by side: a missing key costs one cache line.
    hashes: [u64; WAYS],
    /// Grows up to the number of ways.
    list: Vec<RefusalEntry<K, R>>,
    /// Number of times that a key of this set was forgotten.
    generation: u64,
}

/// A refusal of a key.
pub(crate) struct RefusalEntry<K, R> {
    pub(crate) key: K,
    /// The least cost that is refused.
    pub(crate) cost: Cost,
    pub(crate) ends_at: Timestamp,
    pub(crate) refusal: R,
}

/// The result of a lookup, needed to store the answer that follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    hash: u64,
    /// The generation of the set.
    generation: u64,
    /// `true` if the key has an entry, of any cost.
    has_entry: bool,
}

impl<K, R> RefusalCache<K, R> {
    /// Creates a cache of up to `capacity` refusals. It allocates entries when they are used.
    pub(crate) fn new(capacity: usize) -> Self {
        let ways = capacity.min(WAYS);
        let sets = capacity.checked_div(ways).unwrap_or(0);
        Self {
            sets: (0..sets).map(|_| CacheSet::new()).collect(),
            ways,
            hasher: RandomState::default(),
            remembered: Counter::default(),
            evicted: Counter::default(),
        }
    }

    /// Returns the hasher of keys.
    pub(crate) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// Returns the number of [hits](Self::count_hit).
    pub(crate) fn hits(&self) -> u64 {
        self.sets.iter().map(|set| set.hits.get()).sum()
    }

    /// Returns the number of refusals that were stored.
    pub(crate) fn remembered(&self) -> u64 {
        self.remembered.get()
    }

    /// Returns the number of refusals that were evicted before they ended.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.get()
    }

    /// Returns the number of entries, including refusals that have ended.
    pub(crate) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.read().list.len()).sum()
    }

    fn set(&self, hash: u64) -> Option<&CacheSet<K, R>> {
        // The upper bits of the product spread hashes over any number of sets.
        let index = (u128::from(hash) * self.sets.len() as u128) >> u64::BITS;
        self.sets.get(index as usize)
    }

    /// Finds the refusal of a key that holds for a cost now, and returns what `read` makes of it.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        (cost, now): (Cost, Timestamp),
        read: impl FnOnce(&RefusalEntry<K, R>) -> Option<T>,
    ) -> (Lookup, Option<T>) {
        let mut lookup = Lookup {
            hash,
            generation: 0,
            has_entry: false,
        };
        let Some(set) = self.set(hash) else {
            return (lookup, None);
        };
        let entries = set.read();
        let found = entries.find(hash, is_key);
        lookup.generation = entries.generation;
        lookup.has_entry = found.is_some();
        let entry = found.and_then(|index| entries.list.get(index));
        let holds = |entry: &&RefusalEntry<K, R>| entry.cost <= cost && now < entry.ends_at;
        (lookup, entry.filter(holds).and_then(read))
    }

    /// Counts a call that was refused from the cache.
    pub(crate) fn count_hit(&self, lookup: Lookup) {
        if let Some(set) = self.set(lookup.hash) {
            set.hits.add(1);
        }
    }

    /// Stores a refusal that has not ended, in place of an older one of its key or of the one in
    /// its set that ends first.
    pub(crate) fn insert(&self, lookup: Lookup, entry: RefusalEntry<K, R>, now: Timestamp)
    where
        K: PartialEq,
    {
        let Some(set) = self.set(lookup.hash).filter(|_| now < entry.ends_at) else {
            return;
        };
        let mut entries = set.write();
        if entries.generation != lookup.generation {
            return;
        }
        self.remembered.add(1);
        let index = match entries.find(lookup.hash, |key| *key == entry.key) {
            Some(index) => index,
            None if entries.list.len() < self.ways => {
                let index = entries.list.len();
                entries.list.push(entry);
                entries.hashes[index] = lookup.hash;
                return;
            }
            None => {
                let ends = entries.list.iter().map(|entry| entry.ends_at);
                let Some((index, end)) = ends.enumerate().min_by_key(|(_, end)| *end) else {
                    return;
                };
                self.evicted.add(u64::from(end > now));
                index
            }
        };
        entries.list[index] = entry;
        entries.hashes[index] = lookup.hash;
    }

    /// Removes the entry of a key after the store admitted a lower cost, because the refusal of a
    /// higher one may be out of date.
    pub(crate) fn admitted(&self, lookup: Lookup) {
        if lookup.has_entry {
            self.forget(lookup.hash);
        }
    }

    /// Removes the entries of a hash. Another key with the same hash loses its entry too, and is
    /// decided by the store again.
    pub(crate) fn forget(&self, hash: u64) {
        let Some(set) = self.set(hash) else {
            return;
        };
        let mut entries = set.write();
        entries.generation += 1;
        // From the end, so that the entry that `swap_remove` moves has been checked.
        for index in (0..entries.list.len()).rev() {
            if entries.hashes[index] == hash {
                entries.list.swap_remove(index);
                entries.hashes[index] = entries.hashes[entries.list.len()];
            }
        }
    }
}

impl<K, R> CacheSet<K, R> {
    fn new() -> Self {
        Self {
            entries: RwLock::new(SetEntries {
                hashes: [0; WAYS],
                list: Vec::new(),
                generation: 0,
            }),
            hits: Counter::default(),
        }
    }

    // Comparisons and drops of rules may panic under the locks, but leave the entries valid.
    fn read(&self) -> RwLockReadGuard<'_, SetEntries<K, R>> {
        locks::read(&self.entries)
    }

    fn write(&self) -> RwLockWriteGuard<'_, SetEntries<K, R>> {
        locks::write(&self.entries)
    }
}

impl<K, R> SetEntries<K, R> {
    fn find(&self, hash: u64, is_key: impl Fn(&K) -> bool) -> Option<usize> {
        let matching = |(index, entry): (usize, &RefusalEntry<K, R>)| {
            (self.hashes[index] == hash && is_key(&entry.key)).then_some(index)
        };
        self.list.iter().enumerate().find_map(matching)
    }
}

/// Has `forget` drop what is known of keys that a store changes: once the change is under way, and
/// once it is made, as answers in between may be older than it.
///
/// The change does not end with the future, because remote stores make it in a task. Where there is
/// a runtime of tokio, a future that is dropped, as layers do, goes on in a task, too.
pub(crate) fn forget_changed<F>(
    change: Check<F>,
    forget: impl Fn() + Send + 'static,
) -> Check<BoxFuture<F::Output>>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    forget();
    let change = match change {
        Check::Ready(done) => return Check::Ready(done),
        Check::Pending(change) => change,
    };
    let forget = OnDrop(forget);
    let work = async move {
        let _forget = forget;
        change.await
    };
    #[cfg(feature = "tokio")]
    let work = detach_on_drop(work).begun();
    Check::Pending(Box::pin(work))
}

/// Does something at the end of a scope, also if that is a panic or a future that is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::{Lookup, RefusalCache, RefusalEntry};
    use crate::{decision::Cost, time::Timestamp};

    type Cache = RefusalCache<u64, &'static str>;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn find(cache: &Cache, key: u64, now: u64) -> (Lookup, Option<&'static str>) {
        let call = (Cost::ONE, at(now));
        // Keys below 10 have one hash.
        let hash = if key < 10 { 0 } else { key << 60 };
        cache.find(hash, |own| *own == key, call, |entry| Some(entry.refusal))
    }

    fn refuse(cache: &Cache, key: u64, [now, end]: [u64; 2]) {
        let entry = RefusalEntry {
            key,
            cost: Cost::ONE,
            ends_at: at(end),
            refusal: "no",
        };
        cache.insert(find(cache, key, now).0, entry, at(now));
    }

    #[test]
    fn forgetting_removes_every_key_of_a_hash_and_no_other() {
        let cache = Cache::new(8);
        [1, 10, 2, 11, 3]
            .into_iter()
            .for_each(|key| refuse(&cache, key, [0, 10]));
        // A refusal of a key replaces its own, and one that has ended is not stored.
        refuse(&cache, 2, [0, 20]);
        refuse(&cache, 4, [5, 5]);
        assert_eq!((cache.len(), find(&cache, 2, 15).1), (5, Some("no")));
        cache.forget(0);
        let found = [1, 2, 3, 10, 11].map(|key| find(&cache, key, 1).1);
        assert_eq!(found, [None, None, None, Some("no"), Some("no")]);
        // An admission removes what its lookup has found.
        cache.admitted(find(&cache, 12, 1).0);
        assert_eq!(cache.len(), 2);
        cache.admitted(find(&cache, 11, 1).0);
        assert_eq!((cache.len(), find(&cache, 10, 1).1), (1, Some("no")));
    }
}
