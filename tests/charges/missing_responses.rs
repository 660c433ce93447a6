//! Requests whose clients go away before the response, under "look, then charge": each of them is
//! charged, by every rule in every store.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, select};
use http::{Request, Response, StatusCode};
use support::servers;
use tokio::sync::Notify;
use tollgate::{
    AnyRule, Policy, RateLimitLayer,
    algorithm::Algorithm,
    prelude::*,
    store::{
        BoxStore, LocalBuilder, Memcached, MemcachedConnection, MemcachedCounters, driver::CasStore,
    },
    time::ManualClock,
};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use super::rules::RULES;

/// More requests than any of the rules admits within a test.
const REQUESTS: usize = 300;

/// Sends a request, and drops it once its handler runs. Returns the status if it is answered
/// without the handler.
async fn send_and_leave<S>(service: &S, called: &Notify) -> Option<StatusCode>
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone,
{
    let response = pin!(service.clone().oneshot(Request::new(())));
    match select(response, pin!(called.notified())).await {
        Either::Left((response, _)) => Some(response.unwrap().status()),
        Either::Right(_) => None,
    }
}

/// Sends requests that are dropped before their responses, until the limit refuses. `meanwhile`
/// runs while the handler of each request does.
async fn leave_until_refused<Rule>(
    rule: Rule,
    store: BoxStore<Rule, Infallible>,
    policy: &str,
    meanwhile: impl Fn() + Clone + Send + Sync + 'static,
) -> usize
where
    Rule: Algorithm + std::fmt::Debug + Send + Sync + 'static,
{
    let called = Arc::new(Notify::new());
    let calls = Arc::clone(&called);
    let layer = RateLimitLayer::new(rule.clone())
        .named(policy)
        .store(store)
        .charge_after(|_: &Response<String>| false);
    let service = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(move |_: Request<()>| {
            meanwhile();
            calls.notify_one();
            std::future::pending()
        }));
    for left in 0..REQUESTS {
        if let Some(status) = send_and_leave(&service, &called).await {
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{rule:?}");
            return left;
        }
        // Lets charges be made in the background.
        tokio::task::yield_now().await;
    }
    panic!("{rule:?} admitted {REQUESTS} requests that were dropped before their responses");
}

async fn check_all_rules(store: &BoxStore<AnyRule, Infallible>) {
    for (index, text) in RULES.into_iter().enumerate() {
        let rule: AnyRule = text.parse().unwrap();
        leave_until_refused(rule, store.clone(), &format!("rule-{index}"), || ()).await;
    }
}

#[tokio::test]
async fn a_client_that_always_hangs_up_is_refused_in_memory() {
    check_all_rules(&Local::new().boxed()).await;
}

#[tokio::test]
async fn a_client_that_always_hangs_up_is_refused_in_redis() {
    let server = servers::Redis::start();
    let store = Redis::<AnyRule>::connect(server.url()).await.unwrap();
    check_all_rules(&store.fail_closed().boxed()).await;
}

#[tokio::test]
async fn a_client_that_always_hangs_up_is_refused_in_memcached() {
    let server = servers::Memcached::start();
    let url = format!("memcached://{}", server.address());
    let connection = MemcachedConnection::builder(url).connect().await.unwrap();
    let store: Memcached<AnyRule> = CasStore::new(connection);
    check_all_rules(&store.fail_closed().boxed()).await;
}

#[tokio::test]
async fn a_client_that_always_hangs_up_is_refused_by_counters_in_memcached() {
    let server = servers::Memcached::start();
    let url = format!("memcached://{}", server.address());
    let store = MemcachedCounters::<AnyRule>::connect(url).await.unwrap();
    let store = store.fail_closed().boxed();
    for text in ["fixed-window 4/1d", "sliding-window 6/1d slices=4"] {
        let rule: AnyRule = text.parse().unwrap();
        leave_until_refused(rule, store.clone(), &text[..5], || ()).await;
    }
}

/// Each request lasts longer than the window in which it was looked at, so it counts in the one in
/// which it ends.
#[tokio::test]
async fn requests_that_outlast_their_window_are_charged_when_they_end() {
    for text in [
        "fixed-window 4/1s",
        "fixed-window 4/1s from=first-call",
        "sliding-log 4/1s",
        "sliding-window 4/1s slices=4",
    ] {
        let rule: AnyRule = text.parse().unwrap();
        let clock = ManualClock::default();
        let store = LocalBuilder::new().clock(clock.clone()).build();
        let policy = Policy::default();
        let looks: Local<AnyRule, ManualClock> = store;
        let left = {
            let looks = looks.clone();
            let rule = rule.clone();
            move || {
                looks
                    .look(&policy, &rule, &tollgate::key::Key::GLOBAL)
                    .remaining()
            }
        };
        let called = Arc::new(Notify::new());
        let calls = Arc::clone(&called);
        let layer = RateLimitLayer::new(rule)
            .store(looks)
            .charge_after(|_: &Response<String>| false);
        let service =
            ServiceBuilder::new()
                .layer(layer)
                .service(service_fn(move |_: Request<()>| {
                    clock.advance(Duration::from_millis(1_500));
                    calls.notify_one();
                    std::future::pending()
                }));
        for _ in 0..3 {
            assert_eq!(send_and_leave(&service, &called).await, None);
            assert_eq!(left(), Some(3), "{text}");
        }
    }
}
