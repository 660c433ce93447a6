//! Which keys are due, and when.
//!
//! Due keys lie in two ordered sets for each shard of the store: those with unsynced units, and
//! those that only pull. A key is in one of them at most, moves when it has more units or less
//! time, and is removed with the view. Heaps would keep entries of each reset and each undone call.
//!
//! Both sets take turns. With pushes first, callers of new keys waited for seconds while the store
//! took in less than came; with reads first, the units of others would become stale.
//!
//! One call is under way for each shard, with 256 deltas at most, and calls that nobody waits for
//! are a twentieth of a period apart. So the work follows the keys that are used, and never their
//! traffic. A key is forgotten ten periods after its last call, if it has no unsynced units; no
//! unsynced unit is dropped for room.

use std::collections::BTreeSet;

use crate::{decision::Decision, time::Timestamp};

/// When a key is due, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at: Timestamp,
    /// `true` if the key has something to push, `false` if it only asks.
    pub(crate) is_write: bool,
}

impl Due {
    /// Of a key that is not due.
    pub(crate) const NEVER: Self = Self {
        at: Timestamp::MAX,
        is_write: false,
    };
}

/// Returns the half periods until a key is pushed or pulled: the fewer, the more of its limit is
/// used.
#[inline]
pub(super) fn half_periods(decision: &Decision) -> u32 {
    let limit = decision.limit().unwrap_or(0);
    let used = limit.saturating_sub(decision.remaining().unwrap_or(0));
    match used {
        used if used.saturating_mul(10) < limit => 8,
        used if used.saturating_mul(2) < limit => 4,
        used if used.saturating_mul(5) < limit.saturating_mul(4) => 2,
        _ => 1,
    }
}

/// The keys of one part of the store that have something to push or to pull, by the instants at
/// which they are due.
///
/// Each key is noted once at most, so this takes no more room than the keys.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// The keys that only ask, and those whose units are pushed.
    sets: [BTreeSet<(Timestamp, u64)>; 2],
    /// `true` if the key that was taken last by turns has something to push.
    took_write: bool,
}

impl Schedule {
    /// Notes that a key is due at another instant than before, or with something else.
    pub(crate) fn change(&mut self, key: u64, before: Due, after: Due) {
        if before.at < Timestamp::MAX {
            self.sets[usize::from(before.is_write)].remove(&(before.at, key));
        }
        if after.at < Timestamp::MAX {
            self.sets[usize::from(after.is_write)].insert((after.at, key));
        }
    }

    /// Takes out a key that is due, the one that has waited longest: by turns one that has
    /// something to push and one that asks, as long as there are both.
    pub(crate) fn take(&mut self, now: Timestamp) -> Option<(Timestamp, u64)> {
        let mut take = |is_write| {
            let set = &mut self.sets[usize::from(is_write)];
            set.first().filter(|(due, _)| *due <= now)?;
            set.pop_first()
        };
        let is_write = !self.took_write;
        if let Some(taken) = take(is_write) {
            self.took_write = is_write;
            return Some(taken);
        }
        take(!is_write)
    }

    /// Returns the next instant at which there is something to take.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let firsts = self.sets.iter().filter_map(BTreeSet::first);
        firsts.map(|(due, _)| *due).min()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sets.iter().map(BTreeSet::len).sum()
    }
}

/// The most deltas of a call to the store, beside those of the last key.
pub(crate) const MAX_DELTAS: usize = 256;

/// Takes out what is sent in one call: until it has so many deltas, or nothing is left.
pub(crate) fn together<T>(most: usize, mut next: impl FnMut() -> Option<(T, usize)>) -> Vec<T> {
    let (mut all, mut deltas) = (Vec::new(), 0);
    while deltas < most
        && let Some((pushed, more)) = next()
    {
        deltas += more;
        all.push(pushed);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at: u64, is_write: bool) -> Due {
        let at = Timestamp::from_nanos(at);
        Due { at, is_write }
    }

    #[test]
    fn keys_that_push_and_keys_that_ask_take_turns() {
        let at = Timestamp::from_nanos;
        let mut schedule = Schedule::default();
        for (id, at, is_write) in [
            (1, 5, false),
            (2, 7, true),
            (3, 6, true),
            (4, 9, true),
            (5, 4, false),
        ] {
            schedule.change(id, Due::NEVER, due(at, is_write));
        }
        assert_eq!(schedule.next(), Some(at(4)));
        assert_eq!(schedule.take(at(3)), None);
        let taken: Vec<_> = std::iter::from_fn(|| schedule.take(at(8))).collect();
        assert_eq!(taken, [(at(6), 3), (at(4), 5), (at(7), 2), (at(5), 1)]);
        assert_eq!(schedule.next(), Some(at(9)));
    }

    #[test]
    fn a_key_that_gains_something_to_push_is_not_read_first() {
        let at = Timestamp::from_nanos;
        let mut schedule = Schedule::default();
        schedule.change(1, Due::NEVER, due(5, false));
        schedule.change(2, Due::NEVER, due(6, false));
        schedule.change(2, due(6, false), due(6, true));
        assert_eq!(schedule.take(at(9)), Some((at(6), 2)));
        assert_eq!(schedule.take(at(9)), Some((at(5), 1)));
        assert_eq!(schedule.len(), 0);
    }
}
