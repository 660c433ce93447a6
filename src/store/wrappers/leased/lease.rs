//! The leases of a key under one rule.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::LeaseConfig;
use crate::{
    algorithm::Leasable,
    decision::Decision,
    key::Key,
    lease::{Counts, Holder, Plan, Request, Step, most_held},
    policy::Policy,
    quota::Quota,
    store::{Ask, Error},
    time::Timestamp,
};

/// The leases of a key under one rule.
pub(super) struct Lease<Rule> {
    /// Keys with the same rule share it, so that it stays in the cache.
    pub(super) rule: Arc<LeasedRule<Rule>>,
    pub(super) holder: Holder,
    pub(super) rest: Box<Rest>,
}

/// A rule, how long its units are held, and the stricter rule that the store runs.
pub(super) struct LeasedRule<Rule> {
    pub(super) written: Rule,
    /// What clients see.
    pub(super) limit: Option<(NonZeroU64, Quota)>,
    pub(super) held: Rule,
    pub(super) hold: Duration,
}

/// What a call does not need that leases decide, apart from what it needs.
pub(super) struct Rest {
    /// Where the leases are given back.
    pub(super) place: (Policy, Key),
    pub(super) waiting: Vec<oneshot::Sender<Result<(), Error>>>,
}

/// A request to the store, and the rule that the store runs for it.
pub(super) struct Asked<Rule> {
    pub(super) held: Rule,
    pub(super) request: Request,
}

/// What became of a call.
pub(super) enum Tried<Rule> {
    /// With a request for later calls, if there is one.
    Decided(Decision, Option<Box<Asked<Rule>>>),
    Ask(Box<Asked<Rule>>),
    /// To be tried again when another call has its answer.
    Wait(oneshot::Receiver<Result<(), Error>>),
}

impl<Rule: Leasable> LeasedRule<Rule> {
    /// # Errors
    ///
    /// When the rule cannot be leased.
    pub(super) fn new<C>(rule: &Rule, config: &LeaseConfig<C>) -> Result<Self, crate::Error> {
        Ok(Self {
            written: rule.clone(),
            limit: limit_as_written(rule),
            held: config.held(rule)?,
            hold: config.hold_of(rule),
        })
    }

    /// Returns how many units may be lacking although the rule as it is written has them, with so many nodes if that is known.
    pub(super) fn undershoot_bound(&self, nodes: Option<u64>) -> u64 {
        let units = |rule| limit_as_written(rule).map_or(0, |(units, _)| units.get());
        let (written, held) = (units(&self.written), units(&self.held));
        let others = nodes.map_or(u64::MAX, |nodes| nodes.saturating_sub(1));
        let on_others = others.saturating_mul(most_held(held)).min(held);
        (written - held.min(written)).saturating_add(on_others)
    }
}

impl<Rule: Leasable> Lease<Rule> {
    pub(super) fn new(rule: Arc<LeasedRule<Rule>>, ask: &Ask<'_, Rule>) -> Self {
        Self {
            rule,
            holder: Holder::default(),
            rest: Box::new(Rest {
                place: (ask.policy().clone(), *ask.key()),
                waiting: Vec::new(),
            }),
        }
    }

    /// Decides a call as far as that is possible without the store.
    #[inline]
    pub(super) fn decide(
        &mut self,
        ask: &Ask<'_, Rule>,
        (now, is_again): (Timestamp, bool),
        plan: Plan,
        counts: &mut Counts,
    ) -> Tried<Rule> {
        let cost = ask.cost();
        let step = self.holder.acquire(now, cost, is_again, &plan, counts);
        let asked = |request| {
            Box::new(Asked {
                held: self.rule.held.clone(),
                request,
            })
        };
        match step {
            Step::Decided(decision, ahead) => Tried::Decided(decision, ahead.map(asked)),
            Step::Ask(request) => Tried::Ask(asked(request)),
            Step::Wait => {
                let (sender, receiver) = oneshot::channel();
                // Callers that hung up must not fill memory while one answer takes long.
                let rest = &mut self.rest;
                if rest.waiting.len() == rest.waiting.capacity() {
                    rest.waiting.retain(|waiting| !waiting.is_closed());
                }
                rest.waiting.push(sender);
                Tried::Wait(receiver)
            }
        }
    }
}

impl<Rule> Lease<Rule> {
    /// Lets the calls go on that wait for an answer.
    pub(super) fn wake(&mut self, result: &Result<(), Error>) {
        for waiting in self.rest.waiting.drain(..) {
            // A caller that no longer waits needs nothing.
            let _ = waiting.send(match result {
                Ok(()) => Ok(()),
                Err(error) => Err(error.duplicate()),
            });
        }
    }
}

/// Returns the limit that clients see: that of the rule as it is written, not of the stricter one in the store.
pub(super) fn limit_as_written(rule: &impl Leasable) -> Option<(NonZeroU64, Quota)> {
    let unused = rule.look(None, Timestamp::default());
    let limit = unused.limit().and_then(NonZeroU64::new);
    limit.zip(unused.quota())
}
