//! The rules whose counts are compared.

use tollgate::{
    AnyRule, Cost, FixedWindow, Quota, SlidingLog, SlidingWindow, Timestamp, TokenBucket,
    algorithm::Algorithm,
};

use crate::window_count::{endless, used};

/// A full hour, at which figures begin. Windows of the calendar that divide an hour begin there
/// too.
pub(super) const NOON: Timestamp = Timestamp::from_nanos(43_200_000_000_000);

/// A call costs so many units of a rule that only counts, so that its estimate has three digits
/// after the point.
pub(super) const UNITS: u64 = 1000;

/// A rule, and a form of it that never refuses.
pub(super) struct Estimator {
    /// The name of its column.
    pub(super) name: &'static str,
    /// The rule with the limit.
    pub(super) rule: AnyRule,
    counting: AnyRule,
}

/// The count of a rule that never refuses.
pub(super) struct Counter<'a> {
    rule: &'a AnyRule,
    state: Option<<AnyRule as Algorithm>::State>,
}

const SLICES: [(&str, u64); 5] = [
    ("weighted_1+1", 1),
    ("weighted_2+1", 2),
    ("weighted_4+1", 4),
    ("weighted_12+1", 12),
    ("weighted_60+1", 60),
];

impl Estimator {
    /// Returns all estimators of a limit, the perfect one first and the token bucket last.
    pub(super) fn all(limit: Quota) -> Result<Vec<Self>, String> {
        let wrong = |error: tollgate::Error| format!("--limit \"{limit}\": {error}");
        let endless = endless(limit).map_err(|error| format!("--limit: {error}"))?;
        let amount = limit.amount();
        let fine = amount
            .checked_mul(UNITS)
            .and_then(|amount| Quota::try_new(amount, limit.period()).ok());
        let fine = fine.ok_or_else(|| {
            format!("--limit \"{limit}\": the figure counts in thousandths of calls; choose a lower limit")
        })?;
        let new = |name, rule: AnyRule, counting: AnyRule| Self {
            name,
            rule,
            counting,
        };
        let mut all = vec![
            new(
                "perfect",
                SlidingLog::new(limit).into(),
                SlidingLog::new(endless).into(),
            ),
            new(
                "fixed",
                FixedWindow::new(limit).into(),
                FixedWindow::new(endless).into(),
            ),
        ];
        for (name, slices) in SLICES {
            let sliced = |quota| SlidingWindow::new(quota).try_slices(slices).map_err(wrong);
            all.push(new(name, sliced(limit)?.into(), sliced(endless)?.into()));
        }
        // It leaks at the limit's rate, whatever its capacity: the greatest that a slow rate allows.
        let bucket = TokenBucket::try_new(fine).map(|bucket| {
            let mut larger = (1..=36)
                .rev()
                .filter_map(|bits| bucket.try_burst(1 << bits).ok());
            larger.next().unwrap_or(bucket)
        });
        all.push(new(
            "token_bucket",
            TokenBucket::try_new(limit).map_err(wrong)?.into(),
            bucket.map_err(wrong)?.into(),
        ));
        Ok(all)
    }

    pub(super) fn counter(&self) -> Counter<'_> {
        Counter {
            rule: &self.counting,
            state: None,
        }
    }
}

impl Counter<'_> {
    /// Counts a call. Returns the estimate right after it, in thousandths of calls, rounded up.
    pub(super) fn call(&mut self, now: Timestamp) -> u64 {
        let cost = Cost::new(UNITS).unwrap_or(Cost::ONE);
        let decision = self.rule.step(&mut self.state, now, cost).decision();
        used(decision.limit(), decision.remaining())
    }
}
