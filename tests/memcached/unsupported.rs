//! States that memcached cannot keep, or that this release cannot read: the server's fault to their
//! clients, and nothing to others.

use std::time::Duration;

use tollgate::{
    Cost, SlidingLog, Timestamp,
    algorithm::{Algorithm, Codec},
    key::Key,
    store::{
        CircuitBreakerConfig, CircuitState, Memcached, MemcachedCounters, Store, StoreError,
        StoreExt,
        driver::{Ask, Batch, CompareAndSwap, Delta, FleetStore, Swap, Swapped},
    },
};

use super::{
    LongLog, acquire, connect, counters, items, look, policy, servers, swaps, url,
    value::{states, value_of},
    window,
};

const HOSTILE: u64 = 7;

/// The name of the only item of a server.
fn name(server: &servers::Memcached) -> String {
    let [(name, _)] = <[_; 1]>::try_from(items(server)).unwrap();
    name
}

/// The value there, with other bytes of its only state.
async fn with_state(
    data: &impl CompareAndSwap,
    name: &str,
    change: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let (_, there) = data.load(name.as_bytes()).await.unwrap().value.unwrap();
    let mut only = states(&there);
    assert_eq!(only.len(), 1);
    change(&mut only[0].bytes);
    value_of(&only)
}

async fn put(data: &impl CompareAndSwap, name: &str, state: &[u8]) {
    let there = data.load(name.as_bytes()).await.unwrap().value;
    let version = there.map(|(version, _)| version);
    let swap = Swap {
        expected: version.as_ref(),
        value: Some(state),
        keep: Duration::from_secs(600),
    };
    let swapped = data.swap(name.as_bytes(), swap).await.unwrap();
    assert!(matches!(swapped, Swapped::Done(Some(_))));
}

