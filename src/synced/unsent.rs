//! Units that the store does not know yet.

use std::sync::Arc;

use crate::time::Timestamp;

/// Units that were admitted here, and that the store does not know yet. They are told to it as one delta.
#[derive(Clone, Debug)]
pub(crate) struct Unsent<Rule> {
    /// The rule that admitted them.
    pub(crate) rule: Arc<Rule>,
    /// The instant of the first unit, by the clock of this node.
    pub(crate) at: Timestamp,
    /// The same instant by the clock of the store, as it was estimated then.
    pub(super) store_at: Timestamp,
    pub(crate) units: u64,
    /// The number of the delta; 0 until it is sent. It is sent again with the same number.
    pub(crate) number: u64,
}
