//! Several token buckets in order: the next one for costs that the one before cannot pay.

mod step;
mod wire;

use std::{fmt, num::NonZeroU64, str::FromStr, time::Duration};

pub(super) use self::step::CascadeState;
use super::{arithmetic::gcd, rule::RuleWords, token_bucket::TokenBucket};
use crate::{
    error::{Error, panicking},
    quota::Quota,
};

/// The greatest number of buckets; their positions are classes of three bits.
const MOST: usize = 8;

/// Token buckets in order: the first one that can pay does, and its position is the class of the
/// call.
///
/// Each of the 1 to 8 buckets has its own rate and size. Class 0 is the best; a call is refused if
/// no bucket can pay for it. The [class](crate::Decision::class) reaches the handler in the
/// request's [`Outcome`](crate::Outcome), so that it can degrade its answer, and an inner limit can
/// shed by it: [`ThreeColor`](crate::algorithm::ThreeColor) shows how.
///
/// # Guarantees
///
/// In any span Δt at most burst + rate · Δt units pass in a class, those of its own bucket, and
/// never more than the sum of these in all. A bucket that starts fuller than its burst lets
/// that much more pass once. Each bucket is rounded as a [`TokenBucket`] is.
///
/// # Limitations
///
/// One bucket must cover the whole cost; costs are never split. With 3 tokens in each of two
/// buckets, a cost of 4 is refused. So `remaining` is the content of the fullest bucket, not the
/// sum, and the `limit` is the largest burst. The quota of decisions is the sum of the rates over
/// their least common period, reduced if need be. If no [`Quota`] can express the sum, it is the
/// fastest of them.
///
/// # Memory
///
/// 16 bytes for each bucket, of up to two within the state's 40 bytes, of more in an allocation of
/// their own.
///
/// # A new key
///
/// All buckets begin when the key is first seen, each with its initial fill. It is granted again
/// after all of them were full and unused for as long as they [keep](TokenBucket::keep) it.
///
/// # When the rule changes
///
/// Buckets carry over by position, each as a [`TokenBucket`] does. A bucket that is added is empty
/// for a key that is remembered, and fills from the key's last call on: an exhausted client stays
/// exhausted. The content of a bucket that was removed is dropped at the next admitted call.
///
/// # When the clock steps back
///
/// Time stands still for all buckets of a key at its last write, until the clock has caught up.
///
/// # Examples
///
/// ```
/// use tollgate::{Cascade, Cost, Timestamp, TokenBucket};
/// use tollgate::algorithm::Algorithm;
///
/// // Ten a second are served well, twenty more at once, and five a second, with a demotion.
/// let rule =
///     Cascade::new(TokenBucket::per_second(10)).then(TokenBucket::per_second(5).burst(20));
/// assert_eq!(rule.to_string(), "cascade 10/s > 5/s burst=20");
///
/// let (mut state, now) = (None, Timestamp::from_nanos(1_000_000_000));
/// let mut call = || rule.step(&mut state, now, Cost::ONE).decision();
/// let classes: Vec<u8> = (0..30).map(|_| call().class()).collect();
/// assert_eq!(classes, [[0; 10], [1; 10], [1; 10]].concat());
/// assert!(!call().is_admitted());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cascade {
    /// At least one, at most `MOST`.
    buckets: Box<[TokenBucket]>,
    pub(super) capacity: NonZeroU64,
    quota: Quota,
    /// `true` if all buckets start full.
    starts_full: bool,
}

impl Cascade {
    /// Creates a cascade of one bucket; [`then`](Self::then) adds more.
    pub fn new(first: TokenBucket) -> Self {
        Self {
            buckets: Box::new([first]),
            capacity: first.most,
            quota: first.quota(),
            starts_full: first.starts_full(),
        }
    }

    panicking! {
        /// Adds a bucket for costs that those before cannot pay.
        pub fn then(self, next: TokenBucket) = try_then;
    }

