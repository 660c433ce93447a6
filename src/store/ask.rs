//! Requests to a store: asks and settlements.

use std::fmt;

use smallvec::SmallVec;

use super::StateKey;
use crate::{
    algorithm::{Algorithm, packed::InMemory},
    decision::{Charge, Cost, Decision},
    error::Error,
    key::Key,
    policy::Policy,
    time::Timestamp,
};

/// One question to a store: may this key spend this cost under this rule?
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket, store::{Local, driver::Ask}};
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
    refusals: Refusals,
}

/// What the refusals of an ask mean to [blocks](super::Blocks::block_after).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusals {
    /// Those of a charge count, those of a look do not.
    OfCharges,
    /// Those of a look count, too, because it decides a request.
    OfLooks,
    /// None counts, because the call may wait and ask again.
    Ignored,
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
            refusals: Refusals::OfCharges,
        }
    }

    /// Asks for a grant of up to `units`, which the caller spends later. Has no effect unless
    /// `units` exceeds the cost.
    ///
    /// A store that can grant units spends the cost and, if there are more, up to `units`: together
    /// at most a quarter of what remains, so that other nodes find something, too. The
    /// [charge](Decision::take_charge) says how many. A store that cannot spends the cost.
    #[must_use]
    pub fn up_to(self, units: u64) -> Self {
        Self {
            spend: self.spend.up_to(units),
            ..self
        }
    }

    /// Returns the policy. Its name is part of the [state's key](Self::state_key).
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
            refusals: self.refusals,
        }
    }

    /// Marks the ask of a request that is decided by a look. Its refusals
    /// [count](super::Blocks::block_after), unless the call [may wait](Self::that_may_wait).
    pub(crate) fn that_decides(self) -> Self {
        let refusals = match self.refusals {
            Refusals::Ignored => Refusals::Ignored,
            Refusals::OfCharges | Refusals::OfLooks => Refusals::OfLooks,
        };
        Self { refusals, ..self }
    }

    pub(crate) fn decides(&self) -> bool {
        self.refusals == Refusals::OfLooks
    }

    /// Marks an ask of a call that waits if it is refused, and then asks again. Its refusals do not
    /// [count](super::Blocks::block_after).
    pub(crate) fn that_may_wait(self) -> Self {
        Self {
            refusals: Refusals::Ignored,
            ..self
        }
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.refusals == Refusals::Ignored
    }

    /// Returns the units to spend: the cost, or more.
    #[inline]
    pub(crate) fn spend(&self) -> Spend {
        self.spend
    }

    /// Returns the settlement of a charge of this ask to the `actual` cost.
    pub(crate) fn settlement(&self, charge: Charge, actual: u64) -> Settlement<'a, Rule> {
        Settlement {
            policy: self.policy,
            rule: self.rule,
            key: self.key,
            charge,
            actual,
            is_grant: false,
        }
    }

    /// Records the policy of this ask in its decision, so that the charge is not settled under
    /// another policy.
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
pub(crate) fn policies<Rule>(asks: &[Ask<'_, Rule>]) -> SmallVec<[u64; 1]> {
    asks.iter().map(|ask| ask.policy.digest()).collect()
}

impl<Rule: Algorithm> Ask<'_, Rule> {
    /// Returns the rule for this key, if it [differs](Algorithm::for_key) from the ask's rule.
    #[inline]
    pub fn rule_for_key(&self) -> Option<Rule> {
        self.rule.for_key(&|| self.key.digest())
    }

    /// Returns the rule as it applies to this key.
    pub(crate) fn own_rule(&self) -> Rule {
        self.rule_for_key().unwrap_or_else(|| self.rule.clone())
    }

    /// Returns the decision about this ask by a look, for a call that another limit refuses: the
    /// look, or a refusal of the whole cost.
    pub(crate) fn not_charged_by(&self, look: &Decision) -> Decision {
        let decision = self.decided_by(look);
        match decision.is_admitted() {
            true => *look,
            false => decision,
        }
    }

    /// Returns the decision about this ask by a look, for a call that is charged later.
    pub(crate) fn decided_by(&self, look: &Decision) -> Decision {
        let decision = look.for_cost(self.cost());
        let has_own_wait = self.cost() == Cost::ONE || look.is_undecided();
        // Some rules hold the less the longer a key is idle: then no wait helps. A bucket fills up,
        // although a new key may begin with less; it begins to fill when it is charged.
        let fills = |rule: &Rule| rule.is_bucket() && !look.reset_after().is_zero();
        let helps =
            |rule: Rule| fills(&rule) || rule.look(None, look.at()).would_admit(self.cost());
        match decision.is_admitted() || has_own_wait || helps(self.own_rule()) {
            true => decision,
            false => decision.with_retry_after(None),
        }
    }

    /// Returns the name of the state that this ask reads and changes, for a store of your own.
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

/// The asks of a call, owned, for a store or wrapper that answers later.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Local, Store};
/// use tollgate::store::driver::{Ask, Decisions, OwnedAsks};
///
/// /// Asks a store from a task, which outlives the caller's asks.
/// async fn ask_later(store: Local<TokenBucket>, asks: &[Ask<'_, TokenBucket>]) -> Decisions {
///     let asks = OwnedAsks::new(asks);
///     let task = tokio::spawn(async move { store.acquire(&asks.to_vec()).await });
///     match task.await.unwrap() {
///         Ok(decisions) => decisions,
///         Err(never) => match never {},
///     }
/// }
///
/// # #[tokio::main] async fn main() {
/// let (api, rule) = (Policy::new("api"), TokenBucket::per_second(10));
/// let asks = [Ask::new(&api, &rule, "alice".into(), Cost::ONE)];
/// let decisions = ask_later(Local::new(), &asks).await;
/// assert_eq!(decisions.as_slice()[0].remaining(), Some(9));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OwnedAsks<Rule>(SmallVec<[OwnedAsk<Rule>; 1]>);

#[derive(Clone, Debug)]
struct OwnedAsk<Rule> {
    policy: Policy,
    rule: Rule,
    key: Key,
    spend: Spend,
    refusals: Refusals,
}

impl<Rule: Clone> OwnedAsks<Rule> {
    /// Copies the asks of a call.
    pub fn new(asks: &[Ask<'_, Rule>]) -> Self {
        let owned = |ask: &Ask<'_, Rule>| OwnedAsk {
            policy: ask.policy().clone(),
            rule: ask.rule().clone(),
            key: *ask.key(),
            spend: ask.spend,
            refusals: ask.refusals,
        };
        Self(asks.iter().map(owned).collect())
    }
}

impl<Rule> OwnedAsks<Rule> {
    /// Returns the asks, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Ask<'_, Rule>> {
        self.0.iter().map(|owned| Ask {
            policy: &owned.policy,
            rule: &owned.rule,
            key: owned.key,
            spend: owned.spend,
            refusals: owned.refusals,
        })
    }

    /// Replaces the rules for which `current` returns another one, by the policy.
    pub(crate) fn update_rules(&mut self, current: impl Fn(&Policy) -> Option<Rule>) {
        for ask in &mut self.0 {
            if let Some(rule) = current(&ask.policy) {
                ask.rule = rule;
            }
        }
    }

    /// Returns the asks as a list, without an allocation for up to two.
    pub(crate) fn to_list(&self) -> SmallVec<[Ask<'_, Rule>; 2]> {
        self.iter().collect()
    }

    /// Returns the asks as a list, as stores take them.
    pub fn to_vec(&self) -> Vec<Ask<'_, Rule>> {
        self.iter().collect()
    }
}

