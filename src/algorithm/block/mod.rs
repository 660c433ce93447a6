//! Blocks of keys: closed for some time, whatever the limit.

mod step;
mod wire;

use std::time::Duration;

pub(super) use self::step::BlockState;
use crate::error::Error;

/// A block of a key for some time, as [`Blocks`](crate::store::Blocks) makes it: one charge, at once for all nodes that share the store.
///
/// This is no limit, and costs do not count. A charge is admitted if it blocks the key, or blocks it for longer than before. It is refused, and changes nothing,
/// if the key is blocked for as long already. Of blocks that several nodes make at once the longest holds, whatever their order. A look is refused
/// while the key is blocked, and [`reset_after`](crate::Decision::reset_after) is the time that is left.
///
/// A key's state is the instant until which it is blocked, and a level of 0 to 255. The level is room for penalties that grow with each
/// offence, without another form of the state: it is 0 today, and a longer block leaves it as it is.
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
    /// `true` if a block that ends sooner is made longer.
    extends: bool,
}

impl Block {
    /// The name of the kind of states.
    const NAME: &'static str = "block";
    /// The first byte of an encoded state.
    pub(in crate::algorithm) const TAG: u8 = 0x59;
    /// The number by which scripts know blocks.
    pub(in crate::algorithm) const KIND: i64 = 11;

    /// The rule by which keys are looked at. A look does not depend on the length.
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

    /// Returns the block of a key that is not blocked yet. It leaves one that is blocked for less as it is.
    #[must_use]
    pub const fn of_new_key(self) -> Self {
        Self {
            extends: false,
            ..self
        }
    }

    /// Returns the time for which a key is blocked.
    pub const fn duration(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
}
