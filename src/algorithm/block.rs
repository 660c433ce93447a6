//! Blocks, which refuse a key for some time regardless of its limit.
//!
//! A block is a state of its own, not a field of the rule's state: the instant of its end, and a
//! level, which is 0 today and leaves room for penalties that grow. A charge moves the end to the
//! later one, so it is one atomic call, and of nodes that block a key at once the longest block
//! holds. A block as the state of a rule, in debt or full, would need a form for each rule, would
//! leave no room for anything else, and could not take the later of two ends in one charge.
//!
//! Blocks are not packed, so a new key inherits no block and no block is evicted: `Local` looks the
//! block of every client up, and would answer with inherited usage.

use std::{num::NonZeroU64, time::Duration};

use super::{
    Algorithm, StateKind, Step,
    codec::{Codec, put_instant, tag, take_byte, take_instant, take_tag},
    packed::BuiltIn,
    scripted::{ScriptTuple, Scripted, in_micros, instant, only},
};
use crate::{
    decision::{Charge, Cost, Decision, Numbers, Verdict},
    error::Error,
    quota::Quota,
    time::Timestamp,
};

/// A block, which refuses a key for some time. [`Blocks`](crate::store::Blocks) makes it with one
/// charge, for all nodes that share the store at once.
///
/// A block is not a limit, and ignores costs. A charge is admitted if it blocks the key, or extends
/// an earlier block. It is refused, and changes nothing, if the key is already blocked for at least
/// as long. If several nodes block a key at the same time, the longest block wins, in any order. A
/// look is refused while the key is blocked, and [`reset_after`](crate::Decision::reset_after) is
/// the time that remains.
///
/// A key's state is the end of the block, and a level of 0 to 255. The level is reserved for
/// penalties that grow with each offence, so that they need no new format of the state. It is 0
/// today, and a longer block keeps it.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Timestamp};
/// use tollgate::algorithm::{Algorithm, Block};
///
/// let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
/// let (now, mut state) = (Timestamp::from_nanos(1_000_000_000), None);
/// assert!(Block::try_new(hour)?.step(&mut state, now, Cost::ONE).decision().is_admitted());
///
/// // A shorter block changes nothing.
/// let shorter = Block::try_new(minute)?;
/// assert!(!shorter.step(&mut state, now, Cost::ONE).decision().is_admitted());
/// assert_eq!(shorter.look(state.as_ref(), now).reset_after(), hour);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    millis: u64,
    /// `true` if an earlier block that ends sooner is extended.
    extends: bool,
}

impl Block {
    /// The name of the [kind of state](super::StateKind).
    const NAME: &'static str = "block";
    /// The first byte of an encoded state.
    pub(super) const TAG: u8 = 0x59;
    /// The number that identifies blocks in scripts.
    pub(super) const KIND: i64 = 11;

    /// The block that looks use. A look does not depend on the duration.
    pub(crate) const LOOK: Self = Self {
        millis: 1,
        extends: false,
    };

    /// The longest block.
    const LONGEST: Duration = Duration::from_secs(365 * 86_400);

    /// Creates a block of `duration`, rounded up to whole milliseconds.
    ///
    /// # Errors
    ///
    /// When the duration is zero or above 365 days.
    pub fn try_new(duration: Duration) -> Result<Self, Error> {
        if duration.is_zero() || duration > Self::LONGEST {
            return Err(Error::new(format!(
                "a block of {duration:?}: expected 1 ms to 365 days; unblock a key to admit it again, and block it again after a year"
            )));
        }
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Ok(Self {
            millis: u64::try_from(millis).unwrap_or(u64::MAX),
            extends: true,
        })
    }

    /// Returns a block that applies only to keys that are not blocked yet. It does not extend an
    /// earlier block.
    #[must_use]
    pub const fn of_new_key(self) -> Self {
        Self {
            extends: false,
            ..self
        }
    }

