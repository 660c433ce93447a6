//! The suite that every store passes, over both classes on a real server.

use std::time::Duration;

use tollgate::{
    AnyRule,
    store::{Memcached, MemcachedConnection, MemcachedCounters},
    testing::{
        Alternating,
        conformance::{Law, Suite},
    },
};

use super::{connect, servers, url};

/// All algorithms, alone and several at once.
const RULES: [&str; 13] = [
    "token-bucket 5/100ms",
    "token-bucket 5/1h",
    "token-bucket 4/1s initial=2 keep=1h",
    "leaky-bucket 20/s queue=4",
    "fixed-window 6/200ms",
    "fixed-window 6/1s offset=spread",
    "sliding-window 6/200ms slices=4",
    "sliding-log 5/200ms",
    "warm-up 50/s over=1s cold=3",
    "warm-up-spaced 20/s over=1s",
    "cascade 5/s burst=3 > 2/s burst=4",
    "three-color 5/s burst=3 peak=10/s peak-burst=6",
    "token-bucket 5/100ms & fixed-window 9/1s",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_by_compare_and_swap() {
    let server = servers::Memcached::start();
    let store = Memcached::<AnyRule>::connect(url(server.address()))
        .await
        .unwrap();
    let rules = RULES.map(|rule| rule.parse::<AnyRule>().unwrap());
    let report = Suite::with_rules(store, rules)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .timelines(support::timelines())
        .run()
        .await
        .unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.left_out(), [Law::Fault]);
}

/// Calls for a key through one connection are combined, and never race in memcached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_on_two_connections_share_one_limit() {
    let server = servers::Memcached::start();
    let connect = async || Memcached::<AnyRule>::connect(url(server.address())).await;
    let (one, other) = (connect().await.unwrap(), connect().await.unwrap());
    let rules = RULES.map(|rule| rule.parse::<AnyRule>().unwrap());
    let report = Suite::with_rules(Alternating::new(one, other), rules)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .only(Law::Race)
        .run()
        .await
        .unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.kept(), [Law::Race]);
}

const WINDOWS: [&str; 6] = [
    "fixed-window 6/200ms",
    "sliding-window 6/200ms slices=4",
    "fixed-window 5/1h",
    "fixed-window 4/1d offset=spread",
    "sliding-window 6/1h slices=4",
    "sliding-window 70/1m slices=60",
];

/// All but the change of a rule: a window of another length begins with counters of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_by_counters() {
    let server = servers::Memcached::start();
    let url = url(server.address());
    let store = MemcachedCounters::<AnyRule>::connect(url).await.unwrap();
    let rules = WINDOWS.map(|rule| rule.parse::<AnyRule>().unwrap());
    let report = Suite::with_rules(store, rules)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .repeating_deltas()
        .without(Law::Change)
        .timelines(support::timelines())
        .run()
        .await
        .unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.left_out(), [Law::Change, Law::Fault]);
}

/// Several connections are one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_one_store() {
    let server = servers::Memcached::start();
    let connection = MemcachedConnection::builder(url(server.address()))
        .connections(3)
        .response_timeout(Duration::from_secs(10))
        .connect()
        .await
        .unwrap();
    let rules =
        ["token-bucket 5/100ms", "token-bucket 5/1h"].map(|rule| rule.parse::<AnyRule>().unwrap());
    let store = Memcached::<AnyRule>::new(connection.clone());
    let report = Suite::with_rules(store, rules)
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .settling_back()
        .timelines(support::timelines())
        .run()
        .await
        .unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.left_out(), [Law::Fault]);
    assert_eq!(connect(&server).await.healed(), 0);
}
