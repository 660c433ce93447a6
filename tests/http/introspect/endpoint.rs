//! The endpoint, against a real HTTP server.

use std::{convert::Infallible, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tollgate::{
    key::introspect::{Endpoint, Introspect},
    time::{Clock, ManualClock},
};

use crate::introspect::{
    server::{Reply, Server},
    subject::{around, ask},
};

fn json(body: &str) -> Reply {
    Reply::Full("200 OK", body.to_owned())
}

#[tokio::test(flavor = "current_thread")]
async fn a_request_conforms_with_rfc_7662() {
    let server = Server::start(json(r#"{"active":true,"sub":"ann"}"#)).await;
    let endpoint = || Endpoint::new(&server.url()).unwrap();
    for (endpoint, expected) in [
        (endpoint(), None),
        (
            endpoint().basic("the api", "s3cret:ä+/%"),
            // RFC 6749 §2.3.1: both are form-encoded first.
            Some(format!(
                "Basic {}",
                STANDARD.encode("the+api:s3cret%3A%C3%A4%2B%2F%25")
            )),
        ),
        (endpoint().basic("a", ""), Some("Basic YTo=".to_owned())),
        (
            endpoint().bearer("own.token").unwrap(),
            Some("Bearer own.token".to_owned()),
        ),
    ] {
        let layer = Introspect::new(endpoint);
        assert_eq!(ask(&around(&layer), "a+b/c=&d~e.f-g").await, "ann");
        let requests = server.take_requests();
        let [request] = &requests[..] else {
            panic!("{requests:?}")
        };
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            body,
            "token=a%2Bb%2Fc%3D%26d%7Ee.f-g&token_type_hint=access_token"
        );
        let mut lines = head.lines();
        assert_eq!(lines.next(), Some("POST /introspect HTTP/1.1"));
        let header = |name: &str| {
            let mut values = head.lines().filter_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case(name).then(|| value.to_owned())
            });
            let value = values.next();
            assert_eq!(values.next(), None, "{name} twice");
            value
        };
        assert_eq!(
            header("content-type").unwrap(),
            "application/x-www-form-urlencoded"
        );
        assert_eq!(header("accept").unwrap(), "application/json");
        assert_eq!(header("authorization"), expected);
    }
    server.stop().await;
}

