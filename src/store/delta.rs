//! Units that a node admitted by itself, and the states that a store returns for them.

use std::time::Duration;

use crate::{algorithm::Algorithm, key::Key, policy::Policy, store::StateKey, time::Timestamp};

/// Units that a node admitted by itself. A store adds them to the state of a key, once, whatever is left.
///
/// [`Store::sync`](super::Store::sync) takes them in.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Policy, TokenBucket, store::{Batch, Delta}};
///
/// let (api, rule) = (Policy::new("api"), TokenBucket::per_second(100));
/// let batch = Batch { node: 7, number: 1 };
/// let delta = Delta::new(&api, &rule, "alice".into(), batch, (Duration::from_millis(50), 20));
/// assert_eq!(delta.units(), 20);
/// ```
#[derive(Debug)]
pub struct Delta<'a, Rule> {
    pub(crate) policy: &'a Policy,
    pub(crate) rule: &'a Rule,
    pub(crate) key: Key,
    pub(crate) batch: Batch,
    pub(crate) age: Duration,
    pub(crate) units: u64,
}

/// The number of a [`Delta`]. A key gets each number of a node once, however often the delta arrives.
///
/// ```
/// use tollgate::store::Batch;
///
/// let first = Batch { node: 7, number: 1 };
/// assert_eq!(Batch { number: 2, ..first }.node, 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The node, drawn at random for each start: below 2⁵³, because scripts count by such numbers.
    pub node: u64,
    /// The sequence number: greater than those of all earlier deltas of the node to the key, and below 2⁵³.
    pub number: u64,
}

impl<'a, Rule> Delta<'a, Rule> {
    /// Creates a delta of `units`; 0 asks for the state alone. `age` is the time from the first admission to the sending of the delta.
    ///
    /// An age, and not an instant, because the clock of a node and that of the store differ. The store counts back from the arrival, which
    /// is later than the first unit by the time that the delta was under way: never too early, so no bucket refills what was spent later.
    pub fn new(
        policy: &'a Policy,
        rule: &'a Rule,
        key: Key,
        batch: Batch,
        (age, units): (Duration, u64),
    ) -> Self {
        Self {
            policy,
            rule,
            key,
            batch,
            age,
            units,
        }
    }

    /// Returns the policy.
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns the rule that admitted the units.
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Returns the key that spent the units.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the number of the delta.
    pub fn batch(&self) -> Batch {
        self.batch
    }

    /// Returns the time from the first admission to the sending of the delta.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Returns the instant of the first admission, by the clock of a store at which the delta arrives `now`.
    pub fn at(&self, now: Timestamp) -> Timestamp {
        now.saturating_sub(self.age)
    }

    /// Returns the number of units; 0 asks for the state alone.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl<Rule: Algorithm> Delta<'_, Rule> {
    /// Returns the rule for the key, if it [differs](Algorithm::for_key) from the delta's rule.
    pub fn rule_for_key(&self) -> Option<Rule> {
        self.rule.for_key(&|| self.key.digest())
    }

    /// Returns the name of the state, for a store of your own.
    pub fn state_key(&self) -> StateKey {
        StateKey::new(self.policy, &self.key, self.rule.state_kind())
    }
}

/// The state of a key, as [`Store::sync`](super::Store::sync) returns it.
///
/// ```
/// use tollgate::{Timestamp, TokenBucket, algorithm::Algorithm, store::Pulled};
///
/// // The key is like new.
/// let pulled = Pulled::<<TokenBucket as Algorithm>::State> { at: Timestamp::default(), state: None };
/// # let _ = pulled;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled<State> {
    /// The instant by the clock of the store.
    pub at: Timestamp,
    /// The state; `None` if the key has none.
    pub state: Option<State>,
}
