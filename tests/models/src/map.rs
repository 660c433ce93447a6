//! The map, with loom's locks: a few shards, chosen by the lowest bits of a key.

use std::ops::DerefMut;

use loom::sync::{Mutex, MutexGuard};

use super::slot::Slot;
use crate::time::Timestamp;

const SHARDS: usize = 4;

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) fingerprint: u64,
    pub(super) shard: usize,
}

pub(super) struct Map<S>([Mutex<Vec<(u64, Slot<S>)>>; SHARDS]);

impl<S> Map<S> {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(Vec::new())))
    }

    pub(super) fn place(&self, fingerprint: u64) -> Place {
        let shard = fingerprint as usize % SHARDS;
        Place { fingerprint, shard }
    }

    pub(super) fn lock(&self, place: Place) -> Shard<'_, S> {
        self.lock_shard(place.shard)
    }

    pub(super) fn lock_shard(&self, shard: usize) -> Shard<'_, S> {
        let Ok(slots) = self.0[shard].lock() else {
            unreachable!("a model ends with its first panic")
        };
        Shard(slots)
    }

    /// What lies here is not forgotten.
    pub(super) fn make_room(&self, _: Timestamp) -> usize {
        0
    }
}

pub(super) struct Shard<'a, S>(MutexGuard<'a, Vec<(u64, Slot<S>)>>);

impl<S> Shard<'_, S> {
    pub(super) fn get_mut(&mut self, place: Place) -> Option<impl DerefMut<Target = Slot<S>>> {
        let found = self.0.iter_mut().find(|(key, _)| *key == place.fingerprint);
        found.map(|(_, slot)| slot)
    }

    pub(super) fn insert(&mut self, place: Place, slot: Slot<S>) {
        assert!(self.get_mut(place).is_none(), "a key is in one place");
        self.0.push((place.fingerprint, slot));
    }

    pub(super) fn remove(&mut self, place: Place) -> bool {
        let found = self.0.iter().position(|(key, _)| *key == place.fingerprint);
        if let Some(at) = found {
            self.0.swap_remove(at);
        }
        found.is_some()
    }

    pub(super) fn forget_some(&mut self, _: Timestamp) -> usize {
        0
    }
}
