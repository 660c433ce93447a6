//! A server that lacks what a key needs: no combinator of extractors hides it.

use std::{
    convert::Infallible,
    future::{Ready, ready},
};

#[cfg(feature = "tokio")]
use futures_util::FutureExt as _;
use http::{Request, StatusCode};
#[cfg(feature = "tokio")]
use tollgate::LeakyBucket;
use tollgate::{
    AnyRule, Cost, Limit, Limiter, Policy, RateLimitLayer, TokenBucket,
    key::{
        BearerToken, Extension, Extracted, Forwarded, ForwardedFor, Global, Header, Key,
        KeyExtractor, KeyExtractorExt, MissingKey, PeerIp, from_fn,
    },
    respond::Http,
    store::{
        Backend, Local, Store, StoreError, StoreExt as _,
        driver::{Ask, Check, Decisions, Settlement},
    },
};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Passes an extractor under every combinator to a function, with the combinator's name.
macro_rules! under_every_combinator {
    ($extractor:expr, $check:expr) => {{
        let (extractor, check) = ($extractor, $check);
        let by = || extractor.clone();
        check("itself", by().extract(&Request::new(())));
        check("or", by().or(Global).extract(&Request::new(())));
        check(
            "or, second",
            Header::new("x").or(by()).extract(&Request::new(())),
        );
        check(
            "or_shared",
            by().or_shared("anonymous").extract(&Request::new(())),
        );
        check("or_exempt", by().or_exempt().extract(&Request::new(())));
        check(
            "or_refuse",
            by().or_refuse(StatusCode::FORBIDDEN)
                .extract(&Request::new(())),
        );
        check(
            "exempt_if",
            by().exempt_paths(["/x"]).extract(&Request::new(())),
        );
        check(
            "labelled",
            by().labelled().or_exempt().extract(&Request::new(())),
        );
        check(
            "tagged",
            by().tagged("a").or_shared("b").extract(&Request::new(())),
        );
        check(
            "tuple",
            (Global, by()).or_exempt().extract(&Request::new(())),
        );
        // A part in front of it that has no key does not hide it.
        let absent = || Extension::new(|user: &u64| *user);
        check(
            "tuple, behind an absent extension",
            (absent(), by()).or_exempt().extract(&Request::new(())),
        );
        check(
            "tuple, behind a missing header",
            (Header::new("x"), by()).extract(&Request::new(())),
        );
        check(
            "tuple, last of four",
            (Header::new("x"), Global, absent(), by())
                .or_refuse(StatusCode::FORBIDDEN)
                .extract(&Request::new(())),
        );
        check(
            "twice",
            by().or(Header::new("x"))
                .or_exempt()
                .extract(&Request::new(())),
        );
    }};
}

fn is_fault(under: &str, found: Result<Extracted, MissingKey>) {
    let missing = found.expect_err(under);
    assert!(missing.is_server_fault(), "{under}");
    assert_eq!(
        missing.status(),
        StatusCode::INTERNAL_SERVER_ERROR,
        "{under}"
    );
}

#[test]
fn a_server_without_connect_info_shows_under_every_combinator() {
    under_every_combinator!(PeerIp::new(), is_fault);
    under_every_combinator!(ForwardedFor::hops(1), is_fault);
    under_every_combinator!(Forwarded::hops(1), is_fault);
}

#[test]
fn what_an_extractor_calls_misconfigured_shows_under_every_combinator() {
    fn unset(_: &Request<()>) -> Result<Key, MissingKey> {
        Err(MissingKey::misconfigured("set `SESSION_URL`"))
    }
    under_every_combinator!(from_fn(unset), is_fault);
}

