//! The leases of a key under one rule.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::LeaseConfig;
use crate::{
    algorithm::Leasable,
    decision::Cost,
    fleet::lease::{Counts, DecisionParts, Holder, Plan, Request, Step, Terms},
    key::Key,
    policy::Policy,
    store::{Ask, StoreError},
    time::Timestamp,
};

/// The leases of a key under one rule.
pub(super) struct Lease<Rule> {
    /// Keys with the same rule share it, so that it stays in the cache.
    pub(super) rule: Arc<LeasedRule<Rule>>,
    pub(super) holder: Holder,
    rest: Option<Box<Rest>>,
}

/// A rule, how long its units are held, and the stricter rule that the store runs.
pub(super) struct LeasedRule<Rule> {
    pub(super) written: Rule,
    pub(super) held: Rule,
    pub(super) hold: Duration,
    pub(super) terms: Terms,
}

/// The parts of leases that no call reads which they decide. A key without leases and without calls
/// that wait has none.
#[derive(Default)]
struct Rest {
    /// The limit and the key to which leases are given back.
    place: Option<(Policy, Key)>,
    waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

/// A request to the store for a key under a rule.
pub(super) struct Asked<Rule> {
    pub(super) fingerprint: u64,
    pub(super) rule: Arc<LeasedRule<Rule>>,
    pub(super) request: Request,
}

/// The result of a call, as far as that is possible without the store.
pub(super) enum Tried<Rule> {
    /// With a request for later calls, if there is one.
    Admitted(DecisionParts, Option<Box<Asked<Rule>>>),
    /// With the wait before a retry.
    Refused(DecisionParts, Option<Duration>),
    Ask(Asked<Rule>),
    /// To be tried again when another call has its answer.
    Wait(oneshot::Receiver<Result<(), StoreError>>),
}

impl<Rule: Leasable> LeasedRule<Rule> {
    /// # Errors
    ///
    /// When the rule cannot be leased.
    pub(super) fn new<C>(rule: &Rule, config: &LeaseConfig<C>) -> Result<Self, crate::Error> {
        let (held, hold) = (config.held(rule)?, config.hold_of(rule));
        Ok(Self {
            terms: Terms::new(rule, &held, hold),
            written: rule.clone(),
            held,
            hold,
        })
    }
}

impl<Rule> Asked<Rule> {
    /// Returns the request as an ask of the store.
    pub(super) fn ask<'a>(&'a self, ask: &Ask<'a, Rule>) -> Ask<'a, Rule> {
        let Request { cost, up_to, .. } = self.request;
        Ask::new(ask.policy(), &self.rule.held, *ask.key(), cost).up_to(up_to)
    }
}

impl<Rule> Lease<Rule> {
    pub(super) fn new(rule: Arc<LeasedRule<Rule>>, holder: Holder) -> Self {
        Self {
            rule,
            holder,
            rest: None,
        }
    }

    /// Decides a call as far as that is possible without the store.
    #[inline]
    pub(super) fn decide(
        &mut self,
        (fingerprint, cost): (u64, Cost),
        (now, is_again): (Timestamp, bool),
        round_trip: u64,
        counts: &mut Counts,
    ) -> Tried<Rule> {
        let plan = Plan {
            terms: &self.rule.terms,
            round_trip,
        };
        let asked = |request| Asked {
            fingerprint,
            rule: Arc::clone(&self.rule),
            request,
        };
        match self.holder.acquire(now, cost, is_again, plan, counts) {
            Step::Admitted(parts, None) => Tried::Admitted(parts, None),
            Step::Admitted(parts, Some(ahead)) => {
                Tried::Admitted(parts, Some(Box::new(asked(ahead))))
            }
            Step::Refused(parts, wait) => Tried::Refused(parts, wait),
            Step::Ask(request) => Tried::Ask(asked(request)),
            Step::Wait => Tried::Wait(self.wait()),
        }
    }

    /// Returns the end of the request in flight.
    fn wait(&mut self) -> oneshot::Receiver<Result<(), StoreError>> {
        let (sender, receiver) = oneshot::channel();
        let waiting = &mut self.rest.get_or_insert_default().waiting;
        // Callers that hung up must not fill memory while one answer takes long.
        if waiting.len() == waiting.capacity() {
            waiting.retain(|waiting| !waiting.is_closed());
        }
        waiting.push(sender);
        receiver
    }

    /// Lets the calls go on that wait for an answer.
    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        for waiting in self.rest.iter_mut().flat_map(|rest| rest.waiting.drain(..)) {
            // A caller that no longer waits needs nothing.
            let _ = waiting.send(match result {
                Ok(()) => Ok(()),
                Err(error) => Err(error.duplicate()),
            });
        }
    }

    /// Notes the limit and the key to which leases are given back.
    pub(super) fn set_place(&mut self, policy: &Policy, key: &Key) {
        let rest = self.rest.get_or_insert_default();
        rest.place.get_or_insert_with(|| (policy.clone(), *key));
    }

    /// Returns the limit and the key to which leases are given back; `None` if nothing was granted.
    pub(super) fn place(&self) -> Option<&(Policy, Key)> {
        self.rest.as_ref()?.place.as_ref()
    }
}
