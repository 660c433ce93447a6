//! The rules of the timelines.

/// Rules that take turns on one key. Those of one algorithm count in the same fraction of a microsecond: what is
/// carried over is then the same in memory, which rounds it to one of a nanosecond.
pub(super) const RULES: [(&str, &[&str]); 13] = [
    (
        "token bucket",
        &["token-bucket 7/1s burst=9", "token-bucket 7/2s burst=4"],
    ),
    (
        "token bucket that starts otherwise",
        &[
            "token-bucket 5/1s initial=0 keep=2s",
            "token-bucket 5/1s initial=9 keep=1s",
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
            "cascade 3/1s burst=2 > 7/2s > 1/1s burst=9",
            "cascade 3/1s",
        ],
    ),
    (
        "cascade that starts otherwise",
        &[
            "cascade 3/1s initial=0 keep=1s > 7/2s initial=6 keep=2s",
            "cascade 3/1s initial=4 keep=1s > 7/2s",
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
        ],
    ),
];

/// Rules whose units are no multiples of each other, and so coarse that what is rounded off decides.
///
/// Memory carries over more of it than the program does.
pub(super) const UNEVEN: [(&str, &[&str]); 3] = [
    (
        "token bucket",
        &[
            "token-bucket 7/5us burst=9",
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
        "classes",
        &[
            "cascade 7/5us > 3/2us burst=5 & three-color 7/4us peak=9/4us",
            "cascade 11/7us > 5/3us & three-color 11/7us burst=7 peak=13/7us",
        ],
    ),
];
