//! Rules whose keys can be blocked: a rule, or a block of a key.

mod nodes;
mod state;
mod wire;

use self::state::BlockableState;
use crate::{
    algorithm::{
        Algorithm, Block, StateKind, Step,
        packed::{Meter, PackedKind, PackedState, StoreTime, TwoBuckets, TwoWords},
    },
    decision::{Charge, Cost, Decision},
    time::Timestamp,
};

/// A rule whose keys can be blocked: the rule itself, or a [`Block`]. The store inside of [`Blocks`](crate::store::Blocks) runs it.
///
/// Any rule can be made blockable. The compiler finds the type of such a store, so it need not be written, but where a store is named: as in
/// `Redis<Blockable<AnyRule>>`. A block is a state beside those of the rule, of a kind of its own. The states of the rule are
/// the same bytes as without blocks, so nodes with and without them share limits.
///
/// ```
/// use tollgate::{SlidingLog, algorithm::Blockable, prelude::*, store::BoxStore};
///
/// // As usual:
/// let store = Local::new().with_blocks();
/// let layer = RateLimitLayer::new(SlidingLog::per_minute(100)).store(store);
///
/// // Where the type is written:
/// fn layer(store: BoxStore<Blockable<SlidingLog>, std::convert::Infallible>) {
///     let layer = RateLimitLayer::new(SlidingLog::per_minute(100)).store(store.with_blocks());
/// #   let _ = layer;
/// }
/// # let _ = layer;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Blockable<Rule> {
    /// The rule, which decides as ever.
    Rule(Rule),
    /// A block of a key, or a look at it.
    Block(Block),
}

impl<Rule> From<Rule> for Blockable<Rule> {
    fn from(rule: Rule) -> Self {
        Self::Rule(rule)
    }
}

impl<Rule: Algorithm> Blockable<Rule> {
    /// Returns a rule as blockable. If it is a block of blocks further out, it stays one: all of them share the block of a key.
    pub(crate) fn of(rule: &Rule) -> Self {
        match rule.as_block() {
            Some(block) => Self::Block(*block),
            None => Self::Rule(rule.clone()),
        }
    }
}

/// Takes the state of the rule, or a block, which the rule leaves alone.
#[inline]
fn split<S>(state: &mut Option<BlockableState<S>>) -> (Option<S>, Option<BlockableState<S>>) {
    match state.take().map(BlockableState::into_rule) {
        None => (None, None),
        Some(Ok(own)) => (Some(own), None),
        Some(Err(block)) => (None, Some(block)),
    }
}

impl<Rule: Algorithm> Algorithm for Blockable<Rule> {
    type State = BlockableState<Rule::State>;

    #[inline]
    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step {
        match self {
            Self::Rule(rule) => {
                let (mut own, block) = split(state);
                let step = rule.step(&mut own, now, cost);
                *state = own.map(BlockableState::of_rule).or(block);
                step
            }
            Self::Block(block) => {
                let mut own = state.as_ref().and_then(BlockableState::block);
                let step = block.step(&mut own, now, cost);
                if matches!(step, Step::Wrote(_)) {
                    *state = own.map(BlockableState::of_block);
                }
                step
            }
        }
    }

    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision {
        match self {
            Self::Rule(rule) => rule.look(state.and_then(BlockableState::rule), now),
            Self::Block(block) => {
                let own = state.and_then(BlockableState::block);
                block.look(own.as_ref(), now)
            }
        }
    }

    /// A block stays as it is.
    fn settle(
        &self,
        state: &mut Option<Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        if let Self::Rule(rule) = self {
            let (mut own, block) = split(state);
            if block.is_none() {
                rule.settle(&mut own, charge, now, actual);
            }
            *state = own.map(BlockableState::of_rule).or(block);
        }
    }

    fn forgets(
        &self,
        state: Option<&Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        match self {
            Self::Rule(rule) => {
                let own = state.and_then(BlockableState::rule);
                rule.forgets(own, charge, now, actual)
            }
            Self::Block(_) => false,
        }
    }

    #[inline]
    fn forgettable_at(&self, state: &Self::State) -> Timestamp {
        let own = match self {
            Self::Rule(rule) => state.rule().map(|own| rule.forgettable_at(own)),
            Self::Block(block) => state.block().map(|own| block.forgettable_at(&own)),
        };
        own.unwrap_or_default()
    }

    #[inline]
    fn state_kind(&self) -> StateKind {
        match self {
            Self::Rule(rule) => rule.state_kind(),
            Self::Block(block) => block.state_kind(),
        }
    }

    fn grant_at(&self, look: &Decision) -> Timestamp {
        match self {
            Self::Rule(rule) => rule.grant_at(look),
            Self::Block(block) => block.grant_at(look),
        }
    }

    fn grant_slack(&self) -> Option<u64> {
        match self {
            Self::Rule(rule) => rule.grant_slack(),
            Self::Block(block) => block.grant_slack(),
        }
    }

    fn class_bits(&self) -> u32 {
        match self {
            Self::Rule(rule) => rule.class_bits(),
            Self::Block(block) => block.class_bits(),
        }
    }

    fn most_bytes(&self) -> u64 {
        match self {
            Self::Rule(rule) => rule.most_bytes(),
            Self::Block(block) => block.most_bytes(),
        }
    }

    fn may_shrink_when_idle(&self) -> bool {
        match self {
            Self::Rule(rule) => rule.may_shrink_when_idle(),
            Self::Block(block) => block.may_shrink_when_idle(),
        }
    }

    fn may_delay(&self) -> bool {
        match self {
            Self::Rule(rule) => rule.may_delay(),
            Self::Block(block) => block.may_delay(),
        }
    }

    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        match self {
            Self::Rule(rule) => rule.for_key(digest).map(Self::Rule),
            Self::Block(_) => None,
        }
    }

    // A block is in no word, so the store in memory evicts none, and a new key inherits none.

    #[inline]
    fn meter(&self) -> Option<Meter<'_>> {
        match self {
            Self::Rule(rule) => rule.meter(),
            Self::Block(_) => None,
        }
    }

    fn pack(&self, state: &Self::State, now: StoreTime) -> Option<PackedState> {
        match self {
            Self::Rule(rule) => rule.pack(state.rule()?, now),
            Self::Block(_) => None,
        }
    }

    fn unpack(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        now: StoreTime,
    ) -> Option<Self::State> {
        match self {
            Self::Rule(rule) => {
                let own = rule.unpack(packed, packed_kind, now);
                own.map(BlockableState::of_rule)
            }
            Self::Block(_) => None,
        }
    }

    #[inline]
    fn two_buckets(&self) -> Option<TwoBuckets<'_>> {
        match self {
            Self::Rule(rule) => rule.two_buckets(),
            Self::Block(_) => None,
        }
    }

    fn to_two_words(&self, state: &Self::State, now: StoreTime) -> Option<TwoWords> {
        match self {
            Self::Rule(rule) => rule.to_two_words(state.rule()?, now),
            Self::Block(_) => None,
        }
    }

    #[inline]
    fn read_two_words(&self, words: TwoWords, now: StoreTime) -> Option<Self::State> {
        match self {
            Self::Rule(rule) => {
                let own = rule.read_two_words(words, now);
                own.map(BlockableState::of_rule)
            }
            Self::Block(_) => None,
        }
    }

    fn as_block(&self) -> Option<&Block> {
        match self {
            Self::Rule(rule) => rule.as_block(),
            Self::Block(block) => Some(block),
        }
    }
}
