//! The counters of leases.

use crate::stats::snapshot;

snapshot! {
    /// Counters of [leases](super::Leased) since they were made. Clones share them.
    ///
    /// Units: `granted = spent + left + expired + returned + lost`. The bounds are
    /// [those](super::Leased::undershoot_bound) of the rules that were used last, the greatest of
    /// them. With the feature `metrics`, `Publish` shows them.
    ///
    /// | if it is high | then |
    /// |---|---|
    /// | `asked`, of all decisions | The hold is too short for these keys, or they have few calls: leave the leases out for them. |
    /// | `expired`, of `granted` | Demand stops and goes. The units return by refill, but others waited for them. |
    /// | `crowded` | More keys are in use than [`keys`](super::LeaseConfig::keys). |
    /// | `refused_here` | Clients are over their limit. |
    /// | `failed` | The store fails. Leases cover that for the hold. |
    ///
    /// ```
    /// use tollgate::store::LeaseStats;
    ///
    /// /// Calls to the store for each decision, in percent.
    /// fn price(stats: &LeaseStats) -> u64 {
    ///     let decisions = stats.asked + stats.from_leases + stats.refused_here;
    ///     100 * stats.asked / decisions.max(1)
    /// }
    /// # assert_eq!(price(&LeaseStats::default()), 0);
    /// ```
    pub struct LeaseStats {
        /// Calls of leases to the store.
        asked: u64 = "tollgate_leases_asked_total",
        /// Calls that were admitted by leased units, without the store.
        from_leases: u64 = "tollgate_leases_admitted_total",
        /// Calls that were refused by what the store had said before.
        refused_here: u64 = "tollgate_leases_refused_total",
        /// Calls of keys for which there was no room, decided by the store.
        crowded: u64 = "tollgate_leases_crowded_total",
        /// Units that the store granted.
        granted: u64 = "tollgate_leases_granted_units_total",
        /// Granted units that calls spent, without those that were given back.
        spent: u64 = "tollgate_leases_spent_units_total",
        /// Granted units that may still be spent.
        ///
        /// Some of them may have expired unnoticed.
        left: u64 = "tollgate_leases_left_units",
        /// Granted units that were not spent in time.
        ///
        /// The key gets them back by the rule alone.
        expired: u64 = "tollgate_leases_expired_units_total",
        /// Granted units that were given back to the store.
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
