//! The atomics of the lock-free code.
//!
//! Its files name them through this module, so that `tests/models` can compile the same files
//! against loom's.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// Zeros that take up no memory until they are written; `None` where there is no room for them.
pub(crate) fn zeroed(len: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::allocation::try_zeroed_slice_box(len).ok()
}
