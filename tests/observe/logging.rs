//! Log events: each configuration mistake once, each failure of a store at a bounded rate.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex},
};

use http::{Request, Response, StatusCode};
use tollgate::{
    Charge, Cost, Limit, Policy, RateLimitLayer, Timestamp, TokenBucket,
    future::BoxFuture,
    key::{Extension, Header, Key, KeyExtractorExt, PeerIp},
    store::{
        Backend, Local, Store, StoreError, StoreExt,
        driver::{Ask, Check, Decisions, Settlement},
    },
};
use tower::{Layer, ServiceExt, service_fn};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// One event, by the names of its fields.
type Fields = BTreeMap<&'static str, String>;

/// Records all events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Fields>>>);

struct Reader(Fields);

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        // Events of dependencies are ignored.
        if event.metadata().target().starts_with("tollgate") {
            let mut reader = Reader(Fields::new());
            event.record(&mut reader);
            self.0.lock().unwrap().push(reader.0);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Log {
    /// Records the events of this thread until the guard is dropped.
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
    }

    fn take(&self) -> Vec<Fields> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

// ---- mistakes ----

/// Sends requests through a layer. All must be answered with 500.
async fn refuse<L>(layer: &L, times: usize)
where
    L: Layer<Inner>,
    L::Service: tower::Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    for _ in 0..times {
        let response = layer.layer(Inner).oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}

/// Bodies that cannot select a charge leave the reserved cost.
#[tokio::test]
async fn bodies_of_requests_with_several_charges_are_logged_once() {
    use tollgate::{key::Key, respond::SettleByBody};

    let rule = TokenBucket::per_day(100);
    let limit = |name| Limit::new(rule).named(name).cost(Cost::new(10).unwrap());
    for (of, left, logged) in [
        (None, [90, 90], Some("`one`, `two`")),
        (Some("two"), [90, 100], None),
        (Some("typo"), [90, 90], Some("typo")),
    ] {
        let (log, _guard) = Log::start();
        let store = Local::new();
        let layer = RateLimitLayer::new(rule)
            .named("plain")
            .store(store.clone())
            .respond(tollgate::respond::Http::empty())
            .also(limit("one").charge_handle())
            .also(limit("two").charge_handle());
        let bytes = SettleByBody::bytes();
        let bytes = match of {
            Some(name) => bytes.of(name),
            None => bytes,
        };
        let inner = service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
        });
        let service = tower::ServiceBuilder::new()
            .layer(layer)
            .layer(bytes)
            .service(inner);
        for _ in 0..2 {
            drop(service.clone().oneshot(Request::new(())).await.unwrap());
            for name in ["plain", "one", "two"] {
                store.reset(&Policy::new(name), &Key::GLOBAL);
            }
        }
        drop(service.oneshot(Request::new(())).await.unwrap());
        let remaining = |name| {
            let look = store.look(&Policy::new(name), &rule, &Key::GLOBAL);
            look.remaining().unwrap()
        };
        assert_eq!(["one", "two"].map(remaining), left);
        let events: Vec<_> = log
            .take()
            .iter()
            .map(|event| event["policy"].clone())
            .collect();
        assert_eq!(events, logged.as_slice());
    }
}

#[derive(Clone)]
struct Inner;

impl tower::Service<Request<()>> for Inner {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::new(String::new())))
    }
}

