//! Limiters and blocks in Redis.

use support::servers;
use tollgate::{
    AnyRule, FixedWindow, LeakyBucket, Limiter, TokenBucket,
    algorithm::{Blockable, Scripted},
    store::{Redis, StoreExt},
};

use super::{SECOND, cost, policy, shared};

async fn connect<A>(server: &servers::Redis) -> Redis<A>
where
    A: Scripted<State: Send> + Send + Sync + 'static,
{
    Redis::connect(server.url()).await.unwrap()
}

#[tokio::test]
async fn units_are_granted() {
    let server = servers::Redis::start();
    shared::grants(&connect(&server).await).await;
}

#[tokio::test]
async fn blocks_hold_on_every_node() {
    let server = servers::Redis::start();
    macro_rules! blocks {
        ($($rule:expr),+) => {$({
            let rule = $rule;
            let nodes = [connect(&server).await, connect(&server).await];
            shared::blocks(rule, &nodes[0], &nodes[1]).await;
        })+};
    }
    blocks![
        TokenBucket::per_hour(9),
        LeakyBucket::per_second(9),
        FixedWindow::per_hour(9),
        FixedWindow::per_hour(9).from_first_call(),
        "token-bucket 9/1h".parse::<AnyRule>().unwrap(),
        "sliding-log 9/1h & token-bucket 9/1h"
            .parse::<AnyRule>()
            .unwrap()
    ];
    assert_eq!(server.command(&["DBSIZE"]), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_are_refused_at_once_make_one_block() {
    let server = servers::Redis::start();
    shared::tasks_make_one_block(connect(&server).await).await;
    let names = server.command(&["KEYS", "*"]);
    let names: Vec<_> = names.lines().collect();
    let [name] = names[..] else {
        panic!("expected the block alone: {names:?}")
    };
    assert!(name.ends_with(":api!blocked"), "{name}");
}

/// Returns the number of calls of write commands.
fn writes(server: &servers::Redis) -> u64 {
    let text = server.command(&["INFO", "commandstats"]);
    let writing = ["set", "setrange", "del", "expire", "pexpire", "pexpireat"];
    let calls = writing.iter().filter_map(|name| {
        let start = format!("cmdstat_{name}:calls=");
        let line = text.lines().find_map(|line| line.strip_prefix(&start))?;
        Some(line.split(',').next()?.parse::<u64>().unwrap())
    });
    calls.sum()
}

/// The server sees no write for a refusal, and none for a blocked request.
#[tokio::test]
async fn refusals_write_nothing_on_the_server() {
    let server = servers::Redis::start();
    let store = connect(&server).await;
    let blocks = store
        .with_blocks()
        .block_after(10, 3600 * SECOND, 3600 * SECOND);
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(2), blocks);
    assert!(
        limiter
            .check("mallory", cost(2))
            .await
            .unwrap()
            .is_admitted()
    );
    let before = writes(&server);
    assert!(before > 0);
    for _ in 0..9 {
        assert!(
            !limiter
                .check("mallory", cost(2))
                .await
                .unwrap()
                .is_admitted()
        );
    }
    assert_eq!(writes(&server), before);
    assert!(
        !limiter
            .check("mallory", cost(2))
            .await
            .unwrap()
            .is_admitted()
    );
    let blocked = writes(&server);
    assert!(blocked > before);
    for _ in 0..50 {
        assert!(
            !limiter
                .check("mallory", cost(2))
                .await
                .unwrap()
                .is_admitted()
        );
    }
    assert_eq!(writes(&server), blocked);
    assert_eq!((limiter.store().made(), limiter.store().refused()), (1, 50));
}

/// Nodes that count the refusals of one attacker at the same time leave one block of the length that was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_block_at_once_leave_one_block() {
    let server = servers::Redis::start();
    let mut limiters = Vec::new();
    for _ in 0..4 {
        let store = connect(&server).await;
        let blocks = store
            .with_blocks()
            .block_after(1, 3600 * SECOND, 3600 * SECOND);
        limiters.push(Limiter::new(policy(), TokenBucket::per_hour(2), blocks));
    }
    for key in 0..50_u64 {
        let tasks: Vec<_> = limiters
            .iter()
            .map(|limiter| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check(key, cost(3)).await.unwrap() })
            })
            .collect();
        for task in tasks {
            assert!(!task.await.unwrap().is_admitted());
        }
        let left = limiters[0].look(key).await.unwrap().retry_after();
        assert!(
            left <= Some(3600 * SECOND) && left > Some(3000 * SECOND),
            "{key}: {left:?}"
        );
    }
}

/// The store survives, and so does the block: another node, connected later, sees it.
#[tokio::test]
async fn a_node_that_starts_later_sees_the_block() {
    let server = servers::Redis::start();
    let day = 86_400 * SECOND;
    let first = connect::<Blockable<TokenBucket>>(&server)
        .await
        .with_blocks();
    let blocked = first.block(&policy(), "mallory", day).unwrap().await;
    assert_eq!(blocked.unwrap(), Some(day));
    drop(first);
    let store = connect(&server).await.fail_closed().with_blocks();
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(2), store);
    assert!(!limiter.check("mallory", cost(1)).await.is_admitted());
    assert!(limiter.check("alice", cost(1)).await.is_admitted());
}
