//! Queues and windows in the store in memory: which states are packed into a slot, and what a new
//! key owes at capacity.

use std::time::Duration;

use tollgate::{
    AnyRule, Cost, Decision, FixedWindow, LeakyBucket, Policy, Quota, SlidingWindow, Timestamp,
    TokenBucket, Verdict,
    algorithm::Algorithm,
    store::{
        AtCapacity, Local, LocalBuilder, Store,
        driver::{Ask, Check, Settlement},
    },
    time::ManualClock,
};

/// All keys of so small a store belong to the same two sets: each is every other one's neighbour.
const NEIGHBOURS: usize = 12;

fn store<A: Algorithm>(clock: &ManualClock, capacity: usize) -> Local<A, ManualClock> {
    LocalBuilder::new()
        .capacity(capacity)
        .at_capacity(AtCapacity::InheritDebts)
        .clock(clock.clone())
        .build()
}

/// Twelve o'clock on some day.
fn noon() -> ManualClock {
    ManualClock::new(Timestamp::from_nanos(1_767_268_800_000_000_000))
}

fn spend<A: Algorithm>(store: &Local<A, ManualClock>, rule: &A, key: u64, cost: u64) -> Decision {
    let cost = Cost::new(cost).unwrap();
    store.decide(&Ask::new(&Policy::default(), rule, key.into(), cost))
}

fn look<A: Algorithm>(store: &Local<A, ManualClock>, rule: &A, key: u64) -> Decision {
    store.look(&Policy::default(), rule, &key.into())
}

/// Only what lies in the table can be pushed out of a full store; what lies in the map turns
/// newcomers away.
fn is_in_the_table<A: Algorithm>(rule: &A) -> bool {
    let store = store(&noon(), NEIGHBOURS);
    for key in 0..NEIGHBOURS as u64 {
        assert!(spend(&store, rule, key, 1).is_admitted());
    }
    spend(&store, rule, 100, 1);
    let stats = store.stats();
    // A newcomer pushes a key out, or is held back because it owes as much as its rule allows.
    let in_the_table = stats.evicted + stats.held_back;
    assert_eq!(in_the_table + stats.turned_away, 1, "{stats:?}");
    in_the_table == 1
}

/// Whatever divides the period: 24 bytes a key, no lock, and inherited debts at the capacity.
#[test]
fn buckets_and_queues_of_every_ordinary_quota_are_marks() {
    for period in [1, 7, 60, 3_600, 86_400].map(Duration::from_secs) {
        for amount in 1..=1_000 {
            let quota = Quota::new(amount, period);
            assert!(is_in_the_table(&TokenBucket::new(quota)), "{quota}");
            assert!(is_in_the_table(&LeakyBucket::new(quota)), "{quota}");
        }
    }
}

#[test]
fn queues_and_windows_are_marks_where_they_can_be() {
    for (text, is_mark) in [
        ("leaky-bucket 10/s", true),
        ("leaky-bucket 3/1s queue=5 max-wait=1s", true),
        ("leaky-bucket 60/1m queue=1", true),
        ("leaky-bucket 7/1s", true),
        ("leaky-bucket 29999999/s", true),
        ("leaky-bucket 30000000/s", true),
        ("leaky-bucket 2/365d queue=3", true),
        ("leaky-bucket 2/365d queue=4", false),
        ("fixed-window 10/1s", true),
        ("fixed-window 1000000000000/1d", true),
        ("fixed-window 10/730d", true),
        ("fixed-window 10/731d", false),
        ("fixed-window 10/1m offset=1s", false),
        ("fixed-window 10/1m offset=0s", true),
        ("fixed-window 10/1m from=first-call", false),
        ("fixed-window 29/10ns", true),
        ("fixed-window 30/10ns", false),
        ("token-bucket 10/1m", true),
        ("token-bucket 7/1s", true),
        ("token-bucket 9/1s", true),
        ("token-bucket 60/7s", true),
        ("token-bucket 1000/1d", true),
        ("token-bucket 999/1m", true),
        ("token-bucket 30000000/s", true),
        ("token-bucket 7/1s initial=3", false),
        ("sliding-window 10/1m", true),
        ("sliding-window 262143/1m", true),
        ("sliding-window 262144/1m", false),
        ("sliding-window 127/1m slices=4", true),
        ("sliding-window 128/1m slices=4", false),
        ("sliding-window 2/1h slices=15", true),
        ("sliding-window 1/365d slices=16", false),
        ("sliding-window 10/1m slices=7", false),
        ("sliding-window 10/365d", true),
        ("sliding-window 10/366d", false),
        ("sliding-window 10/585d slices=4", false),
        ("sliding-window 1/8ns slices=2", true),
        ("sliding-window 2/8ns slices=2", false),
    ] {
        let any: AnyRule = text.parse().unwrap();
        assert_eq!(is_in_the_table(&any), is_mark, "{text}");
        if let AnyRule::LeakyBucket(rule) = &any {
            assert_eq!(is_in_the_table(rule), is_mark, "{text}");
        }
        if let AnyRule::FixedWindow(rule) = &any {
            assert_eq!(is_in_the_table(rule), is_mark, "{text}");
        }
        if let AnyRule::SlidingWindow(rule) = &any {
            assert_eq!(is_in_the_table(rule), is_mark, "{text}");
        }
    }
}

