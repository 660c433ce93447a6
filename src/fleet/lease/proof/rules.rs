//! Rules, and their meters.

use std::time::Duration;

use super::meter::Meter;
use crate::{FixedWindow, Quota, SlidingWindow, TokenBucket, algorithm::SlidingLog};

const SECOND: u64 = 1_000_000_000;

fn per_second(amount: u64, seconds: u64) -> Quota {
    Quota::new(amount, Duration::from_secs(seconds))
}

pub(crate) fn bucket(amount: u64, capacity: u64) -> (TokenBucket, Meter) {
    let meter = Meter::Bucket {
        capacity,
        amount,
        period: SECOND,
    };
    (
        TokenBucket::new(per_second(amount, 1)).burst(capacity),
        meter,
    )
}

pub(crate) fn calendar(amount: u64, seconds: u64) -> (FixedWindow, Meter) {
    let meter = Meter::Fixed {
        amount,
        period: seconds * SECOND,
    };
    (FixedWindow::new(per_second(amount, seconds)), meter)
}

pub(crate) fn first_call(amount: u64, seconds: u64) -> (FixedWindow, Meter) {
    let meter = Meter::FirstCall { amount };
    (
        FixedWindow::new(per_second(amount, seconds)).from_first_call(),
        meter,
    )
}

pub(crate) fn sliding(amount: u64, seconds: u64, slices: u64) -> (SlidingWindow, Meter) {
    let meter = Meter::Sliding {
        amount,
        window: seconds * SECOND,
        slices,
    };
    (
        SlidingWindow::new(per_second(amount, seconds)).slices(slices),
        meter,
    )
}

pub(crate) fn log(amount: u64, seconds: u64) -> (SlidingLog, Meter) {
    let meter = Meter::Log {
        amount,
        window: seconds * SECOND,
    };
    (SlidingLog::new(per_second(amount, seconds)), meter)
}

pub(crate) fn pair<A, B>((a, first): (A, Meter), (b, second): (B, Meter)) -> ((A, B), Meter) {
    ((a, b), Meter::both(first, second))
}
