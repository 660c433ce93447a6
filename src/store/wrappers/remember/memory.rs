//! A bounded number of refusals, found by (policy, key).

use std::{
    hash::{BuildHasher, Hash, Hasher},
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::quality::RandomState;

use super::refusal::Refusal;
use crate::{decision::Decision, key::Key, policy::Policy, store::Ask, time::Timestamp};

/// The slots that a key can be in.
const WAYS: usize = 8;

/// A fixed number of sets with a lock and [`WAYS`] slots each; a key belongs to one set. A refusal that finds its set
/// full takes the slot of the one that ends first.
pub(super) struct Memory<Rule> {
    sets: Box<[Set<Rule>]>,
    /// The most slots of a set.
    ways: usize,
    hasher: RandomState,
    // Relaxed throughout: counts are read for a report and order nothing.
    remembered: AtomicU64,
    evicted: AtomicU64,
}

struct Set<Rule> {
    slots: RwLock<Slots<Rule>>,
    /// Here and not in one place for all: who floods one key should not slow others.
    hits: AtomicU64,
}

struct Slots<Rule> {
    /// Of each slot, side by side: a key that is not there costs one cache line.
    hashes: [u64; WAYS],
    /// Grows with its use, up to the number of ways.
    slots: Vec<Slot<Rule>>,
    /// How often a key of this set was forgotten.
    forgotten: u64,
}

struct Slot<Rule> {
    policy: Policy,
    key: Key,
    rule: Rule,
    refusal: Refusal,
}

/// Where a key belongs, and what was there when it was looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    hash: u64,
    /// A refusal that was asked for before a key was forgotten is no longer worth remembering.
    forgotten: u64,
    /// Whether anything is known of it, of whatever rule and cost.
    is_known: bool,
}

impl<Rule> Memory<Rule> {
    pub(super) fn new(capacity: usize) -> Self {
        let ways = capacity.min(WAYS);
        let sets = capacity.checked_div(ways).unwrap_or(0);
        Self {
            sets: (0..sets).map(|_| Set::new()).collect(),
            ways,
            hasher: RandomState::default(),
            remembered: AtomicU64::default(),
            evicted: AtomicU64::default(),
        }
    }

    pub(super) fn hits(&self) -> u64 {
        let hits = |set: &Set<Rule>| set.hits.load(Ordering::Relaxed);
        self.sets.iter().map(hits).sum()
    }

    pub(super) fn remembered(&self) -> u64 {
        self.remembered.load(Ordering::Relaxed)
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// The number of slots in use.
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.read().slots.len()).sum()
    }

    pub(super) fn hash(&self, policy: &Policy, key: &Key) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(policy.digest());
        key.hash(&mut hasher);
        hasher.finish()
    }

    fn set(&self, hash: u64) -> Option<&Set<Rule>> {
        // The upper bits of the product spread hashes over any number of sets.
        let index = (u128::from(hash) * self.sets.len() as u128) >> u64::BITS;
        self.sets.get(index as usize)
    }

    /// The refusal that still holds for an ask, or where to remember one.
    #[inline]
    pub(super) fn find(&self, ask: &Ask<'_, Rule>, now: Timestamp) -> Result<Decision, Place>
    where
        Rule: PartialEq,
    {
        let hash = self.hash(ask.policy(), ask.key());
        let place = |forgotten, is_known| Place {
            hash,
            forgotten,
            is_known,
        };
        let Some(set) = self.set(hash) else {
            return Err(place(0, false));
        };
        let slots = set.read();
        let found = slots.find(hash, ask.policy(), ask.key());
        let refusal = found.and_then(|index| {
            let slot = slots.slots.get(index)?;
            let holds = slot.rule == *ask.rule();
            holds.then(|| slot.refusal.again(ask.cost(), now)).flatten()
        });
        match refusal {
            Some(refusal) => {
                set.hits.fetch_add(1, Ordering::Relaxed);
                Ok(refusal)
            }
            None => Err(place(slots.forgotten, found.is_some())),
        }
    }

    /// Remembers a refusal in place of what was known of its key, or of one that ends sooner.
    pub(super) fn keep(
        &self,
        place: Place,
        (policy, key, rule): (Policy, Key, Rule),
        refusal: Refusal,
        now: Timestamp,
    ) {
        let Some(set) = self.set(place.hash) else {
            return;
        };
        let mut slots = set.write();
        if slots.forgotten != place.forgotten {
            return;
        }
        self.remembered.fetch_add(1, Ordering::Relaxed);
        let known = slots.find(place.hash, &policy, &key);
        let slot = Slot {
            policy,
            key,
            rule,
            refusal,
        };
        let index = match known {
            Some(index) => index,
            None if slots.slots.len() < self.ways => {
                let index = slots.slots.len();
                slots.slots.push(slot);
                slots.hashes[index] = place.hash;
                return;
            }
            None => {
                let ends = slots.slots.iter().map(|slot| slot.refusal.until());
                let Some((index, end)) = ends.enumerate().min_by_key(|(_, end)| *end) else {
                    return;
                };
                self.evicted
                    .fetch_add(u64::from(end > now), Ordering::Relaxed);
                index
            }
        };
        slots.slots[index] = slot;
        slots.hashes[index] = place.hash;
    }

    /// Something of the key came to pass: what was told of it before, to a higher cost, is no longer so.
    pub(super) fn passed(&self, place: Place) {
        if place.is_known {
            self.forget(place.hash);
        }
    }

    /// Forgets a key, by its hash: another one of the same hash too, which costs a question more.
    pub(super) fn forget(&self, hash: u64) {
        let Some(set) = self.set(hash) else {
            return;
        };
        let mut slots = set.write();
        slots.forgotten += 1;
        // From the end, so that whoever takes a place that became free has been looked at.
        for index in (0..slots.slots.len()).rev() {
            if slots.hashes[index] == hash {
                slots.slots.swap_remove(index);
                slots.hashes[index] = slots.hashes[slots.slots.len()];
            }
        }
    }
}

impl<Rule> Set<Rule> {
    fn new() -> Self {
        Self {
            slots: RwLock::new(Slots {
                hashes: [0; WAYS],
                slots: Vec::new(),
                forgotten: 0,
            }),
            hits: AtomicU64::default(),
        }
    }

    // Under the locks run comparisons and drops of rules, which may panic; whatever is there then is whole.
    fn read(&self) -> RwLockReadGuard<'_, Slots<Rule>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots<Rule>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Rule> Slots<Rule> {
    fn find(&self, hash: u64, policy: &Policy, key: &Key) -> Option<usize> {
        let is_it = |(index, slot): (usize, &Slot<Rule>)| {
            let is_it = self.hashes[index] == hash && slot.key == *key && slot.policy == *policy;
            is_it.then_some(index)
        };
        self.slots.iter().enumerate().find_map(is_it)
    }
}