/// Of seven windows of other lengths each has a shape of its own, and the eighth none.
#[test]
fn windows_of_too_many_lengths_live_in_the_map() {
    let store = store(&noon(), 1_000);
    for length in 1..=8_u64 {
        let rule: FixedWindow = format!("fixed-window 2/{length}m").parse().unwrap();
        let remaining = |cost| spend(&store, &rule, length, cost).remaining();
        assert_eq!(
            (remaining(1), remaining(2), remaining(1)),
            (Some(1), Some(1), Some(0))
        );
    }
    assert_eq!(store.len(), 8);
    let stats = store.stats();
    assert_eq!((stats.inserted, stats.turned_away), (8, 0));
}

#[test]
fn a_newcomer_waits_behind_the_shortest_queue_that_it_pushes_out() {
    let (clock, rule) = (noon(), LeakyBucket::per_second(1).queue(20));
    let store = store(&clock, NEIGHBOURS);
    // Key n keeps n seconds.
    for key in 1..=12 {
        assert_eq!(spend(&store, &rule, key, key).verdict(), Verdict::Allow);
    }
    let newcomer = spend(&store, &rule, 100, 1);
    assert_eq!(newcomer.verdict(), Verdict::Delay(Duration::from_secs(1)));
    assert_eq!(store.stats().evicted, 1);
    // Key 1 is gone, with all that it owed; it comes back, and pushes out one of those that owe
    // two.
    let back = spend(&store, &rule, 1, 1);
    assert_eq!(back.verdict(), Verdict::Delay(Duration::from_secs(2)));
    assert_eq!((store.stats().evicted, store.len()), (2, NEIGHBOURS));
    for key in 3..=12 {
        let wait = look(&store, &rule, key).reset_after();
        assert_eq!(wait, Duration::from_secs(key));
    }
    clock.advance(Duration::from_secs(30));
    assert_eq!(spend(&store, &rule, 200, 1).verdict(), Verdict::Allow);
}

#[test]
fn a_newcomer_has_the_count_of_the_window_that_it_pushes_out() {
    let (clock, rule) = (noon(), FixedWindow::per_minute(20));
    clock.advance(Duration::from_secs(17));
    let store = store(&clock, NEIGHBOURS);
    for key in 1..=12 {
        assert!(spend(&store, &rule, key, key).is_admitted());
    }
    assert_eq!(spend(&store, &rule, 100, 1).remaining(), Some(18));
    assert_eq!(spend(&store, &rule, 1, 1).remaining(), Some(17));
    let refused = spend(&store, &rule, 200, 19);
    assert_eq!(refused.verdict(), Verdict::Refuse);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(43)));
    assert_eq!(store.stats().held_back, 1);
    clock.advance(Duration::from_secs(43));
    assert_eq!(spend(&store, &rule, 200, 19).remaining(), Some(1));
}

