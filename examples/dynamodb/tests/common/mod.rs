//! Shared by the tests: servers, and calls to a store on them.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "items of a test module")]

use std::{sync::LazyLock, time::Duration};

pub use support::servers::Dynalite;
use tollgate::{
    Cost, Decision, Policy, TokenBucket,
    key::Key,
    store::{Store, StoreError, driver::Ask},
};
use tollgate_dynamodb::{Dynamo, Place};

/// Returns a store in a new table, with a long timeout, because the tests share two cores.
pub async fn dynamo(server: &Dynalite) -> Dynamo {
    let dynamo = connect(&server.url());
    dynamo.create_table().await.unwrap();
    dynamo
}

/// Returns a store in the table of [`dynamo`].
pub fn connect(url: &str) -> Dynamo {
    let dynamo = Dynamo::connect(Place::local(url), "limits");
    dynamo.response_timeout(Duration::from_secs(20))
}

/// Returns a rule that admits `burst` requests and then no more during a test.
pub fn at_once(burst: u64) -> TokenBucket {
    format!("token-bucket 1/10m burst={burst}").parse().unwrap()
}

pub fn policy() -> &'static Policy {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new("api"));
    &POLICY
}

pub async fn acquire<Rule, S>(store: &S, rule: &Rule, key: Key) -> Result<Decision, StoreError>
where
    S: Store<Rule, Error = StoreError>,
{
    let ask = Ask::new(policy(), rule, key, Cost::ONE);
    let decisions = store.acquire(&[ask]).await?;
    let [decision] = decisions.as_slice() else {
        panic!("expected one decision, found {decisions:?}");
    };
    Ok(*decision)
}

/// Makes `calls` acquisitions in a row and counts the admitted ones. Repeats contended ones.
pub async fn admitted<Rule, S>(store: &S, rule: &Rule, key: Key, calls: u64) -> u64
where
    S: Store<Rule, Error = StoreError>,
{
    let mut admitted = 0;
    for _ in 0..calls {
        let decision = loop {
            match acquire(store, rule, key).await {
                Err(error) if error.is_contended() => {}
                answer => break answer.unwrap(),
            }
        };
        admitted += u64::from(decision.is_admitted());
    }
    admitted
}