#[test]
fn users_who_are_not_logged_in_may_have_a_key_of_their_own() {
    #[derive(Clone)]
    struct User(u64);
    let by_user = || Extension::new(|user: &User| user.0);
    let request = Request::new(());
    let alone = by_user().extract(&request).unwrap_err();
    assert!(alone.is_server_fault());
    assert_eq!(
        by_user().or_shared("anonymous").extract(&request),
        Ok(Extracted::Key(Key::shared("anonymous")))
    );
    assert_eq!(
        by_user().or_exempt().extract(&request),
        Ok(Extracted::Exempt)
    );
    let refused = by_user()
        .or_refuse(StatusCode::UNAUTHORIZED)
        .extract(&request);
    assert_eq!(refused.unwrap_err().status(), StatusCode::UNAUTHORIZED);
    // Neither of them has a key: it is the visitor's fault, in either order.
    let none = by_user().or(Header::new("x")).extract(&request);
    assert_eq!(none, Header::new("x").extract(&request));
    let none = Header::new("x").or(by_user()).extract(&request);
    assert_eq!(none, Header::new("x").extract(&request));
    let none = BearerToken.or(by_user()).extract(&request).unwrap_err();
    assert_eq!(none.challenge(), Some("Bearer"));
    let none = by_user().or(by_user().tagged("b")).extract(&request);
    let none = none.unwrap_err();
    assert_eq!(
        (none.status(), none.is_server_fault()),
        (StatusCode::BAD_REQUEST, false)
    );
    assert_eq!(none.detail(), "there must be a key in the request");
    let refused = by_user()
        .tagged("a")
        .labelled()
        .or_refuse(StatusCode::UNAUTHORIZED);
    assert!(!refused.extract(&request).unwrap_err().is_server_fault());
    // What only changes a key does not say that it may be absent.
    let tagged = by_user().tagged("a").labelled().exempt_paths(["/x"]);
    assert!(tagged.extract(&request).unwrap_err().is_server_fault());
    // The operator hears of the server's address.
    let none = by_user().or(PeerIp::new()).extract(&request).unwrap_err();
    let help = none.help().unwrap().expose_to_operator();
    assert!(
        help.contains("into_make_service_with_connect_info"),
        "{help}"
    );
    assert_eq!(
        by_user().or(PeerIp::new()).or_exempt().extract(&request),
        Err(none)
    );
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_layer_counts_the_fault_and_admits_nobody() {
    use axum::{Router, body::Body, routing::get};

    let exempt = RateLimitLayer::new(TokenBucket::per_hour(1)).key(PeerIp::new().or_exempt());
    let shared =
        RateLimitLayer::new(TokenBucket::per_hour(1)).key(PeerIp::new().or_shared("anonymous"));
    let app: Router = Router::new()
        .route("/exempt", get(async || "hello").layer(exempt.clone()))
        .route("/shared", get(async || "hello").layer(shared.clone()));
    for path in ["/exempt", "/shared"] {
        for _ in 0..2 {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(
                response.status(),
                StatusCode::INTERNAL_SERVER_ERROR,
                "{path}"
            );
        }
    }
    assert_eq!((exempt.misconfigured(), shared.misconfigured()), (2, 2));
}

const CHILD: &str = "TOLLGATE_UNHEARD";

/// The program that the process of the next test runs.
#[tokio::test]
async fn unheard_server() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    // Neither a dry run nor a visitor who is not logged in uses up the line.
    let dry = RateLimitLayer::new(TokenBucket::per_hour(1))
        .named("dry")
        .key(PeerIp::new())
        .respond(Http::empty())
        .dry_run();
    let by_user = Extension::new(|user: &u64| *user).or_refuse(StatusCode::UNAUTHORIZED);
    let visitors = RateLimitLayer::new(TokenBucket::per_hour(1))
        .named("visitors")
        .key(by_user)
        .respond(Http::empty());
    let dry_service = dry.layer(service_fn(hello));
    let answer = dry_service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let answer = visitors
        .layer(service_fn(hello))
        .oneshot(Request::new(()))
        .await;
    assert_eq!(answer.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!((dry.misconfigured(), visitors.misconfigured()), (0, 0));
    for name in ["first", "second"] {
        let layer = RateLimitLayer::new(TokenBucket::per_hour(1))
            .named(name)
            .key(PeerIp::new())
            .respond(Http::empty());
        let service = layer.layer(service_fn(hello));
        for _ in 0..3 {
            let response = service.clone().oneshot(Request::new(())).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}

/// A store that can run no rule.
#[derive(Clone)]
struct NoStore;

impl Backend for NoStore {
    type Error = StoreError;
}

impl Store<TokenBucket> for NoStore {
    type Answer = Ready<Result<Decisions, StoreError>>;
    type Done = Ready<Result<(), StoreError>>;

    fn acquire(&self, _: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        Check::Ready(Err(StoreError::unsupported("no rule runs here")))
    }

    fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.acquire(asks)
    }

    fn settle(&self, _: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }

    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
}

/// A store that leaves the last decisions of an answer out.
#[derive(Clone, Debug)]
struct Short {
    store: Local<AnyRule>,
    lost: usize,
    /// Set if looks lack decisions, too.
    is_short_at_looks: bool,
    is_late: bool,
}

impl Short {
    fn answer(
        &self,
        whole: Check<<Local<AnyRule> as Store<AnyRule>>::Answer>,
        is_short: bool,
    ) -> Check<Ready<Result<Decisions, Infallible>>> {
        let Ok(whole) = whole.at_once();
        let lost = if is_short { self.lost } else { 0 };
        let left = whole.as_slice().len().saturating_sub(lost);
        let answer = Ok(whole.as_slice()[..left].iter().copied().collect());
        match self.is_late {
            true => Check::Pending(ready(answer)),
            false => Check::Ready(answer),
        }
    }
}

impl Backend for Short {
    type Error = Infallible;
}

impl Store<AnyRule> for Short {
    type Answer = Ready<Result<Decisions, Infallible>>;
    type Done = Ready<Result<(), Infallible>>;

    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        self.answer(Store::acquire(&self.store, asks), true)
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        self.answer(Store::look(&self.store, asks), self.is_short_at_looks)
    }

    fn settle(&self, _: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }

    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_store_that_answers_too_few_asks_admits_nobody() {
    const SHORT: [bool; 2] = [true, false];
    let cases = (1..=3).flat_map(|lost| SHORT.map(|late| (lost, late)));
    let cases = cases.flat_map(|case| SHORT.map(|looks| (case, looks)));
    for ((lost, is_late), is_short_at_looks) in cases {
        let store = Short {
            store: Local::new(),
            lost,
            is_short_at_looks,
            is_late,
        };
        let rule = |text: &str| text.parse::<AnyRule>().unwrap();
        let limit = |name: &str| Limit::new(rule("token-bucket 9/1h")).named(name);
        let layer = |name| RateLimitLayer::from(limit(name)).store(store.clone());
        let always = |_: &http::Response<()>| true;
        macro_rules! assert_refuses {
            ($layer:expr) => {{
                let layer = $layer.respond(Http::empty());
                let answer = layer.layer(service_fn(hello)).oneshot(Request::new(()));
                let case = format!("{store:?}: {}", stringify!($layer));
                assert_eq!(answer.await.unwrap().status(), 500, "{case}");
            }};
        }
        assert_refuses!(layer("one"));
        assert_refuses!(layer("one").also(limit("two")));
        let list = ["one", "two", "three"].map(|name| limit(name).boxed());
        let list = RateLimitLayer::list(list.into()).unwrap();
        assert_refuses!(list.store(store.clone()));
        assert_refuses!(layer("one").also(limit("two").dry_run()));
        assert_refuses!(layer("two").dry_run().also(limit("one")));
        assert_refuses!(layer("one").charge_after(always));
        assert_refuses!(layer("one").charge_after(always).also(limit("two")));
        assert_refuses!(RateLimitLayer::new(rule("in-flight 9")).store(store.clone()));

        for rule in [rule("token-bucket 9/1h"), rule("in-flight 9")] {
            let limiter = Limiter::new(Policy::default(), rule, store.clone());
            assert!(!limiter.check(Key::GLOBAL, Cost::ONE).await.is_admitted());
            assert!(limiter.permit(Key::GLOBAL, Cost::ONE).await.is_err());
        }
    }
}

/// The program that the process of a test below runs.
#[tokio::test]
async fn unheard_store() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for name in ["first", "second"] {
        let layer = RateLimitLayer::new(TokenBucket::per_hour(1))
            .named(name)
            .respond(Http::empty())
            .store(NoStore.fail_open());
        for _ in 0..3 {
            let answer = layer.layer(service_fn(hello)).oneshot(Request::new(()));
            assert_eq!(answer.await.unwrap().status(), 500);
        }
        assert_eq!(layer.misconfigured(), 3);
    }
}

/// The program that the process of a test below runs: without a runtime nothing can be delayed.
#[cfg(feature = "tokio")]
#[test]
fn unheard_delay() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for name in ["first", "second"] {
        let layer = RateLimitLayer::new(LeakyBucket::per_hour(1))
            .named(name)
            .respond(Http::empty());
        let statuses = [200, 429, 429].map(|_| {
            let answer = layer.layer(service_fn(hello)).oneshot(Request::new(()));
            answer.now_or_never().unwrap().unwrap().status().as_u16()
        });
        assert_eq!((statuses, layer.misconfigured()), ([200, 429, 429], 2));
    }
}

