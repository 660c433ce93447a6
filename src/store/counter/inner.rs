//! What the clones of a store share.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{
    hints::Hints,
    known::Known,
    place::{Asked, Place},
    stats::Counts,
};
use crate::{
    algorithm::Counted,
    error::Error,
    key::Key,
    policy::Policy,
    store::Ask,
    time::{Clock, Timestamp},
};

pub(super) struct Inner<I, Rule, K> {
    pub(super) increment: I,
    pub(super) prefix: Box<str>,
    /// How far apart the clocks of hosts may be.
    pub(super) apart: Duration,
    pub(super) clock: K,
    /// The latest time that a clock which may step back has told, in nanoseconds.
    pub(super) newest: AtomicU64,
    pub(super) hints: Hints,
    pub(super) known: Known<Rule>,
    pub(super) counts: Counts,
}

impl<I, Rule: Counted, K: Clock> Inner<I, Rule, K> {
    /// The time, which never falls.
    pub(super) fn now(&self) -> Timestamp {
        let now = self.clock.now();
        if self.clock.is_monotonic() {
            return now;
        }
        let newest = self.newest.fetch_max(now.as_nanos(), Ordering::Relaxed);
        now.max(Timestamp::from_nanos(newest))
    }

    /// How long a slice's counter may matter to some host: by the clock as it is, to which a window lasts longer where it
    /// has stepped back.
    pub(super) fn keep(&self, place: &Place, slice: u64) -> Duration {
        let over = place.slicing.over(slice);
        over.saturating_since(self.clock.now())
            .saturating_add(self.apart)
    }

    pub(super) fn place(&self, policy: &Policy, key: &Key, rule: &Rule) -> Result<Place, Error> {
        let own = rule.for_key(&|| key.digest());
        Place::of(&self.prefix, policy, key, own.as_ref().unwrap_or(rule))
    }

    pub(super) fn asked(&self, asks: &[Ask<'_, Rule>]) -> Result<Vec<Asked<Rule>>, Error> {
        let asked = |ask: &Ask<'_, Rule>| {
            self.known.learn(ask.rule())?;
            let rule = ask.rule_for_key().unwrap_or_else(|| ask.rule().clone());
            let place = Place::of(&self.prefix, ask.policy(), ask.key(), &rule)?;
            Ok(Asked {
                hash: self.hints.hash(&place),
                place,
                rule,
                cost: ask.cost(),
            })
        };
        asks.iter().map(asked).collect()
    }
}
