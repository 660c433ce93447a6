//! A layer and a limiter with one budget, and blocks in front of a service.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tollgate::{
    Limit, Limiter, Policy, RateLimitLayer, TokenBucket,
    key::{AnyKey, BearerToken, Extracted, Global, Header, Key, KeyExtractor, PeerIp},
    store::{Local, Store, StoreExt},
    testing::{Fault, Faulty},
};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use super::{SECOND, cost, local, policy};

/// A service behind a layer of ten units an hour.
fn service<S>(
    store: S,
) -> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
where
    S: Store<TokenBucket, Error = Infallible, Answer: Send> + Clone + Send + Sync + 'static,
{
    let layer = RateLimitLayer::new(TokenBucket::per_hour(10))
        .policy(policy())
        .key(Header::new("x-user"))
        .store(store);
    let inner = async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()));
    ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(move |request| {
            Box::pin(inner(request)) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>
        }))
}

async fn call(
    service: &(impl Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone),
    user: &str,
) -> Response<String> {
    let request = Request::builder().header("x-user", user).body(()).unwrap();
    let Ok(response) = service.clone().oneshot(request).await;
    response
}

#[tokio::test]
async fn a_layer_and_a_limiter_share_one_budget() {
    let store = local().0.with_blocks();
    let service = service(store.clone());
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(10), store);
    let alice = Key::bytes(b"alice");
    for _ in 0..4 {
        assert_eq!(call(&service, "alice").await.status(), StatusCode::OK);
    }
    assert_eq!(limiter.look(alice).at_once().remaining(), Some(6));
    assert!(limiter.check(alice, cost(6)).at_once().is_admitted());
    let refused = call(&service, "alice").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    limiter.grant(alice, 1).at_once();
    assert_eq!(call(&service, "alice").await.status(), StatusCode::OK);
    // A grant reaches a blocked key as well.
    let _ = limiter.block(alice, SECOND).unwrap().at_once();
    limiter.grant(alice, 3).at_once();
    limiter.unblock(alice).at_once();
    assert_eq!(limiter.look(alice).at_once().remaining(), Some(3));
}

#[tokio::test]
async fn a_blocked_client_is_told_when_to_come_back() {
    let (store, clock) = local();
    let faulty = Faulty::new(store);
    // Each answer takes some polls.
    faulty.faults().always(Fault::Late(2));
    let blocks = faulty.fail_closed().with_blocks().clock(clock.clone());
    let blocks = blocks.block_after(3, 60 * SECOND, Duration::from_secs(100_000));
    let service = service(blocks.clone());
    let task = tokio::spawn(async move {
        for n in 0..20 {
            let response = call(&service, "mallory").await;
            let expected = match n {
                0..10 => StatusCode::OK,
                _ => StatusCode::TOO_MANY_REQUESTS,
            };
            assert_eq!(response.status(), expected, "{n}");
            let wait = response.headers().get("retry-after");
            let wait = wait.map(|wait| wait.to_str().unwrap().to_owned());
            let expected = match n {
                0..10 => None,
                10..12 => Some("360"),
                _ => Some("100000"),
            };
            assert_eq!(wait.as_deref(), expected, "{n}");
        }
        assert_eq!(call(&service, "alice").await.status(), StatusCode::OK);
        clock.advance(Duration::from_secs(100_000));
        assert_eq!(call(&service, "mallory").await.status(), StatusCode::OK);
    });
    task.await.unwrap();
    assert_eq!((blocks.made(), blocks.refused()), (1, 7));
}

#[tokio::test]
async fn stores_of_the_default_clock_have_blocks_behind_a_layer() {
    let service = service(Local::new().with_blocks());
    assert_eq!(call(&service, "alice").await.status(), StatusCode::OK);
}

/// The keys that the page of `Limiter` lists.
#[test]
fn the_keys_of_extractors_can_be_made_without_a_request() {
    fn is_key(extractor: impl KeyExtractor<Request<()>>, client: &str, expected: Key) {
        let client: SocketAddr = client.parse().unwrap();
        let mut request = Request::builder()
            .header("x-user", "alice")
            .header("authorization", "Bearer alice")
            .body(())
            .unwrap();
        request.extensions_mut().insert(client);
        assert_eq!(extractor.extract(&request), Ok(Extracted::Key(expected)));
    }
    let address = |text: &str| Key::from(text.parse::<IpAddr>().unwrap());
    let (v4, v6) = ("192.0.2.7:1", "[2001:db8:1:2:3:4:5:6]:1");
    is_key(Header::new("x-user"), v4, Key::bytes(b"alice"));
    is_key(BearerToken, v4, Key::bytes(b"alice"));
    is_key(PeerIp::new(), v4, address("192.0.2.7"));
    is_key(PeerIp::new(), v6, address("2001:db8:1:2::"));
    is_key(Global, v4, Key::GLOBAL);
    is_key(|_: &Request<()>| Some(7_u64), v4, Key::from(7_u64));
    is_key(|_: &Request<()>| "alice".to_owned(), v4, Key::from("alice"));
    let both = Key::join([Key::bytes(b"alice"), address("192.0.2.7")]);
    is_key((Header::new("x-user"), PeerIp::new()), v4, both);
}

