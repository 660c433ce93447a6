//! Calls that a store does not support are errors of that call alone: neither a failure of the
//! server nor a way around a limit. Rules that do not fit are rejected when the layer is built.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response, StatusCode, request::Builder};
use tollgate::{
    Decision, Limit, Policy, RateLimitLayer, TokenBucket,
    future::BoxFuture,
    key::{Header, Key},
    respond::{AsError, Http, Refused},
    store::{
        Backend, CircuitBreakerConfig, CircuitState, FailureMode, Local, NeverFails, Store,
        StoreError, StoreExt,
        driver::{Ask, Check, Decisions, Settlement},
    },
    testing::Faulty,
    time::TokioClock,
};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::fakes::{Asked, Bucket, Fault, Kind, local};

const UNSUPPORTED: [Fault; 2] = [
    Fault::Fails(Kind::Unsupported),
    Fault::FailsAtOnce(Kind::Unsupported),
];

/// Checks the decision of such a call: the server's fault, without numbers.
fn check(decision: &Decision) {
    assert!(decision.is_unsupported() && decision.is_undecided() && !decision.is_admitted());
    let numbers = (decision.limit(), decision.remaining(), decision.quota());
    assert_eq!(numbers, (None, None, None));
    assert_eq!(decision.retry_after(), None);
    assert_eq!({ *decision }.take_charge(), None);
}

/// Makes every operation, and checks the counts of failures, contentions, and unsupported calls.
async fn assert_refused<S>(name: &str, store: &S, counted: impl Fn() -> (u64, u64, u64))
where
    S: Store<TokenBucket, Error: NeverFails + std::fmt::Debug>,
{
    let asked = Asked::of(TokenBucket::per_hour(10));
    let charged = asked.acquire(&local(), "a", 1).await.unwrap();
    check(&asked.acquire(store, "a", 1).await.unwrap());
    check(&asked.look(store, "a").await.unwrap());
    // One answer per ask.
    let two = [asked.ask("a", 1), asked.ask("b", 2)];
    let decisions = store.acquire(&two).await.unwrap();
    assert_eq!(decisions.as_slice().len(), 2, "{name}");
    decisions.as_slice().iter().for_each(check);
    let settlement = asked.settlement("a", &charged, 0);
    store.settle(vec![settlement]).await.unwrap();
    store.reset(&asked.policy, &Key::from("a")).await.unwrap();
    assert_eq!(counted(), (0, 0, 5), "{name}");
}

#[tokio::test(start_paused = true)]
async fn no_policy_admits_an_unsupported_call() {
    for fault in UNSUPPORTED {
        let remote = Bucket::new();
        remote.usually(fault);
        let open = remote.clone().fail_open();
        let clone = open.clone();
        assert_refused("open", &open, || {
            (clone.failures(), clone.contentions(), clone.unsupported())
        })
        .await;
        for (name, choice) in [("open", FailureMode::Open), ("closed", FailureMode::Closed)] {
            let chosen = remote.clone().fail_open().when_contended(choice);
            let clone = chosen.clone();
            assert_refused(name, &chosen, || {
                (clone.failures(), clone.contentions(), clone.unsupported())
            })
            .await;
        }
        let closed = remote.clone().fail_closed();
        let clone = closed.clone();
        assert_refused("closed", &closed, || {
            (clone.failures(), clone.contentions(), clone.unsupported())
        })
        .await;
        let here = local();
        let local = remote.clone().fall_back_to(here).share(1, 2);
        let clone = local.clone();
        assert_refused("local", &local, || {
            (clone.failures(), clone.contentions(), clone.unsupported())
        })
        .await;
        assert_eq!((local.decided(), local.turned_away()), (0, 0));
        // None of these calls was charged.
        remote.usually(Fault::None);
        let asked = Asked::of(TokenBucket::per_hour(10));
        assert_eq!(asked.pass(&closed, "a", 20).await, 10);
    }
}

