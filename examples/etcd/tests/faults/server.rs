//! Faults of an etcd with one member. The failure policy decides the requests meanwhile.

use std::time::{Duration, Instant};

use tollgate::{
    Decision, TokenBucket, Verdict,
    key::Key,
    store::{CircuitBreakerConfig, OnFailure, StoreError, StoreExt, Timeout, driver::CasStore},
};
use tollgate_etcd::Etcd;

use crate::common::{acquire, admitted, at_once, client, connect, keys, look, servers, why};

/// The timeout of one exchange with etcd.
const RESPONSE: Duration = Duration::from_millis(600);
/// The deadline of one request.
const DEADLINE: Duration = Duration::from_millis(800);

type Impatient = Timeout<CasStore<Etcd, TokenBucket>>;

/// Returns a store whose calls end at the deadline.
async fn impatient(url: &str) -> Impatient {
    let etcd = connect(&[url.to_owned()]).await.response_timeout(RESPONSE);
    CasStore::new(etcd).timeout(DEADLINE)
}

fn key() -> Key {
    Key::from(7_u64)
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    servers::in_time(DEADLINE, what).await
}

async fn failing(store: &Impatient, rule: &TokenBucket) -> StoreError {
    in_time(acquire(store, rule, key())).await.unwrap_err()
}

/// Makes concurrent requests. Asserts that all end in time and that the policy decides them.
async fn assert_policy_decides(store: &Impatient, calls: u64, admitted: bool) {
    let policy = match admitted {
        true => store.clone().fail_open(),
        false => store.clone().fail_closed(),
    };
    let calls: Vec<_> = (0..calls)
        .map(|n| {
            let (store, rule) = (policy.clone(), at_once(5));
            // Half of them use one key, the others a key each.
            let key = Key::from(100 + n % 2 * n);
            tokio::spawn(async move { in_time(undecided(&store, &rule, key)).await })
        })
        .collect();
    for call in calls {
        let decision = call.await.unwrap();
        assert_eq!(decision.verdict(), Verdict::Undecided { admitted });
        assert_eq!((decision.remaining(), decision.limit()), (None, None));
    }
}

async fn undecided(store: &OnFailure<Impatient>, rule: &TokenBucket, key: Key) -> Decision {
    let Ok(decision) = acquire(store, rule, key).await;
    decision
}

