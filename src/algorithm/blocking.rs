//! Rules whose states can be blocks of keys.

use std::{num::NonZeroU64, time::Duration};

use super::{Algorithm, AnyRule, FixedWindow, LeakyBucket, TokenBucket};
use crate::{
    decision::{Cost, Decision},
    quota::Quota,
};

/// A rule whose state can express that a key is closed for some time, for [`Blocks`](crate::store::Blocks).
///
/// A block is a state in the store, so its rule must be of the type that the store runs. [`TokenBucket`], [`LeakyBucket`],
/// [`FixedWindow`], [`AnyRule`] and pairs of the first two can express one to the millisecond. Any other rule of this crate becomes an
/// `AnyRule`. The trait is sealed.
///
/// ```
/// use tollgate::{AnyRule, SlidingLog, store::{Local, StoreExt, Store}};
///
/// fn can_block<Rule>(_: impl Store<Rule>) {}
/// // A sliding log cannot express a block, but a store of `AnyRule` keeps both.
/// can_block::<AnyRule>(Local::new().with_blocks());
/// let rule = AnyRule::from(SlidingLog::per_minute(100));
/// # let _ = rule;
/// ```
#[diagnostic::on_unimplemented(
    message = "the rule `{Self}` cannot express a block",
    note = "a block is kept as a state of the store's rule type: that of `TokenBucket`, `LeakyBucket`, `FixedWindow`, `AnyRule`, or a \
            pair of the first two; run any other rule as an `AnyRule`, as in `AnyRule::from(rule)` with a store of `AnyRule`"
)]
pub trait Blocking: Algorithm + sealed::Sealed {
    /// The kind of state that a block is.
    #[doc(hidden)]
    type Form;

    /// Returns the rule under which blocks are looked at.
    #[doc(hidden)]
    fn looking_at_blocks() -> Self;

    /// Returns the time that is left of the block that a look found; zero if there is none.
    #[doc(hidden)]
    fn left_of_block(look: &Decision) -> Duration {
        look.reset_after()
    }

    /// Returns the charge after which a key is blocked for `millis` milliseconds from the look on: the rule and the cost.
    ///
    /// The look found that less is left of an earlier block.
    #[doc(hidden)]
    fn blocking(look: &Decision, millis: u64) -> (Self, Cost) {
        let left = Self::left_of_block(look).as_millis();
        let more = millis.saturating_sub(u64::try_from(left).unwrap_or(u64::MAX));
        (
            Self::looking_at_blocks(),
            Cost::new(more).unwrap_or(Cost::ONE),
        )
    }

    /// Returns the milliseconds by which a charge of a block has made it longer than `millis`, because of another charge since the look.
    #[doc(hidden)]
    fn excess_of_block(charged: &Decision, millis: u64) -> u64 {
        let blocked = u64::try_from(charged.reset_after().as_millis()).unwrap_or(u64::MAX);
        blocked.saturating_sub(millis)
    }
}

/// A block that is a debt, of a unit for each millisecond.
#[derive(Debug)]
pub struct Debt;

/// A block that is a window of its length.
#[derive(Debug)]
pub struct Window;

/// The rate of a debt.
const MILLIS: Quota = Quota::new(1000, Duration::from_secs(1));

/// The most milliseconds of a debt, four years: too many for a packed state. So [`Local`](crate::store::Local) evicts no block.
const MOST_DEBT: NonZeroU64 = NonZeroU64::MIN.saturating_add(1 << 37);

/// The longest window in milliseconds.
const LONGEST_WINDOW: u64 = 1 << 37;

impl Blocking for TokenBucket {
    type Form = Debt;

    fn looking_at_blocks() -> Self {
        Self::OF_BLOCKS
    }
}

impl TokenBucket {
    /// The bucket that a block has in debt.
    const OF_BLOCKS: Self = Self::constant(MILLIS, MOST_DEBT);

    /// Returns `true` if the states are blocks. A new key inherits none.
    pub(super) fn is_of_blocks(&self) -> bool {
        *self == Self::OF_BLOCKS
    }
}

impl Blocking for LeakyBucket {
    type Form = Debt;

    fn looking_at_blocks() -> Self {
        Self::OF_BLOCKS
    }
}

impl LeakyBucket {
    /// The queue that is as long as the block.
    const OF_BLOCKS: Self = Self::constant(MILLIS, MOST_DEBT);

    /// Returns `true` if the states are blocks. A new key inherits none.
    pub(super) fn is_of_blocks(&self) -> bool {
        *self == Self::OF_BLOCKS
    }
}

impl Blocking for AnyRule {
    type Form = Debt;

    fn looking_at_blocks() -> Self {
        Self::TokenBucket(TokenBucket::OF_BLOCKS)
    }
}

impl<A: Blocking<Form = Debt>, B: Blocking<Form = Debt>> Blocking for (A, B) {
    type Form = Debt;

    fn looking_at_blocks() -> Self {
        (A::looking_at_blocks(), B::looking_at_blocks())
    }
}

/// A block is a window from its first call on, as long as the block and full. Its count is its length in milliseconds, which a look under
/// the longest window reads, and how long ago the window began.
impl Blocking for FixedWindow {
    type Form = Window;

    fn looking_at_blocks() -> Self {
        const { Self::of_blocks(LONGEST_WINDOW) }
    }

    fn left_of_block(look: &Decision) -> Duration {
        let (length, since) = Self::block_in(look);
        Duration::from_millis(length).saturating_sub(since)
    }

    fn blocking(look: &Decision, millis: u64) -> (Self, Cost) {
        let (before, since) = Self::block_in(look);
        let length = since.saturating_add(Duration::from_millis(millis));
        // A longer window of the same beginning. It is full, so the charge fails if another one was faster.
        let length = u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let length = length.clamp(1, LONGEST_WINDOW);
        let more = length.saturating_sub(before);
        (
            Self::of_blocks(length),
            Cost::new(more).unwrap_or(Cost::ONE),
        )
    }

    /// Zero: a charge after another one is refused.
    fn excess_of_block(_: &Decision, _: u64) -> u64 {
        0
    }
}

impl FixedWindow {
    /// Returns the window of a block.
    const fn of_blocks(millis: u64) -> Self {
        Self::constant_from_first_call(Quota::new(millis, Duration::from_millis(millis)))
    }

    /// Returns `true` if the states are blocks. A new key inherits none.
    pub(super) fn is_of_blocks(&self) -> bool {
        let millis = self.quota().amount();
        self.is_from_first_call() && self.quota().period_nanos() == millis.saturating_mul(1_000_000)
    }

    /// Returns the length of a block in milliseconds, and the time since its beginning; zero and zero if there is none.
    fn block_in(look: &Decision) -> (u64, Duration) {
        let length = LONGEST_WINDOW.saturating_sub(look.remaining().unwrap_or(LONGEST_WINDOW));
        if length == 0 {
            return (0, Duration::ZERO);
        }
        let longest = Duration::from_millis(LONGEST_WINDOW);
        (length, longest.saturating_sub(look.reset_after()))
    }
}

mod sealed {
    use super::{AnyRule, FixedWindow, LeakyBucket, TokenBucket};

    pub trait Sealed {}
    impl Sealed for TokenBucket {}
    impl Sealed for LeakyBucket {}
    impl Sealed for FixedWindow {}
    impl Sealed for AnyRule {}
    impl<A: Sealed, B: Sealed> Sealed for (A, B) {}
}
