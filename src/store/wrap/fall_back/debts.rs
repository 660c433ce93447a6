//! What was admitted without the remote store, and has to be told to it.

use std::{
    hash::{BuildHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use foldhash::quality::RandomState;

use super::{
    batch::{Batch, Item},
    book::{Book, Charged},
};
use crate::{key::Key, outcome::Policy, store::Ask};

/// A total for each key, of a bounded number of keys.
///
/// A debt is *due* when the remote store has failed since it began: no call on its key goes there before it is settled.
/// It *blocks* its key while one call asks whether the store is there, and settles. All others on that key are decided
/// locally meanwhile; what they add is not due, and is settled beside later calls: so a key that is never left alone
/// gets back to the remote store.
pub(super) struct Debts<Rule> {
    book: Mutex<Book<Rule>>,
    /// As many as the book has: without debts, calls need no lock.
    len: AtomicUsize,
    capacity: usize,
    hasher: RandomState,
    // Relaxed: counts are read for a report and order nothing.
    settled: AtomicU64,
    lost: AtomicU64,
}

/// What a call finds of its own keys.
pub(super) enum Own<Rule> {
    /// Nothing that has to come first.
    Free,
    /// Another call is settling.
    Blocked,
    /// What this call has to settle first.
    Due(Batch<Rule>),
}

impl<Rule> Debts<Rule> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            book: Mutex::new(Book::new()),
            len: AtomicUsize::new(0),
            capacity,
            hasher: RandomState::default(),
            settled: AtomicU64::default(),
            lost: AtomicU64::default(),
        }
    }

    /// How many keys owe.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Relaxed)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn hash(&self, policy: &Policy, key: &Key) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(policy.digest());
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// Changes the book under its lock, which is held for some instructions, and never while something is awaited.
    fn change<T>(&self, change: impl FnOnce(&mut Book<Rule>) -> T) -> T {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut book);
        self.len.store(book.len(), Ordering::Relaxed);
        result
    }

    /// What is due of the keys that are asked for. From here on it is under way.
    pub(super) fn take_own(self: &Arc<Self>, asks: &[Ask<'_, Rule>]) -> Own<Rule>
    where
        Rule: Clone,
    {
        let who = |ask| {
            let (policy, key) = (Ask::policy(ask), Ask::key(ask));
            (self.hash(policy, key), policy, key)
        };
        self.change(|book| {
            let keys = asks.iter().map(who);
            if keys.clone().any(|who| book.is_blocked(who)) {
                return Own::Blocked;
            }
            let due: Vec<_> = keys.filter_map(|who| book.take_due(who)).collect();
            if due.is_empty() {
                return Own::Free;
            }
            Own::Due(Batch::new(self, due))
        })
    }

    /// Up to `count` debts of any keys.
    pub(super) fn take_others(self: &Arc<Self>, count: usize) -> Batch<Rule>
    where
        Rule: Clone,
    {
        // Bounded also where most debts are under way already.
        let looks = 0..count.saturating_mul(2);
        let items = self.change(|book| {
            let free = looks.filter_map(|_| book.take_next());
            free.take(count).collect()
        });
        Batch::new(self, items)
    }

    /// Adds to items what their keys have been charged since they were taken.
    pub(super) fn gather(&self, items: &mut [Item<Rule>]) {
        self.change(|book| items.iter_mut().for_each(|item| book.gather(item)));
    }

    /// Notes what the local store charged.
    pub(super) fn charge(&self, charge: &Charged<'_, Rule>)
    where
        Rule: Clone,
    {
        let hash = self.hash(charge.policy, charge.key);
        if !self.change(|book| book.charge(hash, charge, self.capacity)) {
            self.lost.fetch_add(charge.units, Ordering::Relaxed);
        }
    }

    /// Takes back what a key was charged too much, as far as it is known here.
    pub(super) fn refund(&self, policy: &Policy, key: &Key, units: u64) {
        let hash = self.hash(policy, key);
        self.change(|book| book.refund((hash, policy, key), units));
    }

    /// Forgets what a key owes.
    pub(super) fn forget(&self, policy: &Policy, key: &Key) {
        let hash = self.hash(policy, key);
        self.change(|book| book.forget((hash, policy, key)));
    }

    /// An item is no longer under way: it was settled, or is owed again.
    pub(super) fn land(&self, item: &Item<Rule>, is_settled: bool) {
        self.change(|book| book.land(item, is_settled));
        if is_settled {
            self.settled.fetch_add(item.units, Ordering::Relaxed);
        }
    }
}
