//! The class of an outer limit reaches the handler, and an inner limit that sheds load by class.

use std::convert::Infallible;

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::{
    AnyRule, Cascade, Decision, Outcome, Quota, RateLimitLayer, ThreeColor, TokenBucket,
};
use tower::{Layer, Service, service_fn, util::BoxCloneService};

type Inner = BoxCloneService<Request<()>, Response<String>, Infallible>;

/// Returns the class of a request under the limit with this name.
fn class(outcome: Option<&Outcome>, policy: &str) -> u8 {
    let decision = outcome.and_then(|outcome| outcome.get(policy));
    decision.map_or(0, Decision::class)
}

fn class_of(req: &Request<()>, policy: &str) -> u8 {
    class(req.extensions().get(), policy)
}

/// Answers with the classes that a handler sees.
fn handler() -> Inner {
    let answer = async |req: Request<()>| {
        let classes = (class_of(&req, "plan"), class_of(&req, "backend"));
        Ok(Response::new(format!("{classes:?}")))
    };
    BoxCloneService::new(service_fn(answer))
}

fn call(service: &mut Inner) -> Response<String> {
    let ready = service.call(Request::new(()));
    ready.now_or_never().unwrap().unwrap()
}

/// Two calls in each of three classes. The refill takes days.
fn plan() -> Cascade {
    let two = TokenBucket::per_day(2);
    Cascade::new(two).then(two).then(two)
}

#[test]
fn an_inner_limit_sheds_by_the_class_of_the_outer_one() {
    let backend = ThreeColor::new(Quota::per_day(3), Quota::per_day(9)).aware();
    let inner = RateLimitLayer::new(backend)
        .named("backend")
        .rule(move |req: &Request<()>| Some(backend.given(class_of(req, "plan"))))
        .layer(handler());
    let layer = RateLimitLayer::new(plan()).named("plan");
    let mut service = BoxCloneService::new(layer.layer(inner));

    // Class 0 is green and class 1 yellow, although the committed bucket could pay once more.
    for body in ["(0, 0)", "(0, 0)", "(1, 1)", "(1, 1)"] {
        let response = call(&mut service);
        assert_eq!(
            (response.status(), response.body().as_str()),
            (StatusCode::OK, body)
        );
    }
    // Class 2 is red. The inner limit always refuses it, whatever remains.
    for _ in 0..2 {
        let shed = call(&mut service);
        assert_eq!(shed.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(!shed.headers().contains_key("retry-after"));
        let outcome = shed.extensions().get::<Outcome>();
        assert_eq!(class(outcome, "backend"), 2);
        assert_eq!(
            outcome.unwrap().get("backend").unwrap().remaining(),
            Some(0)
        );
    }
    // All buckets are empty, so the outer limit refuses.
    let refused = call(&mut service);
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key("retry-after"));
    let outcome = refused.extensions().get::<Outcome>().unwrap();
    assert!(outcome.get("plan").is_some() && outcome.get("backend").is_none());
}

#[test]
fn a_rule_from_configuration_sheds_load_as_well() {
    let plan: AnyRule = "cascade 1/1d > 1/1d > 1/1d".parse().unwrap();
    let backend: AnyRule = "token-bucket 9/1d & three-color 3/1d peak=9/1d aware"
        .parse()
        .unwrap();
    let inner = RateLimitLayer::new(backend.clone())
        .named("backend")
        .rule(move |req: &Request<()>| Some(backend.clone().given(class_of(req, "plan"))))
        .layer(handler());
    let mut service = BoxCloneService::new(RateLimitLayer::new(plan).named("plan").layer(inner));
    let responses = [(); 3].map(|()| call(&mut service));
    let bodies: Vec<_> = responses[..2].iter().map(Response::body).collect();
    assert_eq!(bodies, ["(0, 0)", "(1, 1)"]);
    assert_eq!(responses[2].status(), StatusCode::TOO_MANY_REQUESTS);
}
