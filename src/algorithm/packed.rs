//! Packed states: states that are one instant, or begin with one, so that a word holds them; their
//! kinds, and the rules that have them.
//!
//! A rule returns them as its [`BuiltIn`], which nothing outside of this crate can make. The store
//! in memory reads it by the methods of [`InMemory`].
//!
//! A packed token bucket is the instant when it was empty, a packed queue the instant when it is
//! idle again, a packed window its start plus a tick per counted unit. All three only grow by
//! spending, and mean the same to every rule that reads them. Calls in flight hold fewer units when
//! they end. So their packed state begins with an instant, which becomes later with each change,
//! and it only grows, too. States that need more stay in the map: refunded slots in the middle of a
//! queue, counts carried into a window, windows with an offset, spans of a maximal hold.

use std::fmt;

use super::{
    Algorithm, All, Block, cascade::Cascade, fixed_window::FixedWindow, in_flight::InFlight,
    leaky_bucket::LeakyBucket, sliding_window::SlidingWindow, three_color::ThreeColor,
    ticks::PER_NANO, token_bucket::TokenBucket,
};
use crate::{
    decision::{Cost, Decision},
    time::Timestamp,
};

pub use super::two_buckets::TwoBuckets;

/// A state that is one instant, or begins with one: for a token bucket, the instant at which it was
/// last empty. Its [`PackedKind`] is the meaning for other rules, and the time for which it
/// matters.
///
/// Counted in ticks of a third of a nanosecond on the scale of one store: 0 to 2⁶² − 1. A store can
/// keep a packed state in a word of 64 bits, and replace it without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackedState(u64);

impl PackedState {
    /// The latest packed state.
    pub const MAX: Self = Self((1 << 62) - 1);
    /// The ticks in a nanosecond.
    pub const PER_NANO: u64 = PER_NANO;
    /// The longest time for which a rule's packed states may matter, in ticks: two years.
    pub const LONGEST: u64 = 2 * 365 * 86_400_000_000_000 * Self::PER_NANO;

    /// Creates the packed state `ticks` ticks after the scale's beginning, or [`MAX`](Self::MAX).
    #[inline]
    pub const fn new(ticks: u64) -> Self {
        if ticks < Self::MAX.0 {
            Self(ticks)
        } else {
            Self::MAX
        }
    }

    /// Creates a packed state that fits into a word of a table, of at most 60 bits.
    #[inline]
    pub(crate) const fn of_60_bits(ticks: u64) -> Self {
        debug_assert!(ticks <= Self::MAX.0);
        Self(ticks)
    }

    /// Returns the ticks since the scale's beginning.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the packed state this many ticks later, or earlier; within the scale.
    #[inline]
    #[must_use]
    pub const fn shifted(self, ticks: i64) -> Self {
        Self::new(self.0.saturating_add_signed(ticks))
    }

    /// Returns the packed state of a bucket that holds `level`, 0 to [`LONGEST`](Self::LONGEST), at
    /// this instant.
    #[inline]
    pub(super) const fn before(self, level: i64) -> Self {
        // Every store time has that much of the scale before it.
        Self(self.0 - level as u64)
    }

    /// Returns the packed state this many ticks later, up to [`LONGEST`](Self::LONGEST) after a
    /// store time.
    #[inline]
    pub(super) const fn after(self, ticks: u64) -> Self {
        // Every store time has that much of the scale after it.
        Self(self.0 + ticks)
    }

    /// The bits of the units that calls in flight hold.
    const UNIT_BITS: u32 = 12;
    /// The most units that calls in flight hold in a packed state.
    pub(super) const MOST_HELD: u64 = (1 << Self::UNIT_BITS) - 1;

    /// Returns the units that calls in flight hold, from a state of that [kind](PackedKind).
    #[inline]
    pub(crate) const fn held(self) -> u64 {
        self.0 & Self::MOST_HELD
    }

    /// Returns the state of calls in flight that hold this many units, at the next instant after
    /// this one. Returns `None` if they are too many for it.
    ///
    /// An instant takes 1.4 µs. A key that changes more often runs ahead of the time. Then only its
    /// slot is of no use to other keys, until the time has caught up.
    #[inline]
    pub(crate) fn then_holding(self, units: u64) -> Option<Self> {
        let next = ((self.0 >> Self::UNIT_BITS) + 1) << Self::UNIT_BITS;
        (units <= Self::MOST_HELD).then(|| Self::new(next | units))
    }

