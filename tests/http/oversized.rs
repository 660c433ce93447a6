//! Requests whose cost is above the limit, and everything that looks like them.

use std::{convert::Infallible, num::NonZeroU64, time::Duration};

use futures_util::FutureExt as _;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tollgate::{
    AnyRule, Cost, Decision, LeakyBucket, Limit, Outcome, Policy, Quota, RateLimitLayer, Timestamp,
    TokenBucket, Verdict,
    algorithm::Algorithm,
    prelude::*,
    respond::{Grpc, Headers, Http, OversizedCode, Refusal, Refused, Respond},
};
use tonic_types::StatusExt as _;
use tower::{Layer, Service, ServiceExt as _, service_fn, util::BoxCloneService};

use crate::pairs::RULES;

type Inner = BoxCloneService<Request<()>, Response<String>, Infallible>;

fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

fn hello() -> Inner {
    let hello = async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello".to_owned()));
    BoxCloneService::new(service_fn(hello))
}

fn call(service: &Inner, request: Request<()>) -> Response<String> {
    let answer = service.clone().oneshot(request).now_or_never();
    answer.expect("an answer at once").unwrap()
}

fn get() -> Request<()> {
    Request::new(())
}

fn grpc() -> Request<()> {
    let request = Request::post("/").header("content-type", "application/grpc");
    request.body(()).unwrap()
}

/// Answers requests that cost 101 under limits of 100 and 1000.
fn too_large(respond: Http) -> Inner {
    let layer = RateLimitLayer::new(TokenBucket::per_minute(100))
        .named("burst")
        .cost(cost(101))
        .also(
            Limit::new(TokenBucket::per_day(1000))
                .named("daily")
                .cost(cost(101)),
        );
    BoxCloneService::new(layer.respond(respond).layer(hello()))
}

#[test]
fn a_cost_above_the_limit_is_413_and_says_so() {
    for headers in [Headers::Draft, Headers::Legacy, Headers::None] {
        let answer = call(&too_large(Http::new().headers(headers)), get());
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert!(!answer.headers().contains_key("retry-after"));
        assert_eq!(answer.headers()["cache-control"], "no-store");
        let body: Value = serde_json::from_str(answer.body()).unwrap();
        assert_eq!(
            body,
            json!({
                "type": "about:blank",
                "title": "Payload Too Large",
                "status": 413,
                "detail": "The request costs more than these policies can ever admit at once. Do not send it again as it is.",
                "retryable": false,
                "violated-policies": ["burst"],
            })
        );
    }
    let mut head = get();
    *head.method_mut() = Method::HEAD;
    let service = too_large(Http::new());
    let (full, head) = (call(&service, get()), call(&service, head));
    assert_eq!((head.status(), head.body().as_str()), (full.status(), ""));
    assert_eq!(
        head.headers()["content-length"],
        full.body().len().to_string().as_str()
    );
}

#[test]
fn the_status_is_a_setting() {
    for status in [400, 422, 429] {
        let status = StatusCode::from_u16(status).unwrap();
        let service = too_large(Http::new().oversized_status(status));
        let answer = call(&service, get());
        assert_eq!(answer.status(), status);
        let body: Value = serde_json::from_str(answer.body()).unwrap();
        assert_eq!(
            (&body["type"], &body["status"]),
            (&json!("about:blank"), &json!(status.as_u16()))
        );
        assert_eq!(body["retryable"], json!(false));
    }
    // The document of the only limit is kept for other refusals, not for this one.
    let respond = Http::new().oversized_status(StatusCode::TOO_MANY_REQUESTS);
    let layer = RateLimitLayer::new(TokenBucket::per_day(2)).respond(respond);
    let layer = layer.cost(|request: &Request<()>| match request.uri().path() {
        "/large" => cost(3),
        _ => cost(2),
    });
    let service = BoxCloneService::new(layer.layer(hello()));
    for (path, retryable) in [
        ("/", None),
        ("/", Some(true)),
        ("/large", Some(false)),
        ("/", Some(true)),
    ] {
        let answer = call(&service, Request::get(path).body(()).unwrap());
        let Some(retryable) = retryable else {
            assert_eq!(answer.status(), StatusCode::OK);
            continue;
        };
        assert_eq!(
            answer.body().contains("quota-exceeded"),
            retryable,
            "{path}: {}",
            answer.body()
        );
        assert_eq!(answer.headers().contains_key("retry-after"), retryable);
    }
}

