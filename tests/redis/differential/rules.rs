//! The rules of the timelines.

/// The names of the algorithms in text.
pub(super) const KINDS: [&str; 10] = [
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-log",
    "cascade",
    "three-color",
    "warm-up",
    "warm-up-spaced",
    "in-flight",
];

/// The algorithms whose units can be granted ahead.
pub(super) const GRANTING: [&str; 4] = [
    "token-bucket",
    "fixed-window",
    "sliding-window",
    "sliding-log",
];

/// Rules with room for grants, alone and in pairs.
pub(super) const GRANTED: [(&str, &[&str]); 8] = [
    (
        "large buckets",
        &[
            "token-bucket 70/1s burst=90",
            "token-bucket 70/1s burst=90 keep-free=30",
            "token-bucket 70/2s burst=40",
        ],
    ),
    (
        "large buckets that start otherwise",
        &[
            "token-bucket 50/1s initial=0 keep=2s",
            "token-bucket 50/1s keep-free=20 initial=990 keep=1s",
        ],
    ),
    (
        "large fixed windows",
        &[
            "fixed-window 100/1s",
            "fixed-window 200/3s offset=1s",
            "fixed-window 40/1s from=first-call",
            "fixed-window 90/2s offset=spread",
        ],
    ),
    (
        "large sliding windows",
        &[
            "sliding-window 100/1s",
            "sliding-window 100/1s slices=4",
            "sliding-window 200/2s slices=5",
            "sliding-window 50/3s slices=60",
        ],
    ),
    (
        "large logs",
        &["sliding-log 100/1s", "sliding-log 40/500ms"],
    ),
    (
        "large pairs",
        &[
            "token-bucket 70/1s burst=90 & fixed-window 200/3s",
            "token-bucket 70/2s burst=140 & fixed-window 100/1s",
        ],
    ),
    (
        "large pairs of windows",
        &[
            "sliding-log 90/1s & sliding-window 150/2s slices=4",
            "sliding-log 120/2s & sliding-window 80/1s",
        ],
    ),
    (
        "a large pair, one of which starts otherwise",
        &["token-bucket 50/1s initial=990 keep=1s & fixed-window 60/1s from=first-call"],
    ),
];

