//! Rules whose keys can be blocked: a rule, or a block of a key.
//!
//! The store inside of `Blocks` runs `Blockable<Rule>`: the rule, whose states are the same bytes
//! and numbers as without blocks, or a block, with a tag, a kind in scripts and a state kind of its
//! own. The compiler finds that type.
//!
//! Bytes that are both a block and a state of the rule are read as both. The codec of a user's own
//! rule may write any bytes, and `Codec` does not know the key that they are kept under. The rule
//! reads the one, and a block the other.

use std::time::Duration;

use super::block::BlockState;
use crate::{
    algorithm::{
        Algorithm, Block, FleetRule, Leasable, Renewal, Shareable, StateKind, Step, Syncable,
        Validity,
        any::{Own, settle_own, step_own},
        codec::Codec,
        packed::{BuiltIn, InMemory, InWords, PackedKind, PackedState, StoreTime, TwoWords},
        scripted::{ScriptTuple, Scripted, Sealed},
    },
    decision::{Charge, Cost, Decision},
    error::Error,
    time::Timestamp,
};

/// A rule whose keys can be blocked: the rule itself, or a [`Block`]. The store inside of
/// [`Blocks`](crate::store::Blocks) runs it.
///
/// Any rule can be made blockable. The compiler finds the type of such a store, so it need not be
/// written, but where a store is named: as in `Redis<Blockable<AnyRule>>`. A block is a state
/// beside those of the rule, of a kind of its own. The states of the rule are the same bytes as
/// without blocks, so nodes with and without them share limits.
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
    /// The rule, which decides as without blocks.
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
    /// Returns a rule as blockable. If it is a block of blocks further out, it stays one: all of
    /// them share the block of a key.
    pub(crate) fn of(rule: &Rule) -> Self {
        match rule.built_in().block() {
            Some(block) => Self::Block(*block),
            None => Self::Rule(rule.clone()),
        }
    }
}

impl<Rule: Algorithm> Algorithm for Blockable<Rule> {
    type State = BlockableState<Rule::State>;

    #[inline]
    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step {
        match self {
            Self::Rule(rule) => step_own(rule, state, now, cost),
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
            settle_own(rule, state, charge, now, actual);
        }
    }

    fn forgets(
        &self,
        state: Option<&Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) -> bool {
        let own = state.and_then(BlockableState::rule);
        self.rule()
            .is_some_and(|rule| rule.forgets(own, charge, now, actual))
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

    fn grant_at(&self, look: &Decision) -> Option<Timestamp> {
        self.rule()?.grant_at(look)
    }

    fn grant_slack(&self) -> Option<u64> {
        self.rule()?.grant_slack()
    }

    fn renewal(&self) -> Option<Renewal> {
        self.rule()?.renewal()
    }

    fn class_bits(&self) -> u32 {
        self.rule().map_or(0, Rule::class_bits)
    }

    fn most_bytes(&self) -> u64 {
        self.rule().map_or(0, Rule::most_bytes)
    }

    fn may_shrink_when_idle(&self) -> bool {
        self.rule().is_some_and(Rule::may_shrink_when_idle)
    }

    fn may_delay(&self) -> bool {
        self.rule().is_some_and(Rule::may_delay)
    }

    fn waits_for_turn(&self) -> Option<Duration> {
        self.rule()?.waits_for_turn()
    }

    #[inline]
    fn for_key(&self, digest: &dyn Fn() -> u64) -> Option<Self> {
        self.rule()?.for_key(digest).map(Self::Rule)
    }

    // A block is in no word, so the store in memory evicts none, and a new key inherits none.
    #[inline]
    fn built_in(&self) -> BuiltIn<'_, Self::State> {
        match self {
            Self::Rule(rule) => BuiltIn::new(rule.built_in().form(), self),
            Self::Block(block) => BuiltIn::of_block(block),
        }
    }
}

impl<Rule: Algorithm> InWords<BlockableState<Rule::State>> for Blockable<Rule> {
    fn write_word(
        &self,
        state: &BlockableState<Rule::State>,
        now: StoreTime,
    ) -> Option<PackedState> {
        self.rule()?.pack(state.rule()?, now)
    }

    fn read_word(
        &self,
        packed: PackedState,
        packed_kind: PackedKind,
        now: StoreTime,
    ) -> Option<BlockableState<Rule::State>> {
        let own = self.rule()?.unpack(packed, packed_kind, now);
        own.map(BlockableState::of_rule)
    }

    fn write_words(&self, state: &BlockableState<Rule::State>, now: StoreTime) -> Option<TwoWords> {
        self.rule()?.to_two_words(state.rule()?, now)
    }

    #[inline]
    fn read_words(&self, words: TwoWords, now: StoreTime) -> Option<BlockableState<Rule::State>> {
        let own = self.rule()?.read_two_words(words, now);
        own.map(BlockableState::of_rule)
    }
}

