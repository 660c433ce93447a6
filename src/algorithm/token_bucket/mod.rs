//! Tokens at a constant rate, spent as requests come.

mod codec;
mod fill;
mod meter;
mod scale;
mod script;
mod settle;
mod step;
mod text;

use std::{num::NonZeroU64, time::Duration};

use self::settle::GivenBack;
pub(super) use self::{fill::since, meter::BucketMeter};
use super::{credit::Credit, of_quota::of_quota, rate::Rate};
use crate::{clock::Timestamp, error::Error, quota::Quota};

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
/// later. Two kinds of rule are rounded, in favour of the limit: an amount that stays above 2³² after reducing
/// it by the period (9,999,999,999/s), by at most 3·10⁻⁷ of the rate; and a burst that takes more
/// than 146 years to fill at an interval that is no whole number of nanoseconds, by a nanosecond a call.
///
/// # When a charge is corrected
///
/// Each charge lies on the bucket's time axis behind those before it, and takes as much of it as its cost takes to
/// refill. Refill restores a charge from its beginning on; the part that lies behind the last call can be given
/// back. So a meter of what calls really cost would have admitted every call that was admitted, however many charges
/// were open at once.
///
/// | since the charge | a refund gives back |
/// |---|---|
/// | nothing was written, and the bucket is not full | all: the key is left as if the call had cost the actual amount from the beginning |
/// | other calls were admitted | the part of the charge that lies behind the last one; less by what was given back to the key since, at most down to what is left of `cost · interval` after the charge's instant |
/// | the bucket has filled up | nothing |
///
/// A bucket in constant use has its charges far ahead of now, and gets them back whole. What was given back while other charges
/// were open is remembered until the last of those has passed: in [`Local`](crate::store::Local), the key leaves the table of
/// one-word states for that long. A [`Cascade`](crate::Cascade), a [`ThreeColor`](crate::ThreeColor) and several buckets under
/// one key give back what the last call left of `cost · interval` after the charge's instant, where others were admitted since.
/// A state of one word has no instant of the last call, which counts as now.
/// To settle several buckets exactly, make them limits of their own ([`Limit`](crate::Limit) and `.also(…)`).
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
    pub(super) burst: NonZeroU64,
    initial: u64,
    keep: u64,
    rate: Rate,
    /// The same in words of 64 bits, where it can be counted in those.
    meter: Option<BucketMeter>,
}

/// What a [`TokenBucket`] remembers of a key: how long its bucket had been filling at the last write, and what was given
/// back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct TokenBucketState {
    level: BucketLevel,
    given_back: GivenBack,
}

/// How long a bucket had been filling at its last write.
// Packed: 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct BucketLevel {
    pub(super) written_at: Timestamp,
    pub(super) credit: Credit,
}

impl From<BucketLevel> for TokenBucketState {
    #[inline]
    fn from(level: BucketLevel) -> Self {
        Self {
            level,
            given_back: GivenBack::NONE,
        }
    }
}

const DAY: u64 = 86_400_000_000_000;

impl TokenBucket {
    /// A bucket that refills at `quota`, with the quota's amount as its burst.
    pub const fn new(quota: Quota) -> Self {
        let Some(burst) = NonZeroU64::new(quota.amount()) else {
            unreachable!()
        };
        let bucket = Self {
            quota,
            burst,
            initial: quota.amount(),
            keep: DAY,
            rate: Rate::of(quota),
            meter: None,
        };
        bucket.measured()
    }

    /// The same bucket with room for `tokens` tokens, and as many in it at first.
    ///
    /// # Panics
    ///
    /// Where [`try_burst`](Self::try_burst) fails; meant for literals.
    #[must_use]
    #[track_caller]
    pub fn burst(self, tokens: u64) -> Self {
        self.try_burst(tokens)
            .unwrap_or_else(|error| panic!("{error}"))
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
        Ok(Self {
            burst,
            initial: tokens,
            ..self
        }
        .measured())
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
        self.try_initial(tokens)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same bucket with `tokens` tokens in it at first.
    ///
    /// # Errors
    ///
    /// When `tokens` is above 2⁴⁰, or takes more than 2⁹⁵ ns to refill.
    pub fn try_initial(self, tokens: u64) -> Result<Self, Error> {
        self.fits(tokens, "initial fill")?;
        Ok(Self {
            initial: tokens,
            ..self
        }
        .measured())
    }

    /// The same bucket that grants its initial fill again to a key that was full and unused for `time`.
    ///
    /// Matters only where the initial fill is not the burst; 24 hours by default. Cut to 2⁶⁴ − 1 ns.
    #[must_use]
    pub fn keep(self, time: Duration) -> Self {
        let keep = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { keep, ..self }
    }

    /// With its meter, where it has one.
    const fn measured(mut self) -> Self {
        self.meter = if self.starts_at_rest() {
            BucketMeter::new(self.quota, self.burst, self.rate)
        } else {
            None
        };
        self
    }

    fn fits(&self, tokens: u64, what: &str) -> Result<(), Error> {
        if tokens > Quota::MAX_AMOUNT {
            return Err(Error::new(format!(
                "a {what} of {tokens}: expected at most 2^40 (1099511627776); count in larger units"
            )));
        }
        let nanos = self.rate.price(tokens) / i128::from(self.rate.per_nano);
        if nanos >= Credit::MAX_NANOS as i128 {
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
    pub(super) const fn starts_at_rest(&self) -> bool {
        self.initial == self.burst.get()
    }
}

of_quota!(
    TokenBucket,
    "A bucket of `amount` tokens that are refilled within a second.",
    "A bucket of `amount` tokens that are refilled within a minute.",
    "A bucket of `amount` tokens that are refilled within an hour.",
    "A bucket of `amount` tokens that are refilled within a day of 24 hours."
);
