//! Settings and counts that all clones of a service share.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{limits::Sealed, role::Role, same_state::SameState};
use crate::{
    algorithm::Algorithm,
    charging::{ChargedLimit, SettleCharges, Settling},
    decision::{Charge, Decision, Verdict},
    dry_run::DryRun,
    key::Key,
    observe::{Event, Observer},
    outcome::Outcome,
    policy::Policy,
    respond::{Refusal, Respond},
    store::{AskParts, Check, Decisions, NeverFails, OwnedAsks, Settlement, Store},
};

/// Settings of a service.
// Public because a bound of the service names it.
#[doc(hidden)]
pub struct Config<L, S, R, O> {
    // Before the store, see `Registration`.
    pub(super) same_state: SameState,
    pub(super) limits: L,
    pub(super) store: S,
    pub(super) respond: R,
    pub(super) observer: O,
    pub(super) counts: Arc<Counts>,
}

/// Counts of a layer, over all services that it made.
// Relaxed throughout: counts that are read for a report order nothing.
#[derive(Debug, Default)]
pub(super) struct Counts {
    cancelled: AtomicU64,
    misconfigured: AtomicU64,
}

impl Counts {
    /// Counts a delayed request that was dropped before its turn.
    pub(super) fn count_cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused, or decided twice, because the server is set up wrongly.
    pub(super) fn count_misconfigured(&self) {
        self.misconfigured.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn misconfigured(&self) -> u64 {
        self.misconfigured.load(Ordering::Relaxed)
    }
}

impl<L, S, R, O> fmt::Debug for Config<L, S, R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").finish_non_exhaustive()
    }
}

impl<L: Sealed, S, R, O> Config<L, S, R, O> {
    /// Returns the outcome of decisions, one for each ask, without those of dry runs that are not
    /// shown, and without the charges that this layer settles.
    #[inline]
    pub(super) fn outcome<'a>(
        &self,
        asked: impl Iterator<Item = AskParts<'a, L::AnyRule>>,
        decisions: &Decisions,
    ) -> Outcome
    where
        L: Sealed<AnyRule: Algorithm + 'a>,
    {
        let asked = asked.map(|parts| (parts.0, parts.1, self.same_state.hash(parts)));
        if !L::APART && !L::SETTLES {
            return Outcome::of(asked, decisions);
        }
        let mut outcome = Outcome::new();
        for ((policy, key, state), decision) in asked.zip(decisions.as_slice()) {
            let dry_run = self.dry_run_of(policy, key, decision);
            if !dry_run.is_none_or(DryRun::is_shown) {
                outcome.hide(state);
                continue;
            }
            let decision = match self.limits.settles(policy) {
                Some(true) => decision.without_charge(),
                _ => *decision,
            };
            outcome.push_entry(policy.for_key(key), decision, state);
        }
        outcome
    }

    /// Returns the outcome of looks, one for each ask.
    pub(super) fn outcome_of_looks(
        &self,
        asks: &OwnedAsks<L::AnyRule>,
        looks: &Decisions,
    ) -> Outcome
    where
        L: Sealed<AnyRule: Algorithm>,
    {
        if !L::APART {
            return self.outcome(asks.parts(), looks);
        }
        let looks = asks.parts().zip(looks.as_slice());
        let decision = |((policy, key, _), look): (AskParts<'_, _>, &Decision)| {
            if self.limits.role(policy, key) == Some(Role::DryRun) {
                look.as_dry_run()
            } else {
                *look
            }
        };
        let decisions = looks.map(decision).collect();
        self.outcome(asks.parts(), &decisions)
    }

    /// Returns the dry run that a decision belongs to; `None` if the decision has effect.
    #[inline]
    fn dry_run_of(&self, policy: &Policy, key: &Key, decision: &Decision) -> Option<&DryRun> {
        // Only if the store could not decide, the decision does not show it. To select a key takes
        // a hash.
        let may_be_dry = decision.is_dry_run() || decision.is_undecided();
        let dry_run = may_be_dry.then(|| self.limits.dry_run(policy))?;
        dry_run.filter(|dry_run| decision.is_dry_run() || dry_run.is_dry(key))
    }

    /// Counts the decisions of dry runs.
    #[inline(always)]
    fn count_dry_runs<'a, Rule: 'a>(
        &self,
        asked: impl Iterator<Item = AskParts<'a, Rule>> + Clone,
        decisions: &Decisions,
    ) {
        let decided = asked.zip(decisions.as_slice());
        for ((policy, key, _), decision) in decided.clone() {
            if let Some(dry_run) = self.dry_run_of(policy, key, decision) {
                let live = dry_run.live().and_then(|live| {
                    let mut others = decided.clone();
                    others.find(|((policy, ..), _)| policy.digest() == live.digest())
                });
                dry_run.count(key, decision, live.map(|(_, decision)| decision));
            }
        }
    }

    /// Reports the decisions of a request, one for each ask.
    #[inline]
    pub(super) fn observe<'a, Rule: 'a>(
        &self,
        asked: impl Iterator<Item = AskParts<'a, Rule>> + Clone,
        decisions: &Decisions,
    ) where
        O: Observer,
    {
        if L::APART {
            self.count_dry_runs(asked.clone(), decisions);
        }
        if O::SILENT {
            return;
        }
        let all_admit = decisions.is_admitted();
        for ((policy, key, _), decision) in asked.zip(decisions.as_slice()) {
            if L::APART && self.dry_run_of(policy, key, decision).is_some() {
                let decision = decision.if_enforced();
                let event = Event::new(policy, key, &decision);
                self.observer.dry_run(&event);
                continue;
            }
            let event = Event::new(policy, key, decision);
            match decision.verdict() {
                Verdict::Refuse => self.observer.refused(&event),
                Verdict::Undecided { .. } => self.observer.undecided(&event),
                Verdict::DryRun { .. } => {}
                // Nothing was spent if another limit refuses.
                _ if !all_admit => {}
                Verdict::Allow => self.observer.admitted(&event),
                Verdict::Delay(wait) => self.observer.delayed(&event, wait),
            }
        }
    }
}

