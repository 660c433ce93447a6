//! Limits that are enforced for a share of their keys.

use std::collections::BTreeSet;

use http::StatusCode;
use tollgate::{RateLimitLayer, key::Key, time::ManualClock};

use super::{ByClient, Call, Calls, Client, call, client, local, rule, service};

const KEYS: u64 = 4_000;

/// Returns the clients out of so many for which a layer of its own enforces its limit.
fn enforced(percent: u8, keys: u64) -> BTreeSet<u64> {
    let layer = RateLimitLayer::new(rule("token-bucket 1/1d"))
        .key(ByClient)
        .store(local(&ManualClock::default()))
        .enforce_for(percent);
    let mut service: Calls = service!(layer.clone());
    let refuses = |of: &u64| {
        assert_eq!(call(&mut service, client(*of)).status(), StatusCode::OK);
        call(&mut service, client(*of)).status() == StatusCode::TOO_MANY_REQUESTS
    };
    let enforced: BTreeSet<u64> = (0..keys).filter(refuses).collect();
    let report = layer.dry_run_report("default").unwrap();
    let dry = keys - enforced.len() as u64;
    // The report contains the others alone.
    assert_eq!((report.admitted, report.refused), (dry, dry));
    enforced
}

#[test]
fn a_share_has_its_part_of_the_keys_and_includes_every_smaller_share() {
    let mut smaller = BTreeSet::new();
    for percent in [0, 1, 10, 37, 50, 99, 100] {
        let keys = enforced(percent, KEYS);
        assert!(keys.is_superset(&smaller), "{percent} %");
        // Another layer selects the same keys.
        let few: BTreeSet<_> = keys.range(..KEYS / 8).copied().collect();
        assert_eq!(few, enforced(percent, KEYS / 8));
        // n·p, within five standard deviations: (|k − n·p|)² ≤ 25·n·p·(1 − p), times 100².
        let (found, percent) = (keys.len() as u64, u64::from(percent));
        let off = (100 * found).abs_diff(KEYS * percent);
        assert!(
            off * off <= 25 * KEYS * percent * (100 - percent),
            "{found} of {percent} %"
        );
        smaller = keys;
    }
}

/// The keys are those of every process and version: a constant of the program, not of the run.
#[test]
fn the_keys_of_a_share_are_equal_in_every_process() {
    let first: Vec<u64> = enforced(10, KEYS / 8).into_iter().take(8).collect();
    let by_digest = (0..).filter(|of: &u64| {
        let digest = Key::from(*of).digest();
        // A tenth of all digests are below this one.
        digest < u64::MAX / 10
    });
    assert_eq!(first, by_digest.take(8).collect::<Vec<_>>());
    assert_eq!(first, FIRST);
}

/// The first clients of a tenth.
const FIRST: [u64; 8] = [1, 24, 33, 51, 53, 57, 73, 86];

#[test]
fn only_the_whole_share_refuses_requests_without_a_key() {
    for (percent, status) in [(0, 200), (99, 200), (100, 400)] {
        let layer = RateLimitLayer::new(rule("token-bucket 1/1d"))
            .key(ByClient)
            .enforce_for(percent);
        let mut service: Calls = service!(layer.clone());
        let request = http::Request::new(Call {
            client: Client::Unknown,
            units: 1,
        });
        assert_eq!(call(&mut service, request).status(), status, "{percent} %");
        let missing = layer.dry_run_report("default").unwrap().missing_key;
        assert_eq!(missing, u64::from(percent < 100));
    }
}
