//! Leases belong to a rule: a changed rule does not spend those of the former one.

use std::time::Duration;

use tollgate::{
    Charge, Cost, Decision, Error, Policy, Timestamp, TokenBucket,
    algorithm::{Algorithm, FleetRule, Leasable, StateKind, Step, Validity},
    store::{LeaseConfig, Store, driver::Ask},
    time::ManualClock,
};

use crate::leases::{
    map_store::MapStore,
    shared::{Node, node},
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

async fn admitted(node: &Node<Bucket>, rule: &Bucket, calls: u64) -> u64 {
    let (policy, mut admitted) = (Policy::new("api"), 0);
    for _ in 0..calls {
        let ask = Ask::new(&policy, rule, "alice".into(), Cost::ONE);
        let decisions = node.acquire(&[ask]).await.unwrap();
        admitted += u64::from(decisions.is_admitted());
        tokio::task::yield_now().await;
    }
    admitted
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
