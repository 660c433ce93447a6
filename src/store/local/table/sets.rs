//! The memory of a table: sets of eight slots, and the two sets of a key.

use super::slot::TableSlot;
use crate::sync::{AtomicU64, first_line, zeroed};

/// The number of slots per set. Their keys fill one cache line, and their words the next one.
pub(crate) const WAYS: usize = 8;

/// Sets in one allocation. A page of it is touched only when a key uses it.
pub(crate) struct Sets {
    /// From `first` on: for each set, its keys and then its words.
    memory: Box<[AtomicU64]>,
    /// The index at which the first cache line begins.
    first: usize,
    count: u32,
    /// For each set, the latest packed state that was ever evicted from it, or 0.
    owed: Box<[AtomicU64]>,
}

/// The indexes of the two sets that may contain a key.
#[derive(Clone, Copy)]
pub(crate) struct HomeSets {
    pub(crate) first: usize,
    pub(crate) second: usize,
}

/// One set.
#[derive(Clone, Copy)]
pub(crate) struct Set<'a>(&'a [AtomicU64; 2 * WAYS]);

impl Sets {
    /// Creates `count` sets, at least two. Returns `None` if there is not enough memory.
    pub(crate) fn new(count: u32) -> Option<Self> {
        let count = count.max(2);
        let memory = zeroed((count as usize * 2 + 1) * WAYS)?;
        Some(Self {
            first: first_line(&memory),
            memory,
            count,
            owed: zeroed(count as usize)?,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns the two sets of a key. They differ, and are chosen by the halves of its hash.
    #[inline]
    pub(crate) fn home(&self, key: u64) -> HomeSets {
        let scaled = |half: u64, sets: u32| (half * u64::from(sets)) >> 32;
        let first = scaled(key & u64::from(u32::MAX), self.count) as usize;
        let second = scaled(key >> 32, self.count - 1) as usize;
        // One of all sets but the first one.
        let second = second + usize::from(second >= first);
        HomeSets { first, second }
    }

    #[inline]
    pub(crate) fn set(&self, index: usize) -> Set<'_> {
        let begin = self.first + index * 2 * WAYS;
        match self.memory[begin..].first_chunk() {
            Some(set) => Set(set),
            None => unreachable!("there are {} sets, asked for {index}", self.count),
        }
    }

    pub(crate) fn owed(&self, index: usize) -> &AtomicU64 {
        &self.owed[index]
    }
}

impl<'a> Set<'a> {
    #[inline]
    pub(crate) fn slot(self, way: usize) -> TableSlot<'a> {
        let way = way % WAYS;
        TableSlot::new(&self.0[way], &self.0[WAYS + way])
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