/// An ask as a store works on it, also after the call has returned. `At` says where its state is.
#[derive(Clone)]
pub(in crate::store) struct ResolvedAsk<Rule, At> {
    pub(in crate::store) at: At,
    /// The rule, as it applies to the key.
    pub(in crate::store) rule: Rule,
    pub(in crate::store) spend: Spend,
}

impl<Rule: Algorithm, At> ResolvedAsk<Rule, At> {
    pub(in crate::store) fn new(ask: &Ask<'_, Rule>, at: At) -> Self {
        Self {
            at,
            rule: ask.own_rule(),
            spend: ask.spend(),
        }
    }
}

/// The units that an ask spends: its cost, or a larger grant that the caller spends later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spend {
    cost: Cost,
    up_to: u64,
}

impl Spend {
    /// Binary logarithm of the divisor: a grant is at most a quarter of the remaining units.
    pub(crate) const SHARE: u32 = 2;

    #[inline]
    pub(crate) const fn exactly(cost: Cost) -> Self {
        Self {
            cost,
            up_to: cost.get(),
        }
    }

    pub(crate) const fn up_to(self, units: u64) -> Self {
        Self {
            up_to: units,
            ..self
        }
    }

    #[inline]
    pub(crate) const fn cost(self) -> Cost {
        self.cost
    }

