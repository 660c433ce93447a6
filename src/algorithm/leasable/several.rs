//! Several rules on one key, and rules chosen at run time.

use std::time::Duration;

use super::{Leasable, Validity};
use crate::{
    algorithm::{All, AnyRule},
    decision::Decision,
    error::Error,
};

impl<A: Leasable, B: Leasable> Leasable for (A, B) {
    fn usual_hold(&self) -> Duration {
        self.0.usual_hold().min(self.1.usual_hold())
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let (a, b) = self;
        Ok((
            a.held_in_pair(hold, max_cost)?,
            b.held_in_pair(hold, max_cost)?,
        ))
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        let (a, b) = self;
        a.validity(granted, hold).and(b.validity(granted, hold))
    }

    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        self.held(hold, max_cost)
    }
}

/// Does something with a rule that can be leased, or gives an error.
macro_rules! leasable {
    ($any:expr, $rule:ident => $value:expr, $other:ident => $otherwise:expr) => {
        match $any {
            AnyRule::TokenBucket($rule) => $value,
            AnyRule::FixedWindow($rule) => $value,
            AnyRule::SlidingWindow($rule) => $value,
            AnyRule::SlidingLog($rule) => $value,
            AnyRule::All($rule) => $value,
            $other => $otherwise,
        }
    };
}

fn cannot_be_leased(rule: &AnyRule) -> Error {
    Error::new(format!(
        "leases of `{rule}`: expected a token bucket, fixed or sliding windows, a sliding log, or several of them; choose one of those, or \
         leave the leases out, so that the store decides each call"
    ))
}

impl Leasable for AnyRule {
    fn usual_hold(&self) -> Duration {
        leasable!(self, rule => rule.usual_hold(), _other => Duration::ZERO)
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        leasable!(self, rule => rule.held(hold, max_cost).map(Self::from), other => Err(cannot_be_leased(other)))
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        leasable!(self, rule => rule.validity(granted, hold), _other => Validity::together(Duration::ZERO))
    }

    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        leasable!(self, rule => rule.held_in_pair(hold, max_cost).map(Self::from), other => Err(cannot_be_leased(other)))
    }
}

impl Leasable for All {
    fn usual_hold(&self) -> Duration {
        let holds = self.rules().iter().map(Leasable::usual_hold);
        holds.min().unwrap_or_default()
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let held = self
            .rules()
            .iter()
            .map(|rule| rule.held_in_pair(hold, max_cost));
        held.collect::<Result<_, _>>().map(Self)
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        let each = self.rules().iter().map(|rule| rule.validity(granted, hold));
        each.reduce(Validity::and)
            .unwrap_or(Validity::together(Duration::ZERO))
    }
}