async fn hello(_: Request<()>) -> Result<http::Response<()>, Infallible> {
    Ok(http::Response::new(()))
}

/// Runs one of the programs above, and returns the only line that it writes.
fn line_of(program: &str) -> String {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            &format!("server_faults::{program}"),
            "--exact",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{errors}");
    let written: Vec<_> = errors
        .lines()
        .filter(|line| line.starts_with("tollgate: "))
        .collect();
    assert_eq!(written.len(), 1, "{errors}");
    assert!(
        written[0].contains("the limit `first` refuses requests as the server's fault"),
        "{errors}"
    );
    written[0].to_owned()
}

#[test]
fn a_fault_that_no_log_hears_is_written_to_standard_error_once() {
    let line = line_of("unheard_server");
    assert!(
        line.contains("into_make_service_with_connect_info"),
        "{line}"
    );
}

/// Before, only missing keys were written.
#[test]
fn a_store_that_does_not_support_a_call_is_written_too() {
    let line = line_of("unheard_store");
    assert!(line.contains("take another rule or store"), "{line}");
}

#[cfg(feature = "tokio")]
#[test]
fn a_delay_that_nothing_can_hold_is_written_too() {
    let line = line_of("unheard_delay");
    assert!(line.contains("within a runtime of tokio"), "{line}");
}
