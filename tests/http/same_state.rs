//! Limits that charge one state by mistake: a layer that is applied twice, limits without names on
//! one store.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::{
    AnyRule, Cost, Limit, Outcome, RateLimitLayer, TokenBucket,
    algorithm::Algorithm,
    key::{Header, KeyExtractorExt},
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
    #[allow(unused_mut, reason = "features add stores")]
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

/// The outer layer leaves too little for the inner one, which therefore admits nobody. Nothing but
/// the count shows why.
#[tokio::test]
async fn a_layer_that_is_applied_twice_is_noticed_if_it_refuses_the_first_request() {
    for (name, store) in stores() {
        for (limit, cost, admitted_first) in [(1, 1, 0), (10, 6, 0), (3, 1, 1)] {
            let layer = RateLimitLayer::new(per_hour(limit))
                .named(&format!("{name}-{limit}"))
                .cost(Cost::new(cost).unwrap())
                .store(store.clone());
            let twice = layer.layer(layer.layer(handler()));
            assert_eq!(
                admitted(twice, 9).await,
                admitted_first,
                "{name}, {limit}/h"
            );
            // Then the outer layer refuses.
            let reached_inner = admitted_first as u64 + 1;
            assert_eq!(layer.misconfigured(), reached_inner, "{name}, {limit}/h");
        }
    }
}

/// A dry run that is decided twice reports twice as much, whether clients see it or not.
#[tokio::test]
async fn a_dry_run_that_is_applied_twice_is_noticed() {
    let dry = |name: &str, limit| Limit::new(per_hour(limit)).named(name).dry_run();
    for (name, store) in stores() {
        let layer = || {
            RateLimitLayer::new(per_hour(10))
                .named(name)
                .store(store.clone())
        };
        let hidden = layer().dry_run();
        let twice = hidden.layer(hidden.layer(handler()));
        assert_eq!(admitted(twice, 20).await, 20);
        let report = hidden.dry_run_report(name).unwrap();
        assert_eq!((report.admitted, report.refused), (10, 30), "{name}");
        assert_eq!(hidden.misconfigured(), 20, "{name}");

        let shown = layer().named("shown").dry_run().dry_run_shown();
        assert_eq!(
            admitted(shown.layer(shown.layer(handler())), 3).await,
            3,
            "{name}"
        );
        assert_eq!(shown.misconfigured(), 3, "{name}");

        // Behind others: a dry run beside a live limit, and several on their own.
        let outer = layer().named("live").also(dry("a", 5));
        let between = layer().named("b").dry_run().also(dry("c", 5));
        let inner = layer().named("other").also(dry("a", 5));
        let innermost = layer().named("d").dry_run().also(dry("c", 5));
        let all = outer.layer(between.layer(inner.layer(innermost.layer(handler()))));
        assert_eq!(admitted(all, 4).await, 4);
        let counts = [
            outer.misconfigured(),
            between.misconfigured(),
            inner.misconfigured(),
            innermost.misconfigured(),
        ];
        assert_eq!(counts, [0, 0, 4, 4], "{name}");
    }
}

/// The states that an outcome remembers of a dry run are not shown.
#[tokio::test]
async fn a_hidden_dry_run_is_no_part_of_the_outcome() {
    let layer = RateLimitLayer::new(per_hour(10)).named("dry").dry_run();
    let handler = service_fn(async |request: Request<()>| {
        let outcome: &Outcome = request.extensions().get().unwrap();
        let seen = (outcome.len(), outcome.iter().len(), outcome.is_empty());
        Ok::<_, Infallible>(Response::new(format!("{seen:?} {outcome:?}")))
    });
    let response = layer.layer(handler).oneshot(Request::new(())).await;
    assert_eq!(response.unwrap().body(), "(0, 0, true) {}");
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
        // A third one collides with both. One with the rule of another limit is one more.
        let (third, fourth) = (layer(7), layer(7));
        admitted(third.layer(handler()), 2).await;
        admitted(fourth.layer(handler()), 2).await;
        let all = [&login, &api, &third, &fourth].map(|layer| layer.collisions());
        assert_eq!(all, [3, 3, 2, 2], "{name}");
        // None of them is there any more, once it and its services are gone.
        drop((api, fourth));
        assert_eq!((login.collisions(), third.collisions()), (1, 1), "{name}");
    }
}

