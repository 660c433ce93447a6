//! Settings of limits, and what all clones of a service share: settings and counts.

use std::{future::ready, sync::Arc};

use super::{layer::RateLimitLayer, limits::Limits, same_state::SameState};
use crate::{
    algorithm::Algorithm,
    charging::{ChargedLimit, SettleCharges, Settling},
    decision::{Charge, Decision, Verdict},
    dry_run::DryRun,
    key::Key,
    live_rule::{OwnRule, Watch},
    observe::{Event, Observer},
    outcome::Outcome,
    permit::Release,
    policy::Policy,
    respond::{Refusal, Respond},
    stats::Counter,
    store::{Ask, Backend, BoxFuture, Check, Decisions, Lines, NeverFails, Renewed, Store},
};

/// The settings of a limit that do not depend on the types of requests and responses.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct LimitSettings<Rule> {
    pub(super) policy: Policy,
    pub(super) rule: OwnRule<Rule>,
    /// Set if no other rule is selected for a request.
    pub(super) is_fixed: bool,
    /// Returns `true` if calls may wait for their turn under a rule of the limit.
    pub(super) waits: fn(&Rule) -> bool,
    pub(super) when: When,
    /// `None` if all decisions have effect.
    pub(super) dry_run: Option<DryRun>,
    /// Set if responses and outcomes contain the decisions of the dry run.
    pub(super) is_shown: bool,
    /// The policy of the limit that the dry run is compared with.
    pub(super) compared_with: Option<Policy>,
    /// Set for a candidate for another limit's rule: the handle of that limit settles it.
    pub(super) is_candidate: bool,
}

/// The instant at which a limit charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// When the request is admitted, for good.
    AtOnce,
    /// When the request is admitted, and corrected later.
    Reserve,
    /// After the response. On a dry run, as `Reserve`.
    LookFirst,
}

/// The role of an ask: the store charges it, looks at it, or charges it without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Charged, together with the others of this role or not at all.
    Acquire,
    /// Looked at, and charged later.
    Look,
    /// Charged by itself, without effect on the request.
    DryRun,
}

impl<Rule> LimitSettings<Rule> {
    /// Returns `true` if this is the limit's policy. The names of a layer's limits differ.
    pub(super) fn has(&self, policy: &Policy) -> bool {
        self.policy.digest() == policy.digest()
    }

    /// Returns how an ask about this key is decided.
    pub(super) fn role(&self, key: &Key) -> Role {
        let dry_run = self.dry_run.as_ref();
        if dry_run.is_some_and(|dry_run| dry_run.is_dry(key)) {
            Role::DryRun
        } else if self.when == When::LookFirst {
            Role::Look
        } else {
            Role::Acquire
        }
    }

    /// Returns `true` if some asks are not decided together with those of other limits: those of a
    /// dry run, and looks.
    pub(super) fn may_be_separate(&self) -> bool {
        self.dry_run.is_some() || self.when == When::LookFirst
    }

    /// Returns `true` if the layer settles the charges.
    pub(super) fn settles(&self) -> bool {
        self.when != When::AtOnce
    }

    /// Returns `true` if calls may wait for their turn. The rule of a request may be any.
    fn may_wait(&self) -> bool {
        let by_own = || self.rule.fixed().is_none_or(self.waits);
        cfg!(feature = "tokio") && (!self.is_fixed || by_own())
    }

    /// Returns the policy of the limit that this one is compared with, if it is on a dry run.
    pub(super) fn compared(&self) -> Option<&Policy> {
        let live = self.compared_with.as_ref();
        live.filter(|_| self.dry_run.is_some())
    }
}

/// Settings of a service.
// Public because a bound of the service names it.
#[doc(hidden)]
pub struct Config<L, S, R> {
    // Before the store, see `Registration`.
    pub(super) same_state: SameState,
    pub(super) limits: L,
    pub(super) store: S,
    _watches: Vec<Watch>,
    pub(super) respond: R,
    pub(super) observer: Option<BoxObserver>,
    pub(super) counts: Arc<Counts>,
    /// Set if some asks are not decided together with the others: those of dry runs, and looks.
    pub(super) is_separate: bool,
    /// Set if the layer settles some charges.
    pub(super) settles: bool,
    /// Set if neither is, and there is no observer: the short path.
    pub(super) is_plain: bool,
    /// The lines in which calls wait for their turn; `None` if none waits.
    pub(super) lines: Option<Arc<Lines>>,
}

/// The observers of a layer.
pub(crate) type BoxObserver = Arc<dyn Observer + Send + Sync>;