/// Calls until one succeeds. Returns the number of errors before it.
async fn until_answered(store: &Impatient, rule: &TokenBucket) -> u32 {
    let start = Instant::now();
    let mut errors = 0;
    // A look spends nothing.
    while let Err(error) = look(store, rule, key()).await {
        errors += 1;
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "seen last: {error:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    errors
}

#[tokio::test]
async fn a_missing_server_is_reported_at_once() {
    let server = servers::Etcd::start();
    let (url, rule) = (server.url(), at_once(5));
    drop(server);
    let store = impatient(&url).await;
    for _ in 0..5 {
        let error = failing(&store, &rule).await;
        assert!(error.is_unavailable(), "{error:?}");
    }
    assert_policy_decides(&store, 50, true).await;
    assert_policy_decides(&store, 50, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_a_silent_server_end_at_the_deadline() {
    let server = servers::Etcd::start();
    let (store, rule) = (impatient(&server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 1).await, 1);
    server.pause();
    for _ in 0..2 {
        assert_policy_decides(&store, 200, true).await;
        assert_policy_decides(&store, 200, false).await;
        assert!(failing(&store, &rule).await.is_timeout());
    }
    server.resume();
    until_answered(&store, &rule).await;
    // The calls before the silence may be charged. The limit is otherwise unchanged.
    assert!(admitted(&store, &rule, key(), 10).await <= 4);
    assert_eq!(admitted(&store, &rule, Key::from(8_u64), 10).await, 5);
    keys(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_has_all_charges() {
    let server = servers::Etcd::start();
    let (store, rule) = (impatient(&server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 3).await, 3);
    server.kill();
    for _ in 0..20 {
        let error = failing(&store, &rule).await;
        assert!(error.is_unavailable(), "{error:?}");
    }
    assert_policy_decides(&store, 100, true).await;
    assert_policy_decides(&store, 100, false).await;
    server.restart();
    let errors = until_answered(&store, &rule).await;
    assert!(errors <= 2, "{errors}");
    assert_eq!(admitted(&store, &rule, key(), 10).await, 2);
    // Leases survive a restart, too.
    assert_eq!(keys(&server).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_admits_at_most_the_limit() {
    let server = servers::Etcd::start();
    let (store, rule) = (impatient(&server.url()).await, at_once(1000));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let (mut admitted, mut errors) = (0, 0);
                for _ in 0..100 {
                    match in_time(acquire(&store, &rule, key())).await {
                        Ok(decision) => admitted += u64::from(decision.is_admitted()),
                        Err(_) => errors += 1,
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                (admitted, errors)
            })
        })
        .collect();
    let server = tokio::task::spawn_blocking(move || {
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(200));
            server.restart();
        }
        server
    });
    let server = server.await.unwrap();
    let (mut admitted_in_all, mut errors_in_all) = (0, 0);
    for task in tasks {
        let (admitted, errors) = task.await.unwrap();
        admitted_in_all += admitted;
        errors_in_all += errors;
    }
    assert!(
        admitted_in_all > 0 && errors_in_all > 0,
        "{admitted_in_all}, {errors_in_all}"
    );
    until_answered(&store, &rule).await;
    let left = look(&store, &rule, key()).await.unwrap().remaining();
    let charged = 1000 - left.unwrap();
    // A call whose answer was lost may have been charged: the charges are never fewer than the
    // admissions.
    assert!(
        (admitted_in_all..=800).contains(&charged),
        "{admitted_in_all}, {charged}"
    );
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_a_slow_server_succeed_within_the_deadline() {
    let server = servers::Etcd::start();
    let proxy = servers::Proxy::start(server.address());
    let store = impatient(&format!("http://{}", proxy.address())).await;
    let rule = at_once(5);
    assert_eq!(admitted(&store, &rule, key(), 1).await, 1);
    // Two round trips, for the load and for the swap: 80 ms.
    proxy.delay(Duration::from_millis(20));
    assert_eq!(admitted(&store, &rule, key(), 2).await, 2);
    proxy.delay(DEADLINE);
    for _ in 0..3 {
        assert!(failing(&store, &rule).await.is_timeout());
    }
    assert_policy_decides(&store, 50, false).await;
    assert_policy_decides(&store, 50, true).await;
    proxy.delay(Duration::ZERO);
    until_answered(&store, &rule).await;
    // Three were admitted. Some of the calls that ran into the deadline may also have been charged.
    assert!(admitted(&store, &rule, key(), 10).await <= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_closed() {
    let server = servers::Etcd::start();
    let proxy = servers::Proxy::start(server.address());
    let store = impatient(&format!("http://{}", proxy.address())).await;
    let rule = at_once(5);
    assert_eq!(admitted(&store, &rule, key(), 1).await, 1);
    proxy.set_flow(servers::Flow::Swallow);
    assert_policy_decides(&store, 50, false).await;
    // A closed connection is detected at once.
    proxy.cut();
    proxy.set_flow(servers::Flow::Forward);
    let errors = until_answered(&store, &rule).await;
    assert!(errors <= 2, "{errors}");
    // A dead one is detected by an unanswered ping.
    let before = proxy.accepted();
    proxy.set_answers(servers::Flow::Swallow);
    servers::wait_until("another connection", Duration::from_secs(60), || {
        let call = look(&store, &rule, key());
        let answer =
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(call));
        match proxy.accepted() > before {
            true => Ok(()),
            false => Err(format!("{answer:?}")),
        }
    });
    proxy.set_answers(servers::Flow::Forward);
    until_answered(&store, &rule).await;
    assert_eq!(admitted(&store, &rule, key(), 10).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_database_is_a_specific_error_and_looks_still_work() {
    let server = servers::Etcd::start_with(&["--quota-backend-bytes=4000000"]);
    let (store, rule) = (impatient(&server.url()).await, at_once(5));
    assert_eq!(admitted(&store, &rule, key(), 3).await, 3);
    let mut client = client(&server).await;
    let full = loop {
        if let Err(error) = client.put("filler", vec![0; 1_000_000], None).await {
            break error.to_string();
        }
    };
    assert!(full.contains("space exceeded"), "{full}");
    let error = failing(&store, &rule).await;
    assert!(error.is_unwritten(), "{error:?}");
    assert!(why(&error).contains("space exceeded"), "{}", why(&error));
    assert_policy_decides(&store, 20, false).await;
    assert_policy_decides(&store, 20, true).await;
    let left = look(&store, &rule, key()).await.unwrap().remaining();
    assert_eq!(left, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_database_refuses_used_up_clients_behind_a_breaker() {
    let server = servers::Etcd::start_with(&["--quota-backend-bytes=4000000"]);
    let etcd = connect(&[server.url()]).await;
    let store = CasStore::new(etcd).timeout(Duration::from_secs(10));
    let rule = at_once(5);
    assert_eq!(admitted(&store, &rule, key(), 9).await, 5);
    let mut client = client(&server).await;
    while client.put("filler", vec![0; 1_000_000], None).await.is_ok() {}
    let breaker = CircuitBreakerConfig::new();
    let store = store.circuit_breaker(breaker).fail_open();
    for call in 0..30_u64 {
        let is_used_up = call % 3 == 0;
        let client = if is_used_up {
            key()
        } else {
            Key::from(1000 + call)
        };
        let Ok(decision) = acquire(&store, &rule, client).await;
        assert_eq!(decision.is_admitted(), !is_used_up, "call {call}");
    }
    assert_eq!(store.get_ref().opened(), 0);
}
