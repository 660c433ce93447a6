//! Each setting of the connection's builder, and of those of both stores on it, has its effect.

use std::time::Duration;

use futures_util::future::join_all;
use tollgate::{
    AnyRule, FixedWindow, TokenBucket,
    key::Key,
    store::{
        Backend, Memcached, MemcachedConnection, MemcachedConnectionBuilder, MemcachedCounters,
        Store, StoreError,
        driver::{CasStoreBuilder, CounterStoreBuilder},
    },
    testing::conformance::{Law, Suite},
    time::{Clock, ManualClock},
};

use super::{
    acquire, admitted, at_once, connect, counters, in_time, items, key, look, servers, stat, swaps,
    url, window,
};

const RESPONSE: Duration = Duration::from_millis(300);

fn to(server: &servers::Memcached) -> MemcachedConnectionBuilder {
    MemcachedConnection::builder(url(server.address()))
}

fn bucket(
    connection: MemcachedConnectionBuilder,
) -> CasStoreBuilder<MemcachedConnection, TokenBucket> {
    Memcached::builder_on(connection.connect_lazy().unwrap())
}

fn windows(
    connection: MemcachedConnectionBuilder,
) -> CounterStoreBuilder<MemcachedConnection, FixedWindow> {
    MemcachedCounters::builder_on(connection.connect_lazy().unwrap())
}

/// Other stores, also of the same kind, begin afresh.
#[tokio::test]
async fn a_prefix_is_a_store_of_its_own() {
    let server = servers::Memcached::start();
    let shop = bucket(to(&server)).prefix("shop").build();
    let windows = windows(to(&server)).prefix("shop").build();
    assert_eq!(admitted(&shop, &at_once(2), key(), 3).await, 2);
    assert_eq!(admitted(&windows, &window(2), key(), 3).await, 2);
    let names = items(&server);
    assert_eq!(names.len(), 2, "{names:?}");
    for (name, _) in names {
        assert!(name.starts_with("shop:2:{"), "{name}");
    }
    let other = bucket(to(&server)).build();
    assert_eq!(admitted(&other, &at_once(2), key(), 3).await, 2);
    let connected = Memcached::<TokenBucket>::builder_on(connect(&server).await).prefix("shop");
    assert_eq!(admitted(&connected.build(), &at_once(2), key(), 3).await, 0);
}

#[tokio::test]
async fn the_number_of_connections_is_a_setting() {
    let server = servers::Memcached::start();
    // All that there ever were: an earlier connection may still be about to close.
    let before = stat(&server, "stats", "total_connections");
    let three = to(&server).connections(3).connect().await.unwrap();
    let swaps = Memcached::<TokenBucket>::new(three);
    let counters = windows(to(&server).connections(2)).build();
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
    let connected = async |timeout| {
        to(&server)
            .response_timeout(timeout)
            .connect()
            .await
            .unwrap()
    };
    let swaps = Memcached::builder_on(connected(impatient).await);
    let swaps = swaps.deadline(patient).build();
    let hasty = Memcached::builder_on(connected(patient).await);
    let hasty = hasty.deadline(impatient).build();
    let counters = windows(to(&server).response_timeout(impatient)).build();
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
    let once = bucket(to(&server)).attempts(1).build();
    let many = bucket(to(&server)).attempts(10_000).backoff(None).seed(1);
    let many = many.deadline(100 * RESPONSE).build();
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
        let store = bucket(to(&server)).combining(combining).attempts(1000);
        let store = store.prefix(if combining { "combined" } else { "separate" });
        let store = store.build();
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
        let store = windows(to(&server)).clocks_apart(Duration::from_secs(apart));
        let store = store.build();
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
    let connection = connect(&server).await;
    let swaps = Memcached::<AnyRule>::builder_on(connection.clone());
    let swaps = swaps.clock(clock.clone()).build();
    let counters = MemcachedCounters::<AnyRule>::builder_on(connection);
    let counters = counters.clock(clock.clone()).build();
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
    let rules = rules.map(|rule| rule.parse::<AnyRule>().unwrap());
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
    let connection = to(&server).connections(2);
    assert!(format!("{connection:?}").contains("connections: 2"));
    let builder = bucket(connection.clone()).prefix("shop");
    assert!(format!("{builder:?}").contains("shop"));
    let (first, second) = (builder.clone().build(), builder.build());
    assert_eq!(admitted(&first, &at_once(5), key(), 3).await, 3);
    assert_eq!(admitted(&second, &at_once(5), key(), 3).await, 2);

    let builder = windows(connection).prefix("shop");
    assert!(format!("{builder:?}").contains("shop"));
    let (first, second) = (builder.clone().build(), builder.build());
    assert_eq!(admitted(&first, &window(5), key(), 3).await, 3);
    assert_eq!(admitted(&second, &window(5), key(), 3).await, 2);
    // Both kinds are separate: a bucket under another prefix is full.
    let other = swaps(&connect(&server).await);
    assert_eq!(admitted(&other, &at_once(5), key(), 6).await, 5);
}

/// The connection was made by a runtime that nobody drives any more.
#[test]
fn a_connection_of_a_runtime_that_stands_still_is_replaced() {
    let server = servers::Memcached::start();
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let connecting = to(&server).response_timeout(RESPONSE).connect();
    let connection = first.block_on(connecting).unwrap();
    let store = counters(&connection);
    let rule = window(1);
    second.block_on(async {
        let error = look(&store, &rule, key()).await.unwrap_err();
        assert!(error.is_timeout(), "nobody reads the response: {error}");
        look(&store, &rule, key()).await.unwrap();
    });
    // Callers that give up sooner see it by the age of what they have sent.
    let connecting = to(&server).response_timeout(RESPONSE).connect();
    let store = counters(&first.block_on(connecting).unwrap());
    second.block_on(async {
        let mut answers = 0;
        for _ in 0..40 {
            let looking = tokio::time::timeout(RESPONSE / 10, look(&store, &rule, key()));
            answers += u32::from(looking.await.is_ok_and(|look| look.is_ok()));
        }
        assert!(answers > 0);
    });
    drop(first);
}
