//! The laws of stores, and by theme the calls that check each.

mod keys;
mod limits;
mod nodes;
mod races;
mod timeline;

use std::fmt;

/// A law that every store must keep.
///
/// # Examples
///
/// ```
/// use tollgate::testing::conformance::Law;
///
/// assert_eq!(Law::Limit.to_string(), "limit: a rule admits exactly its limit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Law {
    /// A rule admits exactly its limit, and the remaining units count down to it.
    Limit,
    /// A refused call spends nothing, however often it is repeated.
    Refusal,
    /// A cost above the capacity never passes, has no wait, and changes nothing.
    Never,
    /// A look changes nothing, and predicts the next call.
    Look,
    /// A refused call passes after its wait, and not before. With a
    /// [clock](super::Suite::clock): a step back creates no units.
    Wait,
    /// Keys and policies of any kind and length share no state, also when new keys flood the store.
    Keys,
    /// Several asks are charged together or not at all, and answered in order.
    Several,
    /// A settled charge costs its actual cost: nothing, a part, or more than was charged.
    Settle,
    /// A reset key is like a new one, and other keys are unaffected.
    Reset,
    /// A change of the rule creates no units.
    Change,
    /// Rules of several [kinds](crate::algorithm::Algorithm::state_kind) on one key have one limit
    /// each, in any order of calls, and a reset clears the states of all kinds.
    Kinds,
    /// Concurrent callers share one limit.
    Race,
    /// A dropped call is charged at most once, and blocks no other.
    Cancel,
    /// A fault is reported, costs at most one charge, and has no lasting effect. Checked only if
    /// the suite can [cause one](super::Suite::fault).
    Fault,
    /// Each node is counted once, in its period and policy. Nothing is checked of a store that
    /// [cannot count](crate::store::Store::count_node).
    Nodes,
    /// Units that nodes admitted by themselves are added once. Nothing is checked of a store that
    /// [takes no deltas](crate::store::Store::sync).
    Sync,
    /// The store decides as its rule does, in random sequences of calls.
    Timeline,
}

impl Law {
    /// All laws, in the order in which they are checked.
    pub const ALL: [Self; 17] = [
        Self::Limit,
        Self::Refusal,
        Self::Never,
        Self::Look,
        Self::Wait,
        Self::Keys,
        Self::Several,
        Self::Settle,
        Self::Reset,
        Self::Change,
        Self::Kinds,
        Self::Race,
        Self::Cancel,
        Self::Fault,
        Self::Nodes,
        Self::Sync,
        Self::Timeline,
    ];

    /// Returns the name of the law, one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Refusal => "refusal",
            Self::Never => "never",
            Self::Look => "look",
            Self::Wait => "wait",
            Self::Keys => "keys",
            Self::Several => "several",
            Self::Settle => "settle",
            Self::Reset => "reset",
            Self::Change => "change",
            Self::Kinds => "kinds",
            Self::Race => "race",
            Self::Cancel => "cancel",
            Self::Fault => "fault",
            Self::Nodes => "nodes",
            Self::Sync => "sync",
            Self::Timeline => "timeline",
        }
    }

    /// Returns the law as a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Limit => "a rule admits exactly its limit",
            Self::Refusal => "a refused call spends nothing",
            Self::Never => {
                "a cost above the capacity never passes, has no wait, and changes nothing"
            }
            Self::Look => "a look changes nothing, and predicts the next call",
            Self::Wait => "a refused call passes after its wait, and not before",
            Self::Keys => "keys and policies share no state",
            Self::Several => {
                "several asks are charged together or not at all, and answered in order"
            }
            Self::Settle => "a settled charge costs its actual cost, and is not counted as failed",
            Self::Reset => "a reset key is like a new one, and other keys are unaffected",
            Self::Change => "a change of the rule creates no units",
            Self::Kinds => {
                "rules of several kinds have one limit each, and a reset clears all of them"
            }
            Self::Race => "concurrent callers share one limit",
            Self::Cancel => "a dropped call is charged at most once, and blocks no other",
            Self::Fault => {
                "a fault is reported, costs at most one charge, and has no lasting effect"
            }
            Self::Nodes => "each node is counted once, in its period and policy",
            Self::Sync => {
                "what nodes admitted by themselves is added once, and the state comes back"
            }
            Self::Timeline => "the store decides as its rule does, in any sequence of calls",
        }
    }

    /// Returns `true` if the law can be checked by counting admitted calls, without comparing
    /// numbers.
    pub(crate) const fn only_counts(self) -> bool {
        matches!(
            self,
            Self::Limit
                | Self::Never
                | Self::Keys
                | Self::Reset
                | Self::Race
                | Self::Cancel
                | Self::Fault
                | Self::Nodes
        )
    }
}

impl fmt::Display for Law {
    /// Writes the name and the sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.sentence())
    }
}
