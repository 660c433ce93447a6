//! What a rule promises, worked out anew from its text's numbers, to hold against what was seen.

use std::{fmt, time::Duration};

use tokio::time::Instant;
use tollgate::{AnyRule, TokenBucket};

/// A rule's promise: at most so many admissions within so long a time.
pub(crate) struct Promise(Vec<Line>);

/// `burst` at once, and `amount` more in each `period`.
struct Line {
    burst: u64,
    amount: u64,
    period: Duration,
    text: String,
}

impl Promise {
    /// The promise of a rule; of one that this program does not know, none.
    pub(crate) fn of(rule: &AnyRule) -> Self {
        Self(match rule {
            AnyRule::TokenBucket(bucket) => vec![Line::of(bucket)],
            AnyRule::All(all) => all
                .rules()
                .iter()
                .flat_map(|rule| Self::of(rule).0)
                .collect(),
            _ => Vec::new(),
        })
    }

    /// The most that may be admitted within `time`.
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

    /// The first stretch of time in which more was admitted than promised.
    ///
    /// An admission is the pair of instants between which it fell; they are in order.
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
                        // The server's time follows Unix time, so it may run faster than ours by a little.
                        let most = self.most(time + time / 64);
                        (count > most).then(|| {
                            format!("{count} admitted within {time:.1?}, at most {most} promised")
                        })
                    })
            })
    }

    /// Requests a second that exhaust the rule within a few seconds.
    pub(crate) fn exhausting_pace(&self) -> u64 {
        let in_four_seconds = self.most(Duration::from_secs(4));
        (in_four_seconds / 2).clamp(6, 400)
    }
}

impl Line {
    fn of(bucket: &TokenBucket) -> Self {
        let text = bucket.to_string();
        let initial = text
            .split(' ')
            .find_map(|word| word.strip_prefix("initial=")?.parse().ok());
        Self {
            burst: bucket.capacity().max(initial.unwrap_or(0)),
            amount: bucket.quota().amount(),
            period: bucket.quota().period(),
            text: bucket.quota().to_string(),
        }
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
