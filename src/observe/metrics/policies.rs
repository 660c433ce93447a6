//! The metrics of all policies, found without a lock.

use std::{
    iter,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::policy_metrics::PolicyMetrics;
use crate::policy::Policy;

/// A table of the metrics of a bounded number of policies. It is never changed but by additions.
#[derive(Debug)]
pub(super) struct Policies {
    /// A power of two, more than there may be policies. A policy is in the first slot from that of its digest on that no
    /// other policy has taken before.
    slots: Box<[OnceLock<Entry>]>,
    /// Number of policies that may still be added.
    room: Mutex<usize>,
    is_full: AtomicBool,
    /// All further policies.
    other: OnceLock<PolicyMetrics>,
}

/// A policy stands in the table by its digest, as in stores.
#[derive(Debug)]
struct Entry {
    digest: u64,
    metrics: PolicyMetrics,
}

impl Policies {
    /// Creates a table for `most` policies.
    pub(super) fn new(most: usize) -> Self {
        let slots = most.saturating_mul(2).saturating_add(1);
        let slots = slots.checked_next_power_of_two().unwrap_or(slots);
        Self {
            slots: iter::repeat_with(OnceLock::new).take(slots).collect(),
            room: Mutex::new(most),
            is_full: AtomicBool::new(most == 0),
            other: OnceLock::new(),
        }
    }

    /// Returns the metrics of a policy, or those of all further policies if it is one too many.
    #[inline]
    pub(super) fn get(&self, policy: &Policy) -> &PolicyMetrics {
        let digest = policy.digest();
        for slot in self.probe(digest) {
            match slot.get() {
                Some(entry) if entry.digest == digest => return &entry.metrics,
                Some(_) => {}
                None => break,
            }
        }
        self.add(policy)
    }

    /// Returns all slots, beginning with that of a digest.
    #[inline]
    fn probe(&self, digest: u64) -> impl Iterator<Item = &OnceLock<Entry>> {
        let (before, from) = self
            .slots
            .split_at(digest as usize & (self.slots.len() - 1));
        from.iter().chain(before)
    }

    #[cold]
    fn add(&self, policy: &Policy) -> &PolicyMetrics {
        // Relaxed: at worst, the lock is taken once more.
        if self.is_full.load(Ordering::Relaxed) {
            return self.other();
        }
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = policy.digest();
        for slot in self.probe(digest) {
            match slot.get() {
                Some(entry) if entry.digest == digest => return &entry.metrics,
                Some(_) => continue,
                None if *room == 0 => break,
                None => {}
            }
            *room -= 1;
            if *room == 0 {
                self.is_full.store(true, Ordering::Relaxed);
            }
            let entry = || Entry {
                digest,
                metrics: PolicyMetrics::new(policy.name()),
            };
            return &slot.get_or_init(entry).metrics;
        }
        self.other()
    }

    fn other(&self) -> &PolicyMetrics {
        self.other.get_or_init(|| PolicyMetrics::new("other"))
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn policies_beyond_the_maximum_share_one_entry() {
        for most in [0, 1, 2, 5, 64] {
            let policies = Policies::new(most);
            let names: Vec<_> = (0..200)
                .map(|number| Policy::new(&number.to_string()))
                .collect();
            // Twice: what was found once is found again.
            for _ in 0..2 {
                let entries: Vec<_> = names.iter().map(|name| policies.get(name)).collect();
                for (at, entry) in entries.iter().enumerate() {
                    for (before, other) in entries[..at].iter().enumerate() {
                        let shared = at >= most && before >= most;
                        assert_eq!(
                            ptr::eq(*entry, *other),
                            shared,
                            "{before} and {at} of {most}"
                        );
                    }
                }
            }
        }
    }
}