/// Counts of a layer, over all services that it made.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Delayed requests that were dropped before their turn.
    pub(super) cancelled: Counter,
    /// Requests that were refused, or decided twice, because the server is set up wrongly.
    pub(super) misconfigured: Counter,
}

impl_debug!(Config<L, S, R>);

impl<L: Limits, S: Backend, R> Config<L, S, R> {
    pub(super) fn new(layer: RateLimitLayer<L, S, R>) -> Self {
        let RateLimitLayer {
            registration,
            limits,
            store,
            watches,
            respond,
            observer,
            counts,
        } = layer;
        let mut list = Vec::new();
        limits.list(&mut list);
        let is_separate = list.iter().any(|limit| limit.may_be_separate());
        let settles = list.iter().any(|limit| limit.settles());
        let may_wait = list.iter().any(|limit| limit.may_wait());
        let lines = store.lines().filter(|_| may_wait).cloned();
        let is_plain = !is_separate && !settles && observer.is_none();
        Self {
            same_state: SameState::new(&store, registration),
            is_plain,
            lines,
            limits,
            store,
            _watches: watches,
            respond,
            observer,
            counts,
            is_separate,
            settles,
        }
    }
}

impl<L: Limits<Rule: Algorithm>, S, R> Config<L, S, R> {
    /// Returns the role of an ask.
    pub(super) fn role(&self, ask: &Ask<'_, L::Rule>) -> Role {
        let limit = self.limits.find(ask.policy());
        limit.map_or(Role::Acquire, |limit| limit.role(ask.key()))
    }

