//! The memory of a table: sets of eight slots, the two sets of a key, and states in two words.
//!
//! # States in two words
//!
//! Two token buckets, a cascade of two, and a marker have two words beside the slot
//! (`algorithm/two_buckets.rs`). Each is the instant at which a bucket was last empty, and the
//! slot's word is the last tick at which the state matters. A call reads the words without holding
//! the slot, and claims the slot only to write them. The slot's word becomes greater with each
//! change, so an unchanged one proves that the words belong together, and a claim that succeeds
//! that nothing was written since. In the map such states take four to seven times a token bucket's
//! time with 100,000 keys, here less than twice. Half of that comes from beginning to fetch both
//! lines of the words before the keys are read: otherwise two cache misses follow each other.
//!
//! Memory for the words is reserved with the first such state, so rules of one word do not pay.
//! Such a key inherits and leaves no usage, because that is one word; at the capacity it takes free
//! and expired slots only, as a key of the map does. The instant of the last write is lost, as in
//! one word, so a refund restores what lies behind now.

use std::{array, sync::OnceLock};

use super::slot::TableSlot;
use crate::{
    algorithm::packed::{PackedState, TwoWords},
    sync::{AtomicBool, AtomicU64, Ordering, first_line, zeroed},
};

/// The number of slots per set. Their keys fill one cache line, and their words the next one.
pub(crate) const WAYS: usize = 8;

/// Sets in one allocation, of which the first ones are in use. A page of it is touched only when a
/// key uses it.
pub(crate) struct Sets {
    /// From `first` on: for each set, its keys and then its words.
    memory: Box<[AtomicU64]>,
    /// The index at which the first cache line begins.
    first: usize,
    size: AtomicU64,
    first_sets: u32,
    largest: TableSize,
    /// For each pair of neighbouring sets: the latest packed state that was ever evicted, of all
    /// keys whose first home, at the largest size, is one of the two; or 0.
    inherited_usage: Box<[AtomicU64]>,
    /// `true` once a usage was recorded. Until then, new keys do not read `inherited_usage`, whose
    /// cache lines would be cold.
    has_inherited_usage: AtomicBool,
}

/// The indexes of the two sets that may contain a key. A few keys have only one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HomeSets {
    pub(crate) first: usize,
    pub(crate) second: usize,
}

/// One set.
#[derive(Clone, Copy)]
pub(crate) struct Set<'a> {
    words: &'a [AtomicU64; 2 * WAYS],
    first_slot: usize,
}

impl Sets {
    /// Creates `count` sets, rounded up by at most one in `first_sets`, of which fewer than twice
    /// as many as `first_sets` are in use at the beginning. Returns `None` if there is not enough
    /// memory.
    pub(crate) fn beginning_with(first_sets: usize, count: usize) -> Option<Self> {
        let doublings = (count / first_sets).checked_ilog2().unwrap_or(0);
        let first_sets = count.div_ceil(1 << doublings);
        let count = first_sets << doublings;
        // All of them fit into 32 bits.
        u32::try_from(count).ok()?;
        let first_sets = u32::try_from(first_sets).ok()?;
        let memory = zeroed((count * 2 + 1) * WAYS)?;
        Some(Self {
            first: first_line(&memory),
            memory,
            size: AtomicU64::new(TableSize::first(first_sets).bits()),
            first_sets,
            largest: TableSize::doubled(first_sets, doublings),
            inherited_usage: zeroed(count.div_ceil(2))?,
            has_inherited_usage: AtomicBool::new(false),
        })
    }

    /// Returns the number of slots at the largest size.
    pub(crate) fn most_slots(&self) -> usize {
        self.largest.sets as usize * WAYS
    }

    pub(crate) fn len(&self) -> usize {
        self.size().sets as usize
    }

    /// Returns the number of sets in use.
    #[inline]
    pub(crate) fn size(&self) -> TableSize {
        // Acquire: a thread that sees a set in use sees the keys that were moved to it.
        TableSize::from_bits(self.size.load(Ordering::Acquire))
    }

    /// Returns the size with one more set, and the parent of that set. Returns `None` if all are in
    /// use.
    pub(crate) fn next_size(&self) -> Option<(TableSize, usize)> {
        let size = self.size();
        if size.sets == self.largest.sets {
            return None;
        }
        let (size, parent) = size.next(self.first_sets);
        Some((size, parent as usize))
    }

    /// Returns `true` if some sets have been split and others not.
    #[inline]
    pub(crate) fn are_doubling(&self) -> bool {
        !self.size().is_even(self.first_sets)
    }

    /// Puts one more set into use. Only one thread at a time may call this.
    pub(crate) fn resize(&self, size: TableSize) {
        // Release: see `size`.
        self.size.store(size.bits(), Ordering::Release);
    }

