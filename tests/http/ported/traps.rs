//! Each trap that `src/migration.md` has in bold, for tower_governor and governor.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, response::Response, routing::get};
use http::{Method, StatusCode, response::Parts};
use tokio::time::Instant;
use tollgate::{
    Outcome, Timestamp,
    pace::Pacer,
    prelude::*,
    respond::Refusal,
    time::{Clock, ManualClock},
};
use tower::ServiceExt;
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::{GovernorConfig, GovernorConfigBuilder},
    key_extractor::{KeyExtractor as _, PeerIpKeyExtractor, SmartIpKeyExtractor},
};

use super::{api_keys, proxy, round::Visitor};
use crate::axum::Caller;

const SECOND: Duration = Duration::from_secs(1);

/// Returns how many of one request a millisecond a rule admits within some time.
fn admitted(rule: TokenBucket, within: Duration) -> usize {
    let pacer = Pacer::new(rule);
    let instants = (0..within.as_millis() as u64).map(|millis| millis * 1_000_000);
    instants
        .filter(|nanos| pacer.can_do_work(Timestamp::from_nanos(*nanos)))
        .count()
}

/// The program that compiles and admits four times as much.
#[test]
fn per_second_is_another_number() {
    let mut theirs = GovernorConfigBuilder::default();
    let theirs = theirs.per_second(2).burst_size(1).finish().unwrap();
    let client = IpAddr::from([192, 0, 2, 7]);
    assert!(theirs.limiter().check_key(&client).is_ok());
    let refused = theirs.limiter().check_key(&client).unwrap_err();
    assert_eq!(refused.quota().replenish_interval(), 2 * SECOND);
    // In governor it means what it means here.
    let governor = |number| governor::Quota::per_second(NonZeroU32::new(number).unwrap());
    assert_eq!(governor(2).replenish_interval(), SECOND / 2);
    // But for the fraction of a nanosecond.
    assert_eq!(
        governor(3).replenish_interval() * 3,
        SECOND - Duration::from_nanos(1)
    );

    let ported = TokenBucket::one_every(2 * SECOND).burst(5);
    let mistaken = TokenBucket::per_second(2).burst(5);
    let span = 100 * SECOND;
    assert_eq!(admitted(ported, span), 5 + 49);
    assert_eq!(admitted(mistaken, span), 5 + 199);
}

/// The presets, and the numbers that the page has for them.
#[test]
fn presets_are_these_rules() {
    let rule = |millis, burst| TokenBucket::one_every(Duration::from_millis(millis)).burst(burst);
    let client = IpAddr::from([192, 0, 2, 7]);
    for (preset, ported) in [
        (GovernorConfig::default(), rule(500, 8)),
        (GovernorConfig::secure(), rule(4000, 2)),
    ] {
        let limiter = preset.limiter();
        let passed = (0..20).filter(|_| limiter.check_key(&client).is_ok());
        assert_eq!(passed.count() as u64, ported.capacity());
        let refused = limiter.check_key(&client).unwrap_err();
        let quota = refused.quota();
        assert_eq!(quota.replenish_interval(), ported.quota().period());
    }
}

#[test]
fn no_rate_is_none_there_and_an_error_here() {
    assert!(
        GovernorConfigBuilder::default()
            .per_second(0)
            .finish()
            .is_none()
    );
    assert!(
        GovernorConfigBuilder::default()
            .burst_size(0)
            .finish()
            .is_none()
    );
    assert!(Quota::try_new(1, Duration::ZERO).is_err());
    assert!(TokenBucket::one_every(SECOND).try_burst(0).is_err());
}

/// Without a setting.
#[tokio::test]
async fn defaults_differ() {
    let mut theirs = GovernorConfigBuilder::default();
    let theirs = theirs.per_second(60).finish().unwrap();
    let client = IpAddr::from([192, 0, 2, 7]);
    let passed = (0..20).filter(|_| theirs.limiter().check_key(&client).is_ok());
    assert_eq!(passed.count(), 8);
    let rule = TokenBucket::one_every(60 * SECOND);
    assert_eq!(rule.capacity(), 1);

    // Without a key, another client is refused, too.
    let nobody = app().layer(RateLimitLayer::new(rule));
    let each = app().layer(RateLimitLayer::new(rule).key(PeerIp::new()));
    for (app, second) in [
        (nobody, StatusCode::TOO_MANY_REQUESTS),
        (each, StatusCode::OK),
    ] {
        assert_eq!(
            ask_from(&app, [192, 0, 2, 7]).await.status(),
            StatusCode::OK
        );
        assert_eq!(ask_from(&app, [192, 0, 2, 8]).await.status(), second);
    }
}

