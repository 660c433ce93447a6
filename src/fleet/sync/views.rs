//! The keys that a node knows, and the calls that the store decides.
//!
//! Calls that the store decides are counted also while a key has no view, because there is no
//! room for one, or because nodes may not be ahead while their number is not known. A new view
//! takes these calls over. Otherwise admissions of the node would overlap with them, and even one
//! node could exceed its limit. The same count outlives a reset.

use std::{collections::hash_map, time::Duration};

use super::{Bound, view::KeyView};
use crate::{
    algorithm::Syncable,
    fleet::keys::{ByFingerprint, Keys, LOOKS_OF_CALL},
    time::Timestamp,
};

/// The entry of a key: its view, and additions of the caller.
pub(crate) trait ViewEntry {
    type Rule: Syncable;

    fn view(&mut self) -> &mut KeyView<Self::Rule>;

    /// Returns `true` if nothing is lost when the entry is dropped.
    fn is_settled(&mut self) -> bool {
        self.view().is_settled()
    }

    /// Called when the entry is removed.
    fn removed(&mut self, _fingerprint: u64) {}
}

/// Keys by their fingerprints, up to a number, and the calls of all other keys that the store
/// decides at the moment.
///
/// A view that begins during such a call has to know of it: its state may be read before the
/// call, which would not be in the view then.
#[derive(Debug)]
pub(crate) struct Views<E> {
    pub(crate) known: Keys<E>,
    /// The time after its last call for which a key is known.
    idle: Duration,
    /// Calls of keys that are not known.
    in_store: ByFingerprint<u32>,
    /// Calls for whose keys there was no room.
    pub(crate) over_capacity: u64,
}

