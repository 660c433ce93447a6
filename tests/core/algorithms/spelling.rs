//! Rules with every setting, built with the API and written as text in all the ways that parse.

use std::time::Duration;

use proptest::prelude::*;
use support::Random;
use tollgate::{
    AnyRule, Cascade, FixedWindow, LeakyBucket, Quota, SlidingLog, SlidingWindow, ThreeColor,
    TokenBucket, WarmUp, WarmUpSpaced, algorithm::Algorithm,
};

const SECOND: u64 = 1_000_000_000;
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400 * SECOND),
    ("h", 3600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

/// A rule, and a text that must parse to it.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) rule: AnyRule,
    pub(crate) text: String,
}

/// Chooses among the spellings of a value.
#[derive(Debug)]
struct Pen(Random);

impl Pen {
    fn below(&mut self, choices: usize) -> usize {
        self.0.below(choices as u64) as usize
    }

    fn number(&mut self, number: u64) -> String {
        format!("{}{number}", ["", "", "0", "000"][self.below(4)])
    }

    fn duration(&mut self, nanos: u64) -> String {
        let units: Vec<_> = UNITS
            .iter()
            .filter(|(_, unit)| nanos.is_multiple_of(*unit))
            .collect();
        let (name, unit) = units[self.below(units.len())];
        match nanos / unit {
            1 if self.below(2) == 0 => (*name).to_owned(),
            count => self.number(count) + name,
        }
    }

    fn factor(&mut self, thousandths: u64) -> String {
        let whole = self.number(thousandths / 1000);
        let part = format!("{:03}", thousandths % 1000);
        let short = part.trim_end_matches('0');
        match (short, self.below(2)) {
            ("", 0) => whole,
            ("", _) => whole + ".0",
            (short, 0) => format!("{whole}.{short}"),
            _ => format!("{whole}.{part}"),
        }
    }

    fn quota(&mut self, quota: Quota) -> String {
        let period = self.duration(quota.period_nanos());
        format!("{}/{period}", self.number(quota.amount()))
    }

    /// Writes the settings in random order.
    fn settings(&mut self, settings: impl IntoIterator<Item = Option<String>>) -> String {
        let mut settings: Vec<_> = settings.into_iter().flatten().collect();
        let mut text = String::new();
        while !settings.is_empty() {
            text += [" ", "  ", "\t", "\r\n "][self.below(4)];
            text += &settings.swap_remove(self.below(settings.len()));
        }
        text
    }
}

fn pens() -> impl Strategy<Value = Pen> {
    any::<u64>().prop_map(|seed| Pen(Random::new(seed)))
}

fn nanos() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (1..100_u64, prop::sample::select(&UNITS[..])).prop_map(|(count, (_, unit))| count * unit),
        2 => Just(10 * SECOND),
        2 => 1..20 * SECOND,
        1 => 1..=i64::MAX as u64,
    ]
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..200_u64, 1 => 1..=Quota::MAX_AMOUNT, 1 => Just(Quota::MAX_AMOUNT)]
}

fn quotas() -> impl Strategy<Value = Quota> {
    let periods = prop_oneof![2 => Just(SECOND), 3 => nanos()];
    (units(), periods).prop_filter_map("a quota", |(amount, period)| {
        Quota::try_new(amount, Duration::from_nanos(period)).ok()
    })
}

