//! Programs that were ported from tower_governor, both versions against each other: the same
//! requests over real connections, and the same admissions.
//!
//! The page `src/migration.md` says what differs on purpose; `traps` shows each of these.

mod changed_lines;
mod round;
mod traps;

#[path = "../../../examples/ported/api_keys/after.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a program, whose `main` is not called"
)]
mod api_keys_after;
#[path = "../../../examples/ported/api_keys/before.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a program, whose `main` is not called"
)]
mod api_keys_before;
#[path = "../../../examples/ported/peers/after.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a program, whose `main` is not called"
)]
mod peers_after;
#[path = "../../../examples/ported/peers/before.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a program, whose `main` is not called"
)]
mod peers_before;
#[path = "../../../examples/ported/proxy/after.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a program, whose `main` is not called"
)]
mod proxy_after;
#[path = "../../../examples/ported/proxy/before.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a program, whose `main` is not called"
)]
mod proxy_before;

use std::time::Duration;

use http::Method;

use self::round::{Limit, Servers, Visitor, compare};

fn peers() -> Servers {
    Servers::start(peers_before::serve, peers_after::serve)
}

fn proxy() -> Servers {
    Servers::start(proxy_before::serve, proxy_after::serve)
}

fn api_keys() -> Servers {
    Servers::start(api_keys_before::serve, api_keys_after::serve)
}

/// Five at once, and one more every four seconds: the limit of two programs.
const FIVE: Limit = Limit {
    period: Duration::from_secs(4),
    burst: 5,
};

/// All programs at the same time, because each sleeps for seconds.
#[tokio::test]
async fn the_ports_admit_as_before() {
    tokio::join!(
        peers_are_admitted_as_before(),
        clients_of_a_proxy_are_admitted_as_before(),
        api_keys_are_admitted_as_before(),
    );
}

async fn peers_are_admitted_as_before() {
    let visitor = |last| Visitor::at([127, 0, 0, last]);
    let [alice, bob, carol] = [2, 3, 4].map(visitor);
    compare(FIVE, peers, async |round| {
        round.send(&alice, 6).await?;
        round.send(&bob, 3).await?;
        round.next_step().await?;
        round.send(&alice, 2).await?;
        round.send(&bob, 5).await?;
        round.send(&carol, 6).await?;
        // The first got one request back. `per_second(4)` here would have filled its bucket.
        assert_eq!(
            round.admitted(),
            [("127.0.0.2", 6), ("127.0.0.3", 6), ("127.0.0.4", 5)]
        );
        Ok(())
    })
    .await;
}

async fn clients_of_a_proxy_are_admitted_as_before() {
    let post = |client: &'static str| Visitor {
        method: Method::POST,
        path: "/comments",
        headers: vec![("x-forwarded-for", client)],
        ..Visitor::at([127, 0, 0, 1]).limited_by(client)
    };
    let [alice, bob] = ["192.0.2.1", "2001:db8::2"].map(post);
    let reader = Visitor {
        method: Method::GET,
        ..alice.clone()
    };
    compare(FIVE, proxy, async |round| {
        for answers in [round.send(&alice, 6).await?, round.send(&bob, 2).await?] {
            for [before, after] in &answers {
                for name in ["x-ratelimit-limit", "x-ratelimit-remaining"] {
                    assert!(after.header(name).is_some(), "{name}");
                    assert_eq!(before.header(name), after.header(name), "{name}");
                }
                let is_refused = before.status == 429;
                assert_eq!(before.header("x-ratelimit-after").is_some(), is_refused);
                assert_eq!(before.header("x-ratelimit-reset"), None);
                assert_eq!(after.header("x-ratelimit-after"), None);
                assert!(after.header("x-ratelimit-reset").is_some());
            }
        }
        for [before, after] in &round.send_free(&reader, 8).await? {
            assert_eq!(before.header("x-ratelimit-whitelisted"), Some("true"));
            assert_eq!(before.header("x-ratelimit-remaining"), None);
            assert_eq!(after.header("x-ratelimit-remaining"), None);
        }
        round.next_step().await?;
        round.send(&alice, 2).await?;
        round.send(&bob, 5).await?;
        assert_eq!(round.admitted(), [("192.0.2.1", 6), ("2001:db8::2", 6)]);
        Ok(())
    })
    .await;
}

async fn api_keys_are_admitted_as_before() {
    let limit = Limit {
        period: Duration::from_millis(3500),
        burst: 3,
    };
    let holder = |last, key: &'static str| Visitor {
        headers: vec![("x-api-key", key)],
        ..Visitor::at([127, 0, 0, last]).limited_by(key)
    };
    // A key counts from all addresses together.
    let [office, mobile, other] =
        [(2, "k1"), (3, "k1"), (3, "k2")].map(|(at, key)| holder(at, key));
    compare(limit, api_keys, async |round| {
        round.send(&office, 2).await?;
        round.send(&mobile, 3).await?;
        round.send(&other, 2).await?;
        round.next_step().await?;
        round.send(&office, 2).await?;
        round.send(&other, 4).await?;
        assert_eq!(round.admitted(), [("k1", 4), ("k2", 4)]);
        Ok(())
    })
    .await;
}
