//! Tokens at a constant rate, spent as requests come.

use std::{
    fmt,
    num::NonZeroU64,
    str::FromStr,
    time::Duration,
};

use super::{
    Algorithm, Step,
    credit::{Credit, div_ceil, div_floor, duration},
    text::Words,
};
use crate::{
    clock::Timestamp,
    decision::{Charge, Cost, Decision, Verdict},
    error::Error,
    quota::{Quota, fmt_duration},
};

/// A token bucket: refills at the quota's rate up to its burst, and a request takes its cost.
///
/// Decides the same, call for call, as the virtual scheduling form known as GCRA
/// (ITU-T I.371). It is refilled by the operation that spends; nothing runs in the background.
///
/// # What it guarantees
///
/// In any span Δt at most burst + rate · Δt units pass. So `100/1m` lets 199 through in some
/// minute: 100 at its beginning, and the 99 that are refilled until just before its end.
/// A full bucket that was left alone always has its whole burst.
///
/// All arithmetic is exact: `3/s` has all its three tokens back after a second, not a nanosecond
/// later. Only an amount that stays above 2³² after reducing it by the period
/// (9,999,999,999/s) is rounded, in favour of the limit, by at most 3·10⁻⁷ of the rate.
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    quota: Quota,
    burst: NonZeroU64,
    initial: u64,
    keep: u64,
    /// What a token costs, and what a nanosecond brings, in the smallest unit that makes both whole.
    per_token: u64,
    per_nano: u64,
}

/// What a [`TokenBucket`] remembers of a key: how long its bucket had been filling at the last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucketState {
    written_at: Timestamp,
    credit: Credit,
}

const DAY: u64 = 86_400_000_000_000;

impl TokenBucket {
    /// A bucket that refills at `quota`, with the quota's amount as its burst.
    pub const fn new(quota: Quota) -> Self {
        let (amount, period) = (quota.amount(), quota.period_nanos());
        let divisor = gcd(amount, period);
        let (mut per_nano, mut per_token) = (amount / divisor, period / divisor);
        const MOST: u64 = 1 << 32;
        if per_nano > MOST {
            // A slightly dearer token, so that a credit can hold every fraction.
            let dearer = (per_token as u128 * MOST as u128).div_ceil(per_nano as u128);
            (per_nano, per_token) = (MOST, dearer as u64);
        }
        let Some(burst) = NonZeroU64::new(amount) else {
            unreachable!()
        };
        Self { quota, burst, initial: amount, keep: DAY, per_token, per_nano }
    }

    /// A bucket of `amount` tokens that are refilled within a second.
    ///
    /// # Panics
    ///
    /// When the amount is 0 or above 2⁴⁰.
    pub const fn per_second(amount: u64) -> Self {
        Self::new(Quota::per_second(amount))
    }

    /// A bucket of `amount` tokens that are refilled within a minute.
    ///
    /// # Panics
    ///
    /// When the amount is 0 or above 2⁴⁰.
    pub const fn per_minute(amount: u64) -> Self {
        Self::new(Quota::per_minute(amount))
    }

    /// A bucket of `amount` tokens that are refilled within an hour.
    ///
    /// # Panics
    ///
    /// When the amount is 0 or above 2⁴⁰.
    pub const fn per_hour(amount: u64) -> Self {
        Self::new(Quota::per_hour(amount))
    }

    /// A bucket of `amount` tokens that are refilled within a day of 24 hours.
    ///
    /// # Panics
    ///
    /// When the amount is 0 or above 2⁴⁰.
    pub const fn per_day(amount: u64) -> Self {
        Self::new(Quota::per_day(amount))
    }

    /// The same bucket with room for `tokens` tokens, and as many in it at first.
    ///
    /// # Panics
    ///
    /// Where [`try_burst`](Self::try_burst) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn burst(self, tokens: u64) -> Self {
        self.try_burst(tokens).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same bucket with room for `tokens` tokens, and as many in it at first.
    ///
    /// # Errors
    ///
    /// When `tokens` is 0 or above 2⁴⁰, or such a bucket takes more than 2⁹⁵ ns to fill.
    pub fn try_burst(self, tokens: u64) -> Result<Self, Error> {
        let burst = NonZeroU64::new(tokens).ok_or_else(|| {
            Error::new("a burst of 0: expected at least 1; nothing could ever pass")
        })?;
        self.fits(tokens, "burst")?;
        Ok(Self { burst, initial: tokens, ..self })
    }

