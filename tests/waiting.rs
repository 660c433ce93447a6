//! A rule that delays requests means the same in every build. Without a runtime to hold requests,
//! no layer accepts such a rule.
//!
//! Also run with each framework alone:
//! `cargo test --no-default-features --features axum --test waiting`.

use std::convert::Infallible;

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::{
    AnyRule, LeakyBucket, Limit, Policy, RateLimitLayer, TokenBucket, algorithm::Algorithm,
    key::Key, store::Local,
};
use tower::{Layer, Service, service_fn};

/// Rules that delay the second request of an hour.
const DELAYING: [&str; 4] = [
    "leaky-bucket 1/1h",
    "leaky-bucket 10/10h queue=1 max-wait=2h",
    "warm-up-spaced 1/1h over=10h",
    "token-bucket 100/1h & leaky-bucket 1/1h",
];

/// Rules that never delay.
const PROMPT: [&str; 9] = [
    "token-bucket 1/1h",
    "leaky-bucket 1/1h queue=0",
    "fixed-window 1/1h",
    "sliding-window 1/1h",
    "sliding-log 1/1h",
    "warm-up 3/1s",
    "cascade 1/1h > 2/1h",
    "three-color 1/1h peak=2/1h",
    "token-bucket 1/1h & fixed-window 1/1h",
];

fn rule(text: &str) -> AnyRule {
    text.parse().unwrap()
}

async fn hello(_: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("hello".into()))
}

#[test]
fn rules_that_never_delay_are_accepted_in_every_build() {
    for text in PROMPT {
        assert!(!rule(text).may_delay(), "{text}");
        assert!(RateLimitLayer::try_new(rule(text)).is_ok(), "{text}");
        assert!(Limit::try_new(rule(text)).is_ok(), "{text}");
        assert!(
            !(TokenBucket::per_second(1), rule(text)).may_delay(),
            "{text}"
        );
    }
}

#[cfg(any(feature = "axum", feature = "tonic", feature = "tokio"))]
#[tokio::test(start_paused = true)]
async fn delayed_requests_are_held_with_any_framework() {
    for text in DELAYING {
        assert!(rule(text).may_delay(), "{text}");
        assert!(
            (TokenBucket::per_second(1), rule(text)).may_delay(),
            "{text}"
        );
        let mut service = RateLimitLayer::new(rule(text)).layer(service_fn(hello));
        let begun = tokio::time::Instant::now();
        for _ in 0..2 {
            let response = service.call(Request::new(())).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{text}");
        }
        assert!(begun.elapsed().as_secs() > 3000, "{text}");
    }
}

#[cfg(not(any(feature = "axum", feature = "tonic", feature = "tokio")))]
#[test]
fn without_a_runtime_a_rule_that_delays_is_refused_when_its_layer_is_built() {
    for text in DELAYING {
        assert!(rule(text).may_delay(), "{text}");
        let live = tollgate::LiveRule::new(rule("token-bucket 1/1h"));
        let limit = Limit::live(&live);
        let refused = live.set(rule(text)).err();
        drop(limit);
        // A limiter leaves the wait to its caller, and a limit finds that it begins with such a
        // rule.
        live.set(rule(text)).unwrap();
        let errors = [
            refused,
            Limit::try_live(&live).err(),
            RateLimitLayer::try_new(rule(text)).err(),
            Limit::try_new(rule(text)).err(),
            RateLimitLayer::try_new((TokenBucket::per_second(1), rule(text))).err(),
        ];
        for error in errors {
            let message = error.expect(text).to_string();
            for word in ["delays requests", "feature `tokio`", "enable it", "queue=0"] {
                assert!(message.contains(word), "{text}: {message}");
            }
        }
        let built = std::panic::catch_unwind(|| RateLimitLayer::new(rule(text)));
        assert!(built.is_err(), "{text}");
    }
}

/// A rule made for a request is unknown when the layer is built, and a program built with a runtime
/// may run outside it.
#[test]
fn outside_of_a_runtime_a_delay_is_a_refusal_that_charges_nothing() {
    let waiting = LeakyBucket::per_hour(1);
    let store = Local::new();
    let mut service = RateLimitLayer::new(waiting.queue(0))
        .rule(move |_: &Request<()>| Some(waiting))
        .store(store.clone())
        .layer(service_fn(hello));
    let mut send = || {
        let response = service.call(Request::new(())).now_or_never();
        response.expect("an answer at once").unwrap()
    };
    assert_eq!(send().status(), StatusCode::OK);
    for _ in 0..5 {
        let refused = send();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let wait: u64 = refused.headers()["retry-after"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!((3500..=3600).contains(&wait), "{wait}");
    }
    let look = store.look(&Policy::default(), &waiting, &Key::GLOBAL);
    assert_eq!(look.remaining(), Some(1), "the second position is free");
}
