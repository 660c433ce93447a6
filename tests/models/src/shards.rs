//! Stand-in for the `DashMap` of `src/store/local/mod.rs`: its shards are lists under locks of
//! loom's.

use std::ops::{Deref, DerefMut};

use loom::sync::{Mutex, MutexGuard};

pub(super) const SHARDS: usize = 4;

pub(super) struct DashMap<K, V, H> {
    shards: Vec<Mutex<Vec<(K, V)>>>,
    _hasher: H,
}

pub(super) struct RefMut<'a, K, V> {
    shard: MutexGuard<'a, Vec<(K, V)>>,
    index: usize,
}

impl<V, H> DashMap<u64, V, H> {
    pub(super) fn with_hasher_and_shard_amount(_hasher: H, shards: usize) -> Self {
        let shards = (0..shards).map(|_| Mutex::new(Vec::new())).collect();
        Self { shards, _hasher }
    }

    /// Locks the shard of a key, chosen by the same bits as in a `DashMap`, and finds the key.
    fn find(&self, key: u64) -> (MutexGuard<'_, Vec<(u64, V)>>, Option<usize>) {
        let shard = (key << 7 >> (u64::BITS - SHARDS.ilog2())) as usize;
        let Ok(shard) = self.shards[shard].lock() else {
            unreachable!("a model ends with its first panic")
        };
        let index = shard.iter().position(|(known, _)| *known == key);
        (shard, index)
    }

    pub(super) fn get_mut(&self, key: &u64) -> Option<RefMut<'_, u64, V>> {
        let (shard, index) = self.find(*key);
        index.map(|index| RefMut { shard, index })
    }

    pub(super) fn insert(&self, key: u64, value: V) {
        let (mut shard, index) = self.find(key);
        assert!(index.is_none(), "a key is in one place");
        shard.push((key, value));
    }

    pub(super) fn remove_if(
        &self,
        key: &u64,
        condition: impl FnOnce(&u64, &V) -> bool,
    ) -> Option<(u64, V)> {
        let (mut shard, index) = self.find(*key);
        let index = index.filter(|index| condition(key, &shard[*index].1))?;
        Some(shard.swap_remove(index))
    }
}

impl<K, V> Deref for RefMut<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.shard[self.index].1
    }
}

impl<K, V> DerefMut for RefMut<'_, K, V> {
    fn deref_mut(&mut self) -> &mut V {
        &mut self.shard[self.index].1
    }
}
