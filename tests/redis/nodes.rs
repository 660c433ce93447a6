//! Nodes that count themselves.

use std::{collections::HashMap, fmt::Debug, time::Duration};

use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{
        LeaseConfig, Redis, Store, StoreExt,
        driver::{Ask, FleetStore, NodeCounts},
    },
};

use super::{policy, servers, store};

/// Nodes count themselves in periods that come by small and large steps. The clocks of some are
/// behind.
async fn counts_are_those_of_the_periods<S>(store: &S)
where
    S: Store<TokenBucket, Error: Debug>,
{
    let policy = Policy::new("walk");
    let mut counted: HashMap<u64, u64> = HashMap::new();
    let (mut newest, mut seed) = (1000_u64, 7_u64);
    for _ in 0..400 {
        // A linear congruential generator, by the constants of MMIX.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let period = match seed >> 60 {
            0..8 => newest,
            8..11 => newest + 1,
            11 => newest + 2,
            12 => newest + 1000,
            13..15 => newest - 1,
            _ => newest - 2,
        };
        newest = newest.max(period);
        *counted.entry(period).or_default() += 1;
        let counting = store.fleet().unwrap().count_node(&policy, period).unwrap();
        let NodeCounts { current, previous } = counting.await.unwrap();
        let in_period = |period| counted.get(&period).copied().unwrap_or(0);
        if period + 1 >= newest {
            let expected = in_period(newest).max(in_period(newest - 1));
            let counts = NodeCounts { current, previous };
            assert_eq!(counts.nodes(), expected, "{period} of {newest}: {counts:?}");
        }
        if period == newest {
            assert_eq!(
                [current, previous],
                [in_period(period), in_period(period - 1)]
            );
        }
    }
}

#[tokio::test]
async fn counts_are_those_of_the_periods_by_script() {
    let server = servers::Redis::start();
    counts_are_those_of_the_periods(&store(server.url()).await).await;
}

#[tokio::test]
async fn counts_expire_and_damaged_ones_begin_afresh() {
    let server = servers::Redis::start();
    let store: Redis<TokenBucket> = store(server.url()).await;
    let count = async |period| {
        let counting = store.count_node(&Policy::new("api"), period).unwrap();
        counting.await
    };
    let first = NodeCounts {
        current: 1,
        previous: 0,
    };
    assert_eq!(count(7).await.unwrap(), first);
    for damaged in ["", "7", "7 1 x", "7 1 2 3", "-7 1 2"] {
        server.command(&["SET", "tollgate:nodes:api", damaged]);
        assert_eq!(count(7).await.unwrap(), first, "{damaged:?}");
        let left: u64 = server
            .command(&["PTTL", "tollgate:nodes:api"])
            .parse()
            .unwrap();
        assert!(
            (1..=3 * NodeCounts::PERIOD.as_millis() as u64).contains(&left),
            "{left}"
        );
    }
    server.command(&["DEL", "tollgate:nodes:api"]);
    server.command(&["LPUSH", "tollgate:nodes:api", "a list"]);
    let error = count(7).await.unwrap_err().to_string();
    assert!(error.contains("WRONGTYPE"), "{error}");
    server.command(&["DEL", "tollgate:nodes:api"]);
}

/// A node of an earlier release counts itself by its own clock. What it wrote in advance is no
/// count.
#[tokio::test]
async fn a_node_that_is_ahead_hides_nobody() {
    let server = servers::Redis::start();
    let store: Redis<TokenBucket> = store(server.url()).await;
    let seconds: u64 = server
        .command(&["TIME"])
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let period = seconds / NodeCounts::PERIOD.as_secs();
    for nodes in 1..=5 {
        let counting = store.count_node(&Policy::new("api"), period).unwrap();
        assert!(counting.await.unwrap().nodes() >= nodes);
    }
    // By the script: it is counted where the others are, or in the next period.
    let counting = store.count_node(&Policy::new("api"), period + 6).unwrap();
    assert!(counting.await.unwrap().nodes() >= 5);
    let ahead = format!("{} 1 0", period + 6);
    server.command(&["SET", "tollgate:nodes:api", &ahead]);
    for nodes in 1..=5 {
        let counting = store.count_node(&Policy::new("api"), period).unwrap();
        assert!(counting.await.unwrap().nodes() >= nodes);
    }
}

#[tokio::test]
async fn leases_count_their_nodes() {
    let server = servers::Redis::start();
    let rule = TokenBucket::per_second(1000);
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(store(server.url()).await.leased(LeaseConfig::new()));
    }
    let mut most = 0;
    // Only where a period ends meanwhile, more than one round is needed.
    for round in 0..300_u64 {
        for node in &nodes {
            let ask = Ask::new(policy(), &rule, Key::from(round), Cost::ONE);
            node.acquire(&[ask]).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = nodes.iter().map(|node| node.stats().nodes).max().unwrap();
        if most == 3 {
            break;
        }
    }
    assert_eq!(most, 3);
    for node in &nodes {
        let bound = node.undershoot_bound(&rule).unwrap();
        // The store runs a burst of 900.
        assert_eq!(bound, 100 + 225 * (node.stats().nodes - 1));
    }
    server.command(&["DEL", "tollgate:nodes:api"]);
}
