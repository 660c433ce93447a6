//! One limit of a layer: its name, rule, key and cost.

use std::{fmt, ops::Deref};

use smallvec::SmallVec;

use crate::{
    decision::Cost,
    error::Error,
    key::{Extracted, Global, KeyExtractor, MissingKey},
    policy::Policy,
    store::{Ask, Store},
};

/// One limit: a rule, whom it limits, what a request costs, and what it is called.
///
/// A layer begins with one; [`also`](crate::RateLimitLayer::also) adds more, each with a name of
/// its own. A request passes if all its limits let it pass, and is charged to all of them or to none.
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
pub struct Limit<Rule, P = FixedRule, K = Global, C = Cost> {
    policy: Policy,
    rule: Rule,
    per_request: P,
    key: K,
    cost: C,
}

/// Each request is limited by the limit's own rule: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedRule;

impl<Rule> Limit<Rule> {
    pub(crate) fn of_rule(rule: Rule) -> Self {
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
    /// The same limit under another name.
    ///
    /// # Panics
    ///
    /// When the name is no [`Policy`]: empty, too long, or not printable ASCII. Names from
    /// data go through [`Policy::try_new`] and [`policy`](Self::policy).
    #[must_use]
    #[track_caller]
    pub fn named(self, name: &str) -> Self {
        self.policy(Policy::new(name))
    }

    /// The same limit under another policy.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The same limit, keyed by `key`.
    #[must_use]
    pub fn key<L>(self, key: L) -> Limit<Rule, P, L, C> {
        let Self {
            policy,
            rule,
            per_request,
            cost,
            ..
        } = self;
        Limit {
            policy,
            rule,
            per_request,
            key,
            cost,
        }
    }

    /// The same limit with a rule per request: a function `Fn(&Req) -> Option<Rule>`, where
    /// `None` is the limit's own rule.
    ///
    /// A rule that delays a request needs tokio to hold it. Without the feature `tokio`, or outside of a runtime of tokio, the
    /// request is refused instead, its charge is given back, and `Retry-After` is the delay.
    ///
    /// A rule that does not fit the layer's store is known only when it is used: its request is refused as the server's fault
    /// (500; gRPC: `INTERNAL`), [counted](crate::RateLimitLayer::misconfigured), and logged once for each policy and cause.
    #[must_use]
    pub fn rule<Q>(self, per_request: Q) -> Limit<Rule, Q, K, C> {
        let Self {
            policy,
            rule,
            key,
            cost,
            ..
        } = self;
        Limit {
            policy,
            rule,
            per_request,
            key,
            cost,
        }
    }

    /// The same limit with another cost: a [`Cost`], or a function `Fn(&Req) -> Cost`.
    #[must_use]
    pub fn cost<D>(self, cost: D) -> Limit<Rule, P, K, D> {
        let Self {
            policy,
            rule,
            per_request,
            key,
            ..
        } = self;
        Limit {
            policy,
            rule,
            per_request,
            key,
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

/// Chooses the rule of a request.
pub trait SelectRule<Req, Rule> {
    /// The rule, or `None` for the limit's own.
    fn select_rule(&self, req: &Req) -> Option<Rule>;
}

impl<Req, Rule> SelectRule<Req, Rule> for FixedRule {
    #[inline]
    fn select_rule(&self, _: &Req) -> Option<Rule> {
        None
    }
}

impl<Req, Rule, F: Fn(&Req) -> Option<Rule>> SelectRule<Req, Rule> for F {
    fn select_rule(&self, req: &Req) -> Option<Rule> {
        self(req)
    }
}

/// Tells what a request costs.
pub trait RequestCost<Req> {
    /// The cost.
    fn cost_of(&self, req: &Req) -> Cost;
}

impl<Req> RequestCost<Req> for Cost {
    #[inline]
    fn cost_of(&self, _: &Req) -> Cost {
        *self
    }
}

impl<Req, F: Fn(&Req) -> Cost> RequestCost<Req> for F {
    fn cost_of(&self, req: &Req) -> Cost {
        self(req)
    }
}

/// The limits of a layer: one [`Limit`], or pairs of limits, which [`also`](crate::RateLimitLayer::also) makes.
///
/// Public because [`RateLimit`](crate::RateLimit) has it as a bound, and not exported: no other type implements it.
pub trait Limits<Req> {
    /// The type of all rules.
    type Rule;

    /// What a store is asked for one request.
    // A type of its own for one limit, the common case: it needs no list.
    type Asks<'a>: Deref<Target = [Ask<'a, Self::Rule>]> + IntoIterator<Item = Ask<'a, Self::Rule>>
    where
        Self: 'a,
        Self::Rule: 'a;

    /// The place of the rules that are made for one request.
    // Beside the asks, because an ask that contained a rule would be moved with the largest possible rule.
    type Made: Default;

    /// Returns what to ask the store for `req`; nothing if the request is exempt.
    ///
    /// # Errors
    ///
    /// When a key is missing. Then nothing may be asked.
    fn asks<'a>(
        &'a self,
        req: &Req,
        made: &'a mut Self::Made,
    ) -> Result<Self::Asks<'a>, MissingKey>;
}

/// What one [`Limit`] asks: one [`Ask`], or none for an exempt request.
#[derive(Debug)]
pub struct OneAsk<'a, Rule>(Option<Ask<'a, Rule>>);

impl<'a, Rule> Deref for OneAsk<'a, Rule> {
    type Target = [Ask<'a, Rule>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.0.as_slice()
    }
}

impl<'a, Rule> IntoIterator for OneAsk<'a, Rule> {
    type Item = Ask<'a, Rule>;
    type IntoIter = std::option::IntoIter<Self::Item>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<Req, Rule, P, K, C> Limits<Req> for Limit<Rule, P, K, C>
where
    P: SelectRule<Req, Rule>,
    K: KeyExtractor<Req>,
    C: RequestCost<Req>,
{
    type Rule = Rule;
    type Asks<'a>
        = OneAsk<'a, Rule>
    where
        Self: 'a,
        Rule: 'a;
    type Made = Option<Rule>;

    #[inline]
    fn asks<'a>(
        &'a self,
        req: &Req,
        made: &'a mut Option<Rule>,
    ) -> Result<OneAsk<'a, Rule>, MissingKey> {
        let extracted = self.key.extract(req);
        #[cfg(feature = "tracing")]
        if let Err(missing) = &extracted {
            crate::log::missing_key(&self.policy, missing);
        }
        let Extracted::Key(key) = extracted? else {
            return Ok(OneAsk(None));
        };
        let cost = self.cost.cost_of(req);
        let rule = match self.per_request.select_rule(req) {
            Some(rule) => made.insert(rule),
            None => &self.rule,
        };
        Ok(OneAsk(Some(Ask::new(&self.policy, rule, key, cost))))
    }
}

