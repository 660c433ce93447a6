//! The view of a node: the totals, and its own changes since.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    message::{Change, State},
    own_changes::{OwnChanges, TopicPosition},
    total::{HEARTBEAT, Total},
};

/// The totals that a node has read, and the changes that it has produced.
#[derive(Debug, Default)]
pub(crate) struct View {
    totals: HashMap<String, (i32, Total)>,
    own: OwnChanges,
    /// By partition: all changes before this instant are in the totals.
    as_of: BTreeMap<i32, u64>,
}

impl View {
    /// Takes in what was read from a partition. Returns `false` if that is older than what is
    /// known: an aggregator has written it that had lost the partition.
    pub(crate) fn read(&mut self, partition: i32, key: &str, total: Option<Total>) -> bool {
        let Some(total) = total else {
            self.totals.remove(key);
            return true;
        };
        if key == HEARTBEAT {
            self.reach(partition, total.as_of);
            return true;
        }
        let known = self.totals.get(key);
        if known.is_some_and(|(of, known)| *of == partition && known.next > total.next) {
            return false;
        }
        self.reach(partition, total.as_of);
        self.own.drop_those_in(key, &total, partition);
        self.totals.insert(key.to_owned(), (partition, total));
        true
    }

    fn reach(&mut self, partition: i32, as_of: u64) {
        let known = self.as_of.entry(partition).or_default();
        *known = as_of.max(*known);
    }

    /// Notes a change that was produced. Returns the number of changes that are given up.
    pub(crate) fn note(
        &mut self,
        key: &str,
        change: (&Change, TopicPosition),
        (now, keep): (u64, u64),
    ) -> u64 {
        let total = self.totals.get(key).map(|(_, total)| total);
        self.own.note(key, change, total, (now, keep))
    }

    pub(crate) fn state(&self, key: &str) -> Option<State> {
        let mut state = self.totals.get(key).and_then(|(_, total)| total.state());
        self.own.apply(key, &mut state);
        state
    }

    /// Returns the instant before which all changes of a partition are known.
    pub(crate) fn as_of(&self, partition: i32) -> Option<u64> {
        self.as_of.get(&partition).copied()
    }

    /// Returns the number of changes of this node that are not in the totals.
    pub(crate) fn unsynced(&self) -> usize {
        self.own.len()
    }

    pub(crate) fn keys(&self) -> usize {
        self.totals.len()
    }

    /// Returns the keys that begin so.
    pub(crate) fn keys_of(&self, prefix: &str) -> BTreeSet<String> {
        let known = self.totals.keys().chain(self.own.keys());
        known
            .filter(|key| key.starts_with(prefix))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(next: i64, as_of: u64) -> Option<Total> {
        Some(Total {
            next,
            as_of,
            ..Total::default()
        })
    }

    #[test]
    fn an_older_total_of_the_same_partition_is_left_out() {
        let mut view = View::default();
        assert!(view.read(0, "a", total(5, 50)));
        assert!(!view.read(0, "a", total(4, 60)));
        assert_eq!(view.as_of(0), Some(50));
        assert!(view.read(1, "a", total(1, 60)), "of other offsets");
        assert!(view.read(1, "a", None));
        assert_eq!(view.keys(), 0);
    }

    #[test]
    fn a_heartbeat_is_of_its_partition() {
        let mut view = View::default();
        assert!(view.read(0, HEARTBEAT, total(0, 50)) && view.read(1, HEARTBEAT, total(0, 70)));
        let seen = [0, 1, 2].map(|partition| view.as_of(partition));
        assert_eq!(seen, [Some(50), Some(70), None]);
        assert_eq!(view.keys(), 0);
    }
}
