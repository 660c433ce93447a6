//! The layer in axum, over real connections: the requests that share a budget, and the responses
//! that a client receives.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Extension, Request},
    middleware::map_response,
    response::{Redirect, Response},
    routing::{get, post},
};
use futures_util::stream;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tollgate::{
    Limit, Outcome, Quota, RateLimitLayer, TokenBucket,
    key::{ForwardedFor, Global, Header, KeyExtractorExt, MatchedPath, PeerIp},
    respond::{Headers, Http},
    store::{Local, LocalBuilder},
    time::ManualClock,
};

const SOON: Duration = Duration::from_secs(20);

pub(crate) async fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Serves until the test's runtime ends.
async fn serve(app: Router) -> SocketAddr {
    let (listener, address) = bind().await;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// Returns a store whose time stands still.
fn still() -> Local<TokenBucket, ManualClock> {
    LocalBuilder::new().clock(ManualClock::default()).build()
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Joins all values of a field as a recipient must (RFC 9110 §5.3).
    fn list(&self, name: &str) -> String {
        let lines: Vec<_> = self
            .headers
            .get_all(name)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect();
        lines.join(", ")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A client with a pool of connections.
#[derive(Clone)]
pub(crate) struct Caller {
    client: Client<HttpConnector, Body>,
    server: SocketAddr,
}

impl Caller {
    fn new(server: SocketAddr) -> Self {
        Self::with(HttpConnector::new(), server)
    }

    fn with(connector: HttpConnector, server: SocketAddr) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            server,
        }
    }

    /// Returns a client at another address of the loopback network.
    #[cfg(target_os = "linux")]
    pub(crate) fn at(own: [u8; 4], server: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(std::net::IpAddr::from(own)));
        Self::with(connector, server)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Response<hyper::body::Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.server));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.request(request.body(body).unwrap());
        timeout(SOON, response)
            .await
            .expect("an answer in time")
            .unwrap()
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let (parts, body) = self
            .send(method, path, headers, Body::empty())
            .await
            .into_parts();
        let body = timeout(SOON, body.collect())
            .await
            .expect("a body in time")
            .unwrap()
            .to_bytes();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &[]).await
    }
}

#[tokio::test]
async fn an_admitted_response_has_the_rate_limit_fields() {
    let layer = RateLimitLayer::new(TokenBucket::per_minute(60))
        .store(still())
        .key(PeerIp::new());
    let caller = Caller::new(serve(hello().layer(layer)).await);
    let answer = caller.get("/").await;
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    assert_eq!(answer.list("ratelimit-policy"), "\"default\";q=60;w=60");
    assert_eq!(answer.list("ratelimit"), "\"default\";r=59;t=59");
    assert_eq!(answer.header("retry-after"), None);
}

#[tokio::test]
async fn a_refusal_is_429_with_its_fields_and_a_problem_document() {
    let layer = RateLimitLayer::new(TokenBucket::per_minute(1))
        .store(still())
        .named("one");
    let caller = Caller::new(serve(hello().layer(layer)).await);
    assert_eq!(caller.get("/").await.status, 200);
    let answer = caller.get("/").await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), Some("60"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(answer.list("ratelimit-policy"), "\"one\";q=1;w=60");
    assert_eq!(answer.list("ratelimit"), "\"one\";r=0;t=60");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        problem,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "violated-policies": ["one"],
        })
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn each_peer_has_a_budget_of_its_own() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(2)).key(PeerIp::new());
    let server = serve(hello().layer(layer)).await;
    for own in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        let caller = Caller::at(own, server);
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(caller.get("/").await.status);
        }
        assert_eq!(statuses, [200, 200, 429], "{own:?}");
    }
}

