//! The parts of a store that its clones share.

use std::time::Duration;

use super::{
    counter_set::{CounterAsk, CounterSet},
    hints::Hints,
    known_slicings::KnownSlicings,
    stats::Counts,
    sync::OpenDeltas,
};
use crate::{
    algorithm::Counted,
    error::Error,
    key::Key,
    policy::Policy,
    store::{
        Ask,
        engine::{MonotoneClock, Unsettled},
    },
    time::{Clock, Timestamp},
};

pub(super) struct Inner<I, Rule, K> {
    pub(super) increment: I,
    pub(super) prefix: Box<str>,
    /// The greatest difference between the clocks of two hosts.
    pub(super) apart: Duration,
    pub(super) clock: MonotoneClock<K>,
    pub(super) hints: Hints,
    pub(super) known: KnownSlicings<Rule>,
    pub(super) counts: Counts,
    pub(super) open_deltas: OpenDeltas,
    pub(super) unsettled: Unsettled,
}

impl<I, Rule: Counted, K: Clock> Inner<I, Rule, K> {
    /// Returns the time, which never falls.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns how long a slice's counter may matter to some host: by the clock as it is, for which a window lasts longer after it
    /// has stepped back.
    pub(super) fn keep(&self, place: &CounterSet, slice: u64) -> Duration {
        let over = place.slicing.over(slice);
        over.saturating_since(self.clock.clock().now())
            .saturating_add(self.apart)
    }

    pub(super) fn place(
        &self,
        policy: &Policy,
        key: &Key,
        rule: &Rule,
    ) -> Result<CounterSet, Error> {
        let own = rule.for_key(&|| key.digest());
        CounterSet::of(&self.prefix, policy, key, own.as_ref().unwrap_or(rule))
    }

    pub(super) fn asked(&self, asks: &[Ask<'_, Rule>]) -> Result<Vec<CounterAsk<Rule>>, Error> {
        let asked = |ask: &Ask<'_, Rule>| {
            self.known.learn(ask.rule())?;
            let rule = ask.rule_for_key().unwrap_or_else(|| ask.rule().clone());
            let place = CounterSet::of(&self.prefix, ask.policy(), ask.key(), &rule)?;
            Ok(CounterAsk {
                hash: self.hints.hash(&place),
                added: added(ask, &rule, &place),
                place,
                rule,
                cost: ask.cost(),
            })
        };
        asks.iter().map(asked).collect()
    }
}

/// Returns what an ask adds at first: up to how many units are granted, if each window is counted alone.
///
/// Never more than the limit, so that no counter reaches its end.
fn added<Rule: Counted>(ask: &Ask<'_, Rule>, rule: &Rule, place: &CounterSet) -> u64 {
    let (cost, spend) = (ask.cost().get(), ask.spend());
    if !spend.is_grant() || place.slicing.older() > 0 {
        return cost;
    }
    let limit = rule
        .look(None, Timestamp::from_nanos(0))
        .remaining()
        .unwrap_or(0);
    cost.max(spend.most().min(limit))
}
