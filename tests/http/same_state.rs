//! Limits that charge one state by mistake: a layer that is applied twice, limits without names on one store.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::{
    AnyRule, Limit, RateLimitLayer, TokenBucket,
    key::Header,
    respond::{Headers, Http},
    store::{BoxStore, Local, StoreExt},
};
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneService};

type Inner = BoxCloneService<Request<()>, Response<String>, Infallible>;

fn handler() -> Inner {
    service_fn(async |_| Ok(Response::new(String::new()))).boxed_clone()
}

/// Sends requests of one client and returns how many were admitted.
async fn admitted(
    service: impl Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone,
    calls: usize,
) -> usize {
    let mut admitted = 0;
    for _ in 0..calls {
        let request = Request::builder().header("x-user", "ann").body(()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        admitted += usize::from(response.status().is_success());
    }
    admitted
}

fn per_hour(limit: u64) -> AnyRule {
    TokenBucket::per_hour(limit).into()
}

type Shared = BoxStore<AnyRule, Infallible>;

/// Stores that answer at once and later, behind wrappers that pass their identity on.
fn stores() -> Vec<(&'static str, Shared)> {
    let mut stores = vec![
        ("memory", Local::new().boxed()),
        ("blocks", Local::new().with_blocks().boxed()),
    ];
    #[cfg(feature = "test-util")]
    stores.extend([
        ("remote", remote().fail_open().boxed()),
        (
            "remembered",
            remote().remember_refusals().fail_closed().boxed(),
        ),
        (
            "fallback",
            remote()
                .circuit_breaker(tollgate::store::CircuitBreakerConfig::new())
                .fall_back_to(Local::new())
                .rule(|_| None)
                .boxed(),
        ),
    ]);
    stores
}

/// A store that answers as a server does, later.
#[cfg(feature = "test-util")]
fn remote() -> tollgate::testing::Faulty<Local<AnyRule>> {
    let store = tollgate::testing::Faulty::new(Local::new());
    store.faults().always(tollgate::testing::Fault::Late(1));
    store
}

#[tokio::test]
async fn a_layer_that_is_applied_twice_is_noticed() {
    for (name, store) in stores() {
        for headers in [Headers::Draft, Headers::None] {
            let layer = RateLimitLayer::new(per_hour(10))
                .key(Header::new("x-user"))
                .store(store.clone())
                .respond(Http::new().headers(headers));
            let layer = layer.named(&format!("{name}-{headers}"));
            let twice = layer.layer(layer.layer(handler()));
            assert_eq!(
                admitted(twice, 20).await,
                5,
                "{name}: each request costs two"
            );
            assert_eq!(layer.misconfigured(), 5, "{name}, {headers}");
        }
    }
}

#[tokio::test]
async fn two_layers_with_the_same_limit_on_one_store_are_noticed_by_the_inner_one() {
    let store = Local::new();
    let layer = || {
        RateLimitLayer::new(per_hour(10))
            .named("api")
            .key(Header::new("x-user"))
            .store(store.clone())
    };
    let (outer, inner) = (layer(), layer());
    assert_eq!(admitted(outer.layer(inner.layer(handler())), 20).await, 5);
    assert_eq!((outer.misconfigured(), inner.misconfigured()), (0, 5));

    // One of several limits.
    let (outer, inner) = (
        layer().named("one"),
        layer().named("two").also(
            Limit::new(per_hour(10))
                .named("one")
                .key(Header::new("x-user")),
        ),
    );
    assert_eq!(admitted(outer.layer(inner.layer(handler())), 4).await, 4);
    assert_eq!((outer.misconfigured(), inner.misconfigured()), (0, 4));
}

#[tokio::test]
async fn layers_that_charge_states_of_their_own_are_no_mistake() {
    let store = Local::new();
    let api = || {
        RateLimitLayer::new(per_hour(10))
            .named("api")
            .key(Header::new("x-user"))
    };
    let outer = api().store(store.clone());
    for inner in [
        // Another store, another name, another key, and no outcome to see it by.
        api().store(Local::new()),
        api().named("login").store(store.clone()),
    ] {
        assert!(admitted(outer.layer(inner.layer(handler())), 3).await > 0);
        assert_eq!(inner.misconfigured(), 0);
    }
    let by_host = api()
        .key(|_: &Request<()>| "everybody".to_owned())
        .store(store.clone());
    assert!(admitted(outer.layer(by_host.layer(handler())), 1).await > 0);
    assert_eq!(by_host.misconfigured(), 0);
    // A request that is sent again has no outcome: a retry is charged, and is no mistake.
    let again = api().named("again").store(store);
    assert_eq!(admitted(again.layer(handler()), 3).await, 3);
    assert_eq!(again.misconfigured(), 0);
}

#[tokio::test]
async fn limits_without_names_on_one_store_are_counted_with_their_own_count() {
    for (name, store) in stores() {
        let layer = |limit| RateLimitLayer::new(per_hour(limit)).store(store.clone());
        let (login, api) = (layer(3), layer(100));
        assert_eq!(admitted(login.layer(handler()), 3).await, 3);
        assert_eq!(
            (login.collisions(), api.collisions()),
            (0, 0),
            "{name}: one has not decided yet"
        );
        assert_eq!(
            admitted(api.layer(handler()), 5).await,
            0,
            "{name}: spent by the log-ins"
        );
        assert_eq!((login.collisions(), api.collisions()), (1, 1), "{name}");
        assert_eq!(
            (login.misconfigured(), api.misconfigured()),
            (0, 0),
            "{name}"
        );
        // A third one meets one of the others, and one with a rule of theirs none that differs but that.
        let third = layer(7);
        admitted(third.layer(handler()), 2).await;
        assert_eq!(third.collisions(), 1, "{name}");
    }
}

#[tokio::test]
async fn limits_that_may_share_a_store_are_not_counted() {
    let store = Local::new();
    let layer = |limit| RateLimitLayer::new(per_hour(limit)).store(store.clone());
    // Equal rules, a name, a store of its own, a rule for each request, and a reload whose former layer is gone.
    let all = [
        layer(3),
        layer(3),
        layer(4).named("api"),
        RateLimitLayer::new(per_hour(5)),
    ];
    for layer in &all {
        admitted(layer.layer(handler()), 1).await;
        assert_eq!(layer.collisions(), 0);
    }
    let plans = layer(8).rule(|_: &Request<()>| Some(per_hour(9)));
    admitted(plans.layer(handler()), 1).await;
    drop(all);
    let reloaded = layer(6);
    admitted(reloaded.layer(handler()), 1).await;
    assert_eq!((plans.collisions(), reloaded.collisions()), (0, 0));
}

/// Responders around others pass on what they know.
#[cfg(feature = "axum")]
#[tokio::test]
async fn a_router_and_its_route_with_one_layer_are_noticed() {
    use axum::{Router, body::Body, routing::get};
    use tollgate::respond::{DrainBodies, Grpc};

    macro_rules! check {
        ($respond:expr) => {{
            let layer = RateLimitLayer::new(per_hour(10))
                .store(Local::new())
                .respond($respond);
            let app: Router = Router::new()
                .route("/", get(async || "hello").layer(layer.clone()))
                .layer(layer.clone());
            for _ in 0..3 {
                let request = Request::get("/").body(Body::empty()).unwrap();
                assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 200);
            }
            assert_eq!(layer.misconfigured(), 3, stringify!($respond));
        }};
    }
    check!(Http::new());
    check!(Http::empty());
    check!(Http::new().drain_bodies());
    check!(DrainBodies::new(Grpc::new()));
}
