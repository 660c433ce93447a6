//! Handles of charges: their errors, several of them, and the numbers that clients see afterwards.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use http_body_util::BodyExt;
use tollgate::{
    CarryHandle, ChargeHandle, Limit, Policy, RateLimitLayer, TokenBucket,
    key::Key,
    respond::{AsError, MeteredBody, Refused, SettleByBody},
    store::Local,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{at_once, cost};

/// A handler without a response of interest.
async fn respond<T>(_: T) -> Result<Response<String>, Infallible> {
    Ok(Response::new(String::new()))
}

fn handle(request: &Request<()>) -> ChargeHandle {
    request.extensions().get::<ChargeHandle>().unwrap().clone()
}

fn left(store: &Local<TokenBucket>, policy: &str, rule: &TokenBucket) -> u64 {
    let look = store.look(&Policy::new(policy), rule, &Key::GLOBAL);
    look.remaining().unwrap()
}

#[tokio::test]
async fn clones_settle_once() {
    let (rule, store) = (at_once(100), Local::new());
    let layer = RateLimitLayer::new(rule)
        .store(store.clone())
        .cost(cost(10))
        .charge_handle();
    let inner = service_fn(async |request: Request<()>| {
        let charge = handle(&request);
        assert_eq!((charge.charged(), charge.policy().name()), (10, "default"));
        assert!(charge.settle(4).unwrap().is_done());
        for again in [&charge.clone(), &handle(&request)] {
            let error = again.refund().unwrap_err().to_string();
            assert!(error.contains("settled already"), "{error}");
        }
        assert!(charge.usage().is_err());
        respond(()).await
    });
    let service = ServiceBuilder::new().layer(layer).service(inner);
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(left(&store, "default", &rule), 96);
    // The fields have the number after the settlement.
    assert_eq!(
        response.headers()["ratelimit"],
        "\"default\";r=96;t=8294400"
    );
}

#[tokio::test]
async fn several_limits_and_layers_are_settled_by_name() {
    let store = Local::new();
    let rule = at_once(100);
    let limit = |name| Limit::new(at_once(100)).named(name).cost(cost(10));
    let outer = RateLimitLayer::new(rule)
        .named("outer")
        .store(store.clone())
        .cost(cost(10))
        .charge_handle();
    let inner = RateLimitLayer::new(rule)
        .named("plain")
        .store(store.clone())
        .cost(cost(10))
        .also(limit("one").charge_handle())
        .also(limit("two").charge_handle());
    let handler = service_fn(async |request: Request<()>| {
        let charge = handle(&request);
        let error = charge.settle(1).unwrap_err().to_string();
        assert!(error.contains("`outer`, `one`, `two`"), "{error}");
        for (name, units) in [("one", 1), ("two", 2), ("outer", 3)] {
            drop(charge.of(name).unwrap().settle(units).unwrap());
        }
        assert!(charge.of("two").unwrap().refund().is_err());
        let error = charge.of("plain").unwrap_err().to_string();
        assert!(error.contains("charge_handle"), "{error}");
        respond(()).await
    });
    let service = ServiceBuilder::new()
        .layer(outer)
        .layer(inner)
        .service(handler);
    service.oneshot(Request::new(())).await.unwrap();
    let left = ["outer", "plain", "one", "two"].map(|name| left(&store, name, &rule));
    assert_eq!(left, [97, 90, 99, 98]);
}

#[tokio::test]
async fn stacked_layers_of_one_name_are_settled_one_after_the_other() {
    let (rule, store) = (at_once(100), Local::new());
    let layer = || {
        RateLimitLayer::new(rule)
            .store(store.clone())
            .cost(cost(10))
            .charge_handle()
    };
    let handler = service_fn(async |request: Request<()>| {
        let charge = handle(&request);
        for _ in 0..2 {
            drop(charge.of("default").unwrap().settle(1).unwrap());
        }
        let error = charge.of("default").unwrap().refund().unwrap_err();
        assert!(error.to_string().contains("settled already"), "{error}");
        respond(()).await
    });
    let service = ServiceBuilder::new()
        .layer(layer())
        .layer(layer())
        .service(handler);
    service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(left(&store, "default", &rule), 98);
}

#[tokio::test]
async fn a_selected_rule_is_settled_under_itself() {
    let (own, selected, store) = (at_once(100), at_once(500), Local::new());
    let plan = selected;
    let layer = RateLimitLayer::new(own)
        .store(store.clone())
        .rule(move |_: &Request<()>| Some(plan))
        .cost(cost(10))
        .charge_handle();
    let inner = service_fn(async |request: Request<()>| {
        drop(handle(&request).refund().unwrap());
        respond(()).await
    });
    let service = ServiceBuilder::new().layer(layer).service(inner);
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(left(&store, "default", &selected), 500);
    let field = response.headers()["ratelimit"].to_str().unwrap();
    assert!(field.starts_with("\"default\";r=500"), "{field}");
}

#[tokio::test]
async fn exempt_and_refused_requests_have_no_handle() {
    let layer = RateLimitLayer::new(at_once(1))
        .key(|request: &Request<()>| {
            let path = request.uri().path().to_owned();
            Some(Key::from(path))
        })
        .charge_handle();
    let called = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let calls = Arc::clone(&called);
    let inner = service_fn(move |_: Request<()>| {
        calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        respond(())
    });
    let service = ServiceBuilder::new().layer(layer).service(inner);
    for _ in 0..3 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert!(response.extensions().get::<ChargeHandle>().is_none());
    }
    assert_eq!(called.load(std::sync::atomic::Ordering::Relaxed), 1);
}

