//! Tokens at a constant rate, spent as requests come.

mod step;
mod wire;

use std::{fmt, num::NonZeroU64, time::Duration};

pub(super) use self::step::TokenBucketState;
use super::{
    arithmetic::gcd,
    fleet_rule::share_of,
    rate::{Misfit, Rate},
    rule::{RuleWords, Setting, fmt_time, of_quota, set, text},
    ticks::PER_NANO,
};
use crate::{
    error::{Error, panicking},
    quota::Quota,
};

/// A token bucket: refills at the quota's rate up to its burst, and each request takes its cost.
///
/// Makes the same decisions, call for call, as the virtual scheduling form known as GCRA (ITU-T
/// I.371). The bucket is refilled by the operation that spends; nothing runs in the background.
///
/// # Guarantees
///
/// In any span Δt at most burst + rate · Δt units pass. So `100/1m` can let 199 through in one
/// minute: 100 at its beginning, and the 99 that are refilled until just before its end. A full
/// bucket that is left alone always has its whole burst.
///
/// # Rounding
///
/// Time is counted in ticks of a third of a nanosecond, and the interval between two tokens (period
/// / amount) is rounded *down* to a whole number of ticks. So the whole amount is back after
/// exactly one period, and the long-run rate is at most this much above the quota:
///
/// | tokens per second | above the quota |
/// |---|---|
/// | any whose interval is a whole number of ticks, such as 3, 8, 60, or 1000 | 0 |
/// | up to 3,000 | 10⁻⁶ |
/// | up to a million | 3.3·10⁻⁴ |
/// | up to 3·10⁷ | 1 % |
///
/// If the interval is no whole number of ticks and the bucket takes more than 35 days to fill, it
/// is rounded down further, to at most a microsecond: up to 10⁻⁶ above the quota for bursts of up
/// to 2³² tokens. Headers and the text of the rule show the quota as written.
///
/// A bucket of more than 3·10⁷ tokens a second, or of more than 24 years to fill, is refused when
/// it is built. Count traffic of more than 30 MB/s in KiB instead of bytes.
///
/// # Correcting a charge
///
/// Each charge lies on the bucket's time axis behind those before it, and takes as much of it as
/// its cost takes to refill. Refill restores a charge from its beginning on; the part that lies
/// behind the last call can be refunded. So a meter of the actual costs would have admitted every
/// call that was admitted, however many charges were open at once.
///
/// | since the charge | refunded |
/// |---|---|
/// | nothing was written, and the bucket is not full | all: the key is left as if the call had cost the actual amount from the beginning |
/// | other calls were admitted | the part of the charge that lies behind the last one; less by what was refunded to the key since, at most down to what is left of `cost · interval` after the charge's instant |
/// | the bucket has filled up | nothing |
///
/// A bucket in constant use has its charges far ahead of now, and gets them back whole. Time that
/// was refunded while other charges were open is remembered until the last of those has passed: in
/// [`Local`](crate::store::Local), the key leaves the table of one-word states for that long. A
/// [`Cascade`](crate::Cascade), a [`ThreeColor`](crate::ThreeColor) and several buckets under one
/// key refund what the last call left of `cost · interval` after the charge's instant, if others
/// were admitted since. A state [in one or two words](crate::store::Local#memory) has no instant of
/// the last call, which counts as now. To settle several buckets exactly, make them limits of their
/// own ([`Limit`](crate::Limit) and `.also(…)`).
///
/// # Tokens kept free
///
/// A rule that [keeps tokens free](Self::keep_free) refuses a call if fewer than these would be
/// left. It is the same bucket with the same state, and takes nothing of it but the costs of its
/// calls. So important calls of a key can be given the bucket itself by a [rule per
/// request](crate::RateLimitLayer::rule), and others this rule ([program]).
///
/// ```
/// use tollgate::{Cost, Timestamp, TokenBucket, algorithm::Algorithm};
///
/// let bucket = TokenBucket::per_second(10);
/// let keeping = bucket.keep_free(4);
/// assert_eq!(keeping.to_string(), "token-bucket 10/s keep-free=4");
///
/// let (mut state, now) = (None, Timestamp::default());
/// let mut admits = |rule: TokenBucket| {
///     let mut call = || rule.step(&mut state, now, Cost::ONE).decision();
///     (0..20).filter(|_| call().is_admitted()).count()
/// };
/// assert_eq!((admits(keeping), admits(bucket)), (6, 4));
/// ```
///
/// - The limit, the remaining units and the waits of a decision, and so the headers, are those of
///   its caller: of the part that is not kept free. The quota is as written.
/// - Refill, corrections, grants and expiry are those of the whole bucket. A correction to a higher
///   cost may take tokens that are kept free.
/// - [Leased](crate::store::StoreExt::leased) units are spent under the rule that they were granted
///   under. Between [synchronisations](crate::store::StoreExt::synced), nodes may take up to their
///   overshoot of what is kept free.
/// - Each bucket of a [`Cascade`](crate::Cascade) may keep tokens free. Windows cannot: counters,
///   which run them too, add a call before they know what is left.
///
/// [program]: crate::guide::plans#important-calls-among-others
///
/// # When the rule changes
///
/// Credit carries over as time: a bucket that was emptied half a minute ago holds what the new
/// rule refills in half a minute, at most the new burst. An exhausted client stays
/// exhausted, and a larger bucket starts no fuller.
///
/// # When the clock steps back
///
/// Time stands still for a key at its last write, until the clock has caught up.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Cost, Timestamp, TokenBucket};
/// use tollgate::algorithm::Algorithm;
///
/// let rule = TokenBucket::per_minute(100);
/// let (mut state, noon) = (None, Timestamp::from_nanos(43_200_000_000_000));
/// let empty = rule.step(&mut state, noon, Cost::new(100).unwrap()).decision();
/// assert_eq!(empty.remaining(), Some(0));
///
/// let half_a_minute = rule.look(state.as_ref(), noon.saturating_add(Duration::from_secs(30)));
/// assert_eq!(half_a_minute.remaining(), Some(50));
/// ```
#[doc(alias("gcra", "governor", "rate limit"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    quota: Quota,
    pub(super) burst: NonZeroU64,
    /// The greatest cost that passes: the burst without what is kept free.
    pub(super) most: NonZeroU64,
    pub(super) initial: u64,
    /// In nanoseconds.
    pub(super) keep: u64,
    pub(super) rate: Rate,
    /// The level of what is kept free, in ticks.
    pub(super) floor: i64,
}

