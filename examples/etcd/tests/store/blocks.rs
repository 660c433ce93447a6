//! Blocks of keys hold on every node, and the longest of several that are made at once.

use std::time::Duration;

use tollgate::{
    Cost, Limiter, TokenBucket,
    algorithm::{Algorithm, Blockable, Codec},
    store::StoreExt,
};

use crate::common::{at_once, client, node, policy, servers};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn the_longest_block_holds_on_every_node() {
    const TASKS: u32 = 8;
    let server = servers::Etcd::start();
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = node(&server).await.with_blocks();
        limiters.push(Limiter::new(policy().clone(), at_once(9), store));
    }
    let tasks: Vec<_> = (1..=TASKS)
        .map(|hours| {
            let limiter = limiters[hours as usize % 2].clone();
            tokio::spawn(async move {
                loop {
                    match limiter.block("mallory", hours * HOUR).unwrap().await {
                        Ok(left) => break assert!(left >= Some(hours * HOUR)),
                        Err(error) => assert!(error.is_contended(), "{error}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for limiter in &limiters {
        let left = limiter.look("mallory").await.unwrap().retry_after();
        assert!(left <= Some(TASKS * HOUR), "{left:?}");
        assert!(left > Some(TASKS * HOUR - HOUR / 2), "{left:?}");
    }
    limiters[0].unblock("mallory").await.unwrap();
    let decision = limiters[1].check("mallory", Cost::ONE).await;
    assert!(decision.unwrap().is_admitted());
}

/// A level that is written comes back, and a longer block leaves it.
#[tokio::test]
async fn the_level_is_kept() {
    let server = servers::Etcd::start();
    let blocks = node::<Blockable<TokenBucket>>(&server).await.with_blocks();
    let block = async |time| {
        let block = blocks
            .block::<TokenBucket>(policy(), "mallory", time)
            .unwrap();
        block.await.unwrap()
    };
    assert_eq!(block(HOUR).await, Some(HOUR));
    let mut etcd = client(&server).await;
    let mut value = async |new: Option<Vec<u8>>| {
        let all = etcd_client::GetOptions::new().with_all_keys();
        let found = etcd.get("", Some(all)).await.unwrap();
        let [found] = found.kvs() else {
            panic!("one key")
        };
        if let Some(new) = new {
            etcd.put(found.key(), new, None).await.unwrap();
        }
        found.value().to_vec()
    };
    // The state is the last part of the value, and the level its last byte.
    let mut written = value(None).await;
    assert_eq!(written.pop(), Some(0));
    written.push(7);
    value(Some(written)).await;
    assert_eq!(block(2 * HOUR).await, Some(2 * HOUR));
    let after = value(None).await;
    assert_eq!(after.last(), Some(&7));
    // And the state is one.
    let state = after[after.len() - 11..].to_vec();
    assert_eq!(state[0], 0x59);
    let state = <Blockable<TokenBucket> as Algorithm>::State::from_bytes(&state);
    assert!(state.is_ok());
}
