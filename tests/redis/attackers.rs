//! Clients that make the server work as much as they can: others are served meanwhile, and no
//! attacker passes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use support::Random;
use tollgate::{
    AnyRule, Cost, Decision, Policy, Verdict,
    key::Key,
    store::{
        CircuitBreakerConfig, CircuitState, Redis, Store, StoreExt,
        driver::{Ask, Settlement},
    },
};

use super::{only, servers};

const ATTACKER: u64 = 1_000_000;
const TIME: Duration = Duration::from_secs(2);

/// The deadline of the operators' page, on a machine that also runs other tests.
fn deadline() -> Duration {
    Duration::from_millis(100) + 10 * servers::idle_wakeup()
}

fn ask<'a>(policy: &'a Policy, rule: &'a AnyRule, client: u64) -> [Ask<'a, AnyRule>; 1] {
    [Ask::new(policy, rule, Key::from(client), Cost::ONE)]
}

/// Calls of clients who ask for little, one after the other, and those of them that the store
/// decided.
#[derive(Debug, Default)]
struct Others {
    calls: u64,
    decided: u64,
}

impl Others {
    /// Calls as other clients do, until `end`, behind what the operators' page recommends.
    async fn call(store: &Redis<AnyRule>, rule: &AnyRule, end: Instant) -> Self {
        let breaker = store
            .clone()
            .timeout(deadline())
            .circuit_breaker(CircuitBreakerConfig::new());
        let (policy, mut others) = (Policy::new("api"), Self::default());
        while Instant::now() < end {
            let answer = breaker.acquire(&ask(&policy, rule, others.calls)).await;
            others.decided += u64::from(answer.is_ok_and(|answer| answer.is_admitted()));
            others.calls += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(breaker.state(), CircuitState::Closed);
        others
    }

    fn assert_served(&self) {
        let Self { calls, decided } = *self;
        assert!(calls > 20, "{self:?}");
        assert!(decided >= calls * 9 / 10, "{self:?}");
    }
}

/// The log is full, each of its units an entry of its own, and one client goes on calling on
/// sixteen connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_long_log_stalls_nobody() {
    const LIMIT: u64 = 10_000;
    let server = servers::Redis::start();
    let rule: Arc<AnyRule> = Arc::new(format!("sliding-log {LIMIT}/1d").parse().unwrap());
    let connect = async || Redis::<AnyRule>::connect(server.url()).await.unwrap();
    let (first, policy) = (connect().await, Policy::new("api"));
    for _ in 0..LIMIT {
        let answer = first.acquire(&ask(&policy, &rule, ATTACKER)).await;
        assert!(answer.unwrap().is_admitted());
    }
    let (mut connections, others) = (Vec::new(), connect().await);
    for _ in 0..16 {
        connections.push(connect().await.timeout(deadline()).fail_open());
    }
    let (end, refused) = (Instant::now() + TIME, Arc::new(AtomicU64::new(0)));
    let mut attackers = Vec::new();
    for store in connections {
        let (rule, refused) = (Arc::clone(&rule), Arc::clone(&refused));
        attackers.push(tokio::spawn(async move {
            let policy = Policy::new("api");
            while Instant::now() < end {
                let calls = (0..8).map(|_| store.acquire(&ask(&policy, &rule, ATTACKER)));
                for answer in join_all(calls.map(IntoFuture::into_future)).await {
                    let decision = only(answer.unwrap());
                    // An admission without a store would have no charge.
                    assert!(!decision.is_admitted(), "{decision:?}");
                    refused.fetch_add(1, Relaxed);
                }
            }
        }));
    }
    let others = Others::call(&others, &rule, end).await;
    for attacker in attackers {
        attacker.await.unwrap();
    }
    others.assert_served();
    assert!(refused.load(Relaxed) > 1_000, "{refused:?}");
}

/// One client opens two thousand waiting requests and closes them, again and again and in any
/// order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_stalls_nobody() {
    const QUEUE: usize = 2_000;
    let server = servers::Redis::start();
    let rule: Arc<AnyRule> = Arc::new(format!("leaky-bucket 10/s queue={QUEUE}").parse().unwrap());
    let connect = async || Redis::<AnyRule>::connect(server.url()).await.unwrap();
    let (store, others) = (connect().await, connect().await);
    let end = Instant::now() + TIME;
    let attacker = {
        let (store, rule) = (store.clone(), Arc::clone(&rule));
        tokio::spawn(async move {
            let (policy, mut random, mut closed) = (Policy::new("api"), Random::new(1), 0);
            while Instant::now() < end {
                let calls = (0..QUEUE).map(|_| store.acquire(&ask(&policy, &rule, ATTACKER)));
                let calls = join_all(calls.map(IntoFuture::into_future)).await;
                let calls = calls.into_iter().map(|answer| only(answer.unwrap()));
                let mut waiting: Vec<Decision> = calls
                    .filter(|decision| matches!(decision.verdict(), Verdict::Delay(_)))
                    .collect();
                let mut settlements = Vec::new();
                while !waiting.is_empty() {
                    let place = random.below(waiting.len() as u64) as usize;
                    let charge = waiting.swap_remove(place).take_charge().unwrap();
                    let key = Key::from(ATTACKER);
                    settlements.push(Settlement::new(&policy, &*rule, key, charge, 0).unwrap());
                }
                closed += settlements.len();
                store.settle(settlements).await.unwrap();
            }
            closed
        })
    };
    let others = Others::call(&others, &rule, end).await;
    assert!(attacker.await.unwrap() >= QUEUE);
    others.assert_served();
}

/// A server that pauses for two deadlines of ten, again and again, behind what the operators' page
/// recommends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pauses_fails_only_calls_of_its_pauses() {
    const PAUSES: u32 = 5;
    let server = Arc::new(servers::Redis::start());
    let (rule, deadline) = ("token-bucket 1000000/1s".parse().unwrap(), deadline());
    let store = Redis::<AnyRule>::connect(server.url()).await.unwrap();
    let store = store
        .timeout(deadline)
        .circuit_breaker(CircuitBreakerConfig::new());
    let pausing = tokio::task::spawn_blocking({
        let server = Arc::clone(&server);
        move || {
            for _ in 0..PAUSES {
                std::thread::sleep(8 * deadline);
                server.pause();
                std::thread::sleep(2 * deadline);
                server.resume();
            }
        }
    });
    let end = Instant::now() + PAUSES * 10 * deadline;
    let call = async |client: u64| {
        let (policy, mut calls, mut failed) = (Policy::new("api"), 0, 0);
        while Instant::now() < end {
            failed += u64::from(store.acquire(&ask(&policy, &rule, client)).await.is_err());
            calls += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (calls, failed)
    };
    let callers = join_all((0..4).map(call)).await.into_iter();
    let (calls, failed) = callers.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    pausing.await.unwrap();
    assert!(failed > 0 && calls > 100, "{failed} of {calls}");
    // Those whose deadlines end within a pause: each caller makes a call or two in each.
    assert!(failed * 10 <= calls, "{failed} of {calls}");
}