    /// Returns the ticks from `earlier` to this one; below zero if that is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> i64 {
        // Both are below 2^62.
        self.0 as i64 - earlier.0 as i64
    }
}

/// A state of two buckets: when each was last empty.
pub type TwoWords = [PackedState; 2];

/// An instant on a store's timeline, and as a packed state on its scale.
#[derive(Clone, Copy, Debug)]
pub struct StoreTime {
    at: Timestamp,
    packed: PackedState,
    /// The Unix epoch on the scale, in two's complement.
    epoch: u64,
}

impl StoreTime {
    /// Creates the store time of `at`, on the scale of a store that was made at `made` or before.
    ///
    /// The scale begins two years before `made`, so that every bucket that matters lies on it, and
    /// goes on for two years after the latest store time.
    #[inline]
    pub const fn new(at: Timestamp, made: Timestamp) -> Self {
        let mut nanos = at.nanos_since(made);
        const LATEST: u64 = (PackedState::MAX.0 - 2 * PackedState::LONGEST) / PackedState::PER_NANO;
        if nanos > LATEST {
            nanos = LATEST;
        }
        let packed = PackedState(nanos * PackedState::PER_NANO + PackedState::LONGEST);
        let epoch =
            PackedState::LONGEST.wrapping_sub(made.as_nanos().wrapping_mul(PackedState::PER_NANO));
        Self { at, packed, epoch }
    }

    /// Returns the instant.
    #[inline]
    pub const fn at(self) -> Timestamp {
        self.at
    }

    /// Returns the instant as a packed state.
    #[inline]
    pub const fn packed(self) -> PackedState {
        self.packed
    }

    /// Returns the instant of a packed state on the scale, in ticks, rounded up to a nanosecond.
    pub(crate) fn instant_of(self, packed: u64) -> Timestamp {
        let per_nano = i128::from(PackedState::PER_NANO);
        let ahead = i128::from(packed) - i128::from(self.packed.0);
        let nanos = i128::from(self.at.as_nanos()) + (ahead + per_nano - 1).div_euclid(per_nano);
        Timestamp::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Returns the ticks from the Unix epoch to a packed state that is not before it, modulo 2⁶⁴;
    /// independent of the instant.
    #[inline]
    pub(super) const fn since_epoch(self, packed: PackedState) -> u64 {
        packed.0.wrapping_sub(self.epoch)
    }

    /// Returns the packed state `ticks` ticks after an instant, if it lies on the scale.
    pub(crate) fn packed_after(self, at: Timestamp, ticks: i64) -> Option<PackedState> {
        let since = i128::from(at.as_nanos()) - i128::from(self.at.as_nanos());
        let shift = since * i128::from(PackedState::PER_NANO) + i128::from(ticks);
        let packed = u64::try_from(i128::from(self.packed.0) + shift).ok()?;
        (packed <= PackedState::MAX.0).then_some(PackedState(packed))
    }
}

/// The kind of a [`PackedState`], and the time for which it matters; a store keeps it beside the
/// packed state.
///
/// | packed state of | it is | it matters |
/// |---|---|---|
/// | a bucket | when the bucket was last empty | as long as that bucket takes to fill |
/// | a queue | when the queue is idle again | until then |
/// | a window | when the window began, and a tick for each unit that was counted | as long as the window |
/// | a sliding window | when its newest slice began, and the counters of its slices in binary digits | as long as the window and a slice |
/// | calls in flight | an instant that becomes later with each change, and the units that they hold in its lowest bits | while they hold any |
/// | a rule whose states take two words | the last tick at which the state matters; the state is beside it | until then |
/// | a debt | any of these but the last two: each rule reads it as its own | – |
// The highest two bits are the kind, and that of buckets is the greatest: of two kinds of buckets,
// the greater one is longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedKind(u64);

/// The kind of a [`PackedState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Debt,
    InFlight,
    Queue,
    /// A window of this length in ticks.
    Window(u64),
    Slices(PackedSlices),
    Bucket,
}

/// The slices of a sliding window, all of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedSlices {
    /// The number of slices in the window: 1 to [`MAX_COUNT`](Self::MAX_COUNT).
    pub(super) count: u64,
    /// The length of a slice in ticks.
    pub(super) length: u64,
}

