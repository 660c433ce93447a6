//! A curve that many threads read while one thread replaces it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::slew::{Curve, Segment};

/// A curve that any number of threads read without waiting while one thread replaces it.
///
/// Generation g is stored in copy g mod 2, and the next curve is written to the other copy. Invariants:
///
/// 1. Copy g mod 2 is complete before `generation` is g.
/// 2. It is overwritten only after `generation` was g + 1, so a reader that loads g
///    before and after the copy has loaded generation g and nothing else.
/// 3. A thread never sees generations fall, and curves only rise ([`super::slew`]): no thread
///    sees time fall, however late it reads the counter after the curve.
pub(super) struct Published {
    generation: AtomicU64,
    copies: [CurveCopy; 2],
}

#[derive(Default)]
#[repr(align(64))]
struct CurveCopy {
    last: [AtomicU64; 3],
    first: [AtomicU64; 3],
}

impl Published {
    pub(super) fn new(curve: &Curve) -> Self {
        let published = Self {
            generation: AtomicU64::new(0),
            copies: <[CurveCopy; 2]>::default(),
        };
        published.publish(curve);
        published
    }

    /// Returns the number of curves published so far.
    #[cfg(test)]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn last(&self) -> Segment {
        self.read(|copy| load(&copy.last))
    }

    pub(super) fn curve(&self) -> Curve {
        self.read(|copy| Curve {
            first: load(&copy.first),
            last: load(&copy.last),
        })
    }

    #[inline]
    fn read<T>(&self, load: impl Fn(&CurveCopy) -> T) -> T {
        loop {
            // Acquire, with the Release store of this generation: invariant 1.
            let generation = self.generation.load(Ordering::Acquire);
            let loaded = load(&self.copies[(generation & 1) as usize]);
            // If a load above saw a later write, this fence meets the one before that write,
            // and the load below sees the generation stored earlier still: invariant 2.
            fence(Ordering::Acquire);
            // Relaxed: the fence orders it.
            if self.generation.load(Ordering::Relaxed) == generation {
                return loaded;
            }
        }
    }

    /// Replaces the curve. Callers must exclude each other.
    pub(super) fn publish(&self, curve: &Curve) {
        // Relaxed: only callers write it, and their mutual exclusion orders them.
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        let copy = &self.copies[(next & 1) as usize];
        // The store of the present generation happens before the writes below: invariant 2.
        fence(Ordering::Release);
        store(&copy.first, curve.first);
        store(&copy.last, curve.last);
        // Release: the writes above happen before: invariant 1.
        self.generation.store(next, Ordering::Release);
    }
}

/// Loads a segment. Relaxed: [`Published::read`] checks that the words belong together.
#[inline]
fn load(words: &[AtomicU64; 3]) -> Segment {
    let [begin, unix, slope] = words;
    Segment {
        begin: begin.load(Ordering::Relaxed),
        unix: unix.load(Ordering::Relaxed),
        slope: slope.load(Ordering::Relaxed),
    }
}

/// Stores a segment. Relaxed: [`Published::publish`] orders it.
fn store(words: &[AtomicU64; 3], segment: Segment) {
    let [begin, unix, slope] = words;
    begin.store(segment.begin, Ordering::Relaxed);
    unix.store(segment.unix, Ordering::Relaxed);
    slope.store(segment.slope, Ordering::Relaxed);
}
