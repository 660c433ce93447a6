//! The rules, the slow and obvious way: each answer is computed from the whole history, in
//! milliseconds, and each wait is found by trying one millisecond after the other.
//!
//! It is exact for rates whose interval is a whole number of milliseconds.

/// An admitted request: when it arrived, and when it passed.
#[derive(Clone, Copy)]
pub(crate) struct Admission {
    pub(crate) at: u64,
    pub(crate) passed: u64,
}

/// A rule, with times in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Oracle {
    TokenBucket {
        interval: u64,
        burst: u64,
    },
    FixedWindow {
        amount: u64,
        period: u64,
        offset: u64,
    },
    SlidingLog {
        amount: u64,
        period: u64,
    },
    LeakyBucket {
        interval: u64,
        queue: u64,
        max_wait: u64,
    },
}

impl Oracle {
    /// The rule as text for the crate.
    pub(crate) fn text(self) -> String {
        match self {
            Self::TokenBucket { interval, burst } => {
                format!("token-bucket 1/{interval}ms burst={burst}")
            }
            Self::FixedWindow {
                amount,
                period,
                offset,
            } => format!("fixed-window {amount}/{period}ms offset={offset}ms"),
            Self::SlidingLog { amount, period } => format!("sliding-log {amount}/{period}ms"),
            Self::LeakyBucket {
                interval,
                queue,
                max_wait,
            } => {
                // A queue of 0 has no wait to bound.
                let max_wait = format!(" max-wait={max_wait}ms");
                let max_wait = if queue > 0 { &*max_wait } else { "" };
                format!("leaky-bucket 1/{interval}ms queue={queue}{max_wait}")
            }
        }
    }

    /// Returns the greatest cost that is admitted at this time after this history.
    pub(crate) fn room(self, history: &[Admission], at: u64) -> u64 {
        let count = |counted: &dyn Fn(u64) -> bool| {
            let counted = history.iter().filter(|admission| counted(admission.at));
            counted.count() as u64
        };
        match self {
            Self::TokenBucket { interval, burst } => {
                // A token is as many drops as milliseconds are in an interval: one flows in each.
                let full = burst * interval;
                let (mut drops, mut last) = (full, 0);
                for admission in history {
                    drops = full.min(drops + admission.at - last) - interval;
                    last = admission.at;
                }
                full.min(drops + at - last) / interval
            }
            Self::FixedWindow {
                amount,
                period,
                offset,
            } => {
                let window = |at: u64| (at + period - offset) / period;
                amount - count(&|other| window(other) == window(at))
            }
            Self::SlidingLog { amount, period } => amount - count(&|other| other + period > at),
            Self::LeakyBucket {
                interval,
                queue,
                max_wait,
            } => {
                // Units leave one after the other, and a call leaves with its first one.
                let wait = self.wait(history, at);
                let fits = |units: &u64| wait + (units - 1) * interval <= queue * interval;
                let most = if wait <= max_wait { queue + 1 } else { 0 };
                (1..=most).take_while(fits).count() as u64
            }
        }
    }

    /// Returns how long a request waits that is admitted at this time.
    fn wait(self, history: &[Admission], at: u64) -> u64 {
        let Self::LeakyBucket { interval, .. } = self else {
            return 0;
        };
        let mut free = 0;
        for admission in history {
            free = free.max(admission.at) + interval;
        }
        free.saturating_sub(at)
    }

    /// Returns the length of the period in which the quota counts.
    pub(crate) fn period(self) -> u64 {
        match self {
            Self::TokenBucket { interval, .. } | Self::LeakyBucket { interval, .. } => interval,
            Self::FixedWindow { period, .. } | Self::SlidingLog { period, .. } => period,
        }
    }
}

/// Returns the greatest cost that all rules admit.
pub(crate) fn room(rules: &[Oracle], history: &[Admission], at: u64) -> u64 {
    let rooms = rules.iter().map(|rule| rule.room(history, at));
    rooms.min().unwrap()
}

/// Returns how long a request waits if all rules admit it, and `None` if one refuses it.
pub(crate) fn admits(rules: &[Oracle], history: &[Admission], at: u64) -> Option<u64> {
    let waits = rules.iter().map(|rule| rule.wait(history, at));
    waits.max().filter(|_| room(rules, history, at) > 0)
}

/// Returns the least wait after which a request would be admitted.
pub(crate) fn retry_after(rules: &[Oracle], history: &[Admission], at: u64) -> u64 {
    (1..)
        .find(|wait| admits(rules, history, at + wait).is_some())
        .unwrap()
}
