//! Calls that Redis cannot decide because of their own content. Their client gets a server error,
//! and other calls are unaffected.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tollgate::{
    AnyRule, Cost, Limit, Policy, RateLimitLayer, TokenBucket,
    key::{Header, Key},
    respond::Http,
    store::{CircuitBreakerConfig, CircuitState, Redis, Store, StoreExt, driver::Ask},
};
use tower::{Layer, ServiceExt, service_fn};

use super::{at_once, servers};

/// Returns a bucket with more tokens than a script can count.
fn misfit() -> TokenBucket {
    "token-bucket 1/86400000000001ns burst=999".parse().unwrap()
}

/// The asks of one call: a rule and a client each.
type Asked = Vec<(AnyRule, Key)>;

/// Sends unsupported calls between those of clients within their limits, from this many concurrent
/// tasks. The latter must pass.
async fn assert_others_unaffected(url: &str, callers: u64, hostile: impl Fn(u64) -> Asked) {
    let store = Redis::<AnyRule>::connect(url).await.unwrap();
    let breaker = store
        .timeout(Duration::from_secs(20))
        .circuit_breaker(CircuitBreakerConfig::new().failures(2));
    let open = breaker.clone().fail_open();
    let tasks = (0..callers).map(|caller| {
        let (open, asked) = (open.clone(), hostile(caller));
        tokio::spawn(async move {
            let rule = at_once(10).into();
            static CLIENTS: AtomicU64 = AtomicU64::new(1_000_000);
            let honest = Key::from(CLIENTS.fetch_add(1, Relaxed));
            let policies: Vec<_> = (0..asked.len())
                .map(|number| Policy::new(&format!("hostile-{number}")))
                .collect();
            let mut passed = 0;
            for _ in 0..20 {
                let asks: Vec<_> = asked
                    .iter()
                    .zip(&policies)
                    .map(|((rule, key), policy)| Ask::new(policy, rule, *key, Cost::ONE))
                    .collect();
                let Ok(decisions) = open.acquire(&asks).await;
                assert_eq!(decisions.as_slice().len(), asks.len());
                for decision in decisions.as_slice() {
                    assert!(
                        decision.is_unsupported() && !decision.is_admitted(),
                        "{decision:?}"
                    );
                }
                let ask = Ask::new(super::policy(), &rule, honest, Cost::ONE);
                let Ok(decisions) = open.acquire(&[ask]).await;
                assert!(!decisions.as_slice()[0].is_undecided(), "{decisions:?}");
                passed += u64::from(decisions.is_admitted());
            }
            passed
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), 10);
    }
    let seen = (breaker.state(), breaker.opened(), breaker.rejected());
    assert_eq!(seen, (CircuitState::Closed, 0, 0));
    assert_eq!((open.failures(), open.unsupported()), (0, 20 * callers));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_does_not_fit_affects_no_other_call() {
    let server = servers::Redis::start();
    for callers in [1, 4, 64] {
        let fine = at_once(5).into();
        // Alone, and beside a rule that fits.
        assert_others_unaffected(&server.url(), callers, |n| {
            vec![(misfit().into(), Key::from(n))]
        })
        .await;
        assert_others_unaffected(&server.url(), callers, |n| {
            let beside = AnyRule::clone(&fine);
            vec![(beside, Key::from(n)), (misfit().into(), Key::from(n))]
        })
        .await;
    }
    // The client whose other rule fits is not charged: only the honest clients have states.
    assert_eq!(server.keys().len(), 2 * (1 + 4 + 64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_about_two_clients_on_a_cluster_affects_no_other_call() {
    let cluster = servers::Cluster::start();
    let hosts: Vec<_> = cluster.nodes()[..3]
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    let url = format!("redis-cluster://{}", hosts.join(","));
    for callers in [1, 4, 64] {
        assert_others_unaffected(&url, callers, |n| {
            let rule: AnyRule = at_once(5).into();
            vec![
                (rule.clone(), Key::from(2 * n)),
                (rule, Key::from(2 * n + 1)),
            ]
        })
        .await;
    }
}

/// Rules at and above the bounds of each kind, and of all combined ones.
const RULES: [&str; 27] = [
    "token-bucket 100/1m",
    "token-bucket 1/1h burst=100000",
    "token-bucket 1/86400000000001ns burst=104",
    "token-bucket 1/86400000000001ns burst=105",
    "token-bucket 1/86400000000001ns burst=8000",
    "token-bucket 29999999/1s",
    "token-bucket 29702971/1s burst=1",
    "token-bucket 1/40ns burst=5",
    "token-bucket 5/1s initial=0 keep=2s",
    "leaky-bucket 10/s queue=5",
    "leaky-bucket 1/86400000000001ns queue=8000",
    "fixed-window 10/1s",
    "fixed-window 10/1500ns",
    "fixed-window 10/1s offset=spread",
    "fixed-window 10/1500ns offset=spread",
    "fixed-window 1099511627776/1d",
    "fixed-window 10/1s offset=1ns",
    "sliding-window 10/1s slices=4",
    "sliding-window 10/1s slices=3",
    "sliding-log 10/1s",
    "sliding-log 10/1500ns",
    "sliding-log 1099511627776/1d",
    "warm-up 100/1s over=10s",
    "warm-up-spaced 100/1s over=10s",
    "token-bucket 10/1s & fixed-window 20/3s",
    "token-bucket 10/1s & token-bucket 1/86400000000001ns burst=8000",
    "token-bucket 10/1s & fixed-window 10/1500ns offset=spread",
];

/// The error at the creation of a layer equals that of each call, for any key, and needs no server.
#[tokio::test]
async fn a_rule_fits_exactly_if_its_calls_are_decided() {
    let server = servers::Redis::start();
    let store = Redis::<AnyRule>::connect(server.url()).await.unwrap();
    let mut fitting = 0;
    for text in RULES {
        let Ok(rule) = text.parse::<AnyRule>() else {
            panic!("`{text}` is no rule: {:?}", text.parse::<AnyRule>());
        };
        let fits = store.fits(&rule);
        let offline = Redis::<AnyRule>::connect_lazy("redis://127.0.0.1:1").unwrap();
        assert_eq!(offline.fits(&rule).is_ok(), fits.is_ok(), "{text}");
        fitting += u32::from(fits.is_ok());
        for client in [0_u64, 1, 7, u64::MAX] {
            let policy = Policy::new(text.split(['/', ' ']).next().unwrap());
            let ask = Ask::new(&policy, &rule, Key::from(client), Cost::ONE);
            match (&fits, store.acquire(&[ask]).await) {
                (Ok(()), Ok(_)) => {}
                (Err(why), Err(error)) => {
                    assert!(error.is_unsupported(), "{error:?}");
                    // The text is equal for all clients, so it is logged once.
                    assert!(error.to_string().ends_with(&why.to_string()), "{error}");
                }
                (fits, called) => panic!("{text}, client {client}: {fits:?}, but {called:?}"),
            }
        }
    }
    assert!((10..20).contains(&fitting), "{fitting}");
}

#[tokio::test]
async fn a_rule_that_does_not_fit_is_rejected_when_the_layer_is_built() {
    // No server listens on this port.
    let store = || {
        let store = Redis::<TokenBucket>::connect_lazy("redis://127.0.0.1:1").unwrap();
        store.fail_open()
    };
    let Err(error) = RateLimitLayer::new(misfit()).try_store(store()) else {
        panic!("a rule that does not fit was accepted");
    };
    let error = error.to_string();
    for part in [
        "limit `default`",
        "does not fit into a script's numbers",
        "expected",
        "choose a smaller burst",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let layer = RateLimitLayer::new(at_once(5)).store(store());
    assert!(
        layer
            .try_also(Limit::new(misfit()).named("daily"))
            .is_err_and(|error| error.to_string().contains("limit `daily`"))
    );
}

#[tokio::test]
async fn a_rule_of_one_request_that_does_not_fit_is_answered_500_and_never_passed() {
    let server = servers::Redis::start();
    let redis = Redis::<TokenBucket>::connect(server.url()).await.unwrap();
    let breaker = redis.circuit_breaker(CircuitBreakerConfig::new().failures(2));
    let layer = RateLimitLayer::new(at_once(5))
        .key(Header::new("x-client"))
        .rule(|request: &Request<()>| request.headers().contains_key("x-large").then(misfit))
        .store(breaker.clone().fail_open())
        .respond(Http::new());
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new("passed".to_owned()))
    }));
    let call = async |client: &str, name: &str| {
        let request = Request::get("/").header("x-client", client);
        let request = request.header(name, "yes").body(()).unwrap();
        let Ok(response) = service.clone().oneshot(request).await;
        (response.status(), response.into_body())
    };
    for n in 0..20 {
        let (status, body) = call("hostile", "x-large").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!body.contains("script"), "{body}");
        let expected = if n < 5 { 200 } else { 429 };
        assert_eq!(call("honest", "x-other").await.0, expected);
    }
    assert_eq!(layer.misconfigured(), 20);
    assert_eq!(
        (breaker.state(), breaker.opened()),
        (CircuitState::Closed, 0)
    );
}
