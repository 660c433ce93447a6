//! The conformance suite on a real server: Redis alone, in each wrapper, and while the server is
//! suspended.

use std::{fmt::Debug, sync::Arc, time::Duration};

use tollgate::{
    AnyRule,
    store::{self, BoxStore, CircuitBreakerConfig, Local, Redis, Store, StoreExt},
    testing::conformance::{Law, Report, Suite},
};

use super::servers;

/// All algorithms, alone and combined.
const RULES: [&str; 15] = [
    "token-bucket 5/100ms",
    "token-bucket 5/1h",
    "token-bucket 4/1s initial=2 keep=1h",
    "leaky-bucket 20/s queue=4",
    "fixed-window 6/200ms",
    "fixed-window 6/1s offset=spread",
    "sliding-window 6/200ms slices=4",
    "sliding-log 5/200ms",
    "cascade 5/s burst=3 > 2/s burst=4",
    "three-color 5/s burst=3 peak=10/s peak-burst=6",
    "warm-up 9/1s over=2s",
    "warm-up-spaced 20/1s over=400ms",
    "in-flight 4 lease=1h",
    "in-flight 5 lease=200ms",
    "token-bucket 5/100ms & fixed-window 9/1s",
];
/// For wrappers, which do not depend on the rule. Includes the rule for [`Law::Wait`].
const FEW: [&str; 3] = [
    "token-bucket 5/100ms",
    "fixed-window 6/1h",
    "sliding-log 5/1h",
];
/// Rules that can be divided among nodes.
const BUCKETS: [&str; 2] = ["token-bucket 6/100ms", "token-bucket 6/1h"];

/// Longer than this machine stalls, so that only injected faults occur.
const PATIENCE: Duration = Duration::from_secs(20);

async fn connect(server: &servers::Redis, response_timeout: Duration) -> Redis<AnyRule> {
    let builder = Redis::<AnyRule>::builder(server.url());
    let builder = builder.response_timeout(response_timeout);
    builder.connect().await.unwrap()
}

fn suite<S>(store: S, rules: &[&str]) -> Suite<AnyRule, S>
where
    S: Store<AnyRule, Answer: Send, Error: Debug + Send>,
    S: Clone + Send + Sync + 'static,
{
    let rules = rules.iter().map(|rule| rule.parse::<AnyRule>().unwrap());
    Suite::with_rules(store, rules)
        .resolution(Duration::from_micros(1))
        .sleep(tokio::time::sleep)
        .spawn(tokio::spawn)
        .timelines(support::timelines())
}

fn all_but_faults(report: &Report) {
    assert_eq!(report.left_out(), [Law::Fault]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold() {
    let server = servers::Redis::start();
    let store = connect(&server, PATIENCE).await;
    all_but_faults(&suite(store, &RULES).run().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_with_a_deadline_and_a_breaker_and_without_its_type() {
    let server = servers::Redis::start();
    let redis = connect(&server, PATIENCE).await;
    let timeout = redis.clone().timeout(PATIENCE);
    all_but_faults(&suite(timeout.clone(), &FEW).run().await.unwrap());
    let breaker = timeout.circuit_breaker(CircuitBreakerConfig::new());
    all_but_faults(&suite(breaker.clone(), &FEW).run().await.unwrap());
    assert_eq!(breaker.opened(), 0);
    let boxed: BoxStore<AnyRule, store::StoreError> = breaker.boxed();
    all_but_faults(&suite(boxed, &FEW).run().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_laws_hold_with_a_fallback_that_is_not_needed() {
    let server = servers::Redis::start();
    let redis = connect(&server, PATIENCE).await;
    let store = redis.fall_back_to(Local::new()).share::<AnyRule>(1, 2);
    all_but_faults(&suite(store.clone(), &BUCKETS).run().await.unwrap());
    assert_eq!((store.failures(), store.decided()), (0, 0));
}

/// Remembered waits use the clock of this machine, and remaining units are those that the server
/// returned. So only the laws of counts are checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_laws_of_counts_hold_with_remembered_refusals() {
    let server = servers::Redis::start();
    let redis = connect(&server, PATIENCE).await;
    let store = redis.remember_refusals();
    let suite = suite(store.clone(), &FEW).tolerance(0, 0);
    let kept = suite.run().await.unwrap();
    assert!(kept.kept().contains(&Law::Race) && kept.kept().contains(&Law::Reset));
    assert!(store.hits() > 0 && store.remembered() > 0);
}

/// Suspends and resumes the server's process.
fn standstill(server: &Arc<servers::Redis>) -> impl Fn(bool) + 'static {
    let server = Arc::clone(server);
    move |begins| {
        if begins {
            server.pause();
        } else {
            server.resume();
        }
    }
}

const DEADLINE: Duration = Duration::from_millis(250);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_server_costs_at_most_one_charge_per_call() {
    let server = Arc::new(servers::Redis::start());
    let redis = connect(&server, DEADLINE).await;
    let suite = suite(redis, &FEW[1..]).fault(standstill(&server));
    suite.only(Law::Fault).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_server_behind_a_deadline_and_a_breaker() {
    let server = Arc::new(servers::Redis::start());
    let redis = connect(&server, PATIENCE).await;
    let timeout = redis.timeout(DEADLINE);
    // Four calls of each rule meet the fault.
    let breaker = CircuitBreakerConfig::new().failures(2);
    let store = timeout.clone().circuit_breaker(breaker);
    let suite = suite(store.clone(), &FEW[1..]).fault(standstill(&server));
    suite.only(Law::Fault).run().await.unwrap();
    assert!(timeout.timeouts() >= 4 && store.opened() >= 2 && store.rejected() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_drops_packets_behind_a_fallback() {
    let server = servers::Redis::start();
    let proxy = Arc::new(servers::Proxy::start(server.address()));
    let builder = Redis::<AnyRule>::builder(format!("redis://{}", proxy.address()));
    let redis = builder.response_timeout(DEADLINE).connect();
    let store = redis.await.unwrap().fall_back_to(Local::new());
    let store = store.share::<AnyRule>(1, 1);
    let switch = move |begins| {
        proxy.set_flow(match begins {
            true => servers::Flow::Swallow,
            false => servers::Flow::Forward,
        });
    };
    let suite = suite(store.clone(), &BUCKETS[1..]).fault(switch);
    suite.only(Law::Fault).run().await.unwrap();
    assert!(store.failures() > 0 && store.decided() > 0);
}
