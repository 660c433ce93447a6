//! Meters of the rules as they are written, in exact integers: all calls ever admitted, counted
//! anew.

use std::collections::BTreeMap;

/// A rule that admissions must not exceed. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(crate) enum Meter {
    /// A bucket of so many units, refilled by an amount in a period.
    Bucket {
        capacity: u64,
        amount: u64,
        period: u64,
    },
    Fixed {
        amount: u64,
        period: u64,
    },
    /// Windows that begin with a call to the store.
    FirstCall {
        amount: u64,
    },
    Sliding {
        amount: u64,
        window: u64,
        slices: u64,
    },
    Log {
        amount: u64,
        window: u64,
    },
    Both(Box<Meter>, Box<Meter>),
}

/// An admitted call, at its true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) at: u64,
    /// Its cost after all settlements.
    pub(crate) cost: u64,
}

impl Meter {
    pub(crate) fn both(a: Self, b: Self) -> Self {
        Self::Both(Box::new(a), Box::new(b))
    }

    /// Returns the meter of a limit with so many units more.
    pub(crate) fn with_more(&self, more: u64) -> Self {
        let mut meter = self.clone();
        match &mut meter {
            Self::Bucket { capacity, .. } => *capacity += more,
            Self::Fixed { amount, .. }
            | Self::FirstCall { amount }
            | Self::Sliding { amount, .. }
            | Self::Log { amount, .. } => *amount += more,
            Self::Both(a, b) => return Self::both(a.with_more(more), b.with_more(more)),
        }
        meter
    }

    /// Returns the first call that the meter refuses. The calls are sorted; `openings` are the
    /// starts and ends of windows that calls have opened.
    pub(crate) fn refused(
        &self,
        calls: &[Admission],
        openings: &[(u64, u64)],
    ) -> Option<Admission> {
        match *self {
            Self::Bucket {
                capacity,
                amount,
                period,
            } => bucket(calls, capacity, amount, period),
            Self::Fixed { amount, period } => {
                let mut counts = BTreeMap::<u64, u64>::new();
                calls.iter().copied().find(|call| {
                    let count = counts.entry(call.at / period).or_default();
                    *count += call.cost;
                    *count > amount
                })
            }
            Self::FirstCall { amount } => first_call(calls, openings, amount),
            Self::Sliding {
                amount,
                window,
                slices,
            } => sliding(calls, amount, window, slices),
            Self::Log { amount, window } => (0..calls.len())
                .map(|n| calls[n])
                .enumerate()
                .find_map(|(n, call)| {
                    let counts = |other: &&Admission| other.at + window > call.at;
                    let sum: u64 = calls[..=n]
                        .iter()
                        .filter(counts)
                        .map(|call| call.cost)
                        .sum();
                    (sum > amount).then_some(call)
                }),
            Self::Both(ref a, ref b) => a
                .refused(calls, openings)
                .or_else(|| b.refused(calls, openings)),
        }
    }
}

/// The level is counted in parts of a unit, of which one nanosecond refills `amount`.
fn bucket(calls: &[Admission], capacity: u64, amount: u64, period: u64) -> Option<Admission> {
    let [capacity, amount, period] = [capacity, amount, period].map(i128::from);
    let full = capacity * period;
    let (mut level, mut last) = (full, 0);
    calls.iter().copied().find(|call| {
        level = full.min(level + i128::from(call.at - last) * amount);
        last = call.at;
        level -= i128::from(call.cost) * period;
        level < 0
    })
}

fn first_call(calls: &[Admission], openings: &[(u64, u64)], amount: u64) -> Option<Admission> {
    let mut openings = openings.iter().copied().peekable();
    let (mut end, mut count) = (0, 0);
    calls.iter().copied().find(|call| {
        while let Some((_, until)) = openings.next_if(|(at, _)| *at <= call.at) {
            if until != end {
                (end, count) = (until, 0);
            }
        }
        count += call.cost;
        call.at >= end || count > amount
    })
}

fn sliding(calls: &[Admission], amount: u64, window: u64, slices: u64) -> Option<Admission> {
    assert_eq!(window % slices, 0, "slices of whole nanoseconds");
    let length = window / slices;
    let mut counts = BTreeMap::<u64, u64>::new();
    calls.iter().copied().find(|call| {
        let slice = call.at / length;
        *counts.entry(slice).or_default() += call.cost;
        let first = (slice + 1).saturating_sub(slices);
        let whole: u64 = counts.range(first..=slice).map(|(_, count)| count).sum();
        let oldest = first.checked_sub(1).and_then(|slice| counts.get(&slice));
        let rest = (slice + 1) * length - call.at;
        let estimate = u128::from(whole) * u128::from(length)
            + u128::from(oldest.copied().unwrap_or(0)) * u128::from(rest);
        estimate > u128::from(amount) * u128::from(length)
    })
}
