//! A limit: its name, rule, key and cost.

use std::fmt;

use super::per_request::FixedRule;
use crate::{decision::Cost, key::Global, policy::Policy};

/// A limit: its name, its rule, the key that it counts by, and the cost of a request.
///
/// A layer has one to begin with; [`also`](crate::RateLimitLayer::also) adds more, each with a name of its own. A request passes if
/// all limits of its layer admit it. It is charged to all of them, or to none.
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
pub struct Limit<Rule, P = FixedRule, K = Global, C = Cost> {
    pub(super) policy: Policy,
    pub(super) rule: Rule,
    pub(super) per_request: P,
    pub(super) key: K,
    pub(super) cost: C,
}

impl<Rule> Limit<Rule> {
    pub(super) fn of_rule(rule: Rule) -> Self {
        Self {
            policy: Policy::default(),
            rule,
            per_request: FixedRule,
            key: Global,
            cost: Cost::ONE,
        }
    }
}

impl<Rule, P, K, C> Limit<Rule, P, K, C> {
    /// Changes the limit's name, which is `default` unless set.
    ///
    /// # Panics
    ///
    /// When the name is no [`Policy`]: empty, too long, or not printable ASCII. Use [`Policy::try_new`] and
    /// [`policy`](Self::policy) for names from data.
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
    pub fn key<L>(self, key: L) -> Limit<Rule, P, L, C> {
        Limit {
            policy: self.policy,
            rule: self.rule,
            per_request: self.per_request,
            key,
            cost: self.cost,
        }
    }

    /// Selects the rule for each request: a closure `Fn(&Req) -> Option<Rule>`, or any [`SelectRule`](crate::SelectRule). `None` is
    /// the limit's own rule.
    ///
    /// A rule that delays a request needs tokio to hold it. Without the feature `tokio`, or outside of a runtime of tokio, the
    /// request is refused instead, its charge is given back, and `Retry-After` is the delay.
    ///
    /// A selected rule that does not [fit](crate::store::Store::fits) the layer's store is noticed only when it is used. Its request
    /// is refused as the server's fault (500; gRPC: `INTERNAL`), [counted](crate::RateLimitLayer::misconfigured), and logged once for
    /// each policy and cause.
    #[doc(alias = "plan")]
    #[doc(alias = "tier")]
    pub fn rule<Q>(self, per_request: Q) -> Limit<Rule, Q, K, C> {
        Limit {
            policy: self.policy,
            rule: self.rule,
            per_request,
            key: self.key,
            cost: self.cost,
        }
    }

    /// Changes the cost of a request, 1 unless set: a [`Cost`], a closure `Fn(&Req) -> Cost`, or any
    /// [`RequestCost`](crate::RequestCost).
    #[doc(alias = "weight")]
    pub fn cost<D>(self, cost: D) -> Limit<Rule, P, K, D> {
        Limit {
            policy: self.policy,
            rule: self.rule,
            per_request: self.per_request,
            key: self.key,
            cost,
        }
    }
}

impl<Rule: fmt::Debug, P, K, C> fmt::Debug for Limit<Rule, P, K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("policy", &self.policy)
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}