/// The state of a rule, or a block.
#[derive(Clone, Debug)]
pub struct BlockableState<S>(RuleOrBlock<S>);

#[derive(Clone, Debug)]
enum RuleOrBlock<S> {
    Rule(S),
    Block(BlockState),
    /// Read from bytes that are both a state of the rule and a block. The key that they are stored
    /// under decides which is meant.
    Either(Box<(S, BlockState)>),
}

impl<S> BlockableState<S> {
    const fn of_rule(state: S) -> Self {
        Self(RuleOrBlock::Rule(state))
    }

    const fn of_block(state: BlockState) -> Self {
        Self(RuleOrBlock::Block(state))
    }

    #[inline]
    fn rule(&self) -> Option<&S> {
        match &self.0 {
            RuleOrBlock::Rule(state) => Some(state),
            RuleOrBlock::Either(both) => Some(&both.0),
            RuleOrBlock::Block(_) => None,
        }
    }

    #[inline]
    fn block(&self) -> Option<BlockState> {
        match &self.0 {
            RuleOrBlock::Rule(_) => None,
            RuleOrBlock::Either(both) => Some(both.1),
            RuleOrBlock::Block(state) => Some(*state),
        }
    }
}

impl<S> Own<BlockableState<S>> for S {
    #[inline]
    fn into_any(self) -> BlockableState<S> {
        BlockableState::of_rule(self)
    }

    #[inline]
    fn from_any(any: BlockableState<S>) -> Result<S, BlockableState<S>> {
        match any.0 {
            RuleOrBlock::Rule(state) => Ok(state),
            RuleOrBlock::Either(both) => Ok(both.0),
            RuleOrBlock::Block(_) => Err(any),
        }
    }

    #[inline]
    fn in_any(any: &BlockableState<S>) -> Option<&S> {
        any.rule()
    }
}

/// A block has the same length on each node, and nothing to grant.
impl<Rule: FleetRule> FleetRule for Blockable<Rule> {
    fn default_lease_duration(&self) -> Duration {
        let rule = self.rule();
        rule.map_or(Duration::ZERO, Rule::default_lease_duration)
    }

    fn tightened(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        self.try_map(|rule| rule.tightened(lease, max_cost))
    }

    fn validity(&self, granted: &Decision, lease: Duration) -> Validity {
        match self {
            Self::Rule(rule) => rule.validity(granted, lease),
            Self::Block(_) => Validity::together(Duration::ZERO),
        }
    }

    fn tightened_in_pair(&self, lease: Duration, max_cost: u64) -> Result<Self, Error> {
        self.try_map(|rule| rule.tightened_in_pair(lease, max_cost))
    }

    fn check_sync(&self) -> Result<(), Error> {
        self.rule().map_or(Ok(()), Rule::check_sync)
    }

    fn can_merge(&self, first: Timestamp, later: Timestamp) -> bool {
        match self {
            Self::Rule(rule) => rule.can_merge(first, later),
            Self::Block(_) => first == later,
        }
    }

    fn has_expired(&self, state: Option<&Self::State>, at: Timestamp) -> bool {
        match self {
            Self::Rule(rule) => rule.has_expired(state.and_then(BlockableState::rule), at),
            Self::Block(_) => true,
        }
    }

    fn node_share(&self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        self.try_map(|rule| rule.node_share(numerator, denominator))
    }

    fn used_of_share(&self, state: Option<&Self::State>, at: Timestamp, nodes: u64) -> u64 {
        match self {
            Self::Rule(rule) => rule.used_of_share(state.and_then(BlockableState::rule), at, nodes),
            Self::Block(_) => u64::MAX,
        }
    }
}

impl<Rule: Leasable> Leasable for Blockable<Rule> {}
impl<Rule: Syncable> Syncable for Blockable<Rule> {}
impl<Rule: Shareable> Shareable for Blockable<Rule> {}

impl<Rule> Blockable<Rule> {
    #[inline]
    fn rule(&self) -> Option<&Rule> {
        match self {
            Self::Rule(rule) => Some(rule),
            Self::Block(_) => None,
        }
    }

    /// Replaces the rule; a block stays as it is.
    fn try_map(&self, change: impl FnOnce(&Rule) -> Result<Rule, Error>) -> Result<Self, Error> {
        match self {
            Self::Rule(rule) => change(rule).map(Self::Rule),
            Self::Block(block) => Ok(Self::Block(*block)),
        }
    }
}

