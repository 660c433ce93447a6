//! Rules: each computes a decision from a key's state, the time and a cost.
//!
//! Everything here is pure: no clock is read, no lock taken, no random number drawn. A step
//! may be run again for the same request after a lost race.

mod all;
mod any;
mod arithmetic;
mod block;
mod bucket;
mod codec;
mod counted;
mod leasable;
#[doc(hidden)]
pub mod packed;
mod rate;
mod registry;
mod rule;
mod scripted;
mod syncable;
mod ticks;
mod two_buckets;
mod warmth;

#[cfg(feature = "tokio")]
pub(crate) use self::codec::{put_number, tag::FRAME, take_number, take_tag};
#[cfg(test)]
pub(crate) use self::registry::NAMES;
#[cfg(feature = "redis")]
pub(crate) use self::registry::{LUA, Lua};
#[cfg(feature = "redis")]
pub(crate) use self::scripted::{
    ScriptTuple, can_grant, kind_in_script, logs_in_script, lone_algorithm, lone_bucket,
};
pub(crate) use self::{
    packed::{PackedAlgorithm, StepPacked},
    registry::{algorithms, rules},
};

use std::fmt;

use self::{
    any::AnyState,
    packed::{PackedKind, PackedRule, PackedState, StoreTime, TwoBuckets, TwoWords},
    registry::modules,
};
use crate::{
    decision::{Charge, Cost, Decision},
    time::Timestamp,
};

pub use self::{
    all::All,
    any::AnyRule,
    block::{Block, Blockable},
    codec::Codec,
    counted::{Counted, CountedRule, Slicing},
    leasable::{Leasable, Validity},
    scripted::Scripted,
    syncable::Syncable,
};

registry::algorithms!(modules);

/// A rule: decides on a call from the state of its key.
///
/// A value of this type is small and travels along with each call; a
/// [store](crate::store::Store) remembers only the [`State`](Self::State). So a rule can be swapped while
/// running. Within one algorithm, a swap adds no allowance for a key that has a state: an
/// exhausted client stays exhausted, and usage is cut to the new capacity. A rule of another algorithm has a state of its
/// own beside it ([`state_kind`](Self::state_kind)).
///
/// # Laws
///
/// Stores rely on them, and `tests/core/extend.rs` of this crate shows how to test them:
///
/// - A refused call returns [`Step::Kept`] and leaves the state alone. The exceptions are the first sight of a key whose
///   rule does not start at rest, and the first call that carries a count over from a window of another rule.
/// - A cost above the capacity is always refused, without a retry time.
/// - `remaining` is the greatest cost that passes at the same instant, and
///   `retry_after` the least wait after which the same call passes.
/// - From [`forgettable_at`](Self::forgettable_at) on, a key without a state gets the same decisions.
/// - If `now` lies before the state's last write, time stands still at that write.
/// - A rule that can delay a call returns `true` from [`may_delay`](Self::may_delay).
/// - Rules of one [kind](Self::state_kind) read each other's states, and a rule [for one key](Self::for_key) keeps the kind.
/// - The numbers of decisions come out the same on every machine: no floats.
/// - Rules that decide differently differ in their [`Debug`](fmt::Debug) text, and equal ones do
///   not, as with a derived one. A layer [compares](crate::RateLimitLayer::collisions) limits by
///   it, and logs it.
///
/// # A rule of one's own
///
/// A quota for a lifetime: `n` units in all, never refilled.
///
/// ```
/// use std::num::NonZeroU64;
/// use tollgate::{Charge, Cost, Decision, Quota, Timestamp, Verdict};
/// use tollgate::algorithm::{Algorithm, Step};
///
/// #[derive(Clone, Debug)]
/// struct Lifetime(NonZeroU64);
///
/// impl Lifetime {
///     fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, spent: u64) -> Decision {
///         Decision::new(verdict, now, cost)
///             .with_limit(self.0, Quota::new(self.0.get(), Quota::MAX_PERIOD))
///             .with_remaining(self.0.get().saturating_sub(spent))
///     }
/// }
///
/// impl Algorithm for Lifetime {
///     type State = u64;
///
///     fn step(&self, state: &mut Option<u64>, now: Timestamp, cost: Cost) -> Step {
///         let spent = state.unwrap_or(0);
///         match spent.checked_add(cost.get()) {
///             Some(total) if total <= self.0.get() => {
///                 *state = Some(total);
///                 Step::Wrote(self.answer(Verdict::Allow, now, cost.get(), total))
///             }
///             _ => Step::Kept(self.answer(Verdict::Refuse, now, cost.get(), spent)),
///         }
///     }
///
///     fn look(&self, state: Option<&u64>, now: Timestamp) -> Decision {
///         let spent = state.copied().unwrap_or(0);
///         let verdict = if spent < self.0.get() { Verdict::Allow } else { Verdict::Refuse };
///         self.answer(verdict, now, 0, spent)
///     }
///
///     fn settle(&self, state: &mut Option<u64>, charge: &Charge, _: Timestamp, actual: u64) {
///         if let Some(spent) = state {
///             *spent = spent.saturating_sub(charge.cost).saturating_add(actual);
///         }
///     }
///
///     fn forgettable_at(&self, _: &u64) -> Timestamp {
///         Timestamp::MAX
///     }
/// }
///
/// let rule = Lifetime(NonZeroU64::MIN);
/// let mut state = None;
/// assert!(rule.step(&mut state, Timestamp::default(), Cost::ONE).decision().is_admitted());
/// assert!(!rule.step(&mut state, Timestamp::MAX, Cost::ONE).decision().is_admitted());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a rule that can decide",
    note = "a rule is a `TokenBucket` or another one of `tollgate::algorithm`, a pair of rules, an `AnyRule` parsed from text \
            (`\"token-bucket 100/1m\".parse::<AnyRule>()?`), or a type of your own that implements `Algorithm`"
)]
pub trait Algorithm: Clone + fmt::Debug {
    /// The state of one key; small.
    ///
    /// The state types of this crate's rules have no other name than this one: `<TokenBucket as Algorithm>::State`.
    type State: Clone;

