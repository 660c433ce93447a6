//! The responses of a limit of calls in flight.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use http::{HeaderMap, Request, Response, StatusCode};
use tollgate::{
    AnyRule, InFlight, Limit, Limiter, Outcome, Permit, Policy, RateLimitLayer, TokenBucket,
    key::{Header, Key},
    respond::{AsError, Grpc, Headers, Http, Refused, SettleByBody},
    store::Local,
};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use super::{held, key};

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

fn hello()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |_: Request<Body>| Ok(Response::new(Body::from("hello"))))
}

async fn ask<S>(service: &S, request: Request<Body>) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
{
    service.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn fields_have_the_unit_and_no_window() {
    let fields = |headers| Http::new().headers(headers);
    for (headers, names, admitted, refused) in [
        (
            Headers::Draft,
            ["ratelimit", "ratelimit-policy"],
            [
                r#""default";r=0"#,
                r#""default";q=1;qu="concurrent-requests""#,
            ],
            [
                r#""default";r=0"#,
                r#""default";q=1;qu="concurrent-requests""#,
            ],
        ),
        (
            Headers::Draft07,
            ["ratelimit", "ratelimit-policy"],
            ["limit=1, remaining=0, reset=3", "1"],
            ["limit=1, remaining=0, reset=3", "1"],
        ),
        (
            Headers::LegacyDelta,
            ["x-ratelimit-limit", "x-ratelimit-reset"],
            ["1", "3"],
            ["1", "3"],
        ),
    ] {
        let rule = InFlight::at_most(1).retry_after(Duration::from_secs(3));
        let layer = RateLimitLayer::new(rule).respond(fields(headers));
        let service = ServiceBuilder::new().layer(layer).service(hello());
        let first = ask(&service, Request::default()).await;
        let second = ask(&service, Request::default()).await;
        for (response, values) in [(&first, admitted), (&second, refused)] {
            assert_eq!(names.map(|name| field(response.headers(), name)), values);
        }
        assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(second.headers(), "retry-after"), "3");
        drop(first);
        assert_eq!(
            ask(&service, Request::default()).await.status(),
            StatusCode::OK
        );
    }
}

#[tokio::test]
async fn a_refusal_waits_a_second_or_two() {
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(InFlight::at_most(1)))
        .service(hello());
    let _first = ask(&service, Request::default()).await;
    for _ in 0..50 {
        let refused = ask(&service, Request::default()).await;
        let seconds = field(refused.headers(), "retry-after").to_owned();
        assert!(seconds == "1" || seconds == "2", "{seconds}");
    }
}

#[tokio::test]
async fn grpc_is_exhausted() {
    let rule = InFlight::at_most(1).retry_after(Duration::from_secs(3));
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(rule).respond(Grpc::new()))
        .service(hello());
    let first = ask(&service, Request::default()).await;
    let refused = ask(&service, Request::default()).await;
    assert_eq!(field(refused.headers(), "grpc-status"), "8");
    assert_eq!(field(refused.headers(), "grpc-retry-pushback-ms"), "3000");
    drop(first);
}