/// A request without HTTP.
struct Job(Option<ChargeHandle>);

impl CarryHandle for Job {
    fn carry(&mut self, handle: ChargeHandle) {
        self.0 = Some(handle);
    }
}

#[tokio::test]
async fn requests_of_other_types_carry_handles() {
    let (rule, store) = (at_once(100), Local::new());
    let layer = RateLimitLayer::new(rule)
        .store(store.clone())
        .respond(AsError)
        .cost(cost(10))
        .charge_handle();
    let inner = service_fn(async |job: Job| {
        drop(job.0.unwrap().settle(7).unwrap());
        Ok::<_, Refused>(())
    });
    let service = ServiceBuilder::new().layer(layer).service(inner);
    service.oneshot(Job(None)).await.unwrap();
    assert_eq!(left(&store, "default", &rule), 93);
}

/// Whatever corrects the charge of a limit corrects that of its candidates, once: the handler
/// before the condition, and the condition before the body.
#[tokio::test]
async fn candidates_are_settled_with_their_limit() {
    #[derive(Clone, Copy, Debug)]
    enum By {
        Nobody,
        Handler,
        Usage,
    }
    // For responses that fulfil the condition: without and with a body that settles; and others.
    let cases = [
        (By::Nobody, [10, 5, 0]),
        (By::Handler, [3, 3, 3]),
        (By::Usage, [4, 4, 4]),
    ];
    for (by, [charged, by_body, refunded]) in cases {
        for (body, is_charged, expected) in [
            (SettleByBody::permits(), true, charged),
            (SettleByBody::bytes(), true, by_body),
            (SettleByBody::permits(), false, refunded),
            (SettleByBody::bytes(), false, refunded),
        ] {
            let (rule, store) = (at_once(100), Local::new());
            let layer = RateLimitLayer::new(rule)
                .named("live")
                .store(store.clone())
                .cost(cost(10))
                .charge_handle()
                .charge_if(move |_: &Response<MeteredBody<String>>| is_charged)
                .candidate("next", at_once(500));
            let inner = service_fn(move |request: Request<()>| {
                let charge = handle(&request);
                match by {
                    By::Nobody => {}
                    By::Handler => drop(charge.settle(3).unwrap()),
                    By::Usage => charge.usage().unwrap().add(4),
                }
                async { Ok::<_, Infallible>(Response::new("hello".to_owned())) }
            });
            let case = format!("{by:?}, {body:?}, {is_charged}");
            let service = ServiceBuilder::new().layer(layer).layer(body);
            let response = service.service(inner).oneshot(Request::new(()));
            let body = response.await.unwrap().into_body();
            assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
            let live = 100 - left(&store, "live", &rule);
            let next = 500 - left(&store, "next", &at_once(500));
            assert_eq!((live, next), (expected, expected), "{case}");
        }
    }
}
