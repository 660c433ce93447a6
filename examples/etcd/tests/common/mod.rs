//! Shared by the tests: servers, and calls to a store on them.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "items of a test module")]

use std::{sync::LazyLock, time::Duration};

use etcd_client::{Client, ConnectOptions, GetOptions};
pub use support::servers;
use tollgate::{
    Cost, Decision, Policy, TokenBucket,
    algorithm::{Algorithm, Codec},
    key::Key,
    store::{
        Store, StoreError,
        driver::{Ask, CasStore, CasStoreBuilder, Decisions},
    },
};
use tollgate_etcd::Etcd;

/// Returns a store with a long timeout, because a busy disk can delay etcd for a while.
pub async fn etcd(server: &servers::Etcd) -> Etcd {
    let etcd = connect(&[server.url()]).await;
    etcd.response_timeout(Duration::from_secs(10))
}

pub async fn connect(members: &[String]) -> Etcd {
    let connected = Etcd::connect(members, ConnectOptions::new()).await;
    connected.unwrap()
}

/// Returns a node with a long timeout. Nodes share only the server.
pub async fn node<Rule: Algorithm<State: Codec>>(server: &servers::Etcd) -> CasStore<Etcd, Rule> {
    CasStoreBuilder::new(etcd(server).await)
        .deadline(Duration::from_secs(30))
        .build()
}

/// Returns a client that reads the content of the server.
pub async fn client(server: &servers::Etcd) -> Client {
    Client::connect([server.url()], None).await.unwrap()
}

/// Counts the keys, and asserts that each was written under a lease.
pub async fn keys(server: &servers::Etcd) -> usize {
    let all = GetOptions::new().with_all_keys();
    let keys = client(server).await.get("", Some(all)).await.unwrap();
    for key in keys.kvs() {
        assert_ne!(key.lease(), 0, "{key:?}");
    }
    keys.kvs().len()
}

/// Returns the server's message.
pub fn why(error: &StoreError) -> String {
    error.to_string()
}

/// Returns a rule that admits `burst` requests and then no more during a test.
pub fn at_once(burst: u64) -> TokenBucket {
    format!("token-bucket 1/10m burst={burst}").parse().unwrap()
}

pub fn policy() -> &'static Policy {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new("api"));
    &POLICY
}

pub async fn acquire<S: Store<TokenBucket>>(
    store: &S,
    rule: &TokenBucket,
    key: Key,
) -> Result<Decision, S::Error> {
    let ask = Ask::new(policy(), rule, key, Cost::ONE);
    store.acquire(&[ask]).await.map(only)
}

pub async fn look<S: Store<TokenBucket>>(
    store: &S,
    rule: &TokenBucket,
    key: Key,
) -> Result<Decision, S::Error> {
    let ask = Ask::new(policy(), rule, key, Cost::ONE);
    store.look(&[ask]).await.map(only)
}

fn only(decisions: Decisions) -> Decision {
    let [decision] = decisions.as_slice() else {
        panic!("expected one decision, found {decisions:?}");
    };
    *decision
}

/// Makes `calls` acquisitions in a row and counts the admitted ones. Repeats contended ones.
pub async fn admitted<S>(store: &S, rule: &TokenBucket, key: Key, calls: u64) -> u64
where
    S: Store<TokenBucket, Error = StoreError>,
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
