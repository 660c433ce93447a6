//! The contents of the server: names, expiries, and what others left there.

use std::time::Duration;

use tollgate::{
    AnyRule, Cost, FixedWindow, SlidingLog, Timestamp, TokenBucket,
    algorithm::{Algorithm, Codec},
    key::Key,
    store::{
        Memcached, MemcachedCounters, Store,
        driver::{Ask, CompareAndSwap, Swap, Swapped},
    },
};

use super::{
    LongLog, acquire, admitted, at_once, connect, counters, items, key, look, policy, servers,
    swaps, url,
    value::{states, value_of},
    window,
};

#[tokio::test]
async fn names_hold_no_client_unless_it_is_labelled() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let mail = Key::from("alice@example.org");
    acquire(&swaps(&connection), &at_once(5), mail)
        .await
        .unwrap();
    acquire(&counters(&connection), &window(5), mail)
        .await
        .unwrap();
    let names = items(&server);
    assert_eq!(names.len(), 2, "{names:?}");
    for (name, _) in names {
        let digest = name
            .strip_prefix("tollgate:2:{")
            .unwrap()
            .split('}')
            .next()
            .unwrap();
        assert!(
            digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{name}"
        );
    }
    server.command("flush_all");
    let shop = Memcached::<TokenBucket>::builder_on(connection.clone())
        .prefix("shop")
        .build();
    acquire(&shop, &at_once(5), Key::from("alice").labelled())
        .await
        .unwrap();
    assert!(server.command("lru_crawler metadump all").contains("alice"));
    // Another prefix is another store.
    let remaining = look(
        &swaps(&connection),
        &at_once(5),
        Key::from("alice").labelled(),
    )
    .await;
    assert_eq!(remaining.unwrap().remaining(), Some(5));
}

/// Labels and prefixes that no name may hold: each client still has a limit of its own.
#[tokio::test]
async fn labels_of_any_kind_are_clients_of_their_own() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let prefix = "a prefix with spaces, longer than a name may be ".repeat(10);
    let swaps = Memcached::<TokenBucket>::builder_on(connection.clone())
        .prefix(&prefix)
        .build();
    let counters = MemcachedCounters::<FixedWindow>::builder_on(connection)
        .prefix(&prefix)
        .build();
    for label in ["a b", "a\r\nflush_all\r\n", "Müller", "\0", "a"] {
        let client = Key::from(label).labelled();
        assert_eq!(
            admitted(&swaps, &at_once(2), client, 3).await,
            2,
            "{label:?}"
        );
        assert_eq!(
            admitted(&counters, &window(2), client, 3).await,
            2,
            "{label:?}"
        );
    }
    let names = items(&server);
    assert_eq!(names.len(), 10, "{names:?}");
}

#[tokio::test]
async fn every_key_expires_when_nothing_is_left_to_remember() {
    const RULES: &[&str] = &[
        "token-bucket 100/1m burst=5",
        "token-bucket 5/1s initial=0 keep=2s",
        "leaky-bucket 10/s queue=5",
        "fixed-window 10/1s",
        "sliding-window 10/1s slices=4",
        "sliding-log 10/1s",
        "token-bucket 10/1s & fixed-window 20/3s",
    ];
    let server = servers::Memcached::start();
    let store = Memcached::<AnyRule>::connect(url(server.address()))
        .await
        .unwrap();
    for (n, rule) in RULES.iter().enumerate() {
        let rule = rule.parse().unwrap();
        for cost in [1, 2, 50] {
            let ask = Ask::new(
                policy(),
                &rule,
                Key::from(n as u64),
                Cost::new(cost).unwrap(),
            );
            store.acquire(&[ask]).await.unwrap();
        }
    }
    let counters = MemcachedCounters::<tollgate::SlidingWindow>::connect(url(server.address()))
        .await
        .unwrap();
    let rule = "sliding-window 10/1m slices=4".parse().unwrap();
    assert!(
        acquire(&counters, &rule, key())
            .await
            .unwrap()
            .is_admitted()
    );
    let now: i64 = super::stat(&server, "stats", "time") as i64;
    let items = items(&server);
    assert!(items.len() > RULES.len(), "{items:?}");
    for (name, expiry) in items {
        assert!((now..=now + 90).contains(&expiry), "{name}: {expiry}");
    }
}

