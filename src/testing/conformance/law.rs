//! What every store keeps.

use std::fmt;

/// A law that a store keeps, whatever it keeps its state in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Law {
    /// What a rule lets pass passes, and nothing more; the numbers count down to it.
    Limit,
    /// A refused call spends nothing, however often it knocks.
    Refusal,
    /// A cost above the capacity never passes, is told no wait, and disturbs nothing.
    Never,
    /// A look changes nothing, and tells what passes next.
    Look,
    /// Who comes back when told is admitted, and not before. With a
    /// [clock](super::Suite::clock): nothing is minted where it steps back.
    Wait,
    /// Keys and policies do not meet: of any kind and length, and whoever floods the store.
    Keys,
    /// Several asks are spent all or not at all, and answered in their order.
    Several,
    /// A settled charge is what it really cost: a refund, a part, or more by force.
    Settle,
    /// A reset key begins afresh, and no other one does.
    Reset,
    /// A rule that changes on the way mints nothing.
    Change,
    /// Rules of several [kinds](crate::algorithm::Algorithm::state_kind) on one key have one limit each, in whatever order they
    /// come, and a reset clears the states of all kinds.
    Kinds,
    /// Callers at once share one limit.
    Race,
    /// A dropped call is charged once at most, and blocks nobody.
    Cancel,
    /// A fault is told as one, costs one charge at most, and leaves nothing behind. Checked where the suite
    /// can [cause one](super::Suite::fault).
    Fault,
    /// Whatever comes, the store decides as its rule does: a random timeline through both.
    Timeline,
}

impl Law {
    /// All laws, in the order in which they are checked.
    pub const ALL: [Self; 15] = [
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
        Self::Timeline,
    ];

    /// The law in one word.
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
            Self::Timeline => "timeline",
        }
    }

    /// The law in one sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Limit => "what a rule lets pass passes, and nothing more",
            Self::Refusal => "a refused call spends nothing",
            Self::Never => {
                "a cost above the capacity never passes, is told no wait, and disturbs nothing"
            }
            Self::Look => "a look changes nothing, and tells what passes next",
            Self::Wait => "who comes back when told is admitted, and not before",
            Self::Keys => "keys and policies do not meet",
            Self::Several => {
                "several asks are spent all or not at all, and answered in their order"
            }
            Self::Settle => "a settled charge is what it really cost",
            Self::Reset => "a reset key begins afresh, and no other one does",
            Self::Change => "a rule that changes on the way mints nothing",
            Self::Kinds => {
                "rules of several kinds have one limit each, and a reset clears all of them"
            }
            Self::Race => "callers at once share one limit",
            Self::Cancel => "a dropped call is charged once at most, and blocks nobody",
            Self::Fault => {
                "a fault is told as one, costs one charge at most, and leaves nothing behind"
            }
            Self::Timeline => "whatever comes, the store decides as its rule does",
        }
    }

    /// Whether it can be checked by counting what passes, without comparing numbers with the rule's.
    pub(super) const fn only_counts(self) -> bool {
        matches!(
            self,
            Self::Limit
                | Self::Never
                | Self::Keys
                | Self::Reset
                | Self::Race
                | Self::Cancel
                | Self::Fault
        )
    }
}

impl fmt::Display for Law {
    /// Writes the name and the sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.sentence())
    }
}