/// A missing `into_make_service_with_connect_info` is answered with 500, and one log line names it.
#[tokio::test(flavor = "current_thread")]
async fn a_missing_peer_is_logged_once_by_name() {
    let (log, _guard) = Log::start();
    let service = RateLimitLayer::new(TokenBucket::per_second(1))
        .key(PeerIp::new())
        .layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
    for _ in 0..3 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
    let events = log.take();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0]["message"].contains("into_make_service_with_connect_info::<SocketAddr>()"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_mistake_is_logged_once_for_each_cause_and_policy_and_counted() {
    struct Plan;
    let (log, _guard) = Log::start();
    let layer = |name: &str| RateLimitLayer::new(TokenBucket::per_second(1)).named(name);
    let plan = || Extension::new(|_: &Plan| Key::GLOBAL);
    for name in ["mistaken", "mistaken as well"] {
        let by_peer = layer(name).key(PeerIp::new());
        let by_plan = layer(name).key(plan());
        // The second limit has the mistake, so its policy is logged.
        let more = Limit::new(TokenBucket::per_second(1)).key(plan());
        let second = layer("right").also(more.named(&format!("{name} as the second")));
        for _ in 0..2 {
            refuse(&by_peer, 3).await;
            refuse(&by_plan, 3).await;
            refuse(&second, 3).await;
        }
        for count in [
            by_peer.misconfigured(),
            by_plan.misconfigured(),
            second.misconfigured(),
        ] {
            assert_eq!(count, 6);
        }
        let logged: Vec<_> = log
            .take()
            .into_iter()
            .map(|mut event| {
                assert_eq!(event["status"], "500");
                let text = event.remove("message").unwrap();
                (event.remove("policy").unwrap(), text)
            })
            .collect();
        let expected = [
            (name.to_owned(), "into_make_service_with_connect_info"),
            (name.to_owned(), "Plan` in the request's extensions"),
            (
                format!("{name} as the second"),
                "Plan` in the request's extensions",
            ),
        ];
        assert_eq!(logged.len(), expected.len(), "{logged:#?}");
        for ((policy, text), (expected, part)) in logged.iter().zip(&expected) {
            assert_eq!(policy, expected);
            assert!(text.contains(part), "{text}");
        }
    }
    // A value that the client did not send is not a mistake of the server.
    let by_key = layer("not mistaken").key(Header::new("x-api-key"));
    let response = by_key.layer(Inner).oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!((by_key.misconfigured(), log.take().len()), (0, 0));
    // Neither is a value that may be absent.
    let optional = layer("not mistaken").key(plan().or(Header::new("x-api-key")));
    let required = layer("not mistaken").key(plan().or_refuse(StatusCode::UNAUTHORIZED));
    let answer = optional.layer(Inner).oneshot(Request::new(())).await;
    assert_eq!(answer.unwrap().status(), StatusCode::BAD_REQUEST);
    let answer = required.layer(Inner).oneshot(Request::new(())).await;
    assert_eq!(answer.unwrap().status(), StatusCode::UNAUTHORIZED);
    let counts = (optional.misconfigured(), required.misconfigured());
    assert_eq!((counts, log.take().len()), ((0, 0), 0));
}

/// A dry run refuses nothing, and says so. The limit that is enforced later has a line of its own.
#[tokio::test(flavor = "current_thread")]
async fn a_missing_peer_on_a_dry_run_is_logged_as_what_it_is() {
    let (log, _guard) = Log::start();
    let layer = || {
        RateLimitLayer::new(TokenBucket::per_second(1))
            .named("peers")
            .key(PeerIp::new())
    };
    for dry in [layer().dry_run(), layer().enforce_for(50)] {
        for missing_key in 1..=2 {
            let answer = dry.layer(Inner).oneshot(Request::new(())).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            let report = dry.dry_run_report("peers").unwrap();
            assert_eq!((report.missing_key, dry.misconfigured()), (missing_key, 0));
        }
    }
    refuse(&layer(), 2).await;
    let lines: Vec<_> = log
        .take()
        .into_iter()
        .map(|mut event| event.remove("message").unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let [dry, live] = &lines[..] else {
        unreachable!()
    };
    for line in [dry, live] {
        assert!(
            line.contains("into_make_service_with_connect_info"),
            "{line}"
        );
    }
    assert!(
        dry.contains("refuses nothing") && dry.contains("`DryRunReport::missing_key`"),
        "{dry}"
    );
    assert!(
        !dry.contains("misconfigured") && live.contains("misconfigured"),
        "{lines:?}"
    );
}

#[tokio::test(flavor = "current_thread")]
async fn limits_that_share_a_state_by_mistake_are_logged_once_with_what_to_do() {
    let (log, _guard) = Log::start();
    let store = Local::<TokenBucket>::new();
    let layer = |limit| RateLimitLayer::new(TokenBucket::per_day(limit)).store(store.clone());
    let (login, api) = (layer(3_003), layer(100_100));
    for _ in 0..2 {
        for layer in [&login, &api] {
            let response = layer.layer(Inner).oneshot(Request::new(())).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
        }
    }
    // One unit for two applications.
    let twice = layer(1).named("applied twice");
    for _ in 0..2 {
        let service = twice.layer(twice.layer(Inner));
        let response = service.oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    let logged: Vec<_> = log
        .take()
        .into_iter()
        .map(|mut event| (event.remove("policy"), event.remove("message")))
        .collect();
    let [
        (Some(unnamed), Some(collision)),
        (Some(policy), Some(applied)),
    ] = &logged[..]
    else {
        panic!("{logged:#?}");
    };
    assert_eq!(
        (&**unnamed, &**policy),
        ("default", "applied twice"),
        "{logged:#?}"
    );
    for part in ["token-bucket 3003/1d", "token-bucket 100100/1d", "`named`"] {
        assert!(collision.contains(part), "{collision}");
    }
    for part in ["Apply the layer once", "`named`", "`Outcome`"] {
        assert!(applied.contains(part), "{applied}");
    }
}

#[cfg(feature = "axum")]
#[tokio::test(flavor = "current_thread")]
async fn a_forgotten_layer_is_logged_once_for_each_route() {
    use axum::{Router, body::Body, routing::get};
    use tollgate::Outcome;

    let (log, _guard) = Log::start();
    let handler = get(async |outcome: Outcome| outcome.len().to_string());
    let app: Router = Router::new()
        .route("/users/{id}", handler.clone())
        .route("/orders/{id}", handler);
    for path in ["/users/1", "/users/2", "/orders/1", "/orders/2"] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
    let events = log.take();
    let routes: Vec<_> = events.iter().map(|event| event["route"].as_str()).collect();
    assert_eq!(routes, ["/users/{id}", "/orders/{id}"]);
    for event in events {
        assert!(event["message"].contains("add the layer"), "{event:?}");
    }
}

// ---- failures of stores ----

/// A store that fails, at once or when it is awaited.
#[derive(Clone)]
struct Down {
    error: Make,
    at_once: bool,
}

impl Down {
    fn fail<T: Send + 'static>(&self) -> Check<BoxFuture<Result<T, StoreError>>> {
        let error = (self.error)();
        if self.at_once {
            Check::Ready(Err(error))
        } else {
            Check::Pending(Box::pin(async { Err(error) }))
        }
    }
}

impl Backend for Down {
    type Error = StoreError;

    fn address(&self) -> Option<&str> {
        Some("192.0.2.1:6379")
    }
}

impl Store<TokenBucket> for Down {
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.fail()
    }

    fn look(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.fail()
    }

    fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        self.fail()
    }

    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        self.fail()
    }
}

