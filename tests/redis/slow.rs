//! Faults that take their time: `./test.sh slow`.

use std::time::Duration;

use tollgate::{TokenBucket, key::Key, store::Redis};

use super::{
    acquire, at_once,
    crowd::DEADLINE,
    groups::replicated,
    policies::{Policies, TASKS, clients},
    servers,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: ./test.sh slow"]
async fn slots_that_move() {
    let cluster = servers::Cluster::start();
    let nodes: Vec<_> = cluster.nodes()[..3].iter().collect();
    let hosts: Vec<_> = nodes
        .iter()
        .map(|node| node.address().to_string())
        .collect();
    let url = format!("redis-cluster://{}", hosts.join(","));
    let policies = Policies::start(&url, clients()).await;
    let names = nodes.iter().flat_map(|node| node.keys());
    // The other key of each client lies in the same slot.
    let names: Vec<_> = names.filter(|name| name.ends_with(b":api")).collect();
    assert_eq!(names.len(), 3);
    for _ in 0..3 {
        for name in &names {
            let slot = cluster.slot_of(name);
            let from = cluster.master_of(slot);
            let to = nodes.iter().find(|node| node.port() != from.port());
            let migration = cluster.begin_migration(slot, to.unwrap());
            migration.move_keys();
            // Neither here nor there for a while.
            tokio::time::sleep(2 * DEADLINE).await;
            migration.finish();
        }
        policies.wait_for_the_server();
    }
    policies.end(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: ./test.sh slow"]
async fn a_master_that_sentinels_replace() {
    let group = servers::Sentinel::start();
    let url = group.url("redis-sentinel://");
    let policies = Policies::start(&url, clients()).await;
    let sure = policies.admitted();
    let old = group.master();
    replicated(old, "probe");
    old.kill();
    // What the replica may not have heard of: what was admitted since, and what is under way.
    let unknown = policies.admitted() - sure + 3 * TASKS;
    policies.wait_for_failures();
    let new = group.master();
    assert_ne!(new.port(), old.port());
    policies.wait_for_the_server();
    policies.end(unknown).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: ./test.sh slow"]
async fn a_network_that_takes_half_a_second() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let url = format!("redis://{}", proxy.address());
    let policies = Policies::start(&url, clients()).await;
    proxy.delay(Duration::from_millis(500));
    policies.wait_for_failures();
    // Some of the calls that were given up arrive.
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.delay(Duration::ZERO);
    policies.wait_for_the_server();
    policies.end(0).await;

    // Who has the patience waits for the answer: a second, there and back.
    let patient = Redis::<TokenBucket>::builder(url).response_timeout(Duration::from_secs(20));
    let patient: Redis<TokenBucket> = patient.connect().await.unwrap();
    proxy.delay(Duration::from_millis(500));
    let start = std::time::Instant::now();
    let decision = acquire(&patient, &at_once(5), Key::from(7_u64))
        .await
        .unwrap();
    assert_eq!(decision.remaining(), Some(4));
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: ./test.sh slow"]
async fn connections_that_are_half_open() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let policies = Policies::start(&format!("redis://{}", proxy.address()), clients()).await;
    for _ in 0..3 {
        let before = proxy.accepted();
        proxy.abandon();
        policies.wait_for_failures();
        // Nobody says that they are gone: that is noticed here, and others are made.
        policies.wait_for_the_server();
        assert!(proxy.accepted() >= before + 3);
    }
    policies.end(0).await;
}