#[tokio::test(flavor = "current_thread")]
async fn each_answer_of_a_server_is_read_or_a_counted_failure() {
    let server = Server::start(Reply::Close).await;
    let big = format!(
        r#"{{"active":true,"sub":"ann","pad":"{}"}}"#,
        "x".repeat(64 * 1024)
    );
    let long = format!(r#"{{"active":true,"sub":"{}"}}"#, "x".repeat(4097));
    let full = format!(
        r#"{{"active":true,"sub":"ann","pad":"{}"}}"#,
        "x".repeat(60_000)
    );
    let deep = format!(r#"{{"active":true,"pad":{}}}"#, "[".repeat(30_000));
    let page = "<html><body>Welcome</body></html>".to_owned();
    // The reply, the answer, and whether it is an answer that cannot be read.
    let cases = [
        (json(r#"{"active":true,"sub":"ann"}"#), "ann", false),
        (json(r#"{"active":true,"sub":null,"exp":null}"#), "-", false),
        (
            json(r#"{"active":true,"sub":"ann","exp":99999999999}"#),
            "ann",
            false,
        ),
        (
            json(r#"{"active":true,"sub":"ann","exp":18446744073709551615}"#),
            "ann",
            false,
        ),
        (json(r#"{"active":true,"sub":"ann","exp":1}"#), "401", false),
        (
            json(r#"{"active":true,"sub":"ann","exp":-5}"#),
            "401",
            false,
        ),
        (json(r#"{"active":false}"#), "401", false),
        (json(r#"{"active":false,"sub":7}"#), "401", false),
        (json(&full), "ann", false),
        (json(r#"{"active":"true"}"#), "503", true),
        (json(r#"{"sub":"ann"}"#), "503", true),
        (json(r#"{"active":true,"sub":7}"#), "503", true),
        (json(r#"{"active":true,"plan":["gold"]}"#), "503", true),
        (json(r#"{"active":true,"exp":"tomorrow"}"#), "503", true),
        (json(r#"{"active":true,"exp":1.5}"#), "503", true),
        (json(r#"{"active":true,"sub":"an"#), "503", true),
        (json("[]"), "503", true),
        (json(""), "503", true),
        (json(&page), "503", true),
        (json(&big), "503", true),
        (json(&long), "503", true),
        (json(&deep), "503", true),
        (Reply::Endless, "503", true),
        (
            Reply::Full("500 Internal Server Error", r#"{"active":true}"#.to_owned()),
            "503",
            false,
        ),
        (Reply::Full("200 OK", page.clone()), "503", true),
        (Reply::Full("204 No Content", String::new()), "503", true),
        (Reply::Full("302 Found", String::new()), "503", true),
        (Reply::Full("404 Not Found", page), "503", true),
        (Reply::Full("401 Unauthorized", String::new()), "503", false),
        (Reply::Full("403 Forbidden", String::new()), "503", true),
        (
            Reply::Truncated(r#"{"active":true,"sub":"ann"}"#.to_owned()),
            "503",
            false,
        ),
        (Reply::Close, "503", false),
    ];
    for (number, (reply, expected, unreadable)) in cases.into_iter().enumerate() {
        server.set(reply);
        let layer = Introspect::builder(Endpoint::new(&server.url()).unwrap())
            .deadline(Duration::from_secs(60))
            .build()
            .unwrap();
        let subject = around(&layer);
        assert_eq!(ask(&subject, "t").await, expected, "case {number}");
        let stats = layer.stats();
        assert_eq!(stats.failed, u64::from(expected == "503"), "case {number}");
        assert_eq!(
            stats.invalid_answers,
            u64::from(unreadable),
            "case {number}"
        );
        // The next answer is read: nothing is left behind.
        if expected == "503" {
            server.set(json(r#"{"active":true,"sub":"bob"}"#));
            assert_eq!(ask(&subject, "t").await, "bob", "case {number}");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_silent_server_ends_at_the_deadline() {
    let server = Server::start(Reply::Silence).await;
    let layer = Introspect::builder(Endpoint::new(&server.url()).unwrap())
        .deadline(Duration::from_millis(50))
        .build()
        .unwrap();
    assert_eq!(ask(&around(&layer), "t").await, "503");
    let stats = layer.stats();
    assert_eq!((stats.timeouts, stats.failed, stats.in_flight), (1, 1, 0));
    server.stop().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_revokes_and_then_goes_is_followed() {
    let server = Server::start(json(r#"{"active":true,"sub":"ann","plan":"gold"}"#)).await;
    let clock = ManualClock::default();
    let seconds = Duration::from_secs;
    let layer = Introspect::builder(Endpoint::new(&server.url()).unwrap())
        .max_age(seconds(30))
        .inactive_age(seconds(5))
        .serve_stale(seconds(100))
        .clock(clock.clone())
        .build()
        .unwrap();
    let subject = around(&layer);
    assert_eq!(ask(&subject, "t").await, "ann");
    server.set(json(r#"{"active":false}"#));
    clock.advance(seconds(29));
    assert_eq!(ask(&subject, "t").await, "ann", "cached");
    clock.advance(seconds(1));
    assert_eq!(ask(&subject, "t").await, "401", "revoked");
    assert_eq!(
        (layer.stats().cached, layer.stats().cached_inactive),
        (0, 1)
    );

    let expiry = clock.now().as_nanos() / 1_000_000_000 + 50;
    let body = format!(r#"{{"active":true,"sub":"ann","exp":{expiry}}}"#);
    server.set(json(&body));
    clock.advance(seconds(5));
    assert_eq!(ask(&subject, "t").await, "ann", "active again");
    server.stop().await;
    clock.advance(seconds(30));
    assert_eq!(ask(&subject, "t").await, "ann stale", "gone");
    clock.advance(seconds(15));
    assert_eq!(
        ask(&subject, "t").await,
        "503",
        "expired, although stale answers last for longer"
    );
    assert_eq!(ask(&subject, "new").await, "503");
}

/// Over TLS, with the client that the documentation shows; a server whose certificate is not
/// trusted never sees the token.
#[tokio::test(flavor = "current_thread")]
async fn a_client_with_tls_asks_a_trusted_server_only() {
    use hyper_util::{client::legacy::Client, rt::TokioExecutor};
    use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types::PrivateKeyDer};

    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let names = vec!["localhost".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let tls = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let server = Server::start_with(json(r#"{"active":true,"sub":"ann"}"#), Some(tls)).await;
    let url = format!("https://localhost:{}/introspect", server.address.port());
    for (trusted, expected) in [(true, "ann"), (false, "503")] {
        let mut roots = RootCertStore::empty();
        if trusted {
            roots.add(certified.cert.der().clone()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build(https);
        let endpoint = Endpoint::with_client(&url, client).unwrap();
        let layer = Introspect::builder(endpoint)
            .deadline(Duration::from_secs(60))
            .build();
        assert_eq!(ask(&around(&layer.unwrap()), "t").await, expected);
        assert_eq!(server.take_requests().len(), usize::from(trusted));
    }
    server.stop().await;
}

#[tokio::test(flavor = "current_thread")]
async fn any_client_will_do() {
    let client = tower::service_fn(async |request: http::Request<Full<Bytes>>| {
        assert_eq!(request.uri().scheme_str(), Some("https"));
        let body = r#"{"active":true,"sub":"ann"}"#.to_owned();
        Ok::<_, Infallible>(http::Response::new(body))
    });
    let endpoint = Endpoint::with_client("https://login.example.com/introspect", client).unwrap();
    assert_eq!(ask(&around(&Introspect::new(endpoint)), "t").await, "ann");
}

/// A server that refuses some tokens, by their bytes or their length, or whose answer about some
/// cannot be read, has no outage: these do not pass, whatever is chosen for an outage, and others
/// are not affected.
#[tokio::test(flavor = "current_thread")]
async fn no_token_opens_the_gate() {
    let long = format!(r#"{{"active":true,"sub":"{}"}}"#, "x".repeat(4097));
    let bodies = [
        &*long,
        "",
        "<html>",
        r#"{"active":1}"#,
        r#"{"active":true,"plan":7}"#,
        r#"{"active":true,"exp":"7"}"#,
    ]
    .map(str::to_owned);
    let unreadable = bodies.len();
    let client = tower::service_fn(move |request: http::Request<Full<Bytes>>| {
        let bodies = bodies.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let form = String::from_utf8_lossy(&body).into_owned();
            let token = form["token=".len()..].split('&').next().unwrap();
            let status = match token.split_once('-') {
                _ if token.contains("%3C") => 400,
                _ if token.len() > 1000 => 413,
                Some(("status", status)) => status.parse().unwrap(),
                _ => 200,
            };
            let body = match token.split_once('-') {
                Some(("body", number)) => bodies[number.parse::<usize>().unwrap()].clone(),
                _ => format!(r#"{{"active":{},"sub":"ann"}}"#, token == "ann"),
            };
            let mut response = http::Response::new(body);
            *response.status_mut() = status.try_into().unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    let endpoint = Endpoint::with_client("https://login.example.com/introspect", client).unwrap();
    let layer = Introspect::builder(endpoint).fail_open().build().unwrap();
    let subject = around(&layer);
    let mut refused = vec!["a<b".to_owned(), "a".repeat(1001)];
    let statuses = [204, 302, 304, 400, 403, 404, 413, 414, 422, 431];
    refused.extend(statuses.map(|status| format!("status-{status}")));
    refused.extend((0..unreadable).map(|number| format!("body-{number}")));
    for token in &refused {
        assert_eq!(ask(&subject, token).await, "503", "{token}");
        assert_eq!(ask(&subject, "ann").await, "ann");
        assert_eq!(ask(&subject, "eve").await, "401");
    }
    let stats = layer.stats();
    assert_eq!((stats.failed, stats.unchecked), (refused.len() as u64, 0));
    // They do not depend on the token.
    for status in [401, 408, 429, 500, 502, 503] {
        let token = format!("status-{status}");
        assert_eq!(ask(&subject, &token).await, "unchecked", "{token}");
    }
}

/// Neither does a token that was known, and that the server refuses to check later on. It is asked
/// for that once in `retry_after`.
#[tokio::test(flavor = "current_thread")]
async fn no_known_token_opens_the_gate() {
    let server = Server::start(Reply::Close).await;
    for (answer, stale, first, later) in [
        (r#"{"active":true,"sub":"ann"}"#, 0, "ann", "503"),
        (r#"{"active":true,"sub":"ann"}"#, 60, "ann", "ann stale"),
        (r#"{"active":false}"#, 0, "401", "503"),
    ] {
        let clock = ManualClock::default();
        let layer = Introspect::builder(Endpoint::new(&server.url()).unwrap())
            .max_age(Duration::from_secs(10))
            .inactive_age(Duration::from_secs(10))
            .serve_stale(Duration::from_secs(stale))
            .retry_after(Duration::from_secs(30))
            .fail_open()
            .clock(clock.clone())
            .build()
            .unwrap();
        let subject = around(&layer);
        server.set(json(answer));
        assert_eq!(ask(&subject, "t").await, first);
        server.set(Reply::Full("400 Bad Request", String::new()));
        clock.advance(Duration::from_secs(10));
        for (seconds, expected, lookups) in [
            (0, later, 2),
            (stale, "503", 2 + u64::from(stale > 0)),
            (30, "503", 3 + u64::from(stale > 0)),
        ] {
            clock.advance(Duration::from_secs(seconds));
            for _ in 0..10 {
                assert_eq!(ask(&subject, "t").await, expected, "{answer}");
            }
            assert_eq!(layer.stats().lookups, lookups, "{answer}");
        }
    }
    server.stop().await;
}

#[test]
fn bad_urls_and_credentials_are_one_clear_error_each_without_secrets() {
    for url in [
        "",
        "localhost/introspect",
        "/introspect",
        "ftp://localhost/",
        "http://",
        "http://me:s3cret@localhost/",
        "https://localhost/",
        "http://local host/",
    ] {
        let error = Endpoint::new(url).unwrap_err().to_string();
        assert!(
            error.starts_with("the URL of an introspection endpoint "),
            "{url}: {error}"
        );
        assert!(
            error.contains(": expected ") && error.contains("http"),
            "{url}: {error}"
        );
        assert!(!error.contains("s3cret"), "{error}");
    }
    for token in ["", "a b", "s3cret\n", "ä"] {
        let endpoint = Endpoint::new("http://localhost/").unwrap();
        let error = endpoint.bearer(token).unwrap_err().to_string();
        assert!(
            error.contains(": expected visible ASCII") && !error.contains("s3cret"),
            "{error}"
        );
    }
}