/// Calls every operation of a store this many times, each under a policy of its own.
async fn ask_all(store: &impl Store<TokenBucket, Error = Infallible>, times: usize) {
    let rule = TokenBucket::per_second(10);
    let key = Key::from("ann");
    let [acquired, looked, settled, reset] = POLICIES.map(Policy::new);
    for _ in 0..times {
        let ask = |policy| [Ask::new(policy, &rule, key, Cost::ONE)];
        store.acquire(&ask(&acquired)).await.unwrap();
        store.look(&ask(&looked)).await.unwrap();
        let charge = Charge::new(Timestamp::default(), 1);
        let settlement = Settlement::new(&settled, &rule, key, charge, 0).unwrap();
        store.settle(vec![settlement]).await.unwrap();
        store.reset(&reset, &key).await.unwrap();
    }
}

const POLICIES: [&str; 4] = ["acquired", "looked", "settled", "reset"];

/// Makes an error.
type Make = fn() -> StoreError;

/// Errors, and the text that must be logged for each.
const CAUSES: [(Make, &str); 3] = [
    (StoreError::timeout, "deadline"),
    (
        || StoreError::unavailable("connection refused"),
        "connection refused",
    ),
    (|| StoreError::other("NOPERM"), "NOPERM"),
];

/// The consequence for requests, in the log line of each wrapper.
const OPEN: &str = "requests that it cannot decide are admitted, as `fail_open` asks";
const CLOSED: &str = "requests that it cannot decide are refused, as `fail_closed` asks";
const LOCAL: &str =
    "requests that it cannot decide are decided by the local store, as `fall_back_to` asks";

