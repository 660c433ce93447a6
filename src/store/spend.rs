//! The units that an ask spends.

use crate::{algorithm::Algorithm, decision::Cost, time::Timestamp};

/// The units that an ask spends: its cost, or more, which the caller spends later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spend {
    cost: Cost,
    up_to: u64,
}

impl Spend {
    /// A grant is at most this part of what remains, as a power of two.
    pub(crate) const SHARE: u32 = 2;

    #[inline]
    pub(crate) const fn exactly(cost: Cost) -> Self {
        Self {
            cost,
            up_to: cost.get(),
        }
    }

    pub(crate) const fn up_to(self, units: u64) -> Self {
        Self {
            up_to: units,
            ..self
        }
    }

    #[inline]
    pub(crate) const fn cost(self) -> Cost {
        self.cost
    }

    /// Returns the most units that may be granted, or less than the cost.
    #[inline]
    pub(crate) const fn most(self) -> u64 {
        self.up_to
    }

    /// Returns `true` if more than the cost may be granted.
    #[inline]
    pub(crate) const fn is_grant(self) -> bool {
        self.up_to > self.cost.get()
    }

    /// Returns the units that are spent if so many remain and the cost is among them.
    pub(crate) fn of_remaining(self, remaining: u64) -> Cost {
        let granted = self.up_to.min(remaining >> Self::SHARE);
        Cost::new(granted.max(self.cost.get())).unwrap_or(self.cost)
    }

    /// Returns the units that are spent in a state, if the rule admits the cost.
    pub(crate) fn in_state<Rule: Algorithm>(
        self,
        rule: &Rule,
        state: Option<&Rule::State>,
        now: Timestamp,
    ) -> Cost {
        if !self.is_grant() {
            return self.cost;
        }
        self.of_remaining(rule.look(state, now).remaining().unwrap_or(0))
    }
}