/// tower's own `RateLimit` gives each connection of axum its own budget.
#[tokio::test]
async fn all_connections_share_one_budget() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(6)).key(PeerIp::new());
    let server = serve(hello().layer(layer)).await;
    let kept = Caller::new(server);
    let mut admitted = 0;
    for _ in 0..5 {
        // One connection is kept alive, the other is new each time.
        for caller in [&kept, &Caller::new(server)] {
            admitted += u32::from(caller.get("/").await.status == 200);
        }
    }
    assert_eq!(admitted, 6);
}

/// Each request has a connection of its own, because the pool has none idle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_the_same_time_are_admitted_exactly() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(1).burst(10)).key(PeerIp::new());
    let app = hello().layer(layer);
    let caller = Caller::new(serve(app).await);
    let calls = (0..64).map(|_| {
        let caller = caller.clone();
        tokio::spawn(async move { caller.get("/").await })
    });
    let answers = timeout(SOON, futures_util::future::join_all(calls))
        .await
        .expect("all of them in time");
    let (mut admitted, mut fields) = (0, HashSet::new());
    for answer in answers.into_iter().map(Result::unwrap) {
        match answer.status {
            200 => {
                admitted += 1;
                fields.insert(
                    answer
                        .list("ratelimit")
                        .split(';')
                        .nth(1)
                        .unwrap()
                        .to_owned(),
                );
            }
            429 => assert!(answer.header("retry-after").is_some()),
            other => panic!("{other}"),
        }
    }
    assert_eq!(admitted, 10);
    // Each response has a different `r`.
    assert_eq!(fields, (0..10).map(|left| format!("r={left}")).collect());
}

#[tokio::test]
async fn a_forgotten_connect_info_is_the_servers_fault() {
    let layer = RateLimitLayer::new(TokenBucket::per_day(2)).key(PeerIp::new());
    let (listener, server) = bind().await;
    let app = hello().layer(layer);
    tokio::spawn(async move { axum::serve(listener, app).await });
    let caller = Caller::new(server);
    for _ in 0..5 {
        let answer = caller.get("/").await;
        assert_eq!(answer.status, 500);
        assert_eq!(answer.header("ratelimit"), None);
        assert_eq!(answer.header("retry-after"), None);
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            problem,
            serde_json::json!({ "type": "about:blank", "title": "Internal Server Error", "status": 500 })
        );
    }
}

#[tokio::test]
async fn head_gets_the_same_fields_without_a_body() {
    let layer = || RateLimitLayer::new(TokenBucket::per_day(1)).store(still());
    let words = Http::body(|refusal, _| Body::from(refusal.to_string()));
    for app in [
        hello().layer(layer()),
        hello().layer(layer().respond(words)),
    ] {
        let caller = Caller::new(serve(app).await);
        assert_eq!(caller.call(Method::HEAD, "/", &[]).await.status, 200);
        let full = caller.get("/").await;
        let head = caller.call(Method::HEAD, "/", &[]).await;
        assert_eq!((full.status, head.status), (429, 429));
        assert!(head.body.is_empty() && !full.body.is_empty());
        // The length is that of the response to GET (RFC 9110 §8.6).
        let fields = [
            "retry-after",
            "ratelimit",
            "ratelimit-policy",
            "cache-control",
            "content-length",
        ];
        for name in fields {
            assert_eq!(head.header(name), full.header(name), "{name}");
            assert!(head.header(name).is_some(), "{name}");
        }
        assert_eq!(head.header("content-type"), full.header("content-type"));
        // The connection still works.
        assert_eq!(caller.get("/").await.body, full.body);
    }
}

