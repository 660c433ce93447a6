//! The counters of leases and of background synchronisation.

use std::time::Duration;

use crate::{stats::snapshot, time::Timestamp};

snapshot! {
    /// Counters of [leases](super::Leased) since they were made. Clones share them.
    ///
    /// Units: `granted = spent + left + expired + returned + lost`. The bounds are
    /// [those](super::Leased::undershoot_bound) of the rules that were used last, the greatest of
    /// them. With the feature `metrics`, `Publish` shows them.
    ///
    /// | if it is high | then |
    /// |---|---|
    /// | `asked`, of all decisions | The lease duration is too short for these keys, or they have few calls: leave the leases out for them. |
    /// | `expired`, of `granted` | Demand stops and goes. The units return by refill, but others waited for them. |
    /// | `over_capacity` | More keys are in use than [`keys`](super::LeaseConfig::keys). |
    /// | `refused` | Clients are over their limit. |
    /// | `failed` | The store fails. Leases cover that for the lease duration. |
    ///
    /// ```
    /// use tollgate::store::LeaseStats;
    ///
    /// /// Calls to the store for each decision, in percent.
    /// fn price(stats: &LeaseStats) -> u64 {
    ///     let decisions = stats.asked + stats.admitted + stats.refused;
    ///     100 * stats.asked / decisions.max(1)
    /// }
    /// # assert_eq!(price(&LeaseStats::default()), 0);
    /// ```
    pub struct LeaseStats {
        /// Calls of leases to the store.
        asked: u64 = "tollgate_leases_asked_total",
        /// Calls that were admitted by leased units, without the store.
        admitted: u64 = "tollgate_leases_admitted_total",
        /// Calls that were refused by what the store had said before.
        refused: u64 = "tollgate_leases_refused_total",
        /// Calls of keys for which there was no room, decided by the store.
        over_capacity: u64 = "tollgate_leases_over_capacity_total",
        /// Units that the store granted.
        granted: u64 = "tollgate_leases_granted_units_total",
        /// Granted units that calls spent, without those that were refunded.
        spent: u64 = "tollgate_leases_spent_units_total",
        /// Granted units that may still be spent.
        ///
        /// Some of them may have expired unnoticed.
        left: u64 = "tollgate_leases_left_units",
        /// Granted units that were not spent in time.
        ///
        /// The key gets them back by the rule alone.
        expired: u64 = "tollgate_leases_expired_units_total",
        /// Granted units that were returned to the store.
        ///
        /// They were offered to it at a [release](super::Leased::release). The store's answer does
        /// not contain which of them it took back: a token bucket refills the others in time.
        returned: u64 = "tollgate_leases_returned_units_total",
        /// Granted units that nobody can spend any more, because the key was reset.
        lost: u64 = "tollgate_leases_lost_units_total",
        /// Calls of leases that the store failed.
        ///
        /// The store may have granted units; they are not used.
        failed: u64 = "tollgate_leases_failed_total",
        /// Keys with leases.
        keys: u64 = "tollgate_leases_keys",
        /// Nodes that share the limits, this one included; 0 while their number is not known.
        ///
        /// It is [counted, or set](super::LeaseConfig::nodes).
        nodes: u64 = "tollgate_leases_nodes",
        /// Units that all nodes together may admit less than the rule, at an instant.
        undershoot_bound: u64 = "tollgate_leases_undershoot_bound_units",
        /// Units that all nodes together may admit more than the rule: 0.
        overshoot_bound: u64 = "tollgate_leases_overshoot_bound_units",
    }
}

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
    /// | `in_store` | Calls cost more than a node may be ahead, or it may not be ahead at all; or many keys are new, and are called once. |
    /// | `over_capacity` | More keys are in use than [`keys`](super::SyncConfig::keys). |
    /// | `failed`, `offline` | The store cannot be reached. Nodes decide by their shares of the limit. |
    /// | `drift` | Many nodes spend from one key at once. |
    /// | `mean_share`, far from one part of [`nodes`](Self::nodes) | The load is not balanced: nodes with much of it refuse early when they are offline. |
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
        /// Calls that were admitted here, and pushed to the store later.
        admitted: u64 = "tollgate_sync_admitted_total",
        /// Calls that were refused here.
        refused: u64 = "tollgate_sync_refused_total",
        /// Calls that were decided here while the store could not be reached.
        ///
        /// They are counted as `admitted` or `refused`, too.
        offline: u64 = "tollgate_sync_offline_total",
        /// Waits of calls until the key was pushed or pulled.
        waited: u64 = "tollgate_sync_waited_total",
        /// Calls that the store decided.
        in_store: u64 = "tollgate_sync_in_store_total",
        /// Calls of keys for which there was no room, decided by the store.
        over_capacity: u64 = "tollgate_sync_over_capacity_total",
        /// Calls to the store that pushed or pulled something.
        syncs: u64 = "tollgate_sync_calls_total",
        /// Calls to the store that pushed or pulled something, and failed for one key at least.
        failed: u64 = "tollgate_sync_failed_total",
        /// Units that the store took in.
        pushed: u64 = "tollgate_sync_pushed_units_total",
        /// Units that were dropped before they were pushed, because their key was reset or the
        /// store cannot take them in.
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
        /// The share of this node of what all nodes admitted of a key lately, in thousandths: the
        /// least of all keys of which it is known.
        ///
        /// It is known if this node admits 50 units in a period and something of the limit stays in
        /// use: a bucket that is full does not show what was spent. Then it is right within a
        /// fifth.
        least_share: u64 = "tollgate_sync_least_share_permille",
        /// The mean of the shares of this node, in thousandths.
        mean_share: u64 = "tollgate_sync_mean_share_permille",
        /// The greatest of the shares of this node, in thousandths.
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
        /// It is this node's share of the limit, the greatest of all keys, and 0 while the node
        /// reaches the store. All nodes together add one limit at most, beside
        /// [`overshoot_bound`](Self::overshoot_bound).
        offline_bound: u64 = "tollgate_sync_offline_bound_units",
    }
}

/// The greatest of the values that were noted in the current minute and in the one before, however
/// often it is read.
///
/// So a peak is seen by each of several readers that look once in a minute, and does not stay for
/// ever.
#[derive(Debug, Default)]
pub(super) struct RecentMost {
    /// The start of the current minute; each begins with a value.
    since: Timestamp,
    current: u64,
    former: u64,
}

impl RecentMost {
    const MINUTE: Duration = Duration::from_secs(60);

    pub(super) fn note(&mut self, value: u64, now: Timestamp) {
        self.pass(now);
        self.current = self.current.max(value);
    }

    pub(super) fn most(&mut self, now: Timestamp) -> u64 {
        self.pass(now);
        self.current.max(self.former)
    }

    fn pass(&mut self, now: Timestamp) {
        let since = now.saturating_since(self.since);
        if since < Self::MINUTE {
            return;
        }
        let is_next = since < Self::MINUTE * 2;
        self.former = if is_next { self.current } else { 0 };
        (self.current, self.since) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_peak_is_seen_for_a_minute_and_then_forgotten() {
        let mut most = RecentMost::default();
        most.note(3, at(1000));
        most.note(9, at(1001));
        most.note(4, at(1002));
        assert_eq!((most.most(at(1003)), most.most(at(1059))), (9, 9));
        most.note(5, at(1061));
        assert_eq!(most.most(at(1062)), 9, "in the minute before");
        assert_eq!(most.most(at(1122)), 5);
        assert_eq!(most.most(at(1300)), 0);
    }
}
