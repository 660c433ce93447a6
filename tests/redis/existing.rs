//! A connection provided by the application.

use tollgate::{
    TokenBucket,
    key::Key,
    store::{Redis, RedisConnection, driver::ScriptStore},
};

use super::{acquire, admitted, at_once, servers, until_answered};

#[tokio::test]
async fn a_connection_manager_is_shared_and_reconnects() {
    let server = servers::Redis::start();
    let client = ::redis::Client::open(server.url()).unwrap();
    let manager = client.get_connection_manager().await.unwrap();
    let store: Redis<TokenBucket> = Redis::from_connection(manager.clone()).await.unwrap();
    let (rule, key) = (at_once(5), Key::from(7_u64));
    assert_eq!(admitted(&store, &rule, key, 3).await, 3);
    // Each kind of connection uses the same limit. Another prefix is another limit.
    let multiplexed = client.get_multiplexed_async_connection().await.unwrap();
    let other: Redis<TokenBucket> = Redis::from_connection(multiplexed).await.unwrap();
    assert_eq!(admitted(&other, &rule, key, 1).await, 1);
    let shop: Redis<TokenBucket> = ScriptStore::with_prefix(RedisConnection::from(manager), "shop");
    assert_eq!(admitted(&shop, &rule, key, 9).await, 5);
    assert_eq!(
        server
            .command(&["CLIENT", "LIST", "TYPE", "normal"])
            .lines()
            .count(),
        3
    );

    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert!(until_answered(&store, &rule, key).await < 10);
    assert_eq!(admitted(&store, &rule, key, 9).await, 0);
    // This kind of connection is not reopened.
    for _ in 0..3 {
        assert!(
            acquire(&other, &rule, key)
                .await
                .unwrap_err()
                .is_unavailable()
        );
    }
}