/// A debt is the greatest of several, and says nothing of the slices before its newest one. So a
/// new key is refused until they are past, and then has the count of the newest one.
#[test]
fn a_new_key_has_the_newest_count_of_the_sliding_window_that_it_evicts() {
    for slices in [1, 4] {
        let (clock, rule) = (noon(), SlidingWindow::per_minute(20).slices(slices));
        let store = store(&clock, NEIGHBOURS);
        for key in 1..=12 {
            assert!(spend(&store, &rule, key, key).is_admitted());
        }
        let refused = spend(&store, &rule, 100, 1);
        assert_eq!(refused.verdict(), Verdict::Refuse);
        // Shortly before the minute ends: by then the slice before it, which may have counted up to
        // 127 in one of four, has nearly left.
        let wait = refused.retry_after().unwrap();
        assert!(
            wait > Duration::from_secs(57) && wait <= Duration::from_secs(60),
            "{wait:?}"
        );
        assert_eq!(store.stats().held_back, 1);
        clock.advance(Duration::from_secs(60));
        assert_eq!(spend(&store, &rule, 100, 1).remaining(), Some(18));
        assert_eq!(spend(&store, &rule, 1, 1).remaining(), Some(17));
        assert_eq!(store.stats().evicted, 2);
        for key in 3..=12 {
            assert_eq!(look(&store, &rule, key).remaining(), Some(20 - key));
        }
    }
}

/// Under other slices the calls count as of the first call, and not of later ones; and under their
/// own as before.
#[test]
fn sliding_windows_of_other_slices_count_the_calls_once() {
    for texts in [
        ["sliding-window 10/1m", "sliding-window 10/1s"],
        [
            "sliding-window 10/1m slices=4",
            "sliding-window 10/1s slices=7",
        ],
    ] {
        let [minute, second] = texts.map(|text| text.parse::<AnyRule>().unwrap());
        let clock = noon();
        let store = store(&clock, 100);
        assert!(spend(&store, &minute, 1, 8).is_admitted());
        clock.advance(Duration::from_millis(7_100));
        let refused = spend(&store, &second, 1, 4);
        let wait = refused.retry_after().unwrap();
        assert_eq!(
            (refused.verdict(), refused.remaining()),
            (Verdict::Refuse, Some(2))
        );
        assert!(
            wait > Duration::from_millis(900) && wait < Duration::from_secs(2),
            "{wait:?}"
        );
        assert_eq!(look(&store, &minute, 1).remaining(), Some(2));
        clock.advance(wait);
        assert!(spend(&store, &second, 1, 4).is_admitted());
        assert_eq!(store.len(), 1);
    }
}

/// Whatever comes between, each key has its limit once: of two windows, and of a queue.
#[test]
fn a_flood_of_new_keys_lets_nobody_above_its_limit() {
    for text in [
        "fixed-window 5/1m",
        "leaky-bucket 6/1m queue=4",
        "sliding-window 5/1m",
        "sliding-window 5/1m slices=4",
    ] {
        let (clock, rule) = (noon(), text.parse::<AnyRule>().unwrap());
        let store = store(&clock, 100);
        let mut admitted = 0;
        for round in 0..10_u64 {
            for key in 0..1_000 {
                let decision = spend(&store, &rule, round * 1_000 + key, 1);
                assert!(!decision.is_undecided(), "{text}: {decision:?}");
                admitted += u64::from(spend(&store, &rule, 7, 1).is_admitted());
            }
        }
        assert!((1..=5).contains(&admitted), "{text}: {admitted}");
        let stats = store.stats();
        assert!(
            stats.evicted + stats.held_back > 0 && stats.keys <= 100,
            "{stats:?}"
        );
    }
}

