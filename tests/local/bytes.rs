//! The memory that the store in memory takes per key, by kind of state: the numbers in the
//! documentation of `Local`.

#[allow(dead_code)]
use std::{str::FromStr, time::Duration};

use support::counting::bytes_kept;
use tollgate::{
    AnyRule, Cost, FixedWindow, InFlight, LeakyBucket, Policy, TokenBucket,
    algorithm::{
        Algorithm, Block, Blockable, Cascade, SlidingLog, SlidingWindow, ThreeColor, WarmUp,
        WarmUpSpaced,
    },
    store::{
        AtCapacity, Local, LocalBuilder, Store,
        driver::{Ask, Check},
    },
    time::ManualClock,
};

/// The least and the most bytes that a key takes in a store that is full, whatever its capacity:
/// hash tables double.
fn bytes_of_a_key<A: Algorithm + FromStr<Err: std::fmt::Debug>>(rule: &str) -> (i64, i64) {
    let (rule, policy) = (rule.parse::<A>().unwrap(), Policy::default());
    let of = |eighths: u64| {
        let keys = 128 * 56 * eighths / 8;
        let (bytes, _store) = bytes_kept(|| {
            let store: Local<A, _> = LocalBuilder::new()
                .capacity(keys as usize)
                .clock(ManualClock::default())
                .build();
            for key in 0..keys {
                let ask = Ask::new(&policy, &rule, key.into(), Cost::ONE);
                assert!(store.decide(&ask).is_admitted());
            }
            assert_eq!(store.len() as u64, keys);
            store
        });
        // The bytes without any key.
        let (empty, _store) = bytes_kept(|| LocalBuilder::new().capacity(0).build::<A>());
        (bytes - empty) / keys as i64
    };
    // Just before the tables double, and when most of them have.
    (of(14), of(18))
}

/// The numbers of the page for a rule: the least and the most.
fn stated(rule: &str) -> (i64, i64) {
    let page = include_str!("../../src/store/local/mod.rs");
    let row = page
        .lines()
        .find(|line| line.starts_with("/// | ") && line.contains(rule));
    let bytes = row.and_then(|row| row.trim_end_matches(" |").rsplit_once("| "));
    let range = bytes.and_then(|(_, bytes)| bytes.split_once(" to "));
    let (least, most) = range.unwrap_or_else(|| panic!("no row of {rule}"));
    (least.parse().unwrap(), most.parse().unwrap())
}

#[test]
fn a_key_takes_what_the_page_says() {
    let any = bytes_of_a_key::<AnyRule>;
    let bucket = bytes_of_a_key::<TokenBucket>;
    let sliding = bytes_of_a_key::<SlidingWindow>;
    let more = |(least, most): (i64, i64), more| (least - more, most - more);
    for (row, measured) in [
        ("into one word", bucket("token-bucket 5/1h")),
        ("into one word", any("leaky-bucket 5/1h")),
        ("into one word", any("fixed-window 5/1h")),
        ("into one word", bucket("token-bucket 7/1h")),
        ("into one word", any("leaky-bucket 7/1h")),
        ("into one word", sliding("sliding-window 7/1h")),
        ("into one word", any("sliding-window 255/1h slices=4")),
        (
            "into two words",
            bytes_of_a_key::<ThreeColor>("three-color 9/s burst=9 peak=20/s peak-burst=20"),
        ),
        (
            "into two words",
            bytes_of_a_key::<Cascade>("cascade 9/s > 5/s"),
        ),
        (
            "into two words",
            any("token-bucket 5/1h & token-bucket 9/1s"),
        ),
        (
            "into one word",
            bytes_of_a_key::<InFlight>("in-flight 4095"),
        ),
        (
            "other `InFlight`",
            bytes_of_a_key::<InFlight>("in-flight 4096"),
        ),
        ("other `TokenBucket`", bucket("token-bucket 7/1h initial=3")),
        (
            "other `FixedWindow`",
            bytes_of_a_key::<FixedWindow>("fixed-window 7/1h offset=1m"),
        ),
        (
            "and `LeakyBucket`",
            bytes_of_a_key::<LeakyBucket>("leaky-bucket 2/365d queue=4"),
        ),
        (
            "`WarmUp`",
            bytes_of_a_key::<WarmUp>("warm-up 200/s over=10s cold=3"),
        ),
        (
            "`WarmUpSpaced`",
            bytes_of_a_key::<WarmUpSpaced>("warm-up-spaced 2/s over=4s cold=3"),
        ),
        (
            "and `ThreeColor`",
            bytes_of_a_key::<ThreeColor>("three-color 1/365d burst=9 peak=20/s peak-burst=20"),
        ),
        (
            "other `SlidingWindow`",
            sliding("sliding-window 2097152/1h"),
        ),
        (
            "other `SlidingWindow`",
            more(sliding("sliding-window 256/1h slices=4"), 8 * 5),
        ),
        (
            "other `SlidingWindow`",
            more(sliding("sliding-window 7/1h slices=60"), 8 * 61),
        ),
        (
            "other `Cascade` of two",
            bytes_of_a_key::<Cascade>("cascade 9/s > 3/365d burst=9"),
        ),
        (
            "`Cascade` of three",
            bytes_of_a_key::<Cascade>("cascade 9/s > 5/s > 1/s"),
        ),
        (
            "`SlidingLog` with",
            bytes_of_a_key::<SlidingLog>("sliding-log 7/1h"),
        ),
        ("`AnyRule` of one", any("token-bucket 7/1h initial=3")),
        ("`AnyRule` of one", any("sliding-window 2097152/1h")),
        (
            "`AnyRule` of one",
            any("three-color 1/365d burst=9 peak=20/s peak-burst=20"),
        ),
        ("`AnyRule` of one", more(any("sliding-log 7/1h"), 4 * 16)),
        (
            "of two other rules",
            any("token-bucket 5/1h & fixed-window 9/1h"),
        ),
        (
            "of two other rules",
            any("warm-up 200/s over=10s & sliding-window 9/1h"),
        ),
        (
            "of two other rules",
            more(
                any("token-bucket 7/1h & fixed-window 9/1h & token-bucket 9/1s"),
                48,
            ),
        ),
    ] {
        let (least, most) = stated(row);
        println!("{row}: {measured:?} of {least} to {most}");
        assert!(
            least <= measured.0 && measured.1 <= most,
            "{row}: {measured:?}"
        );
        // The larger the store, the further apart are both, around the same middle.
        let middle = |(least, most)| (least + most) / 2;
        let off = middle((least, most)) - middle(measured);
        assert!((-1..=10).contains(&off), "{row}: {measured:?}");
    }
}