    /// Spends `cost` if the rule allows it.
    ///
    /// May be run again after a lost race. `None` is a key that is new or forgotten.
    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step;

    /// Returns the decision that a call of one unit would get. Changes nothing.
    ///
    /// `remaining` is the greatest cost that would pass, `retry_after` is for one unit.
    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision;

    /// Corrects an earlier charge to the `actual` cost in units.
    ///
    /// A lower cost refunds units (0 refunds all), a higher one is charged by force, even into debt. Never restores what
    /// refill has restored already, and never reaches out of the window that was charged.
    fn settle(&self, state: &mut Option<Self::State>, charge: &Charge, now: Timestamp, actual: u64);

    /// Returns the instant from which on a key without a state gets the same decisions as one with this state.
    ///
    /// Stores derive expiry and eviction from it.
    fn forgettable_at(&self, state: &Self::State) -> Timestamp;

    /// Returns the kind of state that this rule keeps.
    ///
    /// Two rules of one kind read each other's states, so a change of numbers carries a client's usage over. States of
    /// different kinds lie side by side under a key, and neither rule sees what the other one charged: while two
    /// releases or tenants use rules of different kinds, a key gets at most the limit of each. A rule
    /// [for one key](Self::for_key) has the kind of the rule that it was made of.
    ///
    /// By default all rules have one common kind. A rule of your own that other rules may meet under one policy returns a
    /// [kind of its own](StateKind::named).
    #[inline]
    fn state_kind(&self) -> StateKind {
        StateKind::default()
    }

    /// Returns the number of bits of [`Charge::class`] that this rule's classes take. The default, 0, is for a single class.
    fn class_bits(&self) -> u32 {
        0
    }

