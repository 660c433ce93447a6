//! Nodes that count themselves.

use std::time::Duration;

use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{Ask, LeaseConfig, NodeCounts, Redis, Store, StoreExt},
};

use super::{counted_nodes::counts_are_those_of_the_periods, policy, servers, store};

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
