//! Exact meters of the rules, written apart from the rules: slow, obvious, and in whole numbers.

mod bucket;
mod log;
mod window;

use tollgate::{AnyRule, Timestamp};

use self::{bucket::BucketMeter, log::LogMeter, window::WindowMeter};

/// Measures the admissions of one key, in the order of their times.
pub trait Meter: Send {
    /// Returns by how many units the limit is exceeded if so many more are admitted; 0 if it is
    /// not.
    fn excess(&self, at: Timestamp, units: u64) -> u64;

    /// Counts units that were admitted.
    fn add(&mut self, at: Timestamp, units: u64);
}

/// Returns the meter of a rule.
///
/// # Errors
///
/// When there is none for the rule.
pub fn of(rule: &AnyRule) -> Result<Box<dyn Meter>, String> {
    Ok(match rule {
        AnyRule::TokenBucket(rule) => Box::new(BucketMeter::new(rule.quota(), rule.capacity())),
        AnyRule::FixedWindow(rule)
            if rule.fixed_offset().is_some_and(|offset| offset.is_zero())
                && !rule.is_from_first_call() =>
        {
            Box::new(WindowMeter::new(rule.quota(), 0))
        }
        AnyRule::SlidingWindow(rule)
            if rule
                .quota()
                .period_nanos()
                .is_multiple_of(rule.slice_count()) =>
        {
            Box::new(WindowMeter::new(rule.quota(), rule.slice_count()))
        }
        AnyRule::SlidingLog(rule) => Box::new(LogMeter::new(rule.quota())),
        AnyRule::All(all) => {
            let meters: Result<Vec<_>, _> = all.rules().iter().map(of).collect();
            Box::new(AllMeters(meters?))
        }
        rule => {
            return Err(format!(
                "`{rule}` has no meter: expected token buckets, sliding logs, fixed windows of the calendar without offset, sliding windows \
                 whose slices divide them evenly, or several of them; choose one of those"
            ));
        }
    })
}

/// The meters of several rules on one key.
struct AllMeters(Vec<Box<dyn Meter>>);

impl Meter for AllMeters {
    fn excess(&self, at: Timestamp, units: u64) -> u64 {
        let each = self.0.iter().map(|meter| meter.excess(at, units));
        each.max().unwrap_or(0)
    }

    fn add(&mut self, at: Timestamp, units: u64) {
        for meter in &mut self.0 {
            meter.add(at, units);
        }
    }
}
