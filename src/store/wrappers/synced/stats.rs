//! The counters of background synchronisation.

/// Counters of [background synchronisation](super::Synced) since it was made. Clones share them.
///
/// With the feature `metrics`, `Publish` shows them.
///
/// | if it is high | then |
/// |---|---|
/// | `waited`, of all decisions | Nodes are as far ahead as they may be: allow more, or take leases. |
/// | `in_store` | Calls cost more than a node may be ahead, or it may not be ahead at all. |
/// | `crowded` | More keys are in use than [`keys`](super::SyncConfig::keys). |
/// | `failed`, `cut_off` | The store cannot be reached. Nodes decide by their parts of the limit. |
/// | `drift` | Many nodes spend from one key at once. |
/// | `mean_share`, far from one part of [`nodes`](Self::nodes) | The load is not balanced: nodes with much of it refuse early when they are cut off. |
/// | `dropped`, `lost` | Keys were reset, or the store cannot take in units: these are never repaid. |
/// | `staleness_nanos` | The store is slow, or more keys are in use than it takes in. |
///
/// ```
/// use tollgate::store::SyncStats;
///
/// /// Calls to the store for each hundred decisions.
/// fn price(stats: &SyncStats) -> u64 {
///     100 * (stats.syncs + stats.in_store) / (stats.admitted + stats.refused).max(1)
/// }
/// # assert_eq!(price(&SyncStats::default()), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncStats {
    /// Calls that were admitted here.
    pub admitted: u64,
    /// Calls that were refused here.
    pub refused: u64,
    /// Of both, calls that were decided while the store could not be reached.
    pub cut_off: u64,
    /// Waits of calls until the store was told or asked.
    pub waited: u64,
    /// Calls that the store decided.
    pub in_store: u64,
    /// Calls of keys for which there was no room, decided by the store.
    pub crowded: u64,
    /// Calls to the store that told or asked it something.
    pub syncs: u64,
    /// Of these, calls that failed, for one key at least.
    pub failed: u64,
    /// Units that the store took in.
    pub told: u64,
    /// Units that were dropped before the store had taken them in, because their key was reset, or
    /// because the store does not [support](crate::store::Error::is_unsupported) its rule or its
    /// state.
    pub dropped: u64,
    /// Units that the store may not know yet.
    pub unsynced: u64,
    /// The age of the oldest of them, in nanoseconds.
    pub staleness_nanos: u64,
    /// Units that the store will never hear of, because it cannot take in any; they were admitted
    /// while it could not be reached.
    pub lost: u64,
    /// The most units of a key that other nodes had spent when this node asked, and that it did not
    /// know of: in this minute and the one before, however often it is read.
    pub drift: u64,
    /// Of what all nodes admitted of a key lately, the part of this node, in thousandths: the least
    /// of all keys of which it is known.
    ///
    /// That is so where this node admits 50 units in a period, and something of the limit stays in
    /// use: a bucket that is full does not show what was spent. Then it is right within a fifth.
    pub least_share: u64,
    /// The mean of these parts.
    pub mean_share: u64,
    /// The greatest of these parts.
    pub most_share: u64,
    /// Keys of which this node knows something.
    pub keys: u64,
    /// Nodes that share the limits, this one included: as they were
    /// [counted](super::SyncConfig::nodes) or set; 0 while it is not known.
    pub nodes: u64,
    /// The [bound](super::Synced::overshoot_bound) of the rules that were used last, the greatest
    /// of them.
    pub overshoot_bound: u64,
    /// The [other bound](super::Synced::undershoot_bound) of these rules.
    pub undershoot_bound: u64,
    /// While this node cannot reach the store, the units of a key that it may add to what others
    /// admit: its part of the limit, the greatest of all keys. All nodes together add one limit at
    /// most, beside [`overshoot_bound`](Self::overshoot_bound). 0 while it reaches the store.
    pub cut_off_bound: u64,
}