impl PackedSlices {
    pub(super) const MAX_COUNT: u64 = KIND_MASK >> COUNT_SHIFT;
}

const KIND_SHIFT: u32 = 62;
const KIND_MASK: u64 = (1 << KIND_SHIFT) - 1;
/// The number of slices of a sliding window lies below the kind, which is that of windows. It is 0
/// for all others.
const COUNT_SHIFT: u32 = 58;
const LASTS: u64 = (1 << COUNT_SHIFT) - 1;
const _: () = assert!(PackedState::LONGEST <= LASTS);
const QUEUE: u64 = 1 << KIND_SHIFT;
const WINDOW: u64 = 2 << KIND_SHIFT;
const BUCKET: u64 = 3 << KIND_SHIFT;

impl PackedKind {
    /// The usage of a key whose algorithm is not known.
    pub const DEBT: Self = Self(0);

    /// The kind of a state in two words.
    pub(crate) const TWO_WORDS: Self = Self(1);

    /// The kind of calls in flight.
    pub(crate) const IN_FLIGHT: Self = Self(2);

    pub(super) const QUEUE: Self = Self(QUEUE);

    /// Creates the kind of a bucket that fills in `full` ticks, at most [`PackedState::LONGEST`].
    #[inline]
    pub(super) const fn bucket(full: u64) -> Self {
        debug_assert!(full <= PackedState::LONGEST);
        Self(BUCKET | full)
    }

    /// Creates the kind of a window of `period` ticks, at most [`PackedState::LONGEST`].
    #[inline]
    pub(super) const fn window(period: u64) -> Self {
        debug_assert!(period <= PackedState::LONGEST);
        Self(WINDOW | period)
    }

    /// Creates the kind of a sliding window that lasts, with a slice more, at most
    /// [`PackedState::LONGEST`].
    #[inline]
    pub(super) const fn slices(slices: PackedSlices) -> Self {
        let PackedSlices { count, length } = slices;
        let lasts = (count + 1) * length;
        debug_assert!(0 < count && count <= PackedSlices::MAX_COUNT);
        debug_assert!(lasts <= PackedState::LONGEST);
        Self(WINDOW | count << COUNT_SHIFT | lasts)
    }

    pub(super) const fn meaning(self) -> Meaning {
        match self.0 & !KIND_MASK {
            BUCKET => Meaning::Bucket,
            WINDOW => match (self.0 & KIND_MASK) >> COUNT_SHIFT {
                0 => Meaning::Window(self.lasts()),
                count => Meaning::Slices(PackedSlices {
                    count,
                    length: self.lasts() / (count + 1),
                }),
            },
            QUEUE => Meaning::Queue,
            _ if self.is_in_flight() => Meaning::InFlight,
            _ => Meaning::Debt,
        }
    }

    /// Returns the time for which a packed state matters after its instant, in ticks.
    #[inline]
    pub const fn lasts(self) -> u64 {
        self.0 & LASTS
    }

    /// Returns `true` for a state in two words.
    #[inline]
    pub(crate) const fn is_two_words(self) -> bool {
        self.0 == Self::TWO_WORDS.0
    }

    /// Returns `true` for calls in flight.
    #[inline]
    pub(crate) const fn is_in_flight(self) -> bool {
        self.0 == Self::IN_FLIGHT.0
    }

    /// Returns `true` for a bucket; the packed states of all buckets have the same meaning.
    #[inline]
    pub(crate) const fn is_bucket(self) -> bool {
        self.0 >= BUCKET
    }

    /// Returns `true` if this is the kind of a sliding window, and a rule of kind `other`, or
    /// without one, may count the same calls in other slices. That depends on the instant of the
    /// last write, which is not packed.
    pub(crate) fn is_counted_again_by(self, other: Option<Self>) -> bool {
        matches!(self.meaning(), Meaning::Slices(_)) && other != Some(self)
    }

    /// Returns the kind of a packed state that rules of both kinds have charged, this one first.
    ///
    /// All buckets read one packed state, which matters as long as it does to the longest of them.
    /// Of other kinds, the last one replaces the former.
    #[inline]
    pub(crate) const fn or_longer(self, other: Self) -> Self {
        if self.is_bucket() && other.is_bucket() && self.lasts() > other.lasts() {
            self
        } else {
            other
        }
    }

