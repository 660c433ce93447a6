//! The store in Redis against real servers: decisions, stored values, and the effects of each
//! fault.
#![cfg(all(feature = "redis", feature = "test-util"))]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

#[path = "../common/mod.rs"]
mod common;

mod attackers;
mod callers;
mod clock;
mod conformance;
mod crafted;
mod deltas;
mod differential;
mod exact;
mod existing;
mod faults;
mod grants;
mod groups;
mod keep_free;
mod kinds;
mod layout;
mod lazy;
mod logs;
mod nodes;
mod policies;
mod settlements;
mod slow;
mod tls;
mod unsupported;
mod unwritable;
mod version;
mod working;

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use support::servers::{self, in_time};
use tollgate::{
    Cost, Decision, Policy, TokenBucket,
    key::Key,
    store::{
        Redis, Store, StoreError,
        driver::{Ask, Decisions},
    },
};

use crate::common::crowd;

/// Returns a rule that admits `burst` requests and then no more during a test.
fn at_once(burst: u64) -> TokenBucket {
    // A bucket may take 24 years to fill.
    let period = if burst > 8_000 { "10m" } else { "1d" };
    format!("token-bucket 1/{period} burst={burst}")
        .parse()
        .unwrap()
}

fn policy() -> &'static Policy {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new("api"));
    &POLICY
}

/// Lets a server take no writes, because it cannot write its snapshot, as on a full disk. Returns
/// what is in the way.
fn cannot_save(server: &servers::Redis) -> std::path::PathBuf {
    let folder = server.command(&["CONFIG", "GET", "dir"]);
    let dump = std::path::Path::new(folder.lines().last().unwrap()).join("dump.rdb");
    std::fs::create_dir(&dump).unwrap();
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    save(server, "err");
    dump
}

/// Saves, and waits for the result.
fn save(server: &servers::Redis, result: &str) {
    server.ask(&["BGSAVE"]).unwrap();
    let limit = Duration::from_secs(6);
    server.wait_for_info("persistence", "rdb_last_bgsave_status", result, limit);
}

async fn store(url: impl Into<String>) -> Redis<TokenBucket> {
    Redis::connect(url).await.unwrap()
}

async fn acquire(
    store: &Redis<TokenBucket>,
    rule: &TokenBucket,
    key: Key,
) -> Result<Decision, StoreError> {
    acquire_many(store, rule, key, 1).await
}

async fn acquire_many(
    store: &Redis<TokenBucket>,
    rule: &TokenBucket,
    key: Key,
    cost: u64,
) -> Result<Decision, StoreError> {
    let ask = Ask::new(policy(), rule, key, Cost::new(cost).unwrap());
    store.acquire(&[ask]).await.map(only)
}

async fn look(
    store: &Redis<TokenBucket>,
    rule: &TokenBucket,
    key: Key,
) -> Result<Decision, StoreError> {
    let ask = Ask::new(policy(), rule, key, Cost::ONE);
    store.look(&[ask]).await.map(only)
}

fn only(decisions: Decisions) -> Decision {
    let [decision] = decisions.as_slice() else {
        panic!("expected one decision, found {decisions:?}");
    };
    *decision
}

/// Makes `calls` acquisitions in a row and counts the admitted ones.
async fn admitted(store: &Redis<TokenBucket>, rule: &TokenBucket, key: Key, calls: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..calls {
        let decision = acquire(store, rule, key).await.unwrap();
        admitted += u64::from(decision.is_admitted());
    }
    admitted
}

/// Calls until one succeeds. Returns the number of errors before it.
async fn until_answered(store: &Redis<TokenBucket>, rule: &TokenBucket, key: Key) -> u32 {
    let start = Instant::now();
    for errors in 0.. {
        match acquire(store, rule, key).await {
            Ok(_) => return errors,
            Err(error) if start.elapsed() > Duration::from_secs(60) => {
                panic!("no answer within a minute; seen last: {error:?}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    unreachable!("the loop ends by itself")
}
