//! The limits of a layer: one, a pair, or a list; the asks for a request, and the checks when the
//! layer is built.

use std::ops::Deref;

use smallvec::SmallVec;

use super::{config::LimitSettings, limit::Limit, per_request::ReadRequest};
use crate::{
    algorithm::Algorithm,
    charging::{ChargeHandle, Settle},
    decision::Cost,
    dry_run::DryRun,
    error::Error,
    key::{Key, MissingKey},
    live_rule::{OwnRule, RequestRule, Watch},
    policy::Policy,
    store::{Ask, Store},
};

/// The limits of a layer: one [`Limit`], the pairs that [`also`](crate::RateLimitLayer::also)
/// makes, or a [list](crate::RateLimitLayer::list).
///
/// Sealed. Use it as a bound in functions that take any layer:
///
/// ```
/// use tollgate::{By, Limit, Limits, RateLimitLayer, TokenBucket, store::Local};
///
/// /// Adds a limit for all requests together.
/// fn capped<L, R>(
///     layer: RateLimitLayer<L, Local<TokenBucket>, R>,
/// ) -> RateLimitLayer<(L, Limit<TokenBucket>), Local<TokenBucket>, R>
/// where
///     L: Limits<Rule = TokenBucket>,
/// {
///     layer.also(Limit::new(TokenBucket::per_second(1_000)).named("total"))
/// }
///
/// let layer = capped(RateLimitLayer::new(TokenBucket::per_second(10)));
/// # let _ = layer;
/// ```
///
/// A function that adds the layer to a service can name the layer itself in its bounds:
///
/// ```
/// use tollgate::RateLimitLayer;
/// use tower::{Layer, Service};
///
/// fn limited<Svc, Req, L, S, R>(
///     inner: Svc,
///     layer: &RateLimitLayer<L, S, R>,
/// ) -> impl Service<Req>
/// where
///     RateLimitLayer<L, S, R>: Layer<Svc, Service: Service<Req>>,
/// {
///     layer.layer(inner)
/// }
/// ```
pub trait Limits {
    /// The type of all rules.
    type Rule: 'static;

    /// The parts that read responses.
    type Settle;

    /// Returns the settings of the limit with this policy.
    #[doc(hidden)]
    fn find(&self, policy: &Policy) -> Option<&LimitSettings<Self::Rule>>;

    /// Appends the settings of each limit.
    #[doc(hidden)]
    fn list<'a>(&'a self, list: &mut Vec<&'a LimitSettings<Self::Rule>>);
}

impl<Rule: 'static, B, T> Limits for Limit<Rule, B, T> {
    type Rule = Rule;
    type Settle = T;

    #[inline]
    fn find(&self, policy: &Policy) -> Option<&LimitSettings<Rule>> {
        self.settings.has(policy).then_some(&self.settings)
    }

    fn list<'a>(&'a self, list: &mut Vec<&'a LimitSettings<Rule>>) {
        list.push(&self.settings);
    }
}

impl<L: Limits, M: Limits<Rule = L::Rule>> Limits for (L, M) {
    type Rule = L::Rule;
    type Settle = (L::Settle, M::Settle);

    fn find(&self, policy: &Policy) -> Option<&LimitSettings<L::Rule>> {
        let first = self.0.find(policy);
        first.or_else(|| self.1.find(policy))
    }

    fn list<'a>(&'a self, list: &mut Vec<&'a LimitSettings<L::Rule>>) {
        self.0.list(list);
        self.1.list(list);
    }
}

impl<L: Limits> Limits for Vec<L> {
    type Rule = L::Rule;
    type Settle = L::Settle;

    fn find(&self, policy: &Policy) -> Option<&LimitSettings<L::Rule>> {
        self.iter().find_map(|limit| limit.find(policy))
    }

    fn list<'a>(&'a self, list: &mut Vec<&'a LimitSettings<L::Rule>>) {
        self.iter().for_each(|limit| limit.list(list));
    }
}