fn time(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn maybe<T: Clone + std::fmt::Debug>(
    values: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::of(values)
}

/// Generates buckets and the text after their name. Some are shares of others, which no text
/// setting expresses.
fn buckets() -> impl Strategy<Value = (TokenBucket, String)> {
    let keeps =
        prop_oneof![4 => nanos(), 1 => Just(0), 1 => Just(86_400 * SECOND), 1 => Just(u64::MAX)];
    (
        quotas(),
        maybe(units()),
        maybe(0..300_u64),
        maybe(keeps),
        pens(),
    )
        .prop_filter_map("a bucket", |(quota, burst, initial, keep, mut pen)| {
            let mut bucket = TokenBucket::try_new(quota).ok()?;
            if let Some(burst) = burst {
                bucket = bucket.try_burst(burst).ok()?;
            }
            if let Some(initial) = initial {
                bucket = bucket.try_initial(initial).ok()?;
            }
            if let Some(keep) = keep {
                bucket = bucket.keep(time(keep));
            }
            let settings = [
                burst.map(|units| format!("burst={}", pen.number(units))),
                initial.map(|units| format!("initial={}", pen.number(units))),
                keep.map(|nanos| format!("keep={}", pen.duration(nanos))),
            ];
            Some((bucket, pen.quota(quota) + &pen.settings(settings)))
        })
}

fn token_buckets() -> impl Strategy<Value = Written> {
    buckets().prop_map(|(bucket, text)| Written {
        rule: bucket.into(),
        text: format!("token-bucket {text}"),
    })
}

fn leaky_buckets() -> impl Strategy<Value = Written> {
    let queues = prop_oneof![1 => Just(0), 4 => units()];
    (quotas(), maybe(queues), maybe(nanos()), pens()).prop_filter_map(
        "a leaky bucket",
        |(quota, queue, wait, mut pen)| {
            let mut rule = LeakyBucket::try_new(quota).ok()?;
            if let Some(queue) = queue {
                rule = rule.try_queue(queue).ok()?;
            }
            if let Some(wait) = wait {
                rule = rule.try_max_wait(time(wait)).ok()?;
            }
            let settings = [
                queue.map(|units| format!("queue={}", pen.number(units))),
                wait.map(|nanos| format!("max-wait={}", pen.duration(nanos))),
            ];
            let text = format!(
                "leaky-bucket {}{}",
                pen.quota(quota),
                pen.settings(settings)
            );
            Some(Written {
                rule: rule.into(),
                text,
            })
        },
    )
}

fn fixed_windows() -> impl Strategy<Value = Written> {
    (quotas(), 0..4_usize, nanos(), pens()).prop_map(|(quota, begin, nanos, mut pen)| {
        let rule = FixedWindow::new(quota);
        let offset = nanos % quota.period_nanos();
        let (rule, setting) = match begin {
            0 => (rule, None),
            1 => (
                rule.offset(time(offset)),
                Some(format!("offset={}", pen.duration(offset))),
            ),
            2 => (rule.spread(), Some("offset=spread".to_owned())),
            _ => (rule.from_first_call(), Some("from=first-call".to_owned())),
        };
        let text = format!(
            "fixed-window {}{}",
            pen.quota(quota),
            pen.settings([setting])
        );
        Written {
            rule: rule.into(),
            text,
        }
    })
}

fn sliding_windows() -> impl Strategy<Value = Written> {
    (quotas(), maybe(1..=1000_u64), pens()).prop_filter_map(
        "a sliding window",
        |(quota, slices, mut pen)| {
            let mut rule = SlidingWindow::new(quota);
            if let Some(slices) = slices {
                rule = rule.try_slices(slices).ok()?;
            }
            let settings = [slices.map(|count| format!("slices={}", pen.number(count)))];
            let text = format!(
                "sliding-window {}{}",
                pen.quota(quota),
                pen.settings(settings)
            );
            Some(Written {
                rule: rule.into(),
                text,
            })
        },
    )
}

fn sliding_logs() -> impl Strategy<Value = Written> {
    (quotas(), pens()).prop_map(|(quota, mut pen)| Written {
        rule: SlidingLog::new(quota).into(),
        text: format!("sliding-log {}", pen.quota(quota)),
    })
}

fn colds() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(3000), 2 => (2..10_u64).prop_map(|factor| 1000 * factor), 3 => 1001..=1_000_000_u64]
}

fn warm_ups() -> impl Strategy<Value = Written> {
    (quotas(), maybe(nanos()), maybe(colds()), pens()).prop_filter_map(
        "a warm-up",
        |(quota, over, cold, mut pen)| {
            let (nanos, factor) = (over.unwrap_or(10 * SECOND), cold.unwrap_or(3000));
            let rule = WarmUp::try_with(quota, time(nanos), factor).ok()?;
            let settings = [
                over.map(|nanos| format!("over={}", pen.duration(nanos))),
                cold.map(|factor| format!("cold={}", pen.factor(factor))),
            ];
            let text = format!("warm-up {}{}", pen.quota(quota), pen.settings(settings));
            Some(Written {
                rule: rule.into(),
                text,
            })
        },
    )
}

