//! The questions to a store: asks and settlements.

use std::fmt;

#[cfg(feature = "tokio")]
use smallvec::SmallVec;

use crate::{
    algorithm::Algorithm,
    decision::{Charge, Cost, Decision},
    error::Error,
    key::Key,
    policy::Policy,
    store::{Spend, StateKey},
};

/// One question to a store: may this key spend this cost under this rule?
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket, store::{Ask, Local}};
///
/// let (store, api, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
/// let ask = Ask::new(&api, &rule, "alice".into(), Cost::new(40).unwrap());
/// assert_eq!(store.decide(&ask).remaining(), Some(60));
/// ```
pub struct Ask<'a, Rule> {
    policy: &'a Policy,
    rule: &'a Rule,
    key: Key,
    spend: Spend,
    /// `true` if a charge is decided by a look at it.
    decides: bool,
}

// Not derived: the rule itself need not be `Copy`.
impl<Rule> Clone for Ask<'_, Rule> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Rule> Copy for Ask<'_, Rule> {}

impl<'a, Rule> Ask<'a, Rule> {
    /// Creates an ask for `cost` units of `key` under a `rule`.
    #[inline]
    pub fn new(policy: &'a Policy, rule: &'a Rule, key: Key, cost: Cost) -> Self {
        Self {
            policy,
            rule,
            key,
            spend: Spend::exactly(cost),
            decides: false,
        }
    }

    /// Asks for up to so many units, which the caller spends later. Without effect if that is not above the cost.
    ///
    /// A store that can grant units spends the cost and, if there are more, up to `units`: together at most a quarter of what remains, so
    /// that other nodes find something, too. The [charge](Decision::take_charge) says how many. A store that cannot spends the cost.
    #[must_use]
    pub fn up_to(self, units: u64) -> Self {
        Self {
            spend: self.spend.up_to(units),
            ..self
        }
    }

    /// Returns the policy, whose name is a part of the [state's key](Self::state_key).
    #[inline]
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns the rule that decides.
    #[inline]
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Returns the key of the client.
    #[inline]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the cost to be spent.
    #[inline]
    pub fn cost(&self) -> Cost {
        self.spend.cost()
    }

    /// Returns the ask under another rule.
    pub(crate) fn under<'b, Other>(&self, rule: &'b Other) -> Ask<'b, Other>
    where
        'a: 'b,
    {
        Ask {
            policy: self.policy,
            rule,
            key: self.key,
            spend: self.spend,
            decides: self.decides,
        }
    }

    /// Marks an ask by whose look a charge is decided: that of a request, whose refusals [count](super::Blocks::block_after).
    pub(crate) fn that_decides(self) -> Self {
        Self {
            decides: true,
            ..self
        }
    }

    pub(crate) fn decides(&self) -> bool {
        self.decides
    }

    /// Returns what to spend: the cost, or more.
    #[inline]
    pub(crate) fn spend(&self) -> Spend {
        self.spend
    }

    /// Records the policy of this ask in its decision, so that the charge is not settled under another policy.
    ///
    /// Stores call this for each decision that charges.
    #[inline]
    #[must_use]
    pub fn charged(&self, decision: Decision) -> Decision {
        decision.of_policy(self.policy.digest())
    }
}

/// Returns the digests of the policies of asks, to be recorded in their decisions.
#[cfg(feature = "tokio")]
pub(super) fn policies<Rule>(asks: &[Ask<'_, Rule>]) -> SmallVec<[u64; 1]> {
    asks.iter().map(|ask| ask.policy.digest()).collect()
}

impl<Rule: Algorithm> Ask<'_, Rule> {
    /// Returns the rule as this key meets it, if that is [another one](Algorithm::for_key).
    #[inline]
    pub fn rule_for_key(&self) -> Option<Rule> {
        self.rule.for_key(&|| self.key.digest())
    }

    /// Returns the name of the state that this ask is about, for a store of your own.
    pub fn state_key(&self) -> StateKey {
        StateKey::new(self.policy, &self.key, self.rule.state_kind())
    }
}

impl<Rule: fmt::Debug> fmt::Debug for Ask<'_, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("policy", &self.policy)
            .field("rule", self.rule())
            .field("key", &self.key)
            .field("spend", &self.spend)
            .finish()
    }
}

