//! The upper bound that a rule promises, computed from its numbers and compared with the observed
//! admissions.

use std::{fmt, time::Duration};

use tokio::time::Instant;
use tollgate::{AnyRule, Quota, TokenBucket};

/// The promise of a rule: a maximum number of admissions within any time span.
pub(crate) struct Promise(Vec<Line>);

/// `burst` at once, and `amount` more in each `period`.
struct Line {
    burst: u64,
    amount: u64,
    period: Duration,
    text: String,
}

impl Promise {
    /// Returns the promise of a rule that never delays. For other rules, returns a sentence that
    /// says what to do.
    pub(crate) fn of(rule: &AnyRule) -> Result<Self, String> {
        let line = match rule {
            AnyRule::TokenBucket(bucket) => Line::of(bucket),
            // A time span can touch two windows.
            AnyRule::FixedWindow(rule) => Line::new(2 * rule.quota().amount(), rule.quota()),
            AnyRule::SlidingWindow(rule) => Line::new(2 * rule.quota().amount(), rule.quota()),
            AnyRule::SlidingLog(rule) => Line::new(rule.quota().amount(), rule.quota()),
            AnyRule::WarmUp(rule) => Line::new(2 * rule.capacity(), rule.quota()),
            AnyRule::ThreeColor(rule) => Line::new(rule.capacity(), rule.quota()),
            AnyRule::Cascade(rule) => {
                let burst = rule.buckets().iter().map(|bucket| Line::of(bucket).burst);
                Line::new(burst.sum(), rule.quota())
            }
            AnyRule::All(all) => {
                let lines = all.rules().iter().map(|rule| Ok(Self::of(rule)?.0));
                let lines: Result<Vec<_>, String> = lines.collect();
                return Ok(Self(lines?.into_iter().flatten().collect()));
            }
            other => {
                return Err(format!(
                    "--demo sends one request after the other, and cannot show `{other}`, which makes them wait or counts those at the same time: \
                     start the server without it and send many at once, as in `wrk -c16 -d3s http://127.0.0.1:3000/`"
                ));
            }
        };
        Ok(Self(vec![line]))
    }

    /// Returns the most requests that may be admitted within `time`.
    pub(crate) fn most(&self, time: Duration) -> u64 {
        let nanos = time.as_nanos();
        let most = self.0.iter().map(|line| {
            let refilled = nanos * u128::from(line.amount) / line.period.as_nanos();
            u64::try_from(refilled)
                .unwrap_or(u64::MAX)
                .saturating_add(line.burst)
        });
        most.min().unwrap_or(u64::MAX)
    }

    /// Returns a description of the first time span with more admissions than promised.
    ///
    /// Each admission is a pair of instants between which it happened, in order.
    pub(crate) fn broken_by(&self, admissions: &[(Instant, Instant)]) -> Option<String> {
        admissions
            .iter()
            .enumerate()
            .find_map(|(first, (begin, _))| {
                admissions[first..]
                    .iter()
                    .zip(1..)
                    .find_map(|((_, end), count)| {
                        let time = *end - *begin;
                        // The server's clock is slewed to Unix time, so it may run slightly faster
                        // than ours.
                        let most = self.most(time + time / 64);
                        (count > most).then(|| {
                            format!("{count} admitted within {time:.1?}, at most {most} promised")
                        })
                    })
            })
    }

    /// Returns a number of requests per second that exhausts the rule within a few seconds.
    pub(crate) fn exhausting_pace(&self) -> u64 {
        let in_four_seconds = self.most(Duration::from_secs(4));
        (in_four_seconds / 2).clamp(6, 400)
    }
}

impl Line {
    fn new(burst: u64, quota: Quota) -> Self {
        Self {
            burst,
            amount: quota.amount(),
            period: quota.period(),
            text: quota.to_string(),
        }
    }

    fn of(bucket: &TokenBucket) -> Self {
        let text = bucket.to_string();
        let initial = text
            .split(' ')
            .find_map(|word| word.strip_prefix("initial=")?.parse().ok());
        let burst = bucket.capacity().max(initial.unwrap_or(0));
        Self::new(burst - bucket.kept_free(), bucket.quota())
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Line { burst, text, .. }) in self.0.iter().enumerate() {
            let and = if index == 0 { "" } else { ", and " };
            write!(f, "{and}{burst} at once and {text} from then on")?;
        }
        Ok(())
    }
}
