//! Debts that are being settled.

use std::sync::Arc;

use super::debts::Debts;
use crate::{clock::Timestamp, decision::Charge, key::Key, outcome::Policy, store::Settlement};

/// What one key owes.
pub(super) struct Item<Rule> {
    pub(super) hash: u64,
    pub(super) policy: Policy,
    pub(super) key: Key,
    /// The rule of the remote store.
    pub(super) rule: Rule,
    /// When the latest of it was charged.
    pub(super) at: Timestamp,
    pub(super) units: u64,
    /// Whether all other calls on the key wait for it.
    pub(super) blocks: bool,
}

/// Debts under way to the remote store. Dropped before it is known that they are settled, they go back.
pub(super) struct Batch<Rule> {
    debts: Arc<Debts<Rule>>,
    items: Vec<Item<Rule>>,
}

impl<Rule> Batch<Rule> {
    pub(super) fn new(debts: &Arc<Debts<Rule>>, items: Vec<Item<Rule>>) -> Self {
        let debts = Arc::clone(debts);
        Self { debts, items }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds what the same keys have been charged meanwhile, and other debts.
    pub(super) fn gather(&mut self, mut others: Self) {
        self.debts.gather(&mut self.items);
        self.items.append(&mut others.items);
    }

    /// Cuts each to what still matters of it; what does not matter any more is settled so.
    pub(super) fn cut(&mut self, matters: impl Fn(&Item<Rule>) -> u64) {
        let debts = &self.debts;
        self.items.retain_mut(|item| {
            item.units = item.units.min(matters(item));
            if item.units == 0 {
                debts.land(item, true);
            }
            item.units > 0
        });
    }

    /// What to say to the remote store: charges of nothing, corrected to what was spent.
    pub(super) fn settlements(&self) -> Vec<Settlement<'_, Rule>> {
        self.items
            .iter()
            .map(|item| Settlement {
                policy: &item.policy,
                rule: &item.rule,
                key: item.key,
                charge: Charge::new(item.at, 0),
                actual: item.units,
            })
            .collect()
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.items.iter().map(|item| &item.policy)
    }

    /// The remote store knows of all of them.
    pub(super) fn settled(mut self) {
        for item in self.items.drain(..) {
            self.debts.land(&item, true);
        }
    }
}

impl<Rule> Drop for Batch<Rule> {
    fn drop(&mut self) {
        for item in self.items.drain(..) {
            self.debts.land(&item, false);
        }
    }
}
