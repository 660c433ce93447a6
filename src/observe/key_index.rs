//! Finds the counter of a key.

/// A hash table of indexes, with linear probing and a fixed size.
///
/// It knows neither keys nor hashes: the caller keeps them, and passes functions that compare and return them. An entry is removed by
/// moving later ones back, so the table needs no rebuilding, however many keys come and go.
pub(super) struct KeyIndex {
    /// An index plus one, or 0 if the slot is free. At least half of the slots are free.
    slots: Box<[u32]>,
}

impl KeyIndex {
    pub(super) fn new(capacity: usize) -> Self {
        let slots = (2 * capacity).next_power_of_two().max(2);
        Self {
            slots: vec![0; slots].into(),
        }
    }

    /// Returns the index with this hash for which `is_match` is true.
    pub(super) fn find(&self, hash: u64, is_match: impl Fn(usize) -> bool) -> Option<usize> {
        self.slot(hash, is_match)
            .and_then(|slot| self.index_at(slot))
    }

    /// Inserts an index. There must be fewer of them than the capacity.
    pub(super) fn insert(&mut self, hash: u64, index: usize) {
        let mut slots = self.probe(self.home(hash));
        if let Some(slot) = slots.find(|slot| self.slots[*slot] == 0) {
            self.slots[slot] = index as u32 + 1;
        }
    }

    /// Removes an index, given the hash of each one.
    pub(super) fn remove(&mut self, index: usize, hash_of: impl Fn(usize) -> u64) {
        let Some(mut hole) = self.slot(hash_of(index), |other| other == index) else {
            return;
        };
        for slot in self.probe(hole).skip(1) {
            let Some(index) = self.index_at(slot) else {
                break;
            };
            // A search for this entry begins at its home. It must not meet the hole before it meets the entry.
            let probes = self.distance(self.home(hash_of(index)), slot);
            if probes >= self.distance(hole, slot) {
                self.slots[hole] = self.slots[slot];
                hole = slot;
            }
        }
        self.slots[hole] = 0;
    }

    pub(super) fn clear(&mut self) {
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
