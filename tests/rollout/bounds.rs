//! Rules that refill within a test, and their promised bounds, checked for each span of time.

use super::release::Answer;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// An amount in a number of nanoseconds.
type Quota = (u64, u64);

/// A bound on the admitted calls of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// In any span of time: a burst, plus the quota's refill.
    Bucket(u64, Quota),
    /// Like `Bucket`, for calls of one class.
    OfClass(u8, u64, Quota),
    /// Like `Bucket`, from the first call on.
    Initial(u64, Quota),
    /// The quota in each window of the calendar.
    Calendar(Quota),
    /// The quota in each window, where a window starts with the first call after the previous one.
    FirstCall(Quota),
    /// The quota in any span shorter than its period.
    Span(Quota),
    /// Departures at least an interval of the quota apart, and delays of at most this many
    /// nanoseconds.
    Spaced(Quota, u64),
}

use Bound::{Bucket, Calendar, FirstCall, Initial, OfClass, Spaced, Span};

/// A rule, the cost of each call, and its bounds.
pub(crate) type Case = (&'static str, u64, &'static [Bound]);

pub(crate) const CASES: [Case; 23] = [
    ("token-bucket 7/s burst=20", 1, &[Bucket(20, (7, SECOND))]),
    ("token-bucket 9/s burst=20", 1, &[Bucket(20, (9, SECOND))]),
    (
        "token-bucket 60/7s burst=20",
        1,
        &[Bucket(20, (60, 7 * SECOND))],
    ),
    (
        "token-bucket 1000/1d burst=50",
        1,
        &[Bucket(50, (1000, DAY))],
    ),
    (
        "token-bucket 999/1m burst=30",
        1,
        &[Bucket(30, (999, 60 * SECOND))],
    ),
    // A dozen calls at once, and as many a second. A token takes 38.1 ns, which is rounded down.
    (
        "token-bucket 26214400/1s",
        2_097_152,
        &[Bucket(26_214_400, (1, 38))],
    ),
    (
        "token-bucket 7/s burst=20 initial=35 keep=1h",
        1,
        &[Bucket(35, (7, SECOND))],
    ),
    (
        "token-bucket 9/s burst=20 initial=5 keep=1h",
        1,
        &[Bucket(20, (9, SECOND)), Initial(5, (9, SECOND))],
    ),
    (
        "leaky-bucket 7/s queue=20",
        1,
        &[
            Bucket(21, (7, SECOND)),
            Spaced((7, SECOND), 20 * SECOND / 7 + 1),
        ],
    ),
    (
        "leaky-bucket 999/1m queue=40 max-wait=1s",
        1,
        &[Spaced((999, 60 * SECOND), SECOND)],
    ),
    ("fixed-window 12/1s", 1, &[Calendar((12, SECOND))]),
    (
        "fixed-window 12/700ms from=first-call",
        1,
        &[FirstCall((12, 700_000_000))],
    ),
    (
        "sliding-window 12/1s",
        1,
        &[Calendar((12, SECOND)), Span((23, SECOND))],
    ),
    (
        "sliding-window 12/1s slices=4",
        1,
        &[Calendar((12, SECOND)), Span((23, SECOND))],
    ),
    ("sliding-log 12/1s", 1, &[Span((12, SECOND))]),
    ("warm-up 15/s over=2s", 1, &[Calendar((15, SECOND))]),
    // A third of the rate, because the key stays cold during the test.
    ("warm-up 15/s over=60s", 1, &[Calendar((5, SECOND))]),
    (
        "warm-up-spaced 11/s over=2s max-wait=500ms",
        1,
        &[Spaced((11, SECOND), SECOND / 2)],
    ),
    (
        "cascade 7/s burst=10 > 9/s burst=20",
        1,
        &[OfClass(0, 10, (7, SECOND)), OfClass(1, 20, (9, SECOND))],
    ),
    (
        "three-color 7/s burst=10 peak=9/s peak-burst=20",
        1,
        &[OfClass(0, 10, (7, SECOND)), Bucket(20, (9, SECOND))],
    ),
    (
        "token-bucket 9/s burst=20 & fixed-window 15/1s",
        1,
        &[Bucket(20, (9, SECOND)), Calendar((15, SECOND))],
    ),
    (
        "sliding-log 15/1s & token-bucket 60/7s burst=20",
        1,
        &[Span((15, SECOND)), Bucket(20, (60, 7 * SECOND))],
    ),
    (
        "leaky-bucket 9/s queue=10 & token-bucket 7/s burst=20",
        1,
        &[Bucket(11, (9, SECOND)), Bucket(20, (7, SECOND))],
    ),
];

