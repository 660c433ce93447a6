//! Sentinels and servers that accept only TLS, for all connections.

use std::time::Duration;

use tollgate::{
    TokenBucket,
    key::Key,
    store::{Redis, RedisBuilder},
};

use super::server;
use crate::{acquire, admitted, at_once, groups::replicated, in_time, servers, until_answered};

const RESPONSE: Duration = Duration::from_millis(500);
const PASSWORD: &str = "t3ll:m@";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_with_a_custom_root() {
    let tls = server::tls(true);
    let group = servers::Sentinel::start_by_tls(&tls, PASSWORD);
    let hosts = group.ports().map(|port| format!("localhost:{port}"));
    let of = |scheme: &str| {
        let url = format!(
            "{scheme}://{}/{}",
            hosts.join(","),
            servers::Sentinel::MASTER
        );
        Redis::<TokenBucket>::builder(url).response_timeout(RESPONSE)
    };
    let by_tls = || of("rediss-sentinel").root_certificate(tls.certificate.as_str());
    let known = |builder: RedisBuilder<TokenBucket>| {
        builder.client_certificate(tls.certificate.as_str(), tls.key.as_str())
    };
    let builder = || known(by_tls()).sentinel_login("", PASSWORD);
    let failure = async |builder: RedisBuilder<TokenBucket>| {
        let store = in_time(2 * RESPONSE, builder.connect()).await;
        store.unwrap_err()
    };

    // Each misconfiguration is an error that says what to do, in time.
    let other = server::tls(true);
    let strange = || of("rediss-sentinel").root_certificate(other.certificate.as_str());
    for (wrong, advice) in [
        (known(strange()), "`RedisBuilder::root_certificate`"),
        (by_tls(), "`RedisBuilder::client_certificate`"),
        (known(by_tls()), "`RedisBuilder::sentinel_login`"),
        (
            builder().sentinel_login("", "guess"),
            "`RedisBuilder::sentinel_login`",
        ),
        (builder().plain_sentinels(), ""),
        (of("redis-sentinel"), ""),
    ] {
        let error = failure(wrong).await;
        assert!(error.to_string().contains(advice), "{advice}: {error:?}");
    }

    let store: Redis<TokenBucket> = builder().connect().await.unwrap();
    let (rule, key) = (at_once(5), Key::from(7_u64));
    assert_eq!(admitted(&store, &rule, key, 3).await, 3);
    // Another database in the URL is another limit.
    let url = format!(
        "rediss-sentinel://{}/{}/3",
        hosts[1],
        servers::Sentinel::MASTER
    );
    let third = Redis::<TokenBucket>::builder(url).root_certificate(tls.certificate.as_str());
    let third = known(third).sentinel_login("default", PASSWORD);
    let third: Redis<TokenBucket> = third.connect().await.unwrap();
    assert_eq!(admitted(&third, &rule, key, 8).await, 5);
    assert_eq!(
        group.master().info("keyspace", "db3").split(',').next(),
        Some("keys=1")
    );

    let old = group.master();
    replicated(old, "probe");
    old.kill();
    assert!(acquire(&store, &rule, key).await.is_err());
    until_answered(&store, &rule, Key::from(8_u64)).await;
    assert_ne!(group.master().port(), old.port());
    // The charges that reached the replica are kept.
    assert_eq!(admitted(&store, &rule, key, 8).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_sentinels_of_a_tls_server() {
    let tls = server::tls(false);
    let group = servers::Sentinel::start_by_tls(&tls, PASSWORD);
    let url = group.url("rediss-sentinel://");
    let builder = Redis::<TokenBucket>::builder(url)
        .root_certificate(tls.certificate.as_str())
        .sentinel_login("", PASSWORD)
        .response_timeout(RESPONSE);
    // These ports of the sentinels do not use TLS.
    let error = builder.clone().connect().await.unwrap_err();
    let is_told = error.is_timeout() || error.to_string().contains("has no TLS");
    assert!(is_told, "{error:?}");
    let store: Redis<TokenBucket> = builder.plain_sentinels().connect().await.unwrap();
    assert_eq!(admitted(&store, &at_once(5), Key::from(7_u64), 8).await, 5);
    // No connection reached the plain port of the master.
    let clients = group
        .master()
        .command(&["CLIENT", "LIST", "TYPE", "normal"]);
    let port = format!("laddr=127.0.0.1:{}", group.master().port());
    let plain = clients.lines().filter(|client| client.contains(&port));
    assert_eq!(
        plain.count(),
        1,
        "only this test's own connection: {clients}"
    );
}