    /// Returns the current homes of a key, chosen by the halves of its hash.
    #[inline]
    pub(crate) fn home(&self, key: u64) -> HomeSets {
        self.home_at(self.size(), key)
    }

    /// Returns the homes of a key at a size.
    #[inline]
    pub(crate) fn home_at(&self, size: TableSize, key: u64) -> HomeSets {
        let set = |half: u32| size.set_of(half, self.first_sets) as usize;
        let first = set(key as u32);
        let mut second = set((key >> 32) as u32);
        // Equal homes matter only if there are few sets. Such tables do not grow.
        if second == first && self.first_sets == self.largest.sets {
            second = (first + 1) % self.largest.sets as usize;
        }
        HomeSets { first, second }
    }

    #[inline]
    pub(crate) fn set(&self, index: usize) -> Set<'_> {
        let begin = self.first + index * 2 * WAYS;
        let first_slot = index * WAYS;
        match self.memory[begin..].first_chunk() {
            Some(words) => Set { words, first_slot },
            None => unreachable!("there are {} sets, asked for {index}", self.len()),
        }
    }

    /// Returns the largest usage that was recorded for a key, or for one that shares its record;
    /// or 0.
    #[inline]
    pub(crate) fn inherited_usage(&self, key: u64) -> u64 {
        // Relaxed: if a key was evicted, an Acquire load has seen another key in its slot before,
        // and the usage was recorded before that key was stored.
        if !self.has_inherited_usage.load(Ordering::Relaxed) {
            return 0;
        }
        self.usage_record(key).load(Ordering::Relaxed)
    }

    /// Records the usage of an evicted key.
    pub(crate) fn record_usage(&self, key: u64, usage: PackedState) {
        // Relaxed: see `inherited_usage`. If the key has no slot, the next call for it locks its
        // shard after this thread.
        if !self.has_inherited_usage.load(Ordering::Relaxed) {
            self.has_inherited_usage.store(true, Ordering::Relaxed);
        }
        self.usage_record(key)
            .fetch_max(usage.get(), Ordering::Relaxed);
    }

    #[inline]
    fn usage_record(&self, key: u64) -> &AtomicU64 {
        &self.inherited_usage[self.largest.set_of(key as u32, self.first_sets) as usize / 2]
    }

    /// Removes all inherited usage.
    pub(crate) fn clear_inherited_usage(&self) {
        for usage in &self.inherited_usage {
            usage.store(0, Ordering::Relaxed);
        }
    }
}

impl<'a> Set<'a> {
    #[inline]
    pub(crate) fn slot(self, way: usize) -> TableSlot<'a> {
        let way = way % WAYS;
        TableSlot {
            index: self.first_slot + way,
            key: &self.words[way],
            word: &self.words[WAYS + way],
        }
    }

    /// Returns the keys that the slots seem to belong to.
    #[inline]
    pub(crate) fn keys(self) -> [u64; WAYS] {
        array::from_fn(|way| self.slot(way).key())
    }

    #[inline]
    pub(crate) fn slots(self) -> impl Iterator<Item = TableSlot<'a>> {
        (0..WAYS).map(move |way| self.slot(way))
    }

    /// Returns the slot that seems to belong to `key`.
    #[inline]
    pub(crate) fn find(self, key: u64) -> Option<TableSlot<'a>> {
        let mut found = WAYS;
        // Without a branch per slot: the position of a key cannot be predicted.
        for way in (0..WAYS).rev() {
            found = if self.slot(way).key() == key {
                way
            } else {
                found
            };
        }
        (found < WAYS).then(|| self.slot(found))
    }
}

/// The number of sets in use. It grows by one at a time, as in linear hashing (Litwin 1980).
///
/// Each new set takes about half of the hashes of one other set, its parent. The set of a hash is
/// chosen by multiplication among the first sets, of which there can be any number, and by the low
/// bits of the hash among those added since. So whenever the first number has doubled, all sets
/// have equally many hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableSize {
    pub(crate) sets: u32,
    /// A mask of the low bits of a hash that select a set.
    mask: u32,
}

impl TableSize {
    /// Returns the first size.
    fn first(sets: u32) -> Self {
        Self { sets, mask: 0 }
    }

    /// Returns the size after a number of doublings.
    fn doubled(first: u32, doublings: u32) -> Self {
        Self {
            sets: first << doublings,
            mask: (1 << doublings) - 1,
        }
    }

    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self {
            sets: bits as u32,
            mask: (bits >> 32) as u32,
        }
    }

    fn bits(self) -> u64 {
        u64::from(self.mask) << 32 | u64::from(self.sets)
    }

    /// Returns `true` if all sets have equally many hashes. `first` is the first number of sets.
    #[inline]
    fn is_even(self, first: u32) -> bool {
        self.sets == first * (self.mask + 1)
    }

    /// Returns the size with one more set, and the parent of that set. `first` is the first number
    /// of sets.
    fn next(self, first: u32) -> (Self, u32) {
        let mask = if self.is_even(first) {
            self.mask * 2 + 1
        } else {
            self.mask
        };
        let sets = self.sets + 1;
        let parent = self.sets - first * (mask / 2 + 1);
        (Self { sets, mask }, parent)
    }

    /// Returns the set of a hash. `first` is the first number of sets.
    #[inline]
    fn set_of(self, hash: u32, first: u32) -> u32 {
        let among_first = ((u64::from(hash) * u64::from(first)) >> 32) as u32;
        let set = among_first + (hash & self.mask) * first;
        // Not in use yet: its parent. Without a branch, which nothing could predict.
        let doubled = first * (self.mask / 2 + 1);
        set - (doubled & u32::from(set >= self.sets).wrapping_neg())
    }
}

