//! Faults that must be noticed whoever calls, and however often: by one caller at several paces, by
//! four and by 64.

use tollgate::{FixedWindow, TokenBucket, key::Key, store::MemcachedConnection};

use super::{
    at_once, counters,
    crowd::{Crowd, RESPONSE},
    servers, swaps, url, window,
};

/// Both stores of a server behind a proxy, each asked by callers of every kind.
struct Both {
    server: servers::Memcached,
    proxy: servers::Proxy,
    swaps: Crowd,
    counters: Crowd,
}

impl Both {
    async fn start() -> Self {
        let server = servers::Memcached::start();
        let proxy = servers::Proxy::start(server.address());
        let connect = async || {
            let builder = MemcachedConnection::builder(url(proxy.address()));
            builder.response_timeout(RESPONSE).connect().await.unwrap()
        };
        let clients: Vec<_> = (0..10_u64).map(Key::from).collect();
        let rule: TokenBucket = at_once(1_000_000);
        let by_swaps = Crowd::start(&clients, rule, async || swaps(&connect().await));
        let swaps = by_swaps.await;
        let rule: FixedWindow = window(1_000_000);
        let by_counters = Crowd::start(&clients, rule, async || counters(&connect().await));
        let counters = by_counters.await;
        Self {
            server,
            proxy,
            swaps,
            counters,
        }
    }

    fn has_failed(&self) {
        self.swaps.has_failed();
        self.counters.has_failed();
    }

    fn is_answered(&self) {
        self.swaps.is_answered();
        self.counters.is_answered();
    }

    async fn end(self) {
        self.swaps.end().await;
        self.counters.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_closed_for_any_number_of_callers() {
    let both = Both::start().await;
    for _ in 0..2 {
        // Half-open: nobody says that they are gone.
        both.proxy.abandon();
        both.has_failed();
        both.is_answered();
    }
    both.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_or_killed_server_is_retried_for_any_number_of_callers() {
    let both = Both::start().await;
    both.server.pause();
    both.has_failed();
    both.server.resume();
    both.is_answered();
    both.server.kill();
    both.has_failed();
    both.server.restart();
    both.is_answered();
    both.proxy.cut();
    both.is_answered();
    both.end().await;
}