const DAY: u64 = 86_400_000_000_000;

impl TokenBucket {
    /// Creates a bucket that refills at `quota`, with the quota's amount as its burst.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails; meant for literals.
    #[track_caller]
    pub const fn new(quota: Quota) -> Self {
        match Self::of_amount(quota) {
            Ok(bucket) => bucket,
            Err(misfit) => panic!("{}", misfit.message()),
        }
    }

    /// Creates a bucket that refills at `quota`, with the quota's amount as its burst.
    ///
    /// # Errors
    ///
    /// When the quota is above 3·10⁷ tokens a second, or its period above 24 years.
    pub fn try_new(quota: Quota) -> Result<Self, Error> {
        Self::of_amount(quota).map_err(|misfit| Error::new(misfit.message()))
    }

    /// Creates a bucket that refills by one token every `period`, with a [burst](Self::burst) of 1.
    ///
    /// The interval is exact: nothing is rounded. governor calls this `Quota::with_period(period)`,
    /// and tower_governor calls it `per_second(n)` for a period of n seconds.
    /// [`per_second(n)`](Self::per_second) of this crate is n tokens a second: see [coming from
    /// tower_governor](crate::migration#from-tower_governor).
    ///
    /// For a period that comes from configuration, use [`try_new`](Self::try_new) with
    /// [`Quota::try_new(1, period)`](Quota::try_new).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::one_every(Duration::from_secs(2)).burst(5);
    /// assert_eq!(bucket.to_string(), "token-bucket 1/2s burst=5");
    /// assert_eq!("token-bucket 1/2s burst=5".parse(), Ok(bucket));
    ///
    /// let period = Duration::from_millis(1500);
    /// let configured = TokenBucket::try_new(Quota::try_new(1, period)?)?;
    /// assert_eq!(configured, TokenBucket::one_every(period));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the period is 0, below 34 ns, or above 24 years; meant for literals.
    #[track_caller]
    #[doc(alias("with_period", "per_second", "per_millisecond", "interval"))]
    pub const fn one_every(period: Duration) -> Self {
        Self::new(Quota::new(1, period))
    }

    const fn of_amount(quota: Quota) -> Result<Self, Misfit> {
        let burst = quota.limit();
        Self::with(quota, burst, burst, quota.amount(), DAY)
    }

    const fn with(
        quota: Quota,
        burst: NonZeroU64,
        most: NonZeroU64,
        initial: u64,
        keep: u64,
    ) -> Result<Self, Misfit> {
        let most_held = if initial > burst.get() {
            initial
        } else {
            burst.get()
        };
        match Rate::of(quota, most_held, burst.get()) {
            Ok(rate) => Ok(Self {
                quota,
                burst,
                most,
                initial,
                keep,
                floor: rate.price_of(burst.get() - most.get()),
                rate,
            }),
            Err(misfit) => Err(misfit),
        }
    }