/// Limits collide if their rules keep states of one kind and are not equal, whichever numbers their
/// decisions show.
#[tokio::test]
async fn rules_are_compared_by_all_that_they_are() {
    let texts = [
        "token-bucket 3/1h",
        "token-bucket 100/1h",
        "token-bucket 100/1h burst=7",
        "leaky-bucket 10/s queue=5 max-wait=1s",
        "leaky-bucket 10/s queue=5 max-wait=9s",
        "leaky-bucket 10/s queue=50",
        "warm-up 200/s over=10s cold=3",
        "warm-up 200/s over=99s cold=9",
        "fixed-window 100/1h",
        "sliding-window 100/1h",
        "sliding-window 100/1h slices=4",
        "sliding-log 100/1h",
        "three-color 100/s peak=200/s",
        "three-color 100/s peak=900/s",
        "cascade 10/s burst=10 > 5/s burst=20",
        "cascade 10/s burst=10 > 5/s burst=90",
        "token-bucket 3/1h & fixed-window 1000/1d",
        "token-bucket 100/1h & fixed-window 1000/1d",
    ];
    // Without tokio no layer has a rule that delays.
    let mut rules = texts.map(|text| text.parse::<AnyRule>().unwrap()).to_vec();
    rules.retain(|rule| cfg!(feature = "tokio") || !rule.may_delay());
    let mut collisions = 0;
    for (index, first) in rules.iter().enumerate() {
        for second in &rules[index..] {
            let store = Local::new();
            let layer = |rule: &AnyRule| RateLimitLayer::new(rule.clone()).store(store.clone());
            let (one, two) = (layer(first), layer(second));
            for layer in [&one, &two] {
                admitted(layer.layer(handler()), 1).await;
            }
            let shares = first.state_kind() == second.state_kind();
            let expected = u64::from(shares && first != second);
            assert_eq!(
                (one.collisions(), two.collisions()),
                (expected, expected),
                "{first} and {second}"
            );
            collisions += expected;
        }
    }
    assert!(collisions >= 8, "{collisions}");
}

/// Rules of different kinds have states of their own under one name.
#[tokio::test]
async fn stacked_limits_of_different_kinds_are_no_mistake() {
    let store = Local::<AnyRule>::new();
    let layer = |text: &str| {
        RateLimitLayer::new(text.parse::<AnyRule>().unwrap())
            .named("api")
            .store(store.clone())
    };
    let (outer, inner) = (layer("token-bucket 10/1h"), layer("fixed-window 20/1h"));
    assert_eq!(admitted(outer.layer(inner.layer(handler())), 20).await, 10);
    assert_eq!((outer.misconfigured(), inner.misconfigured()), (0, 0));
    // Nor is a rule of another kind that is selected for a request.
    let inner = layer("token-bucket 10/1h")
        .rule(|_: &Request<()>| Some("sliding-log 20/1h".parse::<AnyRule>().unwrap()));
    let outer = layer("token-bucket 99/1h");
    admitted(outer.layer(inner.layer(handler())), 1).await;
    assert_eq!((outer.misconfigured(), inner.misconfigured()), (0, 0));
}

/// A layer makes a service for each route, and routers do for each connection. All of them are one
/// limit.
#[tokio::test]
async fn limits_are_counted_and_not_their_services() {
    let one = RateLimitLayer::new(per_hour(100_000));
    let mut services = Vec::new();
    for _ in 0..600 {
        services.push(one.layer(handler()));
        admitted(services.last().unwrap().clone(), 1).await;
    }
    let store = Local::<AnyRule>::new();
    let layer = |limit| RateLimitLayer::new(per_hour(limit)).store(store.clone());
    let (login, api) = (layer(30), layer(1000));
    for _ in 0..10 {
        for layer in [&login, &api.clone().respond(Http::new())] {
            services.push(layer.layer(handler()));
            admitted(services.last().unwrap().clone(), 1).await;
        }
    }
    assert_eq!((one.collisions(), api.collisions()), (0, 1));
    assert_eq!(login.collisions(), 1);
    // A limit is there as long as one of its services.
    drop(login);
    assert_eq!(api.collisions(), 1);
    drop(services);
    assert_eq!(api.collisions(), 0);
}

