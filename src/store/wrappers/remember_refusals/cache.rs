//! A bounded cache of refusals by policy and key.

use std::{
    hash::{BuildHasher, Hash, Hasher},
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::quality::RandomState;

use super::refusal::CachedRefusal;
use crate::{decision::Decision, key::Key, policy::Policy, store::Ask, time::Timestamp};

/// Entries per set.
const WAYS: usize = 8;

/// A set-associative cache: a fixed number of sets with a lock and up to [`WAYS`] entries each. A full set evicts the refusal
/// that ends first.
pub(super) struct RefusalCache<Rule> {
    sets: Box<[CacheSet<Rule>]>,
    /// Limit of entries per set.
    ways: usize,
    hasher: RandomState,
    // Relaxed throughout: the counts are for reports and order nothing.
    remembered: AtomicU64,
    evicted: AtomicU64,
}

struct CacheSet<Rule> {
    entries: RwLock<SetEntries<Rule>>,
    /// One counter per set, so that a flood of one key does not slow others.
    hits: AtomicU64,
}

struct SetEntries<Rule> {
    /// The hash of each entry, side by side: a missing key costs one cache line.
    hashes: [u64; WAYS],
    /// Grows up to the number of ways.
    list: Vec<CacheEntry<Rule>>,
    /// Number of times that a key of this set was forgotten.
    generation: u64,
}

struct CacheEntry<Rule> {
    policy: Policy,
    key: Key,
    rule: Rule,
    refusal: CachedRefusal,
}

/// A lookup, for the answer of the store that follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup {
    hash: u64,
    /// The generation of the set. A refusal is not stored if a key of its set was forgotten since the lookup.
    generation: u64,
    /// `true` if the key has an entry, of any rule and cost.
    has_entry: bool,
}

impl<Rule> RefusalCache<Rule> {
    pub(super) fn new(capacity: usize) -> Self {
        let ways = capacity.min(WAYS);
        let sets = capacity.checked_div(ways).unwrap_or(0);
        Self {
            sets: (0..sets).map(|_| CacheSet::new()).collect(),
            ways,
            hasher: RandomState::default(),
            remembered: AtomicU64::default(),
            evicted: AtomicU64::default(),
        }
    }

    pub(super) fn hits(&self) -> u64 {
        let hits = |set: &CacheSet<Rule>| set.hits.load(Ordering::Relaxed);
        self.sets.iter().map(hits).sum()
    }

    pub(super) fn remembered(&self) -> u64 {
        self.remembered.load(Ordering::Relaxed)
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the number of entries, including refusals that have ended.
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.read().list.len()).sum()
    }

    pub(super) fn hash(&self, policy: &Policy, key: &Key) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(policy.digest());
        key.hash(&mut hasher);
        hasher.finish()
    }

    fn set(&self, hash: u64) -> Option<&CacheSet<Rule>> {
        // The upper bits of the product spread hashes over any number of sets.
        let index = (u128::from(hash) * self.sets.len() as u128) >> u64::BITS;
        self.sets.get(index as usize)
    }

    /// Returns the refusal that still holds for an ask, if there is one.
    #[inline]
    pub(super) fn find(&self, ask: &Ask<'_, Rule>, now: Timestamp) -> (Lookup, Option<Decision>)
    where
        Rule: PartialEq,
    {
        let hash = self.hash(ask.policy(), ask.key());
        let lookup = |generation, has_entry| Lookup {
            hash,
            generation,
            has_entry,
        };
        let Some(set) = self.set(hash) else {
            return (lookup(0, false), None);
        };
        let entries = set.read();
        let found = entries.find(hash, ask.policy(), ask.key());
        let refusal = found.and_then(|index| {
            let entry = entries.list.get(index)?;
            let is_same_rule = entry.rule == *ask.rule();
            is_same_rule
                .then(|| entry.refusal.decision(ask.cost(), now))
                .flatten()
        });
        (lookup(entries.generation, found.is_some()), refusal)
    }

    /// Counts a call that was refused from the cache.
    pub(super) fn count_hit(&self, lookup: Lookup) {
        if let Some(set) = self.set(lookup.hash) {
            set.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stores a refusal, in place of an older one of its key or of the one in its set that ends first.
    pub(super) fn insert(
        &self,
        lookup: Lookup,
        (policy, key, rule): (Policy, Key, Rule),
        refusal: CachedRefusal,
        now: Timestamp,
    ) {
        let Some(set) = self.set(lookup.hash) else {
            return;
        };
        let mut entries = set.write();
        if entries.generation != lookup.generation {
            return;
        }
        self.remembered.fetch_add(1, Ordering::Relaxed);
        let existing = entries.find(lookup.hash, &policy, &key);
        let entry = CacheEntry {
            policy,
            key,
            rule,
            refusal,
        };
        let index = match existing {
            Some(index) => index,
            None if entries.list.len() < self.ways => {
                let index = entries.list.len();
                entries.list.push(entry);
                entries.hashes[index] = lookup.hash;
                return;
            }
            None => {
                let ends = entries.list.iter().map(|entry| entry.refusal.ends_at());
                let Some((index, end)) = ends.enumerate().min_by_key(|(_, end)| *end) else {
                    return;
                };
                self.evicted
                    .fetch_add(u64::from(end > now), Ordering::Relaxed);
                index
            }
        };
        entries.list[index] = entry;
        entries.hashes[index] = lookup.hash;
    }

    /// Removes the entry of a key after the store admitted a lower cost, because the refusal of a higher one may be out of date.
    pub(super) fn admitted(&self, lookup: Lookup) {
        if lookup.has_entry {
            self.forget(lookup.hash);
        }
    }

    /// Removes the entries of a hash. Another key with the same hash loses its entry too, and is decided by the store again.
    pub(super) fn forget(&self, hash: u64) {
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

impl<Rule> CacheSet<Rule> {
    fn new() -> Self {
        Self {
            entries: RwLock::new(SetEntries {
                hashes: [0; WAYS],
                list: Vec::new(),
                generation: 0,
            }),
            hits: AtomicU64::default(),
        }
    }

    // Comparisons and drops of rules may panic under the locks, but leave the entries valid.
    fn read(&self) -> RwLockReadGuard<'_, SetEntries<Rule>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, SetEntries<Rule>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Rule> SetEntries<Rule> {
    fn find(&self, hash: u64, policy: &Policy, key: &Key) -> Option<usize> {
        let matching = |(index, entry): (usize, &CacheEntry<Rule>)| {
            let is_match =
                self.hashes[index] == hash && entry.key == *key && entry.policy == *policy;
            is_match.then_some(index)
        };
        self.list.iter().enumerate().find_map(matching)
    }
}
