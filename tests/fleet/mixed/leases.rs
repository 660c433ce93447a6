//! Fleets in which some nodes have no leases: what that costs is reached, on any number of nodes.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tollgate::{
    Charge, Policy,
    algorithm::AnyRule,
    store::{
        Store,
        driver::{Ask, Settlement},
    },
};

use super::{Node, call, meter::Meter, wrapper::Wrapper};
use crate::synced::nodes::{Fleet, units};

/// Returns up to two nodes with leases, and others without.
fn nodes(number: usize, hold: u64) -> (Vec<Node>, Vec<Node>) {
    let fleet = Fleet::new();
    let node = |n: usize, wrapper: Wrapper| wrapper.node(&fleet, number as u64, n as u64);
    let leased = 2.min(number - 1);
    (
        (0..leased)
            .map(|n| node(n, Wrapper::Leased(hold)))
            .collect(),
        (leased..number).map(|n| node(n, Wrapper::None)).collect(),
    )
}

/// Makes a call, whose charge can be given back.
async fn charge(node: &Node, rule: &AnyRule, cost: u64) -> Option<Charge> {
    let policy = Policy::new("api");
    let ask = Ask::new(&policy, rule, "alice".into(), units(cost));
    let decisions = node.acquire(&[ask]).await.unwrap();
    let mut decision = decisions.as_slice()[0];
    decision.take_charge()
}

async fn give_back(node: &Node, rule: &AnyRule, charge: Charge) {
    let policy = Policy::new("api");
    let refund = Settlement::new(&policy, rule, "alice".into(), charge, 0);
    node.settle(vec![refund.unwrap()]).await.unwrap();
}

/// The units that a node without leases finds in the bucket, and those that others still hold, are
/// never more than the burst, but may be all of it.
#[tokio::test(start_paused = true)]
async fn a_bucket_admits_its_limit() {
    let rule: AnyRule = "token-bucket 20/1s burst=40".parse().unwrap();
    let meter = |burst| Meter::Bucket(burst, Duration::from_millis(50));
    let (hold, cost) = (200, 10);
    for number in [2, 3, 5] {
        let mut is_reached = false;
        // From the instant at which the bucket has refilled the cost, for the hold.
        for pause in (500..700).step_by(20) {
            let (leased, plain) = nodes(number, hold);
            for node in &leased {
                call(node, &rule, "alice", 2).await;
            }
            sleep(Duration::from_secs(2)).await;
            for _ in 0..2 {
                let charged = charge(&leased[0], &rule, cost).await.unwrap();
                give_back(&leased[0], &rule, charged).await;
            }
            sleep(Duration::from_millis(pause)).await;
            let mut admitted = Vec::new();
            for node in leased.iter().chain(&plain) {
                admitted.extend(call(node, &rule, "alice", 100).await);
            }
            assert_eq!(meter(40).excess(&admitted), 0, "{number} nodes, {pause} ms");
            // A lease is counted from the request, so the way of the answer takes a unit.
            is_reached |= meter(38).excess(&admitted) > 0;
        }
        assert!(is_reached, "{number} nodes");
    }
}

/// The nodes are given back what they have admitted, and spend it once the others' log has
/// forgotten it.
#[tokio::test(start_paused = true)]
async fn a_log_admits_one_limit_above_its_limit() {
    const LIMIT: u64 = 12;
    let rule: AnyRule = "sliding-log 12/1m".parse().unwrap();
    let (window, hold) = (Duration::from_secs(60), 1000);
    for number in [2, 3, 5] {
        let (leased, plain) = nodes(number, hold);
        let start = Instant::now();
        // The store takes back what it has decided itself; more is from leases each time.
        for _ in 0..7 {
            let mut charges = Vec::new();
            for node in leased.iter().cycle().take(LIMIT as usize * leased.len()) {
                let charge = charge(node, &rule, 1).await;
                charges.extend(charge.map(|charge| (node, charge)));
            }
            for (node, charge) in charges {
                give_back(node, &rule, charge).await;
            }
        }
        let charged = Instant::now();
        // Just before the leases end.
        sleep_until(start + Duration::from_millis(hold - 10)).await;
        let mut admitted = Vec::new();
        for node in &leased {
            admitted.extend(call(node, &rule, "alice", LIMIT).await);
        }
        sleep_until(charged + window).await;
        for node in &plain {
            admitted.extend(call(node, &rule, "alice", 2 * LIMIT).await);
        }
        let excess = Meter::Log(LIMIT, window).excess(&admitted);
        assert_eq!(excess, LIMIT, "{number} nodes");
    }
}