/// A clone that was given another store is gone with it, though the layer that it was made of lives
/// on.
#[tokio::test]
async fn a_store_that_is_gone_collides_with_none() {
    let base = RateLimitLayer::new(per_hour(3));
    for _ in 0..50 {
        let short = base.clone().store(Local::<AnyRule>::new());
        admitted(short.layer(handler()), 1).await;
        drop(short);
        // Often at the address of the former one.
        let other = RateLimitLayer::new(per_hour(100)).store(Local::<AnyRule>::new());
        admitted(other.layer(handler()), 1).await;
        assert_eq!(other.collisions(), 0);
    }
}

/// The numbers of a decision are those of another rule while a store is down, or has leased units
/// out.
#[cfg(feature = "test-util")]
#[tokio::test]
async fn equal_rules_do_not_collide_whatever_decides() {
    use tollgate::{
        store::LeaseConfig,
        testing::{Fault, Faulty},
    };

    let faulty = Faulty::new(Local::<AnyRule>::new());
    let store = faulty.clone().fall_back_to(Local::new()).share(1, 2);
    let layer = || RateLimitLayer::new(per_hour(10)).store(store.clone());
    let (one, two) = (layer(), layer());
    admitted(one.layer(handler()), 1).await;
    faulty.faults().always(Fault::Unavailable);
    admitted(two.layer(handler()), 1).await;
    assert_eq!((one.collisions(), two.collisions()), (0, 0));

    let store = Faulty::new(Local::<AnyRule>::new())
        .leased(LeaseConfig::new())
        .fail_closed();
    let layer = || RateLimitLayer::new(per_hour(10)).store(store.clone());
    let (one, two) = (layer(), layer().cost(Cost::new(50).unwrap()));
    admitted(one.layer(handler()), 3).await;
    admitted(two.layer(handler()), 1).await;
    assert_eq!((one.collisions(), two.collisions()), (0, 0));
}

/// An exempt request is none that the limit decides.
#[tokio::test]
async fn a_limit_collides_from_its_first_request_on() {
    let store = Local::<AnyRule>::new();
    let layer = |limit| RateLimitLayer::new(per_hour(limit)).store(store.clone());
    let api = layer(100);
    admitted(api.layer(handler()), 1).await;
    let login = layer(3)
        .key(Header::new("x-login").or_exempt())
        .also(Limit::new(per_hour(50)).named("users"));
    let service = login.layer(handler());
    admitted(service.clone(), 3).await;
    assert_eq!((login.collisions(), api.collisions()), (0, 0));
    let request = Request::builder().header("x-login", "ann").body(());
    service.oneshot(request.unwrap()).await.unwrap();
    assert_eq!((login.collisions(), api.collisions()), (1, 1));
}

/// Requests of a handler through the same limit are charged one by one. They must not carry the
/// outcome of the one that it serves.
#[tokio::test]
async fn requests_of_a_handler_are_noticed_if_they_carry_its_outcome() {
    let layer = RateLimitLayer::new(per_hour(100)).named("api");
    for (removes, expected) in [(true, 0), (false, 3)] {
        let item = layer.layer(handler());
        let batch = service_fn(move |request: Request<()>| {
            let item = item.clone();
            async move {
                let mut extensions = request.extensions().clone();
                if removes {
                    extensions.remove::<Outcome>();
                }
                for _ in 0..3 {
                    let mut part = Request::new(());
                    *part.extensions_mut() = extensions.clone();
                    item.clone().oneshot(part).await?;
                }
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        });
        assert_eq!(admitted(layer.layer(batch), 1).await, 1);
        assert_eq!(layer.misconfigured(), expected, "removes: {removes}");
    }
}

#[tokio::test]
async fn limits_that_may_share_a_store_are_not_counted() {
    let store = Local::new();
    let layer = |limit| RateLimitLayer::new(per_hour(limit)).store(store.clone());
    // Equal rules, a name, a store of its own, a rule for each request, and a reload whose former
    // layer is gone.
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
            // Nobody is admitted.
            let layer = RateLimitLayer::new(per_hour(1)).respond($respond);
            let app: Router = Router::new()
                .route("/", get(async || "hello").layer(layer.clone()))
                .layer(layer.clone());
            for _ in 0..3 {
                let request = Request::get("/").body(Body::empty()).unwrap();
                app.clone().oneshot(request).await.unwrap();
            }
            assert_eq!(layer.misconfigured(), 1, stringify!($respond));
        }};
    }
    check!(Http::new());
    check!(Http::empty());
    check!(Http::new().drain_bodies());
    check!(DrainBodies::new(Grpc::new()));
}