/// Rules that take turns on one key. Rules of one algorithm count in the same fraction of a
/// microsecond. So a state that carries over is equal in memory, which rounds it to a fraction of a
/// nanosecond.
pub(super) const RULES: [(&str, &[&str]); 20] = [
    (
        "calls in flight",
        &[
            "in-flight 9 lease=1s",
            "in-flight 6 lease=1100003us max-hold=5s",
            "in-flight 20 lease=2s",
        ],
    ),
    (
        "token bucket",
        &[
            "token-bucket 7/1s burst=9",
            "token-bucket 7/1s burst=9 keep-free=4",
            "token-bucket 7/2s burst=4",
        ],
    ),
    (
        "token bucket that starts otherwise",
        &[
            "token-bucket 5/1s initial=0 keep=2s",
            "token-bucket 5/1s initial=9 keep=1s",
            "token-bucket 5/1s keep-free=2 initial=1 keep=1s",
        ],
    ),
    (
        "leaky bucket",
        &[
            "leaky-bucket 7/1s queue=6",
            "leaky-bucket 7/2s queue=0",
            "leaky-bucket 7/1s queue=9 max-wait=600ms",
        ],
    ),
    (
        "fixed window",
        &[
            "fixed-window 10/1s",
            "fixed-window 20/3s offset=1s",
            "fixed-window 4/1s from=first-call",
            "fixed-window 9/2s offset=spread",
            "fixed-window 5/700ms",
        ],
    ),
    (
        "sliding window",
        &[
            "sliding-window 10/1s",
            "sliding-window 10/1s slices=4",
            "sliding-window 20/2s slices=5",
        ],
    ),
    ("sliding log", &["sliding-log 10/1s", "sliding-log 4/500ms"]),
    (
        "cascade",
        &[
            "cascade 3/1s > 7/2s burst=5",
            "cascade 3/1s keep-free=1 > 7/2s burst=5 keep-free=2",
            "cascade 3/1s burst=2 > 7/2s > 1/1s burst=9",
            "cascade 3/1s",
        ],
    ),
    (
        "cascade that starts otherwise",
        &[
            "cascade 3/1s initial=0 keep=1s > 7/2s initial=6 keep=2s",
            "cascade 3/1s keep-free=1 initial=4 keep=1s > 7/2s",
        ],
    ),
    (
        "three colors",
        &[
            "three-color 3/1s burst=4 peak=7/1s",
            "three-color 3/1s peak=7/1s peak-burst=9",
            "three-color 3/1s peak=7/1s aware",
        ],
    ),
    (
        "warm-up",
        &[
            "warm-up 10/1s over=2100ms",
            "warm-up 20/1s over=2s",
            "warm-up 5/1s over=2700ms",
            "warm-up 20/1s over=2100ms cold=2",
        ],
    ),
    (
        "warm-up with spaces",
        &[
            "warm-up-spaced 4/1s over=2s",
            "warm-up-spaced 10/1s over=3s cold=2 max-wait=1s",
            "warm-up-spaced 7/1s over=4s cold=2.5",
        ],
    ),
    (
        "warm-up of odd numbers",
        &["warm-up 7/1s over=1234567us cold=2.5"],
    ),
    (
        "warm-up with odd spaces",
        &["warm-up-spaced 19/3s over=7777us cold=1.234 max-wait=900ms"],
    ),
    (
        "pairs of windows",
        &[
            "sliding-log 9/1s & sliding-window 15/2s slices=4",
            "sliding-window 10/1s & warm-up 20/1s over=2s",
        ],
    ),
    (
        "pairs that warm up",
        &[
            "warm-up 20/1s over=2s & warm-up-spaced 7/1s over=2s max-wait=5s",
            "warm-up-spaced 3/1s over=2s & fixed-window 9/1s",
        ],
    ),
    (
        "pairs",
        &[
            "token-bucket 10/1s & leaky-bucket 20/3s",
            "token-bucket 10/1s & leaky-bucket 20/3s queue=2",
        ],
    ),
    (
        "pairs of classes",
        &[
            "cascade 3/1s > 5/1s & three-color 5/1s peak=9/1s",
            "cascade 3/1s > 5/1s & fixed-window 9/1s offset=spread",
        ],
    ),
    (
        "pairs that write refusals",
        &[
            "token-bucket 5/1s initial=0 keep=2s & fixed-window 9/1s",
            "fixed-window 9/1s & cascade 3/1s initial=0 keep=1s",
            "token-bucket 5/1s initial=0 keep=2s & sliding-log 9/1s",
            "fixed-window 20/3s & fixed-window 7/700ms from=first-call",
        ],
    ),
    (
        "any algorithm",
        &[
            "fixed-window 10/1s",
            "token-bucket 10/1s",
            "leaky-bucket 7/1s",
            "sliding-log 5/1s",
            "sliding-window 9/1s",
            "cascade 3/1s > 7/2s initial=0",
            "three-color 3/1s peak=7/1s",
            "warm-up 10/1s over=2s",
            "warm-up-spaced 5/1s over=2s",
        ],
    ),
];

/// Rules whose units are not multiples of each other, and so coarse that rounding affects
/// decisions.
///
/// Memory rounds off less than the program when a state carries over.
pub(super) const UNEVEN: [(&str, &[&str]); 4] = [
    (
        "token bucket",
        &[
            "token-bucket 7/5us burst=9",
            "token-bucket 7/5us burst=9 keep-free=4",
            "token-bucket 11/3us burst=4 initial=20 keep=9us",
            "token-bucket 10/7us burst=6",
        ],
    ),
    (
        "leaky bucket",
        &[
            "leaky-bucket 7/5us queue=6",
            "leaky-bucket 11/3us queue=9 max-wait=2us",
            "leaky-bucket 10/7us queue=3",
        ],
    ),
    (
        "warm-up with spaces",
        &[
            "warm-up-spaced 7/13us over=33333ns cold=2.501",
            "warm-up-spaced 11/3us over=7us cold=1.001 max-wait=777ns",
            "warm-up-spaced 999983/7s over=100us cold=9.999",
            "warm-up-spaced 999/1s over=1h",
        ],
    ),
    (
        "classes",
        &[
            "cascade 7/5us > 3/2us burst=5 & three-color 7/4us peak=9/4us",
            "cascade 11/7us > 5/3us & three-color 11/7us burst=7 peak=13/7us",
        ],
    ),
];

/// Like [`UNEVEN`], for rules that count seconds.
pub(super) const UNEVEN_SECONDS: [(&str, &[&str]); 2] = [
    (
        "warm-up",
        &[
            "warm-up 7/1s over=1234567us cold=2.5",
            "warm-up 11/1s over=7s cold=1.001",
            "warm-up 99/7s over=7777777us cold=9.99",
            "warm-up 12/1s over=3s",
        ],
    ),
    (
        "warm-up with spaces",
        &[
            "warm-up-spaced 7/13s over=33333333us cold=2.501",
            "warm-up-spaced 11/3s over=7s cold=1.001 max-wait=777ms",
            "warm-up-spaced 999983/100007s over=10s cold=9.999",
            "warm-up-spaced 3/1s over=1h max-wait=2s",
        ],
    ),
];