    /// Returns the duration of the block.
    pub const fn duration(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

/// The state of a blocked key.
// `packed(4)` like the states of rules: 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct BlockState {
    /// The instant from which on the key is not blocked.
    pub(super) until: Timestamp,
    /// Reserved for penalties that grow: 0 today.
    pub(super) level: u8,
}

/// The limit that decisions report: a key that is not blocked takes one charge, as under a limit
/// of 1.
const LIMIT: (NonZeroU64, Quota) = (NonZeroU64::MIN, Quota::new(1, Duration::from_millis(1)));

/// Returns the decision about a key that is blocked for another `left`.
fn decision(verdict: Verdict, now: Timestamp, cost: u64, left: Duration) -> Decision {
    Decision::new(verdict, now, cost)
        .with_limit(LIMIT.0, LIMIT.1)
        .with_numbers(Numbers {
            remaining: u64::from(left.is_zero()),
            reset_after: left,
            more_after: left,
        })
}

impl Algorithm for Block {
    type State = BlockState;

    /// If the clock steps back, the end of an earlier block stays as it is.
    fn step(&self, state: &mut Option<BlockState>, now: Timestamp, cost: Cost) -> Step {
        let before = state.filter(|state| { state.until } > now);
        let until = now.saturating_add(self.duration());
        if let Some(BlockState { until: end, .. }) = before
            && (!self.extends || end >= until)
        {
            let left = end.saturating_since(now);
            let wait = match self.extends {
                true => end
                    .saturating_since(until)
                    .saturating_add(Duration::from_nanos(1)),
                false => left,
            };
            let refusal = decision(Verdict::Refuse, now, cost.get(), left);
            return Step::Kept(refusal.with_retry_after(Some(wait)));
        }
        let level = before.map_or(0, |state| state.level);
        *state = Some(BlockState { until, level });
        let left = until.saturating_since(now);
        Step::Wrote(decision(Verdict::Allow, now, cost.get(), left))
    }

    /// Refuses while the key is blocked. The rule's own duration does not matter.
    fn look(&self, state: Option<&BlockState>, now: Timestamp) -> Decision {
        let left = state.map_or(Duration::ZERO, |state| {
            { state.until }.saturating_since(now)
        });
        let verdict = match left.is_zero() {
            true => Verdict::Allow,
            false => Verdict::Refuse,
        };
        decision(verdict, now, 0, left).with_retry_after(Some(left))
    }

    /// Does nothing: a block is removed or extended, but never corrected.
    fn settle(&self, _: &mut Option<BlockState>, _: &Charge, _: Timestamp, _: u64) {}

    fn forgettable_at(&self, state: &BlockState) -> Timestamp {
        state.until
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        const { StateKind::named(Self::NAME) }
    }

    /// `None`, because charges are never refunded.
    fn grant_slack(&self) -> Option<u64> {
        None
    }

    fn built_in(&self) -> BuiltIn<'_, BlockState> {
        BuiltIn::of_block(self)
    }
}

impl BlockState {
    /// Returns `true` if the first byte is that of a block, in any version of the encoding.
    pub(super) fn begins(bytes: &[u8]) -> bool {
        let first = bytes.first().map(|byte| tag::family(*byte));
        first == Some(tag::family(Block::TAG))
    }
}

impl Codec for BlockState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(Block::TAG);
        put_instant(bytes, self.until);
        bytes.push(self.level);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, Block::TAG)?;
        Ok(Self {
            until: take_instant(bytes)?,
            level: take_byte(bytes)?,
        })
    }
}

impl Scripted for Block {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        // At most 365 days, so it fits.
        let micros = self.millis as i64 * 1000;
        parts.push(vec![Self::KIND, micros, self.extends.into()]);
        Ok(())
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<BlockState> {
        let [Self::KIND, until, level] = *only(parts)? else {
            return None;
        };
        Some(BlockState {
            until: instant(until)?,
            level: u8::try_from(level).ok()?,
        })
    }

    fn state_parts(&self, state: &BlockState, parts: &mut Vec<Option<ScriptTuple>>) {
        let until = in_micros(state.until);
        parts.push(Some(vec![Self::KIND, until, state.level.into()]));
    }
}
