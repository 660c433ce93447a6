//! What lies under a key, and what should not.

use etcd_client::{GetOptions, PutOptions};
use support::value::{states, value_of};
use tollgate::{
    AnyRule, Cost, Timestamp,
    algorithm::{Algorithm, Codec},
    key::Key,
    store::{Ask, Store},
    time::{Clock, SystemClock},
};

use crate::common::{acquire, admitted, at_once, client, keys, look, node, policy, servers, why};

/// The one key that there is.
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
        // It counts as nothing; a look does not touch it.
        assert_eq!(look(&store, &rule, key).await.unwrap().remaining(), Some(3));
        assert_eq!(admitted(&store, &rule, key, 5).await, 3);
        let healed = store.stats().healed;
        assert!(healed > n as u64, "{healed}");
        // What the store writes has a lease also where nothing had one.
        assert_eq!(keys(&server).await, 1);
    }
    // Somebody else's lease lets go of the key.
    let lease = client.lease_grant(600, None).await.unwrap().id();
    let theirs = PutOptions::new().with_lease(lease);
    client.put(name, "hello", Some(theirs)).await.unwrap();
    assert_eq!(admitted(&store, &rule, key, 5).await, 3);
    client.lease_revoke(lease).await.unwrap();
    assert_eq!(look(&store, &rule, key).await.unwrap().remaining(), Some(0));
}

#[tokio::test]
async fn what_a_newer_program_wrote_is_left_to_it() {
    let server = servers::Etcd::start();
    let (store, rule, key) = (node(&server).await, at_once(3), Key::from(7_u64));
    acquire(&store, &rule, key).await.unwrap();
    let (mut client, name) = (client(&server).await, name(&server).await);
    let ours = client.get(name.clone(), None).await.unwrap();
    let mut states = states(ours.kvs()[0].value());
    // The lower bits of the first byte are the version; of a token bucket there are two.
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

/// 1.5 MiB, unless an etcd is told otherwise.
const REQUEST: usize = 1_572_864;

/// A log of that many bytes, or a few more, that ends now.
fn log(rule: &AnyRule, bytes: usize) -> Vec<u8> {
    // Ten milliseconds take four bytes, and the units one.
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
async fn a_state_beyond_the_request_size_is_an_error_that_says_so() {
    let server = servers::Etcd::start();
    let store = node::<AnyRule>(&server).await;
    // It remembers each call of a day.
    let rule: AnyRule = "sliding-log 1000000/1d".parse().unwrap();
    let ask = [Ask::new(policy(), &rule, Key::from(7_u64), Cost::ONE)];
    assert!(store.acquire(&ask).await.unwrap().is_admitted());
    // As long as can be: the key is written along with it, and in a swap it stands three times.
    let (mut client, name) = (client(&server).await, name(&server).await);
    let ours = client.get(name.clone(), None).await.unwrap();
    let mut states = states(ours.kvs()[0].value());
    states[0].bytes = log(&rule, REQUEST - 220);
    let long = value_of(&states);
    client.put(name.clone(), long.clone(), None).await.unwrap();
    let left = store.look(&ask).await.unwrap().as_slice()[0].remaining();
    assert!(left.is_some_and(|left| left < 700_000), "{left:?}");
    let error = store.acquire(&ask).await.unwrap_err();
    assert!(error.is_unsupported());
    assert!(
        why(&error).contains("request is too large"),
        "{}",
        why(&error)
    );
    // What is there stays.
    let there = client.get(name, None).await.unwrap();
    assert_eq!(there.kvs()[0].value(), long);
}

#[tokio::test]
async fn a_reset_leaves_nothing() {
    let server = servers::Etcd::start();
    let (store, rule, key) = (node(&server).await, at_once(3), Key::from(7_u64));
    assert_eq!(admitted(&store, &rule, key, 5).await, 3);
    store.reset(policy(), &key).await.unwrap();
    assert_eq!(keys(&server).await, 0);
    assert_eq!(admitted(&store, &rule, key, 5).await, 3);
}