    panicking! {
        /// Sets the capacity and the initial fill of the bucket, in tokens.
        #[doc(alias("burst_size", "capacity"))]
        pub fn burst(self, tokens: u64) = try_burst;
    }

    /// Sets the capacity and the initial fill of the bucket, in tokens.
    ///
    /// # Errors
    ///
    /// When `tokens` is 0 or above 2⁴⁰, is no more than the bucket [keeps free](Self::keep_free),
    /// or such a bucket takes more than 24 years to fill.
    pub fn try_burst(self, tokens: u64) -> Result<Self, Error> {
        let burst = NonZeroU64::new(tokens).ok_or_else(|| {
            Error::new("a burst of 0: expected at least 1; nothing could ever pass")
        })?;
        fits(tokens, "burst")?;
        let most = not_kept(burst, self.kept_free())?;
        Self::with(self.quota, burst, most, tokens, self.keep)
            .map_err(|misfit| misfit.of(self.quota, "burst", tokens))
    }

    panicking! {
        /// Keeps some tokens free: calls under this rule leave that many in the bucket, for calls
        /// under [another rule](#tokens-kept-free).
        ///
        /// 0 by default. The order of the settings does not matter, but each of them is checked: a
        /// reserve of the quota's amount or more needs a larger [burst](Self::burst) before it.
        #[doc(alias("reserve", "priority", "headroom"))]
        pub fn keep_free(self, tokens: u64) = try_keep_free;
    }

    /// Keeps some tokens [free](#tokens-kept-free).
    ///
    /// # Errors
    ///
    /// When `tokens` is the whole burst or more.
    pub fn try_keep_free(self, tokens: u64) -> Result<Self, Error> {
        let most = not_kept(self.burst, tokens)?;
        let floor = self.rate.price_of(tokens);
        Ok(Self {
            most,
            floor,
            ..self
        })
    }

    panicking! {
        /// Sets the initial fill of a new key's bucket, in tokens.
        ///
        /// It may exceed the burst: the excess stays until it is spent. It may be 0: a
        /// new key then has to wait for its first token.
        pub fn initial(self, tokens: u64) = try_initial;
    }

    /// Sets the initial fill of a new key's bucket, in tokens.
    ///
    /// # Errors
    ///
    /// When `tokens` is above 2⁴⁰, or takes more than 24 years to refill.
    pub fn try_initial(self, tokens: u64) -> Result<Self, Error> {
        fits(tokens, "initial fill")?;
        Self::with(self.quota, self.burst, self.most, tokens, self.keep)
            .map_err(|misfit| misfit.of(self.quota, "initial fill", tokens))
    }

    /// Sets how long a key is remembered after its bucket is full; then it is granted its initial
    /// fill again.
    ///
    /// Matters only if the initial fill is not the burst; 24 hours by default. Cut to 2⁶⁴ − 1 ns.
    ///
    /// Keep at least a minute. A higher initial fill is granted again to each client that has
    /// paused so long, and with zero to each call. With a lower one, a client that returns later
    /// than `keep` after its bucket is full begins with the initial fill again: it is never
    /// admitted if that is too little for it, and clients round their waits up to seconds.
    #[must_use]
    pub fn keep(self, time: Duration) -> Self {
        let keep = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { keep, ..self }
    }

    /// Returns `true` if a [`PackedState`](crate::algorithm::PackedState) holds its states.
    #[inline]
    pub(super) const fn is_packed(&self) -> bool {
        self.starts_full() && self.rate.fits_packed_state()
    }

    /// Returns the rate at which it refills, as written.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns its capacity in tokens, including those that are [kept free](Self::keep_free).
    pub const fn capacity(&self) -> u64 {
        self.burst.get()
    }

    /// Returns the tokens that it [keeps free](Self::keep_free).
    pub const fn kept_free(&self) -> u64 {
        self.burst.get() - self.most.get()
    }

    /// Returns the bucket itself, of which nothing is kept free.
    pub(super) const fn whole(&self) -> Self {
        Self {
            most: self.burst,
            floor: 0,
            ..*self
        }
    }

    /// Returns the most tokens that are refilled within some time.
    pub(super) fn refilled_within(&self, time: Duration) -> u64 {
        let ticks = time.as_nanos().saturating_mul(PER_NANO.into());
        u64::try_from(ticks.div_ceil(self.rate.price as u128)).unwrap_or(u64::MAX)
    }

