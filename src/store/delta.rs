//! Units that a node admitted by itself, and the states that a store returns for them.
//!
//! A store takes deltas in and returns the state (`FleetStore::sync`), not the numbers of a
//! decision: from a state the node goes on by the rule itself, so its refusals and its headers are
//! those of the rule. A delta is a settlement of a charge of nothing, so no algorithm needs a
//! function more.
//!
//! # Time
//!
//! A delta counts as of its first unit, which is given by its age. A bucket has refilled since, so
//! it moves to `max(TAT, first) + n·T`; a window counts it if it contains that instant. With an
//! instant instead of an age, the node's knowledge of the store's clock is part of the sum: in
//! random schedules a single node exceeded its bucket, because an instant that is early by a round
//! trip refills what was not spent yet. Counted back from the arrival it is late by the way there,
//! which is on the side of the limit. What other nodes wrote later stands: if a bucket was full
//! between the two, a late delta costs up to what was refilled and lost. To know better, the store
//! would have to keep a history.
//!
//! # Exactly once
//!
//! A lost answer leaves it open whether a delta arrived, so the node sends it again, with the same
//! sequence number. The last number of each node lies in the key's own value, as a state of a kind
//! of its own: so it is written with the state, needs no second key, which a cluster might keep
//! elsewhere, and programs and releases that know nothing of it keep it. It stays a minute longer
//! than all states. If it ended with them, a repeated delta could count twice: another node may
//! have written meanwhile, so the delta is not without effect although it has been refilled. At
//! most 128 nodes are kept, in about 2 kB. A delta that is repeated after that, or later, counts
//! twice, which is on the side of the limit.
//!
//! # Results
//!
//! Each delta has a result of its own, beside one of the whole call (`SyncFuture`). A call carries
//! the units of up to 256 clients. With one result for all, a client whose rule does not fit a
//! script would fail the calls of all others, in each period again. The error of the whole call is
//! for a server that answered nothing: deadlines and circuit breakers act on it as on any other
//! call, and nobody copies one error 256 times. Contended keys have seven attempts if other keys
//! wait for the same answer, so that these fit into a usual deadline.

use std::time::Duration;

use crate::{algorithm::Algorithm, key::Key, policy::Policy, store::StateKey, time::Timestamp};

/// Units that a node admitted by itself. A store adds them to the state of a key, once, whatever is
/// left.
///
/// [`FleetStore::sync`](super::driver::FleetStore::sync) takes them in.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Policy, TokenBucket, store::driver::{Batch, Delta}};
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

/// The number of a [`Delta`]. A key gets each number of a node once, however often the delta
/// arrives.
///
/// ```
/// use tollgate::store::driver::Batch;
///
/// let first = Batch { node: 7, number: 1 };
/// assert_eq!(Batch { number: 2, ..first }.node, 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The node, drawn at random for each start: below 2⁵³, because scripts count by such numbers.
    pub node: u64,
    /// The sequence number: greater than those of all earlier deltas of the node to the key, and
    /// below 2⁵³.
    pub number: u64,
}

impl<'a, Rule> Delta<'a, Rule> {
    /// Creates a delta of `units`; 0 asks for the state alone. `age` is the time from the first
    /// admission to the sending of the delta.
    ///
    /// An age, and not an instant, because the clock of a node and that of the store differ. The
    /// store counts back from the arrival, which is later than the first unit by the time that the
    /// delta was under way: never too early, so no bucket refills what was spent later.
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

    /// Returns the instant of the first admission, by the clock of a store at which the delta
    /// arrives `now`.
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

/// A delta as a store works on it, also after the call has returned. `At` says where its
/// state is.
#[cfg(feature = "tokio")]
pub(super) struct ResolvedDelta<Rule, At> {
    pub(super) at: At,
    /// The rule, as it applies to the key.
    pub(super) rule: Rule,
    pub(super) batch: Batch,
    pub(super) age: Duration,
    pub(super) units: u64,
}

#[cfg(feature = "tokio")]
impl<Rule: Algorithm, At> ResolvedDelta<Rule, At> {
    pub(super) fn new(delta: &Delta<'_, Rule>, at: At) -> Self {
        let rule = delta.rule_for_key();
        Self {
            at,
            rule: rule.unwrap_or_else(|| delta.rule.clone()),
            batch: delta.batch,
            age: delta.age,
            units: delta.units,
        }
    }
}

/// The state of a key, as [`FleetStore::sync`](super::driver::FleetStore::sync) returns it.
///
/// ```
/// use tollgate::{Timestamp, TokenBucket, algorithm::Algorithm, store::driver::Pulled};
///
/// // The key is like new.
/// let pulled = Pulled::<<TokenBucket as Algorithm>::State> {
///     at: Timestamp::default(),
///     state: None,
/// };
/// # let _ = pulled;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled<State> {
    /// The instant by the clock of the store.
    pub at: Timestamp,
    /// The state; `None` if the key has none.
    pub state: Option<State>,
}