impl<E: ViewEntry> Views<E> {
    /// No keys, and room for so many.
    pub(crate) fn new(most: usize, idle: Duration) -> Self {
        Self {
            known: Keys::new(most),
            idle,
            in_store: ByFingerprint::default(),
            over_capacity: 0,
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, fingerprint: u64) -> Option<&mut E> {
        self.known.get(fingerprint)
    }

    /// Returns the entry of a key, and `true` if it was added; `None` if there is no room.
    #[inline]
    pub(crate) fn get_or_add(
        &mut self,
        fingerprint: u64,
        now: Timestamp,
        entry: impl FnOnce() -> E,
    ) -> Option<(&mut E, bool)> {
        let idle_at = now.saturating_add(self.idle);
        let (entry, is_new) = self.known.get_or_add(fingerprint, idle_at, entry)?;
        if is_new && let Some(calls) = self.in_store.remove(&fingerprint) {
            entry.view().in_store = calls;
        }
        Some((entry, is_new))
    }

    /// Returns the entry whose view decides a call, and `true` if it was added; `None` if the store
    /// decides, because a node may not be ahead of it, or because there is no room. Then the call
    /// has begun: see [`end_in_store`](Self::end_in_store).
    #[inline]
    pub(crate) fn find(
        &mut self,
        fingerprint: u64,
        bound: &Bound,
        now: Timestamp,
        entry: impl FnOnce() -> E,
    ) -> Option<(&mut E, bool)> {
        if bound.most == 0 && self.is_left_to_store(fingerprint, bound) {
            return None;
        }
        if self.known.is_full() && !self.known.contains(fingerprint) {
            self.forget_idle(now, LOOKS_OF_CALL);
            if self.known.is_full() {
                self.over_capacity += 1;
                self.begin_in_store(fingerprint);
                return None;
            }
        }
        self.get_or_add(fingerprint, now, entry)
    }

    /// Looks at so many keys at most, and forgets those that are idle. Returns the instant at which
    /// the next one is to be looked at.
    pub(crate) fn forget_idle(&mut self, now: Timestamp, most: usize) -> Option<Timestamp> {
        let idle = self.idle;
        self.known.forget_idle(now, most, |fingerprint, entry| {
            let idle_at = entry.view().last_used.saturating_add(idle);
            if idle_at > now {
                return Some(idle_at);
            }
            if !entry.is_settled() {
                return Some(now.saturating_add(idle));
            }
            entry.removed(fingerprint);
            None
        });
        self.known.next_look()
    }

    /// Begins a call in the store, and returns `true`, unless a view decides alone in an outage or
    /// has something to push first.
    ///
    /// A view is kept: under another rule of the key a node may be ahead, and in an outage it would
    /// take its share of the whole limit if it knew nothing.
    fn is_left_to_store(&mut self, fingerprint: u64, bound: &Bound) -> bool {
        let Some(entry) = self.known.get(fingerprint) else {
            self.begin_in_store(fingerprint);
            return true;
        };
        let view = entry.view();
        let is_alone = view.is_offline() && !bound.is_closed;
        let may_begin = !is_alone && view.unsynced() == 0;
        if may_begin {
            view.begin_in_store();
        }
        may_begin
    }

    /// Removes a key. Calls of it that the store decides are still known.
    pub(crate) fn remove(&mut self, fingerprint: u64) -> Option<E> {
        let mut entry = self.known.remove(fingerprint)?;
        entry.removed(fingerprint);
        let calls = entry.view().in_store;
        if calls > 0 {
            self.in_store.insert(fingerprint, calls);
        }
        Some(entry)
    }

    /// Notes that the store decides a call of a key without a view.
    pub(crate) fn begin_in_store(&mut self, fingerprint: u64) {
        *self.in_store.entry(fingerprint).or_default() += 1;
    }

    /// Notes that the store has decided a call, or that it has failed. Returns the entry of the
    /// key.
    pub(crate) fn end_in_store(&mut self, fingerprint: u64) -> Option<&mut E> {
        if let Some(entry) = self.known.get(fingerprint) {
            entry.view().end_in_store();
            return Some(entry);
        }
        if let hash_map::Entry::Occupied(mut calls) = self.in_store.entry(fingerprint) {
            *calls.get_mut() -= 1;
            if *calls.get() == 0 {
                calls.remove();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokenBucket, fleet::sync::proof::bound};

    const NOW: Timestamp = Timestamp::from_nanos(0);

    /// Calls in the store are counted through all changes of who decides: the key is over_capacity,
    /// gets a view, is reset, and gets another one.
    #[test]
    fn calls_in_the_store_outlive_accounts() {
        let view = || KeyView::new(TokenBucket::per_second(10), NOW);
        let mut views = Views::new(1, Duration::MAX);
        let added = views.find(7, &bound(5), NOW, view);
        assert!(added.is_some_and(|(_, is_new)| is_new));
        assert!(views.find(1, &bound(5), NOW, view).is_none());
        assert_eq!(views.over_capacity, 1);
        assert!(views.remove(7).is_some());
        assert!(views.find(1, &bound(0), NOW, view).is_none());
        let Some((first, true)) = views.find(1, &bound(5), NOW, view) else {
            panic!("there is room");
        };
        assert_eq!(first.in_store, 2);
        assert!(views.remove(1).is_some());
        views.begin_in_store(1);
        let Some((second, true)) = views.find(1, &bound(5), NOW, view) else {
            panic!("there is room");
        };
        assert_eq!(second.in_store, 3);
        for left in [2, 1, 0] {
            let view = views.end_in_store(1).unwrap();
            assert_eq!(view.in_store, left);
        }
        for calls in 1..3 {
            assert!(views.find(1, &bound(0), NOW, view).is_none());
            assert_eq!(views.get(1).map(|view| view.in_store), Some(calls));
        }
        assert!(views.remove(1).is_some());
        assert!(views.find(1, &bound(0), NOW, view).is_none());
        assert_eq!(views.over_capacity, 1);
        assert!((0..3).all(|_| views.end_in_store(1).is_none()));
        assert!(
            views.in_store.is_empty(),
            "nothing is kept of calls that have ended"
        );
    }
}
