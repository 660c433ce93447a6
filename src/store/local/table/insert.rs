//! Insertion and eviction.
//!
//! A new key takes a free slot; at the capacity the slot whose state expired first, or the one with
//! the smallest usage.
//!
//! Free slots come before expired ones: a client under its limit has a full bucket when it returns,
//! and is known as long as there is room. With expired slots first and a million such clients, 28
//! to 66 % of all decisions were about new keys, at two to three times the time of a known one; now
//! none while there is room.
//!
//! Most new keys need no more than a free slot, so only the keys of both sets and one word are read
//! for them, and no record of inherited usage until one was made: its cells lie far apart, so each
//! read would wait for memory. The words of both sets are fetched as soon as the first set does not
//! contain the key, before a lock would wait for each of them. All sixteen slots are judged if
//! there is no free slot, if the key may be known or may inherit usage, and at the capacity.

use super::{
    Table,
    set::HomeSets,
    slot::{Claim, NO_KEY, Seen, TableSlot, Word, Words},
};
use crate::{
    algorithm::packed::{PackedState, StoreTime},
    sync::Ordering,
};

/// The number of free slots in the first set from which on it is preferred, even if the second set
/// has more. A key in the first set is found with one cache miss less.
const PREFERRED_FROM: usize = 2;

/// The slots that a new key can take in its two sets, and the usage that it inherits.
pub(crate) struct SetScan<'a> {
    key: u64,
    home: HomeSets,
    /// `true` if another thread holds a slot, which it will soon release.
    is_held: bool,
    /// The largest usage that was recorded for the key, or 0.
    inherited_usage: u64,
    free: Option<FoundSlot<'a>>,
    /// The slot that expired first.
    expired: Option<FoundSlot<'a>>,
    /// An expired slot that the new key cannot take, because its packed state is not below that of
    /// a new key that inherits none.
    too_high: Option<FoundSlot<'a>>,
    smallest: Option<FoundSlot<'a>>,
}

/// A free slot that a new key can take.
pub(crate) struct FreeSlot<'a> {
    key: u64,
    home: HomeSets,
    found: FoundSlot<'a>,
}

#[derive(Clone, Copy)]
struct FoundSlot<'a> {
    slot: TableSlot<'a>,
    seen: Seen,
}

/// The free slots of one set that a new key can take.
#[derive(Default)]
struct FreeSlots<'a> {
    count: usize,
    first: Option<FoundSlot<'a>>,
}

/// Returns `true` if a new key takes the first set, by the numbers of free slots.
fn prefers_first(in_first: usize, in_second: usize) -> bool {
    in_first >= PREFERRED_FROM || in_first >= in_second
}

impl SetScan<'_> {
    fn new(key: u64, home: HomeSets) -> Self {
        Self {
            key,
            home,
            is_held: false,
            inherited_usage: 0,
            free: None,
            expired: None,
            too_high: None,
            smallest: None,
        }
    }

    /// Returns `true` if there is an expired slot that the key can take.
    pub(crate) fn has_expired(&self) -> bool {
        self.expired.is_some()
    }

    /// Returns `true` if a later scan may find a slot to evict.
    pub(crate) fn may_change(&self) -> bool {
        self.is_held || self.smallest.is_some()
    }

    /// Returns the smallest usage, which a new key inherits if it evicts that entry.
    pub(crate) fn smallest_usage(&self) -> Option<PackedState> {
        self.smallest.map(|found| found.seen.word.packed())
    }

    /// Returns the largest usage that was recorded for the key.
    pub(crate) fn inherited_usage(&self) -> Option<PackedState> {
        (self.inherited_usage > 0).then(|| PackedState::new(self.inherited_usage))
    }
}

impl Table {
    /// Begins to fetch the memory that the insertion of a key reads, all at once: behind the lock,
    /// each part would wait for the one before.
    #[inline(always)]
    pub(super) fn fetch(&self, home: HomeSets, key: u64) {
        for set in [home.first, home.second] {
            self.sets.set(set).slot(0).fetch_word();
        }
        let _ = self.sets.inherited_usage(key);
    }

