//! Units that a shared store grants ahead: `--lease`.

use super::{Program, SOON, Server, now};

const RULE: &str = "token-bucket 100/1h";

fn args<'a>(store: &'a str, rule: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--rule", rule, "--store", store], more].concat()
}

/// Two servers together never exceed what the hold leaves of the burst.
fn two_servers_share_one_limit(store: &str, lease: &str, left: u64) {
    let patient = ["--on-store-error=closed", "--store-timeout=10s", lease];
    let start = now();
    let both = [(); 2].map(|()| Server::start(&args(store, RULE, &patient)));
    let mut admitted = 0;
    for _ in 0..100 {
        for server in &both {
            admitted += u64::from(server.get("/").is_admitted());
        }
    }
    let refilled = start.elapsed().as_secs() / 36;
    // A server that finds less than it was asked for pauses, so some of it may be left.
    assert!(
        (left / 2..=left + refilled).contains(&admitted),
        "{lease}: {admitted}"
    );
    let refused = both[0].get("/");
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
}

/// A rule that cannot be leased is an error before the server listens.
fn wrong_leases_are_errors_of_one_sentence(store: &str) {
    for (rule, lease, parts) in [
        (
            "leaky-bucket 5/1s queue=5",
            "--lease",
            [
                "--lease: leases of `leaky-bucket 5/s`",
                "expected a token bucket, fixed or sliding windows",
            ],
        ),
        (
            "token-bucket 5/10s & cascade 2/1s > 1/1s burst=3",
            "--lease=1s",
            ["--lease: leases of `cascade ", "leave the leases out"],
        ),
        (
            "token-bucket 5/10s burst=5",
            "--lease=9s",
            [
                "`token-bucket 5/10s` with leases of 9s",
                "choose shorter leases",
            ],
        ),
    ] {
        let (status, _, errors) = Program::quickstart(&args(store, rule, &[lease])).end(SOON);
        assert_eq!(status.code(), Some(1), "{rule}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        for part in parts {
            assert!(errors.contains(part), "{rule}: {errors}");
        }
    }
}

#[cfg(feature = "redis")]
mod redis {
    use std::time::Duration;

    use super::{
        Program, args, two_servers_share_one_limit, wrong_leases_are_errors_of_one_sentence,
    };
    use crate::servers::Redis;

    /// A tenth of the burst, or what is refilled within the hold, is left out.
    #[test]
    fn two_servers_with_leases_share_one_limit() {
        for (lease, left) in [("--lease", 90), ("--lease=30m", 50), ("--lease=100ms", 99)] {
            let redis = Redis::start();
            two_servers_share_one_limit(&redis.url(), lease, left);
        }
    }

    #[test]
    fn a_rule_that_cannot_be_leased_is_an_error_of_one_sentence() {
        let redis = Redis::start();
        wrong_leases_are_errors_of_one_sentence(&redis.url());
    }

    #[test]
    fn the_demo_keeps_the_promise_of_the_rule_with_leases() {
        let redis = Redis::start();
        let url = redis.url();
        let demo = args(&url, "token-bucket 20/1s burst=40", &["--demo", "--lease"]);
        let (status, output, errors) = Program::quickstart(&demo).end(Duration::from_secs(90));
        assert!(status.success(), "{errors}\n{output}");
        assert!(output.contains("The rule kept its promise"), "{output}");
        assert!(
            output.contains("Exactly that much later: admitted."),
            "{output}"
        );
    }
}

#[cfg(feature = "memcached")]
mod memcached {
    use super::{
        RULE, Server, args, two_servers_share_one_limit, wrong_leases_are_errors_of_one_sentence,
    };
    use crate::servers::Memcached;

    fn url(memcached: &Memcached) -> String {
        format!("memcached://{}", memcached.address())
    }

    #[test]
    fn two_servers_with_leases_share_one_limit() {
        let memcached = Memcached::start();
        two_servers_share_one_limit(&url(&memcached), "--lease", 90);
    }

    #[test]
    fn a_rule_that_cannot_be_leased_is_an_error_of_one_sentence() {
        let memcached = Memcached::start();
        wrong_leases_are_errors_of_one_sentence(&url(&memcached));
    }

    /// A window is leased too. Then it is compared and swapped, and not counted.
    #[test]
    fn leased_units_outlive_the_store() {
        for rule in [RULE, "fixed-window 100/100d"] {
            let memcached = Memcached::start();
            let url = url(&memcached);
            let patient = ["--on-store-error=closed", "--store-timeout=10s", "--lease"];
            let server = Server::start(&args(&url, rule, &patient));
            for _ in 0..20 {
                assert_eq!(server.get("/").status, 200, "{rule}");
            }
            memcached.kill();
            let admitted = (0..80).take_while(|_| server.get("/").status == 200);
            let admitted = admitted.count();
            assert!((1..80).contains(&admitted), "{rule}: {admitted}");
            assert_eq!(server.get("/").status, 503, "{rule}");
        }
    }
}
