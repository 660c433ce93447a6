//! The counter class of stores, on a cache in memory that is slow and faulty on demand.

mod boundary;
mod cache;
mod cancel;
mod conformance;
mod deltas;
mod differential;
mod faults;
#[cfg(feature = "config")]
mod files;
mod grants;
mod nodes;
mod operations;
mod race;
mod rules;
mod time;

use std::sync::LazyLock;

use tollgate::{
    Cost, Decision, Policy,
    algorithm::Counted,
    key::Key,
    store::{
        Store, StoreError,
        driver::{Ask, CounterStore, CounterStoreBuilder, Decisions, Settlement},
    },
    time::ManualClock,
};

use self::cache::Cache;

fn policy() -> &'static Policy {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new("api"));
    &POLICY
}

type Node<Rule> = CounterStore<Cache, Rule>;

/// Returns a process of its own, which shares the cache with others.
fn node<Rule: Counted>(cache: &Cache, clock: &ManualClock) -> Node<Rule> {
    CounterStoreBuilder::new(cache.clone())
        .clock(clock.clone())
        .build()
}

fn ask<Rule>(rule: &Rule, key: Key, cost: u64) -> Ask<'_, Rule> {
    Ask::new(policy(), rule, key, Cost::new(cost).unwrap())
}

async fn acquire<Rule, S>(store: &S, rule: &Rule, cost: u64) -> Result<Decision, StoreError>
where
    S: Store<Rule, Error = StoreError>,
{
    let ask = [ask(rule, Key::GLOBAL, cost)];
    store.acquire(&ask).await.map(only)
}

async fn look<Rule, S>(store: &S, rule: &Rule) -> Result<Decision, StoreError>
where
    S: Store<Rule, Error = StoreError>,
{
    store.look(&[ask(rule, Key::GLOBAL, 1)]).await.map(only)
}

async fn settle<Rule, S>(
    store: &S,
    rule: &Rule,
    decision: &Decision,
    actual: u64,
) -> Result<(), StoreError>
where
    S: Store<Rule, Error = StoreError>,
{
    let settlement = Settlement::new(
        policy(),
        rule,
        Key::GLOBAL,
        { *decision }.take_charge().unwrap(),
        actual,
    )
    .unwrap();
    store.settle(vec![settlement]).await
}

fn only(decisions: Decisions) -> Decision {
    let [decision] = decisions.as_slice() else {
        panic!("expected one decision, found {decisions:?}");
    };
    *decision
}