#[tokio::test]
async fn preflights_are_exempt_and_ordinary_options_are_not() {
    let key = PeerIp::new().exempt_cors_preflight();
    let app = Router::new().route(
        "/",
        get(|| async { "hello" }).options(|| async { "preflight" }),
    );
    let layer = RateLimitLayer::new(TokenBucket::per_day(1)).key(key);
    let caller = Caller::new(serve(app.layer(layer)).await);
    let preflight = [
        ("origin", "https://a.example"),
        ("access-control-request-method", "GET"),
    ];
    for _ in 0..5 {
        let answer = caller.call(Method::OPTIONS, "/", &preflight).await;
        assert_eq!((answer.status, answer.text()), (200, "preflight"));
        assert_eq!(answer.header("ratelimit"), None);
    }
    assert_eq!(caller.call(Method::GET, "/", &preflight).await.status, 200);
    assert_eq!(caller.call(Method::OPTIONS, "/", &[]).await.status, 429);
    assert_eq!(
        caller.call(Method::OPTIONS, "/", &preflight).await.status,
        200
    );
}

#[tokio::test]
async fn a_route_has_one_budget_for_all_spellings_of_its_path() {
    let app = Router::new()
        .route("/users/{id}", get(|| async { "user" }))
        .route("/orders/{id}", get(|| async { "order" }))
        .fallback(|| async { StatusCode::NOT_FOUND });
    let layer = RateLimitLayer::new(TokenBucket::per_day(2)).key(MatchedPath);
    let caller = Caller::new(serve(app.layer(layer)).await);
    let mut statuses = Vec::new();
    for path in [
        "/users/1",
        "/users/%31",
        "/users/3",
        "/orders/1",
        "/no",
        "/such",
        "/route",
    ] {
        statuses.push(caller.get(path).await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 200, 404, 404, 429]);
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_forwarded_address_is_the_client() {
    let key = ForwardedFor::try_trusting(["127.0.0.0/8", "::1"]).unwrap();
    let layer = RateLimitLayer::new(TokenBucket::per_day(1)).key(key);
    let caller = Caller::new(serve(hello().layer(layer)).await);
    let status = async |lines: &[&str]| {
        let headers: Vec<_> = lines
            .iter()
            .map(|line| ("x-forwarded-for", *line))
            .collect();
        caller.call(Method::GET, "/", &headers).await.status
    };
    assert_eq!(status(&["192.0.2.7"]).await, 200);
    assert_eq!(status(&["192.0.2.7"]).await, 429);
    // Elements sent by the client are further left, or on an earlier line.
    assert_eq!(status(&["203.0.113.1, 192.0.2.7"]).await, 429);
    assert_eq!(status(&["203.0.113.2", "192.0.2.7, 127.0.0.9"]).await, 429);
    assert_eq!(status(&["192.0.2.8"]).await, 200);
    assert_eq!(status(&["[2001:db8::1]:4711"]).await, 200);
    assert_eq!(status(&["2001:db8::2"]).await, 429);
    // No element: the proxy itself is the client.
    assert_eq!(status(&[]).await, 200);
    assert_eq!(status(&["unknown"]).await, 429);
}

#[tokio::test]
async fn a_proxy_that_is_not_trusted_is_the_client() {
    let key = ForwardedFor::try_trusting(["10.0.0.0/8"]).unwrap();
    let layer = RateLimitLayer::new(TokenBucket::per_day(1)).key(key);
    let caller = Caller::new(serve(hello().layer(layer)).await);
    let mut statuses = Vec::new();
    for client in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        statuses.push(
            caller
                .call(Method::GET, "/", &[("x-forwarded-for", client)])
                .await
                .status,
        );
    }
    assert_eq!(statuses, [200, 429, 429]);
}

/// Formats the outcome as `name=remaining`, the outermost limit first.
fn describe(outcome: &Outcome) -> String {
    let limits: Vec<_> = outcome
        .iter()
        .map(|(policy, decision)| format!("{policy}={}", decision.remaining().unwrap()))
        .collect();
    limits.join(" ")
}

