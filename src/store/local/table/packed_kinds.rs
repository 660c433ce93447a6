//! The kinds of packed states in a table, and how long each matters.

use super::word::KINDS;
use crate::{
    algorithm::packed::PackedKind,
    sync::{AtomicU64, Ordering},
};

/// The kinds of a table's packed states.
///
/// Rules travel with the calls, so a slot itself must contain the kind of its packed state, which determines its expiry. Three bits of its word
/// are the number of one of these kinds. Each different kind takes a number of its own while there are any. After that, kinds of
/// buckets share the last number, and are kept as long as the longest of them. Other kinds get no number, and their states are in
/// the [map](super::super::map).
///
/// Invariant: numbers are taken in ascending order, except for the last one. The kind of a number never changes, except that
/// the kind of the last number may become a longer one.
pub(crate) struct PackedKinds([AtomicU64; KINDS]);

impl PackedKinds {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Returns `true` if no word was ever created.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        // Relaxed: a thread that has locked the shard of a key sees all that was done under that lock before.
        self.0[0].load(Ordering::Relaxed) == 0
    }

    /// Returns the kind of a number.
    #[inline]
    pub(crate) fn get(&self, number: u8) -> PackedKind {
        // Relaxed: a word is stored with Release, by a claim or by a charge without a lock, after its kind was seen to be at
        // least as long as the kind of its rule. A word is loaded with Acquire before its kind is read. And a kind never
        // becomes a different or shorter one.
        PackedKind::of_number(self.0[usize::from(number) % KINDS].load(Ordering::Relaxed))
    }

    /// Returns the longest time for which a packed state of any kind matters.
    pub(crate) fn longest(&self) -> u64 {
        // Relaxed: as in `get`, a thread that has seen an evicted word sees its kind.
        let lasts = |packed_kind: &AtomicU64| {
            PackedKind::of_number(packed_kind.load(Ordering::Relaxed)).lasts()
        };
        self.0.iter().map(lasts).max().unwrap_or(0)
    }

    /// Returns the number of a kind, or `None` if no number is left for it.
    pub(crate) fn number(&self, packed_kind: PackedKind) -> Option<u8> {
        let (last, own) = self.0.split_last()?;
        for (number, taken) in own.iter().enumerate() {
            // Relaxed: kinds are independent of each other. For their order with words, see `get`.
            let mut found = taken.load(Ordering::Relaxed);
            if found == 0 {
                let wanted = packed_kind.number();
                let swapped =
                    taken.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed);
                found = swapped.err().unwrap_or(wanted);
            }
            if found == packed_kind.number() {
                return Some(number as u8);
            }
        }
        // Among kinds of buckets, a longer one has a greater value.
        packed_kind.is_bucket().then(|| {
            last.fetch_max(packed_kind.number(), Ordering::Relaxed);
            (KINDS - 1) as u8
        })
    }
}
