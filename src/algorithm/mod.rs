//! Rate limiting rules: each computes a decision from a key's state, the time and a cost.
//!
//! The [guide](crate::guide::rules) compares the rules. [`Algorithm`] is the trait that all of
//! them implement.
//!
//! Rules are pure: they read no clock, take no lock and draw no random number. So a store can run a
//! step again for the same request after a lost race.

// | file | |
// |---|---|
// | `mod` | the trait of rules, the result of a step, and the kind of a state |
// | `registry`, `<name>/` | the list of algorithms, and a folder for each |
// | `rule` | constructors and text, which all algorithms share |
// | `bucket`, `two_buckets`, `warmth` | arithmetic that some algorithms share |
// | `rate`, `ticks`, `arithmetic` | numbers below it: rates, the unit of time, products of words |
// | `all`, `any`, `block`, `blockable` | rules of rules: several at once, one that text chooses, one or a block |
// | `packed` | states in a word, for the store in memory |
// | `codec`, `scripted`, `counted` | the bounds of other stores: bytes, numbers for a script, totals |
// | `fleet_rule`, `validity` | the bounds of fleets |

mod all;
mod any;
mod arithmetic;
mod block;
mod blockable;
mod bucket;
mod codec;
mod counted;
mod fleet_rule;
#[doc(hidden)]
pub mod packed;
mod rate;
mod registry;
mod rule;
mod scripted;
mod ticks;
mod two_buckets;
mod validity;
mod warmth;

registry::algorithms!(modules);

pub use self::{
    all::All,
    any::AnyRule,
    block::Block,
    blockable::Blockable,
    codec::Codec,
    counted::{Counted, Slicing},
    fleet_rule::{FleetRule, Leasable, Shareable, Syncable},
    packed::BuiltIn,
    scripted::Scripted,
    validity::Validity,
};

#[cfg(any(test, feature = "config"))]
pub(crate) use self::registry::NAMES;
#[cfg(feature = "redis")]
pub(crate) use self::registry::{LUA, Lua};
#[cfg(feature = "redis")]
pub(crate) use self::scripted::{
    ScriptTuple, can_grant, kind_in_script, logs_in_script, lone_algorithm, lone_bucket,
};
#[cfg(feature = "tokio")]
pub(crate) use self::{
    codec::{put_number, tag::FRAME, take_number, take_tag},
    counted::slicing_for_keys,
};
pub(crate) use self::{
    in_flight::{fits_in_memory, fits_shared},
    packed::{PackedAlgorithm, StepPacked},
    registry::{algorithms, rules},
};

use std::{fmt, time::Duration};

use self::{any::AnyState, registry::modules};
use crate::{
    decision::{Charge, Cost, Decision},
    time::Timestamp,
};