#[tokio::test]
async fn handlers_take_the_outcome() {
    let limited =
        |app: Router| app.layer(RateLimitLayer::new(TokenBucket::per_day(5)).store(still()));
    let handlers = Router::new()
        .route("/sure", get(async |outcome: Outcome| describe(&outcome)))
        .route(
            "/perhaps",
            get(async |outcome: Option<Outcome>| format!("{}", outcome.is_some())),
        );
    let caller = Caller::new(serve(limited(handlers.clone())).await);
    assert_eq!(caller.get("/sure").await.text(), "default=4");
    assert_eq!(caller.get("/perhaps").await.text(), "true");

    let caller = Caller::new(serve(handlers.clone()).await);
    assert_eq!(caller.get("/sure").await.status, 500);
    assert_eq!(caller.get("/perhaps").await.text(), "false");

    let quiet = RateLimitLayer::new(TokenBucket::per_day(5)).respond(Http::new().outcome(false));
    let caller = Caller::new(serve(handlers.layer(quiet)).await);
    let answer = caller.get("/perhaps").await;
    assert_eq!(
        (answer.text(), answer.header("ratelimit").is_some()),
        ("false", true)
    );
}

/// The handler has the outcome whether or not headers are sent, the request is limited, or some of
/// several limits are skipped.
#[tokio::test]
async fn handlers_below_a_layer_always_have_an_outcome() {
    let shapes = [
        Headers::Draft,
        Headers::Draft07,
        Headers::Draft06,
        Headers::Legacy,
        Headers::LegacyDelta,
        Headers::None,
    ];
    for headers in shapes {
        let limit = |name: &str| {
            Limit::new(TokenBucket::per_day(5))
                .named(name)
                .key(Header::new("x-api-key").or_exempt().exempt_paths(["/free"]))
        };
        let layer = RateLimitLayer::new(TokenBucket::per_day(5))
            .store(still())
            .key(Global.exempt_paths(["/free", "/outer"]))
            .also(limit("keyed"))
            .respond(Http::new().headers(headers));
        let handler = get(
            async |sure: Outcome, perhaps: Option<Outcome>, Extension(laid): Extension<Outcome>| {
                assert_eq!(Some(describe(&sure)), perhaps.as_ref().map(describe));
                assert_eq!(describe(&sure), describe(&laid));
                assert!(sure.is_admitted());
                format!("{} {}", sure.is_empty(), describe(&sure))
            },
        );
        let app = Router::new()
            .route("/", handler.clone())
            .route("/free", handler.clone())
            .route("/outer", handler);
        let caller = Caller::new(serve(app.layer(layer)).await);
        let ask = async |path: &str, headers: &[(&str, &str)]| {
            let answer = caller.call(Method::GET, path, headers).await;
            (answer.status, answer.text().to_owned())
        };
        let key = [("x-api-key", "ann")];
        for (path, key, expected) in [
            ("/", &key[..], "false default=4 keyed=4"),
            ("/", &[], "false default=3"),
            ("/outer", &key, "false keyed=3"),
            ("/outer", &[], "true "),
            ("/free", &key, "true "),
            ("/free", &[], "true "),
        ] {
            assert_eq!(
                ask(path, key).await,
                (200, expected.to_owned()),
                "{headers} {path}"
            );
        }
    }
}

/// Copies the outcome that outer layers see in a response into a field of it.
async fn reveal(response: Response) -> Response {
    let outcome = response.extensions().get::<Outcome>().map(describe);
    let mut response = response;
    if let Some(outcome) = outcome {
        response
            .headers_mut()
            .insert("x-outcome", outcome.parse().unwrap());
    }
    response
}

