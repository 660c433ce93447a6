//! Who owes how much: the debts as they are under their lock.

use std::collections::BTreeMap;

use super::batch::Item;
use crate::{clock::Timestamp, key::Key, outcome::Policy};

/// Debts by the hash of policy and key. Of two keys of one hash, the second is not written down.
// A tree: it grows and shrinks without a pause, and can be walked from anywhere.
pub(super) struct Book<Rule> {
    debts: BTreeMap<u64, Debt<Rule>>,
    /// Where debts are looked for next.
    cursor: u64,
}

struct Debt<Rule> {
    policy: Policy,
    key: Key,
    /// The rule of the remote store.
    rule: Rule,
    /// When the latest of it was charged.
    at: Timestamp,
    /// When all of it has been refilled.
    until: Timestamp,
    /// What is not under way.
    units: u64,
    is_due: bool,
    /// The batches that it is part of, and those of them that block its key.
    batches: u32,
    blocking: u32,
}

/// What the local store charged.
pub(super) struct Charged<'a, Rule> {
    pub(super) policy: &'a Policy,
    pub(super) key: &'a Key,
    pub(super) rule: &'a Rule,
    pub(super) at: Timestamp,
    /// When all that was charged has been refilled.
    pub(super) until: Timestamp,
    pub(super) units: u64,
    /// Whether the remote store has failed.
    pub(super) is_due: bool,
}

/// A key and its hash.
pub(super) type Who<'a> = (u64, &'a Policy, &'a Key);