    /// The same bucket with `tokens` tokens in it at first.
    ///
    /// May exceed the burst: what lies above it stays until it is spent. May be 0: a
    /// new key then has to wait for its first token.
    ///
    /// # Panics
    ///
    /// Where [`try_initial`](Self::try_initial) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn initial(self, tokens: u64) -> Self {
        self.try_initial(tokens).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same bucket with `tokens` tokens in it at first.
    ///
    /// # Errors
    ///
    /// When `tokens` is above 2⁴⁰, or takes more than 2⁹⁵ ns to refill.
    pub fn try_initial(self, tokens: u64) -> Result<Self, Error> {
        self.fits(tokens, "initial fill")?;
        Ok(Self { initial: tokens, ..self })
    }

    /// The same bucket that grants its initial fill again to a key that was full and unused for `time`.
    ///
    /// Matters only where the initial fill is not the burst; 24 hours by default. Cut to 2⁶⁴ − 1 ns.
    #[must_use]
    pub fn keep(self, time: Duration) -> Self {
        let keep = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { keep, ..self }
    }

    fn fits(&self, tokens: u64, what: &str) -> Result<(), Error> {
        if tokens > Quota::MAX_AMOUNT {
            return Err(Error::new(format!(
                "a {what} of {tokens}: expected at most 2^40 (1099511627776); count in larger units"
            )));
        }
        let units = u128::from(tokens) * u128::from(self.per_token);
        if units / u128::from(self.per_nano) >= Credit::MAX_NANOS {
            return Err(Error::new(format!(
                "a {what} of {tokens} at {} takes more than 10^12 years to refill: \
                 expected less; choose a smaller one or a faster rate",
                self.quota
            )));
        }
        Ok(())
    }

    /// The rate at which it refills.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Its capacity in tokens.
    pub const fn capacity(&self) -> u64 {
        self.burst.get()
    }

    /// Whether a new key is like one that has been left alone.
    const fn starts_at_rest(&self) -> bool {
        self.initial == self.burst.get()
    }

    #[inline]
    fn price(&self, tokens: u64) -> i128 {
        // At most 2^40 tokens of at most 2^63 units.
        i128::from(tokens) * i128::from(self.per_token)
    }

    fn initial_fill(&self, now: Timestamp) -> Fill {
        Fill { level: self.price(self.initial), at: now, known: false }
    }

    /// What is in the bucket.
    #[inline]
    fn fill(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Fill {
        let Some(state) = state else {
            return self.initial_fill(now);
        };
        if !self.starts_at_rest() && now >= self.forgettable_at(state) {
            return self.initial_fill(now);
        }
        let at = now.max(state.written_at);
        let (level, full) = (state.credit.units(self.per_nano), self.price(self.burst.get()));
        let level = if level > full {
            level.min(full.max(self.price(self.initial)))
        } else {
            let elapsed = at.as_nanos() - state.written_at.as_nanos();
            let refill = i128::from(elapsed) * i128::from(self.per_nano);
            level.saturating_add(refill).min(full)
        };
        Fill { level, at, known: true }
    }

    fn state(&self, level: i128, at: Timestamp) -> TokenBucketState {
        TokenBucketState { written_at: at, credit: Credit::from_units(level, self.per_nano) }
    }

    /// Nanoseconds until a bucket at `level` is at `target`.
    #[inline]
    fn wait(&self, level: i128, target: i128) -> u128 {
        let lacking = u128::try_from(target.saturating_sub(level)).unwrap_or(0);
        div_ceil(lacking, self.per_nano)
    }

    #[inline]
    fn answer(&self, verdict: Verdict, now: Timestamp, cost: u64, fill: &Fill) -> Decision {
        let full = self.price(self.burst.get());
        let held = u128::try_from(fill.level).unwrap_or(0);
        let remaining = (div_floor(held, self.per_token) as u64).min(self.burst.get());
        let stalled = u128::from(fill.at.as_nanos() - now.as_nanos());
        let more_after = if remaining == self.burst.get() {
            0
        } else {
            stalled + self.wait(fill.level, self.price(remaining + 1))
        };
        let reset_after = if self.starts_at_rest() {
            match self.wait(fill.level, full) {
                0 => 0,
                wait => stalled + wait,
            }
        } else if fill.known {
            stalled + self.wait(fill.level, full) + u128::from(self.keep)
        } else {
            0
        };
        Decision::new(verdict, now, cost)
            .with_limit(self.burst, self.quota)
            .with_remaining(remaining)
            .with_more_after(duration(more_after))
            .with_reset_after(duration(reset_after))
    }

    /// The answer to a cost that does not pass.
    fn refuse(&self, now: Timestamp, cost: u64, asked: u64, fill: &Fill) -> Decision {
        let retry_after = (asked <= self.burst.get()).then(|| {
            let stalled = u128::from(fill.at.as_nanos() - now.as_nanos());
            duration(stalled + self.wait(fill.level, self.price(asked)))
        });
        self.answer(Verdict::Refuse, now, cost, fill)
            .with_retry_after(retry_after)
    }
}

/// The level of a bucket, at an instant that is never before the last write.
struct Fill {
    level: i128,
    at: Timestamp,
    known: bool,
}

impl Algorithm for TokenBucket {
    type State = TokenBucketState;

