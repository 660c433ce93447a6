//! States of a rule and blocks as bytes, and in the numbers of a script.

use super::{Blockable, BlockableState, state::Inner};
use crate::{
    algorithm::{
        block::BlockState,
        codec::Codec,
        scripted::{Part, Scripted, Sealed},
    },
    decision::Charge,
    error::Error,
};

impl<S: Codec> Codec for BlockableState<S> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match &self.0 {
            Inner::Rule(state) => state.encode(bytes),
            Inner::Block(state) => state.encode(bytes),
            Inner::Either(both) => both.0.encode(bytes),
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
            (Ok(rule), Ok(block)) => Ok(Self(Inner::Either(Box::new((rule, block))))),
            (Ok(rule), Err(_)) => Ok(Self::of_rule(rule)),
            (Err(_), block) => block.map(Self::of_block),
        }
    }
}

impl<Rule: Scripted> Sealed for Blockable<Rule> {}

impl<Rule: Scripted> Scripted for Blockable<Rule> {
    fn rule_parts(&self, parts: &mut Vec<Part>) -> Result<(), Error> {
        match self {
            Self::Rule(rule) => rule.rule_parts(parts),
            Self::Block(block) => block.rule_parts(parts),
        }
    }

    fn in_script(&self) -> Option<Self> {
        match self {
            Self::Rule(rule) => rule.in_script().map(Self::Rule),
            Self::Block(_) => None,
        }
    }

    fn state_of_parts(&self, parts: &[Option<Part>]) -> Option<Self::State> {
        match self {
            Self::Rule(rule) => rule.state_of_parts(parts).map(BlockableState::of_rule),
            Self::Block(block) => block.state_of_parts(parts).map(BlockableState::of_block),
        }
    }

    fn state_parts(&self, state: &Self::State, parts: &mut Vec<Option<Part>>) {
        match (self, state.rule(), state.block()) {
            (Self::Rule(rule), Some(own), _) => rule.state_parts(own, parts),
            (Self::Block(block), _, Some(own)) => block.state_parts(&own, parts),
            _ => parts.push(None),
        }
    }

    fn charge_parts(&self, charge: &Charge, actual: u64, parts: &mut Vec<Part>) {
        match self {
            Self::Rule(rule) => rule.charge_parts(charge, actual, parts),
            Self::Block(block) => block.charge_parts(charge, actual, parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Blockable, Codec};
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

    /// Under a kind of its own, a block meets no other state; if it does all the same, each leaves the other alone.
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