/// Fails 200 times for each policy, and checks the log and the counts.
async fn check_failures<S>(
    what: &str,
    store: S,
    [cause, consequence]: [&str; 2],
    failures: impl Fn(&S) -> u64,
) where
    S: Store<TokenBucket, Error = Infallible>,
{
    let (log, _guard) = Log::start();
    ask_all(&store, 200).await;
    assert_eq!(failures(&store), 800, "{what}");
    let events = log.take();
    let policies: Vec<_> = events
        .iter()
        .map(|event| event["policy"].as_str())
        .collect();
    assert_eq!(policies, POLICIES, "{what}");
    for (number, event) in events.iter().enumerate() {
        assert!(event["cause"].contains(cause), "{what}: {event:?}");
        assert_eq!(event["address"], "192.0.2.1:6379", "{what}");
        assert_eq!(event["failures"], (number + 1).to_string(), "{what}");
        assert_eq!(event["unlogged"], "0", "{what}");
        let line = format!("the rate limit store failed; {consequence} (logged once a minute");
        assert!(event["message"].starts_with(&line), "{what}: {event:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn failures_of_a_store_are_logged_by_cause_policy_and_address_at_a_bounded_rate_and_counted()
{
    for (error, cause) in CAUSES {
        for at_once in [true, false] {
            let down = || Down { error, at_once };
            let what = format!("{cause}, at once: {at_once}");
            let open = down().fail_open();
            check_failures(&what, open, [cause, OPEN], |store| store.failures()).await;
            let closed = down().fail_closed();
            check_failures(&what, closed, [cause, CLOSED], |store| store.failures()).await;
            let local = down().fall_back_to(Local::new()).rule(|_| None);
            check_failures(&what, local, [cause, LOCAL], |store| store.failures()).await;
        }
    }
}

#[cfg(feature = "tokio")]
#[tokio::test(flavor = "current_thread")]
async fn every_wrapper_passes_the_address_on() {
    let down = || Down {
        error: StoreError::timeout,
        at_once: false,
    };
    let wrapped = Arc::new(down())
        .timeout(std::time::Duration::from_secs(60))
        .circuit_breaker(tollgate::store::CircuitBreakerConfig::new().failures(10_000))
        .remember_refusals::<TokenBucket>()
        .boxed::<TokenBucket>();
    let open = wrapped.clone().fail_open();
    assert_eq!(open.address(), Some("192.0.2.1:6379"));
    check_failures("wrapped", open, ["deadline", OPEN], |store| {
        store.failures()
    })
    .await;
    let local = wrapped.fall_back_to(Local::new()).rule(|_| None);
    assert_eq!(local.address(), Some("192.0.2.1:6379"));
    check_failures("wrapped", local, ["deadline", LOCAL], |store| {
        store.failures()
    })
    .await;
}

#[tokio::test(flavor = "current_thread")]
async fn contention_is_counted_and_not_logged() {
    let (log, _guard) = Log::start();
    let store = Down {
        error: StoreError::contended,
        at_once: false,
    };
    let store = store.fail_open();
    ask_all(&store, 5).await;
    assert_eq!((store.contentions(), store.failures()), (20, 0));
    assert!(log.take().is_empty());
}

/// Logged once for each policy and cause, for any operation and any wrapper.
#[tokio::test(flavor = "current_thread")]
async fn an_unsupported_call_is_logged_once_with_the_stores_text_and_counted() {
    type Logged = (&'static str, Make, u64);
    const ROUNDS: [Logged; 3] = [
        ("one", || StoreError::unsupported("no rule of that kind"), 4),
        (
            "another",
            || StoreError::unsupported("no state of that size"),
            4,
        ),
        // Logged already.
        (
            "the first again",
            || StoreError::unsupported("no rule of that kind"),
            0,
        ),
    ];
    for (what, error, lines) in ROUNDS {
        for at_once in [true, false] {
            let (log, _guard) = Log::start();
            let open = Down { error, at_once }.fail_open();
            ask_all(&open, 50).await;
            let local = Down { error, at_once }.fall_back_to(Local::new());
            let local = local.rule(|_| None);
            ask_all(&local, 50).await;
            assert_eq!((open.failures(), open.unsupported()), (0, 200));
            assert_eq!((local.failures(), local.unsupported()), (0, 200));
            let events = log.take();
            let expected = if at_once { lines } else { 0 };
            assert_eq!(events.len() as u64, expected, "{what}: {events:?}");
            for (event, policy) in events.iter().zip(POLICIES) {
                assert_eq!(event["policy"], policy);
                assert_eq!(event["cause"], error().to_string());
                assert_eq!(event["address"], "192.0.2.1:6379");
                let line = "the rate limit store does not support these requests; they are refused with 500, even under `fail_open`";
                assert!(event["message"].starts_with(line), "{event:?}");
                assert!(event["message"].contains("misconfigured"), "{event:?}");
            }
        }
    }
}

/// The calls to one store.
#[cfg(all(feature = "redis", feature = "memcached"))]
type Asked = std::pin::Pin<Box<dyn Future<Output = ()>>>;

#[cfg(all(feature = "redis", feature = "memcached"))]
#[tokio::test(flavor = "current_thread")]
async fn stores_log_the_address_of_their_servers_and_no_password() {
    use tollgate::store::{Memcached, Redis};

    // No server listens on this port any more.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let redis = |url: &str| -> Asked {
        let store = Redis::connect_lazy(url).unwrap().fail_open();
        Box::pin(async move { ask_all(&store, 1).await })
    };
    let memcached = |url: &str| -> Asked {
        let store = Memcached::connect_lazy(url).unwrap().fail_open();
        Box::pin(async move { ask_all(&store, 1).await })
    };
    for (scheme, host, path, store) in [
        (
            "redis",
            "me:s3cret@",
            "/3",
            &redis as &dyn Fn(&str) -> Asked,
        ),
        ("redis-cluster", "me:s3cret@", "", &redis),
        ("redis-sentinel", "me:s3cret@", "/shop", &redis),
        ("memcached", "", "", &memcached),
    ] {
        let (log, _guard) = Log::start();
        store(&format!("{scheme}://{host}{address}{path}")).await;
        let events = log.take();
        assert_eq!(events.len(), 4, "{scheme}: {events:?}");
        for event in events {
            assert_eq!(event["address"], address, "{scheme}");
            assert!(!format!("{event:?}").contains("s3cret"), "{event:?}");
        }
    }
}

/// A store that answers later, and fails while it is told to.
#[derive(Clone, Default)]
struct Flaky {
    inner: Local<TokenBucket>,
    is_down: Arc<std::sync::atomic::AtomicBool>,
}

impl Flaky {
    fn set_down(&self, is_down: bool) {
        self.is_down
            .store(is_down, std::sync::atomic::Ordering::Relaxed);
    }

    fn answer<T: Send + 'static>(
        &self,
        answer: Check<impl Future<Output = Result<T, Infallible>> + Send + 'static>,
    ) -> Check<BoxFuture<Result<T, StoreError>>> {
        let is_down = self.is_down.load(std::sync::atomic::Ordering::Relaxed);
        Check::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            match answer.await {
                _ if is_down => Err(StoreError::unavailable("connection refused")),
                Ok(answer) => Ok(answer),
                Err(never) => match never {},
            }
        }))
    }
}

