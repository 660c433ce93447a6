//! The leases of a key under one rule.
//!
//! A key gets leases with its second call within a lease duration. The first one leaves 16 bytes:
//! its fingerprint and its time. An entry for each key would slow rarely used keys by a quarter,
//! and an attacker with many keys would fill the room of others. Calls that come while the first is
//! under way wait for its answer, as later ones do: with two requests for each key at a start, a
//! slow store did not recover in the simulation.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    algorithm::Leasable,
    decision::Cost,
    fleet::{
        LeaseConfig, LeaseStats,
        keys::{Answered, Keys, Waiting},
        lease::{DecisionParts, LeaseState, Link, Request, Step, Terms},
    },
    key::Key,
    policy::Policy,
    store::{Ask, StoreError},
    time::Timestamp,
};

/// The leases of a key, one for each rule.
pub(super) type KeyLeases<Rule> = SmallVec<[Lease<Rule>; 1]>;

/// The leases of a key under one rule.
pub(super) struct Lease<Rule> {
    /// Keys with the same rule share it, so that it stays in the cache.
    pub(super) rule: Arc<LeasedRule<Rule>>,
    pub(super) state: LeaseState,
    /// The number of the last change of the key's state that no request of this node made.
    /// Answers to earlier requests do not know of it.
    pub(super) change: u64,
    pub(super) rest: Option<Box<Rest>>,
}

/// A rule, how long its units are held, and the tightened rule that the store runs.
pub(super) struct LeasedRule<Rule> {
    pub(super) written: Rule,
    pub(super) tightened: Rule,
    pub(super) duration: Duration,
    pub(super) terms: Terms,
}

/// The parts of leases that no call reads which they decide. A key without leases and without calls
/// that wait has none.
#[derive(Default)]
pub(super) struct Rest {
    /// The limit and the key to which leases are returned; `None` if nothing was granted.
    pub(super) owner: Option<(Policy, Key)>,
    waiting: Waiting,
}

/// A request to the store for a key under a rule.
pub(super) struct LeaseRequest<Rule> {
    pub(super) fingerprint: u64,
    /// The generation of the key's entry; `None` if it had none.
    pub(super) generation: Option<u64>,
    pub(super) rule: Arc<LeasedRule<Rule>>,
    /// The number of the last change of any key in the shard.
    pub(super) change: u64,
    pub(super) request: Request,
}

/// The result of a call, as far as that is possible without the store.
pub(super) enum LeaseOutcome<Rule> {
    /// With a request for later calls, if there is one.
    Admitted(DecisionParts, Option<Box<LeaseRequest<Rule>>>),
    /// With the wait before a retry.
    Refused(DecisionParts, Option<Duration>),
    Ask(LeaseRequest<Rule>),
    /// To be tried again when another call has its answer.
    Wait(Answered),
}

impl<Rule: Leasable> LeasedRule<Rule> {
    /// # Errors
    ///
    /// When the rule cannot be leased.
    pub(super) fn new<C>(rule: &Rule, config: &LeaseConfig<C>) -> Result<Self, crate::Error> {
        let (tightened, duration) = (config.tightened(rule)?, config.duration_of(rule));
        Ok(Self {
            terms: Terms::new(rule, &tightened, duration),
            written: rule.clone(),
            tightened,
            duration,
        })
    }
}

impl<Rule: PartialEq> LeaseRequest<Rule> {
    /// Finds those leases for which this was asked. A key that was reset since has none of them.
    pub(super) fn find<'a>(
        &self,
        keys: &'a mut Keys<KeyLeases<Rule>>,
    ) -> Option<&'a mut Lease<Rule>> {
        let leases = keys.get_of(self.fingerprint, self.generation)?;
        let is_asked = |lease: &&mut Lease<Rule>| {
            Arc::ptr_eq(&lease.rule, &self.rule) || lease.rule.written == self.rule.written
        };
        leases.iter_mut().find(is_asked)
    }
}

impl<Rule> LeaseRequest<Rule> {
    /// Returns the request as an ask of the store.
    pub(super) fn ask<'a>(&'a self, policy: &'a Policy, key: &Key) -> Ask<'a, Rule> {
        let Request { cost, up_to, .. } = self.request;
        Ask::new(policy, &self.rule.tightened, *key, cost).up_to(up_to)
    }
}