#[tokio::test]
async fn foreign_bytes_count_as_none_and_a_newer_state_is_an_error() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let (store, rule) = (swaps(&connection), at_once(3));
    acquire(&store, &rule, key()).await.unwrap();
    let [(name, _)] = <[_; 1]>::try_from(items(&server)).unwrap();
    let stored = store.data().clone();
    let state = stored.load(name.as_bytes()).await.unwrap();
    let (_, state) = state.value.unwrap();
    let put = async |bytes: &[u8]| {
        let there = stored.load(name.as_bytes()).await.unwrap();
        let version = there.value.map(|(version, _)| version);
        let swap = Swap {
            expected: version.as_ref(),
            value: Some(bytes),
            keep: Duration::from_secs(60),
        };
        let swapped = stored.swap(name.as_bytes(), swap).await.unwrap();
        assert!(matches!(swapped, Swapped::Done(_)));
    };
    let mut healed = store.stats().healed;
    let truncated = (0..state.len()).map(|length| state[..length].to_vec());
    let foreign = [b"hello".to_vec(), vec![0xff; 40], b"17".to_vec()];
    for bytes in truncated.chain(foreign) {
        put(&bytes).await;
        let seen = look(&store, &rule, key()).await;
        if let Err(error) = &seen {
            // Bytes that say they are of a later version.
            assert!(
                error.to_string().contains("version"),
                "{bytes:?}: {error:?}"
            );
            continue;
        }
        assert_eq!(admitted(&store, &rule, key(), 5).await, 3, "{bytes:?}");
        assert!(store.stats().healed > healed, "{bytes:?}");
        healed = store.stats().healed;
    }
    // The next version of the same algorithm's state: nobody replaces what he cannot read.
    let mut newer = state.clone();
    newer[0] += 2;
    put(&newer).await;
    let error = acquire(&store, &rule, key()).await.unwrap_err();
    assert!(error.to_string().contains("newer"), "{}", error.to_string());
    assert!(store.stats().newer > 0);
    store.reset(policy(), &key()).await.unwrap();
    assert_eq!(admitted(&store, &rule, key(), 5).await, 3);
}

/// A log of instants that grows beyond an item: the call is an error, and the limit stays.
#[tokio::test]
async fn a_state_over_the_item_size_opens_no_gate() {
    const LIMIT: u64 = 1_000_000;
    let server = super::small_items().start();
    let store = Memcached::<LongLog>::new(connect(&server).await);
    let rule = LongLog(SlidingLog::per_day(LIMIT));
    let first = acquire(&store, &rule, key()).await.unwrap();
    let [(name, _)] = <[_; 1]>::try_from(items(&server)).unwrap();
    // As many instants as almost fill an item.
    let (mut state, mut bytes, mut count) = (None, Vec::new(), 0);
    while bytes.len() < 523_000 {
        let few = bytes.len() > 500_000;
        for _ in 0..if few { 50 } else { 2000 } {
            count += 1;
            let at = first.at().as_nanos() - 3_600_000_000_000 + count * 100_000;
            rule.step(&mut state, Timestamp::from_nanos(at), Cost::ONE);
        }
        bytes = Codec::to_bytes(state.as_ref().unwrap());
    }
    let loaded = store.data().load(name.as_bytes()).await.unwrap();
    let (version, value) = loaded.value.unwrap();
    let mut states = states(&value);
    states[0].bytes = bytes;
    let swap = Swap {
        expected: Some(&version),
        value: Some(&value_of(&states)),
        keep: Duration::from_secs(60),
    };
    let put = store.data().swap(name.as_bytes(), swap).await.unwrap();
    assert!(matches!(put, Swapped::Done(Some(_))));

    let mut remaining = LIMIT - count;
    let error = loop {
        match acquire(&store, &rule, key()).await {
            Ok(decision) => {
                remaining -= 1;
                assert_eq!(decision.remaining(), Some(remaining));
            }
            Err(error) => break error,
        }
        assert!(remaining > LIMIT / 2, "all fit into an item");
    };
    assert!(error.to_string().contains("-I"), "{}", error.to_string());
    let left = look(&store, &rule, key()).await.unwrap().remaining();
    assert_eq!(left, Some(remaining));
    assert!(acquire(&store, &rule, key()).await.is_err());
}