    /// Returns the outcome of decisions, one for each ask, without those of dry runs that are not
    /// shown, and without the charges that this layer settles.
    #[inline]
    pub(super) fn outcome(&self, asks: &[Ask<'_, L::Rule>], decisions: &Decisions) -> Outcome {
        let asked = asks.iter().map(|ask| {
            let (policy, key) = (ask.policy(), ask.key());
            (policy, key, self.same_state.hash(policy, key, ask.rule()))
        });
        if !self.is_separate && !self.settles {
            return Outcome::of(asked, decisions);
        }
        let mut outcome = Outcome::new();
        for ((policy, key, state), decision) in asked.zip(decisions.as_slice()) {
            let dry_run = self.dry_run_of(policy, key, decision);
            if dry_run.is_some_and(|(limit, _)| !limit.is_shown) {
                outcome.hide(state);
                continue;
            }
            let settles =
                self.settles && self.limits.find(policy).is_some_and(LimitSettings::settles);
            let decision = match settles {
                true => decision.without_charge(),
                false => decision.without_held_charge(),
            };
            outcome.push_entry(policy.for_key(key), decision, state);
        }
        outcome
    }

    /// Returns the outcome of looks, one for each ask.
    pub(super) fn outcome_of_looks(&self, asks: &[Ask<'_, L::Rule>], looks: &Decisions) -> Outcome {
        if !self.is_separate {
            return self.outcome(asks, looks);
        }
        let both = asks.iter().zip(looks.as_slice());
        let decisions = both.map(|(ask, look)| match self.role(ask) {
            Role::DryRun => look.as_dry_run(),
            Role::Acquire | Role::Look => *look,
        });
        self.outcome(asks, &decisions.collect())
    }

    /// Returns the limit on a dry run that a decision belongs to; `None` if the decision has
    /// effect.
    #[inline]
    fn dry_run_of(
        &self,
        policy: &Policy,
        key: &Key,
        decision: &Decision,
    ) -> Option<(&LimitSettings<L::Rule>, &DryRun)> {
        // Only if the store could not decide, the decision does not show it. To select a key takes
        // a hash.
        let may_be_dry = decision.is_dry_run() || decision.is_undecided();
        let limit = may_be_dry.then(|| self.limits.find(policy))??;
        let dry_run = limit.dry_run.as_ref()?;
        (decision.is_dry_run() || dry_run.is_dry(key)).then_some((limit, dry_run))
    }

    /// Counts the decisions of dry runs.
    #[inline(always)]
    fn count_dry_runs(&self, asks: &[Ask<'_, L::Rule>], decisions: &Decisions) {
        let decided = asks.iter().zip(decisions.as_slice());
        for (ask, decision) in decided.clone() {
            if let Some((limit, dry_run)) = self.dry_run_of(ask.policy(), ask.key(), decision) {
                let live = limit.compared().and_then(|live| {
                    let mut others = decided.clone();
                    others.find(|(ask, _)| ask.policy().name_digest() == live.name_digest())
                });
                dry_run.count(ask.key(), decision, live.map(|(_, decision)| decision));
            }
        }
    }

    /// Reports the decisions of a request, one for each ask.
    pub(super) fn observe(&self, asks: &[Ask<'_, L::Rule>], decisions: &Decisions) {
        if self.is_separate {
            self.count_dry_runs(asks, decisions);
        }
        let Some(observer) = &self.observer else {
            return;
        };
        let all_admit = decisions.is_admitted();
        for (ask, decision) in asks.iter().zip(decisions.as_slice()) {
            let (policy, key) = (ask.policy(), ask.key());
            if self.is_separate && self.dry_run_of(policy, key, decision).is_some() {
                let decision = decision.if_enforced();
                observer.dry_run(&Event::new(policy, key, &decision));
                continue;
            }
            let event = Event::new(policy, key, decision);
            match decision.verdict() {
                Verdict::Refuse => observer.refused(&event),
                Verdict::Undecided { .. } => observer.undecided(&event),
                Verdict::DryRun { .. } => {}
                // Nothing was spent if another limit refuses.
                _ if !all_admit => {}
                Verdict::Allow => observer.admitted(&event),
                Verdict::Delay(wait) => observer.delayed(&event, wait),
            }
        }
    }

    /// Hands the outcome to an admitted request if the responder wants it; returns the annotation
    /// for its response.
    #[inline]
    pub(super) fn admit<Req, Res, Err>(
        &self,
        req: &mut Req,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
    ) -> Option<R::Annotation>
    where
        R: Respond<Req, Res, Err>,
    {
        let wanted = self.respond.wants_outcome();
        wanted.then(|| {
            self.note_outer(req, asks);
            self.respond.admit(req, self.outcome(asks, decisions))
        })
    }

    /// Counts a request that an outer layer has decided by one of these limits already, and returns
    /// `true` for it.
    #[inline(always)]
    pub(super) fn note_outer<Req, Res, Err>(&self, req: &Req, asks: &[Ask<'_, L::Rule>]) -> bool
    where
        R: Respond<Req, Res, Err>,
    {
        let Some(outer) = self.respond.outer_outcome(req) else {
            return false;
        };
        let is_noted = self.same_state.is_decided_by(outer, asks);
        if is_noted {
            self.counts.misconfigured.add(1);
        }
        is_noted
    }

    /// Answers a request that the store refused.
    #[inline]
    pub(super) fn refuse_decided<Req, Res, Err>(
        &self,
        req: Req,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
    ) -> Result<Res, Err>
    where
        S: Store<L::Rule>,
        R: Respond<Req, Res, Err>,
    {
        if self.is_separate && self.settles {
            // No handler and no response will settle the charges of dry runs. What a call in flight
            // holds is given back by its permit alone.
            self.settle_back(asks, decisions, true, |ask, decision| {
                let limit = || self.limits.find(ask.policy());
                decision.is_dry_run()
                    && !decision.is_in_flight()
                    && limit().is_some_and(LimitSettings::settles)
            });
        }
        let refusal = Refusal::decided(self.outcome(asks, decisions), decisions);
        if self.respond.wants_outcome() && self.note_outer(&req, asks) {
            return self.respond.refuse(req, refusal);
        }
        self.refuse(req, refusal)
    }

    /// Gives back the charges of those decisions that are `selected`, and reports it if they
    /// `were_reported`.
    #[inline(never)]
    pub(super) fn settle_back(
        &self,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
        were_reported: bool,
        selected: impl Fn(&Ask<'_, L::Rule>, &Decision) -> bool,
    ) where
        S: Store<L::Rule>,
    {
        let mut settlements = Vec::new();
        for (ask, decision) in asks.iter().zip(decisions.as_slice()) {
            if selected(ask, decision)
                && let Some(charge) = decision.charge()
            {
                if were_reported {
                    self.observe_settled(ask.policy(), ask.key(), charge.cost, 0);
                }
                settlements.push(ask.settlement(charge, 0));
            }
        }
        if !settlements.is_empty() {
            // Remote stores settle in the background: a caller that is dropped cannot await it.
            drop(self.store.settle(settlements));
        }
    }
}

impl<L: Limits<Rule: Clone>, S, R> Config<L, S, R> {
    /// Returns the current rule of the limit with this policy, if it alone decides and may change.
    pub(super) fn current_rule(&self, policy: &Policy) -> Option<L::Rule> {
        let limit = self.limits.find(policy)?;
        let is_live = limit.is_fixed && limit.rule.fixed().is_none();
        is_live.then(|| limit.rule.get())
    }
}

impl<L, S, R> Config<L, S, R> {
    /// Reports that a charge was corrected.
    pub(super) fn observe_settled(&self, policy: &Policy, key: &Key, charged: u64, actual: u64) {
        if let Some(observer) = &self.observer {
            observer.settled(policy, key, charged, actual);
        }
    }

    /// Answers a refused request, and counts it if the refusal is the server's fault.
    #[inline]
    pub(super) fn refuse<Req, Res, Err>(&self, req: Req, refusal: Refusal) -> Result<Res, Err>
    where
        R: Respond<Req, Res, Err>,
    {
        if let Some(help) = refusal.help() {
            self.counts.misconfigured.add(1);
            // A missing key has been written where its limit is known.
            if let Some(policy) = refusal.unsupported_policy() {
                help.write_if_unheard(policy);
            }
        }
        self.respond.refuse(req, refusal)
    }
}

impl<L, S, R> SettleCharges for Config<L, S, R>
where
    L: Limits + Send + Sync,
    S: Store<L::Rule, Error: NeverFails> + Send + Sync,
    R: Send + Sync,
{
    fn settle(&self, limit: &ChargedLimit, charge: Charge, actual: u64) -> Settling {
        self.observe_settled(&limit.policy, &limit.key, charge.cost, actual);
        self.correct(limit, charge, actual)
    }
}

/// Does something when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

impl<L, S, R> Release for Config<L, S, R>
where
    L: Limits + Send + Sync,
    S: Store<L::Rule, Error: NeverFails> + Send + Sync,
    R: Send + Sync,
{
    fn release(&self, limit: &ChargedLimit, charge: Charge) {
        let Some(observer) = &self.observer else {
            return self.give_back(limit, charge);
        };
        let units = charge.cost;
        // Before they are free for others, so that the observer never counts more than the limit;
        // and they are given back if it panics.
        let _free = OnDrop(Some(|| self.give_back(limit, charge)));
        observer.released(&limit.policy, &limit.key, units);
    }

    fn give_back(&self, limit: &ChargedLimit, charge: Charge) {
        // Remote stores settle in the background.
        drop(self.correct(limit, charge, 0));
    }

    fn renew(&self, limit: &ChargedLimit, charge: Charge) -> BoxFuture<Renewed> {
        let units = charge.cost;
        match limit.settlement(|| self.own_rule(limit), charge, units) {
            Some(renewal) => self.store.renew(renewal),
            None => Box::pin(ready(Renewed::NotMade)),
        }
    }

    fn outlasted(&self, limit: &ChargedLimit, units: u64) {
        if let Some(observer) = &self.observer {
            observer.outlasted(&limit.policy, &limit.key, units);
            observer.released(&limit.policy, &limit.key, units);
        }
    }
}

impl<L, S, R> Config<L, S, R>
where
    L: Limits + Send + Sync,
    S: Store<L::Rule, Error: NeverFails> + Send + Sync,
{
    /// Returns the own rule of a limit, unless it may change.
    fn own_rule(&self, limit: &ChargedLimit) -> Option<&L::Rule> {
        self.limits.find(&limit.policy)?.rule.fixed()
    }

    /// Corrects a charge of this layer to `actual` units.
    fn correct(&self, limit: &ChargedLimit, charge: Charge, actual: u64) -> Settling {
        let Some(settlement) = limit.settlement(|| self.own_rule(limit), charge, actual) else {
            return Settling::done();
        };
        match self.store.settle_one(settlement) {
            Check::Ready(Ok(())) => Settling::done(),
            Check::Ready(Err(error)) => error.never(),
            Check::Pending(done) => Settling::pending(Box::pin(async {
                done.await.unwrap_or_else(NeverFails::never);
            })),
        }
    }
}

/// The next step of a request once all its limits have decided.
pub(super) enum Disposition {
    /// Call the inner service.
    Pass,
    /// Answer without the inner service.
    Refuse,
    /// Call the inner service after a delay.
    Delay,
}

impl Disposition {
    /// Refuses if one decision refuses, else delays if one delays.
    #[inline]
    pub(super) fn of(decisions: &Decisions) -> Self {
        if let Some(decision) = decisions.only() {
            return Self::after(decision);
        }
        let mut disposition = Self::Pass;
        for decision in decisions.as_slice() {
            match Self::after(decision) {
                Self::Pass => {}
                Self::Delay => disposition = Self::Delay,
                Self::Refuse => return Self::Refuse,
            }
        }
        disposition
    }

    #[inline]
    fn after(decision: &Decision) -> Self {
        if !decision.is_admitted() {
            Self::Refuse
        } else if decision.delay().is_some() {
            Self::Delay
        } else {
            Self::Pass
        }
    }
}