    /// Looks for a free slot for a key whose shard is locked.
    ///
    /// Returns `None` if the key may be known, may inherit usage, or has no such slot: then its
    /// sets are to be scanned. This is what most new keys need, at a third of the time of a scan.
    pub(crate) fn free_slot(&self, key: u64) -> Option<FreeSlot<'_>> {
        let home = self.sets.home(key);
        let (first, second) = (self.sets.set(home.first), self.sets.set(home.second));
        let keys = [first.keys(), second.keys()];
        if keys.iter().flatten().any(|known| *known == key) {
            return None;
        }
        let [in_first, in_second] =
            keys.map(|keys| keys.iter().filter(|key| **key == NO_KEY).count());
        let (set, keys) = match prefers_first(in_first, in_second) {
            true => (first, keys[0]),
            false => (second, keys[1]),
        };
        let slot = set.slot(keys.iter().position(|key| *key == NO_KEY)?);
        let seen = slot.see()?;
        // As in `scan`, after the key was found in no slot.
        let is_new = self.sets.inherited_usage(key) == 0 && self.sets.home(key) == home;
        let found = FoundSlot { slot, seen };
        (seen.key == NO_KEY && is_new).then_some(FreeSlot { key, home, found })
    }

    /// Places a new key in a free slot. Returns `None` if its packed state is not above that of the
    /// slot, or another thread was faster.
    pub(crate) fn take<'a>(&self, free: &FreeSlot<'a>, word: Word) -> Option<Claim<'a>> {
        let FreeSlot { key, home, found } = *free;
        // Invariant 2 of the slots: packed states only grow.
        if word.packed() <= found.seen.word.packed() {
            return None;
        }
        let claim = self.claim_found(key, home, found)?;
        Some(claim.hand_over(key, word))
    }

    /// Scans the sets of a new key whose shard is locked, and whose packed state will be above
    /// `floor`.
    pub(crate) fn scan(&self, key: u64, now: StoreTime, floor: PackedState) -> SetScan<'_> {
        loop {
            let scan = self.scan_homes(key, now, floor);
            // Otherwise the key may have been moved to a new set meanwhile.
            if self.sets.home(key) == scan.home {
                return scan;
            }
        }
    }

    fn scan_homes(&self, key: u64, now: StoreTime, floor: PackedState) -> SetScan<'_> {
        let home = self.sets.home(key);
        let mut scan = SetScan {
            // Fetched while the slots are scanned.
            inherited_usage: self.sets.inherited_usage(key),
            ..SetScan::new(key, home)
        };
        let first = self.scan_set(home.first, now, floor, &mut scan);
        let second = self.scan_set(home.second, now, floor, &mut scan);
        scan.free = match prefers_first(first.count, second.count) {
            true => first.first,
            false => second.first,
        };
        // Read again: usage that was recorded before the key was seen to be gone counts.
        scan.inherited_usage = scan.inherited_usage.max(self.sets.inherited_usage(key));
        scan
    }

    #[inline]
    fn scan_set<'a>(
        &'a self,
        set: usize,
        now: StoreTime,
        floor: PackedState,
        scan: &mut SetScan<'a>,
    ) -> FreeSlots<'a> {
        let mut free = FreeSlots::default();
        let end_of = |found: Option<FoundSlot<'_>>| {
            found.map_or(u64::MAX, |found| self.end(found.seen.word))
        };
        let mut smallest = end_of(scan.smallest);
        let mut expired = end_of(scan.expired);
        for slot in self.sets.set(set).slots() {
            let Some(seen) = slot.see() else {
                scan.is_held = true;
                continue;
            };
            // Invariant 2 of the slots: packed states only grow.
            let is_usable = seen.word.packed() <= floor;
            let found = FoundSlot { slot, seen };
            if seen.key == NO_KEY {
                if is_usable {
                    // The first one is taken, because lookups start there.
                    free.first.get_or_insert(found);
                    free.count += 1;
                }
                continue;
            }
            let end = self.end(seen.word);
            if end > now.packed().get() {
                // A new key could not inherit a state in two words. Calls in flight have no end, so
                // they are never the smallest.
                if end < smallest && !self.packed_kind(seen.word).is_two_words() {
                    smallest = end;
                    scan.smallest = Some(found);
                }
            } else if !is_usable {
                scan.too_high = Some(found);
            } else if end < expired {
                expired = end;
                scan.expired = Some(found);
            }
        }
        free
    }

    /// Claims a slot that a scan found. Returns `None` if it has changed since, or is no slot of
    /// the new key any more.
    fn claim_found<'a>(&self, key: u64, home: HomeSets, found: FoundSlot<'a>) -> Option<Claim<'a>> {
        let claim = found.slot.claim(found.seen)?;
        // While this slot is held, its set is not split. If it was split before, that is seen here,
        // because the claim is an Acquire.
        (self.sets.home(key) == home).then_some(claim)
    }

    /// Places a new key in a free slot. Returns `None` if there is none, or another thread was
    /// faster.
    pub(crate) fn place_free<'a>(&self, scan: &SetScan<'a>, words: Words) -> Option<Claim<'a>> {
        let claim = self.claim_found(scan.key, scan.home, scan.free?)?;
        Some(self.hand_over(claim, scan.key, words))
    }

    /// Places a new key in the slot of an expired one, and returns that one as well. Returns `None`
    /// if there is none, or another thread was faster.
    pub(crate) fn place_expired<'a>(
        &self,
        scan: &SetScan<'a>,
        words: Words,
    ) -> Option<(u64, Claim<'a>)> {
        let claim = self.claim_found(scan.key, scan.home, scan.expired?)?;
        Some((claim.key(), self.hand_over(claim, scan.key, words)))
    }

    fn hand_over<'a>(&self, claim: Claim<'a>, key: u64, words: Words) -> Claim<'a> {
        if let Some(state) = words.state {
            self.two_words.store(claim.index(), state);
        }
        claim.hand_over(key, words.word)
    }

    /// Returns the largest usage that was recorded for a key whose shard is locked.
    pub(crate) fn inherited_usage(&self, key: u64) -> Option<PackedState> {
        let usage = self.sets.inherited_usage(key);
        (usage > 0).then(|| PackedState::new(usage))
    }

    /// Vacates an expired slot that the new key itself cannot take. Returns `true` if there was
    /// one.
    pub(crate) fn vacate(&self, scan: &SetScan<'_>) -> bool {
        let too_high = scan.too_high.and_then(|found| found.slot.claim(found.seen));
        too_high.map(Claim::vacate).is_some()
    }

    /// Evicts the entry with the smallest usage, and places a new key with a larger one in its
    /// slot.
    ///
    /// Returns `None` if there is no such entry, or another thread was faster.
    pub(crate) fn evict<'a>(&self, scan: &SetScan<'a>, word: Word) -> Option<Claim<'a>> {
        let smaller = |found: &FoundSlot<'_>| found.seen.word.packed() < word.packed();
        let found = scan.smallest.filter(smaller)?;
        let claim = self.claim_found(scan.key, scan.home, found)?;
        // Before the slot changes hands, so a thread that misses the evicted key afterwards finds
        // its usage.
        self.sets
            .record_usage(found.seen.key, found.seen.word.packed());
        Some(claim.hand_over(scan.key, word))
    }

    /// Records usage, up to [`Word::LAST`], as if the key had been evicted. The shard of the key is
    /// locked.
    pub(crate) fn record_usage(&self, key: u64, usage: PackedState) {
        debug_assert!(usage.get() <= Word::LAST);
        self.sets.record_usage(key, usage);
    }

    /// Vacates the expired slots of the next set. Returns how many.
    pub(crate) fn sweep(&self, now: StoreTime) -> usize {
        // Relaxed: which set is next orders nothing.
        let set = self.hand.fetch_add(1, Ordering::Relaxed) % self.sets.len();
        self.sets
            .set(set)
            .slots()
            .filter_map(|slot| Some((slot, slot.see()?)))
            .filter(|(_, seen)| seen.key != NO_KEY && self.is_expired(seen, now))
            .filter_map(|(slot, seen)| slot.claim(seen))
            .map(Claim::vacate)
            .count()
    }

    /// Vacates all slots, and removes all inherited usage. Returns how many keys there were.
    pub(crate) fn clear(&self) -> usize {
        let mut cleared = 0;
        let mut set = 0;
        // Sets that are added meanwhile are cleared as well.
        while set < self.sets.len() {
            for slot in self.sets.set(set).slots() {
                let held = || slot.see().filter(|seen| seen.key != NO_KEY);
                if let Some(claim) = held().and_then(|seen| slot.claim(seen)) {
                    claim.vacate();
                    cleared += 1;
                }
            }
            set += 1;
        }
        self.sets.clear_inherited_usage();
        cleared
    }
}
