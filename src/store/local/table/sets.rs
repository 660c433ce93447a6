//! The memory of a table: sets of eight slots, and the two sets of a key.

use std::array;

use super::{size::Size, slot::TableSlot};
use crate::{
    algorithm::packed::PackedState,
    sync::{AtomicBool, AtomicU64, Ordering, first_line, zeroed},
};

/// The number of slots per set. Their keys fill one cache line, and their words the next one.
pub(crate) const WAYS: usize = 8;

/// Sets in one allocation, of which the first ones are in use. A page of it is touched only when a key uses it.
pub(crate) struct Sets {
    /// From `first` on: for each set, its keys and then its words.
    memory: Box<[AtomicU64]>,
    /// The index at which the first cache line begins.
    first: usize,
    size: AtomicU64,
    first_sets: u32,
    largest: Size,
    /// For each two neighbouring sets, the latest packed state that was ever evicted of a key whose first home, at the largest size, is one
    /// of them; or 0.
    owed: Box<[AtomicU64]>,
    /// `true` once a debt was recorded. Until then, new keys do not read `owed`, whose cache lines would be cold.
    is_owed: AtomicBool,
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
    /// Creates `count` sets, rounded up by at most one in `first_sets`, of which fewer than twice as many as `first_sets` are in use at the
    /// beginning. Returns `None` if there is not enough memory.
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
            size: AtomicU64::new(Size::first(first_sets).bits()),
            first_sets,
            largest: Size::doubled(first_sets, doublings),
            owed: zeroed(count.div_ceil(2))?,
            is_owed: AtomicBool::new(false),
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
    pub(crate) fn size(&self) -> Size {
        // Acquire: a thread that sees a set in use sees the keys that were moved to it.
        Size::from_bits(self.size.load(Ordering::Acquire))
    }

    /// Returns the size with one more set, and the parent of that set. Returns `None` if all are in use.
    pub(crate) fn next_size(&self) -> Option<(Size, usize)> {
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
    pub(crate) fn resize(&self, size: Size) {
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
    pub(crate) fn home_at(&self, size: Size, key: u64) -> HomeSets {
        let set = |half: u32| size.set_of(half, self.first_sets) as usize;
        let first = set(key as u32);
        let mut second = set((key >> 32) as u32);
        // Only where sets are few, it matters that they are equal. These tables do not grow.
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

    /// Returns the largest debt that was recorded for a key, or for one that shares its place; or 0.
    #[inline]
    pub(crate) fn owed(&self, key: u64) -> u64 {
        // Relaxed: if a key was evicted, an Acquire load has seen another key in its slot before, and the debt was recorded
        // before that key was stored.
        if !self.is_owed.load(Ordering::Relaxed) {
            return 0;
        }
        self.owed_of(key).load(Ordering::Relaxed)
    }

    /// Records a debt of a key.
    pub(crate) fn record(&self, key: u64, debt: PackedState) {
        // Relaxed: see `owed`. If the key has no slot, the next call for it locks its shard after this thread.
        if !self.is_owed.load(Ordering::Relaxed) {
            self.is_owed.store(true, Ordering::Relaxed);
        }
        self.owed_of(key).fetch_max(debt.get(), Ordering::Relaxed);
    }

    #[inline]
    fn owed_of(&self, key: u64) -> &AtomicU64 {
        &self.owed[self.largest.set_of(key as u32, self.first_sets) as usize / 2]
    }

    /// Removes all debts.
    pub(crate) fn forgive(&self) {
        for owed in &self.owed {
            owed.store(0, Ordering::Relaxed);
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
