//! Limiters written the obvious way, in fractions of big integers. They share nothing with the
//! rules.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::ToPrimitive;

pub(crate) fn whole(number: u64) -> BigRational {
    BigRational::from_integer(BigInt::from(number))
}

pub(crate) fn fraction(part: u64, of: u64) -> BigRational {
    BigRational::new(BigInt::from(part), BigInt::from(of))
}

pub(crate) fn float(number: &BigRational) -> f64 {
    number.to_f64().expect("a finite number")
}

/// A limit on a window. Times are whole numbers of some unit since the beginning of a window of the
/// calendar.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) amount: u64,
    pub(crate) window: u64,
}

/// A count, or a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// The last window, without its first instant.
    Perfect,
    /// The window of the calendar.
    Fixed,
    /// A number of slices, and the oldest one in part.
    Weighted(u64),
    /// Tokens, as many as the amount.
    Tokens,
    /// One after the other, at the rate.
    Queue,
}

/// The calls that a limiter has admitted, in order.
pub(crate) struct Limiter {
    limit: Limit,
    kind: Kind,
    calls: Vec<u64>,
    /// Of a bucket: the tokens at the last call.
    tokens: BigRational,
}

impl Limiter {
    pub(crate) fn new(limit: Limit, kind: Kind) -> Self {
        Self {
            limit,
            kind,
            calls: Vec::new(),
            tokens: whole(limit.amount),
        }
    }

    /// Returns how many calls came from an instant on, and before another one.
    fn between(&self, from: u64, before: u64) -> u64 {
        let to = self.calls.partition_point(|call| *call < before);
        let from = self.calls.partition_point(|call| *call < from);
        to.saturating_sub(from) as u64
    }

    /// Returns the count of the calls so far as of an instant, which is not before the last call.
    pub(crate) fn count(&self, now: u64) -> BigRational {
        let Limit { window, .. } = self.limit;
        match self.kind {
            Kind::Perfect => whole(self.between((now + 1).saturating_sub(window), now + 1)),
            Kind::Fixed => whole(self.between(now - now % window, now + 1)),
            Kind::Weighted(slices) => {
                let slice = window / slices;
                assert_eq!(slice * slices, window, "slices of equal length");
                let begin = now - now % slice;
                // Slices before the beginning of time have no calls.
                let full = self.between(begin.saturating_sub(window - slice), now + 1);
                let Some(oldest) = begin.checked_sub(window) else {
                    return whole(full);
                };
                let oldest = self.between(oldest, oldest + slice);
                whole(full) + whole(oldest) * fraction(slice - now % slice, slice)
            }
            Kind::Tokens | Kind::Queue => panic!("a bucket does not count a window"),
        }
    }

    /// Returns the tokens of a bucket.
    fn tokens(&self, now: u64) -> BigRational {
        let since = now - self.calls.last().copied().unwrap_or(now);
        let refill = whole(since) * fraction(self.limit.amount, self.limit.window);
        (&self.tokens + refill).min(whole(self.limit.amount))
    }

    /// Adds a call if it is within the limit. Returns `true` if it is.
    pub(crate) fn admits(&mut self, now: u64) -> bool {
        let admits = match self.kind {
            Kind::Tokens => {
                let tokens = self.tokens(now);
                let admits = tokens >= whole(1);
                if admits {
                    self.tokens = tokens - whole(1);
                }
                admits
            }
            Kind::Queue => {
                let interval = fraction(self.limit.window, self.limit.amount);
                let last = self.calls.last();
                last.is_none_or(|last| whole(now - last) >= interval)
            }
            _ => self.count(now) + whole(1) <= whole(self.limit.amount),
        };
        if admits {
            self.calls.push(now);
        }
        admits
    }

    /// Adds a call in any case.
    pub(crate) fn add(&mut self, now: u64) {
        self.calls.push(now);
    }

    /// Returns the most calls in any window.
    pub(crate) fn most_in_window(&self) -> u64 {
        most_in_window(&self.calls, self.limit.window)
    }

    pub(crate) fn calls(&self) -> &[u64] {
        &self.calls
    }
}

/// Returns the most calls in any window that ends with a call.
pub(crate) fn most_in_window(calls: &[u64], window: u64) -> u64 {
    let in_window = |index: usize| {
        let older = calls.partition_point(|call| call + window <= calls[index]);
        index + 1 - older
    };
    (0..calls.len()).map(in_window).max().unwrap_or(0) as u64
}
