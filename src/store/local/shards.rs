//! The concurrent map under the [map of states](super::map); `tests/models` replaces it by one with loom's locks.

pub(super) use dashmap::{DashMap, mapref::one::RefMut};

/// Many small shards rather than few large ones: a shard that grows moves its slots at once.
pub(super) const SHARDS: usize = 128;
