//! The answers to requests, and the settings that change them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use tollgate::{
    key::{
        Key,
        introspect::{Claims, Introspect, Introspected, Token},
    },
    time::ManualClock,
};
use tower::{BoxError, Layer, ServiceExt, service_fn};

use crate::introspect::subject::{around, ask, with_token};

async fn only_ann(token: Token) -> Result<Option<Claims>, BoxError> {
    match token.expose() {
        "ann" => Ok(Some(Claims::new().with_subject("ann"))),
        "down" => Err("down".into()),
        _ => Ok(None),
    }
}

#[tokio::test(flavor = "current_thread")]
async fn each_kind_of_request_has_its_answer() {
    const INVALID: Option<&str> = Some(r#"Bearer error="invalid_token""#);
    const MISSING: Option<&str> = Some("Bearer");
    let long = format!("Bearer {}", "a".repeat(8193));
    let longest = format!("Bearer {}", "a".repeat(8192));
    // The lines of `Authorization`, the status, and the challenge.
    let cases: [(&[&[u8]], u16, Option<&str>); 15] = [
        (&[b"Bearer ann"], 200, None),
        (&[b"bearer  ann"], 200, None),
        (&[b"Bearer eve"], 401, INVALID),
        (&[b"Bearer down"], 503, None),
        (&[], 401, MISSING),
        (&[b"Basic YW5uOmFubg=="], 401, MISSING),
        (&[b"Bearerann"], 401, MISSING),
        (&[b"Bearer"], 401, INVALID),
        (&[b"Bearer "], 401, INVALID),
        (&[b"Bearer a b"], 401, INVALID),
        (&[b"Bearer \xff"], 401, INVALID),
        (&[b"Bearer ann", b"Bearer ann"], 401, INVALID),
        (&[b"Basic YQ==", b"Bearer ann"], 401, INVALID),
        (&[long.as_bytes()], 401, INVALID),
        (&[longest.as_bytes()], 401, INVALID),
    ];
    for anonymous in [false, true] {
        let builder = Introspect::builder(only_ann);
        let builder = if anonymous {
            builder.allow_anonymous()
        } else {
            builder
        };
        let layer = builder.build().unwrap();
        let subject = around(&layer);
        for (lines, status, challenge) in cases {
            let what = format!("{lines:?}");
            let mut request = Request::new(());
            for line in lines {
                let value = http::HeaderValue::from_bytes(line).unwrap();
                request.headers_mut().append("authorization", value);
            }
            let response = subject.clone().oneshot(request).await.unwrap();
            let got = response.headers().get("www-authenticate").cloned();
            if anonymous && challenge == MISSING {
                assert_eq!((response.status().as_u16(), got), (200, None), "{what}");
                assert_eq!(response.body(), "anonymous");
                continue;
            }
            let got = got.as_ref().map(|value| value.to_str().unwrap());
            assert_eq!(
                (response.status().as_u16(), got),
                (status, challenge),
                "{what}"
            );
            let retry = response.headers().get("retry-after").is_some();
            assert_eq!(retry, status == 503, "{what}");
            if status != 200 {
                assert_eq!(response.headers()["cache-control"], "no-store");
                assert_eq!(
                    response.headers()["content-type"],
                    "application/problem+json"
                );
            }
        }
        let stats = layer.stats();
        assert_eq!((stats.anonymous, stats.malformed), (3, 7), "{stats:?}");
        assert_eq!((stats.inactive, stats.unavailable, stats.failed), (2, 1, 1));
        // One of the 8192 bytes is looked up, the longer one is not.
        assert_eq!((stats.lookups, stats.hits), (4, 1));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_outage_is_answered_as_chosen() {
    let down = Arc::new(AtomicBool::new(false));
    for (stale, open, answers) in [
        (0, false, ["ann", "503", "503", "503"]),
        (0, true, ["ann", "unchecked", "unchecked", "unchecked"]),
        (60, false, ["ann", "ann stale", "503", "503"]),
        (60, true, ["ann", "ann stale", "unchecked", "unchecked"]),
    ] {
        let clock = ManualClock::default();
        down.store(false, Ordering::SeqCst);
        let is_down = Arc::clone(&down);
        let look_up = move |token: Token| {
            let is_down = is_down.load(Ordering::SeqCst);
            async move {
                match is_down {
                    true => Err(BoxError::from("down")),
                    false => Ok(Some(Claims::new().with_subject(token.expose()))),
                }
            }
        };
        let builder = Introspect::builder(look_up)
            .max_age(Duration::from_secs(10))
            .serve_stale(Duration::from_secs(stale))
            .retry_after(Duration::from_millis(2_500))
            .clock(clock.clone());
        let builder = if open { builder.fail_open() } else { builder };
        let layer = builder.build().unwrap();
        let subject = around(&layer);
        let mut got = vec![ask(&subject, "ann").await];
        down.store(true, Ordering::SeqCst);
        clock.advance(Duration::from_secs(10));
        got.push(ask(&subject, "ann").await);
        clock.advance(Duration::from_secs(60));
        got.push(ask(&subject, "ann").await);
        got.push(ask(&subject, "bob").await);
        assert_eq!(got, answers);
        if !open {
            let response = subject.clone().oneshot(with_token("bob")).await.unwrap();
            // Rounded up.
            assert_eq!(response.headers()["retry-after"], "3");
        }
        down.store(false, Ordering::SeqCst);
        clock.advance(Duration::from_secs(3));
        assert_eq!(ask(&subject, "ann").await, "ann");
        assert_eq!(layer.stats().stale, u64::from(stale > 0));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn keys_are_equal_for_equal_subjects_only() {
    let look_up = async |token: Token| -> Result<Option<Claims>, BoxError> {
        let claims = Claims::new();
        Ok(Some(match token.expose().split_once('-').unwrap() {
            ("user", name) => claims.with_subject(&name[..1]).with_client_id("app"),
            ("client", name) => claims.with_client_id(name),
            _ => claims,
        }))
    };
    let layer = Introspect::new(look_up);
    let key = async |token: &str| -> Option<Key> {
        let inner = service_fn(|request: Request<()>| async move {
            let key = request.extensions().get::<Introspected>().unwrap().key();
            Ok::<_, std::convert::Infallible>(Response::new(format!(
                "{:?}",
                key.map(|key| key.labelled())
            )))
            .map(|mut response: Response<String>| {
                response.extensions_mut().insert(key);
                response
            })
        });
        let response = layer.layer(inner).oneshot(with_token(token)).await.unwrap();
        *response.extensions().get::<Option<Key>>().unwrap()
    };
    let ann = key("user-a1").await;
    assert!(ann.is_some());
    assert_eq!(ann, key("user-a2").await);
    let others = ["user-b1", "client-a", "client-b", "none-1", "none-2"];
    let mut keys = vec![ann];
    for token in others {
        let key = key(token).await;
        assert!(key.is_some() && !keys.contains(&key), "{token}");
        keys.push(key);
    }
    assert_eq!(key("none-1").await, keys[4]);
}

#[test]
fn settings_out_of_range_are_one_clear_error_each() {
    let builder = || Introspect::builder(only_ann);
    let day = Duration::from_secs(86_401);
    let zero = Duration::ZERO;
    for (name, result) in [
        ("max_age", builder().max_age(zero).build()),
        ("max_age", builder().max_age(day).build()),
        ("inactive_age", builder().inactive_age(zero).build()),
        ("serve_stale", builder().serve_stale(day).build()),
        ("deadline", builder().deadline(zero).build()),
        ("retry_after", builder().retry_after(zero).build()),
        ("capacity", builder().capacity(0).build()),
        ("capacity", builder().capacity(usize::MAX).build()),
        ("max_lookups", builder().max_lookups(0).build()),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`{name}` of an introspection layer is ")),
            "{error}"
        );
        assert!(
            error.contains(": expected ") && error.contains("; pass "),
            "{error}"
        );
    }
}
