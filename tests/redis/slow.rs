//! Faults that take a long time: `./test.sh slow`.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tollgate::{TokenBucket, key::Key, store::Redis};

use super::{
    acquire, at_once,
    callers::url_of,
    crowd::{DEADLINE, RESPONSE},
    groups::replicated,
    policies::{Policies, TASKS, clients, clients_of, connect},
    servers, until_answered,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: ./test.sh slow"]
async fn slots_that_move() {
    let cluster = servers::Cluster::start();
    let nodes: Vec<_> = cluster.nodes()[..3].iter().collect();
    let url = url_of(&cluster);
    let policies = Policies::start(&url, clients()).await;
    let names = nodes.iter().flat_map(|node| node.keys());
    // The other key of each client is in the same slot.
    let names: Vec<_> = names.filter(|name| name.ends_with(b":api")).collect();
    assert_eq!(names.len(), 3);
    for _ in 0..3 {
        for name in &names {
            let slot = cluster.slot_of(name);
            let from = cluster.master_of(slot);
            let to = nodes.iter().find(|node| node.port() != from.port());
            let migration = cluster.begin_migration(slot, to.unwrap());
            migration.move_keys();
            // The slot is between both nodes for a while.
            sleep(2 * DEADLINE).await;
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
    // Possibly missing on the replica: the admissions since then, and the calls in flight.
    let unknown = policies.admitted() - sure + 3 * TASKS;
    policies.wait_for_failures();
    let new = group.master();
    assert_ne!(new.port(), old.port());
    policies.wait_for_the_server();
    policies.end(unknown).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: ./test.sh slow"]
async fn a_network_delay_of_half_a_second_follows_the_policies() {
    let server = servers::Redis::start();
    let proxy = servers::Proxy::start(server.address());
    let url = format!("redis://{}", proxy.address());
    let policies = Policies::start(&url, clients()).await;
    proxy.delay(Duration::from_millis(500));
    policies.wait_for_failures();
    // Some of the calls that timed out still arrive.
    sleep(Duration::from_secs(3)).await;
    proxy.delay(Duration::ZERO);
    policies.wait_for_the_server();
    policies.end(0).await;

    // With a long timeout a call waits for the answer: a second for both directions.
    let patient = Redis::<TokenBucket>::builder(url).response_timeout(Duration::from_secs(20));
    let patient: Redis<TokenBucket> = patient.connect().await.unwrap();
    proxy.delay(Duration::from_millis(500));
    let start = Instant::now();
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
        // No packet reports the end. The store detects it and opens other connections.
        policies.wait_for_the_server();
        assert!(proxy.accepted() >= before + 3);
    }
    policies.end(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: ./test.sh slow"]
async fn a_cluster_is_surveyed_only_while_calls_fail_and_no_connection_is_left_behind() {
    let cluster = servers::Cluster::start();
    let url = url_of(&cluster);
    let [master, other, ..] = cluster.nodes() else {
        panic!("expected six nodes");
    };
    let ([client, ..], _) = clients_of(&url, master).await;
    let store = connect(&url).await;
    acquire(&store, &at_once(5), client).await.unwrap();
    let accepted = || other.info("stats", "total_connections_received");
    let counted =
        |before: String| accepted().parse::<u64>().unwrap() - before.parse::<u64>().unwrap();
    master.pause();
    let before = accepted();
    let end = Instant::now() + 6 * RESPONSE;
    while Instant::now() < end {
        let _ = timeout(DEADLINE, acquire(&store, &at_once(5), client)).await;
    }
    // One in each response timeout, which takes at least that long, and the command of this test.
    let surveys = counted(before) - 1;
    assert!((1..=7).contains(&surveys), "{surveys}");
    // Waits until everything started by the last call has ended.
    sleep(6 * RESPONSE).await;
    let before = accepted();
    sleep(4 * RESPONSE).await;
    assert_eq!(counted(before), 1);
    master.resume();
    cluster.settle();
    until_answered(&store, &at_once(5), client).await;
    drop(store);
    for node in cluster.nodes() {
        servers::wait_until("no connection but this test's", 20 * RESPONSE, || {
            let clients = node.command(&["CLIENT", "LIST", "TYPE", "normal"]);
            match clients.lines().count() {
                1 => Ok(()),
                _ => Err(clients),
            }
        });
    }
}
