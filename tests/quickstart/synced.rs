//! Requests that are decided here, and told to a shared store later: `--sync`.

use std::time::Duration;

use super::{Program, SOON, Server, now};
use crate::servers::Redis;

const RULE: &str = "token-bucket 100/1h";

fn args<'a>(store: &'a str, rule: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--rule", rule, "--store", store], more].concat()
}

/// Returns how many of so many requests are admitted, in turn by all servers.
fn admitted(servers: &[Server], requests: usize) -> u64 {
    let mut admitted = 0;
    for n in 0..requests {
        admitted += u64::from(servers[n % servers.len()].get("/").is_admitted());
    }
    admitted
}

/// Two servers exceed the limit by the bound at most, and nothing is lost below it.
#[test]
fn two_servers_share_one_limit_up_to_the_bound() {
    let redis = Redis::start();
    let url = redis.url();
    let way = [
        "--on-store-error=closed",
        "--store-timeout=10s",
        "--nodes=2",
    ];
    for (rule, more, bound) in [
        (RULE, &["--sync=50ms", "--overshoot=10%"][..], 10),
        (
            "fixed-window 100/100d",
            &["--sync=50ms", "--overshoot", "0"],
            0,
        ),
        ("sliding-window 100/100d", &["--sync"], 5),
    ] {
        let more = [&way, more].concat();
        let both = [(); 2].map(|()| Server::start(&args(&url, rule, &more)));
        let admitted = admitted(&both, 300);
        assert!(
            (100..=100 + bound).contains(&admitted),
            "{rule}: {admitted}"
        );
        assert_eq!(both[0].get("/").status, 429);
    }
}

/// The store is gone, and a server goes on by its part. Afterwards the store knows what was
/// admitted.
#[test]
fn an_outage_is_not_felt_and_is_repaid() {
    let redis = Redis::options().durable().start();
    let url = redis.url();
    let way = ["--on-store-error=closed", "--nodes=2", "--sync=50ms"];
    let one = [Server::start(&args(&url, RULE, &way))];
    assert_eq!(admitted(&one, 20), 20);
    std::thread::sleep(Duration::from_millis(500));
    redis.kill();
    let alone = admitted(&one, 30);
    assert_eq!(alone, 30, "less than its part of what remained");
    redis.restart();
    // Another server knows all of it, as soon as the first one has told the store.
    let start = now();
    let left = loop {
        std::thread::sleep(Duration::from_millis(500));
        let other = Server::start(&args(&url, RULE, &["--on-store-error=closed"]));
        let left = other.get("/").remaining();
        if left <= Some(50) || start.elapsed() > Duration::from_secs(20) {
            break left;
        }
    };
    assert!(left <= Some(50) && left >= Some(30), "{left:?}");
}

#[test]
fn wrong_settings_are_errors_of_one_sentence() {
    let redis = Redis::start();
    let url = redis.url();
    for (rule, more, part) in [
        (
            "leaky-bucket 5/1s queue=5",
            &["--sync"][..],
            "--sync: `leaky-bucket 5/s`",
        ),
        (RULE, &["--sync", "--lease"], "expected one of them"),
        (RULE, &["--overshoot=5%"], "expected --sync"),
        (RULE, &["--sync=2h"], "expected 1ms to 1m"),
        (RULE, &["--sync", "--overshoot=101%"], "from 0 to 100"),
    ] {
        let (status, _, errors) = Program::quickstart(&args(&url, rule, more)).end(SOON);
        assert!(!status.success(), "{more:?}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
    let (_, _, errors) = Program::quickstart(&["--sync"]).end(SOON);
    assert!(
        errors.contains("needs a store that servers share"),
        "{errors}"
    );
}