    /// Adds a bucket for costs that those before cannot pay.
    ///
    /// # Errors
    ///
    /// When it has 8 buckets already.
    pub fn try_then(self, next: TokenBucket) -> Result<Self, Error> {
        if self.buckets.len() == MOST {
            return Err(Error::new(format!(
                "a cascade of more than {MOST} buckets: expected at most {MOST}; leave one out"
            )));
        }
        let mut buckets = Vec::from(self.buckets);
        buckets.push(next);
        Ok(Self {
            capacity: self.capacity.max(next.most),
            starts_full: self.starts_full && next.starts_full(),
            quota: sum(&buckets).unwrap_or_else(|| fastest(next.quota(), &buckets)),
            buckets: buckets.into_boxed_slice(),
        })
    }

    /// Returns the buckets in order, the best class first.
    pub fn buckets(&self) -> &[TokenBucket] {
        &self.buckets
    }

    /// Returns the rate of all buckets together, or the fastest if no quota is their sum.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the greatest cost that a bucket can pay: its capacity, without what it [keeps
    /// free](TokenBucket::keep_free).
    pub const fn capacity(&self) -> u64 {
        self.capacity.get()
    }
}

impl From<TokenBucket> for Cascade {
    fn from(first: TokenBucket) -> Self {
        Self::new(first)
    }
}

/// Returns the sum of all quotas over the least common multiple of their periods, reduced if it
/// does not fit.
fn sum(buckets: &[TokenBucket]) -> Option<Quota> {
    let (mut amount, mut period) = (0_u128, 1_u128);
    for quota in buckets.iter().map(TokenBucket::quota) {
        let own = u128::from(quota.period_nanos());
        let common = (period / gcd(period, own)).checked_mul(own)?;
        let added = u128::from(quota.amount()).checked_mul(common / own)?;
        amount = amount.checked_mul(common / period)?.checked_add(added)?;
        period = common;
    }
    let reduced = |divisor| {
        let amount = u64::try_from(amount / divisor).ok()?;
        let period = Duration::from_nanos(u64::try_from(period / divisor).ok()?);
        Quota::try_new(amount, period).ok()
    };
    reduced(1).or_else(|| reduced(gcd(amount, period)))
}

fn fastest(one: Quota, buckets: &[TokenBucket]) -> Quota {
    let faster = |a: Quota, b: Quota| if a.slower(b) == a { b } else { a };
    buckets.iter().map(TokenBucket::quota).fold(one, faster)
}

impl fmt::Display for Cascade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "cascade ";
        for bucket in &self.buckets {
            f.write_str(before)?;
            bucket.fmt_settings(f)?;
            before = " > ";
        }
        Ok(())
    }
}

impl fmt::Debug for Cascade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cascade({self})")
    }
}

impl FromStr for Cascade {
    type Err = Error;

    /// Parses `cascade 10/s burst=10 > 5/s burst=20`: 1 to 8 buckets, each written as a
    /// [`TokenBucket`] without its name.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.split('>');
        let first = parts.next().unwrap_or_default();
        let mut words = RuleWords::of(first);
        words.name(Self::NAME)?;
        let mut cascade = Self::new(TokenBucket::of_words(&mut words)?);
        let mut at = first.len() + 1;
        for part in parts {
            cascade = cascade.then_text(part).map_err(|error| error.shifted(at))?;
            at += part.len() + 1;
        }
        Ok(cascade)
    }
}

impl Cascade {
    /// Adds the bucket that follows a `>`.
    fn then_text(self, text: &str) -> Result<Self, Error> {
        let Some((_, column)) = RuleWords::first(text) else {
            return Err(
                Error::new("no bucket behind `>`: expected a quota, as in `5/s burst=20`")
                    .at_column(1),
            );
        };
        let bucket = TokenBucket::of_words(&mut RuleWords::of(text))?;
        self.try_then(bucket)
            .map_err(|error| error.at_column(column))
    }
}
