//! The atomics and locks of the store in memory, and the other functions of threads and memory that
//! it calls.
//!
//! Its files import them from this module, so that `tests/models` can compile the same files
//! against loom's.

pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::yield_now,
};

/// Zeros that take up no memory until they are written; `None` where there is no room for them.
pub(crate) fn zeroed(len: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::allocation::try_zeroed_slice_box(len).ok()
}

/// The index, up to 7, with which the first whole cache line of some memory begins.
pub(crate) fn first_line(words: &[AtomicU64]) -> usize {
    const LINE: usize = 64 / size_of::<u64>();
    let misplaced = words.as_ptr().addr() / size_of::<u64>() % LINE;
    (LINE - misplaced) % LINE
}
