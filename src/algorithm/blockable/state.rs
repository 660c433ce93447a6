//! The state of a key that can be blocked.

use crate::algorithm::block::BlockState;

/// The state of a rule, or a block.
#[derive(Clone, Debug)]
pub struct BlockableState<S>(pub(super) Inner<S>);

#[derive(Clone, Debug)]
pub(super) enum Inner<S> {
    Rule(S),
    Block(BlockState),
    /// Read from bytes that are both a state of the rule and a block. The key that they are kept under tells which is meant.
    Either(Box<(S, BlockState)>),
}

impl<S> BlockableState<S> {
    pub(super) const fn of_rule(state: S) -> Self {
        Self(Inner::Rule(state))
    }

    pub(super) const fn of_block(state: BlockState) -> Self {
        Self(Inner::Block(state))
    }

    /// Returns the state of the rule, or gives back a block.
    #[inline]
    pub(super) fn into_rule(self) -> Result<S, Self> {
        match self.0 {
            Inner::Rule(state) => Ok(state),
            Inner::Either(both) => Ok(both.0),
            Inner::Block(_) => Err(self),
        }
    }

    #[inline]
    pub(super) fn rule(&self) -> Option<&S> {
        match &self.0 {
            Inner::Rule(state) => Some(state),
            Inner::Either(both) => Some(&both.0),
            Inner::Block(_) => None,
        }
    }

    #[inline]
    pub(super) fn block(&self) -> Option<BlockState> {
        match &self.0 {
            Inner::Rule(_) => None,
            Inner::Either(both) => Some(both.1),
            Inner::Block(state) => Some(*state),
        }
    }
}
