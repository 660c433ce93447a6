//! The answer of an oracle, and the part of a decision that is compared with it.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use tollgate::{Decision, Verdict};

/// Waits are in whole nanoseconds, rounded up, and at most the largest `Duration`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) admitted: bool,
    /// Zero unless the call is delayed.
    pub(crate) delay: BigInt,
    /// The bucket of a cascade, or the color of a marker. 0 for all other rules.
    pub(crate) class: u8,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// `None` means never.
    pub(crate) retry: Option<BigInt>,
    pub(crate) reset: BigInt,
    pub(crate) more: BigInt,
}

impl Answer {
    pub(crate) fn of(decision: &Decision) -> Self {
        Self {
            admitted: decision.is_admitted(),
            delay: match decision.verdict() {
                Verdict::Delay(delay) => {
                    assert!(!delay.is_zero());
                    nanos(delay)
                }
                _ => BigInt::default(),
            },
            class: decision.class(),
            limit: decision.limit().unwrap(),
            remaining: decision.remaining().unwrap(),
            retry: decision.retry_after().map(nanos),
            reset: nanos(decision.reset_after()),
            more: nanos(decision.more_after()),
        }
    }
}

pub(crate) fn nanos(wait: Duration) -> BigInt {
    BigInt::from(wait.as_nanos())
}

/// Rounds a wait up to whole nanoseconds, and caps it at the largest `Duration`.
pub(crate) fn rounded(wait: BigRational) -> BigInt {
    let wait = wait.ceil().to_integer();
    if &wait / 1_000_000_000 > BigInt::from(u64::MAX) {
        nanos(Duration::MAX)
    } else {
        wait
    }
}