/// Sends calls of a client whose state cannot be used beside those of others: from one task at two
/// paces, from four, and from 64. The keys of the others begin at `first`, and must be new.
async fn others_go_on<Rule, S>(store: &S, rule: &Rule, limit: u64, rounds: u64, first: u64)
where
    Rule: Algorithm,
    S: Store<Rule, Error = StoreError, Answer: Send> + Clone + Send + Sync + 'static,
{
    let breaker = store
        .clone()
        .circuit_breaker(CircuitBreakerConfig::new().failures(2));
    let open = breaker.clone().fail_open();
    let mut calls = 0;
    for (callers, pause) in [(1, 0), (1, 5), (4, 0), (64, 0)] {
        let tasks = (0..callers).map(|caller| {
            let (open, rule) = (open.clone(), rule.clone());
            tokio::spawn(async move {
                let honest = Key::from(first + 1000 * callers + 100 * pause + caller);
                let mut passed = 0;
                for _ in 0..rounds {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    for client in [Key::from(HOSTILE), honest] {
                        let ask = Ask::new(policy(), &rule, client, Cost::ONE);
                        let Ok(decisions) = open.acquire(&[ask]).await;
                        let [decision] = decisions.as_slice() else {
                            panic!("{decisions:?}");
                        };
                        let is_honest = client == honest;
                        assert_eq!(decision.is_unsupported(), !is_honest, "{decision:?}");
                        assert_eq!(decision.is_undecided(), !is_honest, "{decision:?}");
                        passed += u64::from(decision.is_admitted());
                    }
                }
                passed
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            assert_eq!(task.await.unwrap(), limit.min(rounds));
        }
        calls += rounds * callers;
    }
    let seen = (breaker.state(), breaker.opened(), breaker.rejected());
    assert_eq!(seen, (CircuitState::Closed, 0, 0));
    assert_eq!((open.failures(), open.unsupported()), (0, calls));
}

/// The longest log of at most so many bytes: no further call fits into it.
fn log_of(bytes: usize, rule: &LongLog, until: Timestamp) -> Vec<u8> {
    const APART: u64 = 100_000;
    let first = until.as_nanos() - 3_600_000_000_000;
    let (mut state, mut calls) = (None, 0);
    let mut extend = |more: usize| {
        for _ in 0..more {
            let at = Timestamp::from_nanos(first + calls * APART);
            rule.step(&mut state, at, Cost::ONE);
            calls += 1;
        }
        state.as_ref().map(Codec::to_bytes).unwrap_or_default()
    };
    // All but the first one have the same distance, and so the same length.
    let (some, more) = (extend(1000).len(), extend(1000).len());
    let each = (more - some) / 1000;
    let mut full = extend((bytes - more) / each - 1);
    loop {
        let next = extend(1);
        if next.len() > bytes {
            return full;
        }
        full = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_log_is_too_large_for_an_item_spoils_no_other_call() {
    const LIMIT: u64 = 1_000_000;
    let server = super::small_items().start();
    let store = Memcached::<LongLog>::new(connect(&server).await);
    let rule = LongLog(SlidingLog::per_day(LIMIT));
    let first = acquire(&store, &rule, Key::from(HOSTILE)).await.unwrap();
    let name = name(&server);
    let mut state = 0;
    let value = with_state(store.data(), &name, |bytes| state = bytes.len()).await;
    // The bytes beside the state of a value, whose length takes two bytes more.
    let frame = value.len() - state + 2;
    // 512 kB, but for what an item has beside its value.
    let full = log_of(512 * 1024 - 512 - frame, &rule, first.at());
    let full = with_state(store.data(), &name, |state| *state = full).await;
    put(store.data(), &name, &full).await;
    let left = look(&store, &rule, Key::from(HOSTILE)).await.unwrap();
    assert!(left.remaining() < Some(LIMIT - 50_000), "{left:?}");
    others_go_on(&store, &rule, LIMIT, 4, 0).await;
    // Nothing was forgotten, nor let through.
    let after = look(&store, &rule, Key::from(HOSTILE)).await.unwrap();
    assert_eq!(after.remaining(), left.remaining());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_state_is_of_a_newer_release_spoils_no_other_call() {
    let server = servers::Memcached::start();
    let store = swaps(&connect(&server).await);
    let rule = super::at_once(10);
    acquire(&store, &rule, Key::from(HOSTILE)).await.unwrap();
    let name = name(&server);
    let mut newer_value = with_state(store.data(), &name, |_| ()).await;
    newer_value[0] += 2;
    let newer_state = with_state(store.data(), &name, |state| state[0] += 2).await;
    for (newer, first) in [(newer_state, 0), (newer_value, 100_000)] {
        put(store.data(), &name, &newer).await;
        others_go_on(&store, &rule, 10, 20, first).await;
        let there = store.data().load(name.as_bytes()).await.unwrap().value;
        assert_eq!(there.map(|(_, value)| value), Some(newer));
    }
}

/// A mistake of the program, which says what to do and is told at once.
#[test]
fn a_call_outside_of_a_runtime_concerns_that_call() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = servers::Memcached::start();
    let connection = runtime.block_on(connect(&server));
    let store = swaps(&connection);
    let rule = super::at_once(10);
    let ask = [Ask::new(policy(), &rule, Key::from(1_u64), Cost::ONE)];
    let tollgate::store::driver::Check::Ready(Err(error)) = store.acquire(&ask) else {
        panic!("expected an error at once");
    };
    assert!(error.is_unsupported(), "{error:?}");
    assert!(error.to_string().contains("within a runtime"), "{error}");
}

/// Counters cannot run windows that begin with the first call: so much is known without a server.
#[tokio::test]
async fn a_window_that_counters_cannot_run_is_refused_when_the_layer_is_built() {
    let server = servers::Memcached::start();
    let store = MemcachedCounters::connect(url(server.address()))
        .await
        .unwrap();
    for (text, fits) in [
        ("fixed-window 10/1m", true),
        ("fixed-window 10/1m offset=spread", true),
        ("fixed-window 10/1m from=first-call", false),
    ] {
        let rule: tollgate::FixedWindow = text.parse().unwrap();
        let ask = Ask::new(policy(), &rule, Key::from(1_u64), Cost::ONE);
        let answer = store.acquire(&[ask]).await;
        assert_eq!(store.fits(&rule).is_ok(), fits, "{text}");
        assert_eq!(answer.is_ok(), fits, "{text}");
        let layer = tollgate::RateLimitLayer::new(rule).try_store(store.clone().fail_open());
        assert_eq!(layer.is_ok(), fits, "{text}");
        if let Err(error) = answer {
            assert!(error.is_unsupported(), "{error:?}");
        }
    }
}

/// A counter that another program has overwritten fails its own delta, and no other of the call.
#[tokio::test]
async fn a_counter_that_is_no_number_fails_its_own_delta() {
    let server = servers::Memcached::start();
    let data = connect(&server).await;
    let store = counters(&data);
    let rule = window(100);
    let delta = |client: u64, number, units| {
        let batch = Batch { node: 1, number };
        let told = (Duration::ZERO, units);
        Delta::new(policy(), &rule, Key::from(client), batch, told)
    };
    let synced = store.sync(&[delta(HOSTILE, 1, 1)]).unwrap().await.unwrap();
    assert!(synced[0].is_ok(), "{synced:?}");
    server.command(&format!("ms {} 9 T60\r\nno number", name(&server)));
    let deltas = [delta(1, 1, 3), delta(HOSTILE, 2, 0), delta(2, 1, 4)];
    let synced = store.sync(&deltas).unwrap().await.unwrap();
    let [first, hostile, last] = &synced[..] else {
        panic!("each delta has a result: {synced:?}");
    };
    let error = hostile.as_ref().unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    for (pulled, left) in [(first, 97), (last, 96)] {
        let pulled = pulled.as_ref().unwrap();
        let looked = rule.look(pulled.state.as_ref(), pulled.at);
        assert_eq!(looked.remaining(), Some(left));
    }
    // The next addition replaces the value.
    let synced = store.sync(&[delta(HOSTILE, 3, 5)]).unwrap().await.unwrap();
    assert!(synced[0].is_ok(), "{synced:?}");
    assert_eq!(store.stats().doubtful, 0);
}