#[test]
fn over_grpc_the_code_is_one_that_is_not_retried() {
    let codes = [
        (None, 3),
        (Some(OversizedCode::InvalidArgument), 3),
        (Some(OversizedCode::ResourceExhausted), 8),
        (Some(OversizedCode::FailedPrecondition), 9),
        (Some(OversizedCode::OutOfRange), 11),
    ];
    for (code, expected) in codes {
        let (mut http, mut alone) = (Http::new(), Grpc::new());
        if let Some(code) = code {
            (http, alone) = (http.oversized_code(code), alone.oversized_code(code));
        }
        let layer = RateLimitLayer::new(TokenBucket::per_minute(2)).cost(cost(3));
        let alone = BoxCloneService::new(layer.respond(alone).layer(hello()));
        for service in [too_large(http), alone] {
            let answer = call(&service, grpc());
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()["grpc-retry-pushback-ms"], "-1");
            let status = tonic::Status::from_header_map(answer.headers()).unwrap();
            assert_eq!(status.code() as i32, expected);
            assert!(status.get_details_retry_info().is_none());
            assert_eq!(
                status.get_details_quota_failure().unwrap().violations.len(),
                1
            );
        }
    }
}

fn refused(units: u64, limit: u64, wait: Option<Duration>) -> Decision {
    Decision::new(Verdict::Refuse, Timestamp::default(), units)
        .with_limit(NonZeroU64::new(limit).unwrap(), Quota::per_minute(1))
        .with_retry_after(wait)
}

