//! The two calls of the trait.

use std::time::{Duration, Instant};

use tollgate::store::{
    StoreError,
    driver::{CompareAndSwap, Loaded, Swap, Swapped},
};
use tollgate_etcd::Etcd;

use crate::common::{client, etcd, servers, why};

const KEY: &[u8] = b"tollgate:2:{alice}:api";
const MINUTE: Duration = Duration::from_secs(60);

async fn swap(etcd: &Etcd, expected: Option<i64>, value: Option<&[u8]>) -> Swapped<i64> {
    try_swap(etcd, KEY, expected, value, MINUTE).await.unwrap()
}

async fn try_swap(
    etcd: &Etcd,
    key: &[u8],
    expected: Option<i64>,
    value: Option<&[u8]>,
    keep: Duration,
) -> Result<Swapped<i64>, StoreError> {
    let expected = expected.as_ref();
    etcd.swap(
        key,
        Swap {
            expected,
            value,
            keep,
        },
    )
    .await
}

/// Returns the version that a successful swap wrote.
#[track_caller]
fn done(swapped: Swapped<i64>) -> i64 {
    match swapped {
        Swapped::Done(Some(version)) => version,
        other => panic!("expected a new version, found {other:?}"),
    }
}

/// Returns the current value that a lost swap found.
#[track_caller]
fn lost(swapped: Swapped<i64>) -> Option<(i64, Vec<u8>)> {
    match swapped {
        Swapped::Lost(Some(loaded)) => loaded.value,
        other => panic!("expected a lost race and what is there, found {other:?}"),
    }
}

async fn read(etcd: &Etcd) -> Option<(i64, Vec<u8>)> {
    let Loaded { value, now } = etcd.load(KEY).await.unwrap();
    assert_eq!(now, None);
    value
}

#[tokio::test]
async fn a_swap_succeeds_only_if_the_version_is_unchanged() {
    let server = servers::Etcd::start();
    let etcd = etcd(&server).await;
    assert_eq!(read(&etcd).await, None);
    let first = done(swap(&etcd, None, Some(b"1")).await);
    assert_eq!(read(&etcd).await, Some((first, b"1".to_vec())));
    // Wrong expectations: no value, or another version.
    for expected in [None, Some(first - 1), Some(first + 1)] {
        for value in [Some(&b"2"[..]), None] {
            let instead = lost(swap(&etcd, expected, value).await);
            assert_eq!(instead, Some((first, b"1".to_vec())));
        }
    }
    // The same bytes are a new version.
    let second = done(swap(&etcd, Some(first), Some(b"1")).await);
    assert!(second > first);
    assert_eq!(
        lost(swap(&etcd, Some(first), Some(b"3")).await),
        Some((second, b"1".to_vec()))
    );
    // Removed: expecting the removed version fails.
    let removed = swap(&etcd, Some(second), None).await;
    assert!(matches!(removed, Swapped::Done(_)), "{removed:?}");
    assert_eq!(read(&etcd).await, None);
    assert_eq!(lost(swap(&etcd, Some(second), Some(b"4")).await), None);
    // A key that was created again has a new version.
    let third = done(swap(&etcd, None, Some(b"1")).await);
    assert!(third > second);
    assert_eq!(
        lost(swap(&etcd, Some(first), None).await),
        Some((third, b"1".to_vec()))
    );
}

#[tokio::test]
async fn exactly_one_of_several_racing_swaps_wins() {
    let server = servers::Etcd::start();
    let mut expected = None;
    let (one, other) = (etcd(&server).await, etcd(&server).await);
    for round in 0..50_u8 {
        let values = [[round, 1], [round, 2]];
        let (one, other) = tokio::join!(
            swap(&one, expected, Some(&values[0])),
            swap(&other, expected, Some(&values[1]))
        );
        let (version, by, instead) = match (one, other) {
            (Swapped::Done(Some(version)), other) => (version, 1, lost(other)),
            (one, other) => (done(other), 2, lost(one)),
        };
        assert_eq!(instead, Some((version, vec![round, by])));
        expected = Some(version);
    }
}

