//! Settlements by handles, with every rule in every store: refunds, huge costs, delays, retries,
//! servers and runtimes that are gone.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex, mpsc},
};

use http::{Request, Response, StatusCode};
use support::servers;
use tollgate::{
    AnyRule, ChargeHandle, Outcome, Policy, RateLimitLayer, TokenBucket,
    key::Key,
    prelude::*,
    respond::{Headers, Http},
    store::{
        Backend, BoxStore, Memcached, MemcachedConnection, Store,
        driver::{Ask, CasStore},
    },
};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneService};

use super::{at_once, cost, rules::RULES};

type RuleStore = BoxStore<AnyRule, Infallible>;
type Settling = BoxCloneService<Request<u64>, Response<String>, Infallible>;

async fn remaining(store: &RuleStore, policy: &str, rule: &AnyRule) -> u64 {
    let policy = Policy::new(policy);
    let ask = Ask::new(&policy, rule, Key::GLOBAL, tollgate::Cost::ONE);
    let Ok(looks) = store.look(&[ask]).await;
    looks.as_slice()[0].remaining().unwrap()
}

fn handle<B>(request: &Request<B>) -> ChargeHandle {
    request.extensions().get::<ChargeHandle>().unwrap().clone()
}

/// Charges 1 unit for each request, and settles it to as many as the request says.
fn settling(store: &RuleStore, policy: &str, rule: &AnyRule) -> Settling {
    let layer = RateLimitLayer::new(rule.clone())
        .named(policy)
        .store(store.clone())
        .charge_handle();
    let inner = service_fn(|request: Request<u64>| async move {
        handle(&request).settle(*request.body()).unwrap().await;
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    ServiceBuilder::new()
        .layer(layer)
        .service(inner)
        .boxed_clone()
}

async fn settle_once(service: &Settling, actual: u64) -> StatusCode {
    let request = Request::new(actual);
    service.clone().oneshot(request).await.unwrap().status()
}

async fn check_all_rules(store: RuleStore) {
    for (index, text) in RULES.into_iter().enumerate() {
        let rule: AnyRule = text.parse().unwrap();
        let policy = format!("refunded-{index}");
        let before = remaining(&store, &policy, &rule).await;
        let service = settling(&store, &policy, &rule);
        for _ in 0..20 {
            let status = settle_once(&service, 0).await;
            assert_eq!(status, StatusCode::OK, "{text}");
        }
        assert_eq!(remaining(&store, &policy, &rule).await, before, "{text}");

        for actual in [10_000, 1 << 53, (1 << 53) + 1, u64::MAX] {
            let policy = format!("huge-{index}-{actual}");
            let service = settling(&store, &policy, &rule);
            let status = settle_once(&service, actual).await;
            assert_eq!(status, StatusCode::OK, "{text}");
            // Rates a second give new units while the test runs.
            if text.contains("/s ") {
                continue;
            }
            // The other bucket of a cascade has a level of its own.
            if text.starts_with("cascade") {
                settle_once(&service, actual).await;
            }
            assert_eq!(
                remaining(&store, &policy, &rule).await,
                0,
                "{text} {actual}"
            );
            let status = settle_once(&service, 0).await;
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{text} {actual}");
        }
    }
}

#[tokio::test]
async fn refunds_and_huge_costs_in_memory() {
    check_all_rules(Local::new().boxed()).await;
}

#[tokio::test]
async fn refunds_and_huge_costs_in_redis() {
    let server = servers::Redis::start();
    let store = Redis::<AnyRule>::connect(server.url()).await.unwrap();
    check_all_rules(store.fail_closed().boxed()).await;
}

#[tokio::test]
async fn refunds_and_huge_costs_in_memcached() {
    let server = servers::Memcached::start();
    let url = format!("memcached://{}", server.address());
    let connection = MemcachedConnection::builder(url).connect().await.unwrap();
    let store: Memcached<AnyRule> = CasStore::new(connection);
    check_all_rules(store.fail_closed().boxed()).await;
}

/// A request that waited for its turn has the fields after its settlement, as one that did not
/// wait.
#[tokio::test(start_paused = true)]
async fn a_delayed_request_is_settled_and_reports_it() {
    let rule: AnyRule = "leaky-bucket 1/1h queue=5".parse().unwrap();
    let store: Local<AnyRule> = Local::new();
    let layer = RateLimitLayer::new(rule.clone())
        .store(store.clone())
        .charge_handle();
    let service =
        ServiceBuilder::new()
            .layer(layer)
            .service(service_fn(async |request: Request<bool>| {
                if *request.body() {
                    drop(handle(&request).refund().unwrap());
                }
                Ok::<_, Infallible>(Response::new(String::new()))
            }));
    let policy = Policy::default();
    for refunds in [false, true, false, true] {
        let request = service.clone().oneshot(Request::new(refunds));
        let response = request.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let look = store.look(&policy, &rule, &Key::GLOBAL);
        let field = response.headers()["ratelimit"].to_str().unwrap();
        let expected = format!("\"default\";r={};", look.remaining().unwrap());
        assert!(field.starts_with(&expected), "{field}, expected {expected}");
    }
}

/// The outcome in the extensions of a request does not have the charge that a handle, or a
/// response, settles.
#[tokio::test]
async fn a_charge_with_a_handle_is_not_in_the_outcome() {
    let (store, rule) = (Local::<TokenBucket>::new(), at_once(100));
    let layer = RateLimitLayer::new(rule)
        .store(store.clone())
        .cost(cost(10))
        .charge_handle();
    let by_response = RateLimitLayer::new(rule)
        .named("by-response")
        .store(store.clone())
        .charge_if(|_: &Response<String>| false)
        .also(Limit::new(rule).named("plain"));
    let inner = service_fn(|request: Request<()>| {
        let outcome = request.extensions().get::<Outcome>().unwrap();
        for name in ["default", "by-response"] {
            let error = outcome.take_charge(name).unwrap_err().to_string();
            assert!(error.contains("`ChargeHandle`"), "{error}");
        }
        assert_eq!(outcome.take_charge("plain").unwrap().cost, 1);
        handle(&request).refund().unwrap();
        ready(Ok::<_, Infallible>(Response::new(String::new())))
    });
    let service = ServiceBuilder::new()
        .layer(layer)
        .layer(by_response)
        .service(inner);
    service.oneshot(Request::new(())).await.unwrap();
    let left = |policy| {
        let look = store.look(&Policy::new(policy), &rule, &Key::GLOBAL);
        look.remaining().unwrap()
    };
    assert_eq!(
        ["default", "by-response", "plain"].map(left),
        [100, 100, 99]
    );
}

/// Sends a request, and returns its handle.
async fn admitted_handle<S>(store: S) -> ChargeHandle
where
    S: Store<TokenBucket, Error = Infallible> + Clone + Send + Sync + 'static,
{
    let layer = RateLimitLayer::new(at_once(100))
        .store(store)
        .cost(cost(10))
        .charge_handle();
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let inner = service_fn(move |request: Request<()>| {
        *keep.lock().unwrap() = Some(handle(&request));
        ready(Ok::<_, Infallible>(Response::new(String::new())))
    });
    // Layer and service are gone when this returns.
    let service = ServiceBuilder::new().layer(layer).service(inner);
    service.oneshot(Request::new(())).await.unwrap();
    kept.lock().unwrap().take().unwrap()
}

#[tokio::test]
async fn a_handle_outlives_its_layer_and_is_settled_by_another_thread() {
    let store = Local::<TokenBucket>::new();
    let handle = admitted_handle(store.clone()).await;
    let usage = std::thread::spawn(move || handle.usage().unwrap())
        .join()
        .unwrap();
    let (other, again) = (usage.clone(), usage.clone());
    let task = tokio::spawn(async move { other.add(30) });
    std::thread::spawn(move || again.add(u64::MAX))
        .join()
        .unwrap();
    task.await.unwrap();
    drop(usage);
    let look = store.look(&Policy::default(), &at_once(100), &Key::GLOBAL);
    assert_eq!(look.remaining(), Some(0));
}

#[tokio::test]
async fn a_settlement_without_a_server_is_counted_in_redis() {
    let mut server = Some(servers::Redis::start());
    let url = server.as_ref().unwrap().url();
    let redis = Redis::<TokenBucket>::connect(url).await.unwrap();
    let (refunded, used) = (
        admitted_handle(redis.clone().fail_open()).await,
        admitted_handle(redis.clone().fail_open()).await,
    );
    let usage = used.usage().unwrap();
    drop(server.take());
    refunded.refund().unwrap().await;
    assert_eq!(redis.unsettled().unwrap(), 1);
    usage.add(3);
    drop(usage);
    for _ in 0..10_000 {
        if redis.unsettled().unwrap() == 2 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the settlement of a usage was not counted");
}

#[test]
fn a_settlement_after_the_runtime_is_counted_in_redis() {
    let server = servers::Redis::start();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let (redis, handle, usage) = first.block_on(async {
        let redis = Redis::<TokenBucket>::connect(server.url()).await.unwrap();
        let handle = admitted_handle(redis.clone().fail_open()).await;
        let other = admitted_handle(redis.clone().fail_open()).await;
        (redis, handle, other.usage().unwrap())
    });
    drop(first);
    // Neither panics, nor is lost uncounted.
    drop(handle.refund().unwrap());
    drop(usage);
    assert_eq!(redis.unsettled().unwrap(), 2);
}

/// Retries a refused or failed request once.
#[derive(Clone)]
struct Once(u32);

impl tower::retry::Policy<Request<()>, Response<String>, Infallible> for Once {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<()>,
        result: &mut Result<Response<String>, Infallible>,
    ) -> Option<Ready<()>> {
        let failed = result
            .as_ref()
            .is_ok_and(|response| !response.status().is_success());
        (failed && self.0 > 0).then(|| {
            self.0 -= 1;
            ready(())
        })
    }

    fn clone_request(&mut self, request: &Request<()>) -> Option<Request<()>> {
        Some(request.clone())
    }
}

fn failing(
    settled: mpsc::Sender<bool>,
) -> impl Service<
    Request<()>,
    Response = Response<String>,
    Error = Infallible,
    Future = Ready<Result<Response<String>, Infallible>>,
> + Clone {
    service_fn(move |request: Request<()>| {
        settled.send(handle(&request).settle(3).is_ok()).unwrap();
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        ready(Ok(response))
    })
}

#[tokio::test]
async fn retries_settle_each_charge_once() {
    let layer = |store: &Local<TokenBucket>| {
        RateLimitLayer::new(at_once(100))
            .store(store.clone())
            .cost(cost(10))
            .charge_handle()
    };
    let left = |store: &Local<TokenBucket>| {
        store
            .look(&Policy::default(), &at_once(100), &Key::GLOBAL)
            .remaining()
            .unwrap()
    };
    let retry = tower::retry::RetryLayer::new(Once(1));

    // Inside of the layer: one charge, and clones of its handle.
    let (sender, settled) = mpsc::channel();
    let store = Local::new();
    let service = ServiceBuilder::new()
        .layer(layer(&store))
        .layer(retry.clone())
        .service(failing(sender));
    service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(settled.iter().collect::<Vec<_>>(), [true, false]);
    assert_eq!(left(&store), 97);

    // Around the layer: a charge for each attempt.
    let (sender, settled) = mpsc::channel();
    let store = Local::new();
    let service = ServiceBuilder::new()
        .layer(retry)
        .layer(layer(&store))
        .service(failing(sender));
    service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(settled.iter().collect::<Vec<_>>(), [true, true]);
    assert_eq!(left(&store), 94);
}

/// Every format of the fields has what a look has after the settlement, also below a layer that
/// settles nothing.
#[tokio::test]
async fn every_format_has_the_numbers_after_the_settlement() {
    for (headers, field, expected) in [
        (Headers::Draft, "ratelimit", "\"settled\";r=45;"),
        (Headers::Draft07, "ratelimit", "remaining=45,"),
        (Headers::Draft06, "ratelimit-remaining", "45"),
        (Headers::Legacy, "x-ratelimit-remaining", "45"),
        (Headers::LegacyDelta, "x-ratelimit-remaining", "45"),
    ] {
        let store = Local::<TokenBucket>::new();
        let respond = || Http::new().headers(headers);
        let layer = |name| {
            RateLimitLayer::new(at_once(100))
                .named(name)
                .store(store.clone())
                .respond(respond())
        };
        let settled = Limit::new(at_once(200)).named("settled").cost(cost(150));
        let inner = layer("plain").also(settled.charge_handle());
        let service = ServiceBuilder::new()
            .layer(layer("outer"))
            .layer(inner)
            .service(service_fn(async |request: Request<()>| {
                // More than was charged.
                drop(handle(&request).settle(155).unwrap());
                Ok::<_, Infallible>(Response::new(String::new()))
            }));
        let response = service.oneshot(Request::new(())).await.unwrap();
        let text = response.headers()[field].to_str().unwrap();
        assert!(text.contains(expected), "{headers}: {text}");
    }
}