impl<Rule> Book<Rule> {
    pub(super) fn new() -> Self {
        let debts = BTreeMap::new();
        Self { debts, cursor: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.debts.len()
    }

    fn find(&mut self, (hash, policy, key): Who<'_>) -> Option<&mut Debt<Rule>> {
        let debt = self.debts.get_mut(&hash);
        debt.filter(|debt| debt.key == *key && debt.policy.name() == policy.name())
    }

    /// Whether a call is settling what is due of a key.
    pub(super) fn is_blocked(&mut self, who: Who<'_>) -> bool {
        self.find(who).is_some_and(|debt| debt.blocking > 0)
    }

    /// What is due of a key: from here on, it is under way and blocks the key.
    pub(super) fn take_due(&mut self, who: Who<'_>) -> Option<Item<Rule>>
    where
        Rule: Clone,
    {
        let debt = self.find(who).filter(|debt| debt.is_due)?;
        Some(debt.take(who.0))
    }

    /// Some debt of a key that is not blocked, if the next one is.
    pub(super) fn take_next(&mut self) -> Option<Item<Rule>>
    where
        Rule: Clone,
    {
        let after = self.debts.range_mut(self.cursor..).next();
        let (hash, debt) = match after {
            Some(next) => next,
            None => self.debts.iter_mut().next()?,
        };
        self.cursor = hash.wrapping_add(1);
        let is_free = debt.units > 0 && debt.blocking == 0;
        is_free.then(|| debt.take(*hash))
    }

    /// Adds to an item what its key has been charged since it was taken.
    pub(super) fn gather(&mut self, item: &mut Item<Rule>) {
        if let Some(debt) = self.find((item.hash, &item.policy, &item.key)) {
            item.units = item.units.saturating_add(debt.units);
            item.at = debt.at;
            (debt.units, debt.is_due) = (0, false);
        }
    }

    /// An item is no longer under way: it was settled, or is owed again.
    pub(super) fn land(&mut self, item: &Item<Rule>, is_settled: bool) {
        // A key that was reset meanwhile owes nothing.
        let Some(debt) = self.find((item.hash, &item.policy, &item.key)) else {
            return;
        };
        debt.batches = debt.batches.saturating_sub(1);
        debt.blocking = debt.blocking.saturating_sub(u32::from(item.blocks));
        if !is_settled {
            debt.units = debt.units.saturating_add(item.units);
            debt.is_due = true;
        }
        self.remove_if_paid(item.hash);
    }

    /// Writes a charge down, unless as many as `capacity` keys owe already.
    pub(super) fn charge(&mut self, hash: u64, charge: &Charged<'_, Rule>, capacity: usize) -> bool
    where
        Rule: Clone,
    {
        if let Some(debt) = self.find((hash, charge.policy, charge.key)) {
            debt.add(charge);
            return true;
        }
        if self.debts.len() >= capacity {
            self.forget_refilled(hash, charge.at);
        }
        if self.debts.len() >= capacity || self.debts.contains_key(&hash) {
            return false;
        }
        self.debts.insert(hash, Debt::of(charge));
        true
    }

    /// Takes units off a debt, as far as they are not under way.
    pub(super) fn refund(&mut self, who: Who<'_>, units: u64) {
        if let Some(debt) = self.find(who) {
            debt.units = debt.units.saturating_sub(units);
            self.remove_if_paid(who.0);
        }
    }

    pub(super) fn forget(&mut self, who: Who<'_>) {
        if self.find(who).is_some() {
            self.debts.remove(&who.0);
        }
    }

    fn remove_if_paid(&mut self, hash: u64) {
        let is_paid = |debt: &Debt<Rule>| debt.units == 0 && debt.batches == 0;
        if self.debts.get(&hash).is_some_and(is_paid) {
            self.debts.remove(&hash);
        }
    }

    /// Makes room, if one of the next few debts has been refilled by now.
    fn forget_refilled(&mut self, hash: u64, now: Timestamp) {
        let is_refilled = |debt: &Debt<Rule>| debt.until <= now && debt.batches == 0;
        let next = self.debts.range(hash..).chain(self.debts.range(..hash));
        let found = next.take(4).find(|(_, debt)| is_refilled(debt));
        if let Some(found) = found.map(|(hash, _)| *hash) {
            self.debts.remove(&found);
        }
    }
}

impl<Rule: Clone> Debt<Rule> {
    fn of(charge: &Charged<'_, Rule>) -> Self {
        Self {
            policy: charge.policy.clone(),
            key: *charge.key,
            rule: charge.rule.clone(),
            at: charge.at,
            until: charge.until,
            units: charge.units,
            is_due: charge.is_due,
            batches: 0,
            blocking: 0,
        }
    }

    fn add(&mut self, charge: &Charged<'_, Rule>) {
        self.rule = charge.rule.clone();
        self.at = self.at.max(charge.at);
        self.until = self.until.max(charge.until);
        self.units = self.units.saturating_add(charge.units);
        self.is_due |= charge.is_due;
    }

    /// Takes all units under way; if they are due, they block the key.
    fn take(&mut self, hash: u64) -> Item<Rule> {
        let item = Item {
            hash,
            policy: self.policy.clone(),
            key: self.key,
            rule: self.rule.clone(),
            at: self.at,
            units: self.units,
            blocks: self.is_due,
        };
        self.batches += 1;
        self.blocking += u32::from(self.is_due);
        (self.units, self.is_due) = (0, false);
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two batches of one key, the one that fails is owed again, whichever lands first.
    #[test]
    fn a_batch_that_fails_is_owed_whatever_became_of_another_one() {
        let (policy, key) = (Policy::new("api"), Key::from("alice"));
        let who = (7, &policy, &key);
        for fails_first in [false, true] {
            let mut book = Book::new();
            let charge = |book: &mut Book<()>, units, is_due| {
                let charge = Charged {
                    policy: &policy,
                    key: &key,
                    rule: &(),
                    at: Timestamp::default(),
                    until: Timestamp::MAX,
                    units,
                    is_due,
                };
                assert!(book.charge(7, &charge, 1));
            };
            charge(&mut book, 3, false);
            let beside = book.take_next().unwrap();
            charge(&mut book, 5, true);
            assert!(!book.is_blocked(who));
            let due = book.take_due(who).unwrap();
            assert_eq!(
                (beside.units, due.units, book.is_blocked(who)),
                (3, 5, true)
            );
            if fails_first {
                book.land(&due, false);
                book.land(&beside, true);
            } else {
                book.land(&beside, true);
                assert_eq!(book.len(), 1);
                book.land(&due, false);
            }
            assert!(!book.is_blocked(who));
            let again = book.take_due(who).unwrap();
            assert_eq!(again.units, 5);
            book.land(&again, true);
            assert_eq!(book.len(), 0);
        }
    }
}
