//! States that would grow: logs that are refused, and queues that remember a few places.

use tollgate::{
    AnyRule, Cost, LeakyBucket, Policy, RateLimitLayer, Timestamp,
    algorithm::{Algorithm, Codec},
    key::{Global, Key},
    store::{
        Backend, CircuitBreakerConfig, LocalBuilder, Store, StoreError, StoreExt,
        driver::{Ask, CasStore, Decisions, Settlement, Transact, Transaction, Transactional},
    },
    time::ManualClock,
};

use crate::{
    cas::memory::{Memory, Ways, driver},
    common::map_store::MapStore,
};

/// The longest log that a key can get, with units at equal distances, in bytes.
fn longest(rule: &AnyRule, limit: u64, period: u64) -> u64 {
    let mut state = None;
    for n in 0..limit {
        // The first instants are long.
        let now = Timestamp::from_nanos((1 << 60) + n * (period / limit));
        assert!(
            rule.step(&mut state, now, Cost::ONE)
                .decision()
                .is_admitted()
        );
    }
    state.unwrap().to_bytes().len() as u64
}

#[test]
fn no_state_is_longer_than_the_rule_says() {
    for (limit, period, text) in [
        (1, 3_600, "h"),
        (10, 1, "s"),
        (1_000, 60, "m"),
        (5_000, 3_600, "h"),
        (9_000, 86_400, "d"),
        (40_000, 1, "s"),
    ] {
        let rule: AnyRule = format!("sliding-log {limit}/1{text}").parse().unwrap();
        let (longest, most) = (
            longest(&rule, limit, period * 1_000_000_000),
            rule.most_bytes(),
        );
        // The head of a log takes up to 16 bytes.
        assert!(longest <= most + 16, "{rule}: {longest} of {most}");
        assert!(most <= longest + longest / 2, "{rule}: {longest} of {most}");
    }
}

#[tokio::test]
async fn a_rule_with_longer_states_is_refused_when_the_store_is_given_it() {
    let store: CasStore<Memory, AnyRule> =
        driver(Memory::new(ManualClock::default(), Ways::default()));
    for (text, fits) in [
        ("sliding-log 10000/1m", true),
        ("sliding-log 20000/1m", false),
        ("token-bucket 1000000/1m", true),
        ("sliding-window 1000000/1m slices=60", true),
        ("leaky-bucket 10/s queue=100000", true),
        ("sliding-log 20000/1m & token-bucket 10/s", false),
        ("sliding-log 7000/1m & sliding-log 7000/1s", false),
    ] {
        let rule: AnyRule = text.parse().unwrap();
        let layer = RateLimitLayer::new(rule.clone()).key(Global);
        let built = layer.try_store(store.clone().fail_closed());
        let policy = Policy::new("api");
        let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
        let asked = store.acquire(&ask).await;
        if fits {
            assert!(built.is_ok() && asked.is_ok(), "{text}");
            continue;
        }
        let why = built.err().unwrap().to_string();
        for part in [
            "KiB",
            "expected at most 64",
            "take a smaller limit",
            "Redis",
        ] {
            assert!(why.contains(part), "{text}: {why}");
        }
        // A rule that a request selects is noticed there.
        assert!(asked.unwrap_err().is_unsupported(), "{text}");
    }
}

/// Every other one of a hundred waiting calls hangs up. Sixteen places are remembered, and the
/// others counted.
async fn hang_up<S>(store: &S)
where
    S: Store<LeakyBucket, Error: std::fmt::Debug>,
{
    let rule: LeakyBucket = "leaky-bucket 1/1h queue=100".parse().unwrap();
    let (policy, key) = (Policy::new("api"), "alice".into());
    let mut waiting = Vec::new();
    for _ in 0..=100 {
        let ask = [Ask::new(&policy, &rule, key, Cost::ONE)];
        waiting.push(store.acquire(&ask).await.unwrap().as_slice()[0]);
    }
    for call in waiting.iter_mut().skip(1).step_by(2) {
        let charge = call.take_charge().unwrap();
        let settlement = Settlement::new(&policy, &rule, key, charge, 0).unwrap();
        store.settle(vec![settlement]).await.unwrap();
    }
}

#[tokio::test]
async fn places_that_are_not_remembered_are_counted() {
    const FORGOTTEN: u64 = 50 - 16;
    let clock = ManualClock::new(Timestamp::from_nanos(1 << 60));
    let local = LocalBuilder::new().clock(clock.clone()).build();
    hang_up(&local).await;
    assert_eq!(local.stats().unsettled, FORGOTTEN);
    let swaps: CasStore<Memory, LeakyBucket> = driver(Memory::new(clock.clone(), Ways::default()));
    hang_up(&swaps).await;
    assert_eq!(swaps.stats().unsettled, FORGOTTEN);
    let rows = Transactional::with_clock(MapStore::default(), clock);
    hang_up(&rows).await;
    assert_eq!(rows.unsettled(), Some(FORGOTTEN));
    // Clones and wrappers read the same count.
    let wrapped = rows.clone().circuit_breaker(CircuitBreakerConfig::new());
    let wrapped = wrapped.fail_closed();
    assert_eq!(wrapped.unsettled(), Some(FORGOTTEN));
}

/// Storage that makes no settlement.
#[derive(Clone)]
struct Broken {
    /// Its own count of unsettled charges.
    counts: Option<u64>,
}

impl Backend for Broken {
    type Error = StoreError;

    fn unsettled(&self) -> Option<u64> {
        self.counts
    }
}

impl Transact<LeakyBucket> for Broken {
    fn transact(&self, transaction: Transaction<'_, LeakyBucket>) -> Result<Decisions, StoreError> {
        let (decisions, changes) = transaction.decide(|_| None);
        if changes.is_empty() && decisions.as_slice().is_empty() {
            return Err(StoreError::timeout());
        }
        Ok(decisions)
    }

    fn reset(&self, _: &Policy, _: &Key) -> Result<(), StoreError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_failed_settlement_is_counted_once_by_whom_it_fails() {
    let rule = LeakyBucket::per_second(10);
    let policy = Policy::new("api");
    // Storage that counts has counted its failures.
    for (counts, expected) in [(None, 2), (Some(7), 7)] {
        let store = Transactional::new(Broken { counts });
        let wrapped = store.clone().fail_closed();
        for _ in 0..2 {
            let ask = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
            let mut call = wrapped.acquire(&ask).await.unwrap().as_slice()[0];
            let charge = call.take_charge().unwrap();
            let settlement = Settlement::new(&policy, &rule, "alice".into(), charge, 0).unwrap();
            wrapped.settle(vec![settlement]).await.unwrap();
        }
        assert_eq!(store.unsettled(), Some(expected));
        assert_eq!(wrapped.unsettled(), Some(expected));
    }
}