/// The capacity bounds the number of keys; a log's calls come on top, up to twice 16 bytes for
/// each.
#[test]
fn the_calls_of_a_log_take_up_to_32_bytes_each() {
    let (policy, clock) = (Policy::default(), ManualClock::default());
    let rule: SlidingLog = "sliding-log 100000/1h".parse().unwrap();
    let (bytes, store) = bytes_kept(|| {
        let store = LocalBuilder::new().capacity(1).clock(clock.clone()).build();
        for _ in 0..70_000 {
            clock.advance(Duration::from_micros(1));
            assert!(
                store
                    .decide(&Ask::new(&policy, &rule, 1.into(), Cost::ONE))
                    .is_admitted()
            );
        }
        store
    });
    assert_eq!(store.len(), 1);
    assert!(
        (16 * 70_000..=32 * 70_000 + 50_000).contains(&bytes),
        "{bytes}"
    );
}

/// Keys of the map that are removed before they expire, by resets and by refusals of several new
/// keys at a full store, leave nothing behind that grows.
#[test]
fn keys_that_are_removed_leave_no_bytes() {
    const KEYS: u64 = 2_000;
    let [one, two] = ["one", "two"].map(Policy::new);
    let log: AnyRule = "sliding-log 2/1h".parse().unwrap();
    // In the table, until another rule of its kind writes the state.
    let [packed, unpacked] = ["token-bucket 5/1h", "token-bucket 5/1h initial=3"]
        .map(|text| text.parse::<AnyRule>().unwrap());
    let store = LocalBuilder::new()
        .capacity(KEYS as usize + 1)
        .at_capacity(AtCapacity::RefuseNewcomers)
        .clock(ManualClock::default())
        .build::<AnyRule>();
    let ask = |policy, rule, key: u64| Ask::new(policy, rule, key.into(), Cost::ONE);
    let spend = |rule, key| store.decide(&ask(&one, rule, key));
    for key in 0..KEYS {
        assert!(spend(&log, key).is_admitted());
    }
    let same = || {
        assert!(spend(&log, KEYS).is_admitted());
        store.reset(&one, &KEYS.into());
    };
    let different = |key: u64| {
        assert!(spend(&log, key).is_admitted());
        store.reset(&one, &key.into());
    };
    let moved = |key: u64| {
        assert!(spend(&packed, key).is_admitted() && spend(&unpacked, key).is_admitted());
        store.reset(&one, &key.into());
    };
    let refused = |key: u64| {
        let asks = [ask(&one, &log, key), ask(&two, &log, key)];
        let decisions = store.acquire(&asks);
        assert!(matches!(decisions, Check::Ready(Ok(decisions)) if !decisions.is_admitted()));
    };
    let round = |from: u64| {
        for key in from..from + 10_000 {
            same();
            different(key);
            moved(key);
            refused(key);
            assert_eq!(store.len() as u64, KEYS);
        }
    };
    // Queues grow at first, and the table is made.
    round(1 << 20);
    for n in 2..6 {
        let (bytes, ()) = bytes_kept(|| round(n << 20));
        assert!(bytes < 10_000, "{bytes} bytes in round {n}");
    }
    for key in 0..KEYS {
        assert!(spend(&log, key).is_admitted() && !spend(&log, key).is_admitted());
    }
}

