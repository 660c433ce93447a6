//! A limit: its name, rule, key and cost.

use std::fmt;

use super::per_request::FixedRule;
use crate::{
    charging::{AddCondition, ChargeAtOnce, ForCandidate, HandOver, LookFirst},
    decision::Cost,
    dry_run::{DryRun, Enforced, Enforcement},
    error::Error,
    key::Global,
    policy::Policy,
};

/// A limit: its name, its rule, the key that it counts by, and the cost of a request.
///
/// A layer has one to begin with; [`also`](crate::RateLimitLayer::also) adds more, each with a name
/// of its own. A request passes if all limits of its layer admit it. It is charged to all of them,
/// or to none.
///
/// ```
/// use http::Request;
/// use tollgate::{Cost, TokenBucket, key::{Header, PeerIp}, Limit, RateLimitLayer};
///
/// let uploads = Limit::new(TokenBucket::per_hour(1_000_000).burst(5_000_000))
///     .named("upload-kilobytes")
///     .key(Header::new("x-api-key"))
///     .cost(|request: &Request<String>| {
///         Cost::new(request.body().len() as u64 / 1024).unwrap_or(Cost::ONE)
///     });
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).also(uploads);
/// # let _ = layer;
/// ```
#[derive(Clone)]
#[must_use = "a limit does nothing until a layer has it"]
pub struct Limit<Rule, P = FixedRule, K = Global, C = Cost, E = Enforced, B = ChargeAtOnce> {
    pub(super) policy: Policy,
    pub(super) rule: Rule,
    pub(super) per_request: P,
    pub(super) key: K,
    pub(super) cost: C,
    pub(super) enforcement: E,
    pub(super) charging: B,
}

impl<Rule> Limit<Rule> {
    pub(super) fn of_rule(rule: Rule) -> Self {
        Self {
            policy: Policy::default(),
            rule,
            per_request: FixedRule,
            key: Global,
            cost: Cost::ONE,
            enforcement: Enforced,
            charging: ChargeAtOnce,
        }
    }
}

impl<Rule, P, K, C, E, B> Limit<Rule, P, K, C, E, B> {
    /// Changes the limit's name, which is `default` unless set.
    ///
    /// # Panics
    ///
    /// When the name is no [`Policy`]: empty, too long, or not printable ASCII. Use
    /// [`Policy::try_new`] and [`policy`](Self::policy) for names from data.
    #[track_caller]
    pub fn named(self, name: &str) -> Self {
        self.policy(Policy::new(name))
    }

    /// Changes the limit's policy: its name, and what clients read about it.
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Counts by `key`: each key has the whole quota. Unless set, all requests share one.
    #[doc(alias("per ip", "identifier"))]
    pub fn key<L>(self, key: L) -> Limit<Rule, P, L, C, E, B> {
        self.with_parts(|(per_request, _, cost, enforcement, charging)| {
            (per_request, key, cost, enforcement, charging)
        })
    }

    /// Selects the rule for each request: a closure `Fn(&Req) -> Option<Rule>`, or any
    /// [`SelectRule`](crate::SelectRule). `None` is the limit's own rule.
    ///
    /// A rule that delays a request needs tokio to hold it. Without the feature `tokio`, or outside
    /// of a runtime of tokio, the request is refused instead, its charge is given back, and
    /// `Retry-After` is the delay.
    ///
    /// A selected rule that does not [fit](crate::store::Store::fits) the layer's store is noticed
    /// only when it is used. Its request is refused as the server's fault (500; gRPC: `INTERNAL`),
    /// [counted](crate::RateLimitLayer::misconfigured), and logged once for each policy and cause.
    #[doc(alias = "plan")]
    #[doc(alias = "tier")]
    pub fn rule<Q>(self, per_request: Q) -> Limit<Rule, Q, K, C, E, B> {
        self.with_parts(|(_, key, cost, enforcement, charging)| {
            (per_request, key, cost, enforcement, charging)
        })
    }

    /// Changes the cost of a request, 1 unless set: a [`Cost`], a closure `Fn(&Req) -> Cost`, or
    /// any [`RequestCost`](crate::RequestCost).
    #[doc(alias = "weight")]
    pub fn cost<D>(self, cost: D) -> Limit<Rule, P, K, D, E, B> {
        self.with_parts(|(per_request, key, _, enforcement, charging)| {
            (per_request, key, cost, enforcement, charging)
        })
    }

