//! The trait of rules.

use super::{
    Block,
    packed::{Meter, PackedKind, PackedState, StoreTime, TwoBuckets, TwoWords},
    state_kind::StateKind,
    step::Step,
};
use crate::{
    decision::{Charge, Cost, Decision},
    time::Timestamp,
};

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
/// #[derive(Clone)]
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
pub trait Algorithm: Clone {
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
    /// Less gives back (0 is a refund), more is taken by force, even into debt. Never restores what
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

    /// Returns the bytes that a state can take [in bytes](super::Codec), if their number grows with what a key has used.
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

    /// Returns `true` if [`settle`](Self::settle) gives nothing back of a charge because too many were given back before. Stores count these.
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
    /// A bucket gives back no more of a charge than what refill cannot have restored since. The slack keeps that above the grant for a
    /// minute after the look. `None` is for a rule that only reads charges which it has made.
    #[doc(hidden)]
    fn grant_slack(&self) -> Option<u64> {
        Some(0)
    }

    /// Returns the rule as a [`Meter`] if its states fit into a word each. Only the store in memory calls this.
    ///
    /// `None`, the default, is always right. A rule with a meter overrides [`pack`](Self::pack) and
    /// [`unpack`](Self::unpack), too.
    #[doc(hidden)]
    #[inline]
    fn meter(&self) -> Option<Meter<'_>> {
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