#[tokio::test]
async fn keys_are_any_bytes() {
    let server = servers::Etcd::start();
    let etcd = etcd(&server).await;
    let keys = [
        vec![0],
        vec![0xff; 3],
        vec![0, 0xff, b'\n'],
        vec![b'k'; 4000],
    ];
    for (n, key) in keys.iter().enumerate() {
        let value = [n as u8];
        done(
            try_swap(&etcd, key, None, Some(&value), MINUTE)
                .await
                .unwrap(),
        );
    }
    for (n, key) in keys.iter().enumerate() {
        let value = etcd.load(key).await.unwrap().value;
        assert_eq!(value.unwrap().1, [n as u8]);
    }
}

#[tokio::test]
async fn a_value_above_the_request_size_is_a_specific_error() {
    let server = servers::Etcd::start();
    let etcd = etcd(&server).await;
    let value = vec![7; 4 << 20];
    // etcd accepts 1.5 MiB, and its gRPC server half a MiB more.
    for (size, text) in [
        (1_600_000, "request is too large"),
        (4 << 20, "larger than max"),
    ] {
        let error = try_swap(&etcd, KEY, None, Some(&value[..size]), MINUTE)
            .await
            .unwrap_err();
        assert!(error.is_unsupported());
        assert!(why(&error).contains(text), "{}", why(&error));
    }
    assert_eq!(read(&etcd).await, None);
    let version = done(swap(&etcd, None, Some(&value[..1_500_000])).await);
    assert_eq!(
        read(&etcd).await,
        Some((version, value[..1_500_000].to_vec()))
    );
}

#[tokio::test]
async fn a_key_lasts_as_long_as_requested_and_expires_soon_after() {
    let server = servers::Etcd::start();
    let etcd = etcd(&server).await;
    let keep = Duration::from_millis(1500);
    // Under one lease, with a pause in between.
    let start = Instant::now();
    done(
        try_swap(&etcd, b"first", None, Some(b"1"), keep)
            .await
            .unwrap(),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = Instant::now();
    done(
        try_swap(&etcd, b"second", None, Some(b"1"), keep)
            .await
            .unwrap(),
    );
    let mut client = client(&server).await;
    assert_eq!(client.leases().await.unwrap().leases().len(), 1);
    loop {
        let now = Instant::now();
        let first = etcd.load(b"first").await.unwrap().value;
        let read = etcd.load(b"second").await.unwrap().value;
        assert!(first.is_some() || now > start + keep);
        if read.is_none() {
            assert!(now > second + keep);
            break;
        }
        assert!(
            now < second + 4 * keep + Duration::from_secs(10),
            "still there"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Neither keys nor leases are left.
    assert!(client.leases().await.unwrap().leases().is_empty());
}

#[tokio::test]
async fn a_revoked_lease_costs_one_attempt() {
    let server = servers::Etcd::start();
    let etcd = etcd(&server).await;
    let mut client = client(&server).await;
    let version = done(swap(&etcd, None, Some(b"1")).await);
    let lease = client.leases().await.unwrap().leases()[0].id();
    client.lease_revoke(lease).await.unwrap();
    assert_eq!(read(&etcd).await, None);
    for expected in [Some(version), None] {
        let again = try_swap(&etcd, KEY, expected, Some(b"2"), MINUTE).await;
        // A swap that expects the removed value loses the race for that reason alone.
        match expected {
            Some(_) => assert_eq!(lost(again.unwrap()), None),
            None => assert_eq!(again.unwrap(), Swapped::Lost(None)),
        }
    }
    done(swap(&etcd, None, Some(b"3")).await);
    assert_eq!(client.leases().await.unwrap().leases().len(), 1);
}