    /// Returns the kind as a number above zero; that of a longer bucket is greater.
    #[inline]
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// Returns the kind of a [`number`](Self::number); 0 is a [debt](Self::DEBT).
    #[inline]
    pub(crate) const fn of_number(number: u64) -> Self {
        Self(number)
    }
}

/// A rule of this crate, as [`Algorithm::built_in`] shows it to the crate's own stores.
///
/// It has no methods: only the stores and wrappers of this crate read it.
pub struct BuiltIn<'a, S> {
    form: Form<'a>,
    words: Option<&'a (dyn InWords<S> + 'a)>,
}

/// The rules that stores and wrappers tell apart.
///
/// It is read as late as possible, in the methods of [`InMemory`]: a value that said more, such as
/// the buckets of a list, cost an [`AnyRule`](super::AnyRule) a tenth of each decision.
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    Plain,
    Bucket(&'a TokenBucket),
    Queue(&'a LeakyBucket),
    Window(&'a FixedWindow),
    Slices(&'a SlidingWindow),
    Both(&'a TokenBucket, &'a TokenBucket),
    Either(&'a Cascade),
    Marked(&'a ThreeColor),
    List(&'a All),
    InFlight(&'a InFlight),
    Block(&'a Block),
}

/// A rule that reads and writes its states as words of the store in memory.
///
/// Also rules whose own states are not packed read a [debt](PackedKind::DEBT).
#[expect(unused_variables, reason = "their names are documentation")]
pub(super) trait InWords<S> {
    /// See [`InMemory::pack`].
    fn write_word(&self, state: &S, now: StoreTime) -> Option<PackedState> {
        None
    }

    /// See [`InMemory::unpack`].
    fn read_word(&self, packed: PackedState, packed_kind: PackedKind, now: StoreTime) -> Option<S> {
        None
    }

    /// See [`InMemory::to_two_words`].
    fn write_words(&self, state: &S, now: StoreTime) -> Option<TwoWords> {
        None
    }

    /// See [`InMemory::read_two_words`].
    fn read_words(&self, words: TwoWords, now: StoreTime) -> Option<S> {
        None
    }
}

impl<'a, S> BuiltIn<'a, S> {
    /// Nothing: a rule that is known by the trait alone.
    pub const NONE: Self = Self {
        form: Form::Plain,
        words: None,
    };

    #[inline(always)]
    pub(super) fn new(form: Form<'a>, rule: &'a (dyn InWords<S> + 'a)) -> Self {
        let words = Some(rule);
        Self { form, words }
    }

    pub(super) fn of_block(block: &'a Block) -> Self {
        let form = Form::Block(block);
        Self { form, words: None }
    }

    #[inline(always)]
    pub(super) fn form(self) -> Form<'a> {
        self.form
    }

    /// Returns the block, if the rule is one that an outer wrapper made.
    pub(super) fn block(self) -> Option<&'a Block> {
        match self.form {
            Form::Block(block) => Some(block),
            _ => None,
        }
    }
}

impl<S> fmt::Debug for BuiltIn<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltIn").finish_non_exhaustive()
    }
}

/// The packed form of a rule, which the store in memory reads from its [`BuiltIn`].
pub trait InMemory: Algorithm {
    /// Returns the rule as a [`PackedRule`] if its states fit into a word each.
    #[inline(always)]
    fn packed_rule(&self) -> Option<PackedRule<'_>> {
        Some(PackedRule(match self.built_in().form {
            Form::Bucket(rule) if rule.is_packed() => PackedAlgorithm::Bucket(rule),
            Form::Queue(rule) if rule.is_packed() => PackedAlgorithm::Queue(rule),
            Form::Window(rule) if rule.is_packed() => PackedAlgorithm::Window(rule),
            Form::Slices(rule) if rule.is_packed() => PackedAlgorithm::Slices(rule),
            _ => return None,
        }))
    }

    /// Returns `true` if both rules are the same token bucket, of which each may [keep
    /// free](TokenBucket::keep_free) another part.
    fn is_same_bucket(&self, other: &Self) -> bool {
        match (self.built_in().form, other.built_in().form) {
            (Form::Bucket(a), Form::Bucket(b)) => a.whole() == b.whole(),
            _ => false,
        }
    }

    /// Returns `true` for a token bucket.
    fn is_bucket(&self) -> bool {
        matches!(self.built_in().form, Form::Bucket(_))
    }

    /// Returns `true` for a token bucket that keeps some tokens free: calls under another rule may
    /// pass while those under this one are refused.
    fn keeps_free(&self) -> bool {
        matches!(self.built_in().form, Form::Bucket(rule) if rule.kept_free() > 0)
    }

    /// Packs a state into a packed state, without loss; `None` if it does not fit.
    #[inline]
    fn pack(&self, state: &Self::State, now: StoreTime) -> Option<PackedState> {
        self.built_in().words?.write_word(state, now)
    }

    /// Unpacks a packed state that any rule of this type made; `None` if this type has no such
    /// packed states.
    ///
    /// `kind` is that of the rule that made the packed state, or a [debt](PackedKind::DEBT).
    #[inline]
    fn unpack(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        now: StoreTime,
    ) -> Option<Self::State> {
        self.built_in().words?.read_word(packed, packed_kind, now)
    }

    /// Returns the rule as two buckets if [two words](Self::to_two_words) are their states.
    #[inline(always)]
    fn two_buckets(&self) -> Option<TwoBuckets<'_>> {
        match self.built_in().form {
            Form::Both(a, b) => TwoBuckets::both(a, b),
            Form::Either(rule) => TwoBuckets::either(rule),
            Form::Marked(rule) => TwoBuckets::marked(rule),
            Form::List(rule) => rule.two_buckets(),
            _ => None,
        }
    }

    /// Returns the rule if it is one of calls in flight whose states fit into a word each.
    #[inline(always)]
    fn packed_in_flight(&self) -> Option<&InFlight> {
        match self.built_in().form {
            Form::InFlight(rule) if rule.is_packed() => Some(rule),
            _ => None,
        }
    }

    /// Writes a state as two words, without loss; `None` if it does not fit.
    #[inline]
    fn to_two_words(&self, state: &Self::State, now: StoreTime) -> Option<TwoWords> {
        self.built_in().words?.write_words(state, now)
    }

    /// Reads the two words of a state that any rule of this type wrote.
    #[inline]
    fn read_two_words(&self, words: TwoWords, now: StoreTime) -> Option<Self::State> {
        self.built_in().words?.read_words(words, now)
    }
}

impl<R: Algorithm> InMemory for R {}

/// A rule whose states are [`PackedState`]s. The page of [`Local`](crate::store::Local#memory)
/// lists such rules.
// One type for all, so that a store has no more of them than rules of any kind: for a rule whose
// kind is known to the compiler, nothing is left of the choice.
#[derive(Clone, Copy, Debug)]
pub struct PackedRule<'a>(PackedAlgorithm<'a>);

/// The rule in a [`PackedRule`], by its algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackedAlgorithm<'a> {
    Bucket(&'a TokenBucket),
    Queue(&'a LeakyBucket),
    Window(&'a FixedWindow),
    Slices(&'a SlidingWindow),
}

/// A rule that counts in packed states.
pub(crate) trait StepPacked {
    /// The greatest distance of its packed states ahead of the time, in ticks.
    const AHEAD: u64;

    /// See [`PackedRule::packed_kind`].
    fn packed_kind(&self) -> PackedKind;

    /// Returns `true` if packed states of this kind mean the same to the rule as its own.
    #[inline(always)]
    fn reads(&self, packed_kind: PackedKind) -> bool {
        self.packed_kind() == packed_kind
    }

    /// Returns `true` if its packed states matter no longer than those of a kind that it
    /// [reads](Self::reads).
    #[inline(always)]
    fn keeps_to(&self, packed_kind: PackedKind) -> bool {
        let _ = packed_kind;
        true
    }

    /// Steps on a packed state of a kind that it [reads](Self::reads); see [`PackedRule::step`].
    fn step_packed(
        &self,
        packed: PackedState,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision);

    /// See [`PackedRule::step`].
    fn step_debt(
        &self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision);

    /// See [`PackedRule::floor`].
    fn floor(&self, now: StoreTime) -> PackedState;
}

impl<'a> PackedRule<'a> {
    /// Returns the rule by its algorithm, so that a fast path can choose once.
    #[inline(always)]
    pub(crate) fn algorithm(self) -> PackedAlgorithm<'a> {
        self.0
    }

    /// Returns the kind of the rule's packed states, and the time for which they matter.
    #[inline]
    pub fn packed_kind(self) -> PackedKind {
        match self.0 {
            PackedAlgorithm::Bucket(rule) => rule.packed_kind(),
            PackedAlgorithm::Queue(rule) => rule.packed_kind(),
            PackedAlgorithm::Window(rule) => rule.packed_kind(),
            PackedAlgorithm::Slices(rule) => rule.packed_kind(),
        }
    }

    /// Spends `cost` if the rule allows it. Returns the new packed state, which is above the former
    /// one, if so; and the decision.
    ///
    /// `None` is a key that is new or forgotten. A packed state may have any kind: it is read as a
    /// [debt](PackedKind::DEBT).
    #[inline]
    pub fn step(
        self,
        debt: Option<PackedState>,
        now: StoreTime,
        cost: Cost,
    ) -> (Option<PackedState>, Decision) {
        match self.0 {
            PackedAlgorithm::Bucket(rule) => rule.step_debt(debt, now, cost),
            PackedAlgorithm::Queue(rule) => rule.step_debt(debt, now, cost),
            PackedAlgorithm::Window(rule) => rule.step_debt(debt, now, cost),
            PackedAlgorithm::Slices(rule) => rule.step_debt(debt, now, cost),
        }
    }

    /// Returns a packed state below all those that this rule makes for new keys.
    pub(crate) fn floor(self, now: StoreTime) -> PackedState {
        match self.0 {
            PackedAlgorithm::Bucket(rule) => rule.floor(now),
            PackedAlgorithm::Queue(rule) => rule.floor(now),
            PackedAlgorithm::Window(rule) => rule.floor(now),
            PackedAlgorithm::Slices(rule) => rule.floor(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{algorithm::Step, quota::Quota};

    const DAY: u64 = 86_400_000_000_000;

    fn time(made: u64, at: u64) -> StoreTime {
        let [made, at] = [made, at].map(Timestamp::from_nanos);
        StoreTime::new(at, made)
    }

    /// Steps at `now` on a packed state that was written at `written`, which may be later: another
    /// thread has read that time, or the clock has stepped back.
    fn assert_steps_as_unpacked<R: StepPacked + Algorithm>(
        rule: &R,
        [written, now]: [StoreTime; 2],
        [first, cost]: [Cost; 2],
    ) -> Result<(), TestCaseError> {
        let Some(packed) = rule.step_debt(None, written, first).0 else {
            return Ok(());
        };
        let (new, decision) = rule.step_packed(packed, now, cost);
        let mut state = rule.unpack(packed, rule.packed_kind(), now);
        prop_assert!(state.is_some());
        let step = rule.step(&mut state, now.at(), cost);
        prop_assert_eq!(decision, step.decision());
        prop_assert_eq!(new.is_some(), matches!(step, Step::Wrote(_)));
        if let (Some(new), Some(state)) = (new, state) {
            prop_assert_eq!(rule.pack(&state, now), Some(new));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn packed_states_are_stepped_as_unpacked_ones_at_any_time(
            amount in 1..100_000_u64, period in prop::sample::select(vec![1_000_000_000, 60_000_000_000, DAY]),
            made in prop::sample::select(vec![0, 56 * 365 * DAY]), since in 0..DAY, on_edge: bool,
            back in prop_oneof![-100..100_i64, -2 * DAY as i64..2 * DAY as i64],
            costs: [u64; 2], less in prop_oneof![Just(1), Just(2), Just(1000)],
        ) {
            let begin = made + 400 * DAY + since;
            let begin = if on_edge { begin - begin % period } else { begin };
            let times = [begin, begin.saturating_add_signed(-back)].map(|at| time(made, at));
            let costs = costs.map(|cost| Cost::new(cost % amount.div_ceil(less) + 1).unwrap());
            let quota = Quota::new(amount, std::time::Duration::from_nanos(period));
            assert_steps_as_unpacked(&TokenBucket::new(quota), times, costs)?;
            assert_steps_as_unpacked(&LeakyBucket::new(quota).queue(amount), times, costs)?;
            assert_steps_as_unpacked(&FixedWindow::new(quota), times, costs)?;
            let sliding = SlidingWindow::new(quota);
            if sliding.is_packed() {
                assert_steps_as_unpacked(&sliding, times, costs)?;
            }
        }
    }
}
