//! Limiters and blocks in Redis.

use std::time::Duration;

use support::servers::{self, Reply};
use tollgate::{
    AnyRule, Cost, FixedWindow, LeakyBucket, Limiter, Timestamp, TokenBucket,
    algorithm::{Block, Blockable, Scripted},
    key::Key,
    store::{Redis, StoreExt, driver::Ask},
};

use super::{SECOND, cost, kept, policy, shared};

async fn connect<A>(server: &servers::Redis) -> Redis<A>
where
    A: Scripted,
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

/// Nodes that count the refusals of one attacker at the same time leave one block of the length
/// that was asked for.
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

#[tokio::test]
async fn nodes_with_and_without_blocks_have_one_limit() {
    let server = servers::Redis::start();
    kept::one_limit(&connect(&server).await, &connect(&server).await).await;
}

/// A block of so long, as the store runs it.
fn block(seconds: u64) -> Blockable<TokenBucket> {
    Blockable::Block(Block::try_new(Duration::from_secs(seconds)).unwrap())
}

/// Returns a value of one state, in MessagePack: a block with a level.
fn value(server: &servers::Redis, numbers: &str) -> Vec<u8> {
    let script = format!("return cmsgpack.pack({{ 1, {{ {numbers} }} }})");
    match server.reply(&["EVAL", &script, "0"]) {
        Reply::Bytes(bytes) => bytes,
        reply => panic!("{reply:?}"),
    }
}

/// Nodes that block one key at once, each for another time, leave exactly the longest block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_of_blocks_of_nodes_holds() {
    const NODES: u64 = 4;
    let server = servers::Redis::start();
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(connect::<Blockable<TokenBucket>>(&server).await);
    }
    let (policy, now) = (policy(), Timestamp::from_nanos(1_767_235_685_123_456_000));
    for key in 0..40_u64 {
        let tasks: Vec<_> = (0..3 * NODES)
            .map(|n| {
                let (node, policy) = (nodes[(n % NODES) as usize].clone(), policy.clone());
                let length = 100 + (5 * n + key) % (3 * NODES);
                tokio::spawn(async move {
                    let rule = block(length);
                    let ask = Ask::new(&policy, &rule, Key::from(key), Cost::ONE);
                    let charged = node.acquire_at(now, &[ask]).await.unwrap();
                    assert!(charged.as_slice()[0].reset_after() >= Duration::from_secs(length));
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let longest = 100 + 3 * NODES - 1;
        for (length, is_longer) in [(longest, false), (longest + 1, true)] {
            let rule = block(length);
            let ask = Ask::new(&policy, &rule, Key::from(key), Cost::ONE);
            let charged = nodes[0].acquire_at(now, &[ask]).await.unwrap();
            assert_eq!(charged.is_admitted(), is_longer);
            let left = charged.as_slice()[0].reset_after();
            assert_eq!(left, Duration::from_secs(length), "{key}");
        }
    }
}

/// A level comes back, and a longer block leaves it.
#[tokio::test]
async fn levels_are_kept() {
    let server = servers::Redis::start();
    let blocks = connect::<Blockable<TokenBucket>>(&server)
        .await
        .with_blocks();
    let day = 86_400 * SECOND;
    let _ = blocks
        .block(&policy(), "mallory", SECOND)
        .unwrap()
        .await
        .unwrap();
    let name = server.keys().remove(0);
    let until = 4_000_000_000_123_456_u64;
    for level in [0, 7, 255] {
        let written = value(&server, &format!("11, {until}, {level}"));
        server.command(&[&b"SET"[..], &name[..], &written[..]]);
        let shorter = blocks
            .block(&policy(), "mallory", day)
            .unwrap()
            .await
            .unwrap();
        assert!(shorter > Some(300 * day), "{shorter:?}");
        assert_eq!(
            server.reply(&[&b"GET"[..], &name[..]]),
            Reply::Bytes(written)
        );
        let soon = "redis.call('TIME')[1] * 1000000 + 60000000";
        let written = value(&server, &format!("11, {soon}, {level}"));
        server.command(&[&b"SET"[..], &name[..], &written[..]]);
        let longer = blocks
            .block(&policy(), "mallory", day)
            .unwrap()
            .await
            .unwrap();
        assert_eq!(longer, Some(day));
        let Reply::Bytes(bytes) = server.reply(&[&b"GET"[..], &name[..]]) else {
            panic!("no block")
        };
        let same = value(&server, &format!("11, {}, {level}", until_in(&bytes)));
        assert_eq!(bytes, same);
        assert!(bytes != written);
    }
    assert_eq!(blocks.get_ref().stats().healed, 0);
}

/// Returns the end of a block in a value: behind two lists, a version and the kind.
fn until_in(bytes: &[u8]) -> u64 {
    let (_, until) = bytes.split_at(5);
    u64::from_be_bytes(*until.first_chunk().unwrap())
}

/// A value that is no state of a block counts as none, and is counted.
#[tokio::test]
async fn values_that_are_no_blocks_are_healed() {
    let server = servers::Redis::start();
    let blocks = connect::<Blockable<TokenBucket>>(&server)
        .await
        .with_blocks();
    let _ = blocks
        .block(&policy(), "mallory", SECOND)
        .unwrap()
        .await
        .unwrap();
    let name = server.keys().remove(0);
    let limiter = Limiter::new(policy(), TokenBucket::per_hour(1000), blocks);
    for numbers in [
        "11",
        "11, 4e15",
        "11, 4e15, 256",
        "11, 4e15, -1",
        "11, 4e15, 0.5",
        "11, -4e15, 0",
        "11, 4e15 + 0.5, 0",
        "11, 2 ^ 53, 0",
        "11, 4e15, 0, 0",
        "11, 'x', 0",
        "11, {}, 0",
        "11, false, 0",
    ] {
        let written = value(&server, numbers);
        server.command(&[&b"SET"[..], &name[..], &written[..]]);
        let before = limiter.store().get_ref().stats().healed;
        let decision = limiter.check("mallory", cost(1)).await.unwrap();
        assert!(decision.is_admitted(), "{numbers}");
        let blocked = limiter.block("mallory", SECOND).unwrap().await.unwrap();
        assert_eq!(blocked, Some(SECOND), "{numbers}");
        assert_eq!(
            limiter.store().get_ref().stats().healed,
            before + 1,
            "{numbers}"
        );
        assert!(
            !limiter
                .check("mallory", cost(1))
                .await
                .unwrap()
                .is_admitted()
        );
    }
}
