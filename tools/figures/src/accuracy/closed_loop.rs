//! An estimator that limits: a refused call is not counted.

use std::time::Duration;

use tollgate::{AnyRule, Cost, Quota, algorithm::Algorithm};

use super::estimator::NOON;
use crate::window_count::WindowCount;

/// The calls that a rule admits of some.
#[derive(Default)]
pub(super) struct ClosedLoop {
    pub(super) admitted: u64,
    /// The most admitted calls in any window.
    pub(super) most: u64,
    /// Admitted calls above the limit, by the exact count of the calls that the rule admitted
    /// before.
    pub(super) wrongly_admitted: u64,
    /// Refused calls that would not have been above it.
    pub(super) wrongly_refused: u64,
}

impl ClosedLoop {
    pub(super) fn run(limit: Quota, rule: &AnyRule, calls: &[u64]) -> Result<Self, String> {
        let (mut result, mut meter, mut state) = (Self::default(), WindowCount::new(limit)?, None);
        for call in calls {
            let now = NOON.saturating_add(Duration::from_millis(*call));
            if rule
                .step(&mut state, now, Cost::ONE)
                .decision()
                .is_admitted()
            {
                let count = meter.add(now);
                result.admitted += 1;
                result.most = result.most.max(count);
                result.wrongly_admitted += u64::from(count > limit.amount());
            } else {
                let fits = meter.at(now) < limit.amount();
                result.wrongly_refused += u64::from(fits);
            }
        }
        Ok(result)
    }
}
