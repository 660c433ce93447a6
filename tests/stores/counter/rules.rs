//! The rules that counters can run, the errors for others, and resets, which name no rule.

use std::time::Duration;

use tollgate::{
    AnyRule, FixedWindow, Limit, LiveRule, Quota, RateLimitLayer, SlidingWindow, Timestamp,
    algorithm::{Counted, Slicing},
    key::Key,
    store::{
        LeaseConfig, Store, StoreExt, SyncConfig,
        driver::{Batch, Delta, FleetStore},
    },
    time::ManualClock,
};

use super::{
    Node, acquire, ask,
    cache::{Cache, Fault},
    look, node, only, policy, settle,
};

/// Rules that counters cannot run.
pub(super) const OTHERS: [&str; 9] = [
    "token-bucket 100/1m",
    "leaky-bucket 10/s queue=50",
    "sliding-log 100/1m",
    "warm-up 200/s over=10s cold=3",
    "warm-up-spaced 2/s over=4s cold=3",
    "cascade 10/s > 5/s",
    "three-color 100/s peak=200/s",
    "fixed-window 10/1s & fixed-window 100/1m",
    "fixed-window 100/1m from=first-call",
];

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

/// Each error names the rules that can be counted, and an alternative. No call counts anything.
#[tokio::test]
async fn errors_for_other_rules_name_an_alternative() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let store: Node<AnyRule> = node(&cache, &clock);
    for text in OTHERS {
        let rule = rule(text);
        let error = rule.slicing().unwrap_err().to_string();
        assert_eq!(store.fits(&rule).unwrap_err().to_string(), error);
        assert!(acquire(&store, &rule, 1).await.is_err());
        assert!(error.contains("cannot run `"), "{error}");
        assert!(error.contains("expected"), "{error}");
        assert!(
            error.contains("a store that compares and swaps") || error.contains(".also("),
            "{error}"
        );
    }
    assert_eq!(cache.ops().all(), 0);
    let first_call = FixedWindow::per_minute(100).from_first_call();
    let error = first_call.slicing().unwrap_err().to_string();
    assert!(error.contains("`offset=spread`"), "{error}");
}

/// Calls, settlements, deltas, layers, live rules and wrappers alike: nothing runs the rule, and
/// nothing is counted.
#[tokio::test(start_paused = true)]
async fn other_rules_are_errors_of_every_operation() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let store: Node<AnyRule> = node(&cache, &clock);
    let window = rule("fixed-window 100/1h");
    let charged = acquire(&store, &window, 1).await.unwrap();
    let check = |error: tollgate::Error| {
        let error = error.to_string();
        assert!(error.contains("counters cannot run"), "{error}");
    };
    for (n, text) in (1..).zip(OTHERS) {
        let rule = rule(text);
        let leased = store.clone().leased(LeaseConfig::new().nodes(2));
        let synced = store.clone().synced(SyncConfig::new().nodes(2));
        let batch = Batch { node: 1, number: n };
        let units = (Duration::ZERO, 1);
        let delta = Delta::new(policy(), &rule, Key::GLOBAL, batch, units);
        let pushed = store.sync(&[delta]).unwrap().await.unwrap();
        for error in [
            acquire(&store, &rule, 1).await.err(),
            look(&store, &rule).await.err(),
            settle(&store, &rule, &charged, 0).await.err(),
            pushed.into_iter().find_map(Result::err),
            acquire(&leased, &rule, 1).await.err(),
            acquire(&synced, &rule, 1).await.err(),
        ] {
            assert!(error.unwrap().is_unsupported(), "{text}");
        }
        assert_eq!(store.stats().unsettled, n, "{text}");
        assert!(leased.fits(&rule).is_err() && synced.fits(&rule).is_err());

        let open = store.clone().fail_open();
        let asks = [ask(&rule, Key::GLOBAL, 1)];
        let decision = only(open.acquire(&asks).await.unwrap());
        assert!(decision.is_unsupported() && !decision.is_admitted());
        let layer = RateLimitLayer::new(rule.clone()).try_store(open.clone());
        check(layer.err().unwrap());
        let live = LiveRule::new(window.clone());
        let layer = RateLimitLayer::from(Limit::live(&live)).store(open);
        check(live.set(rule).unwrap_err());
        assert_eq!(live.get(), window);
        drop(layer);
    }
    assert_eq!(cache.only(), 1);
}

