//! The counters of background synchronisation.

use crate::stats::snapshot;

snapshot! {
    /// Counters of [background synchronisation](super::Synced) since it was made. Clones share
    /// them.
    ///
    /// The bounds [over](super::Synced::overshoot_bound) and
    /// [under](super::Synced::undershoot_bound) the limit are those of the rules that were used
    /// last, the greatest of them. With the feature `metrics`, `Publish` shows them.
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
    pub struct SyncStats {
        /// Calls that were admitted here, and told to the store later.
        admitted: u64 = "tollgate_sync_admitted_total",
        /// Calls that were refused here.
        refused: u64 = "tollgate_sync_refused_total",
        /// Calls that were decided here while the store could not be reached.
        ///
        /// They are counted as `admitted` or `refused`, too.
        cut_off: u64 = "tollgate_sync_cut_off_total",
        /// Waits of calls until the store was told or asked.
        waited: u64 = "tollgate_sync_waited_total",
        /// Calls that the store decided.
        in_store: u64 = "tollgate_sync_in_store_total",
        /// Calls of keys for which there was no room, decided by the store.
        crowded: u64 = "tollgate_sync_crowded_total",
        /// Calls to the store that told or asked it something.
        syncs: u64 = "tollgate_sync_calls_total",
        /// Calls to the store that told or asked it something, and failed for one key at least.
        failed: u64 = "tollgate_sync_failed_total",
        /// Units that the store took in.
        told: u64 = "tollgate_sync_told_units_total",
        /// Units that were dropped untold, because their key was reset or the store cannot take
        /// them in.
        ///
        /// The store then does not [support](crate::store::StoreError::is_unsupported) their rule
        /// or its state.
        dropped: u64 = "tollgate_sync_dropped_units_total",
        /// Units that the store may not know yet.
        unsynced: u64 = "tollgate_sync_unsynced_units",
        /// Age of the oldest unit that the store may not know yet, in nanoseconds.
        staleness_nanos: u64 = "tollgate_sync_staleness_nanoseconds",
        /// Units that the store will never hear of, because it cannot take in any.
        ///
        /// They were admitted while it could not be reached.
        lost: u64 = "tollgate_sync_lost_units_total",
        /// The most units of a key that other nodes had spent when this node asked, and that it did
        /// not know of, in this minute and the one before.
        ///
        /// It is the same however often it is read.
        drift: u64 = "tollgate_sync_drift_units",
        /// The part of this node of what all nodes admitted of a key lately, in thousandths: the
        /// least of all keys of which it is known.
        ///
        /// It is known if this node admits 50 units in a period and something of the limit stays in
        /// use: a bucket that is full does not show what was spent. Then it is right within a
        /// fifth.
        least_share: u64 = "tollgate_sync_least_share_permille",
        /// The mean of the parts of this node, in thousandths.
        mean_share: u64 = "tollgate_sync_mean_share_permille",
        /// The greatest of the parts of this node, in thousandths.
        most_share: u64 = "tollgate_sync_most_share_permille",
        /// Keys of which this node knows something.
        keys: u64 = "tollgate_sync_keys",
        /// Nodes that share the limits, this one included; 0 while their number is not known.
        ///
        /// It is [counted, or set](super::SyncConfig::nodes).
        nodes: u64 = "tollgate_sync_nodes",
        /// Units that all nodes together may admit more than the rule.
        overshoot_bound: u64 = "tollgate_sync_overshoot_bound_units",
        /// Units that a call may lack although the rule has them.
        undershoot_bound: u64 = "tollgate_sync_undershoot_bound_units",
        /// Units of a key that this node may add to what others admit, while it cannot reach the
        /// store.
        ///
        /// It is this node's part of the limit, the greatest of all keys, and 0 while the node
        /// reaches the store. All nodes together add one limit at most, beside
        /// [`overshoot_bound`](Self::overshoot_bound).
        cut_off_bound: u64 = "tollgate_sync_cut_off_bound_units",
    }
}