/// One client whose every call is an error, and one within its limit, under each failure policy of
/// the whole stack.
#[tokio::test(start_paused = true)]
async fn unsupported_calls_of_one_client_do_not_affect_others() {
    for fault in UNSUPPORTED {
        for end in ["open", "closed", "local"] {
            let remote = Bucket::new();
            let breaker = remote
                .clone()
                .timeout(Duration::from_millis(50))
                .circuit_breaker(
                    CircuitBreakerConfig::new()
                        .failures(2)
                        .clock(TokioClock::new()),
                );
            let memory = breaker.clone().remember_refusals();
            let store = match end {
                "open" => memory.clone().fail_open().boxed(),
                "closed" => memory.clone().fail_closed().boxed(),
                _ => memory.clone().fall_back_to(local()).share(1, 2).boxed(),
            };
            let asked = Asked::of(TokenBucket::per_hour(10));
            let mut passed = 0;
            for _ in 0..20 {
                for _ in 0..5 {
                    remote.plan([fault]);
                    check(&asked.acquire(&store, "hostile", 1).await.unwrap());
                }
                passed += asked.pass(&store, "honest", 1).await;
            }
            assert_eq!(passed, 10, "{end}, {fault:?}");
            let seen = (breaker.state(), breaker.opened(), breaker.rejected());
            assert_eq!(seen, (CircuitState::Closed, 0, 0), "{end}, {fault:?}");
            // The remembered refusal is the honest client's.
            assert_eq!((memory.remembered(), memory.len()), (1, 1));
        }
    }
}

/// Such an answer is not a refusal that an outer wrapper remembers.
#[tokio::test(start_paused = true)]
async fn an_unsupported_call_is_not_remembered_as_a_refusal() {
    let asked = Asked::of(TokenBucket::per_hour(10));
    for fault in UNSUPPORTED {
        let remote = Bucket::new();
        let store = remote.clone().fail_open().remember_refusals();
        remote.plan([fault; 3]);
        for _ in 0..3 {
            check(&asked.acquire(&store, "a", 1).await.unwrap());
        }
        assert!(store.is_empty());
        assert_eq!(asked.pass(&store, "a", 20).await, 10);
    }
}

fn get() -> Builder {
    Request::get("/").header("x-client", "a")
}

