//! Refunds and grants under leases.

use std::{collections::VecDeque, future::IntoFuture, time::Duration};

use futures_util::poll;
use support::Random;
use tollgate::{
    Charge, Cost, Decision, FixedWindow, Limiter, Policy, Quota, SlidingWindow, TokenBucket,
    algorithm::{AnyRule, Leasable, SlidingLog},
    store::{
        Backend, LeaseConfig, Store, StoreExt,
        driver::{Ask, Settlement, Transactional},
    },
    testing::{Fault, Faulty},
    time::ManualClock,
};

use crate::leases::{
    map_store::MapStore,
    shared::{Node, node},
};

/// Nodes on one store, all of one key.
struct Fleet<R: Leasable> {
    rule: R,
    nodes: Vec<Node<R>>,
    clock: ManualClock,
    policy: Policy,
}

impl<R> Fleet<R>
where
    R: Leasable,
{
    fn new(rule: R, nodes: usize, config: impl Fn() -> LeaseConfig) -> Self {
        let (clock, states) = (ManualClock::default(), MapStore::default());
        clock.advance(Duration::from_secs(1_000_000));
        let node = |n| node(&states, &clock, config().seed(n));
        Self {
            nodes: (0..nodes as u64).map(node).collect(),
            rule,
            clock,
            policy: Policy::new("api"),
        }
    }

    async fn call(&self, node: usize, cost: u64) -> Decision {
        let cost = Cost::new(cost).unwrap();
        let ask = Ask::new(&self.policy, &self.rule, "alice".into(), cost);
        let decisions = self.nodes[node].acquire(&[ask]).await.unwrap();
        // Requests for later calls go on beside this one.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        decisions.as_slice()[0]
    }

    async fn correct(&self, node: usize, charge: Charge, actual: u64) {
        let key = "alice".into();
        let settlement = Settlement::new(&self.policy, &self.rule, key, charge, actual);
        let settled = self.nodes[node].settle(vec![settlement.unwrap()]);
        settled.await.unwrap();
    }

    /// Spends all that the nodes can, in the time of the pauses of a key. Returns how much that is.
    async fn spend_all(&self, pauses: Duration) -> u64 {
        let mut spent = 0;
        for _ in 0..5 {
            for node in 0..self.nodes.len() {
                while self.call(node, 1).await.is_admitted() {
                    spent += 1;
                }
            }
            self.clock.advance(pauses);
        }
        spent
    }

    fn unsettled(&self) -> u64 {
        let of = |node: &Node<R>| node.unsettled().unwrap();
        // They share the counter of their store only if they share the store.
        self.nodes.iter().map(of).sum()
    }

    fn lost(&self) -> u64 {
        self.nodes.iter().map(|node| node.stats().lost).sum()
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn held_for_a_second() -> LeaseConfig {
    LeaseConfig::new().duration(SECOND)
}

/// A thousand units, of which one comes back in 3.6 seconds, and which the hold costs one.
fn slow_bucket() -> TokenBucket {
    TokenBucket::per_hour(1000)
}

#[tokio::test]
async fn refunds_of_a_bucket_come_back() {
    for (nodes, seed) in [1, 2, 4, 7]
        .into_iter()
        .flat_map(|n| [(n, 1), (n, 2), (n, 3)])
    {
        let fleet = Fleet::new(slow_bucket(), nodes, held_for_a_second);
        let mut random = Random::new(seed);
        let mut open = VecDeque::new();
        for _ in 0..400 {
            let node = random.below(nodes as u64) as usize;
            let charge = fleet.call(node, 1).await.take_charge().unwrap();
            open.push_back((node, charge));
            // Some at once, some in another order, the others when all are spent.
            for _ in 0..random.below(3) {
                let at = random.below(open.len() as u64 + 1) as usize;
                if let Some((node, charge)) = open.remove(at) {
                    fleet.correct(node, charge, 0).await;
                }
            }
        }
        for (node, charge) in open {
            fleet.correct(node, charge, 0).await;
        }
        let stats = fleet.nodes[0].stats();
        let spent = fleet.spend_all(SECOND).await;
        assert!(
            (999 - 40..=1002).contains(&spent),
            "{nodes} nodes, seed {seed}: {spent}, {stats:?}"
        );
        assert_eq!((fleet.unsettled(), fleet.lost()), (0, 0));
    }
}

#[tokio::test]
async fn free_log_ins_cost_next_to_nothing() {
    for nodes in [1, 4] {
        for gap in [Duration::ZERO, SECOND / 10, 10 * SECOND] {
            let fleet = Fleet::new(slow_bucket(), nodes, held_for_a_second);
            for call in 0..200 {
                let node = call % nodes;
                let charge = fleet.call(node, 1).await.take_charge().unwrap();
                fleet.correct(node, charge, 0).await;
                fleet.clock.advance(gap);
            }
            let spent = fleet.spend_all(SECOND).await;
            assert!(
                (999 - 4..=1002).contains(&spent),
                "{nodes}, {gap:?}: {spent}"
            );
        }
    }
}

/// Refunds of each rule that can be leased come back, or are counted.
#[tokio::test]
async fn refunds_of_other_rules_come_back_or_are_counted() {
    let minute = Quota::per_minute(1000);
    let rules = [
        AnyRule::from(FixedWindow::new(minute)),
        AnyRule::from(SlidingWindow::new(minute)),
        AnyRule::from(SlidingLog::new(minute)),
        "token-bucket 1000/1h & fixed-window 1000/1h"
            .parse()
            .unwrap(),
        "token-bucket 1000/1h & token-bucket 2000/1h"
            .parse()
            .unwrap(),
        "token-bucket 1000/1h & sliding-log 1000/1m"
            .parse()
            .unwrap(),
    ];
    for rule in rules {
        for (nodes, late) in [(1, false), (3, false), (3, true)] {
            let fleet = Fleet::new(rule.clone(), nodes, held_for_a_second);
            let mut open = Vec::new();
            for call in 0..400 {
                let node = call % nodes;
                let charge = fleet.call(node, 1).await.take_charge().unwrap();
                open.push((node, charge));
            }
            if late {
                fleet.clock.advance(2 * SECOND);
            }
            for (node, charge) in open {
                fleet.correct(node, charge, 0).await;
            }
            let spent = fleet.spend_all(SECOND / 2).await;
            let missing = 1000_u64.saturating_sub(spent);
            assert!(spent <= 1002, "{rule}, {nodes} nodes: {spent}");
            // Units of a log that end in a lease count in the log until they leave it.
            let ended = |node: &Node<AnyRule>| node.stats().expired;
            let expired: u64 = fleet.nodes.iter().map(ended).sum();
            let lost = fleet.lost();
            assert!(
                missing <= 40 + expired + lost,
                "{rule}, {nodes} nodes, late {late}: {spent}, {expired} expired and {lost} lost"
            );
            assert_eq!(lost > 0, fleet.unsettled() > 0, "{rule}");
        }
    }
}

#[tokio::test]
async fn a_node_without_room_counts_what_it_may_lose() {
    let fleet = Fleet::new(slow_bucket(), 1, || held_for_a_second().keys(0));
    for _ in 0..3 {
        let charge = fleet.call(0, 1).await.take_charge().unwrap();
        let _other = fleet.call(0, 1).await;
        fleet.correct(0, charge, 0).await;
    }
    assert_eq!(fleet.unsettled(), 3);
}

#[tokio::test]
async fn grants_reach_the_client() {
    for rule in [
        AnyRule::from(slow_bucket()),
        AnyRule::from(FixedWindow::new(Quota::per_hour(1000))),
        AnyRule::from(SlidingWindow::new(Quota::per_hour(1000))),
        AnyRule::from(SlidingLog::new(Quota::per_hour(1000))),
    ] {
        for nodes in [1, 4] {
            let fleet = Fleet::new(rule.clone(), nodes, held_for_a_second);
            fleet.spend_all(SECOND).await;
            let limiter = Limiter::new(fleet.policy.clone(), rule.clone(), fleet.nodes[0].clone());
            let granted = limiter.grant("alice", 200).await.unwrap();
            assert!(granted.remaining() >= Some(200), "{rule}: {granted:?}");
            let spent = fleet.spend_all(SECOND).await;
            assert!(
                (200..=204).contains(&spent),
                "{rule}, {nodes} nodes: {spent}"
            );
        }
    }
}

/// A refusal that is on its way while this node grants or refunds units refuses no later call,
/// whether the key has leases or not.
#[tokio::test]
async fn a_refusal_of_before_a_change_refuses_no_later_call() {
    let (policy, rule) = (Policy::new("api"), FixedWindow::new(Quota::per_day(100)));
    let ask = || [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    for (is_grant, is_known) in [(false, false), (false, true), (true, false), (true, true)] {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1_000_000));
        let server = Transactional::with_clock(MapStore::default(), clock.clone());
        let faulty = Faulty::new(server.clone());
        let faults = faulty.faults();
        let node = faulty.leased(held_for_a_second().clock(clock.clone()));
        let mut charge = None;
        for _ in 0..100 {
            let mut decision = server.acquire(&ask()).await.unwrap().as_slice()[0];
            charge = decision.take_charge();
        }
        if is_known {
            assert!(!node.acquire(&ask()).await.unwrap().is_admitted());
        }
        faults.script([Some(Fault::Held)]);
        let mut refused = Box::pin(node.acquire(&ask()).into_future());
        assert!(poll!(&mut refused).is_pending());
        if is_grant {
            let limiter = Limiter::new(policy.clone(), rule, node.clone());
            limiter.grant("alice", 10).await.unwrap();
        } else {
            let charge = charge.unwrap();
            let refund = Settlement::new(&policy, &rule, "alice".into(), charge, 0);
            node.settle(vec![refund.unwrap()]).await.unwrap();
        }
        let mut later = Box::pin(node.acquire(&ask()).into_future());
        assert!(poll!(&mut later).is_pending());
        faults.release();
        assert!(!refused.await.unwrap().is_admitted());
        let later = later.await.unwrap();
        assert!(later.is_admitted(), "{is_grant} {is_known}: {later:?}");
    }
}

/// A layer drops its settlements, and the store makes them later. A refusal of the time in between
/// refuses no call after it.
#[tokio::test]
async fn a_refusal_of_before_a_dropped_settlement_refuses_no_later_call() {
    let (policy, rule) = (Policy::new("api"), FixedWindow::new(Quota::per_day(100)));
    let ask = || [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    let refund = |charge| {
        let refund = Settlement::new(&policy, &rule, "alice".into(), charge, 0);
        vec![refund.unwrap()]
    };
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_000_000));
    let server = Transactional::with_clock(MapStore::default(), clock.clone());
    let faulty = Faulty::new(server.clone());
    let faults = faulty.faults();
    let node = faulty.leased(held_for_a_second().clock(clock.clone()));
    let mut charges = Vec::new();
    for _ in 0..100 {
        let mut decision = server.acquire(&ask()).await.unwrap().as_slice()[0];
        charges.extend(decision.take_charge());
    }
    faults.script([Some(Fault::Held)]);
    drop(node.settle(refund(charges.pop().unwrap())));
    // As if the store had not yet made it.
    assert!(server.acquire(&ask()).await.unwrap().is_admitted());
    for _ in 0..3 {
        assert!(!node.acquire(&ask()).await.unwrap().is_admitted());
    }
    let asked = faults.counts().passed;
    assert!(!node.acquire(&ask()).await.unwrap().is_admitted());
    assert_eq!(faults.counts().passed, asked, "it is known");
    server.settle(refund(charges.pop().unwrap())).await.unwrap();
    faults.release();
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    assert!(node.acquire(&ask()).await.unwrap().is_admitted());
}

