//! Sums of granted, spent, expired, returned and lost units.

/// Sums of units, and of calls.
///
/// `granted = spent + left + expired + returned + lost`, where the holders of all keys have the
/// `left` ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Calls to the store.
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    /// Less what was refunded to a lease.
    pub(crate) spent: u64,
    pub(crate) expired: u64,
    pub(crate) returned: u64,
    pub(crate) lost: u64,
    /// Calls that were admitted by a lease, without a call to the store.
    pub(crate) from_leases: u64,
    /// Calls that were refused without a call to the store.
    pub(crate) refused_here: u64,
}

impl Counts {
    /// Adds other sums.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self {
            asked,
            granted,
            spent,
            expired,
            returned,
            lost,
            from_leases,
            refused_here,
        } = other;
        self.asked += asked;
        self.granted += granted;
        // Units may be refunded in another shard than the one that counted them as spent.
        self.spent = self.spent.wrapping_add(*spent);
        self.expired += expired;
        self.returned += returned;
        // Lost units may be returned after all.
        self.lost = self.lost.wrapping_add(*lost);
        self.from_leases += from_leases;
        self.refused_here += refused_here;
    }
}