    /// Returns `true` if the allowance of a key can shrink while the key is idle.
    ///
    /// A warm-up cools, and a bucket that is forgotten may begin with less than it held. A [pair](#impl-Algorithm-for-(A,+B))
    /// with such a rule evaluates its members at the instant of a wait before it returns the wait. `false` by default.
    #[inline]
    fn may_shrink_when_idle(&self) -> bool {
        false
    }

    /// Returns `true` if [`step`](Self::step) can return [`Verdict::Delay`](crate::Verdict::Delay).
    ///
    /// Without the feature `tokio` requests cannot be delayed, so building a limit with such a rule fails. `false` by default.
    #[inline]
    fn may_delay(&self) -> bool {
        false
    }

    /// Returns the most bytes that an [encoded](Codec) state can take, if that grows with the usage of a key.
    ///
    /// A store that transfers whole states with each call [refuses](crate::store::Store::fits) a rule whose states take more than 64 KiB. 0, the
    /// default, is for states of a few hundred bytes at most.
    fn most_bytes(&self) -> u64 {
        0
    }

    /// Returns the rule for one key, by the key's digest, if the rule differs between keys.
    ///
    /// Stores call this before they decide. `None`, the default, is for a rule that is the same for all keys.
    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        let _ = digest;
        None
    }

    /// Returns `true` if [`settle`](Self::settle) refunds nothing of a charge because too many were refunded before. Stores count these.
    #[doc(hidden)]
    fn forgets(
        &self,
        state: Option<&Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let _ = (state, charge, now, actual);
        false
    }

    /// Returns the rule as a block if it is one, of a wrapper further out. Only [`Blocks`](crate::store::Blocks) calls this.
    #[doc(hidden)]
    fn as_block(&self) -> Option<&Block> {
        None
    }

    /// Returns the instant of the charge by which units are granted to a key after a look. Only a [`Limiter`](crate::Limiter) calls this.
    ///
    /// By default that of the look. A log returns the instant of its newest entry.
    #[doc(hidden)]
    fn grant_at(&self, look: &Decision) -> Timestamp {
        look.at()
    }

    /// Returns the units by which the charge of a grant, and its actual cost, exceed the grant. Only a [`Limiter`](crate::Limiter) calls this.
    ///
    /// A bucket refunds no more of a charge than what refill cannot have restored since. The slack keeps that above the grant for a
    /// minute after the look. `None` is for a rule that only reads charges which it has made.
    #[doc(hidden)]
    fn grant_slack(&self) -> Option<u64> {
        Some(0)
    }

    /// Returns the rule as a [`PackedRule`] if its states fit into a word each. Only the store in memory calls this.
    ///
    /// `None`, the default, is always right. A packed rule overrides [`pack`](Self::pack) and
    /// [`unpack`](Self::unpack), too.
    #[doc(hidden)]
    #[inline]
    fn packed_rule(&self) -> Option<PackedRule<'_>> {
        None
    }

    /// Packs a state into a packed state, without loss; `None` if it does not fit. Only the store in memory calls this.
    #[doc(hidden)]
    fn pack(&self, state: &Self::State, now: StoreTime) -> Option<PackedState> {
        let _ = (state, now);
        None
    }

    /// Unpacks a packed state that any rule of this type made; `None` if this type has no such packed states. Only the store in memory
    /// calls this.
    ///
    /// `kind` is that of the rule that made the packed state, or a [debt](PackedKind::DEBT).
    #[doc(hidden)]
    fn unpack(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        now: StoreTime,
    ) -> Option<Self::State> {
        let _ = (packed, packed_kind, now);
        None
    }

    /// Returns the rule as two buckets if [two words](Self::to_two_words) are their states. Only the store in memory calls this.
    ///
    /// `None`, the default, is always right. A rule with two buckets overrides the next two functions, too.
    #[doc(hidden)]
    #[inline]
    fn two_buckets(&self) -> Option<TwoBuckets<'_>> {
        None
    }

    /// Writes a state as two words, without loss; `None` if it does not fit. Only the store in memory calls this.
    #[doc(hidden)]
    #[inline]
    fn to_two_words(&self, state: &Self::State, now: StoreTime) -> Option<TwoWords> {
        let _ = (state, now);
        None
    }

    /// Reads the two words of a state that any rule of this type wrote. Only the store in memory calls this.
    #[doc(hidden)]
    #[inline]
    fn read_two_words(&self, words: TwoWords, now: StoreTime) -> Option<Self::State> {
        let _ = (words, now);
        None
    }
}

