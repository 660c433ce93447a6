//! The limits of a layer as a list: the asks for a request, and the checks when the layer is built.

use std::ops::Deref;

use smallvec::SmallVec;

use super::{
    limit::Limit,
    per_request::{RequestCost, SelectRule},
    role::Role,
};
use crate::{
    algorithm::Algorithm,
    charging::{ByResponse, ChargeHandle, Charging, Keeps},
    dry_run::{DryRun, Enforcement},
    error::Error,
    key::{Extracted, Key, KeyExtractor, MissingKey},
    policy::Policy,
    store::{Ask, Store},
};

/// Keeps [`Limits`] and [`LimitsBy`] to [`Limit`]s and pairs of them.
#[doc(hidden)]
pub trait Sealed {
    type AnyRule;

    /// Set if some asks are not decided together with the others: those of dry runs, and looks.
    const APART: bool;

    /// Set if the layer settles some charges.
    const SETTLES: bool;

    /// The state that a request keeps until its response.
    type Keeps: Keeps;

    /// Returns the rule of the limit with this policy, unless another one is selected for a
    /// request.
    fn own_rule(&self, policy: &Policy) -> Option<&Self::AnyRule>;

    /// Returns how the ask of the limit with this policy is decided; `None` if no limit has it.
    fn role(&self, policy: &Policy, key: &Key) -> Option<Role>;

    /// Returns the dry run of the limit with this policy, if it is on one.
    fn dry_run(&self, policy: &Policy) -> Option<&DryRun>;

    /// Returns `true` if the layer settles the charges of the limit with this policy; `None` if no
    /// limit has it.
    fn settles(&self, policy: &Policy) -> Option<bool>;
}

impl<Rule, P, K, C, E: Enforcement, B: Charging> Sealed for Limit<Rule, P, K, C, E, B> {
    type AnyRule = Rule;
    const APART: bool = E::MAY_BE_DRY || B::LOOKS_FIRST;
    const SETTLES: bool = B::SETTLES;
    type Keeps = B::Keeps;

    fn own_rule(&self, policy: &Policy) -> Option<&Rule> {
        self.has(policy).then_some(&self.rule)
    }

    fn role(&self, policy: &Policy, key: &Key) -> Option<Role> {
        self.has(policy).then(|| {
            if self.enforcement.is_dry(key) {
                Role::DryRun
            } else if B::LOOKS_FIRST {
                Role::Look
            } else {
                Role::Acquire
            }
        })
    }

    fn dry_run(&self, policy: &Policy) -> Option<&DryRun> {
        let dry_run = self.enforcement.dry_run()?;
        self.has(policy).then_some(dry_run)
    }

    fn settles(&self, policy: &Policy) -> Option<bool> {
        self.has(policy).then_some(B::SETTLES)
    }
}

impl<L: Sealed, M: Sealed<AnyRule = L::AnyRule>> Sealed for (L, M) {
    type AnyRule = L::AnyRule;
    const APART: bool = L::APART || M::APART;
    const SETTLES: bool = L::SETTLES || M::SETTLES;
    type Keeps = <L::Keeps as Keeps>::Or<M::Keeps>;

    fn own_rule(&self, policy: &Policy) -> Option<&Self::AnyRule> {
        let first = self.0.own_rule(policy);
        first.or_else(|| self.1.own_rule(policy))
    }

    fn role(&self, policy: &Policy, key: &Key) -> Option<Role> {
        let first = self.0.role(policy, key);
        first.or_else(|| self.1.role(policy, key))
    }

    fn dry_run(&self, policy: &Policy) -> Option<&DryRun> {
        let first = self.0.dry_run(policy);
        first.or_else(|| self.1.dry_run(policy))
    }

    fn settles(&self, policy: &Policy) -> Option<bool> {
        let first = self.0.settles(policy);
        first.or_else(|| self.1.settles(policy))
    }
}

/// The effect of requests and responses on the charges of limits.
#[doc(hidden)]
pub trait SettleByResponse<Req, Res> {
    /// Returns `true` if a request with this response is charged by the limit with this policy;
    /// `None` if no limit has it.
    fn is_charged(&self, policy: &Policy, res: &Res) -> Option<bool>;

    /// Puts the handle of a charge into its request if the handler may settle it. Returns the
    /// handle if the response may settle it, too.
    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle>;
}

impl<Req, Res, Rule, P, K, C, E, B> SettleByResponse<Req, Res> for Limit<Rule, P, K, C, E, B>
where
    B: ByResponse<Req, Res>,
{
    fn is_charged(&self, policy: &Policy, res: &Res) -> Option<bool> {
        self.has(policy).then(|| self.charging.is_charged(res))
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        self.charging.hand_over(req, handle)
    }
}

impl<Req, Res, L, M> SettleByResponse<Req, Res> for (L, M)
where
    L: Sealed + SettleByResponse<Req, Res>,
    M: SettleByResponse<Req, Res>,
{
    fn is_charged(&self, policy: &Policy, res: &Res) -> Option<bool> {
        let first = self.0.is_charged(policy, res);
        first.or_else(|| self.1.is_charged(policy, res))
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        if self.0.settles(handle.policy()).is_some() {
            self.0.hand_over(req, handle)
        } else {
            self.1.hand_over(req, handle)
        }
    }
}