/// A state in two words for each slot. They take address space from the first such state on, and
/// memory as slots are used.
pub(crate) struct TwoWordStates {
    slots: usize,
    /// `None` if there was not enough memory.
    memory: OnceLock<Option<TwoWordMemory>>,
}

struct TwoWordMemory {
    words: Box<[AtomicU64]>,
    /// The index at which the first cache line begins.
    first: usize,
}

impl TwoWordStates {
    pub(crate) fn new(slots: usize) -> Self {
        let memory = OnceLock::new();
        Self { slots, memory }
    }

    /// Returns `true` if there is memory for states.
    pub(crate) fn reserve(&self) -> bool {
        let reserve = || {
            let words = zeroed(self.slots * 2 + WAYS)?;
            let first = first_line(&words);
            Some(TwoWordMemory { words, first })
        };
        self.memory.get_or_init(reserve).is_some()
    }

    #[inline]
    fn get(&self, slot: usize) -> Option<&[AtomicU64; 2]> {
        let memory = self.memory.get()?.as_ref()?;
        memory.words.get(memory.first + 2 * slot..)?.first_chunk()
    }

    /// Begins to fetch the states of a set of slots, in two cache lines.
    #[inline]
    pub(crate) fn fetch(&self, set: usize) {
        for slot in [set * WAYS, set * WAYS + WAYS / 2] {
            // The value does not matter. A load of an atomic is never left out.
            let _ = self.load(slot);
        }
    }

    /// Returns the state of a slot. If the thread does not hold the slot, the word of the slot must
    /// prove that the state did not change meanwhile.
    #[inline]
    pub(crate) fn load(&self, slot: usize) -> Option<TwoWords> {
        let words = self.get(slot)?;
        // Acquire: see `store`.
        let load = |word: &AtomicU64| PackedState::new(word.load(Ordering::Acquire));
        Some(words.each_ref().map(load))
    }

    /// Stores the state of a slot. Only the thread that holds the slot may call this.
    #[inline]
    pub(crate) fn store(&self, slot: usize, state: TwoWords) {
        for (word, value) in self.get(slot).into_iter().flatten().zip(state) {
            // Release: a thread that reads this without holding the slot then sees the held word of
            // the slot, or a later one.
            word.store(value.get(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the set of a hash by the definition: all sets split in turn, from the first size on.
    fn split_in_turn(first: u32, sets: u32, hash: u32) -> u32 {
        let mut set = ((u64::from(hash) * u64::from(first)) >> 32) as u32;
        let (mut bit, mut size) = (0, first);
        while size < sets {
            // Each set of this size has another one above it, if there are as many.
            if hash >> bit & 1 == 1 && set + size < sets {
                set += size;
            }
            (bit, size) = (bit + 1, size * 2);
        }
        set
    }

    #[test]
    fn a_set_takes_hashes_of_its_parent_only() {
        for first in [1, 2, 3, 7, 64, 127] {
            let mut size = TableSize::first(first);
            for new in first..first * 16 {
                let (next, parent) = size.next(first);
                assert_eq!(TableSize::from_bits(next.bits()), next);
                for hash in (0..1_000_u32).map(|n| n.wrapping_mul(0x9E37_79B9)) {
                    let [before, after] = [size, next].map(|size| size.set_of(hash, first));
                    assert!(after == before || (before, after) == (parent, new));
                    assert_eq!(after, split_in_turn(first, next.sets, hash));
                }
                size = next;
            }
        }
    }

    #[test]
    fn at_a_doubling_all_sets_have_equally_many_hashes() {
        let first = 77;
        let mut size = TableSize::first(first);
        while size.sets < first * 8 {
            size = size.next(first).0;
        }
        assert_eq!(size, TableSize::doubled(first, 3));
        let mut hashes = vec![0_i32; size.sets as usize];
        for n in 0..1_u32 << 20 {
            hashes[size.set_of(n.wrapping_mul(0x9E37_79B9), first) as usize] += 1;
        }
        let even = (1 << 20) / hashes.len() as i32;
        assert!(hashes.iter().all(|count| (count - even).abs() < even / 10));
    }
}
