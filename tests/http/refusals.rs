//! Properties of every refusal: for any combination of asks, any cause, and any responder.

use std::{
    collections::HashSet, convert::Infallible, error::Error, num::NonZeroU64, time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use proptest::prelude::*;
use tollgate::{
    Decision, Outcome, Policy, Quota, Timestamp, Verdict,
    key::{
        Extension, Forwarded, ForwardedFor, Header, Key, KeyExtractor, KeyExtractorExt, MissingKey,
        PeerIp,
    },
    respond::{AsError, Cause, Grpc, Headers, Http, Refusal, Refused, Respond},
};
use tonic_types::StatusExt as _;
use tower::BoxError;

const METHODS: [&str; 10] = [
    "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE", "PURGE",
];

/// Content types, and whether they belong to gRPC.
const CONTENT_TYPES: [(Option<&str>, bool); 8] = [
    (None, false),
    (Some("application/json"), false),
    (Some("application/grpcs"), false),
    (Some("application/grpc"), true),
    (Some("application/grpc+proto"), true),
    (Some("Application/GRPC; charset=utf-8"), true),
    (Some("application/grpc-web+proto"), true),
    (Some("application/grpc-web-text"), true),
];

fn of(decision: Decision) -> Refusal {
    let mut outcome = Outcome::new();
    outcome.push(Policy::new("api"), decision);
    Refusal::new(outcome)
}

fn refused(wait: Option<Duration>) -> Decision {
    Decision::new(Verdict::Refuse, Timestamp::default(), 1)
        .with_limit(NonZeroU64::MIN, Quota::per_minute(1))
        .with_remaining(0)
        .with_retry_after(wait)
}

fn undecided(wait: Option<Duration>) -> Decision {
    Decision::undecided(false, Timestamp::default(), wait)
}

fn unsupported() -> Decision {
    Decision::unsupported(Timestamp::default())
}

fn two(first: Decision, second: Decision) -> Refusal {
    let mut outcome = Outcome::new();
    outcome.push(Policy::new("api"), first);
    outcome.push(Policy::new("daily"), second);
    Refusal::new(outcome)
}

/// Returns the kinds of refusals, each with its status over HTTP and its code over gRPC.
fn kinds() -> Vec<(Refusal, u16, &'static str)> {
    let wait = Some(Duration::from_secs(60));
    let status = |status| {
        let missing = MissingKey::new("no key").with_status(StatusCode::from_u16(status).unwrap());
        Refusal::missing(missing)
    };
    let bearer = MissingKey::new("no token").with_challenge("Bearer");
    vec![
        (of(refused(wait)), 429, "8"),
        (of(refused(None)), 429, "8"),
        (of(undecided(wait)), 503, "14"),
        (of(undecided(None)), 503, "14"),
        (of(unsupported()), 500, "13"),
        (two(refused(wait), unsupported()), 500, "13"),
        (two(unsupported(), refused(None)), 500, "13"),
        (Refusal::missing(MissingKey::new("no key")), 400, "3"),
        (Refusal::missing(bearer), 401, "16"),
        (
            Refusal::missing(MissingKey::misconfigured("no peer")),
            500,
            "13",
        ),
        (status(403), 403, "7"),
        // Responses that caches may store by default (RFC 9110 §15.1).
        (status(404), 404, "3"),
        (status(410), 410, "3"),
        (status(301), 301, "3"),
        (status(200), 200, "3"),
        (status(502), 502, "13"),
    ]
}

type Answer = Box<dyn Fn(Request<()>, Refusal) -> Response<String>>;

fn answer<R>(respond: R) -> Answer
where
    R: Respond<Request<()>, Response<String>, Infallible> + 'static,
{
    Box::new(move |request, refusal| {
        let answer = respond.refuse(request, refusal);
        answer.unwrap_or_else(|never| match never {})
    })
}

/// Returns all responders over HTTP, and whether they always answer as gRPC.
fn responders() -> Vec<(&'static str, Answer, bool)> {
    vec![
        ("problem", answer(Http::new()), false),
        (
            "problem, no headers",
            answer(Http::new().headers(Headers::None).outcome(false)),
            false,
        ),
        (
            "jitter",
            answer(Http::new().retry_jitter(Duration::from_secs(9))),
            false,
        ),
        ("empty", answer(Http::empty()), false),
        (
            "words",
            answer(Http::body(|refusal, _| refusal.to_string())),
            false,
        ),
        (
            "a cacheable text response",
            answer(Http::body(|refusal, parts| {
                let public = HeaderValue::from_static("public, max-age=3600");
                parts.headers.insert("cache-control", public);
                refusal.to_string()
            })),
            false,
        ),
        ("gRPC", answer(Grpc::new()), true),
        (
            "gRPC, no headers",
            answer(Grpc::new().headers(Headers::None)),
            true,
        ),
    ]
}

fn request(method: &str, content_type: Option<&'static str>) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    if let Some(content_type) = content_type {
        let value = HeaderValue::from_static(content_type);
        request.headers_mut().insert("content-type", value);
    }
    request
}

