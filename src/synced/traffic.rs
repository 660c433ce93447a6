//! How much of a key's traffic comes to this node.

use std::time::Duration;

use crate::decision::Decision;

/// The units that this node and all others admitted lately, as the last answers of the store show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    own: u64,
    others: u64,
}

impl Traffic {
    /// Takes in what was admitted between two answers. What came before counts half.
    pub(super) fn note(&mut self, own: u64, others: u64) {
        self.own = (self.own / 2).saturating_add(own);
        self.others = (self.others / 2).saturating_add(others);
    }

    /// Returns the part of this node in thousandths; `None` if nobody admitted anything.
    pub(super) fn share_permille(&self) -> Option<u64> {
        let all = u128::from(self.own) + u128::from(self.others);
        let share = (u128::from(self.own) * 1000).checked_div(all)?;
        u64::try_from(share).ok()
    }

    /// Returns the part of so many units that belongs to this node.
    fn part_of(&self, units: u128, nodes: u64) -> u128 {
        match u128::from(self.own) + u128::from(self.others) {
            0 => units / u128::from(nodes.max(1)),
            all => units.saturating_mul(u128::from(self.own)) / all,
        }
    }

    /// Returns by how much the part of this node exceeds an equal one, and by how much it falls short of it, in units, if the first drifts to the
    /// second during `drift`.
    ///
    /// Both parts are of what is refilled meanwhile, of which the drift takes half. Not of what remains: parts that were measured at different times may
    /// add up to more than all.
    pub(super) fn beside_equal_part(
        &self,
        look: &Decision,
        nodes: u64,
        drift: Duration,
    ) -> (u64, u64) {
        let units = look.quota().map_or(0, |quota| {
            u128::from(quota.amount()) * drift.as_nanos() / quota.period().as_nanos().max(1) / 2
        });
        let (own, equal) = (self.part_of(units, nodes), units / u128::from(nodes.max(1)));
        let difference = |a: u128, b: u128| u64::try_from(a.saturating_sub(b)).unwrap_or(u64::MAX);
        (difference(own, equal), difference(equal, own))
    }
}
