//! Each setting of the builders of both stores has its effect.

use std::time::Duration;

use futures_util::future::join_all;
use tollgate::{
    AnyRule, FixedWindow, TokenBucket,
    algorithm::CountedRule,
    key::Key,
    store::{Backend, Memcached, MemcachedBuilder, MemcachedCounters, Store, StoreError},
    testing::conformance::{Law, Suite},
    time::{Clock, ManualClock},
};

use super::{
    acquire, admitted, at_once, connect, in_time, items, key, look, servers, stat, swaps, url,
    window,
};

const RESPONSE: Duration = Duration::from_millis(300);

fn bucket(server: &servers::Memcached) -> MemcachedBuilder<TokenBucket> {
    Memcached::builder(url(server.address()))
}

/// Other stores, also of the same kind, begin afresh.
#[tokio::test]
async fn a_prefix_is_a_store_of_its_own() {
    let server = servers::Memcached::start();
    let shop = bucket(&server).prefix("shop").connect().await.unwrap();
    let windows = MemcachedCounters::<FixedWindow>::builder(url(server.address()))
        .prefix("shop")
        .connect()
        .await
        .unwrap();
    assert_eq!(admitted(&shop, &at_once(2), key(), 3).await, 2);
    assert_eq!(admitted(&windows, &window(2), key(), 3).await, 2);
    let names = items(&server);
    assert_eq!(names.len(), 2, "{names:?}");
    for (name, _) in names {
        assert!(name.starts_with("shop:2:{"), "{name}");
    }
    let other = bucket(&server).connect().await.unwrap();
    assert_eq!(admitted(&other, &at_once(2), key(), 3).await, 2);
    // One that shares a connection has the same settings.
    let shared = Memcached::<TokenBucket>::builder_on(connect(&server).await).prefix("shop");
    assert_eq!(admitted(&shared.build(), &at_once(2), key(), 3).await, 0);
}

#[tokio::test]
async fn the_number_of_connections_is_a_setting() {
    let server = servers::Memcached::start();
    // All that there ever were: an earlier connection may still be about to close.
    let before = stat(&server, "stats", "total_connections");
    let swaps = bucket(&server).connections(3).connect().await.unwrap();
    let counters = MemcachedCounters::<FixedWindow>::builder(url(server.address()))
        .connections(2)
        .connect_lazy()
        .unwrap();
    for n in 0..20_u64 {
        acquire(&swaps, &at_once(1), Key::from(n)).await.unwrap();
        acquire(&counters, &window(1), Key::from(n)).await.unwrap();
    }
    // Beside those of the stores, the one that asks.
    let connections = stat(&server, "stats", "total_connections");
    assert_eq!(connections, before + 5 + 1);
    assert_eq!(swaps.address(), counters.address());
    assert_eq!(counters.data().healed(), 0);
}

async fn times_out<Rule, S>(store: &S, rule: &Rule, time: Duration)
where
    S: Store<Rule, Error = StoreError>,
{
    let error = in_time(time, look(store, rule, key())).await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
}

#[tokio::test]
async fn a_silent_server_is_given_up_by_either_timeout() {
    let server = servers::Memcached::start();
    let (impatient, patient) = (RESPONSE, 100 * RESPONSE);
    let swaps = bucket(&server).response_timeout(impatient);
    let swaps = swaps.deadline(patient).connect().await.unwrap();
    let hasty = bucket(&server).response_timeout(patient);
    let hasty = hasty.deadline(impatient).connect().await.unwrap();
    let counters = MemcachedCounters::<FixedWindow>::builder(url(server.address()));
    let counters = counters.response_timeout(impatient).connect_lazy().unwrap();
    server.pause();
    times_out(&swaps, &at_once(1), 4 * RESPONSE).await;
    times_out(&hasty, &at_once(1), 4 * RESPONSE).await;
    times_out(&counters, &window(1), 4 * RESPONSE).await;
}

/// Two nodes race for one key. The one with a single attempt gives up, the one with many does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_given_up_after_so_many_lost_races() {
    let server = servers::Memcached::start();
    let rule = at_once(1_000_000);
    let once = bucket(&server).attempts(1).connect().await.unwrap();
    let many = bucket(&server).attempts(10_000).backoff(None).seed(1);
    let many = many.deadline(100 * RESPONSE).connect().await.unwrap();
    let mut contended = 0;
    for _ in 0..1000 {
        let race = async |store: &Memcached<TokenBucket>| acquire(store, &rule, key()).await;
        let (one, other) = tokio::join!(race(&once), race(&many));
        assert!(other.unwrap().is_admitted());
        match one {
            Ok(decision) => assert!(decision.is_admitted()),
            Err(error) => {
                assert!(error.is_contended(), "{error:?}");
                contended += 1;
            }
        }
        if contended >= 3 {
            break;
        }
    }
    assert!(contended >= 3, "{:?}", once.stats());
    assert_eq!(once.stats().contended, contended);
}