/// The effect of requests and responses on the charges of limits.
#[doc(hidden)]
pub trait SettleEach<Req, Res>: Limits {
    /// Returns `true` if a request with this response is charged by the limit with this policy;
    /// `None` if no limit has it.
    fn is_charged(&self, policy: &Policy, res: &Res) -> Option<bool>;

    /// Puts the handle of a charge into its request if the handler may settle it. Returns the
    /// handle if the response may settle it, too.
    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle>;
}

impl<Req, Res, Rule: 'static, B, T: Settle<Req, Res>> SettleEach<Req, Res> for Limit<Rule, B, T> {
    fn is_charged(&self, policy: &Policy, res: &Res) -> Option<bool> {
        let found = self.find(policy);
        found.map(|_| self.settle.is_charged(res))
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        if self.settings.is_candidate {
            return Some(handle);
        }
        self.settle.hand_over(req, handle)
    }
}

impl<Req, Res, L, M> SettleEach<Req, Res> for (L, M)
where
    L: SettleEach<Req, Res>,
    M: SettleEach<Req, Res> + Limits<Rule = L::Rule>,
{
    fn is_charged(&self, policy: &Policy, res: &Res) -> Option<bool> {
        let first = self.0.is_charged(policy, res);
        first.or_else(|| self.1.is_charged(policy, res))
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        if self.0.find(handle.policy()).is_some() {
            self.0.hand_over(req, handle)
        } else {
            self.1.hand_over(req, handle)
        }
    }
}

impl<Req, Res, L: SettleEach<Req, Res>> SettleEach<Req, Res> for Vec<L> {
    fn is_charged(&self, policy: &Policy, res: &Res) -> Option<bool> {
        let mut limits = self.iter();
        limits.find_map(|limit| limit.is_charged(policy, res))
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        let mut limits = self.iter();
        let limit = limits.find(|limit| limit.find(handle.policy()).is_some())?;
        limit.hand_over(req, handle)
    }
}

/// The asks of limits for requests of the type `Req`.
#[doc(hidden)]
pub trait AskEach<Req>: Limits<Rule: Algorithm> {
    /// The asks for one request; none by default.
    // A type of its own for one limit, the common case: it needs no list.
    type Asks<'a>: Default
        + Deref<Target = [Ask<'a, Self::Rule>]>
        + IntoIterator<Item = Ask<'a, Self::Rule>>
    where
        Self: 'a,
        Self::Rule: 'a;

    /// Storage for the rules of one request that are not the limits' for good.
    // Beside the asks, because an ask that contained a rule would be moved with the largest
    // possible rule.
    type Rules: Default;

    /// Adds the ask for `req` to an empty list if its key is [at
    /// hand](crate::key::KeyExtractor::key_at_hand). Otherwise returns `false`, and adds none.
    #[inline(always)]
    fn add_asks_at_hand<'a>(
        &'a self,
        req: &Req,
        rules: &'a mut Self::Rules,
        asks: &mut Self::Asks<'a>,
    ) -> bool {
        let _ = (req, rules, asks);
        false
    }

    /// Adds the asks for `req` to an empty list; none if the request is exempt.
    ///
    /// # Errors
    ///
    /// When a key is missing. Then the store must not be asked.
    // In place: the words of a returned ask would be copied right after they were written, which is
    // slow.
    fn add_asks<'a>(
        &'a self,
        req: &Req,
        rules: &'a mut Self::Rules,
        asks: &mut Self::Asks<'a>,
    ) -> Result<(), MissingKey>;
}

/// The asks of one [`Limit`]: one, or none for an exempt request.
#[doc(hidden)]
#[derive(Debug)]
pub struct OneAsk<'a, Rule>(Option<Ask<'a, Rule>>);

impl<Rule> Default for OneAsk<'_, Rule> {
    #[inline]
    fn default() -> Self {
        Self(None)
    }
}

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