/// Sends requests to one version, with a header that differs each time; returns how many were
/// admitted.
async fn forged(server: SocketAddr, peer: [u8; 4], forward: impl Fn(u32) -> String) -> u32 {
    let (caller, mut admitted) = (Caller::at(peer, server), 0);
    for number in 0..20 {
        let forwarded = forward(number);
        let headers = [("x-forwarded-for", &*forwarded)];
        let answer = caller.call(Method::POST, "/comments", &headers).await;
        admitted += u32::from(answer.status == 200);
    }
    admitted
}

#[tokio::test]
async fn the_leftmost_address_is_the_clients_invention() {
    let servers = proxy().run().await;
    let [before, after] = servers.addresses();
    let begun = Instant::now();
    let refilled = |begun: Instant| (begun.elapsed().as_millis() / 4000) as u32;

    // The proxy appends the address that it sees to what the client sent.
    let by_proxy = |number: u32| format!("198.51.100.{number}, 192.0.2.1");
    let proxy = [127, 0, 0, 1];
    assert_eq!(forged(before, proxy, by_proxy).await, 20);
    let admitted = forged(after, proxy, by_proxy).await;
    assert!((5..=5 + refilled(begun)).contains(&admitted), "{admitted}");

    // A client that gets around the proxy.
    let begun = Instant::now();
    let alone = |number: u32| format!("198.51.100.{number}");
    let client = [127, 0, 0, 2];
    assert_eq!(forged(before, client, alone).await, 20);
    let admitted = forged(after, client, alone).await;
    assert!((5..=5 + refilled(begun)).contains(&admitted), "{admitted}");
}

/// A client that waits as it was told is refused again, and now is not.
#[tokio::test]
async fn retry_after_is_rounded_down_there_and_up_here() {
    let period = Duration::from_millis(900);
    let mut theirs = GovernorConfigBuilder::default();
    let theirs = theirs.period(period).burst_size(1).finish().unwrap();
    let before = app().layer(GovernorLayer::new(theirs));
    let ours = TokenBucket::one_every(period);
    let after = app().layer(RateLimitLayer::new(ours).key(PeerIp::new()));
    for _ in 0..8 {
        let begun = Instant::now();
        let first = [ask(&before).await, ask(&after).await];
        let second = [ask(&before).await, ask(&after).await];
        // What it was told to wait is over.
        let third = ask(&before).await;
        if begun.elapsed() >= period {
            // The machine is busy. Both have refilled after a while.
            tokio::time::sleep(period).await;
            continue;
        }
        assert_eq!(first.map(|answer| answer.status()), [StatusCode::OK; 2]);
        let refused = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(
            second.each_ref().map(|answer| answer.status()),
            [refused; 2]
        );
        let waits = second
            .each_ref()
            .map(|answer| seconds(answer, "retry-after"));
        assert_eq!(waits, [0, 1]);
        assert_eq!(third.status(), refused);
        tokio::time::sleep(Duration::from_secs(waits[1])).await;
        assert_eq!(ask(&after).await.status(), StatusCode::OK);
        return;
    }
    panic!("no round in {period:?}: the machine is too busy");
}

fn app() -> Router {
    Router::new().route("/", get(async || "hello\n"))
}

async fn ask(app: &Router) -> Response {
    ask_from(app, [192, 0, 2, 7]).await
}

/// Asks as a client whose address the server passes on.
async fn ask_from(app: &Router, client: [u8; 4]) -> Response {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from((client, 4711));
    let info = axum::extract::ConnectInfo(peer);
    request.extensions_mut().insert(info);
    app.clone().oneshot(request).await.unwrap()
}

fn seconds(answer: &Response, field: &str) -> u64 {
    let seconds = answer.headers()[field].to_str().unwrap();
    seconds.parse().unwrap()
}

/// `X-RateLimit-Reset` is no wait.
#[tokio::test]
async fn the_reset_is_the_instant_at_which_the_quota_is_full() {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let rule = TokenBucket::one_every(60 * SECOND).burst(5);
    let answers = Http::new().headers(Headers::Legacy);
    let layer = RateLimitLayer::new(rule).store(store).respond(answers);
    let app = app().layer(layer);
    for _ in 0..5 {
        assert_eq!(ask(&app).await.status(), StatusCode::OK);
    }
    let refused = ask(&app).await;
    assert_eq!(seconds(&refused, "retry-after"), 60);
    let full = clock.now().saturating_add(300 * SECOND);
    let unix = full.as_nanos() / 1_000_000_000;
    assert_eq!(seconds(&refused, "x-ratelimit-reset"), unix);
}

