//! The messages of aggregators to the topic of totals, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate::{
    Error,
    algorithm::{Algorithm, Codec},
};

use crate::message::{Change, State};

/// The key under which an aggregator writes to each of its partitions that it lives.
pub(crate) const HEARTBEAT: &str = "heartbeat";

/// The most nodes whose last changes a total has.
const MOST_NODES: usize = 256;

/// The state of a key, with the changes that are in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Total {
    pub(crate) state: Option<Vec<u8>>,
    /// The offset after the last change that is in it.
    pub(crate) next: i64,
    /// The last change of each node. It distinguishes a repeated change from the next one.
    pub(crate) last: BTreeMap<u64, Last>,
    /// All changes of the partition before this instant are in its totals, in nanoseconds of Unix
    /// time.
    pub(crate) as_of: u64,
    /// When the key is like new.
    pub(crate) until: u64,
}

/// The last change of a node to a key.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Last {
    pub(crate) number: u64,
    /// When it was taken in, by the clock of the aggregator.
    pub(crate) at: u64,
}

/// The result of taking in a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The state has changed.
    In,
    /// Its node has produced it before.
    Repeated,
    /// The brokers have delivered it before.
    Redelivered,
    /// A newer release wrote the state, and the change does not remove it.
    Newer,
}

impl Total {
    /// Returns the state. Damaged bytes are none.
    ///
    /// # Errors
    ///
    /// If a newer release wrote it.
    pub(crate) fn state(&self) -> Result<Option<State>, Error> {
        match self.state.as_deref().map(State::from_bytes).transpose() {
            Err(error) if error.is_newer_state() => Err(error),
            state => Ok(state.ok().flatten()),
        }
    }

    /// Returns `true` if the key may be removed at this instant, in nanoseconds of Unix time.
    pub(crate) fn is_like_new(&self, now: u64) -> bool {
        self.until <= now
    }

    /// Takes in the change at an offset of its partition.
    pub(crate) fn take_in(&mut self, change: &Change, offset: i64, now: u64) -> Taken {
        if offset < self.next {
            return Taken::Redelivered;
        }
        let mut state = match self.state() {
            Ok(state) => state,
            Err(_) if change.is_reset => None,
            Err(_) => return Taken::Newer,
        };
        self.next = offset + 1;
        let last = self.last.entry(change.node).or_default();
        if change.number <= last.number {
            return Taken::Repeated;
        }
        *last = Last {
            number: change.number,
            at: now,
        };
        change.apply(&mut state);
        if let (Some(rule), Some(state)) = (change.rule(), &state) {
            self.until = self.until.max(rule.forgettable_at(state).as_nanos());
        }
        self.state = state.map(|state| state.to_bytes());
        Taken::In
    }

    /// Forgets nodes whose last changes were taken in that long ago, in nanoseconds, and of too
    /// many the ones that are longest ago. Returns the number of the latter. A node that repeats a
    /// change after that has it counted twice.
    pub(crate) fn forget_nodes(&mut self, now: u64, keep: u64) -> u64 {
        self.last
            .retain(|_, last| last.at.saturating_add(keep) >= now);
        let mut forgotten = 0;
        while self.last.len() > MOST_NODES {
            let oldest = self.last.iter().min_by_key(|(_, last)| last.at);
            let Some(node) = oldest.map(|(node, _)| *node) else {
                break;
            };
            self.last.remove(&node);
            forgotten += 1;
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(node: u64, number: u64) -> Change {
        Change {
            rule: "fixed-window 1000000/1d".to_owned(),
            node,
            number,
            at: 1,
            charged: 0,
            actual: 1,
            is_reset: false,
        }
    }

    #[test]
    fn a_change_is_taken_in_once() {
        let mut total = Total::default();
        assert_eq!(total.take_in(&change(1, 1), 0, 0), Taken::In);
        assert_eq!(total.take_in(&change(1, 1), 0, 0), Taken::Redelivered);
        assert_eq!(total.take_in(&change(1, 1), 1, 0), Taken::Repeated);
        assert_eq!(total.next, 2, "a repetition is in the total, too");
        assert_eq!(total.take_in(&change(1, 2), 2, 0), Taken::In);
        // Another start of the node, with numbers of its own.
        assert_eq!(total.take_in(&change(2, 1), 3, 0), Taken::In);
    }

    #[test]
    fn a_state_of_a_newer_release_is_only_replaced_by_a_reset() {
        let mut total = Total::default();
        total.take_in(&change(1, 1), 0, 0);
        let damaged = Total {
            state: Some(vec![0xff]),
            ..total.clone()
        };
        assert!(damaged.state().unwrap().is_none());
        // The version is in the lower bits of the first byte.
        let state = total.state.as_mut().unwrap();
        state[0] |= 7;
        assert!(total.state().is_err());
        let before = (total.state.clone(), total.next);
        assert_eq!(total.take_in(&change(1, 2), 1, 0), Taken::Newer);
        assert_eq!((total.state.clone(), total.next), before);
        let reset = Change {
            is_reset: true,
            ..change(1, 3)
        };
        assert_eq!(total.take_in(&reset, 2, 0), Taken::In);
        assert_eq!((total.state, total.next), (None, 3));
    }

    #[test]
    fn nodes_are_forgotten_after_a_time_and_beyond_a_number() {
        let mut total = Total::default();
        for node in 0..300 {
            let offset = i64::try_from(node).unwrap();
            total.take_in(&change(node, 1), offset, 10 + node);
        }
        assert_eq!(total.forget_nodes(310, 1000), 300 - 256);
        assert_eq!(total.last.keys().next(), Some(&44), "those of longest ago");
        // Redelivery is known by the offset all the same.
        assert_eq!(total.take_in(&change(0, 1), 0, 310), Taken::Redelivered);
        assert_eq!(total.forget_nodes(1209, 1000), 0);
        assert_eq!(
            total.last.keys().next(),
            Some(&199),
            "10 + 199 + 1000 = 1209"
        );
    }
}
