//! A share of a bucket.

use std::time::Duration;

use super::TokenBucket;
use crate::{error::Error, quota::Quota};

impl TokenBucket {
    /// `numerator / denominator` of this bucket: of its rate, its burst and its initial fill.
    ///
    /// The rate is exact where a [`Quota`] can say it, as a third of `100/1m` is `100/3m`, and else a little lower. Burst
    /// and initial fill are cut to whole tokens. So the shares of all nodes never exceed the whole.
    ///
    /// # Panics
    ///
    /// Where [`try_scaled`](Self::try_scaled) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn scaled(self, numerator: u64, denominator: u64) -> Self {
        self.try_scaled(numerator, denominator)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// `numerator / denominator` of this bucket, as [`scaled`](Self::scaled) says.
    ///
    /// ```
    /// use tollgate::TokenBucket;
    ///
    /// let third = TokenBucket::per_minute(90).burst(100).try_scaled(1, 3)?;
    /// assert_eq!(third.to_string(), "token-bucket 30/1m burst=33");
    /// assert!(TokenBucket::per_minute(2).try_scaled(1, 3).is_err());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When `numerator` or `denominator` is 0, when less than one token would be left of the burst, or when such a bucket
    /// cannot be.
    pub fn try_scaled(self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        if numerator == 0 || denominator == 0 {
            return Err(Error::new(format!(
                "a share of {numerator}/{denominator}: expected both numbers to be at least 1, as in 1/3"
            )));
        }
        let share = |tokens: u64| {
            let tokens = u128::from(tokens) * u128::from(numerator) / u128::from(denominator);
            u64::try_from(tokens).unwrap_or(u64::MAX)
        };
        let burst = share(self.burst.get());
        if burst == 0 {
            return Err(Error::new(format!(
                "a share of {numerator}/{denominator} of a burst of {}: expected at least one whole token; \
                 choose a larger burst or a larger share",
                self.burst
            )));
        }
        let quota = scaled_quota(self.quota, numerator, denominator)?;
        let bucket = Self::new(quota)
            .try_burst(burst)?
            .try_initial(share(self.initial))?;
        Ok(bucket.keep(Duration::from_nanos(self.keep)))
    }
}

/// The highest quota that can be said and is not above `numerator / denominator` of this one; both above zero.
fn scaled_quota(quota: Quota, numerator: u64, denominator: u64) -> Result<Quota, Error> {
    // At most 2^104 and 2^127.
    let amount = u128::from(quota.amount()) * u128::from(numerator);
    let period = u128::from(quota.period_nanos()) * u128::from(denominator);
    let whole = amount / u128::from(denominator);
    let of_a_period = (whole, u128::from(quota.period_nanos()));
    let divisor = gcd(amount, period);
    let exact = [(amount, period), (amount / divisor, period / divisor)];
    let can_be = |(amount, period): &(u128, u128)| {
        *amount <= u128::from(Quota::MAX_AMOUNT) && *period <= Quota::MAX_PERIOD.as_nanos()
    };
    let (amount, period) = if amount % u128::from(denominator) == 0 {
        of_a_period
    } else if let Some(exact) = exact.into_iter().find(can_be) {
        exact
    } else if whole > 0 {
        of_a_period
    } else {
        (1, period.div_ceil(amount))
    };
    let [amount, period] = [amount, period].map(|number| u64::try_from(number).unwrap_or(u64::MAX));
    Quota::try_new(amount, Duration::from_nanos(period))
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