/// Calls `see` for every request, refusal and responder with: their names, whether the response
/// must be gRPC, its status over HTTP, its code over gRPC, and the response.
fn all(mut see: impl FnMut(&str, bool, u16, &str, &Response<String>)) {
    for (name, respond, always_grpc) in responders() {
        for method in METHODS {
            for (content_type, is_grpc) in CONTENT_TYPES {
                for (refusal, status, code) in kinds() {
                    let what = format!("{name}: {method} {content_type:?}, {refusal}");
                    let request = request(method, content_type);
                    let speaks = always_grpc || (is_grpc && method == "POST");
                    see(&what, speaks, status, code, &respond(request, refusal));
                }
            }
        }
    }
}

#[test]
fn every_refusal_forbids_storing_it() {
    all(|what, _, _, _, answer| {
        let retry_info: Vec<_> = answer.headers().get_all("cache-control").iter().collect();
        assert_eq!(retry_info, ["no-store"], "{what}");
    });
}

/// An unsupported call has no retry time and no numbers.
#[test]
fn an_unsupported_call_is_refused_without_numbers() {
    for (name, respond, _) in responders() {
        for (content_type, _) in CONTENT_TYPES {
            for refusal in [
                of(unsupported()),
                two(refused(Some(Duration::from_secs(60))), unsupported()),
                two(unsupported(), refused(None)),
            ] {
                assert_eq!(refusal.retry_after(), None);
                let answer = respond(request("POST", content_type), refusal);
                for field in [
                    "retry-after",
                    "ratelimit",
                    "ratelimit-policy",
                    "grpc-retry-pushback-ms",
                    "grpc-status-details-bin",
                ] {
                    let retry_info = answer.headers().get(field);
                    assert!(
                        retry_info.is_none(),
                        "{name}, {content_type:?}: {field}: {retry_info:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn only_post_requests_are_answered_as_grpc() {
    all(|what, speaks, status, code, answer| {
        let retry_info = answer.headers().get("grpc-status");
        if speaks {
            assert_eq!(answer.status(), 200, "{what}");
            assert_eq!(retry_info.unwrap(), code, "{what}");
            assert_eq!(answer.body(), "", "{what}");
        } else {
            assert_eq!(answer.status(), status, "{what}");
            assert!(retry_info.is_none(), "{what}");
        }
    });
}

/// Returns the texts of an error and of its causes.
fn words(error: &(dyn Error + 'static)) -> String {
    let (mut words, mut cause) = (String::new(), Some(error));
    while let Some(error) = cause {
        words += &format!("{error} {error:?} {error:#?} ");
        cause = error.source();
    }
    words
}

/// Returns a body with everything that a refusal can format.
fn talkative(refusal: &Refusal) -> String {
    let mut body = format!("{refusal} {refusal:?} {refusal:#?} {:?}", refusal.outcome());
    body += &format!("{:?} {:?}", refusal.cause(), refusal.help());
    if let Cause::MissingKey(missing) = refusal.cause() {
        body += &words(missing);
        body += &format!("{} {:?}", missing.detail(), missing.challenge());
    }
    let refused = Refused::from(refusal.clone());
    body + &words(&refused)
}

/// Returns everything that a client can read of a response, decoded.
fn readable(answer: &Response<String>) -> String {
    let mut all = format!("{} {}", answer.status(), answer.body());
    for (name, value) in answer.headers() {
        let value = value.to_str().unwrap();
        all += &format!("\n{name}: {value}\n");
        if let Ok(bytes) = STANDARD_NO_PAD.decode(value) {
            all += &String::from_utf8_lossy(&bytes);
        }
    }
    if let Some(status) = tonic::Status::from_header_map(answer.headers()) {
        all += &format!("{status:?}");
    }
    all
}

/// Returns requests that fail by the server's fault: the help for its operator, and the refusal.
fn faults_of_the_server() -> Vec<(String, Refusal)> {
    struct Plan;
    fn of(key: impl KeyExtractor<Request<()>>) -> MissingKey {
        key.extract(&Request::new(())).unwrap_err()
    }
    let plan = || Extension::new(|_: &Plan| Key::GLOBAL);
    let secret =
        || MissingKey::misconfigured("set PLAN_SERVICE_URL to http://10.1.2.3:8080".to_owned());
    let missing = vec![
        of(PeerIp::new()),
        of(ForwardedFor::hops(1)),
        of(ForwardedFor::try_trusting(["10.0.0.0/8"]).unwrap()),
        of(Forwarded::hops(1)),
        of(plan()),
        of(plan().tagged("plan")),
        of((Header::new("x-api-key").or_shared("nobody"), PeerIp::new())),
        of(PeerIp::new().or_refuse(StatusCode::NOT_FOUND)),
        of(PeerIp::new().tagged("peer").labelled()),
        of(move |_: &Request<()>| Err::<Key, _>(secret())),
        secret().with_challenge("Bearer"),
        secret().with_status(StatusCode::BAD_REQUEST),
    ];
    let mut refusals: Vec<_> = missing.into_iter().map(Refusal::missing).collect();
    refusals.extend([
        two(undecided(None), unsupported()),
        two(unsupported(), undecided(None)),
    ]);
    let faults = refusals.into_iter().map(|refusal| {
        let help = refusal.help().unwrap().expose_to_operator().to_owned();
        (help, refusal)
    });
    faults.collect()
}

/// Panics if `text` contains a meaningful part of `help`.
fn assert_no_part_of(help: &str, text: &str, what: &str) {
    let read: HashSet<&[u8]> = text.as_bytes().windows(10).collect();
    let mut parts = help.as_bytes().windows(10);
    let leaked = parts.find(|part| read.contains(part));
    let leaked = leaked.map(String::from_utf8_lossy);
    assert!(
        leaked.is_none(),
        "{what}: {leaked:?} of `{help}` in\n{text}"
    );
}

#[test]
fn no_client_can_read_help_for_the_operator() {
    let mut responders = responders();
    let talk = Http::body(|refusal, _| talkative(refusal));
    responders.push(("all formats of a refusal", answer(talk), false));
    for (help, refusal) in faults_of_the_server() {
        for (name, respond, _) in &responders {
            for method in ["GET", "HEAD", "POST"] {
                for (content_type, _) in CONTENT_TYPES {
                    let request = request(method, content_type);
                    let answer = respond(request, refusal.clone());
                    let what = format!("{name}: {method} {content_type:?}");
                    assert_no_part_of(&help, &readable(&answer), &what);
                }
            }
        }
        let as_error: Result<(), BoxError> = AsError.refuse((), refusal);
        let error = as_error.unwrap_err();
        assert_no_part_of(&help, &words(&*error), "as an error");
        let refused = error.downcast_ref::<Refused>().unwrap();
        let still = refused.refusal().help().unwrap();
        assert_eq!(still.expose_to_operator(), help);
    }
}

/// The rejection that a handler gets if it is below no layer.
#[cfg(feature = "axum")]
#[tokio::test]
async fn no_client_can_read_that_a_layer_is_missing() {
    use axum::{extract::FromRequestParts, response::IntoResponse};

    let (mut parts, ()) = Request::new(()).into_parts();
    let rejection = Outcome::from_request_parts(&mut parts, &())
        .await
        .unwrap_err();
    let help = rejection.help();
    let help = help.expose_to_operator();
    assert!(help.contains("RateLimitLayer"), "{help}");
    assert_no_part_of(help, &words(&rejection), "as an error");
    let (parts, body) = rejection.into_response().into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let body = String::from_utf8_lossy(&body).into_owned();
    let answer = Response::from_parts(parts, body);
    assert_no_part_of(help, &readable(&answer), "as an answer");
}

/// The longest waits that `grpc-retry-pushback-ms` and `RetryInfo` can hold.
const PUSHBACK: Duration = Duration::from_millis(i32::MAX as u64);
const RETRY_INFO: Duration = Duration::from_secs(315_576_000_000);

/// Generates waits around the longest ones that the fields can hold, and any others.
fn waits() -> impl Strategy<Value = Duration> {
    let near = |longest: Duration| {
        (0..3_000_000_u64, any::<bool>()).prop_map(move |(nanos, above)| {
            let distance = Duration::from_nanos(nanos);
            if above {
                longest + distance
            } else {
                longest - distance
            }
        })
    };
    prop_oneof![
        any::<u64>().prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_secs),
        near(PUSHBACK),
        near(RETRY_INFO),
        Just(PUSHBACK),
        Just(RETRY_INFO),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
}

proptest! {
    /// A client that obeys either field is never early.
    #[test]
    fn a_wait_is_sent_in_full_over_grpc_or_not_at_all(wait in waits(), is_limit: bool, by_http: bool) {
        let decision = if is_limit { refused(Some(wait)) } else { undecided(Some(wait)) };
        let request = request("POST", Some("application/grpc"));
        let respond = if by_http { answer(Http::new()) } else { answer(Grpc::new()) };
        let answer = respond(request, of(decision));

        let pushback = answer.headers().get("grpc-retry-pushback-ms");
        let pushback = pushback.map(|value| value.to_str().unwrap().parse::<i32>().unwrap());
        let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
        prop_assert_eq!(pushback, (wait <= PUSHBACK).then_some(millis as i32));

        let status = tonic::Status::from_header_map(answer.headers()).unwrap();
        let retry_info = status.get_details_retry_info().and_then(|info| info.retry_delay);
        prop_assert_eq!(retry_info, (wait <= RETRY_INFO).then_some(wait));
    }
}
