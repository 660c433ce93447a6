//! Calls of several limits, and calls that are dropped at any await.

use std::{future::Future, pin::pin, task::Poll, time::Duration};

use support::Random;
use tollgate::{
    Cost, FixedWindow, Policy, TokenBucket,
    algorithm::FleetRule,
    future::BoxFuture,
    key::Key,
    store::{
        Backend, LeaseConfig, LeaseStats, Leased, Store, StoreError, StoreExt,
        driver::{Ask, Check, Decisions, Settlement, Transactional},
    },
    testing::{Fault, Faults, Faulty},
    time::ManualClock,
};

use crate::leases::{
    map_store::MapStore,
    shared::Server,
    slow::{MOST_TURNS, Slow},
};

type Node = Leased<Slow<TokenBucket>, TokenBucket, ManualClock>;

/// The limits of a call: one with much room, and one with little.
struct Limits {
    policies: [Policy; 2],
    rules: [TokenBucket; 2],
}

impl Limits {
    fn new() -> Self {
        Self {
            policies: [Policy::new("wide"), Policy::new("narrow")],
            rules: [
                TokenBucket::per_hour(100_000),
                TokenBucket::per_hour(60).burst(200),
            ],
        }
    }

    fn asks(&self) -> [Ask<'_, TokenBucket>; 2] {
        [0, 1].map(|n| Ask::new(&self.policies[n], &self.rules[n], "alice".into(), Cost::ONE))
    }
}

fn leased(clock: &ManualClock, seed: u64) -> Node {
    let server = Transactional::with_clock(MapStore::default(), clock.clone());
    let config = LeaseConfig::new()
        .duration(Duration::from_secs(60))
        .seed(seed);
    Slow::new(server, seed).leased(config.clock(clock.clone()))
}

type FaultyNode = Leased<Faulty<Server<TokenBucket>>, TokenBucket, ManualClock>;

/// Returns a node whose store fails as it is told, and the clock of both.
fn faulty() -> (FaultyNode, Faults, ManualClock) {
    let clock = ManualClock::default();
    let server = Faulty::new(Transactional::with_clock(
        MapStore::default(),
        clock.clone(),
    ));
    let faults = server.faults();
    let config = LeaseConfig::new().duration(Duration::from_secs(60)).seed(1);
    (server.leased(config.clock(clock.clone())), faults, clock)
}