    /// Returns the time in which some tokens are refilled, rounded down to nanoseconds.
    pub(super) fn refill_of(&self, tokens: u64) -> Duration {
        let nanos = self.rate.price_of_any(tokens) / i128::from(PER_NANO);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns `true` if the bucket of a new key is full, as that of an idle key is.
    pub(super) const fn starts_full(&self) -> bool {
        self.initial == self.burst.get()
    }
}

/// Returns the part of a burst that is not kept free.
fn not_kept(burst: NonZeroU64, kept: u64) -> Result<NonZeroU64, Error> {
    let left = burst.get().checked_sub(kept).and_then(NonZeroU64::new);
    left.ok_or_else(|| {
        Error::new(format!(
            "{kept} tokens kept free of a burst of {burst}: expected less than the burst; nothing could ever pass; keep fewer free, \
             or set a larger burst before"
        ))
    })
}

/// Checks a number of tokens.
fn fits(tokens: u64, what: &str) -> Result<(), Error> {
    if tokens > Quota::MAX_AMOUNT {
        return Err(Error::new(format!(
            "a {what} of {tokens}: expected at most 2^40 (1099511627776); count in larger units"
        )));
    }
    Ok(())
}

of_quota!(
    bucket TokenBucket,
    "A bucket of `amount` tokens that are refilled within a second.",
    "A bucket of `amount` tokens that are refilled within a minute.",
    "A bucket of `amount` tokens that are refilled within an hour.",
    "A bucket of `amount` tokens that are refilled within a day of 24 hours."
);

impl TokenBucket {
    panicking! {
        /// Scales all amounts of tokens by `numerator / denominator`.
        ///
        /// The rate is exact if a [`Quota`] can express it, as `100/3m` is a third of `100/1m`, and
        /// else a little lower. Burst and initial fill are rounded down to whole tokens, and those
        /// that are kept free are rounded up. So the shares of all nodes never exceed the whole.
        pub fn scaled(self, numerator: u64, denominator: u64) = try_scaled;
    }

    /// Scales the bucket by `numerator / denominator`, as [`scaled`](Self::scaled) does.
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
    /// When `numerator` or `denominator` is 0, when less than one token would be left of the burst
    /// or beside those that are kept free, or when a bucket of these numbers is refused.
    pub fn try_scaled(self, numerator: u64, denominator: u64) -> Result<Self, Error> {
        let burst = share_of(("burst", self.burst.get()), numerator, denominator)?;
        let scaled = |tokens: u64| u128::from(tokens) * u128::from(numerator);
        let initial = scaled(self.initial) / u128::from(denominator);
        let kept = scaled(self.kept_free()).div_ceil(denominator.into());
        let quota = scaled_quota(self.quota, numerator, denominator)?;
        let bucket = Self::try_new(quota)?
            .try_burst(burst)?
            .try_initial(u64::try_from(initial).unwrap_or(u64::MAX))?
            .try_keep_free(u64::try_from(kept).unwrap_or(u64::MAX))?;
        Ok(bucket.keep(Duration::from_nanos(self.keep)))
    }
}

/// Returns the highest quota that can be expressed and is at most `numerator / denominator` of this
/// one; both are above zero.
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

impl TokenBucket {
    /// Writes the quota, and the settings that differ from the defaults.
    pub(super) fn fmt_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.quota)?;
        if self.burst.get() != self.quota.amount() {
            write!(f, " burst={}", self.burst)?;
        }
        if self.kept_free() > 0 {
            write!(f, " keep-free={}", self.kept_free())?;
        }
        if !self.starts_full() {
            write!(f, " initial={}", self.initial)?;
        }
        // Also if it does not matter, so that parsing gives an equal rule.
        fmt_time(f, "keep", (self.keep != DAY).then_some(self.keep))
    }

    /// Parses a quota and settings, without the name before them.
    pub(super) fn of_words(words: &mut RuleWords<'_>) -> Result<Self, Error> {
        let bucket = words.bucket(Self::try_new)?;
        let names = ["burst", "initial", "keep", "keep-free"];
        let [burst, initial, keep, keep_free] = words.settings(&names)?;
        let bucket = set(bucket, burst, Setting::number, Self::try_burst)?;
        let mut bucket = set(bucket, initial, Setting::number, Self::try_initial)?;
        if let Some(word) = keep {
            bucket = bucket.keep(word.duration()?);
        }
        set(bucket, keep_free, Setting::number, Self::try_keep_free)
    }
}

text! {
    /// Parses `token-bucket 100/1m burst=150 keep-free=20 initial=300 keep=24h`; all but the quota
    /// may be left out.
    TokenBucket
}
