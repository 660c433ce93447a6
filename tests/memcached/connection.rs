//! The operations of the connection that the two classes use, one by one.

use std::time::Duration;

use tollgate::store::{
    MemcachedConnection,
    driver::{CompareAndSwap, Increment, Loaded, Swap, Swapped, Totals},
};

use super::{connect, items, servers, stat};

const KEEP: Duration = Duration::from_secs(60);
const KEY: &[u8] = b"tollgate:2:{a}:api";

type Version = <MemcachedConnection as CompareAndSwap>::Version;

async fn put(
    connection: &MemcachedConnection,
    key: &[u8],
    expected: Option<&Version>,
    value: Option<&[u8]>,
) -> Swapped<Version> {
    let swap = Swap {
        expected,
        value,
        keep: KEEP,
    };
    connection.swap(key, swap).await.unwrap()
}

async fn load(connection: &MemcachedConnection, key: &[u8]) -> Option<(Version, Vec<u8>)> {
    connection.load(key).await.unwrap().value
}

async fn bytes(connection: &MemcachedConnection, key: &[u8]) -> Option<Vec<u8>> {
    load(connection, key).await.map(|(_, bytes)| bytes)
}

fn is_done(swapped: &Swapped<Version>) -> bool {
    matches!(swapped, Swapped::Done(Some(_)))
}

fn is_lost(swapped: &Swapped<Version>) -> bool {
    matches!(swapped, Swapped::Lost(None))
}

#[tokio::test]
async fn a_swap_takes_place_where_nobody_has_written_since() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    assert_eq!(bytes(&connection, KEY).await, None);
    // Bytes of any kind, the protocol's own as well.
    let value = b"HD\r\n\0\xffEN\r\n";
    let Swapped::Done(Some(first)) = put(&connection, KEY, None, Some(value)).await else {
        panic!("nothing was there");
    };
    assert_eq!(bytes(&connection, KEY).await.unwrap(), value);
    // A conflict is answered with the flags that success has: still it is none.
    assert!(is_lost(&put(&connection, KEY, None, Some(b"b")).await));
    let Swapped::Done(Some(second)) = put(&connection, KEY, Some(&first), Some(b"c")).await else {
        panic!("the version told was not the one kept");
    };
    assert!(is_lost(
        &put(&connection, KEY, Some(&first), Some(b"d")).await
    ));
    assert!(is_lost(&put(&connection, KEY, Some(&first), None).await));
    assert_eq!(bytes(&connection, KEY).await.unwrap(), b"c");
    assert!(matches!(
        put(&connection, KEY, Some(&second), None).await,
        Swapped::Done(None)
    ));
    assert_eq!(bytes(&connection, KEY).await, None);
    // A swap of a value that is gone fails, and says so.
    let gone = put(&connection, KEY, Some(&second), Some(b"e")).await;
    let nothing = |swapped: &Swapped<Version>| {
        matches!(swapped, Swapped::Lost(Some(Loaded { value: None, .. })))
    };
    assert!(nothing(&gone) && nothing(&put(&connection, KEY, Some(&second), None).await));
    // An empty value is one.
    assert!(is_done(&put(&connection, KEY, None, Some(b"")).await));
    assert_eq!(bytes(&connection, KEY).await.unwrap(), b"");
}

/// A server counts its writes from 1 again, so that a version could come back: it does not.
#[tokio::test]
async fn a_version_from_before_a_restart_is_none() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let Swapped::Done(Some(before)) = put(&connection, KEY, None, Some(b"before")).await else {
        panic!("nothing was there");
    };
    server.restart();
    let other = connect(&server).await;
    assert!(is_done(&put(&other, KEY, None, Some(b"after")).await));
    let answer = server.command("mg tollgate:2:{a}:api c");
    assert!(
        format!("{before:?}").contains("cas: 1 ") && answer == "HD c1",
        "{before:?}, {answer}"
    );
    let late = Swap {
        expected: Some(&before),
        value: Some(b"late"),
        keep: KEEP,
    };
    // The first call may hear that its connection is gone.
    match connection.swap(KEY, late.clone()).await {
        Ok(swapped) => assert!(is_lost(&swapped), "{swapped:?}"),
        Err(error) => assert!(error.is_unavailable(), "{error:?}"),
    }
    assert!(is_lost(&connection.swap(KEY, late).await.unwrap()));
    assert_eq!(bytes(&other, KEY).await.unwrap(), b"after");
}

