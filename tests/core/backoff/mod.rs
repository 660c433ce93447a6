//! Client back-off: the random delays, and their use in `tower::retry`.

mod delays;
mod draws;
#[cfg(feature = "retry")]
mod layer;
#[cfg(feature = "retry")]
mod retry;

use std::time::Duration;

use tollgate::backoff::Backoff;

/// A kind of back-off, and the range of one delay before the cap, as in the article.
struct Kind {
    made: fn(Duration, Duration) -> Backoff,
    range: fn(Setting, attempt: u32, previous: u64) -> (u64, u64),
}

/// The base and the cap, in nanoseconds.
#[derive(Clone, Copy)]
struct Setting {
    base: u64,
    cap: u64,
}

const KINDS: [Kind; 4] = [
    Kind {
        made: Backoff::exponential,
        range: |setting, attempt, _| (setting.plain(attempt), setting.plain(attempt)),
    },
    Kind {
        made: Backoff::full,
        range: |setting, attempt, _| (0, setting.plain(attempt)),
    },
    Kind {
        made: Backoff::equal,
        range: |setting, attempt, _| (setting.plain(attempt) / 2, setting.plain(attempt)),
    },
    Kind {
        made: Backoff::decorrelated,
        range: |setting, _, previous| (setting.base, 3 * previous),
    },
];

impl Setting {
    fn plain(self, attempt: u32) -> u64 {
        let mut delay = u128::from(self.base);
        for _ in 0..attempt {
            delay = (delay * 2).min(u128::from(self.cap));
        }
        delay.min(u128::from(self.cap)) as u64
    }

    fn backoff(self, kind: &Kind) -> Backoff {
        (kind.made)(
            Duration::from_nanos(self.base),
            Duration::from_nanos(self.cap),
        )
    }
}

fn nanos(delays: impl Iterator<Item = Duration>) -> impl Iterator<Item = u64> {
    delays.map(|delay| u64::try_from(delay.as_nanos()).unwrap())
}