#[tokio::test]
async fn stacked_layers_send_the_fields_of_both_limits() {
    let inner = RateLimitLayer::new(TokenBucket::per_hour(2))
        .store(still())
        .named("inner");
    let outer = RateLimitLayer::new(TokenBucket::per_hour(3))
        .store(still())
        .named("outer");
    let app = Router::new()
        .route("/", get(async |outcome: Outcome| describe(&outcome)))
        .layer(inner)
        .layer(outer)
        .layer(map_response(reveal));
    let caller = Caller::new(serve(app).await);
    let items = |list: &str| -> Vec<String> {
        let mut items: Vec<_> = list.split(", ").map(str::to_owned).collect();
        items.sort();
        items
    };

    let answer = caller.get("/").await;
    assert_eq!(answer.text(), "outer=2 inner=1");
    assert_eq!(
        items(&answer.list("ratelimit")),
        ["\"inner\";r=1;t=1800", "\"outer\";r=2;t=2400"]
    );
    assert_eq!(
        items(&answer.list("ratelimit-policy")),
        ["\"inner\";q=2;w=3600", "\"outer\";q=3;w=3600"]
    );
    assert_eq!(caller.get("/").await.text(), "outer=1 inner=0");

    let answer = caller.get("/").await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-outcome"), Some("outer=0 inner=0"));
    assert_eq!(answer.header("retry-after"), Some("1800"));
    assert_eq!(
        items(&answer.list("ratelimit")),
        ["\"inner\";r=0;t=1800", "\"outer\";r=0;t=1200"]
    );
    assert!(answer.text().contains("[\"inner\"]"));

    // Now the outer limit refuses, and the inner one is not called.
    let answer = caller.get("/").await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-outcome"), Some("outer=0"));
    assert_eq!(items(&answer.list("ratelimit")), ["\"outer\";r=0;t=1200"]);
    assert!(answer.text().contains("[\"outer\"]"));
}

/// Unlike stacked ones, the limits of one layer are charged together or not at all.
#[tokio::test]
async fn one_layer_with_two_limits_lists_the_nearer_one_first() {
    let layer = RateLimitLayer::new(TokenBucket::per_hour(3))
        .store(still())
        .named("wide")
        .also(
            Limit::new(TokenBucket::per_hour(2))
                .named("narrow")
                .key(PeerIp::new()),
        );
    let app = Router::new().route("/", get(async |outcome: Outcome| describe(&outcome)));
    let caller = Caller::new(serve(app.layer(layer).layer(map_response(reveal))).await);
    let answer = caller.get("/").await;
    assert_eq!(answer.text(), "wide=2 narrow=1");
    assert_eq!(
        answer.list("ratelimit"),
        "\"narrow\";r=1;t=1800, \"wide\";r=2;t=2400"
    );
    assert_eq!(caller.get("/").await.text(), "wide=1 narrow=0");
    for _ in 0..3 {
        let answer = caller.get("/").await;
        assert_eq!(
            (answer.status, answer.header("x-outcome")),
            (429, Some("wide=1 narrow=0"))
        );
        assert_eq!(
            answer.list("ratelimit"),
            "\"narrow\";r=0;t=1800, \"wide\";r=1;t=1200"
        );
    }
}

#[tokio::test]
async fn a_client_that_waits_for_retry_after_is_admitted() {
    let clock = ManualClock::default();
    let rule = TokenBucket::new(Quota::new(7, Duration::from_millis(61_234))).burst(3);
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let caller = Caller::new(serve(hello().layer(RateLimitLayer::new(rule).store(store))).await);
    for _ in 0..3 {
        assert_eq!(caller.get("/").await.status, 200);
    }
    for round in 0..20 {
        let refused = caller.get("/").await;
        assert_eq!(refused.status, 429, "round {round}");
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        clock.advance(Duration::from_secs(wait - 1));
        assert_eq!(
            caller.get("/").await.status,
            429,
            "round {round}: retry-after is too long"
        );
        clock.advance(Duration::from_secs(1));
        assert_eq!(
            caller.get("/").await.status,
            200,
            "round {round}: retry-after is too short"
        );
    }
}