impl Backend for Flaky {
    type Error = StoreError;

    fn address(&self) -> Option<&str> {
        Some("192.0.2.1:6379")
    }
}

impl Store<TokenBucket> for Flaky {
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.answer(self.inner.acquire(asks))
    }

    fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.answer(Store::look(&self.inner, asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        self.answer(self.inner.settle(settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.answer(Store::<TokenBucket>::reset(&self.inner, policy, key))
    }
}

/// Goes down and comes back three times, each within the minute of the first line.
async fn check_return<S>(
    store: S,
    flaky: Flaky,
    clock: &tollgate::time::ManualClock,
    expected: &[&str],
) where
    S: Store<TokenBucket, Error = Infallible>,
{
    let (log, _guard) = Log::start();
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_second(10));
    for is_down in [false, true, false, true, false, true, false] {
        flaky.set_down(is_down);
        // After the longest pause of a circuit.
        clock.advance(std::time::Duration::from_secs(10));
        for _ in 0..20 {
            let asks = [Ask::new(&policy, &rule, Key::from("ann"), Cost::ONE)];
            store.acquire(&asks).await.unwrap();
        }
    }
    let events = log.take();
    let lines: Vec<_> = events
        .iter()
        .map(|event| {
            event["message"]
                .split([';', ':', '('])
                .next()
                .unwrap()
                .trim()
        })
        .collect();
    assert_eq!(lines, expected);
    assert!(
        events
            .iter()
            .all(|event| event["address"] == "192.0.2.1:6379"),
        "{events:?}"
    );
}

#[tokio::test(flavor = "current_thread")]
async fn the_closing_of_a_circuit_is_logged_as_its_opening_is_and_no_return_within_a_minute() {
    const FAILED: &str = "the rate limit store failed";
    let clock = tollgate::time::ManualClock::new(Timestamp::from_nanos(1_000_000_000_000));
    let flaky = Flaky::default();
    check_return(flaky.clone().fail_open(), flaky, &clock, &[FAILED]).await;
    let flaky = Flaky::default();
    let local = flaky
        .clone()
        .fall_back_to(Local::new())
        .rule(|rule| Some(*rule));
    check_return(local, flaky, &clock, &[FAILED]).await;

    let flaky = Flaky::default();
    let config = tollgate::store::CircuitBreakerConfig::new()
        .failures(3)
        .clock(clock.clone());
    let store = flaky.clone().circuit_breaker(config).fail_open();
    let opened =
        "the circuit breaker of the rate limit store is open after several failures in a row";
    let closed = "the circuit breaker of the rate limit store is closed";
    // The failure of the server, and the calls that the circuit fails.
    check_return(store, flaky, &clock, &[FAILED, opened, FAILED, closed]).await;
}
