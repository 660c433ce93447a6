//! For how long the marks of a table matter.

use super::word::SHAPES;
use crate::sync::{AtomicU64, Ordering};

/// The shapes of a table's marks: how long each matters, in thirds of a nanosecond.
///
/// Rules travel with the calls, so a slot must say itself when it can be forgotten; three bits of its
/// word number one of these. Each rule of another length takes one of its own; rules
/// beyond the last share it, and are remembered as long as the longest of them.
///
/// Invariant: the lengths that are taken are the first ones, and a length that is taken never shrinks.
pub(crate) struct Shapes([AtomicU64; SHAPES]);

impl Shapes {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Whether no word was ever made.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        // Relaxed: who has locked the shard of a key sees what was done under that lock before.
        self.0[0].load(Ordering::Relaxed) == 0
    }

    /// How long a mark of this shape matters.
    #[inline]
    pub(crate) fn lasts(&self, shape: u8) -> u64 {
        // Relaxed: a word is stored by a Release, a claim's or that of a charge without a lock, after
        // its shape was seen to be as long as its rule; every word that may be forgotten was read by
        // an Acquire; and a length never shrinks.
        self.0[usize::from(shape) % SHAPES].load(Ordering::Relaxed)
    }

    /// How long the marks of all shapes matter at most.
    pub(crate) fn longest(&self) -> u64 {
        // Relaxed: as in `lasts`, whoever knows of a word that was pushed out sees its shape.
        let lengths = self.0.iter().map(|length| length.load(Ordering::Relaxed));
        lengths.max().unwrap_or(0)
    }

    /// The shape of marks that matter for `lasts`, above zero.
    pub(crate) fn of(&self, lasts: u64) -> u8 {
        let (last, own) = match self.0.split_last() {
            Some(split) => split,
            None => return 0,
        };
        for (shape, taken) in own.iter().enumerate() {
            // Relaxed: each length stands for itself; what it has to be ordered with, see `lasts`.
            let found = taken.compare_exchange(0, lasts, Ordering::Relaxed, Ordering::Relaxed);
            if found.is_ok() || found == Err(lasts) {
                return shape as u8;
            }
        }
        last.fetch_max(lasts, Ordering::Relaxed);
        (SHAPES - 1) as u8
    }
}
