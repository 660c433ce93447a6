//! A planned end: requests finish, and the store gets what only the server knew.

use super::{SOON, Server};

const CLOSED: &str = "--on-store-error=closed";
/// Long enough that no period ends in a test, and no hold.
const SYNC: &[&str] = &["--sync=1m", "--overshoot=100%", "--nodes=2", CLOSED];
const LEASE: &[&str] = &["--lease=30m", CLOSED];

fn start(store: &str, rule: &str, more: &[&str]) -> Server {
    Server::start(&[&["--rule", rule, "--store", store], more].concat())
}

/// Ends a server by a signal. Returns its errors.
fn end(server: Server, signal: &str) -> String {
    server.signal(signal);
    let (status, output, errors) = server.program.end(SOON);
    assert!(status.success(), "{status}: {errors}");
    assert!(output.ends_with("stopped\n"), "{output}");
    errors
}

/// Admits 20 of 100 units, and ends. Returns the units that the store has then.
fn left_after_the_end(store: &str, rule: &str, more: &[&str], signal: &str) -> Option<u64> {
    let server = start(store, rule, more);
    for _ in 0..20 {
        assert!(server.get("/").is_admitted());
    }
    end(server, signal);
    // This request takes one itself.
    let left = start(store, rule, &[CLOSED]).get("/").remaining();
    left.map(|left| left + 1)
}

#[cfg(feature = "redis")]
mod redis {
    use super::{LEASE, SYNC, end, left_after_the_end, start};
    use crate::servers::Redis;

    #[test]
    fn admissions_that_were_not_pushed_are_in_the_store() {
        for (rule, signal) in [
            ("token-bucket 100/100d", "TERM"),
            ("token-bucket 100/100d", "INT"),
            ("sliding-window 100/100d slices=4", "TERM"),
        ] {
            let redis = Redis::start();
            let left = left_after_the_end(&redis.url(), rule, SYNC, signal);
            assert_eq!(left, Some(80), "{rule}, {signal}");
        }
    }

    /// A bucket leaves out what is refilled within a hold: less than a unit here.
    #[test]
    fn leased_units_are_given_back() {
        for (rule, signal, expected) in [
            ("token-bucket 100/100d", "TERM", 79),
            ("fixed-window 100/100d", "INT", 80),
        ] {
            let redis = Redis::start();
            let left = left_after_the_end(&redis.url(), rule, LEASE, signal);
            assert_eq!(left, Some(expected), "{rule}, {signal}");
        }
    }

    /// A store that is gone does not keep the server from ending, and the error has the number of
    /// units.
    #[test]
    fn units_that_cannot_be_pushed_are_an_error_of_one_sentence() {
        let redis = Redis::start();
        let server = start(&redis.url(), "token-bucket 100/100d", SYNC);
        for _ in 0..20 {
            assert!(server.get("/").is_admitted());
        }
        redis.kill();
        let errors = end(server, "TERM");
        let lost = "the store did not confirm 20 admitted units within 2s";
        assert!(errors.contains(lost), "{errors}");
    }
}

#[cfg(feature = "memcached")]
mod memcached {
    use super::{CLOSED, LEASE, SYNC, left_after_the_end, start};
    use crate::servers::Memcached;

    fn url(memcached: &Memcached) -> String {
        format!("memcached://{}", memcached.address())
    }

    /// Windows are counted, and buckets are compared and swapped.
    #[test]
    fn admissions_that_were_not_pushed_are_in_the_store() {
        for rule in [
            "fixed-window 100/100d",
            "sliding-window 100/100d slices=4",
            "token-bucket 100/100d",
        ] {
            let memcached = Memcached::start();
            let left = left_after_the_end(&url(&memcached), rule, SYNC, "TERM");
            assert_eq!(left, Some(80), "{rule}");
        }
    }

    #[test]
    fn leased_units_are_given_back() {
        let memcached = Memcached::start();
        let left = left_after_the_end(&url(&memcached), "token-bucket 100/100d", LEASE, "TERM");
        assert_eq!(left, Some(79));
    }

    /// `--sync` is for windows in counters, too: an outage is not felt.
    #[test]
    fn windows_are_decided_ahead_of_the_counters() {
        let memcached = Memcached::start();
        let rule = "fixed-window 100/100d";
        let server = start(
            &url(&memcached),
            rule,
            &["--sync=50ms", "--nodes=2", CLOSED],
        );
        assert!(server.get("/").is_admitted());
        memcached.kill();
        for _ in 0..30 {
            assert!(server.get("/").is_admitted());
        }
    }
}