async fn text(answer: Response) -> String {
    let body = axum::body::to_bytes(answer.into_body(), 1000)
        .await
        .unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// An error handler that makes a response of its own loses the header fields, which are a part of
/// the error. A body of one's own does not.
#[tokio::test]
async fn an_error_handler_has_to_pass_the_header_fields_on() {
    let config = GovernorConfigBuilder::default()
        .per_second(60)
        .burst_size(1)
        .finish()
        .unwrap();
    let handler = |_: GovernorError| {
        let answer = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
        answer.body(Body::from("slow down")).unwrap()
    };
    let before = app().layer(GovernorLayer::new(config).error_handler(handler));
    let body = |_: &Refusal, _: &mut Parts| Body::from("slow down");
    let limit = RateLimitLayer::new(TokenBucket::one_every(60 * SECOND)).respond(Http::body(body));
    let after = app().layer(limit);
    for (app, retry_after) in [(before, None), (after, Some("60"))] {
        assert_eq!(ask(&app).await.status(), StatusCode::OK);
        let refused = ask(&app).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let field = refused.headers().get("retry-after");
        assert_eq!(field.map(|value| value.to_str().unwrap()), retry_after);
        assert_eq!(text(refused).await, "slow down");
    }
}

#[tokio::test]
async fn the_peer_address_is_missing_without_connect_info() {
    let config = GovernorConfig::default();
    let before = app().layer(GovernorLayer::new(config));
    let after = app().layer(RateLimitLayer::new(TokenBucket::per_second(1)).key(PeerIp::new()));
    for (app, body) in [
        (before, "Unable To Extract Key!"),
        (after, "Internal Server Error"),
    ] {
        let answer = app.oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let text = text(answer).await;
        assert!(text.contains(body), "{text}");
    }
}

/// A client that sends no key counts as a fault of the server there.
#[tokio::test]
async fn a_request_without_a_key_is_500_there_and_400_here() {
    let servers = api_keys().run().await;
    let mut statuses = Vec::new();
    for server in servers.addresses() {
        let caller = Caller::at(Visitor::at([127, 0, 0, 2]).at, server);
        statuses.push(caller.call(Method::GET, "/", &[]).await.status);
    }
    assert_eq!(statuses, [500, 400]);
}

/// A /64 is one client here, and 2⁶⁴ clients there.
#[test]
fn clients_of_ipv6_have_many_addresses() {
    let request = |address: &str| {
        let mut request = http::Request::new(());
        let peer = SocketAddr::new(address.parse().unwrap(), 4711);
        request
            .extensions_mut()
            .insert(axum::extract::ConnectInfo(peer));
        request
    };
    let [one, other, far] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(request);
    let theirs = |request| PeerIpKeyExtractor.extract(request).unwrap();
    assert_ne!(theirs(&one), theirs(&other));
    let ours = |request| tollgate::key::KeyExtractor::extract(&PeerIp::new(), request).unwrap();
    assert_eq!(ours(&one), ours(&other));
    assert_ne!(ours(&one), ours(&far));
}

/// It reads three headers, of which the proxy has to remove those that it does not write.
#[test]
fn any_of_three_headers_is_the_address() {
    for (name, value) in [
        ("x-forwarded-for", "198.51.100.7, 192.0.2.1"),
        ("x-real-ip", "198.51.100.7"),
        ("forwarded", "for=198.51.100.7, for=192.0.2.1"),
    ] {
        let mut request = http::Request::builder()
            .header(name, value)
            .body(())
            .unwrap();
        let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
        request
            .extensions_mut()
            .insert(axum::extract::ConnectInfo(peer));
        let theirs = SmartIpKeyExtractor.extract(&request).unwrap();
        assert_eq!(theirs, IpAddr::from([198, 51, 100, 7]), "{name}");
        let ours = ForwardedFor::try_trusting(["127.0.0.1"]).unwrap();
        assert_eq!(
            ours.client(&request),
            Some(IpAddr::from([192, 0, 2, 1])),
            "{name}"
        );
    }
}

/// Clients that do not come back stay in memory until `retain_recent` is called.
#[test]
fn memory_grows_with_each_address() {
    const CLIENTS: u32 = 10_000;
    // A bucket is full again when the next client comes.
    let config = GovernorConfigBuilder::default()
        .per_nanosecond(1)
        .finish()
        .unwrap();
    let store = tollgate::store::LocalBuilder::new().capacity(1000).build();
    let policy = tollgate::Policy::new("clients");
    let rule = TokenBucket::one_every(Duration::from_nanos(34)).burst(8);
    let limiter = Limiter::new(policy, rule, store.clone());
    for number in 0..CLIENTS {
        let client = IpAddr::V4(Ipv4Addr::from_bits(number));
        assert!(config.limiter().check_key(&client).is_ok());
        assert!(limiter.check(client, Cost::ONE).at_once().is_admitted());
    }
    assert_eq!(config.limiter().len(), CLIENTS as usize);
    assert!(store.len() <= 1000, "{}", store.len());
    // The bucket of the last one is full, too.
    std::thread::sleep(Duration::from_millis(1));
    config.limiter().retain_recent();
    assert_eq!(config.limiter().len(), 0);
}

/// A layer that is cloned shares its budget; one that is built twice does not. Both crates agree.
#[tokio::test]
async fn clones_share_a_budget_and_second_layers_do_not() {
    let theirs = || {
        let mut config = GovernorConfigBuilder::default();
        GovernorLayer::new(config.per_second(60).burst_size(2).finish().unwrap())
    };
    let ours = || RateLimitLayer::new(TokenBucket::one_every(60 * SECOND).burst(2));
    let (their_first, our_first) = (theirs(), ours());
    let cloned = [
        [app().layer(their_first.clone()), app().layer(their_first)],
        [app().layer(our_first.clone()), app().layer(our_first)],
    ];
    let built_twice = [
        [app().layer(theirs()), app().layer(theirs())],
        [app().layer(ours()), app().layer(ours())],
    ];
    for (pairs, expected) in [(cloned, 2), (built_twice, 4)] {
        for pair in pairs {
            let mut admitted = 0;
            for number in 0..8 {
                let answer = ask(&pair[number % 2]).await;
                admitted += u32::from(answer.status() == StatusCode::OK);
            }
            assert_eq!(admitted, expected);
        }
    }
    // The configuration can also be shared.
    let config = Arc::new(
        GovernorConfigBuilder::default()
            .per_second(60)
            .burst_size(2)
            .finish()
            .unwrap(),
    );
    let layers = [0, 1].map(|_| app().layer(GovernorLayer::new(Arc::clone(&config))));
    for app in &layers {
        assert_eq!(ask(app).await.status(), StatusCode::OK);
    }
    assert_eq!(
        ask(&layers[0]).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

/// Requests of other methods are free in both. The handler sees that here.
#[tokio::test]
async fn methods_are_an_exemption() {
    let mut config = GovernorConfigBuilder::default();
    let config = config
        .per_second(60)
        .burst_size(1)
        .methods(vec![Method::POST])
        .finish()
        .unwrap();
    let before = app().layer(GovernorLayer::new(config));
    let key = PeerIp::new().exempt_if(|request: &Request| request.method() != Method::POST);
    let handler = async |outcome: Outcome| outcome.is_empty().to_string();
    let after = Router::new().route("/", get(handler));
    let after = after.layer(RateLimitLayer::new(TokenBucket::one_every(60 * SECOND)).key(key));
    for (app, body) in [(before, "hello\n"), (after, "true")] {
        for _ in 0..3 {
            let answer = ask(&app).await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(text(answer).await, body);
        }
    }
}

/// The outer result of governor is about the burst, and not the decision.
#[test]
fn a_refusal_of_several_units_is_ok_there() {
    let two = NonZeroU32::new(2).unwrap();
    let theirs = governor::RateLimiter::direct(governor::Quota::per_hour(two));
    assert_eq!(theirs.check_n(two), Ok(Ok(())));
    let refused = theirs.check_n(two);
    assert!(refused.is_ok() && refused.unwrap().is_err());
    assert!(theirs.check_n(NonZeroU32::new(3).unwrap()).is_err());

    let policy = tollgate::Policy::new("units");
    let ours = Limiter::new(policy, TokenBucket::per_hour(2), Local::new());
    let check = |units| ours.check(Key::GLOBAL, Cost::new(units).unwrap()).at_once();
    assert!(check(2).is_admitted());
    let refused = check(2);
    assert!(!refused.is_admitted() && !refused.is_oversized());
    assert!(check(3).is_oversized());
}

/// A task that waits is overtaken there by one that has just come.
#[tokio::test]
async fn tasks_that_wait_race_there_and_queue_here() {
    let period = Duration::from_millis(20);
    let quota = governor::Quota::with_period(period).unwrap();
    let theirs = governor::RateLimiter::direct(quota);
    assert!(theirs.check().is_ok());
    let mut waits = std::pin::pin!(theirs.until_ready());
    assert!(futures_util::poll!(&mut waits).is_pending());
    // The unit is there, and the task has not been polled yet.
    std::thread::sleep(2 * period);
    assert!(theirs.check().is_ok());

    let clock = ManualClock::default();
    let ours = Pacer::with_clock(TokenBucket::one_every(period), clock.clone());
    assert!(ours.can_do_work(clock.now()));
    let mut waits = std::pin::pin!(ours.until_ready());
    assert!(futures_util::poll!(&mut waits).is_pending());
    clock.advance(2 * period);
    assert!(!ours.can_do_work(clock.now()));
    assert!(waits.await.is_ok());
}