fn spaced_warm_ups() -> impl Strategy<Value = Written> {
    (
        quotas(),
        maybe(nanos()),
        maybe(colds()),
        maybe(nanos()),
        pens(),
    )
        .prop_filter_map("a spaced warm-up", |(quota, over, cold, wait, mut pen)| {
            let mut rule = WarmUpSpaced::new(quota);
            if let Some(over) = over {
                rule = rule.try_over(time(over)).ok()?;
            }
            if let Some(cold) = cold {
                rule = rule.try_cold_thousandths(cold).ok()?;
            }
            if let Some(wait) = wait {
                rule = rule.try_max_wait(time(wait)).ok()?;
            }
            let settings = [
                over.map(|nanos| format!("over={}", pen.duration(nanos))),
                cold.map(|factor| format!("cold={}", pen.factor(factor))),
                wait.map(|nanos| format!("max-wait={}", pen.duration(nanos))),
            ];
            let text = format!(
                "warm-up-spaced {}{}",
                pen.quota(quota),
                pen.settings(settings)
            );
            Some(Written {
                rule: rule.into(),
                text,
            })
        })
}

fn cascades() -> impl Strategy<Value = Written> {
    (prop::collection::vec(buckets(), 1..=8), pens()).prop_map(|(buckets, mut pen)| {
        let arrow = [" > ", ">", "> ", "\t>\n"][pen.below(4)];
        let texts: Vec<_> = buckets.iter().map(|(_, text)| text.as_str()).collect();
        let text = format!("cascade {}", texts.join(arrow));
        let mut buckets = buckets.iter().map(|(bucket, _)| *bucket);
        let first = Cascade::new(buckets.next().unwrap());
        Written {
            rule: buckets.fold(first, Cascade::then).into(),
            text,
        }
    })
}

fn markers() -> impl Strategy<Value = Written> {
    let given = maybe(maybe(0..3_u8));
    (
        quotas(),
        quotas(),
        maybe(units()),
        maybe(units()),
        given,
        pens(),
    )
        .prop_filter_map(
            "a marker",
            |(committed, peak, burst, peak_burst, given, mut pen)| {
                let mut rule = ThreeColor::try_new(committed, peak).ok()?;
                if let Some(burst) = burst {
                    rule = rule.try_burst(burst).ok()?;
                }
                if let Some(burst) = peak_burst {
                    rule = rule.try_peak_burst(burst).ok()?;
                }
                if let Some(class) = given {
                    rule = rule.aware().given(class.unwrap_or(0));
                }
                let color = |class: u8| ["green", "yellow", "red"][usize::from(class)];
                let settings = [
                    Some(format!("peak={}", pen.quota(peak))),
                    burst.map(|units| format!("burst={}", pen.number(units))),
                    peak_burst.map(|units| format!("peak-burst={}", pen.number(units))),
                    given.map(|_| "aware".to_owned()),
                    given
                        .flatten()
                        .map(|class| format!("given={}", color(class))),
                ];
                let text = format!(
                    "three-color {}{}",
                    pen.quota(committed),
                    pen.settings(settings)
                );
                Some(Written {
                    rule: rule.into(),
                    text,
                })
            },
        )
}

/// Generates rules of every algorithm with every setting.
pub(crate) fn written() -> impl Strategy<Value = Written> {
    prop_oneof![
        3 => token_buckets().boxed(),
        1 => leaky_buckets().boxed(),
        1 => fixed_windows().boxed(),
        1 => sliding_windows().boxed(),
        1 => sliding_logs().boxed(),
        1 => warm_ups().boxed(),
        1 => spaced_warm_ups().boxed(),
        2 => cascades().boxed(),
        1 => markers().boxed(),
    ]
}

/// Returns the rules that derive from a rule in use: the share of a node, the window of a key, the
/// color of a request.
pub(crate) fn derived(rule: &AnyRule, number: u64) -> impl Iterator<Item = AnyRule> {
    let share = match rule {
        AnyRule::TokenBucket(bucket) => bucket.try_scaled(1 + number % 7, 7).ok(),
        _ => None,
    };
    let of_key = rule.for_key(&|| number);
    let given = rule.clone().given(number as u8);
    share
        .map(AnyRule::from)
        .into_iter()
        .chain(of_key)
        .chain([given])
}
