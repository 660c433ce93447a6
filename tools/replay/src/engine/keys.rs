//! What is remembered of the keys, and who goes when there is room for no more.

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
pub struct Known {
    pub state: Option<<AnyRule as Algorithm>::State>,
    /// What it was charged last, unless that was given back, and in which class.
    pub charge: Option<(Charge, u8)>,
    pub own: Own,
    /// When to ask whether it still matters: never later than it can be forgotten.
    due: Timestamp,
}

type Map = HashMap<Rc<[u8]>, Known, RandomState>;

/// All keys; at most so many, if that was said.
pub struct Keys {
    map: Map,
    cap: Option<Cap>,
}

/// Keys in the order in which they are due.
struct Cap {
    most: usize,
    /// An entry whose time is no longer its key's is void.
    queue: BinaryHeap<Reverse<(Timestamp, Rc<[u8]>)>>,
    /// Whether the times are those of a rule of the past.
    stale: bool,
}

impl Known {
    /// From when on it says nothing to the rule.
    fn forgettable_at(&mut self, key: &[u8], rules: &Rules) -> Timestamp {
        let rule = rules.met_by(key, &mut self.own, None);
        self.state
            .as_ref()
            .map_or(Timestamp::default(), |state| rule.forgettable_at(state))
    }
}

impl Keys {
    pub fn new(most: Option<usize>) -> Self {
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
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Known> {
        self.map.get_mut(key)
    }

    /// Minds that a key's state was written: it may matter less long than before.
    #[inline]
    pub fn written(&mut self, key: &[u8], rules: &Rules) {
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

    /// Minds that another rule may forget sooner.
    pub fn rule_changed(&mut self) {
        if let Some(cap) = &mut self.cap {
            cap.stale = true;
        }
    }

    /// Remembers a newcomer, if need be in the place of a key that says nothing at `now`.
    ///
    /// Returns `true` if there was room.
    pub fn remember(
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
    /// Makes the queue anew.
    fn sort(&mut self, map: &mut Map, rules: &Rules) {
        let queue = map.iter_mut().map(|(key, known)| {
            known.due = known.forgettable_at(key, rules);
            Reverse((known.due, Rc::clone(key)))
        });
        self.queue = queue.collect();
        self.stale = false;
    }

    /// Forgets a key that says nothing at `now`; whether there was one.
    ///
    /// A key that still matters goes back into the queue, and is not met again before it was written or
    /// time has passed: so a call pays for itself.
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