impl Bound {
    /// Checks admitted calls of one `cost` each, in the order of their times. The clocks of the
    /// processes differ by up to `apart` nanoseconds.
    fn check(self, calls: &[Answer], cost: u64, apart: u64, what: &str) {
        let within = |calls: usize, limit: u64| {
            let units = calls as u64 * cost;
            // One unit for rounding, or a millionth.
            let most = limit + 1 + limit / 1_000_000;
            assert!(units <= most, "{what}: {units} units, {limit} by {self:?}");
        };
        let count_before = |calls: &[Answer], end: u64| calls.partition_point(|call| call.at < end);
        match self {
            Bucket(burst, quota) => {
                for n in 0..calls.len() {
                    Initial(burst, quota).check(&calls[n..], cost, apart, what);
                }
            }
            OfClass(class, burst, quota) => {
                let of_class = calls.iter().filter(|call| call.class == class).copied();
                let of_class: Vec<_> = of_class.collect();
                Bucket(burst, quota).check(&of_class, cost, apart, what);
            }
            Initial(burst, quota) => {
                for (n, call) in calls.iter().enumerate() {
                    let span = call.at - calls[0].at + apart;
                    within(n + 1, burst + refilled(quota, span));
                }
            }
            Calendar((limit, period)) => {
                for window in calls.chunk_by(|one, next| one.at / period == next.at / period) {
                    within(window.len(), limit);
                }
            }
            FirstCall((limit, period)) => {
                let mut rest = calls;
                while let Some(first) = rest.first() {
                    let count = count_before(rest, first.at + period - apart);
                    within(count, limit);
                    rest = &rest[count..];
                }
            }
            Span((limit, period)) => {
                for (n, first) in calls.iter().enumerate() {
                    within(count_before(&calls[n..], first.at + period - apart), limit);
                }
            }
            Spaced((amount, period), longest) => {
                let mut departures: Vec<_> = calls.iter().map(Answer::until).collect();
                departures.sort_unstable();
                for pair in departures.windows(2) {
                    // A microsecond for the rounding of both.
                    let between = u128::from(pair[1] - pair[0] + apart + 1_000);
                    let is_apart = between * u128::from(amount) >= u128::from(cost * period);
                    assert!(is_apart, "{what}: departures at {pair:?}, {self:?}");
                }
                for Answer { wait, .. } in calls {
                    let most = longest + apart;
                    assert!(*wait <= most, "{what}: a delay of {wait} ns, {self:?}");
                }
            }
        }
    }
}

fn refilled((amount, period): Quota, span: u64) -> u64 {
    let units = u128::from(span) * u128::from(amount) / u128::from(period);
    u64::try_from(units).unwrap()
}

/// Checks the answers of both releases about one key against the bounds of its rule. Also compares
/// them with the answers of the former release alone about another key, over the same time.
pub(crate) fn check((rule, cost, bounds): Case, store: &str, shared: &[Answer], alone: &[Answer]) {
    // The server's clock decides in Redis, and in memcached that of each process.
    let apart = if store == "redis" { 0 } else { 2_000_000 };
    let what = format!("{rule} in {store}");
    let [by_both, by_one] = [(shared, "both"), (alone, "the former one")].map(|(answers, who)| {
        let admitted = answers.iter().filter(|answer| answer.is_admitted);
        let mut admitted: Vec<_> = admitted.copied().collect();
        admitted.sort_unstable_by_key(|answer| answer.at);
        for bound in bounds {
            bound.check(&admitted, cost, apart, &format!("{what}, by {who}"));
        }
        admitted.len()
    });
    let calls = shared.len();
    assert!(
        by_both < calls * 9 / 10,
        "{what}: {by_both} of {calls} calls were admitted: expected more calls than may pass"
    );
    // A tenth, plus the last calls. Where units return all at once, these may be a whole window
    // that began for one key just before its calls ended, and for the other one just after. A
    // warm-up cools while a busy machine delays its calls; a state that the other release could not
    // read would be cold all the time, at a third of the rate.
    let last = |bound: &Bound| match *bound {
        Calendar((limit, _)) | FirstCall((limit, _)) | Span((limit, _)) => limit.div_ceil(cost),
        _ => 3,
    };
    let last = bounds.iter().map(last).min().unwrap_or(3) as usize;
    let [least, most] = match rule.starts_with("warm-up") {
        true => [6, 14],
        false => [9, 11],
    };
    assert!(
        by_one * least / 10 <= by_both + last && by_both <= by_one * most / 10 + last,
        "{what}: {by_both} calls by both releases, {by_one} by the former one alone"
    );
    if let [Bucket(burst, quota)] = *bounds {
        let times = shared.iter().map(|answer| answer.at);
        let span = times.clone().max().unwrap() - times.min().unwrap();
        let (units, allowed) = (by_both as u64 * cost, burst + refilled(quota, span));
        assert!(
            units >= allowed * 9 / 10,
            "{what}: {units} units of {allowed}"
        );
    }
}