    /// Changes the parts that may get another type.
    fn with_parts<Q, L, D, F, G>(
        self,
        change: impl FnOnce((P, K, C, E, B)) -> (Q, L, D, F, G),
    ) -> Limit<Rule, Q, L, D, F, G> {
        let parts = (
            self.per_request,
            self.key,
            self.cost,
            self.enforcement,
            self.charging,
        );
        let (per_request, key, cost, enforcement, charging) = change(parts);
        Limit {
            policy: self.policy,
            rule: self.rule,
            per_request,
            key,
            cost,
            enforcement,
            charging,
        }
    }

    fn with_charging<D>(self, change: impl FnOnce(B) -> D) -> Limit<Rule, P, K, C, E, D> {
        self.with_parts(|(per_request, key, cost, enforcement, charging)| {
            (per_request, key, cost, enforcement, change(charging))
        })
    }

    fn with_enforcement<D>(self, change: impl FnOnce(E) -> D) -> Limit<Rule, P, K, C, D, B> {
        self.with_parts(|(per_request, key, cost, enforcement, charging)| {
            (per_request, key, cost, change(enforcement), charging)
        })
    }

    /// Puts a [`ChargeHandle`](crate::ChargeHandle) into the extensions of each request that is
    /// charged, so that its handler can correct the charge to the actual cost.
    ///
    /// The [cost](Self::cost) is reserved: it counts against the limit until it is settled. A
    /// handle that is dropped leaves it charged. If the store answers at once, the rate limit
    /// fields of the response have the numbers after the settlement.
    pub fn charge_handle<Handed>(self) -> Limit<Rule, P, K, C, E, Handed>
    where
        B: HandOver<Handed>,
    {
        self.with_charging(B::handed_over)
    }

    /// Charges only requests whose response fulfils a condition: a closure `Fn(&Response) -> bool`,
    /// or any [`ChargeIf`](crate::ChargeIf).
    ///
    /// **Reserve, then settle.** The cost is charged when the request is admitted, and given back
    /// if the response does not fulfil the condition. So requests in progress count against the
    /// limit: of ten concurrent logins under "3 failures", seven are refused although no login
    /// failed. Use [`charge_after`](Self::charge_after) where that is wrong.
    ///
    /// A request without a response stays charged: its handler panicked or returned an error, or
    /// its client went away.
    pub fn charge_if<F, Conditional>(self, condition: F) -> Limit<Rule, P, K, C, E, Conditional>
    where
        B: AddCondition<F, Conditional>,
    {
        self.with_charging(|charging| charging.with_condition(condition))
    }
}

impl<Rule, P, K, C, E: Enforcement, B> Limit<Rule, P, K, C, E, B> {
    /// Puts the limit on a dry run: it decides, counts and reports, but refuses and delays nothing.
    ///
    /// Its decisions are in the [report](crate::RateLimitLayer::dry_run_report) and go to the
    /// layer's [observers](crate::observe::Observer::dry_run). Response headers and outcomes do not
    /// contain them, unless they are [shown](Self::dry_run_shown). A request without a key proceeds
    /// as if it were exempt, and is counted.
    ///
    /// The limit decides as if it were alone: it charges its own state, for requests that another
    /// limit refuses, too. Its keys take room in the layer's store, as those of any limit do.
    ///
    /// The layer asks the store for each limit on a dry run by itself, at the same time as for the
    /// others, and waits for its answer. If the store fails, or does not support the rule, the
    /// request proceeds and is counted as undecided. A request that is dropped before all answers
    /// are there is not counted.
    ///
    /// A [handle](Self::charge_handle) exists only for a request that the dry run would have
    /// admitted, and is one more handle beside those of other limits, so handlers must select
    /// theirs by [name](crate::ChargeHandle::of). With [`charge_after`](Self::charge_after) the
    /// limit reserves and settles as [`charge_if`](Self::charge_if) does.
    #[doc(alias = "shadow")]
    #[doc(alias = "log only")]
    pub fn dry_run(self) -> Limit<Rule, P, K, C, DryRun, B> {
        self.with_enforcement(Enforcement::into_dry_run)
    }

