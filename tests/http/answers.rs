//! The bytes on the wire: header fields, refusals over HTTP and gRPC, refusals as errors.

use std::{convert::Infallible, num::NonZeroU64, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use proptest::prelude::*;
use prost::Message as _;
use serde_json::{Value, json};
use tollgate::{
    AnyRule, Cost, Decision, Limit, Outcome, Policy, Quota, RateLimitLayer, Timestamp, TokenBucket,
    Unit, Verdict,
    algorithm::Algorithm,
    key::{Header, MissingKey},
    respond::{AsError, Cause, Grpc, Headers, Http, Refusal, Refused, Respond},
};
use tonic_types::StatusExt as _;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};

use crate::pairs::RULES;

/// Noon of the first day, in nanoseconds.
const NOON: Timestamp = Timestamp::from_nanos(43_200_000_000_000);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn decision(verdict: Verdict, capacity: u64, quota: Quota, remaining: u64) -> Decision {
    Decision::new(verdict, NOON, 1)
        .with_limit(NonZeroU64::new(capacity).unwrap(), quota)
        .with_remaining(remaining)
        .with_retry_after(Some(Duration::ZERO))
}

/// An admission under 100 per minute.
fn allowed(remaining: u64) -> Decision {
    decision(Verdict::Allow, 100, Quota::per_minute(100), remaining)
        .with_more_after(Duration::from_millis(300))
        .with_reset_after(Duration::from_millis(4_200))
}

fn refused(retry_after: Option<Duration>) -> Decision {
    decision(Verdict::Refuse, 100, Quota::per_minute(100), 0)
        .with_retry_after(retry_after)
        .with_more_after(Duration::from_millis(300))
        .with_reset_after(secs(60))
}

fn outcome<const N: usize>(entries: [(&str, Decision); N]) -> Outcome {
    let mut outcome = Outcome::new();
    for (name, decision) in entries {
        outcome.push(Policy::new(name), decision);
    }
    outcome
}

fn one(decision: Decision) -> Outcome {
    outcome([("api", decision)])
}

fn admit<R>(respond: &R, req: &mut Request<()>, res: &mut Response<String>, outcome: Outcome)
where
    R: Respond<Request<()>, Response<String>, Infallible>,
{
    let mark = respond.admit(req, outcome);
    R::annotate(mark, res);
}

/// Returns the fields of a response to an admitted request.
fn admitted(headers: Headers, outcome: Outcome) -> HeaderMap {
    let (mut req, mut res) = (Request::new(()), Response::new(String::new()));
    admit(&Http::new().headers(headers), &mut req, &mut res, outcome);
    res.headers().clone()
}

fn refuse<R>(respond: &R, req: Request<()>, refusal: Refusal) -> Response<String>
where
    R: Respond<Request<()>, Response<String>, Infallible>,
{
    respond
        .refuse(req, refusal)
        .unwrap_or_else(|never| match never {})
}

fn refuse_http(refusal: Refusal) -> Response<String> {
    refuse(&Http::new(), Request::new(()), refusal)
}

fn grpc_request(content_type: &str) -> Request<()> {
    Request::post("/")
        .header("content-type", content_type)
        .body(())
        .unwrap()
}

/// Returns all lines, sorted by name.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        format!("{name}: {}", value.to_str().unwrap())
    };
    let mut lines: Vec<_> = headers.iter().map(line).collect();
    lines.sort();
    lines
}

fn rate_limit_field(decision: Decision) -> String {
    let headers = admitted(Headers::Draft, one(decision));
    headers["ratelimit"].to_str().unwrap().to_owned()
}

fn policy(policy: Policy, capacity: u64, quota: Quota) -> String {
    let mut outcome = Outcome::new();
    outcome.push(policy, decision(Verdict::Allow, capacity, quota, 1));
    let headers = admitted(Headers::Draft, outcome);
    headers["ratelimit-policy"].to_str().unwrap().to_owned()
}

// § 1. RateLimit and RateLimit-Policy