/// Polls a future at most so often, and then drops it.
async fn polled<F: Future>(future: F, times: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Lets the requests come to their end that no call waits for.
async fn settle_down() {
    for _ in 0..8 * MOST_TURNS {
        tokio::task::yield_now().await;
    }
}

fn assert_exact(stats: &LeaseStats) {
    let LeaseStats {
        granted,
        spent,
        left,
        expired,
        returned,
        lost,
        ..
    } = *stats;
    assert_eq!(
        granted,
        spent + left + expired + returned + lost,
        "{stats:?}"
    );
}

/// Returns the units of both limits that calls have taken: what the server does not have any more,
/// less what is left here.
async fn taken(node: &Node, limits: &Limits) -> u64 {
    let full = limits.rules.map(|rule| {
        let tightened = rule.tightened(Duration::from_secs(60), 1).unwrap();
        tightened.capacity()
    });
    let looks = node.look(&limits.asks()).await.unwrap();
    let remaining = looks.as_slice().iter().map(|look| look.remaining());
    let gone = remaining.zip(full).map(|(now, full)| full - now.unwrap());
    gone.sum::<u64>() - node.stats().left
}

#[tokio::test]
async fn calls_that_are_refused_or_dropped_give_everything_back() {
    for seed in 0..support::cases(60).max(12) {
        let (clock, limits) = (ManualClock::default(), Limits::new());
        let (node, mut random) = (leased(&clock, seed), Random::new(seed));
        let (mut admitted, mut dropped, mut refused) = (0, 0, 0);
        let mut dropped_exact = 0;
        for _ in 0..40 {
            let calls = (0..12).map(|_| {
                let times = match random.below(3) {
                    0 => random.below(4 * MOST_TURNS),
                    _ => u64::MAX,
                };
                let (node, asks) = (&node, limits.asks());
                polled(async move { node.acquire(&asks).await.unwrap() }, times)
            });
            let calls: Vec<_> = calls.collect();
            let before = node.stats().asked;
            for decided in futures_util::future::join_all(calls).await {
                match decided {
                    Some(decisions) if decisions.is_admitted() => admitted += 1,
                    Some(_) => refused += 1,
                    None => dropped += 1,
                }
            }
            settle_down().await;
            // A call that asked for its cost alone may have been charged, as without leases.
            dropped_exact += node.stats().asked - before;
            assert_exact(&node.stats());
        }
        assert!(admitted > 100 && refused > 0 && dropped > 0, "seed {seed}");
        let taken = taken(&node, &limits).await;
        assert!(
            (2 * admitted..=2 * (admitted + dropped.min(dropped_exact))).contains(&taken),
            "seed {seed}: {taken} taken by {admitted} calls; {dropped} dropped, {:?}",
            node.stats()
        );
    }
}

/// Calls name their limits in any order, begin at any time, and go on in any order: none waits for
/// another one that waits for it.
#[tokio::test]
async fn calls_of_overlapping_limits_come_to_their_end() {
    let policies = ["a", "b", "c"].map(Policy::new);
    let rule = TokenBucket::per_hour(1_000_000);
    for seed in 0..support::cases(200).max(50) {
        let clock = ManualClock::default();
        let (node, mut random) = (leased(&clock, seed), Random::new(seed));
        for round in 0..20 {
            let mut calls: Vec<_> = (0..8)
                .map(|_| {
                    let mut named: Vec<_> = policies.iter().collect();
                    while random.below(2) == 0 && named.len() > 1 {
                        named.remove(random.below(named.len() as u64) as usize);
                    }
                    let by = random.below(named.len() as u64) as usize;
                    named.rotate_left(by);
                    let (node, rule, cost) = (&node, &rule, Cost::new(1 + random.below(9)));
                    Box::pin(async move {
                        let ask = |policy| Ask::new(policy, rule, "alice".into(), cost.unwrap());
                        let asks: Vec<_> = named.into_iter().map(ask).collect();
                        node.acquire(&asks).await.unwrap().is_admitted()
                    })
                })
                .collect();
            let mut turns = 0;
            while !calls.is_empty() {
                turns += 1;
                assert!(
                    turns < 2_000,
                    "seed {seed}, round {round}: {} hang",
                    calls.len()
                );
                let next = random.below(calls.len() as u64) as usize;
                let call = &mut calls[next];
                let polled = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
                if let Poll::Ready(is_admitted) = polled {
                    assert!(is_admitted);
                    drop(calls.remove(next));
                }
                // An answer that takes long has units asked for ahead.
                clock.advance(Duration::from_millis(random.below(500)));
                tokio::task::yield_now().await;
            }
            settle_down().await;
            assert_exact(&node.stats());
            clock.advance(Duration::from_secs(random.below(90)));
        }
    }
}

/// A key is fresh after its reset, whatever was under way meanwhile: a refusal or a grant from
/// before is none afterwards.
#[tokio::test]
async fn a_reset_is_not_undone_by_calls_under_way() {
    let (policy, rule) = (Policy::new("api"), FixedWindow::per_day(50));
    for seed in 0..support::cases(200).max(50) {
        let (clock, mut random) = (ManualClock::default(), Random::new(seed));
        let server = Transactional::with_clock(MapStore::default(), clock.clone());
        let config = LeaseConfig::new().seed(seed).clock(clock.clone());
        let node = Slow::new(server.clone(), seed).leased(config);
        let key = Key::from("alice");
        let ask = [Ask::new(&policy, &rule, key, Cost::ONE)];
        for _ in 0..random.below(90) {
            node.acquire(&ask).await.unwrap();
        }
        let calls = (0..1 + random.below(6)).map(|_| async { node.acquire(&ask).await.unwrap() });
        let calls = futures_util::future::join_all(calls);
        let (done, _) = tokio::join!(node.reset(&policy, &key), calls);
        done.unwrap();
        settle_down().await;
        let left = server.look(&ask).await.unwrap().as_slice()[0]
            .remaining()
            .unwrap();
        let mut admitted = 0;
        while node.acquire(&ask).await.unwrap().is_admitted() {
            admitted += 1;
            settle_down().await;
        }
        // What was granted before the reset ends with it.
        assert!(
            (1..=left + 1).contains(&admitted) || left == 0,
            "seed {seed}: {admitted} of {left}"
        );
        assert_exact(&node.stats());
    }
}

/// A client that is known to be over its limit floods a node: the limit of all clients beside it is
/// asked for nothing, and the store not even while it is down.
#[tokio::test]
async fn calls_that_a_known_limit_refuses_are_no_demand_for_another_one() {
    let (node, faults, clock) = faulty();
    let limits = Limits::new();
    let asks = limits.asks();
    let mut admitted = 0;
    for _ in 0..400 {
        let decisions = node.acquire(&asks).await.unwrap();
        admitted += u64::from(decisions.is_admitted());
        settle_down().await;
    }
    assert!((100..300).contains(&admitted), "{admitted}");
    faults.always(Fault::Unavailable);
    let before = node.stats();
    for _ in 0..1000 {
        let decisions = node.acquire(&asks).await.unwrap();
        let [wide, narrow] = decisions.as_slice() else {
            panic!("{decisions:?}")
        };
        assert!(wide.is_admitted() && !narrow.is_admitted());
        assert!(wide.remaining() > Some(90_000), "{wide:?}");
        clock.advance(Duration::from_millis(1));
    }
    settle_down().await;
    let after = node.stats();
    assert_eq!(faults.counts().unavailable, 0);
    assert_eq!(after.asked, before.asked);
    assert_eq!(
        (after.admitted, after.spent),
        (before.admitted, before.spent)
    );
    assert_eq!(after.refused, before.refused + 1000);
    assert_exact(&after);
}

/// A client that is known to be over its limit is refused in an outage, too, whatever else its call
/// names: an error would have an outer wrapper admit it.
#[tokio::test]
async fn a_known_refusal_outlives_the_store() {
    let (node, faults, _) = faulty();
    let limits = Limits::new();
    let [wide, narrow] = limits.asks();
    while node.acquire(&[narrow]).await.unwrap().is_admitted() {
        settle_down().await;
    }
    for fault in [Fault::Unavailable, Fault::Lost] {
        faults.always(fault);
        for asks in [[wide, narrow], [narrow, wide]] {
            let decisions = node.acquire(&asks).await.unwrap();
            assert!(!decisions.is_admitted());
            for (ask, decision) in asks.iter().zip(decisions.as_slice()) {
                let is_wide = *ask.policy() == limits.policies[0];
                assert_eq!(decision.is_admitted(), is_wide, "{decision:?}");
                assert_eq!(decision.is_undecided(), is_wide, "{decision:?}");
            }
        }
    }
    faults.none();
    let decisions = node.acquire(&[wide, narrow]).await.unwrap();
    assert!(!decisions.is_admitted() && !decisions.as_slice()[0].is_undecided());
    assert_exact(&node.stats());
}

/// A store that fails calls which name a bad client.
struct Picky {
    store: Slow<TokenBucket>,
}

impl Backend for Picky {
    type Error = StoreError;
}

impl Store<TokenBucket> for Picky {
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        let answer = self.store.acquire(asks);
        let is_bad = asks.iter().any(|ask| *ask.key() == Key::from("bad"));
        let error = is_bad.then(|| StoreError::unsupported("a bad client"));
        Check::Pending(Box::pin(async move {
            let answer = answer.await;
            error.map_or(answer, Err)
        }))
    }

    fn look(&self, asks: &[Ask<'_, TokenBucket>]) -> Check<Self::Answer> {
        self.store.look(asks)
    }

    fn settle(&self, settlements: Vec<Settlement<'_, TokenBucket>>) -> Check<Self::Done> {
        self.store.settle(settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        self.store.reset(policy, key)
    }
}

/// An error that says something of one key fails no call that waits for another key of the same
/// request.
#[tokio::test]
async fn an_error_of_one_key_fails_no_call_of_another() {
    let (policy, rule) = (Policy::new("api"), TokenBucket::per_hour(100_000));
    for seed in 0..2 {
        let clock = ManualClock::default();
        let server = Transactional::with_clock(MapStore::default(), clock.clone());
        let store = Picky {
            store: Slow::new(server, seed),
        };
        let node = store.leased(LeaseConfig::new().seed(seed).clock(clock.clone()));
        for round in 0..20 {
            let calls = (0..12).map(|n| {
                let client = match n % 3 {
                    0 => Key::from("bad"),
                    _ => Key::from(format!("good {n}")),
                };
                let keys = [Key::from("tenant"), client];
                let (node, policy, rule) = (&node, &policy, &rule);
                async move {
                    let asks = keys.map(|key| Ask::new(policy, rule, key, Cost::ONE));
                    node.acquire(&asks)
                        .await
                        .map(|decisions| decisions.is_admitted())
                }
            });
            let calls = futures_util::future::join_all(calls).await;
            for (n, admitted) in calls.into_iter().enumerate().filter(|(n, _)| n % 3 > 0) {
                assert!(admitted.unwrap(), "round {round}, call {n}");
            }
            settle_down().await;
            // The leases end, so that the tenant has to be asked for again.
            clock.advance(Duration::from_secs(30));
        }
        assert!(node.stats().failed > 0, "{:?}", node.stats());
    }
}

/// Without calls that are dropped, each unit is accounted for.
#[tokio::test]
async fn a_refusal_by_one_limit_takes_nothing_from_the_other() {
    for seed in 0..support::cases(60).max(12) {
        let (clock, limits) = (ManualClock::default(), Limits::new());
        let node = leased(&clock, seed);
        let mut admitted = 0;
        for _ in 0..40 {
            let calls = (0..12).map(|_| {
                let (node, asks) = (&node, limits.asks());
                async move { node.acquire(&asks).await.unwrap().is_admitted() }
            });
            let decided = futures_util::future::join_all(calls).await;
            admitted += decided.into_iter().filter(|passes| *passes).count() as u64;
            settle_down().await;
            assert_exact(&node.stats());
        }
        assert!(admitted < 480 && admitted > 150, "seed {seed}: {admitted}");
        assert_eq!(taken(&node, &limits).await, 2 * admitted, "seed {seed}");
    }
}