impl<Req, Rule, B, T> AskEach<Req> for Limit<Rule, B, T>
where
    Rule: Algorithm,
    B: ReadRequest<Req, Rule>,
{
    type Asks<'a>
        = OneAsk<'a, Rule>
    where
        Self: 'a,
        Rule: 'a;
    type Rules = RequestRule<Rule>;

    #[inline(always)]
    fn add_asks_at_hand<'a>(
        &'a self,
        req: &Req,
        rules: &'a mut RequestRule<Rule>,
        asks: &mut OneAsk<'a, Rule>,
    ) -> bool {
        let read = self.by.read_at_hand(req, &mut rules.of_request);
        asks.0 = read.map(|(key, cost)| self.settings.ask(rules, key, cost));
        asks.0.is_some()
    }

    #[inline]
    fn add_asks<'a>(
        &'a self,
        req: &Req,
        rules: &'a mut RequestRule<Rule>,
        asks: &mut OneAsk<'a, Rule>,
    ) -> Result<(), MissingKey> {
        match self.by.read(req, &mut rules.of_request) {
            Ok(read) => {
                asks.0 = read.map(|(key, cost)| self.settings.ask(rules, key, cost));
                Ok(())
            }
            Err(missing) => self.settings.without_key(missing),
        }
    }
}

impl<Rule> LimitSettings<Rule> {
    /// Returns the ask about a key, by the rule of the request if it has one.
    #[inline(always)]
    fn ask<'a>(&'a self, rules: &'a mut RequestRule<Rule>, key: Key, cost: Cost) -> Ask<'a, Rule> {
        Ask::new(&self.policy, rules.or_current(&self.rule), key, cost)
    }

    /// Logs a fault of the server, and counts the request on a dry run.
    ///
    /// # Errors
    ///
    /// The error, unless a dry run lets the request proceed.
    #[cold]
    fn without_key(&self, missing: MissingKey) -> Result<(), MissingKey> {
        let dry_run = self.dry_run.as_ref();
        if let Some(dry_run) = dry_run.filter(|dry_run| dry_run.spares_missing_keys()) {
            #[cfg(feature = "tracing")]
            if let Some(help) = missing.help() {
                crate::log::missing_key_on_dry_run(&self.policy, help);
            }
            dry_run.count_missing_key();
            return Ok(());
        }
        if let Some(help) = missing.help() {
            #[cfg(feature = "tracing")]
            crate::log::missing_key(&self.policy, missing.status().as_u16(), help);
            help.write_if_unheard(&self.policy);
        }
        Err(missing)
    }
}

impl<Req, L, M> AskEach<Req> for (L, M)
where
    L: AskEach<Req>,
    M: AskEach<Req> + Limits<Rule = L::Rule>,
{
    type Asks<'a>
        = SmallVec<[Ask<'a, L::Rule>; 2]>
    where
        Self: 'a,
        L::Rule: 'a;
    type Rules = (L::Rules, M::Rules);

    fn add_asks<'a>(
        &'a self,
        req: &Req,
        rules: &'a mut Self::Rules,
        asks: &mut Self::Asks<'a>,
    ) -> Result<(), MissingKey> {
        let (mut first, mut second) = Default::default();
        L::add_asks(&self.0, req, &mut rules.0, &mut first)?;
        M::add_asks(&self.1, req, &mut rules.1, &mut second)?;
        asks.extend(first.into_iter().chain(second));
        Ok(())
    }
}

impl<Req, L: AskEach<Req>> AskEach<Req> for Vec<L> {
    type Asks<'a>
        = SmallVec<[Ask<'a, L::Rule>; 2]>
    where
        Self: 'a,
        L::Rule: 'a;
    type Rules = SmallVec<[L::Rules; 4]>;

    #[inline(always)]
    fn add_asks_at_hand<'a>(
        &'a self,
        req: &Req,
        rules: &'a mut Self::Rules,
        asks: &mut Self::Asks<'a>,
    ) -> bool {
        let [limit] = self.as_slice() else {
            return false;
        };
        rules.push(L::Rules::default());
        let mut of_limit = L::Asks::default();
        let is_at_hand = limit.add_asks_at_hand(req, &mut rules[0], &mut of_limit);
        asks.extend(of_limit);
        is_at_hand
    }

