//! What the packed states of a table say, and for how long they matter.

use super::word::KINDS;
use crate::{
    algorithm::packed::PackedKind,
    sync::{AtomicU64, Ordering},
};

/// The kinds of a table's packed states.
///
/// Rules travel with the calls, so a slot must say itself what its packed state is and when it can be forgotten; three
/// bits of its word number one of these. Each other kind takes one of its own. Those of buckets beyond the last share
/// it, and are remembered as long as the longest of them; others beyond find none, and live in the
/// [map](super::super::map).
///
/// Invariant: the kinds that are taken are the first ones but for the last, and one that is taken stays, or, the
/// last one, becomes a longer one.
pub(crate) struct PackedKinds([AtomicU64; KINDS]);

impl PackedKinds {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Whether no word was ever made.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        // Relaxed: who has locked the shard of a key sees what was done under that lock before.
        self.0[0].load(Ordering::Relaxed) == 0
    }

    /// The kind of a number.
    #[inline]
    pub(crate) fn get(&self, number: u8) -> PackedKind {
        // Relaxed: a word is stored by a Release, a claim's or that of a charge without a lock, after
        // its kind was seen to be as long as its rule; whatever is judged by its kind was read by
        // an Acquire; and a kind that is taken becomes none that says else, or less long.
        PackedKind::of_number(self.0[usize::from(number) % KINDS].load(Ordering::Relaxed))
    }

    /// How long the packed states of all kinds matter at most.
    pub(crate) fn longest(&self) -> u64 {
        // Relaxed: as in `get`, whoever knows of a word that was pushed out sees its kind.
        let lasts = |packed_kind: &AtomicU64| {
            PackedKind::of_number(packed_kind.load(Ordering::Relaxed)).lasts()
        };
        self.0.iter().map(lasts).max().unwrap_or(0)
    }

    /// The number of a kind; `None` if there is none left for it.
    pub(crate) fn number(&self, packed_kind: PackedKind) -> Option<u8> {
        let (last, own) = self.0.split_last()?;
        for (number, taken) in own.iter().enumerate() {
            // Relaxed: each kind stands for itself; what it has to be ordered with, see `get`.
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
        // The longest of buckets is the greatest number.
        packed_kind.is_bucket().then(|| {
            last.fetch_max(packed_kind.number(), Ordering::Relaxed);
            (KINDS - 1) as u8
        })
    }
}
