//! The keys of which a node knows something: 64 tables behind locks, each with room for its part of
//! them.
//!
//! A key is looked at when it may be idle, in the order of a queue. A round looks at few keys of
//! each table, so no lock is held for long, and so does a call of a new key that needs room.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    hash::BuildHasherDefault,
    sync::{Mutex, MutexGuard},
};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::tasks::OneTask;
use crate::{
    algorithm::StateKind,
    key::Key,
    locks::lock,
    policy::Policy,
    store::{
        StoreError,
        local::{Fingerprinter, IdentityHasher},
    },
    time::Timestamp,
};

const SHARDS: usize = 64;

/// The most keys of a shard that a round looks at, because they may be idle.
pub(super) const LOOKS_OF_ROUND: usize = 32;
/// The most keys that a new one has looked at, so that its call takes no longer the more keys there
/// are.
pub(super) const LOOKS_OF_CALL: usize = 8;

/// A map of fingerprints, which are hashes already.
pub(super) type ByFingerprint<T> = HashMap<u64, T, BuildHasherDefault<IdentityHasher>>;

/// Keys by their fingerprints, up to a number.
#[derive(Debug)]
pub(super) struct Keys<E> {
    entries: ByFingerprint<Slot<E>>,
    most: usize,
    /// Keys that were ever added.
    added: u64,
    /// The instants at which keys are looked at, the earliest first. A key that was removed stays
    /// until then, unless there are too many of them.
    looks: VecDeque<Look>,
}

#[derive(Debug)]
struct Slot<E> {
    generation: u64,
    entry: E,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Timestamp,
    fingerprint: u64,
    generation: u64,
}

impl<E> Keys<E> {
    /// No keys, and room for so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: HashMap::default(),
            most,
            added: 0,
            looks: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.most
    }

    pub(super) fn contains(&self, fingerprint: u64) -> bool {
        self.entries.contains_key(&fingerprint)
    }

    #[inline]
    pub(super) fn get(&mut self, fingerprint: u64) -> Option<&mut E> {
        let slot = self.entries.get_mut(&fingerprint)?;
        Some(&mut slot.entry)
    }

    /// Returns the entry of a key with its generation: another number for each time that the key is
    /// added. What was asked for before a reset is no answer for the entry afterwards.
    #[inline]
    pub(super) fn get_with_generation(&mut self, fingerprint: u64) -> Option<(&mut E, u64)> {
        let Slot { generation, entry } = self.entries.get_mut(&fingerprint)?;
        Some((entry, *generation))
    }

    /// Returns the entry of a key if it is of this generation, or of any.
    pub(super) fn get_of(&mut self, fingerprint: u64, generation: Option<u64>) -> Option<&mut E> {
        let (entry, of) = self.get_with_generation(fingerprint)?;
        generation.is_none_or(|asked| asked == of).then_some(entry)
    }

    /// Returns the entry of a key, and `true` if it was added, to be looked at then; `None` if
    /// there is no room.
    #[inline]
    pub(super) fn get_or_add(
        &mut self,
        fingerprint: u64,
        at: Timestamp,
        entry: impl FnOnce() -> E,
    ) -> Option<(&mut E, bool)> {
        let is_full = self.is_full();
        match self.entries.entry(fingerprint) {
            hash_map::Entry::Occupied(known) => Some((&mut known.into_mut().entry, false)),
            hash_map::Entry::Vacant(_) if is_full => None,
            hash_map::Entry::Vacant(vacant) => {
                self.added += 1;
                let generation = self.added;
                self.looks.push_back(Look {
                    at,
                    fingerprint,
                    generation,
                });
                let entry = entry();
                Some((&mut vacant.insert(Slot { generation, entry }).entry, true))
            }
        }
    }

    /// Removes a key, and returns memory when most keys are gone.
    pub(super) fn remove(&mut self, fingerprint: u64) -> Option<E> {
        let slot = self.entries.remove(&fingerprint)?;
        let left = 2 * self.entries.len();
        if self.looks.len() > left + LOOKS_OF_CALL {
            let entries = &self.entries;
            let is_current = |look: &Look| {
                let slot = entries.get(&look.fingerprint);
                slot.is_some_and(|slot| slot.generation == look.generation)
            };
            self.looks.retain(is_current);
        }
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(left);
            self.looks.shrink_to(left);
        }
        Some(slot.entry)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &E)> {
        let slots = self.entries.iter();
        slots.map(|(fingerprint, slot)| (*fingerprint, &slot.entry))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut E)> {
        let slots = self.entries.iter_mut();
        slots.map(|(fingerprint, slot)| (*fingerprint, &mut slot.entry))
    }

    /// Takes out all keys.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = E> + use<E> {
        self.looks = VecDeque::new();
        let all = std::mem::take(&mut self.entries).into_values();
        all.map(|slot| slot.entry)
    }

    /// Looks at so many keys at most, and forgets those that are idle. The function returns when to
    /// look at a key again; `None` if it is idle.
    pub(super) fn forget_idle(
        &mut self,
        now: Timestamp,
        most: usize,
        mut look_again: impl FnMut(u64, &mut E) -> Option<Timestamp>,
    ) {
        for _ in 0..most {
            let Some(look) = self.looks.front().filter(|look| look.at <= now).copied() else {
                return;
            };
            self.looks.pop_front();
            let slot = self.entries.get_mut(&look.fingerprint);
            let Some(slot) = slot.filter(|slot| slot.generation == look.generation) else {
                continue;
            };
            match look_again(look.fingerprint, &mut slot.entry) {
                Some(at) => self.looks.push_back(Look { at, ..look }),
                None => {
                    self.remove(look.fingerprint);
                }
            }
        }
    }

    /// Returns the instant at which the next key is to be looked at; `None` if there are no keys.
    pub(super) fn next_look(&self) -> Option<Timestamp> {
        self.looks.front().map(|look| look.at)
    }
}