/// Returns the responses, and how many of them the layer counted as the server's fault.
async fn answers<S>(store: S) -> (Vec<(http::response::Parts, String)>, u64)
where
    S: Store<TokenBucket, Error: NeverFails> + Clone + Send + Sync + 'static,
{
    let hourly = Limit::new(TokenBucket::per_hour(10)).named("hourly");
    let one = RateLimitLayer::new(TokenBucket::per_hour(10)).store(store);
    let two = one.clone().also(hourly.key(Header::new("x-client")));
    let inner = || {
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("passed".to_owned())))
    };
    let mut answers = Vec::new();
    for request in [
        get(),
        Request::head("/").header("x-client", "a"),
        Request::post("/")
            .header("x-client", "a")
            .header("content-type", "application/grpc"),
    ] {
        let request = request.body(()).unwrap();
        for response in [
            one.layer(inner()).oneshot(request.clone()).await,
            two.layer(inner()).oneshot(request).await,
        ] {
            let Ok(response) = response;
            answers.push(response.into_parts());
        }
    }
    assert_eq!(one.misconfigured(), two.misconfigured());
    (answers, one.misconfigured())
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_request_is_the_servers_fault_and_counted() {
    for fault in UNSUPPORTED {
        let remote = Bucket::new();
        remote.usually(fault);
        for (answers, counted) in [
            answers(remote.clone().fail_open()).await,
            answers(remote.clone().fail_closed()).await,
            answers(remote.clone().fall_back_to(local()).share(1, 2)).await,
        ] {
            assert_eq!(counted, 6);
            for (parts, body) in answers {
                let headers = &parts.headers;
                if let Some(status) = tonic::Status::from_header_map(headers) {
                    assert_eq!(status.code(), tonic::Code::Internal);
                    assert_eq!(status.message(), "internal error");
                    assert_eq!((parts.status, body.as_str()), (StatusCode::OK, ""));
                } else {
                    assert_eq!(parts.status, StatusCode::INTERNAL_SERVER_ERROR);
                    assert!(!body.contains("such rule"), "{body}");
                }
                for name in ["ratelimit", "ratelimit-policy", "retry-after"] {
                    assert!(!headers.contains_key(name), "{name}");
                }
                assert!(!headers.contains_key("grpc-retry-pushback-ms"));
                assert_eq!(headers["cache-control"], "no-store");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_without_http_can_distinguish_it() {
    let remote = Bucket::new();
    remote.usually(UNSUPPORTED[0]);
    let layer = RateLimitLayer::new(TokenBucket::per_hour(10)).store(remote.fail_open());
    let service = layer
        .clone()
        .respond(AsError)
        .layer(service_fn(async |job: u32| Ok::<_, BoxError>(job)));
    let error = service.oneshot(1).await.unwrap_err();
    let refused = error.downcast_ref::<Refused>().unwrap();
    assert!(refused.is_unsupported() && !refused.is_undecided() && !refused.is_limit());
    assert_eq!(refused.to_string(), "internal error");
    assert_eq!(refused.retry_after(), None);
    let help = refused.refusal().help().unwrap().expose_to_operator();
    assert!(help.contains("does not support this call"), "{help}");
    assert_eq!(layer.misconfigured(), 1);
}

/// Runs no bucket of more than a hundred tokens.
#[derive(Clone, Debug)]
struct Small(Local<TokenBucket, TokioClock>);

const LARGE: &str =
    "buckets of this store have 100 tokens at most: expected fewer; choose a smaller burst";

fn small() -> Small {
    Small(local())
}

impl Backend for Small {
    type Error = StoreError;
}

impl Small {
    fn answer<F, T>(
        &self,
        asks: &[Ask<'_, TokenBucket>],
        answer: impl FnOnce() -> Check<F>,
    ) -> Check<Later<T>>
    where
        F: Future<Output = Result<T, Infallible>>,
    {
        if let Some(error) = asks.iter().find_map(|ask| self.fits(ask.rule()).err()) {
            return Check::Ready(Err(StoreError::unsupported(error)));
        }
        match answer() {
            Check::Ready(Ok(answer)) => Check::Ready(Ok(answer)),
            _ => unreachable!("a store in memory answers at once"),
        }
    }
}

type Later<T> = BoxFuture<Result<T, StoreError>>;

impl Store<TokenBucket> for Small {
    type Answer = Later<Decisions>;
    type Done = Later<()>;

    fn acquire(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.answer(asks, || Store::acquire(&self.0, asks))
    }

    fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.answer(asks, || Store::look(&self.0, asks))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        self.answer(&[], || Store::settle(&self.0, settlements))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.answer(&[], || Store::<TokenBucket>::reset(&self.0, policy, key))
    }

    fn fits(&self, rule: &TokenBucket) -> Result<(), tollgate::Error> {
        if rule.capacity() > 100 {
            return Err(tollgate::Error::new(LARGE));
        }
        Ok(())
    }
}

fn bucket(burst: u64) -> TokenBucket {
    TokenBucket::per_hour(10).burst(burst)
}

/// Checks that a store that never fails rejects large rules, in any wrapper.
fn assert_large_rules_rejected<S>(name: &str, store: S)
where
    S: Store<TokenBucket, Error: NeverFails> + Clone + Send + Sync + 'static,
{
    assert!(store.fits(&bucket(100)).is_ok(), "{name}");
    assert_eq!(store.fits(&bucket(101)).unwrap_err().to_string(), LARGE);
    let large = || Limit::new(bucket(101)).named("daily");
    let fine = || Limit::new(bucket(100)).named("hourly");
    let check = |error: tollgate::Error, limit: &str| {
        let expected = format!(
            "the store cannot run the rule of the limit `{limit}`: expected a rule that fits the store: {LARGE}; \
             or use another store"
        );
        assert_eq!(error.to_string(), expected, "{name}");
    };
    // The store is set last, first, in the middle, and twice.
    let own = RateLimitLayer::new(bucket(101)).try_store(store.clone());
    check(own.err().unwrap(), "default");
    let before = RateLimitLayer::new(bucket(100)).also(fine()).also(large());
    check(before.try_store(store.clone()).err().unwrap(), "daily");
    let layer = RateLimitLayer::new(bucket(100))
        .also(fine())
        .store(store.clone());
    let layer = layer.store(store.clone());
    check(layer.clone().try_also(large()).err().unwrap(), "daily");
    let _ = layer.also(Limit::new(bucket(1)).named("minutely"));
}

#[tokio::test]
async fn a_rule_that_does_not_fit_is_rejected_when_the_layer_is_built_for_any_wrapper() {
    let breaker = || CircuitBreakerConfig::new();
    let second = Duration::from_secs(1);
    assert_large_rules_rejected("open", small().fail_open());
    assert_large_rules_rejected("closed", small().fail_closed());
    assert_large_rules_rejected("boxed", small().boxed().fail_closed().boxed());
    assert_large_rules_rejected("shared", Arc::new(Arc::new(small()).fail_closed()));
    assert_large_rules_rejected("timeout", small().timeout(second).fail_open());
    assert_large_rules_rejected("breaker", small().circuit_breaker(breaker()).fail_open());
    assert_large_rules_rejected("memory", small().remember_refusals().fail_open());
    assert_large_rules_rejected("faulty", Arc::new(Faulty::new(small())).fail_open());
    let local = || Local::<TokenBucket>::new();
    assert_large_rules_rejected("remote", small().fall_back_to(local()).share(1, 1));
    let here = small().fail_closed();
    assert_large_rules_rejected("local", Bucket::new().fall_back_to(here).share(1, 1));
    let all = small().timeout(second).circuit_breaker(breaker());
    let all = all.remember_refusals().fall_back_to(local()).share(1, 2);
    assert_large_rules_rejected("all", all.boxed());
}

#[test]
#[should_panic(
    expected = "of the limit `default`: expected a rule that fits the store: buckets of this store have 100 tokens at most"
)]
fn store_panics_with_the_reason() {
    let _ = RateLimitLayer::new(bucket(101)).store(small().fail_open());
}

#[test]
#[should_panic(
    expected = "of the limit `daily`: expected a rule that fits the store: buckets of this store have 100 tokens at most"
)]
fn also_panics_with_the_reason() {
    let layer = RateLimitLayer::new(bucket(1)).store(small().fail_open());
    let _ = layer.also(Limit::new(bucket(101)).named("daily"));
}

/// A rule selected by a request is known only then, so only that request is refused.
#[tokio::test]
async fn a_rule_of_one_request_that_does_not_fit_is_refused_with_that_request() {
    let layer = RateLimitLayer::new(bucket(10))
        .key(Header::new("x-client"))
        .rule(|request: &Request<()>| {
            let burst = request.headers().get("x-burst")?.to_str().ok()?;
            Some(bucket(burst.parse().ok()?))
        })
        .store(small().fail_open())
        .respond(Http::empty());
    let mut service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(()))
    }));
    let mut call = async |request: Builder| {
        let request = request.body(()).unwrap();
        let Ok(response) = service.ready().await.unwrap().call(request).await;
        response.status()
    };
    for n in 0..20 {
        let large = get().header("x-burst", "101");
        assert_eq!(call(large).await, StatusCode::INTERNAL_SERVER_ERROR);
        let expected = if n < 10 { 200 } else { 429 };
        assert_eq!(call(get()).await, expected, "call {n}");
    }
    assert_eq!(layer.misconfigured(), 20);
}