impl<S: Codec> Codec for BlockableState<S> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match &self.0 {
            RuleOrBlock::Rule(state) => state.encode(bytes),
            RuleOrBlock::Block(state) => state.encode(bytes),
            RuleOrBlock::Either(both) => both.0.encode(bytes),
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        if BlockState::begins(bytes) {
            return BlockState::decode(bytes).map(Self::of_block);
        }
        S::decode(bytes).map(Self::of_rule)
    }

    /// States of a user's own rule may begin with any byte.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let of_rule = S::from_bytes(bytes);
        if !BlockState::begins(bytes) {
            return of_rule.map(Self::of_rule);
        }
        match (of_rule, BlockState::from_bytes(bytes)) {
            (Ok(rule), Ok(block)) => Ok(Self(RuleOrBlock::Either(Box::new((rule, block))))),
            (Ok(rule), Err(_)) => Ok(Self::of_rule(rule)),
            (Err(_), block) => block.map(Self::of_block),
        }
    }
}

impl<Rule: Scripted> Sealed for Blockable<Rule> {}

impl<Rule: Scripted> Scripted for Blockable<Rule> {
    fn rule_parts(&self, parts: &mut Vec<ScriptTuple>) -> Result<(), Error> {
        match self {
            Self::Rule(rule) => rule.rule_parts(parts),
            Self::Block(block) => block.rule_parts(parts),
        }
    }

    fn in_script(&self) -> Option<Self> {
        self.rule()?.in_script().map(Self::Rule)
    }

    fn state_of_parts(&self, parts: &[Option<ScriptTuple>]) -> Option<Self::State> {
        match self {
            Self::Rule(rule) => rule.state_of_parts(parts).map(BlockableState::of_rule),
            Self::Block(block) => block.state_of_parts(parts).map(BlockableState::of_block),
        }
    }

    fn state_parts(&self, state: &Self::State, parts: &mut Vec<Option<ScriptTuple>>) {
        match (self, state.rule(), state.block()) {
            (Self::Rule(rule), Some(own), _) => rule.state_parts(own, parts),
            (Self::Block(block), _, Some(own)) => block.state_parts(&own, parts),
            _ => parts.push(None),
        }
    }

    fn charge_parts(&self, charge: &Charge, actual: u64, parts: &mut Vec<ScriptTuple>) {
        match self {
            Self::Rule(rule) => rule.charge_parts(charge, actual, parts),
            Self::Block(block) => block.charge_parts(charge, actual, parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Blockable, Codec};
    use crate::{
        Cost, FixedWindow, Timestamp,
        algorithm::{Algorithm, Block, block::BlockState},
        error::Error,
    };

    /// The state of a user's own rule, whose bytes can be any.
    #[derive(Clone, Debug, PartialEq)]
    struct Free(Vec<u8>);

    impl Codec for Free {
        fn encode(&self, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(&self.0);
        }

        fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
            Ok(Self(std::mem::take(bytes).to_vec()))
        }
    }

    type State = super::BlockableState<Free>;

    fn block() -> Vec<u8> {
        let mut state = None;
        Block::LOOK.step(&mut state, Timestamp::from_nanos(5), Cost::ONE);
        state.unwrap().to_bytes()
    }

    #[test]
    fn bytes_that_are_a_block_and_a_state_are_both() {
        let bytes = block();
        let state = State::from_bytes(&bytes).unwrap();
        assert_eq!(state.rule(), Some(&Free(bytes.clone())));
        assert_eq!(state.block().unwrap().to_bytes(), bytes);
        assert_eq!(state.to_bytes(), bytes);
    }

    #[test]
    fn a_state_that_begins_like_a_block_is_none() {
        let longer = [block(), vec![1]].concat();
        for bytes in [&longer[..], &longer[..1], &[0x5f, 1, 2], &[]] {
            let state = State::from_bytes(bytes).unwrap();
            assert_eq!(state.rule(), Some(&Free(bytes.to_vec())));
            assert!(state.block().is_none());
        }
    }

    /// Under a kind of its own, a block meets no other state; if it does all the same, each leaves
    /// the other alone.
    #[test]
    fn a_rule_and_a_block_do_not_read_each_other() {
        let rule = Blockable::from(FixedWindow::per_hour(3));
        let block = Blockable::<FixedWindow>::Block(Block::LOOK);
        assert_ne!(rule.state_kind(), block.state_kind());
        let now = Timestamp::from_nanos(1 << 60);
        let mut state = None;
        assert!(
            block
                .step(&mut state, now, Cost::ONE)
                .decision()
                .is_admitted()
        );
        let before = state.clone().and_then(|state| state.block());
        let many = Cost::new(9).unwrap();
        assert!(!rule.step(&mut state, now, many).decision().is_admitted());
        assert_eq!(rule.look(state.as_ref(), now).remaining(), Some(3));
        assert_eq!(state.and_then(|state| state.block()), before);
        assert!(before.is_some_and(|before: BlockState| before.to_bytes().len() > 2));
    }
}