/// The keys of a node, each in the shard that its fingerprint determines.
pub(super) struct KeyTable<S> {
    shards: Box<[Mutex<S>]>,
    fingerprinter: Fingerprinter,
    /// The task that forgets idle keys. It is wanted once there is a key.
    pub(super) sweeping: OneTask,
}

impl<S> KeyTable<S> {
    /// A table with room for so many keys. Each shard is made for its part of them.
    pub(super) fn new(keys: usize, seed: Option<u64>, shard: impl Fn(usize) -> S) -> Self {
        let most = keys.div_ceil(SHARDS);
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(shard(most))).collect(),
            fingerprinter: seed.map_or_else(Fingerprinter::random, Fingerprinter::seeded),
            sweeping: OneTask::default(),
        }
    }

    /// Returns the fingerprint of a key under rules of a kind.
    #[inline]
    pub(super) fn fingerprint(&self, policy: &Policy, key: &Key, kind: StateKind) -> u64 {
        self.fingerprinter.fingerprint(policy, key, kind)
    }

    /// Locks the shard of a key.
    #[inline]
    pub(super) fn shard(&self, fingerprint: u64) -> MutexGuard<'_, S> {
        lock(&self.shards[index(fingerprint)])
    }

    /// Locks the shards of several keys in their order, so that no two calls wait for each other.
    pub(super) fn shards(&self, fingerprints: impl Iterator<Item = u64>) -> Shards<'_, S> {
        let mut indexes: SmallVec<[usize; 2]> = fingerprints.map(index).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let locked = indexes
            .into_iter()
            .map(|index| (index, lock(&self.shards[index])));
        Shards(locked.collect())
    }

    /// Locks all shards, one after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, S>> {
        self.shards.iter().map(lock)
    }
}

/// Several shards, locked.
pub(super) struct Shards<'a, S>(SmallVec<[(usize, MutexGuard<'a, S>); 2]>);

