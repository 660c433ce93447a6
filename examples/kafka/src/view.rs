//! The view of a node: the totals, and its own changes since.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate::store::StoreError;

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
    pub(crate) fn read(
        &mut self,
        partition: i32,
        key: &str,
        total: Option<Total>,
        now: u64,
    ) -> bool {
        let Some(total) = total else {
            // A removal has no offset. The aggregator of the partition removes only keys that have
            // been like new for long.
            let known = self.totals.get(key);
            let is_news = known.is_none_or(|(_, known)| known.is_like_new(now));
            if is_news {
                self.totals.remove(key);
            }
            return is_news;
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

    /// Returns the state of a key.
    ///
    /// # Errors
    ///
    /// If a newer release wrote it.
    pub(crate) fn state(&self, key: &str) -> Result<Option<State>, StoreError> {
        let total = self.totals.get(key).map(|(_, total)| total.state());
        let state = total.transpose().map_err(StoreError::unsupported)?;
        let mut state = state.flatten();
        self.own.apply(key, &mut state);
        Ok(state)
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
        assert!(view.read(0, "a", total(5, 50), 0));
        assert!(!view.read(0, "a", total(4, 60), 0));
        assert_eq!(view.as_of(0), Some(50));
        assert!(view.read(1, "a", total(1, 60), 0), "of other offsets");
    }

    #[test]
    fn a_key_is_removed_only_once_it_is_like_new() {
        let mut view = View::default();
        let spent = Total {
            until: 100,
            ..Total::default()
        };
        assert!(view.read(0, "a", Some(spent), 50));
        assert!(!view.read(0, "a", None, 99));
        assert_eq!(view.keys(), 1);
        assert!(view.read(0, "a", None, 100));
        assert_eq!(view.keys(), 0);
        assert!(view.read(0, "b", None, 100), "of a key without a total");
    }

    #[test]
    fn a_heartbeat_is_of_its_partition() {
        let mut view = View::default();
        assert!(view.read(0, HEARTBEAT, total(0, 50), 0));
        assert!(view.read(1, HEARTBEAT, total(0, 70), 0));
        let seen = [0, 1, 2].map(|partition| view.as_of(partition));
        assert_eq!(seen, [Some(50), Some(70), None]);
        assert_eq!(view.keys(), 0);
    }
}
