//! The counters of leases.

/// Counters of [leases](super::Leased) since they were made. Clones share them.
///
/// Units: `granted = spent + left + expired + returned + lost`. With the feature `metrics`,
/// `Publish` shows them.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Calls to the store.
    pub asked: u64,
    /// Calls that were admitted by units that were here.
    pub from_leases: u64,
    /// Calls that were refused by what the store had said before.
    pub refused_here: u64,
    /// Calls of keys for which there was no room, decided by the store.
    pub crowded: u64,
    /// Units that the store granted.
    pub granted: u64,
    /// Units that calls spent.
    pub spent: u64,
    /// Units that may still be spent. Some of them may have expired unnoticed.
    pub left: u64,
    /// Units that were not spent in time. The key gets them back by the rule alone.
    pub expired: u64,
    /// Units that were offered to the store at a [release](super::Leased::release). The store's
    /// answer does not contain which of them it took back: a token bucket refills the others in
    /// time.
    pub returned: u64,
    /// Units that nobody can spend any more, because the key was reset.
    pub lost: u64,
    /// Requests that failed. The store may have granted units; they are not used.
    pub failed: u64,
    /// Keys with leases.
    pub keys: u64,
    /// Nodes that share the limits, this one included: as they were
    /// [counted](super::LeaseConfig::nodes) or set; 0 while it is not known.
    pub nodes: u64,
    /// The [bound](super::Leased::undershoot_bound) of the rules that were used last, the greatest
    /// of them.
    pub undershoot_bound: u64,
    /// The [bound](super::Leased::overshoot_bound), which is 0.
    pub overshoot_bound: u64,
}