    /// Returns the maximum grant in units. There is no grant unless it exceeds the cost.
    #[cfg(any(feature = "tokio", test))]
    #[inline]
    pub(crate) const fn most(self) -> u64 {
        self.up_to
    }

    /// Returns `true` if more than the cost may be granted.
    #[inline]
    pub(crate) const fn is_grant(self) -> bool {
        self.up_to > self.cost.get()
    }

    /// Returns the units to spend if `remaining` units are left, which cover the cost.
    pub(crate) fn of_remaining(self, remaining: u64) -> Cost {
        let granted = self.up_to.min(remaining >> Self::SHARE);
        Cost::new(granted.max(self.cost.get())).unwrap_or(self.cost)
    }

    /// Returns the units to spend in a state, if the rule admits the cost.
    pub(crate) fn in_state<Rule: Algorithm>(
        self,
        rule: &Rule,
        state: Option<&Rule::State>,
        now: Timestamp,
    ) -> Cost {
        if !self.is_grant() {
            return self.cost;
        }
        self.of_remaining(rule.look(state, now).remaining().unwrap_or(0))
    }
}

/// The correction of one earlier charge. A store consumes it, so it is made once.
///
/// A settlement that fails is not repeated, because it may have been made. It is
/// [counted](crate::store::Backend::unsettled), also if its future was dropped.
///
/// ```
/// use tollgate::{Cost, Policy, TokenBucket};
/// use tollgate::store::{Local, Store, driver::{Ask, Check, Settlement}};
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
    /// Corrects a charge to the `actual` cost in units. A lower cost refunds the difference, 0
    /// refunds all; a higher one charges it, even into debt.
    ///
    /// `policy`, `rule` and `key` are those of the [`Ask`] that was charged.
    ///
    /// # Errors
    ///
    /// Fails if another policy made the charge. The check compares 20 bits of the digest of its
    /// name: one wrong name in a million passes. A charge whose store does not
    /// [record](Ask::charged) its policy passes, too.
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

    /// Makes it a grant: the charge belongs to no call, and its units are refunded whatever was
    /// charged since.
    pub(crate) fn into_grant(self) -> Self {
        Self {
            is_grant: true,
            ..self
        }
    }

    /// Returns `true` for a [grant](crate::Limiter::grant), whose charge belongs to no call.
    pub fn is_grant(&self) -> bool {
        self.is_grant
    }

    /// Returns the policy that charged.
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
    /// Returns the rule for the key, if it [differs](Algorithm::for_key) from the settlement's
    /// rule.
    pub fn rule_for_key(&self) -> Option<Rule> {
        self.rule.for_key(&|| self.key.digest())
    }

    /// Returns the rule as it applies to the key.
    #[cfg(feature = "tokio")]
    pub(crate) fn own_rule(&self) -> Rule {
        self.rule_for_key().unwrap_or_else(|| self.rule.clone())
    }

    /// Returns the name of the state that this settlement changes, for a store of your own.
    pub fn state_key(&self) -> StateKey {
        StateKey::new(self.policy, &self.key, self.rule.state_kind())
    }
}

#[cfg(test)]
mod tests {
    use super::{Ask, OwnedAsks};
    use crate::{Cost, Policy, TokenBucket};

    #[test]
    fn all_parts_of_an_ask_are_kept() {
        let policies = ["api", "tokens"].map(Policy::new);
        let rules = [TokenBucket::per_second(10), TokenBucket::per_hour(20)];
        let cost = |units| Cost::new(units).unwrap();
        let asks = [
            Ask::new(&policies[0], &rules[0], "alice".into(), cost(3))
                .up_to(40)
                .that_may_wait(),
            Ask::new(&policies[1], &rules[1], "bob".into(), cost(5)).that_decides(),
        ];
        let owned = OwnedAsks::new(&asks);
        for kept in [
            owned.to_vec(),
            owned.to_list().to_vec(),
            owned.clone().to_vec(),
        ] {
            assert_eq!(format!("{kept:?}"), format!("{asks:?}"));
            let most = kept.iter().map(|ask| ask.spend().most());
            assert_eq!(most.collect::<Vec<_>>(), [40, 5]);
            let decides: Vec<_> = kept.iter().map(Ask::decides).collect();
            assert_eq!(decides, [false, true]);
            let may_wait: Vec<_> = kept.iter().map(Ask::may_wait).collect();
            assert_eq!(may_wait, [true, false]);
        }
    }
}
