//! Calls in flight on stores that nodes share: permits are renewed for as long as their calls last,
//! and those of nodes that are gone come back.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use http::{Request, Response};
use support::servers::{self, in_time};
use tokio::{
    runtime,
    time::{Instant, sleep},
};
use tollgate::{
    AnyRule, Cost, Limit, Limiter, Permit, Policy, RateLimitLayer,
    key::Key,
    store::{
        BoxStore, CircuitBreakerConfig, Local, LocalBuilder, Memcached, Redis, StoreError, StoreExt,
    },
    time::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

type Remote = Arc<BoxStore<AnyRule, StoreError>>;

/// Longer than this machine stalls.
const PATIENCE: Duration = Duration::from_secs(20);

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

async fn redis(url: &str) -> Remote {
    let builder = Redis::<AnyRule>::builder(url).response_timeout(PATIENCE);
    Arc::new(builder.connect().await.unwrap().boxed())
}

fn memcached(server: &servers::Memcached) -> Remote {
    let url = format!("memcached://{}", server.address());
    Arc::new(Memcached::<AnyRule>::connect_lazy(url).unwrap().boxed())
}

/// Two connections to a store of each kind, for two nodes.
struct Stores {
    _redis: servers::Redis,
    _memcached: servers::Memcached,
    nodes: Vec<(&'static str, [Remote; 2])>,
}

impl Stores {
    async fn start() -> Self {
        let (server, cas) = (servers::Redis::start(), servers::Memcached::start());
        let url = server.url();
        let nodes = vec![
            ("redis", [redis(&url).await, redis(&url).await]),
            ("memcached", [memcached(&cas), memcached(&cas)]),
        ];
        Self {
            _redis: server,
            _memcached: cas,
            nodes,
        }
    }
}

type Node = Limiter<AnyRule, Remote>;

fn node(store: Remote, rule: &AnyRule) -> Node {
    Limiter::new(Policy::new("exports"), rule.clone(), store)
}

async fn take(node: &Node) -> Option<Permit> {
    node.permit("alice", Cost::ONE).await.unwrap().ok()
}

/// Returns the units that the store counts as held, of a limit of so many.
async fn held(node: &Node, most: u64) -> u64 {
    let look = node.look("alice").await.unwrap();
    most - look.remaining().unwrap()
}

/// Waits until so many units are held.
async fn becomes(node: &Node, most: u64, expected: u64) {
    in_time(PATIENCE, async {
        while held(node, most).await != expected {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Expects so many units to be held for all of this time.
async fn stays(node: &Node, most: u64, expected: u64, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        assert_eq!(held(node, most).await, expected);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_outlast_their_lease_and_are_given_back_once() {
    let stores = Stores::start().await;
    let lease = Duration::from_secs(2);
    let rule = rule("in-flight 3 lease=2s");
    let each = stores.nodes.into_iter().map(|(name, [a, b])| {
        let (a, b) = (node(a, &rule), node(b, &rule));
        async move {
            let first = take(&a).await.unwrap();
            let second = take(&b).await.unwrap();
            let third = take(&a).await.unwrap();
            assert!(
                take(&a).await.is_none() && take(&b).await.is_none(),
                "{name}"
            );
            stays(&b, 3, 3, lease * 2).await;
            drop(second);
            becomes(&a, 3, 2).await;
            let clone = first.clone();
            drop(first);
            stays(&b, 3, 2, lease / 2).await;
            drop(clone);
            becomes(&a, 3, 1).await;
            drop(third);
            becomes(&a, 3, 0).await;
            let all = [take(&b).await, take(&b).await, take(&b).await];
            assert!(
                all.iter().all(Option::is_some) && take(&a).await.is_none(),
                "{name}"
            );
        }
    });
    futures_util::future::join_all(each).await;
}

/// The runtime of a node ends, and its permits with it. They come back after the lease, and not
/// before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permits_of_a_node_that_died_come_back_after_the_lease() {
    let server = servers::Redis::start();
    let rule = rule("in-flight 3 lease=3s");
    let alive = node(redis(&server.url()).await, &rule);
    let dead = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (url, other) = (server.url(), rule.clone());
    let permits = dead.spawn(async move {
        let dies = node(redis(&url).await, &other);
        [take(&dies).await.unwrap(), take(&dies).await.unwrap()]
    });
    let permits = permits.await.unwrap();
    let own = take(&alive).await.unwrap();
    dead.shutdown_background();
    // The last renewal may be a third of the lease old.
    stays(&alive, 3, 3, Duration::from_secs(1)).await;
    becomes(&alive, 3, 1).await;
    // Nobody can give them back any more.
    drop(permits);
    stays(&alive, 3, 1, Duration::from_millis(300)).await;
    drop(own);
    becomes(&alive, 3, 0).await;
    assert_eq!(server.command(&["DBSIZE"]), "0");
}

/// A client that hangs up holds nothing, wherever its call was dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_while_the_store_is_asked_hold_nothing() {
    let stores = Stores::start().await;
    let rule = rule("in-flight 3 lease=1h");
    for (name, [store, other]) in stores.nodes {
        let (node, other) = (node(store, &rule), node(other, &rule));
        for n in 0..300_u64 {
            let mut call = pin!(async { node.permit("alice", Cost::ONE).await });
            let polls = n % 3;
            for _ in 0..polls {
                if poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // What was dropped is still on its way to the store: it may take a unit and give it back
        // after a look that found none.
        let all = in_time(PATIENCE, async {
            loop {
                let all = [take(&other).await, take(&other).await, take(&other).await];
                if all.iter().all(Option::is_some) {
                    return all;
                }
            }
        });
        let all = all.await;
        assert!(take(&other).await.is_none(), "{name}");
        drop(all);
        becomes(&other, 3, 0).await;
    }
}

/// A node that is cut off for longer than the lease loses its permits to others. Once it is back,
/// all of them count, and in the end nothing is left or lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_cut_off_counts_again() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let rule = rule("in-flight 4 lease=2s");
    let url = format!("redis://{}", proxy.address());
    let builder = Redis::<AnyRule>::builder(url).response_timeout(Duration::from_millis(300));
    let cut = node(Arc::new(builder.connect().await.unwrap().boxed()), &rule);
    let other = node(redis(&server.url()).await, &rule);
    let [first, second] = [take(&cut).await.unwrap(), take(&cut).await.unwrap()];
    proxy.set_flow(servers::Flow::Hold);
    becomes(&other, 4, 0).await;
    let [third, fourth, fifth] = [
        take(&other).await.unwrap(),
        take(&other).await.unwrap(),
        take(&other).await.unwrap(),
    ];
    proxy.set_flow(servers::Flow::Forward);
    // Five are held: what is beyond the limit shows as none left. What was renewed on the way may
    // count twice until the lease is over.
    becomes(&other, 4, 4).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(held(&other, 4).await, 4);
    drop([third, fourth, fifth]);
    becomes(&other, 4, 2).await;
    stays(&other, 4, 2, Duration::from_secs(3)).await;
    drop(first);
    becomes(&other, 4, 1).await;
    drop(second);
    becomes(&other, 4, 0).await;
    let all = [
        take(&other).await,
        take(&cut).await,
        take(&other).await,
        take(&cut).await,
    ];
    assert!(all.iter().all(Option::is_some));
    assert!(take(&other).await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_forgets_what_is_held_until_it_is_renewed() {
    let server = servers::Redis::start();
    let rule = rule("in-flight 2 lease=3s");
    let node = node(redis(&server.url()).await, &rule);
    let permits = [take(&node).await.unwrap(), take(&node).await.unwrap()];
    node.reset("alice").await.unwrap();
    becomes(&node, 2, 2).await;
    drop(permits);
    becomes(&node, 2, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_maximal_hold_ends_the_renewals() {
    let stores = Stores::start().await;
    let rule = rule("in-flight 2 max-hold=4s lease=2s");
    let each = stores.nodes.into_iter().map(|(_, [store, other])| {
        let (node, other) = (node(store, &rule), node(other, &rule));
        async move {
            let permit = take(&node).await.unwrap();
            stays(&other, 2, 1, Duration::from_secs(3)).await;
            becomes(&other, 2, 0).await;
            drop(permit);
            stays(&other, 2, 0, Duration::from_millis(300)).await;
        }
    });
    futures_util::future::join_all(each).await;
}

/// Without a runtime nothing renews, so units are not over with the lease.
#[test]
fn calls_outside_of_a_runtime_hold_their_units_until_they_end() {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let rule = rule("in-flight 1 lease=1s");
    let limiter = Limiter::new(Policy::new("exports"), rule, store);
    let take = || limiter.permit("alice", Cost::ONE).at_once().ok();
    let permit = take().unwrap();
    clock.advance(Duration::from_secs(3600));
    assert!(take().is_none());
    drop(permit);
    assert!(take().is_some());
}

/// … but with their maximal hold.
#[test]
fn a_maximal_hold_ends_outside_of_a_runtime() {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let rule = rule("in-flight 1 max-hold=50s lease=10s");
    let limiter = Limiter::new(Policy::new("exports"), rule, store);
    let take = || limiter.permit("alice", Cost::ONE).at_once().ok();
    let first = take().unwrap();
    clock.advance(Duration::from_secs(49));
    assert!(take().is_none());
    // Ends are rounded up to a 64th of the lease.
    clock.advance(Duration::from_secs(3));
    let second = take().unwrap();
    drop(first);
    assert!(
        take().is_none(),
        "the first one gave back what it no longer holds"
    );
    drop(second);
    assert!(take().is_some());
}

/// The runtime in which a call began may end before the call.
#[test]
fn calls_that_outlive_their_runtime_give_back_once() {
    let rule = rule("in-flight 2 lease=1h");
    let limiter = Limiter::new(Policy::new("exports"), rule, Local::new());
    let runtime = runtime::Runtime::new().unwrap();
    let take = || limiter.permit("alice", Cost::ONE).at_once().ok();
    let first = runtime.block_on(async { take() }).unwrap();
    drop(runtime);
    let second = take().unwrap();
    assert!(take().is_none());
    drop(first);
    let first = take().unwrap();
    assert!(take().is_none());
    drop((first, second));
    assert!(take().is_some());
}

/// A client hangs up while one of two questions is open: the limit has answered, and its dry run
/// has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_beside_a_dry_run_hold_nothing() {
    let server = servers::Redis::start();
    let store = redis(&server.url()).await;
    let rule = rule("in-flight 3 lease=1h");
    let dry = Limit::new(self::rule("in-flight 2 lease=1h"))
        .named("dry")
        .dry_run();
    let layer = RateLimitLayer::new(rule.clone())
        .policy(Policy::new("exports"))
        .key(|_: &Request<()>| Key::from("alice"))
        .also(dry.key(|_: &Request<()>| Key::from("alice")))
        .store(Arc::new(Arc::clone(&store).fail_closed()));
    let service = layer.layer(service_fn(async |_: Request<()>| {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    for n in 0..200 {
        let call = service.clone().oneshot(Request::new(()));
        let _ = tokio::time::timeout(Duration::from_micros(10 * n), call).await;
    }
    becomes(&node(Arc::clone(&store), &rule), 3, 0).await;
    let dry = Limiter::new(
        Policy::new("dry"),
        self::rule("in-flight 2 lease=1h"),
        store,
    );
    becomes(&dry, 2, 0).await;
}

/// Each wrapper renews, also one that never fails and so never says that a renewal was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_renewed_through_wrappers() {
    let server = servers::Redis::start();
    let url = server.url();
    let store = async || redis(&url).await;
    let breaker = CircuitBreakerConfig::new();
    let blocks = Redis::connect(&url).await.unwrap().with_blocks();
    let of_limiters = [
        store().await.timeout(PATIENCE).boxed::<AnyRule>(),
        store().await.circuit_breaker(breaker).boxed(),
        store().await.remember_refusals().boxed(),
        blocks.boxed(),
    ];
    let own_share = |rule: &AnyRule| Some(rule.clone());
    let of_layers = [
        store().await.fail_closed().boxed::<AnyRule>(),
        store().await.remember_refusals().fail_open().boxed(),
        store()
            .await
            .fall_back_to(Local::new())
            .rule(own_share)
            .boxed(),
    ];
    let look = store().await;
    let rule = rule("in-flight 2 lease=2s");
    let mut lasting = Vec::new();
    for (n, store) in of_limiters.into_iter().enumerate() {
        let policy = Policy::new(&format!("limiter {n}"));
        let look = Limiter::new(policy.clone(), rule.clone(), look.clone());
        let limiter = Limiter::new(policy, rule.clone(), store);
        lasting.push(tokio::spawn(async move {
            let permit = limiter.permit("alice", Cost::ONE).await.unwrap().unwrap();
            lasts(permit, &look).await;
        }));
    }
    for (n, store) in of_layers.into_iter().enumerate() {
        let policy = Policy::new(&format!("layer {n}"));
        let look = Limiter::new(policy.clone(), rule.clone(), look.clone());
        let layer = RateLimitLayer::new(rule.clone())
            .policy(policy)
            .key(|_: &Request<()>| Key::from("alice"))
            .store(Arc::new(store));
        let service = layer.layer(service_fn(async |mut request: Request<()>| {
            let permit = Permit::take(request.extensions_mut()).unwrap();
            let mut response = Response::new(String::new());
            response.extensions_mut().insert(permit);
            Ok::<_, Infallible>(response)
        }));
        lasting.push(tokio::spawn(async move {
            let mut response = service.oneshot(Request::new(())).await.unwrap();
            let permit = response.extensions_mut().remove::<Permit>();
            lasts(permit.unwrap(), &look).await;
        }));
    }
    for lasting in lasting {
        lasting.await.unwrap();
    }
}

/// Holds a permit for longer than its lease of two seconds.
async fn lasts(permit: Permit, look: &Node) {
    stays(look, 2, 1, Duration::from_secs(3)).await;
    drop(permit);
    becomes(look, 2, 0).await;
}

/// Many permits, one after the other and together, leave nothing in the server.
async fn leaves_nothing(permits: u64) {
    let server = servers::Redis::start();
    let limiter = node(redis(&server.url()).await, &rule("in-flight 4 lease=10s"));
    let tasks = (0..256_u64).map(|task| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            for n in 0..permits / 256 {
                let key = Key::from((task << 32) + n / 2);
                let permit = limiter.permit(key, Cost::ONE).await.unwrap();
                drop(permit.expect("two of four at most"));
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    servers::wait_until("no key is left", PATIENCE, || {
        match server.command(&["DBSIZE"]).as_str() {
            "0" => Ok(()),
            left => Err(format!("{left} keys")),
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_leave_nothing_behind() {
    leaves_nothing(20_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn slow_a_million_permits_leave_nothing_behind() {
    leaves_nothing(1_000_000).await;
}