/// The limits of a layer, applied to requests of the type `Req`: one [`Limit`], or the pairs that
/// [`also`](crate::RateLimitLayer::also) makes.
///
/// Sealed. A function that is generic over a layer can name the layer itself in its bounds:
///
/// ```
/// use tollgate::RateLimitLayer;
/// use tower::{Layer, Service};
///
/// fn limited<Svc, Req, L, S, R, O>(inner: Svc, layer: &RateLimitLayer<L, S, R, O>) -> impl Service<Req>
/// where
///     RateLimitLayer<L, S, R, O>: Layer<Svc, Service: Service<Req>>,
/// {
///     layer.layer(inner)
/// }
/// ```
pub trait Limits<Req>: Sealed<AnyRule = Self::Rule> {
    /// The type of all rules.
    type Rule: Algorithm;

    /// The asks for one request; none by default.
    // A type of its own for one limit, the common case: it needs no list.
    #[doc(hidden)]
    type Asks<'a>: Default
        + Deref<Target = [Ask<'a, Self::Rule>]>
        + IntoIterator<Item = Ask<'a, Self::Rule>>
    where
        Self: 'a,
        Self::Rule: 'a;

    /// Storage for the rules that are selected for one request.
    // Beside the asks, because an ask that contained a rule would be moved with the largest
    // possible rule.
    #[doc(hidden)]
    type Selected: Default;

    /// Adds the ask for `req` to an empty list if its key is [at hand](KeyExtractor::key_at_hand).
    /// Otherwise returns `false`, and has no effect.
    #[doc(hidden)]
    #[inline(always)]
    fn add_asks_at_hand<'a>(
        &'a self,
        req: &Req,
        selected: &'a mut Self::Selected,
        asks: &mut Self::Asks<'a>,
    ) -> bool {
        let _ = (req, selected, asks);
        false
    }

    /// Returns the policy and the rule of the limit that was given no name, if it has one rule for
    /// all requests.
    #[doc(hidden)]
    fn unnamed(&self) -> Option<(&Policy, &Self::Rule)>;

    /// Adds the asks for `req` to an empty list; none if the request is exempt.
    ///
    /// # Errors
    ///
    /// When a key is missing. Then the store must not be asked.
    // In place: the words of a returned ask would be copied right after they were written, which is
    // slow.
    #[doc(hidden)]
    fn add_asks<'a>(
        &'a self,
        req: &Req,
        selected: &'a mut Self::Selected,
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

impl<Req, Rule, P, K, C, E, B> Limits<Req> for Limit<Rule, P, K, C, E, B>
where
    Rule: Algorithm,
    P: SelectRule<Req, Rule>,
    K: KeyExtractor<Req>,
    C: RequestCost<Req>,
    E: Enforcement,
    B: Charging,
{
    type Rule = Rule;
    type Asks<'a>
        = OneAsk<'a, Rule>
    where
        Self: 'a,
        Rule: 'a;
    type Selected = Option<Rule>;

    #[inline(always)]
    fn add_asks_at_hand<'a>(
        &'a self,
        req: &Req,
        selected: &'a mut Option<Rule>,
        asks: &mut OneAsk<'a, Rule>,
    ) -> bool {
        let key = self.key.key_at_hand(req);
        asks.0 = key.map(|key| self.ask(req, selected, key));
        asks.0.is_some()
    }

    #[inline]
    fn add_asks<'a>(
        &'a self,
        req: &Req,
        selected: &'a mut Option<Rule>,
        asks: &mut OneAsk<'a, Rule>,
    ) -> Result<(), MissingKey> {
        let key = match self.key.extract(req) {
            Ok(Extracted::Key(key)) => key,
            Ok(Extracted::Exempt) => return Ok(()),
            Err(missing) => return self.without_key(missing),
        };
        asks.0 = Some(self.ask(req, selected, key));
        Ok(())
    }

    fn unnamed(&self) -> Option<(&Policy, &Rule)> {
        let is_compared = P::IS_FIXED && self.policy.is_unnamed();
        is_compared.then_some((&self.policy, &self.rule))
    }
}

impl<Rule, P, K, C, E, B> Limit<Rule, P, K, C, E, B> {
    /// Returns `true` if this is the limit's policy. The names of a layer's limits differ.
    fn has(&self, policy: &Policy) -> bool {
        self.policy.digest() == policy.digest()
    }