    /// Enforces the limit for a percentage of its keys, and is a [dry run](Self::dry_run) for the
    /// others.
    ///
    /// The [digest](crate::key::Key::digest) of a key selects it, so every node enforces the limit
    /// for the same keys, a higher percentage includes the keys of a lower one, and limits with
    /// equal percentages and keys are enforced for the same clients. 0 is a dry run. 100 enforces
    /// the limit, and refuses requests without a key, which proceed at any lower percentage.
    ///
    /// # Panics
    ///
    /// When `percent` is above 100; see [`try_enforce_for`](Self::try_enforce_for).
    #[doc(alias = "roll-out")]
    #[doc(alias = "canary")]
    #[track_caller]
    pub fn enforce_for(self, percent: u8) -> Limit<Rule, P, K, C, DryRun, B> {
        self.try_enforce_for(percent)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Enforces the limit for a share of its keys, as [`enforce_for`](Self::enforce_for) does, with
    /// a percentage from configuration.
    ///
    /// # Errors
    ///
    /// When `percent` is above 100.
    pub fn try_enforce_for(self, percent: u8) -> Result<Limit<Rule, P, K, C, DryRun, B>, Error> {
        let mut limit = self.dry_run();
        limit.enforcement = limit.enforcement.enforce_for(percent)?;
        Ok(limit)
    }
}

impl<Rule, P, K, C, E, B> Limit<Rule, P, K, C, E, B> {
    /// Returns a candidate for the rule, on a dry run beside this limit.
    pub(super) fn candidate(
        &self,
        policy: Policy,
        rule: Rule,
    ) -> Limit<Rule, FixedRule, K, C, DryRun, B::Candidate>
    where
        K: Clone,
        C: Clone,
        B: ForCandidate,
    {
        Limit {
            policy,
            rule,
            per_request: FixedRule,
            key: self.key.clone(),
            cost: self.cost.clone(),
            enforcement: DryRun::default().beside(self.policy.clone()),
            charging: self.charging.for_candidate(),
        }
    }
}

impl<Rule, P, K, C, E> Limit<Rule, P, K, C, E> {
    /// Charges only requests whose response fulfils a condition, after that response: a closure
    /// `Fn(&Response) -> bool`, or any [`ChargeIf`](crate::ChargeIf).
    ///
    /// **Look, then charge.** A request is refused if the limit would refuse it now, and otherwise
    /// proceeds without a charge. Requests in progress do not count: ten concurrent correct logins
    /// under "3 failures" all pass. If the response fulfils the condition, the limit is charged; if
    /// it refuses by then, because concurrent requests have exhausted it, the response is dropped
    /// and the client gets the refusal instead. So no client gets more such responses than the
    /// limit admits, however many requests it sends at once. It may still have that many *handled*
    /// at once; bound them by a concurrency limit if that matters.
    ///
    /// A request without a response is charged when it ends: its handler panicked or returned an
    /// error, or its client went away. A store on a server makes that charge in the background.
    ///
    /// If a request costs more than 1, the wait in a refusal is until the key is unused, which may
    /// be longer than necessary. Delays of the rule are not observed. With a store on a server, the
    /// store is asked once before the request and once after it, if it is charged.
    pub fn charge_after<F>(self, condition: F) -> Limit<Rule, P, K, C, E, LookFirst<F>> {
        self.with_charging(|ChargeAtOnce| LookFirst::new(condition))
    }
}

impl<Rule, P, K, C, B> Limit<Rule, P, K, C, DryRun, B> {
    /// Shows the decisions of the dry run in response headers, under the limit's name, and in the
    /// [`Outcome`](crate::Outcome).
    pub fn dry_run_shown(self) -> Self {
        self.with_enforcement(DryRun::shown)
    }

    /// Compares the decisions with those of another limit of the layer, for the
    /// [report](crate::RateLimitLayer::dry_run_report): how often would one of them refuse and the
    /// other not?
    ///
    /// The limits are compared one by one: a request that `live` admits counts as admitted by it,
    /// even if a third limit refuses the request. The layer must have the limit `live` already when
    /// it gets this one; otherwise [`also`](crate::RateLimitLayer::also) fails.
    pub fn compared_with(self, live: Policy) -> Self {
        self.with_enforcement(|dry_run| dry_run.beside(live))
    }
}

impl<Rule: fmt::Debug, P, K, C, E, B> fmt::Debug for Limit<Rule, P, K, C, E, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("policy", &self.policy)
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}
