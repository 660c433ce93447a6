//! Leases belong to a rule: a changed rule does not spend those of the former one.

use std::time::Duration;

use support::Random;
use tollgate::{
    Charge, Cost, Decision, Error, Timestamp, TokenBucket,
    algorithm::{Algorithm, FleetRule, Leasable, StateKind, Step, Validity},
    store::LeaseConfig,
    time::{Clock, ManualClock},
};

use crate::leases::{
    map_store::MapStore,
    shared::{admitted, node},
};

/// A bucket that is equal to every other one if `is_alike`: leases cannot tell it from its
/// successor.
#[derive(Clone, Debug)]
struct Bucket {
    rule: TokenBucket,
    is_alike: bool,
}

impl PartialEq for Bucket {
    fn eq(&self, other: &Self) -> bool {
        self.is_alike || self.rule == other.rule
    }
}

impl Algorithm for Bucket {
    type State = <TokenBucket as Algorithm>::State;

    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step {
        self.rule.step(state, now, cost)
    }

    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision {
        self.rule.look(state, now)
    }

    fn settle(
        &self,
        state: &mut Option<Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        self.rule.settle(state, charge, now, actual);
    }

    fn forgettable_at(&self, state: &Self::State) -> Timestamp {
        self.rule.forgettable_at(state)
    }

    fn state_kind(&self) -> StateKind {
        self.rule.state_kind()
    }
}

impl Leasable for Bucket {}

impl FleetRule for Bucket {
    fn default_lease_duration(&self) -> Duration {
        self.rule.default_lease_duration()
    }

    fn tightened(&self, hold: Duration, max_cost: u64) -> Result<Self, Error> {
        let rule = self.rule.tightened(hold, max_cost)?;
        Ok(Self { rule, ..*self })
    }

    fn validity(&self, granted: &Decision, hold: Duration) -> Validity {
        self.rule.validity(granted, hold)
    }
}

/// Returns how many calls pass under a strict rule right after a generous one.
async fn admitted_after_a_change(is_alike: bool) -> (u64, u64) {
    let [generous, strict] = [TokenBucket::per_second(10_000), TokenBucket::per_second(10)]
        .map(|rule| Bucket { rule, is_alike });
    let (clock, states) = (ManualClock::default(), MapStore::default());
    clock.advance(Duration::from_secs(1_000_000));
    let config = LeaseConfig::new().duration(Duration::from_millis(100));
    let node = node(&states, &clock, config);
    assert_eq!(admitted(&node, &generous, 700).await, 700);
    let left = node.stats().left;
    (left, admitted(&node, &strict, 2_000).await)
}

#[tokio::test]
async fn a_changed_rule_drops_the_leases_of_the_former_one() {
    let (left, admitted) = admitted_after_a_change(false).await;
    assert!(left > 20, "{left}");
    // The burst of the strict rule, less what is refilled during the hold and what the generous
    // rule has spent.
    assert!(admitted <= 9, "{admitted}");
    // The test would notice if leases did not belong to their rule.
    let (left, admitted) = admitted_after_a_change(true).await;
    assert!(admitted >= left && admitted > 10, "{admitted} of {left}");
}

/// Requests that bring one of two rules in turn keep the leases of both.
#[tokio::test]
async fn rules_that_alternate_keep_a_lease_each() {
    let rules = [1_000, 2_000].map(|rate| Bucket {
        rule: TokenBucket::per_second(rate),
        is_alike: false,
    });
    let (clock, states) = (ManualClock::default(), MapStore::default());
    clock.advance(Duration::from_secs(1_000_000));
    let config = LeaseConfig::new().duration(Duration::from_millis(100));
    let node = node(&states, &clock, config);
    for _ in 0..500 {
        for rule in &rules {
            assert_eq!(admitted(&node, rule, 1).await, 1);
            clock.advance(Duration::from_millis(2));
        }
    }
    let stats = node.stats();
    // Two seconds are twenty holds, for each rule.
    assert!(stats.asked < 4 * 20 * 2, "{stats:?}");
}

/// An exact bucket that never refuses what a rule admits, at one token in ten milliseconds.
struct Meter {
    burst: u64,
    full_at: u64,
}

impl Meter {
    const INTERVAL: u64 = 10_000_000;

    /// Spends, and returns whether it holds that much.
    fn spend(&mut self, now: Timestamp) -> bool {
        let now = now.as_nanos();
        self.full_at = self.full_at.max(now) + Self::INTERVAL;
        self.full_at - now <= self.burst * Self::INTERVAL
    }
}

/// Plays calls of two nodes under a rule that keeps 30 tokens free, and then also under the bucket
/// itself. Returns whether all of them stay within the limit of each, and the calls that pass under
/// the bucket once the others are refused.
async fn with_tokens_kept_free(seed: u64, is_alike: bool) -> (bool, u64) {
    let bucket = TokenBucket::per_second(100);
    let [bucket, keeping] = [bucket, bucket.keep_free(30)].map(|rule| Bucket { rule, is_alike });
    let (clock, states) = (ManualClock::default(), MapStore::default());
    clock.advance(Duration::from_secs(1_000_000));
    let config = LeaseConfig::new().duration(Duration::from_millis(100));
    let nodes = [(); 2].map(|()| node(&states, &clock, config.clone().seed(seed)));
    let meter = |burst| Meter { burst, full_at: 0 };
    let (mut of_all, mut of_keeping) = (meter(100), meter(70));
    let (mut random, mut is_within) = (Random::new(seed), true);
    let mut left_to_others = 0;
    for turn in 0..2 {
        for _ in 0..300 {
            clock.advance(Duration::from_micros(random.below(9_000)));
            let node = &nodes[random.below(2) as usize];
            let is_keeping = turn == 0 || random.below(3) > 0;
            let rule = if is_keeping { &keeping } else { &bucket };
            if admitted(node, rule, 1).await == 1 {
                let now = clock.now();
                is_within &= of_all.spend(now);
                is_within &= !is_keeping || of_keeping.spend(now);
            }
        }
        if turn == 0 {
            for _ in 0..admitted(&nodes[0], &keeping, 100).await {
                let now = clock.now();
                is_within &= of_all.spend(now) && of_keeping.spend(now);
            }
            left_to_others = admitted(&nodes[0], &bucket, 200).await;
            (0..left_to_others).for_each(|_| is_within &= of_all.spend(clock.now()));
        }
    }
    (is_within, left_to_others)
}

/// Units that were granted under one rule are not spent under another one.
#[tokio::test]
async fn leases_leave_what_a_rule_keeps_free() {
    for seed in 0..support::cases(40).max(8) {
        let (is_within, left) = with_tokens_kept_free(seed, false).await;
        assert!(is_within, "seed {seed}");
        // A node that found less than is refilled during a lease refuses for a while.
        assert!((20..=60).contains(&left), "seed {seed}: {left}");
    }
    // The test would notice if leases did not belong to their rule.
    let (_, left) = with_tokens_kept_free(0, true).await;
    assert!(left < 20, "{left}");
}