#[tokio::test]
async fn keys_that_memcached_does_not_take_lie_under_a_digest() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let long = vec![b'k'; 1000];
    let keys: [&[u8]; 6] = [
        &long,
        b"a b",
        b"a\r\nflush_all\r\n",
        "Müller".as_bytes(),
        b"~",
        b"plain",
    ];
    for (n, key) in keys.iter().enumerate() {
        assert!(
            is_done(&put(&connection, key, None, Some(&[n as u8])).await),
            "{key:?}"
        );
        let total = connection
            .add(&[*key, b":count"].concat(), n as u64 + 1, KEEP, &[])
            .await;
        assert_eq!(total.unwrap().total, n as u64 + 1);
    }
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(bytes(&connection, key).await.unwrap(), [n as u8], "{key:?}");
    }
    let names = items(&server);
    assert_eq!(names.len(), 2 * keys.len());
    let digested = names
        .iter()
        .filter(|(name, _)| name.starts_with('~') || name.starts_with("%7E"));
    assert_eq!(digested.count(), 10, "{names:?}");
}

/// The seconds that the server says are left; −1 for ever.
fn left(server: &servers::Memcached) -> i64 {
    let answer = server.command("mg tollgate:2:{a}:api t");
    answer
        .strip_prefix("HD t")
        .unwrap_or_else(|| panic!("{answer}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn nothing_expires_before_its_time() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let day = Duration::from_secs(86_400);
    for keep in [
        Duration::from_nanos(1),
        Duration::from_millis(1500),
        30 * day - Duration::from_secs(3),
        30 * day - Duration::from_secs(1),
        30 * day,
        31 * day,
        365 * day,
    ] {
        let least = keep.as_secs() as i64;
        for counts in [false, true] {
            server.command("flush_all");
            if counts {
                connection.add(KEY, 1, keep, &[]).await.unwrap();
            } else {
                let value = Some(&b"a"[..]);
                let swap = Swap {
                    expected: None,
                    value,
                    keep,
                };
                assert!(is_done(&connection.swap(KEY, swap).await.unwrap()));
            }
            let left = left(&server);
            assert!((least..=least + 8).contains(&left), "{keep:?}: {left} s");
        }
    }
    // Later than 32 bits of seconds can say.
    server.command("flush_all");
    connection.add(KEY, 1, 36_500 * day, &[]).await.unwrap();
    assert_eq!(left(&server), -1);
}

#[tokio::test]
async fn it_expires_after_its_time() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    connection
        .add(KEY, 1, Duration::from_nanos(1), &[])
        .await
        .unwrap();
    let total = || match server.command("mg tollgate:2:{a}:api v").as_str() {
        "EN" => Ok(()),
        other => Err(other.to_owned()),
    };
    servers::wait_until("an expired counter", Duration::from_secs(20), total);
    assert_eq!(connection.add(KEY, 2, KEEP, &[]).await.unwrap().total, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_make_a_counter_neither_is_lost() {
    let server = servers::Memcached::start();
    let (first, second) = (connect(&server).await, connect(&server).await);
    for n in 0..200 {
        let key = format!("tollgate:2:{{{n}}}:api");
        let add = |connection: &MemcachedConnection| {
            let (connection, key) = (connection.clone(), key.clone());
            tokio::spawn(async move {
                connection
                    .add(key.as_bytes(), 1, KEEP, &[])
                    .await
                    .unwrap()
                    .total
            })
        };
        let (one, other) = (add(&first), add(&second));
        let mut totals = [one.await.unwrap(), other.await.unwrap()];
        totals.sort_unstable();
        assert_eq!(totals, [1, 2]);
    }
    assert!(items(&server).iter().all(|(_, expiry)| *expiry > 0));
}

#[tokio::test]
async fn counters_neither_wrap_nor_fall_below_zero() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let add = async |amount| connection.add(KEY, amount, KEEP, &[]).await.unwrap().total;
    let keys = [KEY.into()];
    connection.subtract(KEY, 5).await.unwrap();
    assert_eq!(
        server.command("mg tollgate:2:{a}:api v"),
        "EN",
        "made by a subtraction"
    );
    assert_eq!(add(100).await, 100);
    connection.subtract(KEY, 91).await.unwrap();
    // The server leaves spaces behind the shorter number.
    assert_eq!(server.command("mg tollgate:2:{a}:api v"), "VA 3\r\n9  ");
    assert_eq!(connection.read(&keys).await.unwrap(), [9]);
    connection.subtract(KEY, 10).await.unwrap();
    assert_eq!(connection.read(&keys).await.unwrap(), [0]);
    assert_eq!(add(u64::MAX).await, u64::MAX);
    for amount in [1, 1, u64::MAX, 1 << 40, 1 << 62, u64::MAX - 1] {
        assert_eq!(add(amount).await, u64::MAX, "{amount}");
        assert_eq!(connection.read(&keys).await.unwrap(), [u64::MAX]);
        assert!(left(&server) > 0);
    }
    // A value that somebody else left there.
    server.command("ms tollgate:2:{a}:api 20 T60\r\n18446744073709551615");
    assert_eq!(add(3).await, u64::MAX);
    assert_eq!(add(3).await, u64::MAX);
    connection.remove(&keys).await.unwrap();
    assert_eq!(add(3).await, 3);
}

#[tokio::test]
async fn what_lies_beside_is_read_in_the_same_round_trip() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let key = |n: u8| -> Box<[u8]> { [KEY, &[b'0' + n]].concat().into() };
    for n in 0..5 {
        connection
            .add(&key(n), 10 + u64::from(n), KEEP, &[])
            .await
            .unwrap();
    }
    let beside = [key(3), key(9), key(1)];
    let totals = connection.add(&key(0), 5, KEEP, &beside).await.unwrap();
    let expected = Totals {
        total: 15,
        beside: vec![13, 0, 11],
    };
    assert_eq!(totals, expected);
    assert_eq!(connection.read(&beside).await.unwrap(), [13, 0, 11]);
    assert_eq!(connection.read(&[]).await.unwrap(), [] as [u64; 0]);
    connection.remove(&[]).await.unwrap();
    connection.remove(&beside).await.unwrap();
    assert_eq!(connection.read(&beside).await.unwrap(), [0, 0, 0]);
    assert_eq!(items(&server).len(), 3);
}

#[tokio::test]
async fn what_is_no_number_is_replaced_and_counted() {
    let server = servers::Memcached::start();
    let connection = connect(&server).await;
    let keys = [KEY.into()];
    for (n, foreign) in ["abc", "", "-5", "99999999999999999999", "1.5"]
        .into_iter()
        .enumerate()
    {
        server.command(&format!(
            "ms tollgate:2:{{a}}:api {} T60\r\n{foreign}",
            foreign.len()
        ));
        let error = connection.read(&keys).await.unwrap_err();
        assert!(error.to_string().contains("not a number"), "{error:?}");
        connection.subtract(KEY, 1).await.unwrap();
        assert_eq!(
            connection.add(KEY, 2, KEEP, &[]).await.unwrap().total,
            2,
            "{foreign:?}"
        );
        assert_eq!(
            connection.add(KEY, 2, KEEP, &[]).await.unwrap().total,
            4,
            "{foreign:?}"
        );
        assert_eq!(connection.healed(), 2 * n as u64 + 1);
        // Also where it lies beside.
        server.command(&format!(
            "ms tollgate:2:{{a}}:api {} T60\r\n{foreign}",
            foreign.len()
        ));
        let totals = connection.add(b"other", 1, KEEP, &keys).await.unwrap();
        assert_eq!(totals.beside, [0], "{foreign:?}");
        assert_eq!(connection.healed(), 2 * n as u64 + 2);
    }
}

/// The server would remove what was there before, even where the swap is lost.
#[tokio::test]
async fn a_value_over_the_item_size_is_an_error_that_says_so() {
    let server = super::small_items().start();
    let connection = connect(&server).await;
    assert!(is_done(&put(&connection, KEY, None, Some(b"small")).await));
    let (version, _) = load(&connection, KEY).await.unwrap();
    for length in [524_000, 524_288, 1 << 20] {
        let value = vec![1; length];
        for expected in [None, Some(&version)] {
            let swap = Swap {
                expected,
                value: Some(&value),
                keep: KEEP,
            };
            let error = connection.swap(KEY, swap).await.unwrap_err();
            assert!(!error.is_timeout() && !error.is_unavailable() && !error.is_contended());
            assert!(error.to_string().contains("-I"), "{}", error.to_string());
        }
    }
    assert_eq!(bytes(&connection, KEY).await.unwrap(), b"small");
    // As large as it may be.
    let value = vec![2; 523_000];
    assert!(is_done(
        &put(&connection, KEY, Some(&version), Some(&value)).await
    ));
    assert_eq!(bytes(&connection, KEY).await.unwrap(), value);
    assert_eq!(
        stat(&server, "stats", "curr_connections"),
        2,
        "the connection was given up"
    );
}
