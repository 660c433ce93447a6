//! Stand-in for `src/sync.rs`: its items, from loom.

use std::hash::{Hash, Hasher};

use loom::{sync::atomic::AtomicU64 as Atomic, thread};

pub(crate) use std::sync::{PoisonError, TryLockError};

pub(crate) use loom::{
    hint::spin_loop,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::yield_now,
};

/// A loom atomic with witnesses, by which loom sees all accesses of threads to it.
///
/// Loom tries an order again the other way round if an access depends on the last one before it,
/// and remembers only that last one: where a thread looks at a word and then replaces it, its own
/// look hides that of another thread from its write. So each thread that reads touches a witness of
/// its own, and each that writes touches those of all others. Witnesses order nothing.
#[derive(Debug)]
pub(crate) struct AtomicU64 {
    value: Atomic,
    witnesses: [Atomic; THREADS],
}

/// The number of threads of a model, including the first one.
const THREADS: usize = 3;

/// A hasher that returns its last input: the number in the id of a thread.
struct Last(usize);

impl Hasher for Last {
    fn finish(&self) -> u64 {
        self.0 as u64
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_usize(&mut self, number: usize) {
        self.0 = number;
    }
}

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self {
            value: Atomic::new(value),
            witnesses: std::array::from_fn(|_| Atomic::new(0)),
        }
    }

    fn touch(&self, is_touched: impl Fn(usize, usize) -> bool) {
        let mut me = Last(THREADS);
        thread::current().id().hash(&mut me);
        assert!(me.0 < THREADS, "a model has {THREADS} threads");
        for (other, witness) in self.witnesses.iter().enumerate() {
            if is_touched(me.0, other) {
                witness.fetch_add(0, Ordering::Relaxed);
            }
        }
    }

    fn reads(&self) {
        self.touch(|me, other| me == other);
    }

    fn writes(&self) {
        self.touch(|me, other| me != other);
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u64 {
        self.reads();
        self.value.load(ordering)
    }

    pub(crate) fn store(&self, value: u64, ordering: Ordering) {
        self.writes();
        self.value.store(value, ordering);
    }

    pub(crate) fn fetch_max(&self, value: u64, ordering: Ordering) -> u64 {
        self.writes();
        self.value.fetch_max(value, ordering)
    }

    pub(crate) fn compare_exchange(
        &self,
        from: u64,
        to: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.writes();
        self.value.compare_exchange(from, to, success, failure)
    }
}

pub(crate) fn zeroed(len: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..len).map(|_| AtomicU64::new(0)).collect())
}

/// Loom's atomics have no cache lines, and each run must be like the last one.
pub(crate) fn first_line(_: &[AtomicU64]) -> usize {
    0
}
