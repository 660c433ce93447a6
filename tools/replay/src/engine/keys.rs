//! The states of the keys, and the choice of keys to forget when the maximum is reached.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    rc::Rc,
};

use foldhash::fast::RandomState;
use tollgate::{AnyRule, Charge, Timestamp, algorithm::Algorithm};

use super::rules::{Own, Rules};

/// The state of a key.
#[derive(Default)]
pub(super) struct Known {
    pub state: Option<<AnyRule as Algorithm>::State>,
    /// The last charge that was not refunded, and its class.
    pub charge: Option<(Charge, u8)>,
    pub own: Own,
    /// The instant at which to check whether the key can be forgotten. Never later than it can be.
    due: Timestamp,
}

type Map = HashMap<Rc<[u8]>, Known, RandomState>;

/// All keys, with an optional maximum.
pub(super) struct Keys {
    map: Map,
    cap: Option<Cap>,
}

/// The maximum, and the keys in the order in which they are due.
struct Cap {
    most: usize,
    /// An entry is outdated if its time differs from its key's `due`.
    queue: BinaryHeap<Reverse<(Timestamp, Rc<[u8]>)>>,
    /// `true` if the times were computed for an earlier rule.
    stale: bool,
}

impl Known {
    /// Returns the instant from which the state no longer matters to the rule.
    fn forgettable_at(&mut self, key: &[u8], rules: &Rules) -> Timestamp {
        let rule = rules.met_by(key, &mut self.own, None);
        self.state
            .as_ref()
            .map_or(Timestamp::default(), |state| rule.forgettable_at(state))
    }
}

impl Keys {
    pub(super) fn new(most: Option<usize>) -> Self {
        let cap = most.map(|most| Cap {
            most,
            queue: BinaryHeap::new(),
            stale: false,
        });
        Self {
            map: Map::default(),
            cap,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Known> {
        self.map.get_mut(key)
    }

    /// Must be called after a key's state was written, because it may be forgettable sooner than
    /// before.
    #[inline]
    pub(super) fn written(&mut self, key: &[u8], rules: &Rules) {
        if let (Some(cap), Some(known)) = (&mut self.cap, self.map.get_mut(key)) {
            let since = known.forgettable_at(key, rules);
            if since < known.due {
                known.due = since;
                cap.queue.push(Reverse((since, key.into())));
                if cap.queue.len() / 2 > cap.most {
                    cap.sort(&mut self.map, rules);
                }
            }
        }
    }

    /// Must be called after a change of the rule, which may forget keys sooner.
    pub(super) fn rule_changed(&mut self) {
        if let Some(cap) = &mut self.cap {
            cap.stale = true;
        }
    }

    /// Stores a new key. If necessary, forgets a key whose state no longer matters at `now`.
    ///
    /// Returns `true` if there was room.
    pub(super) fn remember(
        &mut self,
        key: &[u8],
        mut known: Known,
        now: Timestamp,
        rules: &Rules,
    ) -> bool {
        let Some(cap) = &mut self.cap else {
            self.map.insert(key.into(), known);
            return true;
        };
        if self.map.len() >= cap.most && !cap.forget_one(&mut self.map, now, rules) {
            return false;
        }
        let key = Rc::from(key);
        known.due = known.forgettable_at(&key, rules);
        cap.queue.push(Reverse((known.due, Rc::clone(&key))));
        self.map.insert(key, known);
        true
    }
}

impl Cap {
    /// Rebuilds the queue.
    fn sort(&mut self, map: &mut Map, rules: &Rules) {
        let queue = map.iter_mut().map(|(key, known)| {
            known.due = known.forgettable_at(key, rules);
            Reverse((known.due, Rc::clone(key)))
        });
        self.queue = queue.collect();
        self.stale = false;
    }

    /// Forgets a key whose state no longer matters at `now`. Returns `true` if there was one.
    ///
    /// A key that still matters returns to the queue, and is not checked again before it is written
    /// or time has passed. So the amortized cost of a call is constant.
    fn forget_one(&mut self, map: &mut Map, now: Timestamp, rules: &Rules) -> bool {
        if self.stale {
            self.sort(map, rules);
        }
        while self.queue.peek().is_some_and(|first| first.0.0 <= now) {
            let Some(Reverse((due, key))) = self.queue.pop() else {
                break;
            };
            let Some(known) = map.get_mut(&key).filter(|known| known.due == due) else {
                continue;
            };
            known.due = known.forgettable_at(&key, rules);
            if known.due <= now {
                map.remove(&key);
                return true;
            }
            self.queue.push(Reverse((known.due, key)));
        }
        false
    }
}
