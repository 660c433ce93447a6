//! The stores in memcached against real servers: decisions, stored values, and the effects of each
//! fault.
#![cfg(all(feature = "memcached", feature = "test-util"))]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

#[path = "../common/mod.rs"]
mod common;

mod builders;
mod callers;
mod conformance;
mod connection;
mod exact;
mod faults;
mod greeting;
mod kinds;
mod layout;
mod lazy;
mod nodes;
mod silence;
mod unsupported;

use std::{sync::LazyLock, time::Duration};

use support::{
    servers::{self, in_time},
    value,
};
use tollgate::{
    Charge, Cost, Decision, FixedWindow, Policy, SlidingLog, Timestamp, TokenBucket,
    algorithm::{Algorithm, Step},
    key::Key,
    store::{
        Memcached, MemcachedConnection, MemcachedCounters, Store, StoreError,
        driver::{Ask, CasStore, CounterStore, Decisions},
    },
};

use crate::common::crowd;

/// A bucket that admits `burst` calls at once, and no more for as long as a test runs.
fn at_once(burst: u64) -> TokenBucket {
    // A bucket may take 24 years to fill.
    let period = if burst > 8_000 { "10m" } else { "1d" };
    format!("token-bucket 1/{period} burst={burst}")
        .parse()
        .unwrap()
}

/// A window that admits `limit` calls, and begins anew every ten years.
fn window(limit: u64) -> FixedWindow {
    format!("fixed-window {limit}/3650d").parse().unwrap()
}

fn policy() -> &'static Policy {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new("api"));
    &POLICY
}

fn key() -> Key {
    Key::from(7_u64)
}

fn url(address: impl std::fmt::Display) -> String {
    format!("memcached://{address}")
}

async fn connect(server: &servers::Memcached) -> MemcachedConnection {
    let builder = MemcachedConnection::builder(url(server.address()));
    builder.connect().await.unwrap()
}

fn swaps(connection: &MemcachedConnection) -> Memcached<TokenBucket> {
    CasStore::new(connection.clone())
}

fn counters(connection: &MemcachedConnection) -> MemcachedCounters<FixedWindow> {
    CounterStore::new(connection.clone())
}

async fn acquire<Rule, S>(store: &S, rule: &Rule, key: Key) -> Result<Decision, StoreError>
where
    S: Store<Rule, Error = StoreError>,
{
    let ask = Ask::new(policy(), rule, key, Cost::ONE);
    store.acquire(&[ask]).await.map(only)
}

async fn look<Rule, S>(store: &S, rule: &Rule, key: Key) -> Result<Decision, StoreError>
where
    S: Store<Rule, Error = StoreError>,
{
    let ask = Ask::new(policy(), rule, key, Cost::ONE);
    store.look(&[ask]).await.map(only)
}

fn only(decisions: Decisions) -> Decision {
    let [decision] = decisions.as_slice() else {
        panic!("expected one decision, found {decisions:?}");
    };
    *decision
}

/// The number of admitted ones of `calls` acquisitions in a row.
async fn admitted<Rule, S>(store: &S, rule: &Rule, key: Key, calls: u64) -> u64
where
    S: Store<Rule, Error = StoreError>,
{
    let mut admitted = 0;
    for _ in 0..calls {
        let decision = acquire(store, rule, key).await.unwrap();
        admitted += u64::from(decision.is_admitted());
    }
    admitted
}

/// A rule of an application, whose states are longer than it says. Those of a log of this crate are
/// refused before they can be.
#[derive(Clone, Debug)]
struct LongLog(SlidingLog);

impl Algorithm for LongLog {
    type State = <SlidingLog as Algorithm>::State;

    fn step(&self, state: &mut Option<Self::State>, now: Timestamp, cost: Cost) -> Step {
        self.0.step(state, now, cost)
    }

    fn look(&self, state: Option<&Self::State>, now: Timestamp) -> Decision {
        self.0.look(state, now)
    }

    fn settle(
        &self,
        state: &mut Option<Self::State>,
        charge: &Charge,
        now: Timestamp,
        actual: u64,
    ) {
        self.0.settle(state, charge, now, actual);
    }

    fn forgettable_at(&self, state: &Self::State) -> Timestamp {
        self.0.forgettable_at(state)
    }
}

/// A server whose items may have 512 kB. Version 1.6.18 does not survive large items where they may
/// have less.
fn small_items() -> servers::MemcachedOptions {
    servers::Memcached::options()
        .argument("-I")
        .argument("512k")
}

/// Names and values of one line of `stats`.
fn stat(server: &servers::Memcached, what: &str, name: &str) -> u64 {
    let text = server.command(what);
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    value
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .unwrap()
}

/// Names, and their expiry in Unix seconds (−1: never), of all items.
///
/// The crawler skips items that are in use, so it is asked until it has seen as many as there are.
fn items(server: &servers::Memcached) -> Vec<(String, i64)> {
    let held = |line: &str| line.strip_prefix("STAT curr_items ")?.trim().parse().ok();
    for _ in 0..200 {
        let found = crawled_items(server);
        if server.command("stats").lines().find_map(held) == Some(found.len()) {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    crawled_items(server)
}

fn crawled_items(server: &servers::Memcached) -> Vec<(String, i64)> {
    let text = server.command("lru_crawler metadump all");
    let items = text.lines().filter_map(|line| line.strip_prefix("key="));
    let item = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap().replace("%3A", ":");
        let name = name
            .replace("%7B", "{")
            .replace("%7D", "}")
            .replace("%3D", "=")
            .replace("%40", "@");
        let expiry = words.find_map(|word| word.strip_prefix("exp="));
        (name, expiry.unwrap().parse().unwrap())
    };
    items.map(item).collect()
}
