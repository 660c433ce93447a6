//! Valid and invalid values under a key.

use etcd_client::{GetOptions, PutOptions};
use support::value::{states, value_of};
use tollgate::{
    AnyRule, Cost, Timestamp,
    algorithm::{Algorithm, Codec},
    key::Key,
    store::{Store, driver::Ask},
    time::{Clock, SystemClock},
};

use crate::common::{acquire, admitted, at_once, client, keys, look, node, policy, servers, why};

/// Returns the name of the only key.
async fn name(server: &servers::Etcd) -> String {
    let all = GetOptions::new().with_all_keys();
    let found = client(server).await.get("", Some(all)).await.unwrap();
    let [only] = found.kvs() else {
        panic!("expected one key, found {found:?}");
    };
    let name = only.key_str().unwrap();
    assert!(
        name.starts_with("tollgate:2:{") && name.ends_with("}:api"),
        "{name}"
    );
    name.to_owned()
}

#[tokio::test]
async fn foreign_bytes_are_healed_and_counted() {
    let server = servers::Etcd::start();
    let (store, rule, key) = (node(&server).await, at_once(3), Key::from(7_u64));
    acquire(&store, &rule, key).await.unwrap();
    let mut client = client(&server).await;
    let name = &name(&server).await[..];
    let ours = client.get(name, None).await.unwrap();
    let ours = ours.kvs()[0].value();
    let truncated = &ours[..ours.len() - 1];
    for (n, foreign) in [truncated, b"hello", b"", &[0xff; 100]].iter().enumerate() {
        client.put(name, *foreign, None).await.unwrap();
        // It counts as no state. A look does not change it.
        assert_eq!(look(&store, &rule, key).await.unwrap().remaining(), Some(3));
        assert_eq!(admitted(&store, &rule, key, 5).await, 3);
        let healed = store.stats().healed;
        assert!(healed > n as u64, "{healed}");
        // The store writes under a lease also if the foreign value had none.
        assert_eq!(keys(&server).await, 1);
    }
    // The write detaches the key from a foreign lease.
    let lease = client.lease_grant(600, None).await.unwrap().id();
    let theirs = PutOptions::new().with_lease(lease);
    client.put(name, "hello", Some(theirs)).await.unwrap();
    assert_eq!(admitted(&store, &rule, key, 5).await, 3);
    client.lease_revoke(lease).await.unwrap();
    assert_eq!(look(&store, &rule, key).await.unwrap().remaining(), Some(0));
}

#[tokio::test]
async fn a_value_of_a_newer_version_is_not_replaced() {
    let server = servers::Etcd::start();
    let (store, rule, key) = (node(&server).await, at_once(3), Key::from(7_u64));
    acquire(&store, &rule, key).await.unwrap();
    let (mut client, name) = (client(&server).await, name(&server).await);
    let ours = client.get(name.clone(), None).await.unwrap();
    let mut states = states(ours.kvs()[0].value());
    // The lower bits of the first byte are the version. A token bucket has two versions.
    states[0].bytes[0] += 2;
    let newer = value_of(&states);
    client.put(name.clone(), newer.clone(), None).await.unwrap();
    let error = acquire(&store, &rule, key).await.unwrap_err();
    assert!(why(&error).contains("newer"), "{}", why(&error));
    let there = client.get(name, None).await.unwrap();
    assert_eq!(
        (there.kvs()[0].value(), store.stats().newer),
        (&newer[..], 1)
    );
    store.reset(policy(), &key).await.unwrap();
    assert_eq!(admitted(&store, &rule, key, 5).await, 3);
}

/// The request limit of a server that allows less than a state may have. The default is 1.5 MiB.
const REQUEST: usize = 16 << 10;

/// Returns a log of that many bytes, or a few more, that ends now.
fn log(rule: &AnyRule, bytes: usize) -> Vec<u8> {
    // An interval of ten milliseconds takes four bytes, and its units take one.
    const STEP: u64 = 10_000_000;
    let now = SystemClock::default().now().as_nanos();
    let mut at = now - STEP * (bytes as u64 / 5);
    let mut state = None;
    let mut written = 0;
    while written < bytes {
        for _ in 0..(bytes - written).div_ceil(5) {
            assert!(
                rule.step(&mut state, Timestamp::from_nanos(at), Cost::ONE)
                    .decision()
                    .is_admitted()
            );
            at += STEP;
        }
        written = state.to_bytes().len();
    }
    state.to_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_above_the_request_size_is_a_specific_error() {
    let server = servers::Etcd::start_with(&[&format!("--max-request-bytes={REQUEST}")]);
    let store = node::<AnyRule>(&server).await;
    // This rule remembers each call of a day.
    let rule: AnyRule = "sliding-log 5000/1d".parse().unwrap();
    let ask = [Ask::new(policy(), &rule, Key::from(7_u64), Cost::ONE)];
    assert!(store.acquire(&ask).await.unwrap().is_admitted());
    // The largest log that fits. The request also contains the key, three times in a swap.
    let (mut client, name) = (client(&server).await, name(&server).await);
    let ours = client.get(name.clone(), None).await.unwrap();
    let mut states = states(ours.kvs()[0].value());
    states[0].bytes = log(&rule, REQUEST - 220);
    let long = value_of(&states);
    client.put(name.clone(), long.clone(), None).await.unwrap();
    let left = store.look(&ask).await.unwrap().as_slice()[0].remaining();
    assert!(left.is_some_and(|left| left < 2_500), "{left:?}");
    let error = store.acquire(&ask).await.unwrap_err();
    assert!(error.is_unsupported());
    assert!(
        why(&error).contains("request is too large"),
        "{}",
        why(&error)
    );
    // The stored value is unchanged.
    let there = client.get(name, None).await.unwrap();
    assert_eq!(there.kvs()[0].value(), long);
}

#[tokio::test]
async fn a_reset_removes_the_key() {
    let server = servers::Etcd::start();
    let (store, rule, key) = (node(&server).await, at_once(3), Key::from(7_u64));
    assert_eq!(admitted(&store, &rule, key, 5).await, 3);
    store.reset(policy(), &key).await.unwrap();
    assert_eq!(keys(&server).await, 0);
    assert_eq!(admitted(&store, &rule, key, 5).await, 3);
}