/// The store is there or not, and the node knows that from another key or not.
#[tokio::test(start_paused = true)]
async fn a_synchronised_node_never_decides_by_other_rules() {
    let window = rule("fixed-window 100/1h");
    for text in OTHERS {
        for (is_down, beside) in [(false, false), (false, true), (true, false), (true, true)] {
            let clock = ManualClock::default();
            let cache = Cache::new(&clock);
            let store: Node<AnyRule> = node(&cache, &clock);
            let node = store.synced(SyncConfig::new().nodes(2).clock(clock.clone()));
            if is_down {
                cache.fail([1; 3], Some(Fault::Before));
            }
            if beside {
                assert!(acquire(&node, &window, 1).await.unwrap().is_admitted());
            }
            for _ in 0..3 {
                let case = (text, is_down, beside);
                let error = acquire(&node, &rule(text), 1).await.unwrap_err();
                assert!(error.is_unsupported(), "{case:?}: {error}");
                assert!(look(&node, &rule(text)).await.unwrap_err().is_unsupported());
            }
        }
    }
}

/// The type allows the rule, so each call is an error. It never shares a window with others.
#[tokio::test]
async fn windows_from_the_first_call_are_errors_of_calls() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let store = node(&cache, &clock);
    let rule = FixedWindow::per_minute(10).from_first_call();
    for error in [
        acquire(&store, &rule, 1).await.unwrap_err(),
        look(&store, &rule).await.unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("nobody can tell from a total"),
            "{error}"
        );
    }
    assert!(store.learn(&rule).is_err());
    assert_eq!(cache.ops().all(), 0);
}

#[tokio::test]
async fn a_reset_clears_all_windows_that_were_used() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let store: Node<AnyRule> = node(&cache, &clock);
    let rules = [
        "fixed-window 5/1h",
        "fixed-window 5/1h offset=7m",
        "fixed-window 9/1d offset=spread",
        "sliding-window 5/1h slices=60",
        "sliding-window 9/1m",
    ]
    .map(|rule| rule.parse::<AnyRule>().unwrap());
    for _ in 0..3 {
        for rule in &rules {
            assert!(acquire(&store, rule, 1).await.unwrap().is_admitted());
        }
        clock.advance(Duration::from_secs(61));
    }
    assert!(cache.counters().len() > rules.len());
    store.reset(policy(), &Key::GLOBAL).await.unwrap();
    // A removed counter no longer counts.
    for rule in &rules {
        let looked = look(&store, rule).await.unwrap();
        assert_eq!(looked.remaining(), looked.limit(), "{rule}");
    }
    assert!(cache.counters().len() <= 3, "{:?}", cache.counters());
}

/// A process that has only made resets has seen no rule. The reset is an error instead of doing
/// nothing.
#[tokio::test]
async fn a_reset_without_a_rule_is_an_error() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let rule = FixedWindow::per_hour(1);
    assert!(
        acquire(&node(&cache, &clock), &rule, 1)
            .await
            .unwrap()
            .is_admitted()
    );
    let admin: Node<FixedWindow> = node(&cache, &clock);
    let error = admin.reset(policy(), &Key::GLOBAL).await.unwrap_err();
    assert!(error.to_string().contains("`CounterStore::learn`"));
    assert_eq!(cache.only(), 1);
    admin.learn(&FixedWindow::per_hour(77)).unwrap();
    admin.reset(policy(), &Key::GLOBAL).await.unwrap();
    assert_eq!(cache.only(), 0);
}