/// Units that were granted before a change, or while it was made, are spent with the numbers of
/// their answer.
#[tokio::test]
async fn units_of_before_a_change_are_spent_with_numbers() {
    let (policy, rule) = (Policy::new("api"), FixedWindow::new(Quota::per_day(100)));
    let ask = || [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
    for is_under_way in [false, true] {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1_000_000));
        let server = Transactional::with_clock(MapStore::default(), clock.clone());
        let faulty = Faulty::new(server.clone());
        let faults = faulty.faults();
        let node = faulty.leased(held_for_a_second().clock(clock.clone()));
        let mut other = server.acquire(&ask()).await.unwrap().as_slice()[0];
        for _ in 0..2 {
            assert!(node.acquire(&ask()).await.unwrap().is_admitted());
        }
        if is_under_way {
            faults.script([Some(Fault::Held)]);
        }
        // Asks for two units.
        let call = tokio::spawn(node.acquire(&ask()).into_future());
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let refund = other.take_charge().unwrap();
        let refund = Settlement::new(&policy, &rule, "alice".into(), refund, 0);
        node.settle(vec![refund.unwrap()]).await.unwrap();
        faults.release();
        assert!(call.await.unwrap().unwrap().is_admitted());
        let later = node.acquire(&ask()).await.unwrap().as_slice()[0];
        assert!(later.is_admitted() && later.is_remaining_estimated());
        assert_eq!(later.limit(), Some(100), "{is_under_way}: {later:?}");
    }
}

