//! The names of keys in remote stores.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{Store, driver::Ask},
    time::ManualClock,
};

use crate::cas::memory::{Memory, Ways, driver};

/// Returns the digest that a key of longer input has as its content.
fn digest(long: &Key) -> Vec<u8> {
    let shown = format!("{:?}", long.labelled());
    let (_, hex) = shown.trim_end_matches(')').rsplit_once(' ').unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Returns keys of every kind with this content.
fn of_every_kind(content: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(content);
    let mut keys = vec![
        Key::GLOBAL,
        Key::bytes(content),
        Key::from(&*text),
        Key::shared(&text),
        Key::join([Key::bytes(content)]),
        Key::join([Key::from(&*text), Key::bytes(content)]),
        Key::join([Key::join([Key::bytes(content)])]),
    ];
    if let Ok(number) = content.try_into() {
        keys.push(u64::from_le_bytes(number).into());
    }
    if let Ok(octets) = <[u8; 4]>::try_from(content) {
        keys.push(std::net::Ipv4Addr::from(octets).into());
    }
    if let Ok(octets) = <[u8; 16]>::try_from(content) {
        keys.push(std::net::Ipv6Addr::from(octets).into());
    }
    keys
}

/// Returns keys that could be mistaken for each other: of a content, and of the digests of longer
/// ones, as a client could send them.
fn alike(content: &[u8]) -> Vec<Key> {
    let mut keys = of_every_kind(content);
    for n in 0..keys.len() {
        let shown = shown_content(&keys[n]);
        keys.extend(shown.iter().flat_map(|content| of_every_kind(content)));
    }
    let labelled: Vec<_> = keys.iter().map(|key| key.labelled()).collect();
    [keys, labelled].concat()
}

/// Returns the content that `Debug` shows, as it is and as the bytes of its digits.
fn shown_content(key: &Key) -> Vec<Vec<u8>> {
    let shown = format!("{:?}", key.labelled());
    let content = shown.trim_end_matches(')').rsplit(' ').next().unwrap();
    let is_digest = content.len() == 32 && content.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes = is_digest.then(|| digest(key));
    [Some(content.as_bytes().to_vec()), bytes]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the name under which a store keeps a key.
async fn name(key: Key) -> Vec<u8> {
    let memory = Memory::new(ManualClock::default(), Ways::default());
    let node = memory.node(1);
    let (store, policy) = (driver::<TokenBucket>(memory), Policy::new("api"));
    let rule = TokenBucket::per_hour(5);
    let ask = Ask::new(&policy, &rule, key, Cost::ONE);
    assert!(store.acquire(&[ask]).await.unwrap().is_admitted());
    let [name] = node.keys().try_into().unwrap();
    name
}

/// Keys that are not equal never share a name.
#[tokio::main(flavor = "current_thread")]
async fn check(keys: Vec<Key>) {
    let mut named: HashMap<_, Key> = HashMap::new();
    for key in keys {
        let name = name(key).await;
        if let Some(other) = named.insert(name.clone(), key) {
            let (name, shown) = (String::from_utf8_lossy(&name), other.labelled());
            assert_eq!(other, key, "{name} of {shown:?} and {:?}", key.labelled());
        }
    }
}

#[test]
fn the_digest_of_a_long_key_is_not_the_name_of_a_short_one() {
    let long = Key::bytes(&[b'a'; 41]);
    let short = Key::bytes(&digest(&long));
    assert_ne!(long, short);
    check(vec![long, short, long.labelled(), short.labelled()]);
}

proptest! {
    #[test]
    fn keys_that_are_not_equal_have_different_names(
        content in prop::sample::select(&[0_usize, 1, 4, 8, 15, 16, 17, 36, 38, 39, 40, 41, 42, 100][..])
            .prop_flat_map(|len| prop_oneof![
                prop::collection::vec(any::<u8>(), len),
                "[a-z=~{}:\\\\]{100}".prop_map(move |text| text.into_bytes()[..len].to_vec()),
            ]),
    ) {
        check(alike(&content));
    }
}
