//! The rules of the races.

use std::time::Duration;

/// A rule, and what its peers need to know of it.
pub(crate) struct Rule {
    /// The rule as text, of a pair both of them.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The quota and burst, of several buckets those of the first one.
    pub(crate) limit: Limit,
    /// A token bucket of ours that runs beside it.
    pub(crate) beside: Option<&'static str>,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    TokenBucket,
    FixedWindow,
    SlidingWindow,
    Pair(&'static str, &'static str),
    Cascade,
}

/// A number of units per period, which is a second, a minute or an hour, and a burst.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) amount: u32,
    pub(crate) period: Duration,
    pub(crate) burst: u32,
}

impl Limit {
    const fn new(amount: u32, period: Duration, burst: u32) -> Self {
        Self {
            amount,
            period,
            burst,
        }
    }

    const fn per_second(amount: u32, burst: u32) -> Self {
        Self::new(amount, Duration::from_secs(1), burst)
    }

    const fn per_minute(amount: u32) -> Self {
        Self::new(amount, Duration::from_secs(60), amount)
    }

    /// The time between two units.
    pub(crate) fn interval(self) -> Duration {
        self.period / self.amount
    }
}

const fn bucket(name: &'static str, limit: Limit) -> Rule {
    Rule {
        name,
        kind: Kind::TokenBucket,
        limit,
        beside: None,
    }
}

pub(crate) const TEN: Rule = bucket("10/s burst=20", Limit::per_second(10, 20));

/// All rules but [`TEN`].
pub(crate) const OTHERS: [Rule; 7] = [
    Rule {
        beside: Some("8/s burst=20"),
        ..bucket("7/s burst=20", Limit::per_second(7, 20))
    },
    bucket("8/s burst=20", Limit::per_second(8, 20)),
    bucket("100/1m", Limit::per_minute(100)),
    Rule {
        name: "fixed-window 100/1m",
        kind: Kind::FixedWindow,
        limit: Limit::per_minute(100),
        beside: Some("100/1m"),
    },
    Rule {
        name: "sliding-window 100/1m slices=4",
        kind: Kind::SlidingWindow,
        limit: Limit::per_minute(100),
        beside: Some("100/1m"),
    },
    Rule {
        name: "10/s burst=20 & 100/1m",
        kind: Kind::Pair("10/s burst=20", "100/1m"),
        limit: Limit::per_second(10, 20),
        beside: Some("10/s burst=20"),
    },
    Rule {
        name: "cascade 10/s burst=20 > 1/s burst=20",
        kind: Kind::Cascade,
        limit: Limit::per_second(10, 20),
        beside: Some("10/s burst=20"),
    },
];

/// A bucket that is full again whenever a thread that does nothing else returns to it.
pub(crate) const FULL_AT_ONCE: Rule =
    bucket("30000000/s burst=1000", Limit::per_second(30_000_000, 1000));

/// A bucket whose debts outlive the run, and which admits all visits of a key in a run.
pub(crate) const SLOW: Rule = bucket("100/1h", Limit::new(100, Duration::from_secs(3600), 100));