/// A pushed-out debt is a number of unknown kind: newcomers of other kinds may owe by it, but only
/// so long.
#[test]
fn a_debt_of_another_kind_is_owed_until_it_is_past() {
    let rules = [
        "leaky-bucket 1/1m queue=9",
        "fixed-window 3/1s",
        "token-bucket 2/1s",
    ];
    let [slow, window, bucket] = rules.map(|text| text.parse::<AnyRule>().unwrap());
    let clock = noon();
    let store = store(&clock, NEIGHBOURS);
    for key in 0..NEIGHBOURS as u64 {
        assert!(spend(&store, &slow, key, 5).is_admitted());
    }
    for rule in [&window, &bucket] {
        let refused = spend(&store, rule, 100, 1);
        let wait = refused.retry_after().unwrap();
        assert_eq!(refused.verdict(), Verdict::Refuse, "{rule}");
        assert!(wait >= Duration::from_secs(300), "{rule}: {wait:?}");
        assert!(wait <= Duration::from_secs(301), "{rule}: {wait:?}");
    }
    clock.advance(Duration::from_secs(300));
    for (key, rule) in [(100, &window), (101, &bucket)] {
        assert!(spend(&store, rule, key, 1).is_admitted(), "{rule}");
    }
}

/// The mark of a queue shrinks when a call is cancelled, and nothing is minted by it.
#[test]
fn cancelled_calls_leave_the_queue_as_it_was() {
    let (clock, rule) = (noon(), LeakyBucket::per_second(2).queue(9));
    let (store, policy) = (store(&clock, 100), Policy::default());
    let settle = |charged: Decision, actual| {
        let charge = { charged }.take_charge().unwrap();
        let settlement = Settlement::new(&policy, &rule, 1.into(), charge, actual).unwrap();
        assert!(matches!(
            store.settle(vec![settlement]),
            Check::Ready(Ok(()))
        ));
    };
    let delays =
        |calls: usize| -> Vec<_> { (0..calls).map(|_| spend(&store, &rule, 1, 1)).collect() };
    let delay = |charged: &Decision| match charged.verdict() {
        Verdict::Delay(delay) => delay,
        _ => Duration::ZERO,
    };
    for _ in 0..20 {
        let charges = delays(4);
        let told: Vec<_> = charges.iter().map(delay).collect();
        let half = Duration::from_millis(500);
        assert_eq!(told, [Duration::ZERO, half, 2 * half, 3 * half]);
        // The last one, the same once more, one in the middle, and all others.
        for call in [3, 3, 1, 2, 0] {
            settle(charges[call], 0);
        }
        assert_eq!(look(&store, &rule, 1).reset_after(), Duration::ZERO);
        clock.advance(Duration::from_millis(1));
    }
    let charge = delays(1)[0];
    settle(charge, 4);
    assert_eq!(look(&store, &rule, 1).reset_after(), Duration::from_secs(2));
}

/// Each has what it has left, and an entry of its own.
#[test]
fn rules_of_several_algorithms_take_turns_on_a_key() {
    let texts = [
        "token-bucket 6/1m",
        "leaky-bucket 6/1m queue=5",
        "fixed-window 6/1m",
        "sliding-window 6/1m",
    ];
    let rules = texts.map(|text| text.parse::<AnyRule>().unwrap());
    let store = store(&noon(), 100);
    for left in [4, 2, 0] {
        for rule in &rules {
            assert_eq!(spend(&store, rule, 1, 2).remaining(), Some(left), "{rule}");
        }
    }
    for rule in &rules {
        assert_eq!(
            spend(&store, rule, 1, 1).verdict(),
            Verdict::Refuse,
            "{rule}"
        );
    }
    assert_eq!(store.len(), rules.len());
}

/// The count of a window that goes on is carried over by a change of its length, through the table.
#[test]
fn windows_of_other_lengths_take_the_count_over() {
    let clock = noon();
    let store = store(&clock, 100);
    let [hour, minute] = [FixedWindow::per_hour(10), FixedWindow::per_minute(6)];
    assert_eq!(spend(&store, &hour, 1, 4).remaining(), Some(6));
    clock.advance(Duration::from_secs(90));
    assert_eq!(spend(&store, &minute, 1, 1).remaining(), Some(1));
    assert_eq!(look(&store, &hour, 1).remaining(), Some(5));
    assert_eq!(spend(&store, &minute, 1, 2).verdict(), Verdict::Refuse);
    clock.advance(Duration::from_secs(30));
    assert_eq!(spend(&store, &minute, 1, 6).remaining(), Some(0));
}