/// The clock of a node may count from its start, and that of the store from 1970.
#[tokio::test]
async fn charges_above_the_estimate_reach_a_store_with_another_clock() {
    let day = Quota::per_day(10_000);
    let rules = [
        AnyRule::from(FixedWindow::new(day)),
        AnyRule::from(SlidingWindow::new(day)),
        AnyRule::from(SlidingLog::new(day)),
        AnyRule::from(TokenBucket::per_day(10_000)),
    ];
    for (rule, seed) in rules
        .iter()
        .flat_map(|rule| (0..5).map(move |seed| (rule, seed)))
    {
        let (of_store, of_node) = (ManualClock::default(), ManualClock::default());
        of_store.advance(Duration::from_secs(1_800_000_000));
        of_node.advance(Duration::from_secs(100));
        let server = Transactional::with_clock(MapStore::default(), of_store.clone());
        let node = server
            .clone()
            .leased(held_for_a_second().clock(of_node.clone()));
        let (policy, mut random) = (Policy::new("api"), Random::new(seed));
        let (mut open, mut used) = (VecDeque::new(), 0);
        for _ in 0..300 {
            let ask = [Ask::new(
                &policy,
                rule,
                "alice".into(),
                Cost::new(1 + random.below(9)).unwrap(),
            )];
            let mut decision = node.acquire(&ask).await.unwrap().as_slice()[0];
            if let Some(charge) = decision.take_charge() {
                open.push_back(charge);
            }
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            while open.len() as u64 > random.below(6) {
                let Some(charge) = open.pop_front() else {
                    break;
                };
                let actual = charge.cost + random.below(40);
                used += actual;
                let settlement = Settlement::new(&policy, rule, "alice".into(), charge, actual);
                node.settle(vec![settlement.unwrap()]).await.unwrap();
            }
            for clock in [&of_store, &of_node] {
                clock.advance(Duration::from_millis(random.below(50)));
            }
        }
        used += open.iter().map(|charge| charge.cost).sum::<u64>();
        let ask = [Ask::new(&policy, rule, "alice".into(), Cost::ONE)];
        let look = server.look(&ask).await.unwrap().as_slice()[0];
        let left = look.remaining().unwrap();
        assert!(
            used > 5_000 && used + left <= 10_002,
            "{rule}, seed {seed}: {used} used, {left} left"
        );
        assert_eq!(node.unsettled(), Some(0));
    }
}