#[test]
fn ratelimit_promises_no_more_than_the_rate() {
    let hour = Quota::per_hour(60);
    for (decision, expected) in [
        (allowed(50), r#""api";r=50;t=30"#),
        // A full bucket: r = q, t = w.
        (allowed(100), r#""api";r=100;t=60"#),
        // `t` is not the time until the bucket is full.
        (allowed(99), r#""api";r=99;t=60"#),
        (allowed(1), r#""api";r=1;t=1"#),
        (allowed(0), r#""api";r=0;t=1"#),
        (
            allowed(0).with_more_after(Duration::ZERO),
            r#""api";r=0;t=1"#,
        ),
        (
            allowed(0).with_more_after(Duration::from_millis(2_001)),
            r#""api";r=0;t=3"#,
        ),
        // A window whose end is later than the remaining units take to refill.
        (allowed(10).with_more_after(secs(42)), r#""api";r=10;t=42"#),
        (
            decision(Verdict::Delay(secs(1)), 10, hour, 0).with_more_after(secs(90)),
            r#""api";r=0;t=90"#,
        ),
        (decision(Verdict::Allow, 10, hour, 7), r#""api";r=7;t=420"#),
    ] {
        assert_eq!(rate_limit_field(decision), expected);
    }
}

#[test]
fn ratelimit_of_a_refusal_promises_no_more_than_the_rate() {
    let tell = |decision| {
        let res = refuse_http(Refusal::new(one(decision)));
        res.headers()["ratelimit"].to_str().unwrap().to_owned()
    };
    let wait = |millis| Some(Duration::from_millis(millis));
    assert_eq!(tell(refused(wait(1))), r#""api";r=0;t=1"#);
    assert_eq!(tell(refused(wait(2_500))), r#""api";r=0;t=3"#);
    // 100 per minute are 5 per 3 seconds.
    assert_eq!(
        tell(refused(wait(2_500)).with_remaining(4)),
        r#""api";r=4;t=3"#
    );
    assert_eq!(
        tell(refused(wait(2_500)).with_remaining(80)),
        r#""api";r=5;t=3"#
    );
    // A cost that can never pass: nothing is promised.
    assert_eq!(tell(refused(None).with_remaining(80)), r#""api";r=80"#);
}

#[test]
fn ratelimit_policy_contains_each_policy() {
    let api = || Policy::new("api");
    let minute = Quota::per_minute(100);
    assert_eq!(policy(api(), 100, minute), r#""api";q=100;w=60"#);
    assert_eq!(policy(api(), 150, minute), r#""api";q=150;w=90"#);
    assert_eq!(policy(api(), 151, minute), r#""api";q=151;w=91"#);
    // A window is never shorter than a second.
    assert_eq!(
        policy(api(), 10, Quota::per_second(10)),
        r#""api";q=10;w=1"#
    );
    assert_eq!(policy(api(), 9, Quota::per_second(10)), r#""api";q=9"#);
    let bytes = api().with_unit(Unit::ContentBytes);
    assert_eq!(
        policy(bytes, 100, minute),
        r#""api";q=100;w=60;qu="content-bytes""#
    );
    assert_eq!(
        policy(Policy::new(r#"a"b\c, d"#), 100, minute),
        r#""a\"b\\c, d";q=100;w=60"#
    );
    // Integers have at most 15 digits.
    assert_eq!(
        policy(api(), u64::MAX, Quota::per_day(1)),
        r#""api";q=999999999999999;w=999999999999999"#
    );
}

#[test]
fn ratelimit_lists_the_nearest_policy_first_and_omits_undecided_ones() {
    let daily = decision(Verdict::Allow, 1000, Quota::per_day(1000), 10);
    let undecided = Decision::undecided(true, NOON, Some(secs(5)));
    let all = outcome([
        ("burst", allowed(50)),
        ("lost", undecided),
        ("daily", daily),
    ]);
    assert_eq!(
        lines(&admitted(Headers::Draft, all)),
        [
            r#"ratelimit-policy: "daily";q=1000;w=86400, "burst";q=100;w=60"#,
            r#"ratelimit: "daily";r=10;t=864, "burst";r=50;t=30"#,
        ]
    );
    assert!(admitted(Headers::Draft, one(undecided)).is_empty());
}

#[test]
fn a_changed_policy_is_written_anew() {
    let respond = Http::new();
    let tell = |respond: &Http, name: &str, capacity| {
        let (mut req, mut res) = (Request::new(()), Response::new(String::new()));
        let decision = decision(Verdict::Allow, capacity, Quota::per_minute(100), 1);
        admit(respond, &mut req, &mut res, outcome([(name, decision)]));
        res.headers()["ratelimit-policy"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    for (name, capacity, expected) in [
        ("api", 100, r#""api";q=100;w=60"#),
        ("api", 100, r#""api";q=100;w=60"#),
        ("api", 200, r#""api";q=200;w=120"#),
        ("web", 100, r#""web";q=100;w=60"#),
        ("api", 100, r#""api";q=100;w=60"#),
    ] {
        assert_eq!(tell(&respond.clone(), name, capacity), expected);
    }
    assert_eq!(
        tell(&respond.clone().headers(Headers::Draft07), "api", 100),
        "100;w=60"
    );
}

#[test]
fn legacy_formats_contain_the_nearest_policy() {
    let daily = decision(Verdict::Allow, 1000, Quota::per_day(1000), 999);
    let both = || outcome([("daily", daily), ("burst", allowed(50))]);
    let tell = |headers| lines(&admitted(headers, both()));
    assert_eq!(
        tell(Headers::Draft07),
        [
            "ratelimit-policy: 100;w=60, 1000;w=86400",
            "ratelimit: limit=100, remaining=50, reset=5"
        ]
    );
    assert_eq!(
        tell(Headers::Draft06),
        [
            "ratelimit-limit: 100",
            "ratelimit-remaining: 50",
            "ratelimit-reset: 5"
        ]
    );
    assert_eq!(
        tell(Headers::Legacy),
        [
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 50",
            "x-ratelimit-reset: 43205"
        ]
    );
    assert_eq!(
        tell(Headers::LegacyDelta),
        [
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 50",
            "x-ratelimit-reset: 5"
        ]
    );
    assert!(tell(Headers::None).is_empty());
}

/// The one that is declared first, or leaves a smaller share, ended sooner.
#[test]
fn a_refusal_is_reported_by_the_limit_that_ends_last() {
    let refusal = |capacity, remaining, wait| {
        decision(
            Verdict::Refuse,
            capacity,
            Quota::per_day(capacity),
            remaining,
        )
        .with_retry_after(wait)
        .with_reset_after(wait.unwrap_or(secs(1)))
    };
    let burst = refusal(1, 0, Some(secs(1)));
    for (longer, shown) in [
        (refusal(1000, 0, Some(secs(40_000))), ["1000", "0", "40000"]),
        (refusal(100, 40, Some(secs(720))), ["100", "40", "720"]),
        // Never is the longest wait.
        (refusal(50, 50, None), ["50", "50", "1"]),
    ] {
        for both in [[("a", burst), ("b", longer)], [("a", longer), ("b", burst)]] {
            let respond = Http::new().headers(Headers::LegacyDelta);
            let res = refuse(&respond, Request::new(()), Refusal::new(outcome(both)));
            let field = |name: &str| res.headers()[format!("x-ratelimit-{name}")].clone();
            assert_eq!(["limit", "remaining", "reset"].map(field), shown);
        }
    }
}

#[test]
fn an_outer_layer_adds_its_fields() {
    let stack = |headers, inner, outer| {
        let respond = Http::new().headers(headers);
        let (mut req, mut res) = (Request::new(()), Response::new(String::new()));
        admit(
            &respond,
            &mut req,
            &mut res,
            outcome([("in", allowed(inner))]),
        );
        admit(
            &respond,
            &mut req,
            &mut res,
            outcome([("out", allowed(outer))]),
        );
        lines(res.headers())
    };
    assert_eq!(
        stack(Headers::Draft, 50, 20),
        [
            r#"ratelimit-policy: "in";q=100;w=60"#,
            r#"ratelimit-policy: "out";q=100;w=60"#,
            r#"ratelimit: "in";r=50;t=30"#,
            r#"ratelimit: "out";r=20;t=12"#,
        ]
    );
    for (inner, outer) in [(20, 50), (50, 20)] {
        assert_eq!(
            stack(Headers::Draft07, inner, outer),
            [
                "ratelimit-policy: 100;w=60",
                "ratelimit-policy: 100;w=60",
                "ratelimit: limit=100, remaining=20, reset=5",
            ]
        );
        assert_eq!(
            stack(Headers::Draft06, inner, outer),
            [
                "ratelimit-limit: 100",
                "ratelimit-remaining: 20",
                "ratelimit-reset: 5"
            ]
        );
        assert_eq!(
            stack(Headers::Legacy, inner, outer)[1],
            "x-ratelimit-remaining: 20"
        );
    }
}

#[test]
fn headers_parse_from_their_names() {
    for name in [
        "draft",
        "draft-07",
        "draft-06",
        "legacy",
        "legacy-delta",
        "none",
    ] {
        assert_eq!(name.parse::<Headers>().unwrap().to_string(), name);
    }
    let error = "Draft".parse::<Headers>().unwrap_err();
    assert!(
        error.to_string().contains("expected draft, draft-07"),
        "{error}"
    );
}

#[test]
fn the_outcome_is_in_the_request_extensions() {
    fn wants(respond: &impl Respond<Request<()>, Response<String>, Infallible>) -> bool {
        respond.wants_outcome()
    }
    let outcomes_with = |respond: &Http| {
        let (mut req, mut res) = (Request::new(()), Response::new(String::new()));
        admit(respond, &mut req, &mut res, outcome([("out", allowed(50))]));
        admit(respond, &mut req, &mut res, outcome([("in", allowed(20))]));
        let names = |outcome: &Outcome| {
            outcome
                .iter()
                .map(|(policy, _)| policy.to_string())
                .collect()
        };
        req.extensions().get::<Outcome>().map(names)
    };
    let both: Option<Vec<_>> = Some(vec!["out".into(), "in".into()]);
    let none = || Http::new().headers(Headers::None);
    for (respond, wanted, expected) in [
        (Http::new(), true, &both),
        (Http::new().outcome(false), true, &None),
        // Fields for clients and the outcome for handlers are two separate settings.
        (none(), true, &both),
        (none().outcome(false), false, &None),
        (none().outcome(false).outcome(true), true, &both),
    ] {
        assert_eq!(wants(&respond), wanted);
        assert_eq!(&outcomes_with(&respond), expected);
    }
    assert!(wants(&Grpc::new()));
    assert!(wants(&Grpc::new().headers(Headers::None)));
    assert!(!wants(&Grpc::new().headers(Headers::None).outcome(false)));
}

// § 2. A refusal over HTTP

#[test]
fn a_refusal_is_429_with_fields_and_a_problem_document() {
    let res = refuse_http(Refusal::new(outcome([("daily", refused(Some(secs(61))))])));
    assert_eq!(res.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        lines(res.headers()),
        [
            "cache-control: no-store",
            "content-type: application/problem+json",
            r#"ratelimit-policy: "daily";q=100;w=60"#,
            r#"ratelimit: "daily";r=0;t=61"#,
            "retry-after: 61",
        ]
    );
    assert_eq!(
        res.body(),
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
         \"status\":429,\"violated-policies\":[\"daily\"]}"
    );
    assert!(
        res.extensions()
            .get::<Outcome>()
            .is_some_and(|outcome| !outcome.is_admitted())
    );
}

#[test]
fn retry_after_is_the_longest_wait_rounded_up_in_every_format() {
    let both = |long| {
        let refusals = [
            ("b", refused(Some(Duration::from_millis(10)))),
            ("d", refused(long)),
        ];
        Refusal::new(outcome(refusals))
    };
    let formats = [
        Headers::Draft,
        Headers::Draft07,
        Headers::Draft06,
        Headers::Legacy,
        Headers::LegacyDelta,
        Headers::None,
    ];
    for headers in formats {
        let respond = Http::new().headers(headers);
        let retry_after_of = |long| {
            let res = refuse(&respond, Request::new(()), both(long));
            assert_eq!(res.headers()["cache-control"], "no-store");
            res.headers()
                .get("retry-after")
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(
            retry_after_of(Some(Duration::from_millis(1_001))).unwrap(),
            "2"
        );
        assert_eq!(retry_after_of(Some(Duration::from_nanos(1))).unwrap(), "1");
        assert_eq!(retry_after_of(Some(Duration::ZERO)).unwrap(), "1");
        assert_eq!(
            retry_after_of(Some(Duration::MAX)).unwrap(),
            "999999999999999"
        );
        assert_eq!(retry_after_of(None), None);
    }
}

#[test]
fn an_unknown_wait_does_not_hide_the_wait_of_another_limit() {
    let refusal = |refusing, undecided| {
        Refusal::new(outcome([
            ("a", refused(refusing)),
            ("b", Decision::undecided(false, NOON, undecided)),
        ]))
    };
    for (refusing, undecided, wait) in [
        (Some(secs(7)), None, Some(secs(7))),
        (Some(secs(7)), Some(secs(9)), Some(secs(9))),
        (Some(secs(7)), Some(secs(2)), Some(secs(7))),
        // Nobody knows when one passes, so the other's wait is irrelevant.
        (None, Some(secs(9)), None),
    ] {
        let refusal = refusal(refusing, undecided);
        assert_eq!(refusal.retry_after(), wait);
        let text = refusal.to_string();
        assert_eq!(text.contains("; retry after "), wait.is_some(), "{text}");
        assert!(!text.contains("never"), "{text}");
        let res = refuse_http(refusal);
        assert_eq!(res.status(), StatusCode::TOO_MANY_REQUESTS);
        let header = res.headers().get("retry-after");
        let header = header.map(|value| value.to_str().unwrap().parse().unwrap());
        assert_eq!(header.map(secs), wait);
    }
}

#[test]
fn retry_jitter_only_adds() {
    // Each responder has a seed of its own.
    for _ in 0..50 {
        retry_jitter_is_even(&Http::new().retry_jitter(Duration::from_millis(3_999)));
    }
}

/// Four hundred instants in a row get each of the four waits, with seven standard deviations to
/// spare.
fn retry_jitter_is_even(respond: &Http) {
    let mut seen = [0; 4];
    for at in 0..400 {
        let decision = Decision::new(Verdict::Refuse, Timestamp::from_nanos(at), 1)
            .with_retry_after(Some(secs(10)));
        let res = refuse(respond, Request::new(()), Refusal::new(one(decision)));
        let seconds: usize = res.headers()["retry-after"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        seen[seconds - 10] += 1;
    }
    assert!(seen.iter().all(|&times| times > 40), "{seen:?}");
}

#[test]
fn an_undecided_store_is_503_without_invented_numbers() {
    let refuse = |wait| refuse_http(Refusal::new(one(Decision::undecided(false, NOON, wait))));
    let res = refuse(Some(Duration::from_millis(1_500)));
    assert_eq!(res.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        lines(res.headers()),
        [
            "cache-control: no-store",
            "content-type: application/problem+json",
            "retry-after: 2"
        ]
    );
    assert_eq!(
        res.body(),
        "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
         \"title\":\"Request cannot be satisfied due to temporary server capacity constraints\",\
         \"status\":503}"
    );
    assert!(res.extensions().get::<Outcome>().is_some());
    assert!(!refuse(None).headers().contains_key("retry-after"));
}

#[test]
fn abnormal_usage_has_its_own_problem_type() {
    let mut outcome = one(refused(Some(secs(1))));
    outcome.push(
        Policy::new("scan").with_abnormal_usage(),
        refused(Some(secs(1))),
    );
    let body: Value = serde_json::from_str(refuse_http(Refusal::new(outcome)).body()).unwrap();
    assert_eq!(
        body,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
            "title": "Request not satisfied due to detection of abnormal request pattern",
            "status": 429,
            "violated-policies": ["api", "scan"],
        })
    );
    // The limit that admits is not violated, even if it flags abnormal usage.
    let mut outcome = one(refused(Some(secs(1))));
    outcome.push(Policy::new("scan").with_abnormal_usage(), allowed(5));
    let body: Value = serde_json::from_str(refuse_http(Refusal::new(outcome)).body()).unwrap();
    assert_eq!(body["violated-policies"], json!(["api"]));
    assert!(body["type"].as_str().unwrap().ends_with("#quota-exceeded"));
}

#[test]
fn a_missing_key_is_named_unless_it_is_the_servers_fault() {
    let missing = MissingKey::new("no header `x-\"key\"`\n");
    let res = refuse_http(Refusal::missing(missing));
    assert_eq!(res.status(), StatusCode::BAD_REQUEST);
    assert_eq!(
        lines(res.headers()),
        [
            "cache-control: no-store",
            "content-type: application/problem+json"
        ]
    );
    assert_eq!(
        res.body(),
        r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"no header `x-\"key\"`\u000a"}"#
    );
    let res = refuse_http(Refusal::missing(MissingKey::misconfigured(
        "no peer address",
    )));
    assert_eq!(res.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        res.body(),
        r#"{"type":"about:blank","title":"Internal Server Error","status":500}"#
    );
    let res = refuse_http(Refusal::missing(
        MissingKey::new("no token").with_challenge("Bearer"),
    ));
    assert_eq!(res.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(res.headers()["www-authenticate"], "Bearer");
}

#[test]
fn head_gets_the_same_fields_without_a_body() {
    let request = |method| Request::builder().method(method).body(()).unwrap();
    let refusal = || Refusal::new(one(refused(Some(secs(3)))));
    let words = Http::body(|refusal, parts| {
        parts
            .headers
            .insert("content-type", http::HeaderValue::from_static("text/plain"));
        refusal.to_string()
    });
    let pairs = [Method::GET, Method::HEAD].map(|method| {
        [
            refuse(&Http::new(), request(method.clone()), refusal()),
            refuse(&Http::empty(), request(method.clone()), refusal()),
            refuse(&words, request(method), refusal()),
        ]
    });
    let [get, head] = &pairs;
    for (get, head) in get.iter().zip(head) {
        assert_eq!(get.status(), head.status());
        let mut fields = head.headers().clone();
        if let Some(length) = fields.remove("content-length") {
            // A framework adds the length of the body that GET would get.
            assert_eq!(length, get.body().len().to_string());
        }
        assert_eq!(lines(get.headers()), lines(&fields));
        assert!(head.body().is_empty());
    }
    assert!(head[0].headers().contains_key("content-length"));
    assert!(head[2].headers().contains_key("content-length"));
    assert_eq!(get[1].body(), "");
    assert!(!get[1].headers().contains_key("content-type"));
    assert_eq!(get[2].headers()["content-type"], "text/plain");
    assert_eq!(get[2].body(), "rate limit exceeded: api; retry after 3 s");
}

#[test]
fn head_gets_a_length_only_where_there_is_one() {
    type Boxed = UnsyncBoxBody<Bytes, Infallible>;
    fn length<R>(respond: &R) -> Option<String>
    where
        R: Respond<Request<()>, Response<Boxed>, Infallible>,
    {
        let head = Request::head("/").body(()).unwrap();
        let Ok(response) = respond.refuse(head, Refusal::new(one(refused(Some(secs(3))))));
        let length = response.headers().get("content-length");
        assert!(response.body().is_end_stream());
        length.map(|length| length.to_str().unwrap().to_owned())
    }
    let text = || Full::from("four").boxed_unsync();
    let known = Http::body(move |_, _| text());
    assert_eq!(length(&known).as_deref(), Some("4"));
    let unknown = Http::body(|_, _| {
        let frames = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("four")))]);
        StreamBody::new(frames).boxed_unsync()
    });
    assert_eq!(length(&unknown), None);
    let set = Http::body(move |_, parts| {
        parts.headers.insert("content-length", 7.into());
        text()
    });
    assert_eq!(length(&set).as_deref(), Some("7"));
    for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
        let without = Http::body(move |_, parts| {
            parts.status = status;
            text()
        });
        assert_eq!(length(&without), None);
    }
}

#[test]
fn a_closure_is_not_called_over_grpc() {
    let request = Request::post("/").header("content-type", "application/grpc");
    let respond = Http::body(|_, _| -> String { unreachable!("gRPC has no body") });
    let refusal = Refusal::new(one(refused(Some(secs(3)))));
    let response = refuse(&respond, request.body(()).unwrap(), refusal);
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.body(), "");
}

#[test]
fn a_refusal_reveals_nothing_of_the_request() {
    #[derive(Clone)]
    struct Secret;
    let mut req = Request::builder()
        .header("authorization", "Bearer secret")
        .header("cookie", "a")
        .header("cookie", "b")
        .extension(Secret)
        .extension(outcome([("out", allowed(5))]))
        .body(())
        .unwrap();
    for n in 0..100 {
        let name = http::HeaderName::try_from(format!("x-{n}")).unwrap();
        req.headers_mut()
            .append(name, http::HeaderValue::from_static("x"));
    }
    let refusal = Refusal::new(outcome([("in", refused(Some(secs(1))))]));
    let res = refuse(&Http::empty(), req, refusal);
    assert_eq!(
        lines(res.headers()),
        [
            "cache-control: no-store",
            r#"ratelimit-policy: "in";q=100;w=60"#,
            r#"ratelimit: "in";r=0;t=1"#,
            "retry-after: 1",
        ]
    );
    assert!(res.extensions().get::<Secret>().is_none());
    let names: Vec<_> = res
        .extensions()
        .get::<Outcome>()
        .unwrap()
        .iter()
        .map(|(p, _)| p.to_string())
        .collect();
    assert_eq!(names, ["out", "in"]);
}

// § 3. A refusal over gRPC

#[test]
fn grpc_is_answered_in_one_headers_frame() {
    let refusal = Refusal::new(outcome([(
        "50% \"api\"",
        refused(Some(Duration::from_micros(1_500))),
    )]));
    let res = refuse(&Http::new(), grpc_request("application/grpc"), refusal);
    assert_eq!(res.status(), StatusCode::OK);
    assert!(res.body().is_empty());
    let details = res.headers()["grpc-status-details-bin"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        lines(res.headers()),
        [
            "cache-control: no-store",
            "content-type: application/grpc",
            "grpc-message: rate limit exceeded: 50%25 \"api\"; retry after 2 ms",
            "grpc-retry-pushback-ms: 2",
            &format!("grpc-status-details-bin: {details}"),
            "grpc-status: 8",
            r#"ratelimit-policy: "50% \"api\"";q=100;w=60"#,
            r#"ratelimit: "50% \"api\"";r=0;t=1"#,
        ]
    );
    assert!(!details.contains('='));
    assert!(res.extensions().get::<Outcome>().is_some());

    let decoded = STANDARD_NO_PAD.decode(&details).unwrap();
    let status = tonic_types::pb::Status::decode(decoded.as_slice()).unwrap();
    assert_eq!(status.encode_to_vec(), decoded);
    assert_eq!(status.code, 8);
    let message = r#"rate limit exceeded: 50% "api"; retry after 2 ms"#;
    assert_eq!(status.message, message);
    let urls: Vec<_> = status
        .details
        .iter()
        .map(|any| any.type_url.as_str())
        .collect();
    assert_eq!(
        urls,
        [
            "type.googleapis.com/google.rpc.RetryInfo",
            "type.googleapis.com/google.rpc.QuotaFailure"
        ]
    );

    let status = tonic::Status::from_header_map(res.headers()).unwrap();
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::ResourceExhausted, message)
    );
    let details = status.get_error_details();
    assert_eq!(
        details.retry_info().unwrap().retry_delay,
        Some(Duration::from_micros(1_500))
    );
    let [violation] = details.quota_failure().unwrap().violations.as_slice() else {
        panic!()
    };
    assert_eq!(violation.subject, "50% \"api\"");
    assert_eq!(violation.description, "the quota of 100/1m is exhausted");
}

#[test]
fn grpc_is_recognized_by_the_content_type() {
    let answered = |content_type: &str| {
        let refusal = Refusal::new(one(refused(Some(secs(1)))));
        let res = refuse(&Http::new(), grpc_request(content_type), refusal);
        res.headers()["content-type"].to_str().unwrap().to_owned()
    };
    for plain in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;charset=utf-8",
        "Application/GRPC",
    ] {
        assert_eq!(answered(plain), "application/grpc");
    }
    for web in [
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpc-web-text",
        "application/grpc-web-text+proto",
        "application/grpc-web;x=y",
    ] {
        assert_eq!(answered(web), web);
    }
    for http in [
        "application/grpcs",
        "application/grpc-webs",
        "application/grpc-we",
        "application/json",
        "a",
    ] {
        assert_eq!(answered(http), "application/problem+json");
    }
}

#[test]
fn grpc_web_is_exposed_to_browsers() {
    let refusal = || Refusal::new(one(refused(Some(secs(1)))));
    let web = || grpc_request("application/grpc-web+proto");
    for res in [
        refuse(&Http::new(), web(), refusal()),
        refuse(&Grpc::new(), web(), refusal()),
    ] {
        assert_eq!(res.headers()["content-type"], "application/grpc-web+proto");
        assert_eq!(res.headers()["grpc-status"], "8");
        let exposed: Vec<_> = res.headers()["access-control-expose-headers"]
            .to_str()
            .unwrap()
            .split(", ")
            .collect();
        assert_eq!(exposed, Headers::EXPOSED);
    }
}

#[test]
fn grpc_pushback_is_negative_if_waiting_does_not_help() {
    let pushback = |decision| {
        let res = refuse(&Grpc::new(), Request::new(()), Refusal::new(one(decision)));
        let status = tonic::Status::from_header_map(res.headers()).unwrap();
        let wait = status
            .get_details_retry_info()
            .and_then(|info| info.retry_delay);
        let field = res.headers().get("grpc-retry-pushback-ms");
        (field.map(|value| value.to_str().unwrap().to_owned()), wait)
    };
    let oversized = Decision::new(Verdict::Refuse, NOON, 101)
        .with_limit(NonZeroU64::new(100).unwrap(), Quota::per_minute(100));
    assert_eq!(pushback(oversized), (Some("-1".into()), None));
    // It may pass, nobody knows when.
    assert_eq!(pushback(refused(None)), (None, None));
    for (wait, field) in [(Duration::from_nanos(1), "1"), (secs(30), "30000")] {
        assert_eq!(
            pushback(refused(Some(wait))),
            (Some(field.into()), Some(wait))
        );
    }
}

#[test]
fn grpc_distinguishes_an_undecided_store_and_a_missing_key() {
    let answer = |refusal| {
        let res = refuse(&Grpc::new(), Request::new(()), refusal);
        assert_eq!(res.status(), StatusCode::OK);
        assert!(res.body().is_empty());
        assert!(!res.headers().contains_key("ratelimit"));
        let status = tonic::Status::from_header_map(res.headers()).unwrap();
        (status, res)
    };
    let (status, res) = answer(Refusal::new(one(Decision::undecided(
        false,
        NOON,
        Some(secs(2)),
    ))));
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(
        status.get_details_retry_info().unwrap().retry_delay,
        Some(secs(2))
    );
    assert!(status.get_details_quota_failure().is_none());
    assert_eq!(res.headers()["grpc-retry-pushback-ms"], "2000");
    let (_, res) = answer(Refusal::new(one(Decision::undecided(false, NOON, None))));
    assert_eq!(lines(res.headers()).len(), 4);

    let missing = |missing: MissingKey| {
        let (status, res) = answer(Refusal::missing(missing));
        assert_eq!(lines(res.headers()).len(), 4);
        (status.code(), status.message().to_owned())
    };
    let of = |status| missing(MissingKey::new("no key: é").with_status(status)).0;
    assert_eq!(of(StatusCode::BAD_REQUEST), tonic::Code::InvalidArgument);
    assert_eq!(of(StatusCode::UNAUTHORIZED), tonic::Code::Unauthenticated);
    assert_eq!(of(StatusCode::FORBIDDEN), tonic::Code::PermissionDenied);
    assert_eq!(of(StatusCode::NOT_FOUND), tonic::Code::InvalidArgument);
    assert_eq!(of(StatusCode::BAD_GATEWAY), tonic::Code::Internal);
    let (_, message) = missing(MissingKey::new("no key: é"));
    assert_eq!(message, "the request cannot be limited: no key: é");
    let server = missing(MissingKey::misconfigured("no peer"));
    assert_eq!(server, (tonic::Code::Internal, "internal error".into()));
}

#[test]
fn grpc_needs_only_a_default_body() {
    let refusal = Refusal::new(one(refused(Some(secs(1)))));
    let answer: Result<Response<tonic::body::Body>, Infallible> =
        Grpc::new().refuse(Request::new(()), refusal);
    let status = tonic::Status::from_header_map(answer.unwrap().headers()).unwrap();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
}

// Without HTTP

#[test]
fn a_refusal_is_an_error_without_http() {
    let refuse = |refusal| -> BoxError {
        let answer: Result<(), BoxError> = AsError.refuse("job", refusal);
        answer.unwrap_err()
    };
    let wants = <AsError as Respond<&str, (), BoxError>>::wants_outcome;
    assert!(!wants(&AsError));
    let error = refuse(Refusal::new(one(refused(Some(secs(7))))));
    assert_eq!(
        error.to_string(),
        "rate limit exceeded: api; retry after 7 s"
    );
    let error = error.downcast::<Refused>().unwrap();
    assert_eq!(error.retry_after(), Some(secs(7)));
    assert!(error.is_limit() && !error.is_undecided() && !error.is_missing_key());
    assert!(matches!(error.refusal().cause(), Cause::Limit));
    let undecided = refuse(Refusal::new(one(Decision::undecided(false, NOON, None))));
    assert!(undecided.downcast_ref::<Refused>().unwrap().is_undecided());
    let missing = refuse(Refusal::missing(MissingKey::new("no key")));
    assert!(missing.downcast_ref::<Refused>().unwrap().is_missing_key());
}

// Laws

fn any_quota() -> impl Strategy<Value = Quota> {
    let amounts = prop_oneof![1..1000_u64, 1..=Quota::MAX_AMOUNT];
    let periods = prop_oneof![1..=100_000_000_000_u64, 1..=i64::MAX as u64];
    (amounts, periods).prop_filter_map("above 2^40 a second", |(amount, period)| {
        Quota::try_new(amount, Duration::from_nanos(period)).ok()
    })
}

fn any_wait() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..5_000_000_000_u64).prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ]
}

fn any_decision() -> impl Strategy<Value = Decision> {
    let numbers = (
        any_quota(),
        1..=Quota::MAX_AMOUNT,
        any::<prop::sample::Index>(),
    );
    let waits = (
        any::<bool>(),
        prop::option::of(any_wait()),
        any_wait(),
        any_wait(),
    );
    (numbers, waits).prop_map(|((quota, capacity, share), (allow, retry, more, reset))| {
        let verdict = if allow {
            Verdict::Allow
        } else {
            Verdict::Refuse
        };
        let remaining = share.index(capacity as usize + 1) as u64;
        decision(verdict, capacity, quota, remaining)
            .with_retry_after(if allow { Some(Duration::ZERO) } else { retry })
            .with_more_after(more)
            .with_reset_after(reset)
    })
}

/// Returns a decision of a real rule at noon, which has been charged before.
fn decision_of_a_rule() -> impl Strategy<Value = Decision> {
    let rule = (
        0..7_usize,
        1..40_u64,
        prop::sample::select(&["1s", "7s", "1m", "1h", "1d"][..]),
    );
    let rule = rule.prop_map(|(kind, amount, period)| {
        let text = match kind {
            0 => format!("token-bucket {amount}/{period}"),
            1 => format!("token-bucket 1/{period} burst={amount}"),
            2 => format!("fixed-window {amount}/{period}"),
            3 => format!("sliding-window {amount}/{period}"),
            4 => format!("sliding-log {amount}/{period}"),
            5 => format!("leaky-bucket {amount}/{period} queue=2"),
            _ => format!("token-bucket {amount}/{period} & fixed-window 20/1h"),
        };
        text.parse::<AnyRule>().unwrap()
    });
    let cost = || prop_oneof![4 => Just(1_u64), 2 => 1..45_u64];
    let spent = prop::collection::vec(cost(), 0..12);
    (rule, spent, cost()).prop_map(|(rule, spent, asked)| {
        let mut state = None;
        for cost in spent {
            rule.step(&mut state, NOON, Cost::new(cost).unwrap());
        }
        let asked = Cost::new(asked).unwrap();
        rule.step(&mut state, NOON, asked).decision()
    })
}

/// Returns the limit, the remaining units and the reset in a format that reports one limit. The
/// reset is in seconds from noon.
fn single_limit(headers: &HeaderMap, format: Headers) -> [u64; 3] {
    let text = |name: &str| headers[name].to_str().unwrap();
    let read = |name: &str| text(name).parse().unwrap();
    match format {
        Headers::Draft07 => {
            let numbers = text("ratelimit").split(", ");
            let numbers = numbers.map(|number| number.split_once('=').unwrap().1.parse().unwrap());
            numbers.collect::<Vec<_>>().try_into().unwrap()
        }
        Headers::Draft06 => ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"].map(read),
        _ => {
            let [limit, remaining, reset] = [
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
            ]
            .map(read);
            let noon = NOON.as_nanos() / 1_000_000_000;
            let from = if format == Headers::Legacy { noon } else { 0 };
            [limit, remaining, reset - from]
        }
    }
}

/// Clients such as Octokit sleep until then.
#[test]
fn the_reset_of_a_single_limit_is_when_its_quota_is_full_again() {
    let others = [
        "token-bucket 100/1m initial=200",
        "token-bucket 100/1m initial=10",
        "token-bucket 60/1m burst=20 initial=0 keep=10m",
        "token-bucket 100/1m keep-free=20 initial=150",
        "token-bucket 100/1m initial=200 & fixed-window 1000/1s",
        "warm-up 200/s over=1h",
        "warm-up-spaced 2/s over=1h max-wait=3s",
    ];
    for text in RULES.iter().chain(&others) {
        let rule: AnyRule = text.parse().unwrap();
        let mut state = None;
        let refusal = loop {
            let units = rule.look(state.as_ref(), NOON).remaining().unwrap();
            let cost = Cost::new(units).unwrap_or(Cost::ONE);
            let decision = rule.step(&mut state, NOON, cost).decision();
            if units == 0 {
                break decision;
            }
        };
        let remaining = |seconds| {
            let at = NOON.saturating_add(secs(seconds));
            rule.look(state.as_ref(), at).remaining().unwrap()
        };
        // An idle warm-up cools: it has most in the next second.
        let full = match text.starts_with("warm-up ") {
            true => remaining(1),
            false => refusal.limit().unwrap(),
        };
        for format in [
            Headers::Draft07,
            Headers::Draft06,
            Headers::Legacy,
            Headers::LegacyDelta,
        ] {
            let [.., reset] = single_limit(&admitted(format, one(refusal)), format);
            assert_eq!(remaining(reset), full, "{text}: {reset} s");
            let is_late = others.contains(text) && remaining(reset - 1) == full;
            assert!(!is_late, "{text}: {reset} s");
        }
    }
}

/// Returns the decisions of which a format for one limit may report any: the refusals that last
/// longest, or else the admissions; of these, those that leave least; of these, those that end
/// last. Each step leaves out what another one beats.
fn reportable(decisions: &[Decision]) -> Vec<Decision> {
    fn keep(all: &mut Vec<Decision>, is_beaten: impl Fn(&Decision, &Decision) -> bool) {
        let others = all.clone();
        all.retain(|one| !others.iter().any(|other| is_beaten(one, other)));
    }
    let mut all = decisions.to_vec();
    keep(&mut all, |one, other| {
        one.is_admitted() && !other.is_admitted()
    });
    if !all[0].is_admitted() {
        keep(&mut all, |one, other| {
            match (one.retry_after(), other.retry_after()) {
                (Some(_), None) => true,
                (Some(one), Some(other)) => one < other,
                (None, _) => false,
            }
        });
    }
    keep(&mut all, |one, other| other.leaves_less_than(one));
    keep(&mut all, |one, other| {
        one.reset_after() < other.reset_after()
    });
    all
}

/// Returns whole seconds, rounded up.
fn rounded_up(wait: Duration) -> u64 {
    wait.as_nanos().div_ceil(1_000_000_000) as u64
}

/// Returns the members of a field's lists: names and integers.
fn members(headers: &HeaderMap, field: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let joined: Vec<_> = headers
        .get_all(field)
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect();
    let list: sfv::List = sfv::Parser::new(&joined.join(", ")).parse().unwrap();
    let member = |entry: sfv::ListEntry| {
        let sfv::ListEntry::Item(item) = entry else {
            panic!("an inner list")
        };
        let name = item.bare_item.as_string().unwrap().as_str().to_owned();
        let numbers = item
            .params
            .iter()
            .map(|(key, value)| (key.to_string(), value.as_integer().unwrap().into()));
        (name, numbers.collect())
    };
    list.into_iter().map(member).collect()
}

fn number(members: &[(String, i64)], key: &str) -> Option<u64> {
    members
        .iter()
        .find(|(name, _)| name == key)
        .map(|(_, number)| u64::try_from(*number).unwrap())
}

proptest! {
    /// Clients that retry by the reset, such as Octokit, must not be refused again.
    #[test]
    fn the_reset_of_a_single_limit_is_never_before_the_retry(
        decisions in prop::collection::vec(decision_of_a_rule(), 2..=3),
    ) {
        let mut all = Outcome::new();
        for (policy, decision) in ["a", "b", "c"].iter().zip(&decisions) {
            all.push(Policy::new(policy), *decision);
        }
        let is_admitted = all.is_admitted();
        let single = [Headers::Draft07, Headers::Draft06, Headers::Legacy, Headers::LegacyDelta];
        for format in single {
            let headers = if is_admitted {
                admitted(format, all.clone())
            } else {
                let respond = Http::new().headers(format);
                let res = refuse(&respond, Request::new(()), Refusal::new(all.clone()));
                res.headers().clone()
            };
            let shown = single_limit(&headers, format);
            let of = |one: &Decision| {
                let (limit, remaining) = (one.announced_limit(), one.remaining());
                [limit.unwrap(), remaining.unwrap(), rounded_up(one.reset_after())]
            };
            let reportable = reportable(&decisions);
            prop_assert!(reportable.iter().any(|one| of(one) == shown), "{shown:?} of {decisions:?}");
            if let Some(retry) = headers.get("retry-after") {
                let retry: u64 = retry.to_str().unwrap().parse().unwrap();
                prop_assert!(shown[2] >= retry, "{shown:?} before {retry} of {decisions:?}");
            }
        }
    }

    #[test]
    fn no_field_promises_more_than_the_rate(name in "[ -~]{1,128}", decision in any_decision()) {
        let outcome_of_one = outcome([(name.as_str(), decision)]);
        let headers = if decision.is_admitted() {
            admitted(Headers::Draft, outcome_of_one)
        } else {
            let res = refuse_http(Refusal::new(outcome_of_one));
            let body: Value = serde_json::from_str(res.body()).unwrap();
            prop_assert_eq!(&body["violated-policies"], &json!([name]));
            res.headers().clone()
        };
        let [(told_name, rate_limit_field)] = members(&headers, "ratelimit").try_into().unwrap();
        prop_assert_eq!(&told_name, &name);
        let r = number(&rate_limit_field, "r").unwrap();
        prop_assert!(r <= decision.remaining().unwrap());
        let t = number(&rate_limit_field, "t");
        if let Some(t) = t {
            let quota = decision.quota().unwrap();
            let used = u128::from(r) * u128::from(quota.period_nanos());
            let granted = u128::from(t) * u128::from(quota.amount()) * 1_000_000_000;
            prop_assert!(t >= 1 && used <= granted);
        }
        prop_assert_eq!(t.is_none(), decision.retry_after().is_none());

        let [(told_name, policy)] = members(&headers, "ratelimit-policy").try_into().unwrap();
        prop_assert_eq!(&told_name, &name);
        prop_assert_eq!(number(&policy, "q"), decision.limit());
        prop_assert!(number(&policy, "w").is_none_or(|window| window >= 1));

        if !decision.is_admitted() {
            let retry = headers.get("retry-after").map(|value| value.to_str().unwrap().parse::<u64>().unwrap());
            prop_assert_eq!(retry, t);
            prop_assert!(retry.is_none_or(|seconds| seconds >= 1));
        }
    }

    #[test]
    fn grpc_details_parse_with_another_implementation(
        names in prop::collection::vec("[ -~]{1,128}", 1..4),
        wait in prop::option::of(any_wait()),
    ) {
        let mut outcome = Outcome::new();
        for name in &names {
            outcome.push(Policy::new(name), refused(wait));
        }
        let refusal = Refusal::new(outcome);
        let message = refusal.to_string();
        let res = refuse(&Grpc::new(), Request::new(()), refusal);
        let status = tonic::Status::from_header_map(res.headers()).unwrap();
        prop_assert_eq!(status.message(), message);
        let failure = status.get_details_quota_failure().unwrap();
        let subjects: Vec<_> = failure.violations.into_iter().map(|violation| violation.subject).collect();
        prop_assert_eq!(subjects, names);
        let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
        prop_assert_eq!(delay, wait.filter(|wait| *wait <= secs(315_576_000_000)));
    }
}

// § pk: the partition key

/// Returns the `pk` of each member of a field.
fn partitions(headers: &HeaderMap, field: &str) -> Vec<Option<Vec<u8>>> {
    let list: sfv::List = sfv::Parser::new(headers[field].to_str().unwrap())
        .parse()
        .unwrap();
    let partition = |entry: sfv::ListEntry| {
        let sfv::ListEntry::Item(item) = entry else {
            panic!("an inner list")
        };
        let partition = item.params.iter().find(|(key, _)| key.as_str() == "pk");
        partition.map(|(_, value)| value.as_byte_sequence().unwrap().to_vec())
    };
    list.into_iter().map(partition).collect()
}

/// Returns the responses of a layer with two limits. The first limit may send partition keys.
async fn responses_to<R>(
    policy: Policy,
    rule: R,
    headers: Headers,
    client: &str,
) -> [Response<String>; 2]
where
    R: Algorithm,
{
    let key = || Header::new("x-api-key");
    let layer = RateLimitLayer::new(rule.clone())
        .policy(policy)
        .key(key())
        .also(Limit::new(rule).named("other").key(key()))
        .respond(Http::new().headers(headers));
    let service = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    let call = || {
        let request = Request::builder().header("x-api-key", client);
        service.clone().oneshot(request.body(()).unwrap())
    };
    [call().await.unwrap(), call().await.unwrap()]
}

#[tokio::test]
async fn a_partition_key_is_sent_only_if_enabled_and_identifies_nobody() {
    let secret = || Policy::new("api").with_partition_key(b"secret");
    let once = || TokenBucket::per_hour(1);
    let partition_key = async |policy, client| {
        let responses = responses_to(policy, once(), Headers::Draft, client).await;
        // Admitted and refused alike, in both fields, only the one limit that sends it.
        let all = responses.iter().flat_map(|response| {
            ["ratelimit", "ratelimit-policy"].map(|field| {
                let all = partitions(response.headers(), field);
                assert_eq!(all.len(), 2);
                let mut keys = all.into_iter().flatten();
                (keys.next(), keys.next())
            })
        });
        let all: Vec<_> = all.collect();
        assert!(all.iter().all(|keys| *keys == all[0]), "{all:?}");
        assert_eq!(all[0].1, None);
        all[0].0.clone()
    };
    let ann = partition_key(secret(), "ann").await.unwrap();
    assert_eq!(ann.len(), 16);
    assert_eq!(partition_key(secret(), "ann").await, Some(ann.clone()));
    assert_ne!(partition_key(secret(), "bob").await, Some(ann.clone()));
    let another = Policy::new("api").with_partition_key(b"another");
    assert_ne!(partition_key(another, "ann").await, Some(ann.clone()));
    assert_eq!(partition_key(Policy::new("api"), "ann").await, None);

    // The keyed digest of the key's kind, length and content.
    let mut input = vec![2, 3];
    input.extend_from_slice(b"ann");
    let secret_digest = *blake3::hash(b"secret").as_bytes();
    let digest = blake3::keyed_hash(&secret_digest, &input);
    assert_eq!(ann, digest.as_bytes()[..16]);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_partition_key_is_sent_after_a_delay_and_in_no_legacy_format() {
    let policy = || Policy::new("api").with_partition_key(b"secret");
    let rule: tollgate::AnyRule = "leaky-bucket 50/s queue=5".parse().unwrap();
    let [first, second] = responses_to(policy(), rule.clone(), Headers::Draft, "ann").await;
    for response in [&first, &second] {
        assert_eq!(response.status(), StatusCode::OK);
        let keys = partitions(response.headers(), "ratelimit");
        assert_eq!(keys.iter().flatten().count(), 1, "{keys:?}");
    }
    for headers in [Headers::Draft07, Headers::Draft06, Headers::Legacy] {
        let [response, _] = responses_to(policy(), rule.clone(), headers, "ann").await;
        let text = lines(response.headers()).join("\n");
        assert!(
            text.contains("ratelimit") && !text.contains("pk="),
            "{text}"
        );
    }
}