/// A key of a rule that can be blocked takes as many bytes as without blocks, where its state fits
/// into words.
#[test]
fn words_hold_the_states_of_blockable_rules() {
    fn bytes<A: Algorithm>(rule: &A) -> i64 {
        let policy = Policy::default();
        let (empty, _store) = bytes_kept(|| LocalBuilder::new().capacity(0).build::<A>());
        let (bytes, _store) = bytes_kept(|| {
            let store = LocalBuilder::new()
                .capacity(5000)
                .clock(ManualClock::default())
                .build();
            for key in 0..5000_u64 {
                let ask = Ask::new(&policy, rule, key.into(), Cost::ONE);
                assert!(store.decide(&ask).is_admitted());
            }
            store
        });
        (bytes - empty) / 5000
    }
    let is_equal = |plain: i64, blockable: i64, text: &str| {
        // Which sets grow is random.
        let context = format!("{text}: {plain} and {blockable} bytes");
        assert!(plain.abs_diff(blockable) <= 2 && plain < 60, "{context}");
    };
    for text in [
        "token-bucket 5/1h",
        "leaky-bucket 5/1h",
        "fixed-window 5/1h",
        "sliding-window 7/1h",
        "three-color 9/s burst=9 peak=20/s peak-burst=20",
        "cascade 9/s > 5/s",
        "token-bucket 5/1h & token-bucket 9/1s",
    ] {
        let rule: AnyRule = text.parse().unwrap();
        is_equal(bytes(&rule), bytes(&Blockable::from(rule)), text);
    }
    let bucket = TokenBucket::per_hour(5);
    is_equal(bytes(&bucket), bytes(&Blockable::from(bucket)), "a bucket");
}

/// The number on the page of `Blocks`.
#[test]
fn a_block_takes_what_its_page_says() {
    let page = include_str!("../../src/store/wrappers/blocks/mod.rs");
    let stated = page.split("A block takes about ").nth(1).unwrap();
    let stated: i64 = stated.split(' ').next().unwrap().parse().unwrap();
    let minute = Duration::from_secs(60);
    let policy = Policy::default();
    let block = Blockable::Block(Block::try_new(minute).unwrap());
    let of = |keys: u64| {
        let build = |capacity| {
            let builder = LocalBuilder::new().capacity(capacity);
            builder
                .clock(ManualClock::default())
                .build::<Blockable<TokenBucket>>()
        };
        let (empty, _store) = bytes_kept(|| build(0));
        let (bytes, _store) = bytes_kept(|| {
            let store = build(keys as usize);
            for key in 0..keys {
                let ask = Ask::new(&policy, &block, key.into(), Cost::ONE);
                assert!(store.decide(&ask).is_admitted());
            }
            store
        });
        (bytes - empty) / keys as i64
    };
    // Just before the tables double, and when most of them have.
    for keys in [14, 18].map(|eighths| 128 * 56 * eighths / 8) {
        let bytes = of(keys);
        println!("a block: {bytes} of about {stated}");
        assert!((bytes - stated).abs() <= 30, "{bytes} of {stated}");
    }
}

/// A layer begins with such a store, also where the user replaces it.
#[test]
fn a_store_takes_its_table_at_the_first_call() {
    let (policy, rule) = (Policy::default(), TokenBucket::per_hour(1));
    let (bytes, store) = bytes_kept(Local::<TokenBucket>::new);
    assert!(bytes < 60_000, "{bytes}");
    let (bytes, clone) = bytes_kept(|| {
        store.reset(&policy, &1.into());
        store.clear();
        assert_eq!((store.len(), store.stats().capacity), (0, 1_000_000));
        store.clone()
    });
    assert_eq!(bytes, 0);
    let ask = Ask::new(&policy, &rule, 1.into(), Cost::ONE);
    let (bytes, decision) = bytes_kept(|| store.decide(&ask));
    assert!(decision.is_admitted() && bytes > 23_000_000, "{bytes}");
    assert!(!clone.decide(&ask).is_admitted(), "clones share the table");
}

/// A capacity from configuration for which there is no memory is an error at the start.
#[test]
#[should_panic(expected = "expected a capacity that this machine has room for")]
fn a_store_for_which_there_is_no_memory_is_not_built() {
    let _ = LocalBuilder::new()
        .capacity(usize::MAX)
        .build::<TokenBucket>();
}

#[test]
fn a_large_store_takes_its_table_when_it_is_built() {
    let builder = LocalBuilder::new().capacity(1_000_001);
    let (bytes, _store) = bytes_kept(|| builder.build::<TokenBucket>());
    assert!(bytes > 23_000_000, "{bytes}");
}
