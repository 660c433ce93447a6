//! Changes that this node has produced, and that are not in the totals yet.

use std::collections::{HashMap, VecDeque};

use crate::{
    message::{Change, State},
    total::Total,
};

/// Beyond that, changes of a key are added up.
const MOST_OF_A_KEY: usize = 16;
/// Beyond that, changes of further keys are given up.
const MOST_KEYS: usize = 65_536;
/// Those that are over are searched for so often at most, in nanoseconds.
const SWEEP_EVERY: u64 = 1_000_000_000;

/// Changes of this node that are not in the totals yet, by key, the oldest first.
///
/// Bounded, because nothing is taken in while no aggregator runs. What is given up is in the topic
/// all the same. Only the view of this node lacks it, until it is in the totals.
#[derive(Debug, Default)]
pub(crate) struct OwnChanges {
    of_keys: HashMap<String, VecDeque<OwnChange>>,
    swept_at: u64,
}

#[derive(Debug)]
struct OwnChange {
    change: Change,
    position: TopicPosition,
    /// The instant from which it changes nothing, in nanoseconds of Unix time.
    until: u64,
}

/// The position of a change in the topic. The offset is negative if the brokers did not return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicPosition {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

impl OwnChange {
    fn is_in(&self, total: &Total, partition: i32) -> bool {
        let TopicPosition {
            partition: own,
            offset,
        } = self.position;
        let last = total.last.get(&self.change.node);
        (own == partition && (0..total.next).contains(&offset))
            || last.is_some_and(|last| self.change.number <= last.number)
    }
}

impl OwnChanges {
    /// Drops what is in a total.
    pub(crate) fn drop_those_in(&mut self, key: &str, total: &Total, partition: i32) {
        if let Some(own) = self.of_keys.get_mut(key) {
            own.retain(|own| !own.is_in(total, partition));
            if own.is_empty() {
                self.of_keys.remove(key);
            }
        }
    }

    /// Notes a change that was produced, once, unless it is in the total. Returns the number of
    /// changes that are given up.
    ///
    /// A reset is kept for `keep` nanoseconds at least, and other changes until they have no effect
    /// any more.
    pub(crate) fn note(
        &mut self,
        key: &str,
        (change, position): (&Change, TopicPosition),
        total: Option<&Total>,
        (now, keep): (u64, u64),
    ) -> u64 {
        let until = change.is_over_at();
        let new = OwnChange {
            until: until.unwrap_or_else(|| change.at.saturating_add(keep)),
            change: change.clone(),
            position,
        };
        if total.is_some_and(|total| new.is_in(total, position.partition)) {
            return 0;
        }
        if !self.of_keys.contains_key(key) && self.of_keys.len() >= MOST_KEYS {
            self.sweep(now);
            if self.of_keys.len() >= MOST_KEYS {
                return 1;
            }
        }
        let own = self.of_keys.entry(key.to_owned()).or_default();
        let is_known =
            |own: &OwnChange| own.change.node == change.node && own.change.number == change.number;
        if own.iter().any(is_known) {
            return 0;
        }
        if change.is_reset {
            // Nothing before it has an effect.
            own.clear();
        }
        if own.len() < MOST_OF_A_KEY {
            own.push_back(new);
            return 0;
        }
        own.retain(|own| own.until > now);
        let is_full = own.len() >= MOST_OF_A_KEY;
        match own.back_mut() {
            Some(last) if is_full && last.change.can_merge_with(change) => {
                // As new as the later one, so all of it counts until both are in the total.
                last.change.actual = last.change.actual.saturating_add(change.actual);
                last.change.number = change.number;
                last.position = position;
                last.until = last.until.max(new.until);
                0
            }
            _ => {
                let given_up = u64::from(is_full && own.pop_front().is_some());
                own.push_back(new);
                given_up
            }
        }
    }

    fn sweep(&mut self, now: u64) {
        if self.swept_at.saturating_add(SWEEP_EVERY) > now {
            return;
        }
        self.swept_at = now;
        self.of_keys.retain(|_, own| {
            own.retain(|own| own.until > now);
            !own.is_empty()
        });
    }

    /// Applies the changes of a key to its total.
    pub(crate) fn apply(&self, key: &str, state: &mut Option<State>) {
        for own in self.of_keys.get(key).into_iter().flatten() {
            own.change.apply(state);
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.of_keys.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.of_keys.values().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{AnyRule, Timestamp, algorithm::Algorithm};

    use super::*;

    const HOUR: u64 = 3600 * 1_000_000_000;
    const NOW: (u64, u64) = (0, HOUR);

    fn change(number: u64, units: u64) -> Change {
        Change {
            rule: "fixed-window 1000000/100d".to_owned(),
            node: 7,
            number,
            at: 1,
            charged: 0,
            actual: units,
            is_reset: false,
        }
    }

    fn at(offset: i64) -> TopicPosition {
        TopicPosition {
            partition: 0,
            offset,
        }
    }

    fn spent(own: &OwnChanges, key: &str) -> u64 {
        let rule: AnyRule = "fixed-window 1000000/100d".parse().unwrap();
        let mut state = None;
        own.apply(key, &mut state);
        let look = rule.look(state.as_ref(), Timestamp::from_nanos(1));
        1_000_000 - look.remaining().unwrap()
    }

    #[test]
    fn many_changes_of_a_key_take_little_memory_and_count() {
        let mut own = OwnChanges::default();
        for number in 1..=1000 {
            let offset = i64::try_from(number).unwrap();
            let given_up = own.note("a", (&change(number, 3), at(offset)), None, NOW);
            assert_eq!(given_up, 0);
        }
        assert_eq!(own.len(), MOST_OF_A_KEY);
        assert_eq!(spent(&own, "a"), 3000);
        // What was added up counts until all of it is in the total.
        let total = Total {
            next: 1000,
            ..Total::default()
        };
        own.drop_those_in("a", &total, 0);
        assert_eq!(spent(&own, "a"), 3000 - 45);
        let total = Total {
            next: 1001,
            ..Total::default()
        };
        own.drop_those_in("a", &total, 0);
        assert_eq!(own.len(), 0);
    }

    #[test]
    fn changes_of_too_many_keys_are_given_up_unless_others_are_over() {
        let mut own = OwnChanges::default();
        for key in 0..MOST_KEYS {
            assert_eq!(
                own.note(&key.to_string(), (&change(1, 1), at(1)), None, NOW),
                0
            );
        }
        assert_eq!(own.note("more", (&change(1, 1), at(1)), None, NOW), 1);
        assert_eq!(own.len(), MOST_KEYS);
        // The window has ended.
        let later = 200 * 24 * HOUR;
        assert_eq!(
            own.note("more", (&change(1, 1), at(1)), None, (later, HOUR)),
            0
        );
        assert_eq!(own.len(), 1);
    }

    #[test]
    fn refunds_are_not_added_up() {
        let mut own = OwnChanges::default();
        let mut given_up = 0;
        for number in 1..=20 {
            let mut refund = change(number, 1);
            refund.charged = 2;
            given_up += own.note("a", (&refund, at(1)), None, NOW);
        }
        assert_eq!((own.len(), given_up), (MOST_OF_A_KEY, 4));
    }
}