#[tokio::test]
async fn combining_is_a_setting() {
    let server = servers::Memcached::start();
    let rule = at_once(100);
    for combining in [false, true] {
        let store = bucket(&server).combining(combining).attempts(1000);
        let store = store.prefix(if combining { "together" } else { "apart" });
        let store = store.connect().await.unwrap();
        let calls = (0..40).map(|_| acquire(&store, &rule, key()));
        for call in join_all(calls).await {
            assert!(call.unwrap().is_admitted());
        }
        let swaps = store.stats().swaps;
        assert_eq!(swaps < 20, combining, "{swaps}");
    }
}

#[tokio::test]
async fn a_counter_is_kept_longer_by_the_difference_of_clocks() {
    let server = servers::Memcached::start();
    let rule = "fixed-window 5/1s".parse().unwrap();
    let now = stat(&server, "stats", "time") as i64;
    for (apart, expected) in [(0, 0..30), (1000, 1000..1030)] {
        server.command("flush_all");
        let store = MemcachedCounters::<FixedWindow>::builder(url(server.address()))
            .clocks_apart(Duration::from_secs(apart))
            .connect()
            .await
            .unwrap();
        acquire(&store, &rule, key()).await.unwrap();
        let [(_, expiry)] = <[_; 1]>::try_from(items(&server)).unwrap();
        assert!(expected.contains(&(expiry - now)), "{apart}: {expiry}");
    }
}

/// The suite moves the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stores_decide_by_the_clock_that_is_set() {
    let server = servers::Memcached::start();
    // Not before the server's own time, by which values expire.
    let clock = ManualClock::new(tollgate::time::SystemClock::default().now());
    let swaps = Memcached::<AnyRule>::builder(url(server.address()));
    let swaps = swaps.clock(clock.clone()).connect().await.unwrap();
    let counters = MemcachedCounters::<CountedRule>::builder(url(server.address()));
    let counters = counters.clock(clock.clone()).connect().await.unwrap();
    let rules = ["token-bucket 5/1h", "leaky-bucket 20/1m queue=4"];
    let rules = rules.map(|rule| rule.parse::<AnyRule>().unwrap());
    let suite = Suite::with_rules(swaps, rules).clock(clock.clone());
    let suite = suite.spawn(tokio::spawn).settling_back().timelines(2);
    let report = suite
        .run()
        .await
        .unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.left_out(), [Law::Fault]);

    let rules = ["fixed-window 6/1h", "sliding-window 6/1h slices=4"];
    let rules = rules.map(|rule| rule.parse::<CountedRule>().unwrap());
    let suite = Suite::with_rules(counters, rules).clock(clock);
    let suite = suite.spawn(tokio::spawn).settling_back().timelines(2);
    let report = suite.repeating_deltas().without(Law::Change).run().await;
    let report = report.unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.left_out(), [Law::Change, Law::Fault]);
}

/// A builder is a value: it can be kept, cloned and printed.
#[tokio::test]
async fn a_builder_makes_several_stores() {
    let server = servers::Memcached::start();
    let builder = bucket(&server).prefix("shop");
    assert!(format!("{builder:?}").contains("shop"));
    let (first, second) = (builder.clone().connect().await, builder.connect_lazy());
    assert_eq!(admitted(&first.unwrap(), &at_once(5), key(), 3).await, 3);
    assert_eq!(admitted(&second.unwrap(), &at_once(5), key(), 3).await, 2);

    let builder = MemcachedCounters::<FixedWindow>::builder(url(server.address())).prefix("shop");
    assert!(format!("{builder:?}").contains("shop"));
    let (first, second) = (builder.clone().connect().await, builder.connect_lazy());
    assert_eq!(admitted(&first.unwrap(), &window(5), key(), 3).await, 3);
    assert_eq!(admitted(&second.unwrap(), &window(5), key(), 3).await, 2);
    // Both kinds are separate: a bucket under another prefix is full.
    let other = swaps(&connect(&server).await);
    assert_eq!(admitted(&other, &at_once(5), key(), 6).await, 5);
}