/// The result of [`Algorithm::step`]: the decision, as [`Wrote`](Self::Wrote) if the state has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The state is unchanged, so a store writes nothing.
    Kept(Decision),
    /// The state has changed.
    Wrote(Decision),
}

impl Step {
    /// Returns the decision.
    #[inline]
    pub fn decision(self) -> Decision {
        match self {
            Self::Kept(decision) | Self::Wrote(decision) => decision,
        }
    }

    /// Replaces the decision.
    fn map(self, change: impl FnOnce(Decision) -> Decision) -> Self {
        match self {
            Self::Kept(decision) => Self::Kept(change(decision)),
            Self::Wrote(decision) => Self::Wrote(change(decision)),
        }
    }
}

/// The kind of state that a rule keeps, as [`Algorithm::state_kind`] returns it.
///
/// Rules of one kind read each other's states. States of different kinds are stored side by side under a key. A kind is a
/// digest of its name, so it is the same in every release and on every machine.
///
/// ```
/// use tollgate::{AnyRule, FixedWindow, TokenBucket};
/// use tollgate::algorithm::{Algorithm, StateKind};
///
/// let bucket = TokenBucket::per_second(10);
/// assert_eq!(bucket.state_kind(), TokenBucket::per_hour(7).state_kind());
/// assert_eq!(bucket.state_kind(), AnyRule::from(bucket).state_kind());
/// assert_ne!(bucket.state_kind(), FixedWindow::per_second(10).state_kind());
///
/// // For a rule of your own:
/// const LIFETIME: StateKind = StateKind::named("example.com/lifetime");
/// assert_ne!(LIFETIME, StateKind::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKind(u64);

/// The offset basis and the prime of FNV-1a in 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

impl StateKind {
    /// Returns the kind of this name, which is the 64-bit FNV-1a hash of the name in UTF-8.
    ///
    /// Stores write it beside states: a kind whose name changes loses the states that it has.
    pub const fn named(name: &str) -> Self {
        let bytes = name.as_bytes();
        let (mut hash, mut n) = (BASIS, 0);
        while n < bytes.len() {
            hash = (hash ^ bytes[n] as u64).wrapping_mul(PRIME);
            n += 1;
        }
        Self(hash)
    }

    /// Returns the kind of a composition of this kind and one more member.
    ///
    /// Begin with the name of the composition: then the order of the members counts. It is one more round of FNV-1a, with the
    /// other kind as one word of 64 bits in the place of a byte.
    #[must_use]
    pub const fn with(self, member: Self) -> Self {
        Self((self.0 ^ member.0).wrapping_mul(PRIME))
    }

    /// Returns the kind as a number, for a store to write.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the kind that a store has written as a number.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use crate::algorithm::*;

    /// They are written into stores that several releases share.
    #[test]
    fn kinds_stay_as_they_are() {
        // The test vectors of the authors of FNV.
        assert_eq!(StateKind::named("").as_u64(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(StateKind::named("a").as_u64(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(StateKind::named("foobar").as_u64(), 0x8594_4171_f739_67e8);
        let [a, b] = ["a", "b"].map(StateKind::named);
        assert_eq!(
            a.with(b).as_u64(),
            (a.0 ^ b.0).wrapping_mul(0x0100_0000_01b3)
        );
        let all = StateKind::named("all");
        assert_ne!(all.with(a).with(b), all.with(b).with(a));
    }
}
