//! Each rule's held rule, and the validity of its granted units.

use std::time::Duration;

use super::{Leasable, Validity};
use crate::{
    algorithm::{Counted, FixedWindow, SlidingLog, SlidingWindow, TokenBucket},
    decision::Decision,
    error::Error,
    quota::{Quota, Written},
};

/// A tenth of the time in which `units` are refilled.
fn tenth(quota: Quota, units: u64) -> Duration {
    let nanos = quota.time_of(units) / 10;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Checks that a limit admits calls of up to `max_cost` units.
fn affords(quota: Quota, max_cost: u64) -> Result<(), Error> {
    let limit = quota.amount();
    if limit >= max_cost {
        return Ok(());
    }
    Err(Error::new(format!(
        "calls of up to {max_cost} units under a limit of {limit}: expected at most the limit; choose a smaller `max_cost` or a larger limit"
    )))
}

impl Leasable for TokenBucket {
    fn usual_hold(&self) -> Duration {
        tenth(self.quota(), self.capacity())
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let burst = self.capacity();
        let refilled = self.refilled_within(hold);
        let left = burst.saturating_sub(refilled);
        if left < max_cost.max(1) {
            return Err(Error::new(format!(
                "`{self}` with leases of {}: expected at least {max_cost} of its burst of {burst} to be left, but {refilled} are refilled \
                 during that time, and the burst pays for them; choose shorter leases, a larger burst or a smaller `max_cost`",
                Written(hold)
            )));
        }
        let initial = self.initial_fill();
        self.try_burst(left)?.try_initial(if self.starts_full() {
            left
        } else {
            initial.saturating_sub(refilled)
        })
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        let charge = granted.charge();
        let from_grant = self.refill_of(charge.as_ref().map_or(0, |charge| charge.cost));
        // What leases inside have granted lies on another time axis.
        let position = charge.and_then(|charge| charge.position);
        let end = position
            .filter(|position| !position.is_of_lease())
            .map(|position| {
                let end = position.end().saturating_sub(granted.at().as_nanos());
                Duration::from_nanos(end)
            });
        Validity::one_by_one(end.unwrap_or(from_grant).saturating_add(hold), self.quota())
    }
}

impl Leasable for FixedWindow {
    fn usual_hold(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn held(&self, _: Duration, max_cost: u64) -> Result<Self, Error> {
        affords(self.quota(), max_cost).map(|()| *self)
    }

    fn validity(&self, granted: &Decision, _: Duration) -> Validity {
        // The charge counts, so the window of a first call ends when the key is reset.
        Validity::together(
            self.left_in_calendar(granted.at())
                .unwrap_or_else(|| granted.reset_after()),
        )
    }

    fn held_in_pair(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        if self.is_from_first_call() {
            return Err(Error::new(format!(
                "leases of `{self}` together with another rule: expected windows of the calendar, because a decision of several rules does not \
                 say when this one's window ends; leave out the first call, or make it a limit of its own"
            )));
        }
        self.held(hold, max_cost)
    }
}

impl Leasable for SlidingWindow {
    fn usual_hold(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn held(&self, _: Duration, max_cost: u64) -> Result<Self, Error> {
        affords(self.quota(), max_cost).map(|()| *self)
    }

    fn validity(&self, granted: &Decision, _: Duration) -> Validity {
        let left = self.slicing().map_or(Duration::ZERO, |slicing| {
            let next = slicing.begin(slicing.slice(granted.at()) + 1);
            next.saturating_since(granted.at())
        });
        Validity::together(left)
    }
}

impl Leasable for SlidingLog {
    fn usual_hold(&self) -> Duration {
        tenth(self.quota(), self.quota().amount())
    }

    fn held(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let quota = self.quota();
        affords(quota, max_cost)?;
        Quota::try_new(quota.amount(), quota.period().saturating_add(hold)).map(Self::new)
    }

    fn validity(&self, _: &Decision, hold: Duration) -> Validity {
        Validity::together(hold)
    }
}
