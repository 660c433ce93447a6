//! States in two words, beside the slots.

use std::sync::OnceLock;

use super::sets::WAYS;
use crate::{
    algorithm::packed::{PackedState, TwoWords},
    sync::{AtomicU64, Ordering, first_line, zeroed},
};

/// A state in two words for each slot. They take address space from the first such state on, and memory as slots are used.
pub(crate) struct TwoWordStates {
    slots: usize,
    /// `None` if there was not enough memory.
    memory: OnceLock<Option<Memory>>,
}

struct Memory {
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
            Some(Memory { words, first })
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

    /// Returns the state of a slot. If the thread does not hold the slot, the word of the slot must prove that the state did not change
    /// meanwhile.
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
            // Release: a thread that reads this without holding the slot then sees the held word of the slot, or a later one.
            word.store(value.get(), Ordering::Release);
        }
    }
}