/// The correction of one earlier charge, made once: a store consumes it.
///
/// A settlement that fails is not repeated, because it may have been made. It is [counted](crate::store::Backend::unsettled), also if
/// its future was dropped.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Ask, Check, Local, Settlement, Store};
///
/// let (store, api, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
/// let ask = Ask::new(&api, &rule, "alice".into(), Cost::new(40).unwrap());
/// let charge = store.decide(&ask).take_charge().unwrap();
///
/// // The call turned out to cost 10.
/// let settlement = Settlement::new(&api, &rule, "alice".into(), charge, 10)?;
/// assert!(matches!(store.settle(vec![settlement]), Check::Ready(Ok(()))));
/// assert_eq!(store.look(&api, &rule, &"alice".into()).remaining(), Some(90));
///
/// let charge = store.decide(&ask).take_charge().unwrap();
/// let other = Policy::new("web");
/// let error = Settlement::new(&other, &rule, "alice".into(), charge, 10).unwrap_err();
/// assert!(error.to_string().contains("the policy `web` did not make this charge"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug)]
pub struct Settlement<'a, Rule> {
    pub(crate) policy: &'a Policy,
    pub(crate) rule: &'a Rule,
    pub(crate) key: Key,
    pub(crate) charge: Charge,
    pub(crate) actual: u64,
    pub(crate) is_grant: bool,
}

impl<'a, Rule> Settlement<'a, Rule> {
    /// Corrects a charge to the `actual` cost in units: less gives back, 0 everything; more is taken, even into debt.
    ///
    /// `policy`, `rule` and `key` are those of the [`Ask`] that was charged.
    ///
    /// # Errors
    ///
    /// Fails if another policy made the charge. The check compares 20 bits of the digest of its name: one wrong name in a
    /// million passes. A charge whose store does not [record](Ask::charged) its policy passes, too.
    pub fn new(
        policy: &'a Policy,
        rule: &'a Rule,
        key: Key,
        charge: Charge,
        actual: u64,
    ) -> Result<Self, Error> {
        if !charge.may_be_of(policy.digest()) {
            return Err(Error::new(format!(
                "the policy `{policy}` did not make this charge of {} units: expected the policy, rule and key of the \
                 ask that was charged; nothing was settled",
                charge.cost
            )));
        }
        Ok(Self {
            policy,
            rule,
            key,
            charge,
            actual,
            is_grant: false,
        })
    }

    /// Returns the settlement under another rule.
    pub(crate) fn under<'b, Other>(self, rule: &'b Other) -> Settlement<'b, Other>
    where
        'a: 'b,
    {
        Settlement {
            policy: self.policy,
            rule,
            key: self.key,
            charge: self.charge,
            actual: self.actual,
            is_grant: self.is_grant,
        }
    }

    /// Makes it a grant: the units of the charge, which is of no call, are given back whatever was charged since.
    pub(crate) fn into_grant(self) -> Self {
        Self {
            is_grant: true,
            ..self
        }
    }

    /// Returns `true` if [`Limiter::grant`](crate::Limiter::grant) gives units to the key: the charge is of no call.
    pub fn is_grant(&self) -> bool {
        self.is_grant
    }

    /// Returns the limit that charged.
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns the rule that charged.
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Returns the key that was charged.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the charge.
    pub fn charge(&self) -> &Charge {
        &self.charge
    }

    /// Returns the actual cost in units.
    pub fn actual(&self) -> u64 {
        self.actual
    }

    /// Returns the charge by value, for a store that settles later.
    pub fn into_charge(self) -> Charge {
        self.charge
    }
}

impl<Rule: Algorithm> Settlement<'_, Rule> {
    /// Returns the rule as the key meets it, if that is [another one](Algorithm::for_key).
    pub fn rule_for_key(&self) -> Option<Rule> {
        self.rule.for_key(&|| self.key.digest())
    }

    /// Returns the name of the state that this settlement is about, for a store of your own.
    pub fn state_key(&self) -> StateKey {
        StateKey::new(self.policy, &self.key, self.rule.state_kind())
    }
}
