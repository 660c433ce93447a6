//! State kinds: which rules share one, and the numbers that stores have written for them.

use std::collections::BTreeMap;

use tollgate::{
    AnyRule, FixedWindow, SlidingLog, TokenBucket,
    algorithm::{Algorithm, StateKind},
};

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

/// Each algorithm, with two rules of different numbers.
const RULES: [[&str; 2]; 13] = [
    ["token-bucket 10/s", "token-bucket 7/1h burst=9 initial=1"],
    [
        "leaky-bucket 10/s",
        "leaky-bucket 5/1m queue=50 max-wait=2s",
    ],
    ["fixed-window 10/s", "fixed-window 9/1m offset=spread"],
    ["sliding-window 10/s", "sliding-window 10/1m slices=4"],
    ["sliding-log 10/s", "sliding-log 7/1h"],
    ["warm-up 10/s over=10s", "warm-up 20/s over=5s cold=4"],
    [
        "warm-up-spaced 2/s over=4s",
        "warm-up-spaced 3/s over=5s max-wait=5s",
    ],
    [
        "cascade 10/s burst=10 > 5/s burst=20",
        "cascade 10/s burst=10 > 5/s burst=20 > 1/s burst=9",
    ],
    [
        "three-color 10/s peak=20/s",
        "three-color 100/s burst=100 peak=200/s peak-burst=200 aware",
    ],
    [
        "token-bucket 10/s & fixed-window 9/1m",
        "token-bucket 1/s & fixed-window 7/1h",
    ],
    [
        "fixed-window 9/1m & token-bucket 10/s",
        "fixed-window 7/1h & token-bucket 1/s",
    ],
    [
        "token-bucket 10/s & token-bucket 9/1m",
        "token-bucket 1/s & token-bucket 5/1h",
    ],
    [
        "token-bucket 10/s & token-bucket 9/1m & token-bucket 5/1h",
        "token-bucket 1/s & token-bucket 5/1m & token-bucket 1/1h",
    ],
];

#[test]
fn each_algorithm_has_its_own_kind_for_any_numbers() {
    let mut kinds = BTreeMap::new();
    for texts in RULES {
        let [one, other] = texts.map(|text| rule(text).state_kind());
        assert_eq!(one, other, "{texts:?}");
        assert_eq!(kinds.insert(one, texts), None);
        assert_ne!(one, StateKind::default());
    }
}

#[test]
fn a_rule_has_the_same_kind_as_any_rule_and_for_each_key() {
    let kind = |text: &str| rule(text).state_kind();
    assert_eq!(
        TokenBucket::per_hour(3).state_kind(),
        kind("token-bucket 1/s")
    );
    assert_eq!(
        SlidingLog::per_hour(3).state_kind(),
        kind("sliding-log 1/s")
    );

    for text in [
        "fixed-window 9/1m offset=spread",
        "token-bucket 1/s & fixed-window 9/1m offset=spread",
    ] {
        let own = rule(text).for_key(&|| 7).unwrap();
        assert_eq!(own.state_kind(), kind(text));
    }
}

#[test]
fn compositions_combine_the_kinds_of_their_members_in_order() {
    let (a, b, c) = (
        TokenBucket::per_hour(3),
        FixedWindow::per_hour(3),
        SlidingLog::per_hour(3),
    );
    let pairs = [
        (a, b).state_kind(),
        (b, a).state_kind(),
        ((a, b), c).state_kind(),
        (a, (b, c)).state_kind(),
        rule("token-bucket 3/1h & fixed-window 3/1h").state_kind(),
        a.state_kind(),
    ];
    for (n, kind) in pairs.iter().enumerate() {
        assert!(!pairs[..n].contains(kind), "{n}");
    }
}

/// Stored states are lost if a number changes.
#[test]
fn kinds_are_written_as_the_same_numbers_in_all_releases() {
    let fnv = |name: &str| {
        let round = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        name.bytes().fold(0xcbf2_9ce4_8422_2325, round)
    };
    for [text, _] in &RULES[..9] {
        let name = text.split(' ').next().unwrap();
        assert_eq!(rule(text).state_kind().as_u64(), fnv(name), "{name}");
        assert_eq!(StateKind::from_u64(fnv(name)), rule(text).state_kind());
    }
    for (kind, number) in [
        (rule("token-bucket 1/s").state_kind(), 0x7e6c_8a72_57ec_0daf),
        (
            rule("token-bucket 1/s & fixed-window 1/s").state_kind(),
            0xa53a_b86e_8bca_f943,
        ),
        (
            (TokenBucket::per_hour(3), FixedWindow::per_hour(3)).state_kind(),
            0x2377_98ca_2be6_74ce,
        ),
    ] {
        assert_eq!(kind.as_u64(), number);
    }
}
