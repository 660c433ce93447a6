//! Limiters and blocks in memcached.

use support::servers;
use tollgate::{
    AnyRule, FixedWindow, LeakyBucket, TokenBucket,
    algorithm::{Algorithm, Codec},
    store::{Memcached, MemcachedConnection, driver::CasStore},
    time::ManualClock,
};

use super::{kept, shared};

async fn connect(server: &servers::Memcached) -> MemcachedConnection {
    let url = format!("memcached://{}", server.address());
    MemcachedConnection::builder(url).connect().await.unwrap()
}

async fn store<A: Algorithm<State: Codec>>(server: &servers::Memcached) -> Memcached<A> {
    CasStore::new(connect(server).await)
}

#[tokio::test]
async fn units_are_granted() {
    let server = servers::Memcached::start();
    shared::grants(&store(&server).await).await;
}

#[tokio::test]
async fn blocks_hold_on_every_node() {
    let server = servers::Memcached::start();
    macro_rules! blocks {
        ($($rule:expr),+) => {$({
            let rule = $rule;
            let nodes = [store(&server).await, store(&server).await];
            shared::blocks(rule, &nodes[0], &nodes[1]).await;
        })+};
    }
    blocks![
        TokenBucket::per_hour(9),
        LeakyBucket::per_second(9),
        FixedWindow::per_hour(9),
        FixedWindow::per_hour(9).from_first_call(),
        (TokenBucket::per_hour(9), LeakyBucket::per_second(9)),
        "sliding-log 9/1h & token-bucket 9/1h"
            .parse::<AnyRule>()
            .unwrap()
    ];
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_are_refused_at_once_make_one_block() {
    let server = servers::Memcached::start();
    shared::tasks_make_one_block(store(&server).await).await;
}

#[tokio::test]
async fn levels_are_kept() {
    let server = servers::Memcached::start();
    kept::level_is_kept(store::<kept::Spy>(&server).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_of_blocks_of_tasks_holds() {
    let server = servers::Memcached::start();
    let clock = ManualClock::default();
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let builder = CasStore::builder_on(connect(&server).await);
        nodes.push(builder.clock(clock.clone()).build());
    }
    kept::longest_holds(&nodes).await;
}

#[tokio::test]
async fn nodes_with_and_without_blocks_have_one_limit() {
    let server = servers::Memcached::start();
    kept::one_limit(&store(&server).await, &store(&server).await).await;
}