impl<S> Shards<'_, S> {
    /// Returns the shard of a key, which must be one of those that were locked.
    pub(super) fn of(&mut self, fingerprint: u64) -> &mut S {
        let index = index(fingerprint);
        let shard = self.0.iter().position(|(locked, _)| *locked == index);
        &mut self.0[shard.unwrap_or(0)].1
    }
}

#[inline]
fn index(fingerprint: u64) -> usize {
    (fingerprint >> 32) as usize % SHARDS
}

/// Calls that wait for an answer of the store about a key.
#[derive(Default)]
pub(super) struct Waiting(Vec<oneshot::Sender<Result<(), StoreError>>>);

/// The end of what a call waits for. If it fails to come, the key was forgotten.
pub(super) type Answered = oneshot::Receiver<Result<(), StoreError>>;

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn wait(&mut self) -> Answered {
        let (sender, receiver) = oneshot::channel();
        // Callers that hung up must not fill memory while one answer takes long.
        if self.0.len() == self.0.capacity() {
            self.0.retain(|waiting| !waiting.is_closed());
            // So that the next look at all is as many calls away as there are that wait.
            self.0.reserve(self.0.len());
        }
        self.0.push(sender);
        receiver
    }

    /// Lets the calls go on.
    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        for waiting in self.0.drain(..) {
            // A caller that no longer waits needs nothing.
            let _ = waiting.send(match result {
                Ok(()) => Ok(()),
                Err(error) => Err(error.duplicate()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn ten_thousand_removals_take_no_memory() {
        let mut keys = Keys::new(100);
        for n in 0..10_000 {
            assert_eq!(
                keys.get_or_add(n % 3, at(n), || n),
                Some((&mut { n }, true))
            );
            assert_eq!(keys.remove(n % 3), Some(n));
            assert!(keys.looks.len() <= LOOKS_OF_CALL, "{:?}", keys.looks);
        }
    }

    /// However calls come and go while an answer takes long, each costs few looks at others.
    #[test]
    fn a_call_that_waits_looks_at_few_others() {
        for (lasting, dropped) in [(0, 1), (1, 1), (1023, 1), (1024, 1), (1000, 300), (3000, 5)] {
            let mut waiting = Waiting::default();
            let (mut calls, mut looks) = (0, 0);
            let mut wait = || {
                // Without room, a call looks at all.
                let is_full = waiting.0.len() == waiting.0.capacity();
                looks += if is_full { waiting.0.len() } else { 0 };
                calls += 1;
                assert!(
                    looks <= 4 * calls,
                    "{looks} by {calls}: {lasting}, {dropped}"
                );
                waiting.wait()
            };
            let _lasting: Vec<_> = (0..lasting).map(|_| wait()).collect();
            for _ in 0..5_000 {
                drop((0..dropped).map(|_| wait()).collect::<Vec<_>>());
            }
            let room = waiting.0.capacity();
            assert!(room <= 4 * (lasting + dropped + 1), "{room} for {lasting}");
        }
    }

    #[test]
    fn a_key_that_was_added_again_is_looked_at_in_its_own_time() {
        let mut keys = Keys::new(1);
        assert!(keys.get_or_add(5, at(10), || 'a').is_some());
        assert!(
            keys.get_or_add(6, at(10), || 'b').is_none(),
            "there is no room"
        );
        keys.remove(5);
        assert!(keys.get_or_add(5, at(20), || 'c').is_some());
        assert_eq!(keys.get_with_generation(5), Some((&mut 'c', 2)));
        keys.forget_idle(at(19), 8, |_, _| panic!("it was added later"));
        keys.forget_idle(at(20), 8, |_, entry| (*entry == 'c').then_some(at(30)));
        assert_eq!((keys.len(), keys.next_look()), (1, Some(at(30))));
        keys.forget_idle(at(30), 8, |_, _| None);
        assert_eq!((keys.len(), keys.next_look()), (0, None));
    }
}