    /// Logs a fault of the server, and counts the request on a dry run.
    ///
    /// # Errors
    ///
    /// The error, unless a dry run lets the request proceed.
    #[cold]
    fn without_key(&self, missing: MissingKey) -> Result<(), MissingKey>
    where
        E: Enforcement,
    {
        let dry_run = self.enforcement.dry_run();
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

    /// Returns the ask for a request with this key.
    #[inline(always)]
    fn ask<'a, Req>(&'a self, req: &Req, selected: &'a mut Option<Rule>, key: Key) -> Ask<'a, Rule>
    where
        P: SelectRule<Req, Rule>,
        C: RequestCost<Req>,
    {
        let cost = self.cost.cost_of(req);
        let rule = match self.per_request.select_rule(req) {
            Some(rule) => selected.insert(rule),
            None => &self.rule,
        };
        Ask::new(&self.policy, rule, key, cost)
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
    type Selected = (L::Selected, M::Selected);

    fn add_asks<'a>(
        &'a self,
        req: &Req,
        selected: &'a mut Self::Selected,
        asks: &mut Self::Asks<'a>,
    ) -> Result<(), MissingKey> {
        let (mut first, mut second) = Default::default();
        L::add_asks(&self.0, req, &mut selected.0, &mut first)?;
        M::add_asks(&self.1, req, &mut selected.1, &mut second)?;
        asks.extend(first.into_iter().chain(second));
        Ok(())
    }

    fn unnamed(&self) -> Option<(&Policy, &L::Rule)> {
        let first = self.0.unnamed();
        first.or_else(|| self.1.unnamed())
    }
}

/// The limits of a layer, whose rules all have the type `Rule`: one [`Limit`], or the pairs that
/// [`also`](crate::RateLimitLayer::also) makes.
///
/// Sealed. Use it as a bound in functions that give a layer a
/// [store](crate::RateLimitLayer::store), or [one more limit](crate::RateLimitLayer::also):
///
/// ```
/// use tollgate::{Limit, LimitsBy, RateLimitLayer, TokenBucket, store::Local};
///
/// /// Adds a limit for all requests together.
/// fn capped<L, R>(
///     layer: RateLimitLayer<L, Local<TokenBucket>, R>,
/// ) -> RateLimitLayer<(L, Limit<TokenBucket>), Local<TokenBucket>, R>
/// where
///     L: LimitsBy<TokenBucket>,
/// {
///     layer.also(Limit::new(TokenBucket::per_second(1_000)).named("total"))
/// }
///
/// let layer = capped(RateLimitLayer::new(TokenBucket::per_second(10)));
/// # let _ = layer;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit by a `{Rule}`, as the others of this layer are",
    label = "expected a limit by a `{Rule}`",
    note = "`.also(…)` takes a `Limit`, made by `Limit::new(rule)`, and no second layer",
    note = "the limits of one layer have rules of one type: make each of them an `AnyRule`, by `AnyRule::from(rule)` or \
            `\"token-bucket 100/1m\".parse::<AnyRule>()?`"
)]
pub trait LimitsBy<Rule>: Sealed<AnyRule = Rule> {
    /// Appends the policy of each limit, and its own rule.
    #[doc(hidden)]
    fn list<'a>(&'a self, limits: &mut Vec<(&'a Policy, &'a Rule)>);
}

impl<Rule, P, K, C, E: Enforcement, B: Charging> LimitsBy<Rule> for Limit<Rule, P, K, C, E, B> {
    fn list<'a>(&'a self, limits: &mut Vec<(&'a Policy, &'a Rule)>) {
        limits.push((&self.policy, &self.rule));
    }
}

#[diagnostic::do_not_recommend]
impl<Rule, L: LimitsBy<Rule>, M: LimitsBy<Rule>> LimitsBy<Rule> for (L, M) {
    fn list<'a>(&'a self, limits: &mut Vec<(&'a Policy, &'a Rule)>) {
        self.0.list(limits);
        self.1.list(limits);
    }
}

/// Checks that the names of these limits differ, and that each dry run is compared with another one
/// of them.
pub(super) fn check_names<Rule>(limits: &impl LimitsBy<Rule>) -> Result<(), Error> {
    let mut list = Vec::new();
    limits.list(&mut list);
    for (index, (policy, _)) in list.iter().enumerate() {
        let mut earlier = list[..index].iter();
        if earlier.any(|(other, _)| other.name() == policy.name()) {
            return Err(Error::new(format!(
                "two limits of one layer are named `{policy}`: expected different names, because a store \
                 keeps the state of a limit under its name; name one of them with `.named(…)`"
            )));
        }
        let Some(live) = limits.dry_run(policy).and_then(DryRun::live) else {
            continue;
        };
        let mut others = list
            .iter()
            .filter(|(other, _)| other.name() != policy.name());
        if !others.any(|(other, _)| other.name() == live.name()) {
            return Err(Error::new(format!(
                "the dry run `{policy}` is compared with `{live}`: expected the name of another limit of the layer; add that limit first, \
                 or name it in `.compared_with(…)`"
            )));
        }
    }
    Ok(())
}

/// Checks that a store can run the rules of these limits.
///
/// # Errors
///
/// The store's error about the first rule that it cannot run.
pub(super) fn check_fit<Rule>(
    limits: &impl LimitsBy<Rule>,
    store: &impl Store<Rule>,
) -> Result<(), Error> {
    let mut list = Vec::new();
    limits.list(&mut list);
    list.into_iter().try_for_each(|(policy, rule)| {
        store.fits(rule).map_err(|error| {
            Error::new(format!(
                "the store cannot run the rule of the limit `{policy}`: expected a rule that fits the store: {error}; or use another \
                 store"
            ))
        })
    })
}
