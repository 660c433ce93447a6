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

mod blockable;
mod step;
mod wire;

use std::time::Duration;

pub use self::blockable::Blockable;
use self::step::BlockState;
use crate::error::Error;

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