impl<Req, L, M> Limits<Req> for (L, M)
where
    L: Limits<Req>,
    M: Limits<Req, Rule = L::Rule>,
{
    type Rule = L::Rule;
    type Asks<'a>
        = SmallVec<[Ask<'a, L::Rule>; 2]>
    where
        Self: 'a,
        L::Rule: 'a;
    type Made = (L::Made, M::Made);

    fn asks<'a>(
        &'a self,
        req: &Req,
        made: &'a mut Self::Made,
    ) -> Result<Self::Asks<'a>, MissingKey> {
        let first = self.0.asks(req, &mut made.0)?;
        let second = self.1.asks(req, &mut made.1)?;
        Ok(first.into_iter().chain(second).collect())
    }
}

/// The policies and rules of a layer's limits, which all have rules of the type `Rule`.
///
/// Public and not exported, as [`Limits`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no limit by a `{Rule}`, as the others of this layer are",
    label = "expected a limit by a `{Rule}`",
    note = "the limits of one layer have rules of one type: make each of them an `AnyRule`, by `AnyRule::from(rule)` or \
            `\"token-bucket 100/1m\".parse::<AnyRule>()?`"
)]
pub trait Named<Rule> {
    /// Appends the policy and the own rule of each limit.
    fn limits<'a>(&'a self, list: &mut Vec<(&'a Policy, &'a Rule)>);
}

impl<Rule, P, K, C> Named<Rule> for Limit<Rule, P, K, C> {
    fn limits<'a>(&'a self, list: &mut Vec<(&'a Policy, &'a Rule)>) {
        list.push((&self.policy, &self.rule));
    }
}

#[diagnostic::do_not_recommend]
impl<Rule, L: Named<Rule>, M: Named<Rule>> Named<Rule> for (L, M) {
    fn limits<'a>(&'a self, list: &mut Vec<(&'a Policy, &'a Rule)>) {
        self.0.limits(list);
        self.1.limits(list);
    }
}

/// Checks that the names of these limits all differ.
pub(crate) fn names_differ<Rule>(limits: &impl Named<Rule>) -> Result<(), Error> {
    let mut list = Vec::new();
    limits.limits(&mut list);
    for (n, (policy, _)) in list.iter().enumerate() {
        if list[..n]
            .iter()
            .any(|(other, _)| other.name() == policy.name())
        {
            return Err(Error::new(format!(
                "two limits of one layer are named `{policy}`: expected different names, because a store \
                 knows a limit by its name; name one of them with `.named(…)`"
            )));
        }
    }
    Ok(())
}

/// Checks that a store can run the rules of these limits.
///
/// # Errors
///
/// When the store cannot run a rule: what is wrong with the first such rule.
pub(crate) fn fit<Rule>(limits: &impl Named<Rule>, store: &impl Store<Rule>) -> Result<(), Error> {
    let mut list = Vec::new();
    limits.limits(&mut list);
    list.into_iter().try_for_each(|(policy, rule)| {
        let fits = store.fits(rule);
        fits.map_err(|error| {
            Error::new(format!(
                "the store cannot run the rule of the limit `{policy}`, where a rule was expected that fits it: {error}; or take \
                 another store"
            ))
        })
    })
}
