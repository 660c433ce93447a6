//! The stores of these tests, and what is left in them.

use std::{convert::Infallible, time::Duration};

use support::servers;
use tollgate::{
    Policy, TokenBucket,
    key::Key,
    prelude::*,
    store::{
        BoxStore, Memcached, MemcachedConnection, Store,
        driver::{Ask, CasStore},
    },
};

pub(crate) type AnyStore = BoxStore<TokenBucket, Infallible>;

pub(crate) fn memory() -> AnyStore {
    Local::new().boxed()
}

pub(crate) async fn redis(server: &servers::Redis) -> AnyStore {
    let store = Redis::<TokenBucket>::connect(server.url()).await.unwrap();
    store.fail_closed().boxed()
}

pub(crate) async fn memcached(server: &servers::Memcached) -> AnyStore {
    let url = format!("memcached://{}", server.address());
    let connection = MemcachedConnection::builder(url).connect().await.unwrap();
    let store: Memcached<TokenBucket> = CasStore::new(connection);
    store.fail_closed().boxed()
}

/// Returns the units that a key has left.
pub(crate) async fn remaining(store: &AnyStore, policy: &str, rule: &TokenBucket, key: Key) -> u64 {
    let policy = Policy::new(policy);
    let ask = Ask::new(&policy, rule, key, tollgate::Cost::ONE);
    let Ok(looks) = store.look(&[ask]).await;
    looks.as_slice()[0].remaining().unwrap()
}

/// Waits until a key has `expected` units left; returns what it has after 10 seconds otherwise.
/// Settlements on servers are made in the background.
#[allow(clippy::disallowed_methods, reason = "servers live in real time")]
pub(crate) async fn settled(
    store: &AnyStore,
    policy: &str,
    rule: &TokenBucket,
    key: Key,
    expected: u64,
) -> u64 {
    let mut left = 0;
    for _ in 0..2_000 {
        left = remaining(store, policy, rule, key).await;
        if left == expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    left
}
