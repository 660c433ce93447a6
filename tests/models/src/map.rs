//! The map, with loom's locks: a few shards, chosen by the lowest bits of a key.

use loom::sync::{Mutex, MutexGuard};

use crate::{algorithm::Algorithm, clock::Timestamp};

const SHARDS: usize = 4;

pub(crate) struct Slot<S> {
    pub(crate) state: Option<S>,
}

impl<S> Slot<S> {
    pub(crate) fn of(state: S) -> Self {
        Self { state: Some(state) }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) fingerprint: u64,
    pub(crate) shard: usize,
}

pub(crate) struct Map<S>([Mutex<Vec<(u64, Slot<S>)>>; SHARDS]);

impl<S> Map<S> {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(Vec::new())))
    }

    pub(crate) fn date<A: Algorithm<State = S>>(&self, _: &mut Slot<S>, _: &A) {}

    pub(crate) fn place(&self, fingerprint: u64) -> Place {
        let shard = fingerprint as usize % SHARDS;
        Place { fingerprint, shard }
    }

    pub(crate) fn lock(&self, place: Place) -> Shard<'_, S> {
        self.lock_shard(place.shard)
    }

    pub(crate) fn lock_shard(&self, shard: usize) -> Shard<'_, S> {
        let Ok(slots) = self.0[shard].lock() else {
            unreachable!("a model ends with its first panic")
        };
        Shard(slots)
    }

    /// What lies here is not forgotten.
    pub(crate) fn make_room(&self, _: Timestamp) -> usize {
        0
    }
}

pub(crate) struct Shard<'a, S>(MutexGuard<'a, Vec<(u64, Slot<S>)>>);

impl<S> Shard<'_, S> {
    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut Slot<S>> {
        let found = self.0.iter_mut().find(|(key, _)| *key == place.fingerprint);
        found.map(|(_, slot)| slot)
    }

    pub(crate) fn insert(&mut self, place: Place, slot: Slot<S>) {
        assert!(self.get_mut(place).is_none(), "a key is in one place");
        self.0.push((place.fingerprint, slot));
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<Slot<S>> {
        let at = self
            .0
            .iter()
            .position(|(key, _)| *key == place.fingerprint)?;
        Some(self.0.swap_remove(at).1)
    }

    pub(crate) fn forget_some(&mut self, _: Timestamp) -> usize {
        0
    }
}