/// One limit that never admits the request is enough, wherever it is.
#[test]
fn one_limit_that_can_never_pass_decides() {
    let wait = Some(Duration::from_secs(9));
    let at = Timestamp::default();
    let never = refused(3, 2, None);
    let others = [
        refused(3, 9, wait),
        Decision::new(Verdict::Allow, at, 3),
        Decision::undecided(false, at, wait),
        Decision::undecided(true, at, None),
    ];
    for other in others {
        for decisions in [[never, other], [other, never]] {
            let mut outcome = Outcome::new();
            for (name, decision) in ["a", "b"].into_iter().zip(decisions) {
                outcome.push(Policy::new(name), decision);
            }
            assert!(outcome.is_oversized());
            let refusal = Refusal::new(outcome);
            assert!(refusal.is_oversized() && Refused::from(refusal.clone()).is_oversized());
            let answer: Result<Response<String>, Infallible> = Http::new().refuse(get(), refusal);
            assert_eq!(answer.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
}

/// No wait, and yet it may pass another time.
#[test]
fn refusals_without_a_wait_are_not_mistaken_for_it() {
    let at = Timestamp::default();
    for decision in [
        // The cost fits: as of a warm-up that will have cooled.
        refused(2, 2, None),
        // The limit is not known.
        Decision::new(Verdict::Refuse, at, 3),
        Decision::undecided(false, at, None),
        Decision::unsupported(at),
    ] {
        let mut outcome = Outcome::new();
        outcome.push(Policy::new("api"), decision);
        assert!(
            !decision.is_oversized() && !outcome.is_oversized(),
            "{decision:?}"
        );
        let refusal = Refusal::new(outcome);
        assert!(!refusal.is_oversized());
        let answer: Result<Response<String>, Infallible> = Http::new().refuse(get(), refusal);
        assert_ne!(answer.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    let dry = Decision::new(Verdict::DryRun { admitted: false }, at, 3)
        .with_limit(NonZeroU64::MIN, Quota::per_minute(1));
    assert!(!dry.is_oversized());
}

/// A request is oversized exactly if it costs more than each rule on its key can hold.
#[test]
fn every_rule_and_pair_tells_it_from_other_refusals() {
    let begin = Timestamp::from_nanos(1_800_000_000_000_000_000);
    let mut texts: Vec<String> = RULES.iter().map(|&text| text.to_owned()).collect();
    for a in RULES {
        texts.extend(RULES.iter().map(|b| format!("{a} & {b}")));
    }
    let (mut oversized, mut fitting) = (0, 0);
    for text in texts {
        let rule: AnyRule = text.parse().unwrap();
        let limit = rule.look(None, begin).limit().unwrap();
        let (mut state, mut now) = (None, begin);
        for (units, millis) in [
            (limit, 0),
            (limit, 0),
            (limit + 1, 0),
            (1, 200),
            (limit, 700),
            (limit + 1, 1),
            (1, 0),
            (u64::MAX, 3_000),
            (limit, 60_000),
            (limit, 1),
        ] {
            now = now.saturating_add(Duration::from_millis(millis));
            let mut decision = rule.step(&mut state, now, cost(units)).decision();
            assert_eq!(
                decision.is_oversized(),
                units > limit,
                "{text}: {units}, {decision:?}"
            );
            // Taking no charge out of a refusal changes nothing.
            if !decision.is_admitted() {
                assert!(decision.take_charge().is_none());
                assert_eq!(decision.is_oversized(), units > limit, "{text}: {units}");
                *(if units > limit {
                    &mut oversized
                } else {
                    &mut fitting
                }) += 1;
            }
        }
    }
    assert!(oversized > 500 && fitting > 500, "{oversized}, {fitting}");
}

/// The wait would be longer than callers may wait, but it ends.
#[test]
fn a_full_queue_is_not_mistaken_for_it() {
    let rule = LeakyBucket::per_minute(60).max_wait(Duration::from_millis(500));
    let limit = rule.look(None, Timestamp::default()).limit().unwrap();
    let (mut state, mut full) = (None, None);
    for _ in 0..limit + 2 {
        let decision = rule
            .step(&mut state, Timestamp::default(), Cost::ONE)
            .decision();
        full = Some(decision).filter(|decision| !decision.is_admitted());
    }
    let full = full.unwrap();
    assert!(
        full.retry_after().is_some() && !full.is_oversized(),
        "{full:?}"
    );
}

/// A limit that is charged after the response decides by a look, which is about one unit.
#[test]
fn a_limit_that_is_charged_later_says_it_too() {
    for (units, status) in [(2, 200), (3, 413)] {
        let layer = RateLimitLayer::new(TokenBucket::per_day(2))
            .cost(cost(units))
            .charge_after(|_: &Response<String>| true);
        let service = BoxCloneService::new(layer.layer(hello()));
        assert_eq!(call(&service, get()).status(), status);
    }
    let layer = RateLimitLayer::new(TokenBucket::per_day(2))
        .cost(cost(2))
        .charge_after(|_: &Response<String>| true);
    let service = BoxCloneService::new(layer.layer(hello()));
    let statuses = [
        call(&service, get()).status(),
        call(&service, get()).status(),
    ];
    assert_eq!(statuses, [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS]);
}

/// A blocked key is refused whatever a request costs; only what is above the limit never passes.
#[test]
fn a_block_is_not_mistaken_for_it() {
    let store = Local::new().with_blocks();
    let limiter = Limiter::new(Policy::new("api"), TokenBucket::per_day(5), store);
    let hour = Duration::from_secs(3600);
    let _ = limiter.block("mallory", hour).unwrap().at_once();
    let check = |key: &'static str, units| limiter.check(key, cost(units)).at_once();
    for units in 1..=5 {
        let blocked = check("mallory", units);
        assert!(
            !blocked.is_admitted() && !blocked.is_oversized(),
            "{blocked:?}"
        );
    }
    assert!(check("mallory", 6).is_oversized());
    assert!(check("alice", 6).is_oversized());
}

/// A node's share of a limit ends with the outage, and the call passes then. Before, clients over
/// gRPC were told not to retry.
#[cfg(feature = "test-util")]
#[tokio::test]
async fn a_share_during_an_outage_is_not_mistaken_for_it() {
    use tollgate::testing::{Fault, Faulty};

    let faulty = Faulty::new(Local::new());
    let faults = faulty.faults();
    let layer = RateLimitLayer::new(TokenBucket::per_minute(100))
        .named("api")
        .cost(cost(50))
        .store(faulty.fall_back_to(Local::new()).share(1, 4));
    faults.always(Fault::Unavailable);
    let over_grpc = BoxCloneService::new(layer.clone().respond(Grpc::new()).layer(hello()));
    let over_http = BoxCloneService::new(layer.layer(hello()));
    let answer = over_grpc.clone().oneshot(grpc()).await.unwrap();
    assert!(!answer.headers().contains_key("grpc-retry-pushback-ms"));
    let status = tonic::Status::from_header_map(answer.headers()).unwrap();
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::ResourceExhausted, "rate limit exceeded: api")
    );
    let violations = status.get_details_quota_failure().unwrap().violations;
    let described: Vec<_> = violations.iter().map(|one| &*one.description).collect();
    assert_eq!(described, ["the quota of 25/1m is exhausted"]);
    let answer = over_http.clone().oneshot(get()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!answer.headers().contains_key("retry-after"));

    faults.none();
    let answer = over_grpc.oneshot(grpc()).await.unwrap();
    assert!(!answer.headers().contains_key("grpc-status"));
}

/// A service that is called again is refused again: nothing was spent.
#[test]
fn a_request_that_fits_passes_beside_it() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(2));
    let layer = layer.cost(|request: &Request<()>| match request.uri().path() {
        "/large" => cost(3),
        _ => cost(2),
    });
    let mut service = layer.layer(hello());
    let mut status = |path| {
        let request = Request::get(path).body(()).unwrap();
        let answer = service.call(request).now_or_never().unwrap();
        answer.unwrap().status().as_u16()
    };
    assert_eq!(
        [status("/large"), status("/"), status("/large"), status("/")],
        [413, 200, 413, 429]
    );
}