    fn add_asks<'a>(
        &'a self,
        req: &Req,
        rules: &'a mut Self::Rules,
        asks: &mut Self::Asks<'a>,
    ) -> Result<(), MissingKey> {
        rules.resize_with(self.len(), L::Rules::default);
        for (limit, rules) in self.iter().zip(rules.iter_mut()) {
            let mut of_limit = L::Asks::default();
            limit.add_asks(req, rules, &mut of_limit)?;
            asks.extend(of_limit);
        }
        Ok(())
    }
}

/// Checks that the names of these limits differ, and that each dry run is compared with another one
/// of them.
///
/// # Errors
///
/// The first limit that does not fit the others.
pub(super) fn check_names(limits: &impl Limits) -> Result<(), Error> {
    let mut list = Vec::new();
    limits.list(&mut list);
    for (index, limit) in list.iter().enumerate() {
        let policy = &limit.policy;
        let mut earlier = list[..index].iter();
        if earlier.any(|other| other.policy.name() == policy.name()) {
            return Err(Error::new(format!(
                "two limits of one layer are named `{policy}`: expected different names, because a store \
                 keeps the state of a limit under its name; name one of them with `.named(…)`"
            )));
        }
        if let Some(other) = list[..index].iter().find(|other| other.has(policy)) {
            return Err(Error::new(format!(
                "the limits `{}` and `{policy}` of one layer have the states of `{}`: expected states of their own; \
                 take `.with_states_of(…)` from one of them",
                other.policy,
                policy.stored_name()
            )));
        }
        let Some(live) = limit.compared() else {
            continue;
        };
        let mut others = list
            .iter()
            .filter(|other| other.policy.name() != policy.name());
        if !others.any(|other| other.policy.name() == live.name()) {
            return Err(Error::new(format!(
                "the dry run `{policy}` is compared with `{live}`: expected the name of another limit of the layer; add that limit first, \
                 or name it in `.compared_with(…)`"
            )));
        }
    }
    Ok(())
}

/// Checks that a store can run the rules of these limits, and has the rules that replace them
/// checked for as long as one of the watches is there.
///
/// # Errors
///
/// The store's error about the first rule that it cannot run.
pub(super) fn check_fit<L, S>(limits: &L, store: &S) -> Result<Vec<Watch>, Error>
where
    L: Limits,
    S: Store<L::Rule> + Clone + Send + Sync + 'static,
{
    let mut list = Vec::new();
    limits.list(&mut list);
    let mut watches = Vec::new();
    for limit in list {
        let has_effect = limit.dry_run.as_ref().is_none_or(DryRun::has_effect);
        let waits = if has_effect {
            limit.waits
        } else {
            |_: &_| false
        };
        let (policy, store) = (limit.policy.clone(), store.clone());
        let check = move |rule: &L::Rule| check_rule((&policy, waits), rule, &store);
        match &limit.rule {
            OwnRule::Fixed(rule) => check(rule)?,
            OwnRule::Live { rule, .. } => watches.push(rule.watch(check)?),
        }
    }
    Ok(watches)
}

fn check_rule<Rule>(
    (policy, waits): (&Policy, fn(&Rule) -> bool),
    rule: &Rule,
    store: &impl Store<Rule>,
) -> Result<(), Error> {
    store.fits(rule).map_err(|error| {
        Error::new(format!(
            "the store cannot run the rule of the limit `{policy}`: expected a rule that fits the store: {error}; or use another \
             store"
        ))
    })?;
    if waits(rule) && store.lines().is_none() {
        return Err(Error::new(format!(
            "calls wait for their turn under the limit `{policy}`, of which the store does not know: expected `Local`, or \
             a wrapper of it that passes all methods of `Backend` on; use it, or leave `wait-at-most` out"
        )));
    }
    Ok(())
}