/// Counts what a handler's key holds in three places.
#[tokio::test]
async fn a_handler_sees_its_permit() {
    let store = Local::new();
    let layer = RateLimitLayer::new(InFlight::at_most(3))
        .key(Header::new("x-api-key"))
        .store(store.clone());
    let handler = async |permit: Option<Permit>| match permit {
        Some(permit) => permit.units("default").to_string(),
        None => "none".to_owned(),
    };
    let app: Router = Router::new()
        .route("/limited", get(handler).layer(layer))
        .route("/free", get(handler));
    let ask = async |path: &str| {
        let request = Request::get(path).header("x-api-key", "alice");
        let response = app
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        let held = held(&store, key("alice"));
        let body = axum::body::to_bytes(response.into_body(), 100)
            .await
            .unwrap();
        (held, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(ask("/limited").await, (1, "1".to_owned()));
    assert_eq!(ask("/free").await, (0, "none".to_owned()));
    assert_eq!(held(&store, key("alice")), 0);
}

#[tokio::test]
async fn other_bodies_are_held_by_a_layer_below() {
    let respond = || {
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello".to_owned())))
    };
    let layer = |store: &Local<InFlight>| {
        RateLimitLayer::new(InFlight::at_most(1))
            .store(store.clone())
            .respond(Http::new())
    };
    let store = Local::new();
    let without = ServiceBuilder::new()
        .layer(layer(&store))
        .service(respond());
    let response = without.oneshot(Request::new(())).await.unwrap();
    assert_eq!(
        (response.status(), held(&store, tollgate::key::Key::GLOBAL)),
        (StatusCode::OK, 0)
    );

    for by in [SettleByBody::permits(), SettleByBody::bytes()] {
        let service = ServiceBuilder::new()
            .layer(layer(&store))
            .layer(by)
            .service(respond());
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(held(&store, tollgate::key::Key::GLOBAL), 1);
        let refused = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        drop((response, refused));
        assert_eq!(held(&store, tollgate::key::Key::GLOBAL), 0);
    }
}

/// Without HTTP, a call gives back what it holds with its response.
#[tokio::test]
async fn services_without_http_hold_until_the_response() {
    #[derive(Debug)]
    enum Failure {
        Refused(Refused),
    }
    impl From<Refused> for Failure {
        fn from(refused: Refused) -> Self {
            Self::Refused(refused)
        }
    }
    let store = Local::new();
    let layer = RateLimitLayer::new(InFlight::at_most(1))
        .store(store.clone())
        .respond(AsError);
    let service = ServiceBuilder::new().layer(layer).service(service_fn(
        async |gate: tokio::sync::oneshot::Receiver<()>| {
            gate.await.unwrap();
            Ok::<_, Failure>(())
        },
    ));
    let (open, gate) = tokio::sync::oneshot::channel();
    let first = tokio::spawn(service.clone().oneshot(gate));
    tokio::task::yield_now().await;
    let (_, other) = tokio::sync::oneshot::channel();
    let Err(Failure::Refused(refused)) = service.clone().oneshot(other).await else {
        panic!("two calls in flight");
    };
    assert!(refused.is_limit());
    open.send(()).unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(held(&store, tollgate::key::Key::GLOBAL), 0);
}

/// Beside a rate, a call is charged by both or by none.
#[tokio::test]
async fn a_layer_charges_all_limits_or_none() {
    let rule = |text: &str| text.parse::<AnyRule>().unwrap();
    let store = Local::<AnyRule>::new();
    for flips in [false, true] {
        store.clear();
        let [a, b] = match flips {
            false => ["in-flight 2", "token-bucket 3/1h"],
            true => ["token-bucket 3/1h", "in-flight 2"],
        };
        let layer = RateLimitLayer::new(rule(a))
            .named("a")
            .store(store.clone())
            .also(Limit::new(rule(b)).named("b"));
        let service = ServiceBuilder::new().layer(layer.clone()).service(hello());
        let left = |name| {
            let look = layer
                .limiter(name)
                .unwrap()
                .look(tollgate::key::Key::GLOBAL);
            look.at_once().remaining().unwrap()
        };
        let (flight, bucket) = if flips { ("b", "a") } else { ("a", "b") };
        let first = ask(&service, Request::default()).await;
        let second = ask(&service, Request::default()).await;
        assert_eq!((left(flight), left(bucket)), (0, 1));
        let refused = ask(&service, Request::default()).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!((left(flight), left(bucket)), (0, 1));
        drop((first, second));
        assert_eq!((left(flight), left(bucket)), (2, 1));
        let third = ask(&service, Request::default()).await;
        // The bucket is empty, so nothing is held either.
        assert_eq!(
            ask(&service, Request::default()).await.status(),
            StatusCode::TOO_MANY_REQUESTS
        );
        assert_eq!((left(flight), left(bucket)), (1, 0));
        drop(third);
        assert_eq!((left(flight), left(bucket)), (2, 0));
    }
}

#[test]
fn a_pair_with_a_rate_is_refused() {
    let pair = (InFlight::at_most(2), TokenBucket::per_second(9));
    let error = Limit::try_new(pair).unwrap_err().to_string();
    assert!(error.contains("`.also(…)`"), "{error}");
    assert!(Limit::try_new((InFlight::at_most(2), InFlight::at_most(9))).is_err());
    let limiter = Limiter::try_new(Policy::default(), pair, Local::new());
    assert!(limiter.unwrap_err().to_string().contains("`.also(…)`"));
}

/// Each of two layers around one service keeps its part, with an outcome and without.
#[tokio::test]
async fn a_clone_of_a_request_finds_the_permits_of_two_layers() {
    for [is_shown_outside, is_shown_inside] in
        [[true, true], [true, false], [false, true], [false, false]]
    {
        let (outer, inner) = (Local::new(), Local::new());
        let layer = |name: &str, store: &Local<InFlight>, is_shown| {
            let layer = RateLimitLayer::new(InFlight::at_most(3)).named(name);
            let layer = layer.store(store.clone());
            layer.respond(Http::new().outcome(is_shown))
        };
        let handler = service_fn(|mut request: Request<Body>| {
            let mut clone = request.extensions().clone();
            if let Some(outcome) = request.extensions_mut().remove() {
                let mut appended = Outcome::new();
                appended.append(outcome);
                // An outcome that others append to holds what both hold.
                request.extensions_mut().insert(appended);
            }
            let permit = Permit::take(request.extensions_mut()).unwrap();
            assert_eq!((permit.units("a"), permit.units("b")), (1, 1));
            drop((request, permit));
            let found = Permit::take(&mut clone).unwrap();
            assert_eq!((found.units("a"), found.units("b")), (1, 1));
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(found);
            async { Ok::<_, Infallible>(response) }
        });
        let service = ServiceBuilder::new()
            .layer(layer("a", &outer, is_shown_outside))
            .layer(layer("b", &inner, is_shown_inside))
            .service(handler);
        let response = service.oneshot(Request::default()).await.unwrap();
        let held = |name: &str, store: &Local<InFlight>| {
            let rule = InFlight::at_most(9);
            let look = store.look(&Policy::new(name), &rule, &Key::GLOBAL);
            9 - look.remaining().unwrap()
        };
        assert_eq!((held("a", &outer), held("b", &inner)), (1, 1));
        drop(response);
        assert_eq!((held("a", &outer), held("b", &inner)), (0, 0));
    }
}

/// A clone of a request may be kept for longer than the call lasts, as by a log.
#[tokio::test]
async fn clones_of_a_request_hold_nothing() {
    for is_shown in [true, false] {
        let store = Local::new();
        let respond = Http::new().outcome(is_shown);
        let rate = RateLimitLayer::new(TokenBucket::per_hour(1)).named("rate");
        let layer = RateLimitLayer::new(InFlight::at_most(3)).store(store.clone());
        let clones = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&clones);
        let handler = service_fn(move |request: Request<Body>| {
            let mut clone = request.extensions().clone();
            let of_clone = clone.clone();
            // The call is in flight, so a clone of its request finds the permit.
            let found = Permit::take(&mut clone).unwrap();
            assert_eq!(found.units("default"), 1);
            drop(found);
            let clones = [request.extensions().clone(), clone, of_clone];
            kept.lock().unwrap().extend(clones);
            async { Ok::<_, Infallible>(Response::new(Body::from("hello"))) }
        });
        let service = ServiceBuilder::new()
            .layer(layer.respond(respond.clone()))
            .layer(rate.respond(respond))
            .service(handler);
        let held = || held(&store, Key::GLOBAL);
        let response = service.clone().oneshot(Request::default()).await.unwrap();
        assert_eq!((response.status(), held()), (StatusCode::OK, 1));
        drop(response);
        assert_eq!(held(), 0);

        // A refusal by an inner layer carries the outcome, and holds nothing.
        let refused = service.oneshot(Request::default()).await.unwrap();
        let (refused, body) = refused.into_parts();
        assert_eq!((refused.status, held()), (StatusCode::TOO_MANY_REQUESTS, 1));
        drop(body);
        assert_eq!(held(), 0);
        let outcome = refused.extensions.get::<Outcome>();
        assert_eq!(outcome.unwrap().len(), if is_shown { 2 } else { 1 });

        // The call has ended.
        for mut extensions in clones.lock().unwrap().drain(..) {
            assert!(Permit::take(&mut extensions).is_none());
        }
    }
}