/// Requests that the look of a charge after the response refuses count, and other looks do not.
#[tokio::test]
async fn refusals_by_looks_count_if_they_decide_a_request() {
    let always = |_: &Response<String>| true;
    for limits in 1..=2 {
        let store = Local::new().with_blocks();
        let store = store.block_after(10, Duration::from_secs(60), Duration::from_secs(3600));
        let by_number = |_: &Request<()>| Some(7_u64);
        let limit = || {
            let limit = RateLimitLayer::new(TokenBucket::per_hour(3)).named("logins");
            limit.key(by_number)
        };
        let late = limit().charge_after(always).store(store.clone());
        let answer = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) };
        let other = RateLimitLayer::new(TokenBucket::per_hour(1000)).store(store.clone());
        let other = (limits == 2).then_some(other);
        let service = ServiceBuilder::new()
            .layer(late)
            .option_layer(other)
            .service(service_fn(answer));
        let send = async || {
            let response = service.clone().oneshot(Request::new(())).await.unwrap();
            response.status()
        };
        for _ in 0..3 {
            assert_eq!(send().await, StatusCode::OK);
        }
        let limiter = Limiter::new(
            Policy::new("logins"),
            TokenBucket::per_hour(3),
            store.clone(),
        );
        for _ in 0..50 {
            let look = limiter.look(7_u64).at_once();
            assert_eq!(look.remaining(), Some(0));
        }
        for refusal in 1..=10 {
            assert_eq!(store.made(), 0, "{refusal}");
            assert_eq!(send().await, StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!(store.made(), 1);
        for _ in 0..50 {
            assert_eq!(send().await, StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!(store.made(), 1);
    }
}

/// So do those in a store that decides while another one is down.
#[tokio::test]
async fn refusals_by_looks_count_in_a_fallback() {
    let faulty = Faulty::new(local().0);
    faulty.faults().always(Fault::Unavailable);
    let blocks = local().0.with_blocks();
    let blocks = blocks.block_after(3, 60 * SECOND, 600 * SECOND);
    let layer = RateLimitLayer::new(TokenBucket::per_hour(1))
        .key(|_: &Request<()>| Some(7_u64))
        .charge_after(|_: &Response<String>| true)
        .store(faulty.fall_back_to(blocks.clone()).share(1, 1));
    let answer = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) };
    let service = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(answer));
    for _ in 0..4 {
        assert_eq!(blocks.made(), 0);
        let _ = service.clone().oneshot(Request::new(())).await.unwrap();
    }
    assert_eq!(blocks.made(), 1);
}

/// One client cannot have all others blocked: refusals of keys that clients share do not count.
#[tokio::test]
async fn shared_keys_are_blocked_by_hand_alone() {
    let answer = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) };
    for (text, shared) in [
        ("global", Key::GLOBAL),
        ("bearer or shared nobody", Key::shared("nobody")),
        ("header x-user or shared nobody", Key::shared("nobody")),
        (
            // As a digest.
            "header x-user or shared a-name-of-more-than-the-forty-bytes-of-a-key",
            Key::shared("a-name-of-more-than-the-forty-bytes-of-a-key"),
        ),
        ("cookie session or shared nobody", Key::shared("nobody")),
        ("bearer or global", Key::GLOBAL),
    ] {
        for remembers in [false, true] {
            let blocks = Local::new().with_blocks();
            let blocks = blocks.block_after(3, 60 * SECOND, 600 * SECOND);
            let store = match remembers {
                true => blocks.clone().remember_refusals().boxed(),
                false => blocks.clone().boxed(),
            };
            let layer = RateLimitLayer::new(TokenBucket::per_hour(1))
                .policy(policy())
                .key(text.parse::<AnyKey>().unwrap())
                .store(store);
            let service = ServiceBuilder::new()
                .layer(layer)
                .service(service_fn(answer));
            for call in 0..50 {
                let response = service.clone().oneshot(Request::new(())).await.unwrap();
                let is_refused = response.status() == StatusCode::TOO_MANY_REQUESTS;
                assert_eq!(is_refused, call > 0, "{text}");
            }
            assert_eq!((blocks.made(), blocks.counted_keys()), (0, 0), "{text}");

            let day = Duration::from_secs(86_400);
            let limiter = Limiter::new(policy(), TokenBucket::per_hour(1), blocks);
            assert_eq!(limiter.block(shared, day).unwrap().at_once(), Some(day));
            let refusal = limiter.check(shared, cost(1)).at_once();
            assert!(refusal.retry_after() > Some(day / 2), "{text}");
        }
    }
}

/// Beside a limit of all, a client is blocked for the refusals of its own limit alone.
#[tokio::test]
async fn a_limit_of_all_blocks_no_client() {
    let blocks = Local::new().with_blocks();
    let blocks = blocks.block_after(3, 60 * SECOND, 600 * SECOND);
    let layer = RateLimitLayer::new(TokenBucket::per_hour(2))
        .key(Header::new("x-user"))
        .also(Limit::new(TokenBucket::per_hour(5)).named("all"))
        .store(blocks.clone());
    let answer = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) };
    let service = ServiceBuilder::new()
        .layer(layer)
        .service(service_fn(answer));
    let admitted = async |user: &str, calls: u64| {
        let mut admitted = 0;
        for _ in 0..calls {
            let request = Request::builder().header("x-user", user).body(()).unwrap();
            let response = service.clone().oneshot(request).await.unwrap();
            admitted += u64::from(response.status() == StatusCode::OK);
        }
        admitted
    };
    assert_eq!(admitted("mallory", 50).await, 2);
    assert_eq!(blocks.made(), 1);
    assert_eq!(
        (admitted("alice", 2).await, admitted("bob", 2).await),
        (2, 1)
    );
    // Each of them is refused because of `all`.
    for user in ["carol", "dave"] {
        assert_eq!(admitted(user, 50).await, 0);
    }
    assert_eq!(blocks.made(), 1);
}