#[tokio::test]
async fn more_windows_than_are_remembered_are_an_error_of_a_reset() {
    let clock = ManualClock::default();
    let store: Node<FixedWindow> = node(&Cache::new(&clock), &clock);
    let window = |minutes: u64| FixedWindow::new(Quota::new(5, Duration::from_secs(60 * minutes)));
    for minutes in 1..=64 {
        store.learn(&window(minutes)).unwrap();
        // Different limits of one window are not different windows.
        store.learn(&FixedWindow::per_minute(minutes)).unwrap();
    }
    store.reset(policy(), &Key::GLOBAL).await.unwrap();
    acquire(&store, &window(65), 1).await.unwrap();
    let error = store.reset(policy(), &Key::GLOBAL).await.unwrap_err();
    assert!(error.to_string().contains("more than 64"));
}

/// A new limit continues with the counters. Other windows and another algorithm have counters of
/// their own.
#[tokio::test]
async fn counters_outlast_a_change_of_the_limit() {
    let clock = ManualClock::default();
    let store: Node<AnyRule> = node(&Cache::new(&clock), &clock);
    acquire(&store, &rule("fixed-window 10/1h"), 8)
        .await
        .unwrap();
    for (text, left) in [
        ("fixed-window 8/1h", 0),
        ("fixed-window 5/1h", 0),
        ("fixed-window 20/1h", 12),
        ("fixed-window 20/2h", 20),
        ("sliding-window 20/1h", 20),
        ("sliding-window 20/1h slices=2", 20),
    ] {
        let looked = look(&store, &rule(text)).await.unwrap();
        assert_eq!(looked.remaining(), Some(left), "{text}");
    }
}

/// Returns the admissions of each of two rules around the end of a window. Rule `turns[n % 4]`
/// decides call `n`.
async fn around_a_boundary(rules: &[AnyRule; 2], turns: &[usize]) -> [u64; 2] {
    // The last 20 minutes of an hour, and the first 20 of the next one.
    let clock = ManualClock::new(Timestamp::from_nanos((3_600_000 + 40 * 60) * 1_000_000_000));
    let cache = Cache::new(&clock);
    // Two releases.
    let nodes: [Node<AnyRule>; 2] = [node(&cache, &clock), node(&cache, &clock)];
    let mut admitted = [0; 2];
    for _ in 0..40 {
        for turn in turns {
            let decision = acquire(&nodes[*turn], &rules[*turn], 1).await.unwrap();
            admitted[*turn] += u64::from(decision.is_admitted());
        }
        clock.advance(Duration::from_secs(60));
    }
    admitted
}

/// The counters of a fixed window expire sooner than those of a sliding one, so they share none.
#[tokio::test]
async fn fixed_and_sliding_windows_admit_the_limit_of_each_in_any_order() {
    for sliding in ["sliding-window 6/1h", "sliding-window 6/1h slices=4"] {
        let rules = ["fixed-window 3/1h", sliding].map(|text| text.parse().unwrap());
        let [fixed, _] = around_a_boundary(&rules, &[0, 0]).await;
        let [_, slides] = around_a_boundary(&rules, &[1, 1]).await;
        for turns in [[0, 1, 0, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 0, 1]] {
            let both = around_a_boundary(&rules, &turns).await;
            assert_eq!(both, [fixed, slides], "{sliding} by {turns:?}");
        }
    }
}

#[test]
fn invalid_slices_are_errors() {
    let (none, second) = (Duration::ZERO, Duration::from_secs(1));
    for error in [
        Slicing::windows(none, none).unwrap_err(),
        Slicing::windows(second, second).unwrap_err(),
        Slicing::windows(Duration::MAX, none).unwrap_err(),
        Slicing::sliding(second, 0).unwrap_err(),
        Slicing::sliding(Duration::from_nanos(3), 4).unwrap_err(),
        Slicing::sliding(second, 61).unwrap_err(),
    ] {
        assert!(error.to_string().contains("expected"), "{error}");
    }
    // Every valid window can be divided.
    let longest = SlidingWindow::new(Quota::new(1, Quota::MAX_PERIOD)).slices(60);
    let slicing = longest.slicing().unwrap();
    let end = tollgate::Timestamp::MAX;
    assert!(slicing.begin(slicing.slice(end)) <= end && slicing.over(slicing.slice(end)) == end);
}