/// A rule, which decides on a call from the state of its key.
///
/// A rule is a small value that is passed with each call; a [store](crate::store::Store) keeps only
/// the [`State`](Self::State) of each key. So a rule can be replaced at run time. A new rule of the
/// same algorithm adds no allowance for a key that has a state: an exhausted client stays
/// exhausted, and usage above the new capacity is cut to it. A rule of another algorithm keeps a
/// separate state ([`state_kind`](Self::state_kind)).
///
/// # Laws
///
/// Stores rely on these laws. `tests/core/extend.rs` of this crate shows how to test them.
///
/// - A refused call returns [`Step::Kept`] and leaves the state unchanged. There are two
///   exceptions: the first call of a key whose rule does not start at rest, such as a bucket that
///   starts empty, and the first call that carries a count over from a window of another rule.
/// - A cost above the capacity is always refused, without a retry time.
/// - `remaining` is the greatest cost that passes at the same instant, and
///   `retry_after` the least wait after which the same call passes.
/// - From [`forgettable_at`](Self::forgettable_at) on, a key without a state gets the same
///   decisions.
/// - If `now` is before the state's last write, the rule decides as at the time of that write.
/// - A rule that can delay a call returns `true` from [`may_delay`](Self::may_delay).
/// - Rules of one [kind](Self::state_kind) read each other's states, and a rule [for one
///   key](Self::for_key) keeps the kind.
/// - Decisions have the same numbers on every machine, so rules use no floating point.
/// - Rules that decide differently differ in their [`Debug`](fmt::Debug) text, and equal ones do
///   not, as with a derived one. A layer [compares](crate::RateLimitLayer::collisions) limits by
///   it, and logs it.
///
/// # A rule of your own
///
/// A lifetime quota: `n` units in total, never refilled.
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
#[expect(unused_variables, reason = "their names are documentation")]
pub trait Algorithm: Clone + fmt::Debug + Send + Sync + 'static {
    /// The state of one key. Keep it small: stores hold one for each key.
    ///
    /// The state types of this crate's rules have no public name of their own. Write
    /// `<TokenBucket as Algorithm>::State`.
    type State: Clone + Send + Sync + 'static;

    /// Spends `cost` if the rule allows it.
    ///
    /// `None` is the state of a key that is new or forgotten. A store may call this again for the
    /// same request after a lost race.
    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step;

    /// Returns the decision that a call of one unit would get. Changes nothing.
    ///
    /// `remaining` is the greatest cost that would pass, `retry_after` is for one unit.
    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision;

    /// Corrects an earlier charge to the `actual` cost in units.
    ///
    /// A lower cost refunds units (0 refunds all). A higher one is charged even if the key goes
    /// into debt. Units that refill has restored already are not refunded again, and a correction
    /// stays within the window that was charged.
    fn settle(&self, state: &mut Option<Self::State>, charge: &Charge, now: Timestamp, actual: u64);

    /// Returns the instant from which a key with this state gets the same decisions as a key
    /// without a state.
    ///
    /// Stores derive expiry and eviction from it.
    fn forgettable_at(&self, state: &Self::State) -> Timestamp;

    /// Returns the kind of state that this rule keeps.
    ///
    /// Rules of the same kind read each other's states, so a client keeps its usage when the
    /// numbers of a rule change. States of different kinds are stored side by side under a key, and
    /// neither rule sees the charges of the other: while two releases or tenants use rules of
    /// different kinds, a key gets at most the limit of each. A rule [for one key](Self::for_key)
    /// keeps the kind of the rule that it was made from.
    ///
    /// By default all rules have the same kind. If a policy may use other rules beside your own,
    /// return a [kind of its own](StateKind::named).
    #[inline]
    fn state_kind(&self) -> StateKind {
        StateKind::default()
    }

    /// Returns the number of bits that this rule uses of [`Charge::class`]. The default, 0, is for
    /// a single class.
    fn class_bits(&self) -> u32 {
        0
    }

    /// Returns `true` if the allowance of a key can shrink while the key is idle.
    ///
    /// For example, a warm-up cools, and a bucket that was forgotten may start with less than it
    /// held. A [pair](#impl-Algorithm-for-(A,+B)) with such a rule evaluates its members at the end
    /// of a wait before it returns the wait. `false` by default.
    #[inline]
    fn may_shrink_when_idle(&self) -> bool {
        false
    }

    /// Returns `true` if [`step`](Self::step) can return [`Verdict::Delay`](crate::Verdict::Delay).
    ///
    /// Without the feature `tokio` requests cannot be delayed, so building a limit with such a rule
    /// fails. `false` by default.
    #[inline]
    fn may_delay(&self) -> bool {
        false
    }

    /// Returns the longest time for which a call of a layer waits for its turn instead of being
    /// refused, until others have given back what they hold. `None`, the default, means that it is
    /// refused at once.
    ///
    /// For rules that count [calls in flight](InFlight#waiting).
    #[inline]
    fn waits_for_turn(&self) -> Option<Duration> {
        None
    }

    /// Returns the maximum size of an [encoded](Codec) state in bytes, if the size grows with a
    /// key's usage.
    ///
    /// A store that transfers whole states with each call [refuses](crate::store::Store::fits) a
    /// rule whose states take more than 64 KiB. 0, the default, is for states of a few hundred
    /// bytes at most.
    fn most_bytes(&self) -> u64 {
        0
    }

    /// Returns the rule for the key with this digest, if the rule differs between keys.
    ///
    /// Stores call this before they decide. `None`, the default, means that the rule is the same
    /// for all keys.
    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        None
    }

    /// Returns `true` if [`settle`](Self::settle) would refund nothing, because the state has no
    /// room for one more refund.
    ///
    /// A leaky bucket remembers refunded slots in the middle of its queue, sixteen at most. Stores
    /// call this before they settle, and count these cases. `false` by default.
    fn forgets(
        &self,
        state: Option<&Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        false
    }

    /// Returns the instant of the entry that a [grant](crate::Limiter::grant) refunds, from a look
    /// at the key; `None`, the default, for a rule that keeps no entries.
    ///
    /// A grant belongs to no call, so it settles a charge that was never made: one of the instant
    /// of the look. A log refunds one entry after the other, the newest first.
    fn grant_at(&self, look: &Decision) -> Option<Timestamp> {
        None
    }

    /// Returns the slack of a [grant](crate::Limiter::grant) in units; `None` for a rule that
    /// settles only charges that it has made, and so cannot grant.
    ///
    /// A grant corrects a charge of the granted units and the slack to the slack alone. A bucket
    /// refunds only the part of a charge that refill cannot have restored since, and returns the
    /// units of a minute. So a grant arrives whole up to a minute after the look. 0 by default.
    fn grant_slack(&self) -> Option<u64> {
        Some(0)
    }

    /// Returns after which time a charge under this rule is over unless the caller's node renews
    /// it; `None`, the default, for a rule whose charges are not renewed.
    ///
    /// A renewal is a [settlement](Self::settle) of the charge to its own units, whose
    /// [delay](Charge::delay) says from when on they count. A [`Permit`](crate::Permit) makes it.
    fn renewal(&self) -> Option<Renewal> {
        None
    }

    /// Returns what this crate knows of a rule of its own, beyond this trait. The store in memory
    /// keeps the states of some of them in a word or two, without a lock.
    ///
    /// [`BuiltIn::NONE`], the default, is always correct. A rule of your own that decides exactly
    /// as one of this crate, from its states, may return that one's.
    #[inline]
    fn built_in(&self) -> BuiltIn<'_, Self::State> {
        BuiltIn::NONE
    }
}

/// The renewals of charges under a rule, as [`Algorithm::renewal`] returns them.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{InFlight, algorithm::{Algorithm, Renewal}};
///
/// let rule = InFlight::at_most(8).lease(Duration::from_secs(30));
/// let expected = Renewal { lease: Duration::from_secs(30), max_hold: None };
/// assert_eq!(rule.renewal(), Some(expected));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The time after which a charge is over that is not renewed.
    pub lease: Duration,
    /// The time after which a charge is given back although its call goes on.
    pub max_hold: Option<Duration>,
}

/// The result of [`Algorithm::step`]: the decision, and whether the state has changed.
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
/// Rules of one kind read each other's states. States of different kinds are stored side by side
/// under a key. A kind is a digest of its name, so it is the same in every release and on every
/// machine.
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
    /// Stores write the kind beside each state. If the name changes, existing states are no longer
    /// found.
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
    /// Start with the kind that is named after the composition, so that the order of the members
    /// counts. This is one more round of FNV-1a, with the 64 bits of the other kind in place of a
    /// byte.
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

    /// Kinds are written into stores that several releases share.
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