impl<Rule> Lease<Rule> {
    /// Decides a call as far as that is possible without the store.
    #[inline]
    pub(super) fn decide(
        &mut self,
        (fingerprint, generation, change): (u64, u64, u64),
        (cost, now, is_again): (Cost, Timestamp, bool),
        link: Link,
        counts: &mut LeaseStats,
    ) -> LeaseOutcome<Rule> {
        let with = (&self.rule.terms, link);
        let asked = |request| LeaseRequest {
            fingerprint,
            generation: Some(generation),
            rule: Arc::clone(&self.rule),
            change,
            request,
        };
        match self.state.acquire(now, cost, is_again, with, counts) {
            Step::Admitted(parts, None) => LeaseOutcome::Admitted(parts, None),
            Step::Admitted(parts, Some(prefetch)) => {
                LeaseOutcome::Admitted(parts, Some(Box::new(asked(prefetch))))
            }
            Step::Refused(parts, wait) => LeaseOutcome::Refused(parts, wait),
            Step::Ask(request) => LeaseOutcome::Ask(asked(request)),
            Step::Wait => LeaseOutcome::Wait(self.rest.get_or_insert_default().waiting.wait()),
        }
    }

    /// Lets the calls go on that wait for an answer.
    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        if let Some(rest) = &mut self.rest {
            rest.waiting.wake(result);
        }
    }

    /// Lets them go on without an answer.
    pub(super) fn forget_waiting(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.waiting = Waiting::default();
        }
    }
}

/// The last call of keys without leases, so that a key takes memory for leases with its second call
/// only.
///
/// Each key has one place, which others may take from it. A key that was forgotten is answered once
/// more as if there were no leases.
pub(super) struct RecentCalls {
    calls: Box<[RecentCall]>,
}

#[derive(Clone, Copy, Default)]
struct RecentCall {
    /// No key has the fingerprint 0.
    fingerprint: u64,
    /// In milliseconds, of which the upper bits are left out.
    at: u32,
    is_under_way: bool,
}

impl RecentCalls {
    /// Makes places for at least so many keys.
    pub(super) fn new(keys: usize) -> Self {
        Self {
            calls: vec![RecentCall::default(); keys.max(1).next_power_of_two()].into(),
        }
    }

    /// Notes a call, and returns the state in which leases begin; `None` for the first call within
    /// the lease duration, which is under way from now on.
    pub(super) fn note(
        &mut self,
        fingerprint: u64,
        now: Timestamp,
        duration: Duration,
    ) -> Option<LeaseState> {
        let now = Duration::from_nanos(now.as_nanos()).as_millis() as u32;
        let call = self.owner(fingerprint);
        let is_known = call.fingerprint == fingerprint
            && (call.is_under_way || u128::from(now.wrapping_sub(call.at)) <= duration.as_millis());
        if is_known {
            call.at = now;
            return Some(match call.is_under_way {
                true => LeaseState::during_the_first(),
                false => LeaseState::default(),
            });
        }
        *call = RecentCall {
            fingerprint,
            at: now,
            is_under_way: true,
        };
        None
    }

    /// Notes that the first call of a key has its answer, or will have none.
    pub(super) fn ended(&mut self, fingerprint: u64) {
        let call = self.owner(fingerprint);
        call.is_under_way &= call.fingerprint != fingerprint;
    }

    fn owner(&mut self, fingerprint: u64) -> &mut RecentCall {
        let last = self.calls.len() - 1;
        &mut self.calls[fingerprint as usize & last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_millis(100);

    /// Returns `true` if the former call is under way; `None` if there was none within the hold.
    fn note(calls: &mut RecentCalls, fingerprint: u64, now: Timestamp) -> Option<bool> {
        let state = calls.note(fingerprint, now, HOLD)?;
        Some(!state.is_idle(Timestamp::MAX, 0))
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_second_call_within_a_hold_is_recognized() {
        let mut calls = RecentCalls::new(100);
        assert_eq!(note(&mut calls, 5, at(1000)), None);
        calls.ended(5);
        assert_eq!(note(&mut calls, 5, at(1100)), Some(false));
        assert_eq!(note(&mut calls, 5, at(1201)), None);
        calls.ended(5);
        assert_eq!(note(&mut calls, 5, at(1201)), Some(false));
    }

    #[test]
    fn a_call_without_an_answer_is_under_way_for_long() {
        let mut calls = RecentCalls::new(100);
        assert_eq!(note(&mut calls, 5, at(1000)), None);
        assert_eq!(note(&mut calls, 5, at(9000)), Some(true));
        calls.ended(5);
        assert_eq!(note(&mut calls, 5, at(9100)), Some(false));
    }

    #[test]
    fn keys_of_one_place_are_told_apart() {
        let mut calls = RecentCalls::new(100);
        let other = 5 + 128;
        assert_eq!(note(&mut calls, 5, at(1000)), None);
        assert_eq!(note(&mut calls, other, at(1000)), None);
        calls.ended(5);
        assert_eq!(note(&mut calls, other, at(1000)), Some(true));
        assert_eq!(note(&mut calls, 5, at(1000)), None, "forgotten");
    }

    #[test]
    fn the_count_of_milliseconds_may_overflow() {
        let (mut calls, last) = (RecentCalls::new(100), u64::from(u32::MAX));
        assert_eq!(note(&mut calls, 5, at(last)), None);
        calls.ended(5);
        assert_eq!(note(&mut calls, 5, at(last + 2)), Some(false));
    }
}