/// With the system's clock.
#[tokio::test]
async fn a_client_that_waits_in_real_time_is_admitted() {
    let rule = TokenBucket::new(Quota::new(1, Duration::from_millis(950)));
    let caller = Caller::new(serve(hello().layer(RateLimitLayer::new(rule))).await);
    // If the machine stalls for a moment, more than the first request may be admitted.
    let mut refused = caller.get("/").await;
    assert_eq!(refused.status, 200);
    for _ in 0..100 {
        if refused.status == 200 {
            refused = caller.get("/").await;
        }
    }
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("1"))
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(caller.get("/").await.status, 200);
}

#[tokio::test]
async fn a_large_body_passes_through_untouched() {
    const CHUNKS: u32 = 512;
    let app = Router::new().route("/", post(async |request: Request| request.into_body()));
    let app = app.layer(RateLimitLayer::new(TokenBucket::per_day(1)).key(PeerIp::new()));
    let caller = Caller::new(serve(app).await);
    let chunk = |index: u32| -> Vec<u8> { index.to_be_bytes().repeat(4096) };
    let sent = stream::iter((0..CHUNKS).map(move |index| Ok::<_, std::io::Error>(chunk(index))));
    let echo = caller
        .send(Method::POST, "/", &[], Body::from_stream(sent))
        .await;
    assert_eq!(echo.status(), 200);
    assert!(echo.headers().contains_key("ratelimit"));
    assert!(!echo.headers().contains_key(header::CONTENT_LENGTH));
    let body = timeout(SOON, echo.into_body().collect())
        .await
        .expect("the echo in time")
        .unwrap()
        .to_bytes();
    let expected: Vec<u8> = (0..CHUNKS).flat_map(chunk).collect();
    assert!(
        body == expected,
        "{} bytes of {}",
        body.len(),
        expected.len()
    );

    // A refusal does not wait for the body, which it does not need.
    let never = stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let refused = caller
        .send(Method::POST, "/", &[], Body::from_stream(never))
        .await;
    assert_eq!(refused.status(), 429);
}

#[tokio::test]
async fn a_stream_is_not_held_back() {
    let (sender, receiver) = mpsc::channel::<&'static str>(1);
    let receiver = std::sync::Arc::new(tokio::sync::Mutex::new(receiver));
    let events = stream::unfold(receiver, async |receiver| {
        let event = receiver.lock().await.recv().await?;
        Some((Ok::<_, std::io::Error>(event), receiver))
    });
    let body = std::sync::Mutex::new(Some(Body::from_stream(events)));
    let body = std::sync::Arc::new(body);
    let app = Router::new().route("/", get(async move || body.lock().unwrap().take().unwrap()));
    let caller = Caller::new(serve(app.layer(RateLimitLayer::new(TokenBucket::per_day(1)))).await);
    // The head arrives before the first event, and each event before the next one is generated.
    let mut response = caller.send(Method::GET, "/", &[], Body::empty()).await;
    for event in ["first", "second"] {
        sender.send(event).await.unwrap();
        let frame = timeout(SOON, response.body_mut().frame())
            .await
            .expect("the event in time");
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), event);
    }
    drop(sender);
    assert!(
        timeout(SOON, response.body_mut().frame())
            .await
            .expect("the end in time")
            .is_none()
    );
}

#[tokio::test]
async fn redirects_and_errors_of_the_service_get_the_fields_and_no_other_change() {
    let app = Router::new()
        .route("/old", get(async || Redirect::permanent("/new")))
        .route(
            "/broken",
            get(async || (StatusCode::BAD_GATEWAY, [("retry-after", "7")], "broken")),
        );
    let caller = Caller::new(
        serve(app.layer(RateLimitLayer::new(TokenBucket::per_day(9)).store(still()))).await,
    );
    let answer = caller.get("/old").await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (308, Some("/new"))
    );
    assert!(answer.list("ratelimit").starts_with("\"default\";r=8;"));
    let answer = caller.get("/broken").await;
    assert_eq!(
        (answer.status, answer.text(), answer.header("retry-after")),
        (502, "broken", Some("7"))
    );
    assert!(answer.list("ratelimit").starts_with("\"default\";r=7;"));
}
