//! This node's share of a key's traffic.

use std::time::Duration;

use crate::time::Timestamp;

/// The units that this node and all others admitted lately, as far as the answers of the store show
/// them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Those since an instant.
    late: Units,
    since: Timestamp,
    /// Those of the periods before it, of which each counts three quarters of the next one.
    earlier: Units,
}

#[derive(Clone, Copy, Debug, Default)]
struct Units {
    own: u64,
    others: u64,
}

impl Traffic {
    /// Below so many units a period, a share says little: others tell theirs in batches.
    const LEAST: u64 = 50;

    /// Takes in what was admitted between two answers; `None` if that is not known.
    pub(super) fn note(&mut self, now: Timestamp, units: Option<(u64, u64)>, period: Duration) {
        if now.saturating_since(self.since) >= period {
            let fold = |sum: u64, late| (sum - sum.div_ceil(4)).saturating_add(late);
            self.earlier.own = fold(self.earlier.own, self.late.own);
            self.earlier.others = fold(self.earlier.others, self.late.others);
            (self.since, self.late) = (now, Units::default());
        }
        let (own, others) = units.unwrap_or_default();
        self.late.own = self.late.own.saturating_add(own);
        self.late.others = self.late.others.saturating_add(others);
    }

    /// Returns the part of this node in thousandths; `None` if it admits too little to tell.
    pub(super) fn share_permille(&self) -> Option<u64> {
        let Units { own, others } = self.earlier;
        if own < 4 * Self::LEAST {
            return None;
        }
        let all = u128::from(own) + u128::from(others);
        u64::try_from(u128::from(own) * 1000 / all).ok()
    }
}