impl<L, S, R, O> Config<L, S, R, O> {
    /// Hands the outcome to an admitted request if the responder wants it; returns the annotation
    /// for its response.
    #[inline]
    pub(super) fn admit<'a, Req, Res, Err, Rule>(
        &self,
        req: &mut Req,
        asked: impl Iterator<Item = AskParts<'a, Rule>>,
        outcome: impl FnOnce() -> Outcome,
    ) -> Option<R::Annotation>
    where
        R: Respond<Req, Res, Err>,
        Rule: Algorithm + 'a,
    {
        let wanted = self.respond.wants_outcome();
        wanted.then(|| {
            self.note_outer(req, asked);
            self.respond.admit(req, outcome())
        })
    }

    /// Counts a request that an outer layer has decided by one of these limits already, and returns
    /// `true` for it.
    #[inline(always)]
    pub(super) fn note_outer<'a, Req, Res, Err, Rule>(
        &self,
        req: &Req,
        asked: impl Iterator<Item = AskParts<'a, Rule>>,
    ) -> bool
    where
        R: Respond<Req, Res, Err>,
        Rule: Algorithm + 'a,
    {
        let Some(outer) = self.respond.outer_outcome(req) else {
            return false;
        };
        let is_noted = self.same_state.is_decided_by(outer, asked);
        if is_noted {
            self.counts.count_misconfigured();
        }
        is_noted
    }

    /// Answers a request that the store refused.
    #[inline]
    pub(super) fn refuse_decided<'a, Req, Res, Err>(
        &self,
        req: Req,
        asked: impl Iterator<Item = AskParts<'a, L::AnyRule>> + Clone,
        decisions: &Decisions,
    ) -> Result<Res, Err>
    where
        L: Sealed<AnyRule: Algorithm + 'a>,
        R: Respond<Req, Res, Err>,
    {
        let refusal = Refusal::decided(self.outcome(asked.clone(), decisions), decisions);
        let is_noted = self.respond.wants_outcome() && self.note_outer(&req, asked);
        if is_noted {
            return self.respond.refuse(req, refusal);
        }
        self.refuse(req, refusal)
    }

    /// Answers a refused request, and counts it if the refusal is the server's fault.
    #[inline]
    pub(super) fn refuse<Req, Res, Err>(&self, req: Req, refusal: Refusal) -> Result<Res, Err>
    where
        R: Respond<Req, Res, Err>,
    {
        if refusal.help().is_some() {
            self.counts.count_misconfigured();
        }
        self.respond.refuse(req, refusal)
    }
}

impl<L, S, R, O> SettleCharges for Config<L, S, R, O>
where
    L: Sealed<AnyRule: 'static> + Send + Sync,
    S: Store<L::AnyRule, Error: NeverFails, Done: Send + 'static> + Send + Sync,
    R: Send + Sync,
    O: Observer + Send + Sync,
{
    fn settle(&self, limit: &ChargedLimit, charge: Charge, actual: u64) -> Settling {
        let selected = limit.selected.as_deref();
        let selected = selected.and_then(|rule| rule.downcast_ref());
        let Some(rule) = selected.or_else(|| self.limits.own_rule(&limit.policy)) else {
            return Settling::done();
        };
        self.observer
            .settled(&limit.policy, &limit.key, charge.cost, actual);
        let settlement = Settlement {
            policy: &limit.policy,
            rule,
            key: limit.key,
            charge,
            actual,
            is_grant: false,
        };
        match self.store.settle(vec![settlement]) {
            Check::Ready(Ok(())) => Settling::done(),
            Check::Ready(Err(error)) => error.never(),
            Check::Pending(done) => Settling::pending(Box::pin(async {
                done.await.unwrap_or_else(NeverFails::never);
            })),
        }
    }
}