    #[inline]
    fn step(&self, state: &mut Option<TokenBucketState>, now: Timestamp, cost: Cost) -> Step {
        let mut fill = self.fill(state.as_ref(), now);
        if cost.get() <= self.burst.get() {
            let price = self.price(cost.get());
            if fill.level >= price {
                fill.level -= price;
                fill.known = true;
                *state = Some(self.state(fill.level, fill.at));
                let decision = self.answer(Verdict::Allow, now, cost.get(), &fill);
                return Step::Wrote(decision.with_retry_after(Some(Duration::ZERO)));
            }
            if !fill.known && !self.starts_at_rest() {
                // From here on the key fills up: the one refusal that must be remembered.
                fill.known = true;
                *state = Some(self.state(fill.level, fill.at));
                return Step::Wrote(self.refuse(now, cost.get(), cost.get(), &fill));
            }
        }
        Step::Kept(self.refuse(now, cost.get(), cost.get(), &fill))
    }

    fn look(&self, state: Option<&TokenBucketState>, now: Timestamp) -> Decision {
        let fill = self.fill(state, now);
        if fill.level >= self.price(1) {
            self.answer(Verdict::Allow, now, 0, &fill)
                .with_retry_after(Some(Duration::ZERO))
        } else {
            self.refuse(now, 0, 1, &fill)
        }
    }

    /// Gives back at most what keeps the bucket from overflowing.
    ///
    /// As long as no other call has written since the charge, the key is left exactly as if the call
    /// had cost `actual` from the beginning.
    fn settle(
        &self,
        state: &mut Option<TokenBucketState>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        let change = i128::from(charge.cost) - i128::from(actual);
        let change = change.saturating_mul(i128::from(self.per_token));
        if change == 0 || (state.is_none() && change > 0) {
            return;
        }
        let full = self.price(self.burst.get());
        let overfull = full.max(self.price(self.initial));
        let untouched = state.filter(|state| state.written_at == charge.at);
        let (level, at, most) = match untouched {
            // Refill is still to come, and will be cut as it always is.
            Some(state) => (state.credit.units(self.per_nano), charge.at, overfull),
            None => {
                let fill = self.fill(state.as_ref(), now);
                let most = if fill.level > full { overfull } else { full };
                (fill.level, fill.at, most)
            }
        };
        *state = Some(self.state(level.saturating_add(change).min(most), at));
    }

    #[inline]
    fn forgettable_at(&self, state: &TokenBucketState) -> Timestamp {
        let level = state.credit.units(self.per_nano);
        let mut wait = self.wait(level, self.price(self.burst.get()));
        if !self.starts_at_rest() {
            wait += u128::from(self.keep);
        }
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Timestamp::from_nanos(state.written_at.as_nanos().saturating_add(wait))
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl From<Quota> for TokenBucket {
    fn from(quota: Quota) -> Self {
        Self::new(quota)
    }
}

impl fmt::Display for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token-bucket {}", self.quota)?;
        if self.burst.get() != self.quota.amount() {
            write!(f, " burst={}", self.burst)?;
        }
        if !self.starts_at_rest() {
            write!(f, " initial={}", self.initial)?;
            if self.keep != DAY {
                f.write_str(" keep=")?;
                fmt_duration(self.keep, f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenBucket({self})")
    }
}

impl FromStr for TokenBucket {
    type Err = Error;

    /// Parses `token-bucket 100/1m burst=150 initial=300 keep=24h`; all but the quota may be left out.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::of(text);
        words.name("token-bucket")?;
        let mut bucket = Self::new(words.quota()?);
        let settings = words.settings(&["burst", "initial", "keep"])?;
        if let Some(word) = settings[0] {
            bucket = word.apply(word.number()?, |burst| bucket.try_burst(burst))?;
        }
        if let Some(word) = settings[1] {
            bucket = word.apply(word.number()?, |initial| bucket.try_initial(initial))?;
        }
        if let Some(word) = settings[2] {
            bucket = bucket.keep(word.duration()?);
        }
        Ok(bucket)
    }
}
